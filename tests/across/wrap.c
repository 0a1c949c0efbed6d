/* SPDX-License-Identifier: Apache-2.0 */
/* A zinfd that takes models of jobs which span nodes, before such jobs can train: linked with
 * --wrap=zero_new, so that nothing of it is in the daemon itself. */
#include "daemon/zero/zero.h"

int __real_zero_new(const struct zero_options *options, struct zero **ret_zero);
int __wrap_zero_new(const struct zero_options *options, struct zero **ret_zero);

int __wrap_zero_new(const struct zero_options *options, struct zero **ret_zero)
{
	struct zero_options own = *options;

	own.trains_across = true;
	return __real_zero_new(&own, ret_zero);
}
