/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that every fake GPU knows; see kernels.h. */
#include "tests/gpu/kernels.h"

#include <stddef.h>

#include "common/base/cleanup.h"
#include "tests/gpu/fake_gpu.h"

/* fake_mix(target, source, count, rounds): u32 words through rounds of a linear generator. The
 * result shows which words were read. Constants: Numerical Recipes, "ranqd1". */
static void mix(const uint32_t *shape, void *const *parameters)
{
	uint32_t *target = *(uint32_t *const *)parameters[0];
	const uint32_t *source = *(const uint32_t *const *)parameters[1];
	const uint64_t count = *(const uint64_t *)parameters[2];
	const uint32_t rounds = *(const uint32_t *)parameters[3];

	(void)shape;
	for (uint64_t i = 0; i < count; i++) {
		uint32_t word = source[i];

		for (uint32_t round = 0; round < rounds; round++)
			word = word * 1664525u + 1013904223u;
		target[i] = word;
	}
}

const struct fake_kernel fake_kernels[] = {
	{ "fake_mix", mix, { 8, 8, 8, 4 } },
};
const uint32_t fake_kernel_count = ZI_COUNT_OF(fake_kernels);
