/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 inlined, in plain C. Floor 1. */
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_SCALAR
#include <xxhash.h>

#include "kernels/table.h"

/* kern_hash() of this table. */
uint64_t kern_hash_ref(const void *data, uint64_t bytes)
{
	return XXH3_64bits(data, bytes);
}
