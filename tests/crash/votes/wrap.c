/* SPDX-License-Identifier: Apache-2.0 */
/* A zinfd all of whose jobs commit as those of several nodes do (tests/power/votes.h): linked with
 * --wrap=job_new, so that nothing of it is in the daemon itself. */
#include "daemon/zero/job/job.h"
#include "tests/power/votes.h"

int __real_job_new(struct zero *zero, const char *name, uint32_t uid, struct zero_job **ret_job);
int __wrap_job_new(struct zero *zero, const char *name, uint32_t uid, struct zero_job **ret_job);

int __wrap_job_new(struct zero *zero, const char *name, uint32_t uid, struct zero_job **ret_job)
{
	int r = __real_job_new(zero, name, uid, ret_job);

	if (!r)
		votes_give(*ret_job);
	return r;
}
