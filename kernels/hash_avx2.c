/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 inlined, in AVX2. Floor 1. */
#if defined(__x86_64__)
#define XXH_INLINE_ALL
#define XXH_VECTOR 2 /* XXH_AVX2: the header's enum, which the preprocessor cannot read */
#include <xxhash.h>

#include "kernels/table.h"

uint64_t kern_hash_avx2(const void *data, uint64_t bytes)
{
	return XXH3_64bits(data, bytes);
}
#endif

