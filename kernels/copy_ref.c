/* SPDX-License-Identifier: Apache-2.0 */
/* Copying to several places: the definition. Floor 1. */
#include <string.h>

#include "kernels/table.h"

/* kern_copy() target by target. */
void kern_copy_ref(void *const *targets, uint32_t target_count, const void *source, uint64_t bytes,
                   bool is_streaming)
{
	(void)is_streaming;
	for (uint32_t t = 0; t < target_count; t++)
		memmove(targets[t], source, bytes);
}
