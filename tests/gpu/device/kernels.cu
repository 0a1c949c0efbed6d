/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of a run on a real GPU. Both have the parameters of the fake driver's fake_mix. */
#include <stdint.h>

/* Words through rounds of a linear generator: work that depends on what was copied. Constants:
 * Numerical Recipes, "ranqd1". */
extern "C" __global__ void trial_mix(uint32_t *target, const uint32_t *source, uint64_t count,
                                     uint32_t rounds)
{
	const uint64_t threads = gridDim.x * (uint64_t)blockDim.x;

	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
	     i += threads) {
		uint32_t word = source[i];

		for (uint32_t round = 0; round < rounds; round++)
			word = word * 1664525u + 1013904223u;
		target[i] = word;
	}
}

/* Never ends, as long as nobody writes @rounds into the first word. */
extern "C" __global__ void trial_spin(uint32_t *target, const uint32_t *source, uint64_t count,
                                      uint32_t rounds)
{
	const volatile uint32_t *word = source;

	while (*word != rounds) {
	}
	target[0] = (uint32_t)count;
}
