/* SPDX-License-Identifier: Apache-2.0 */
/* Copying to several places: the public function. Bytes only: no environment to enter. Floor 1. */
#include "kernels/copy.h"
#include "common/base/assert.h"
#include "kernels/table.h"

/**
 * kern_copy() - the same bytes to every target
 * @targets: target_count pointers to (bytes,); none overlaps @source, but one may be it
 * @target_count: 0 … ZI_WORLD_MAX
 * @source: (bytes,) of any alignment
 * @is_streaming: nobody reads the targets soon: they pass by the cache, where they are aligned
 *
 * Context: any thread.
 */
void kern_copy(void *const *targets, uint32_t target_count, const void *source, uint64_t bytes,
               bool is_streaming)
{
	assert(target_count <= ZI_WORLD_MAX);
	kern_table()->copy(targets, target_count, source, bytes, is_streaming);
}
