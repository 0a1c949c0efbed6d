/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 inlined, in AVX2. Floor 1. */
#if defined(__x86_64__)
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>

#include "kernels/table.h"

/* kern_hash() of this table. */
uint64_t kern_hash_avx2(const void *data, uint64_t bytes)
{
	return XXH3_64bits(data, bytes);
}
#endif
