/* SPDX-License-Identifier: Apache-2.0 */
/* Values of tensors (values.h). */
#include "tests/harness/values.h"

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline float value_at(uint64_t what, uint64_t index)
{
	uint64_t bits = mix(what * 0x9e3779b97f4a7c15ull + index);
	float value = (float)(int32_t)(uint32_t)bits * 0x1p-31f;

	return bits >> 60 ? value : value * 0x1p-20f;
}

uint64_t test_noise(uint64_t x)
{
	return mix(x);
}

float test_value(uint64_t what, uint64_t index)
{
	return value_at(what, index);
}

void test_values(float *values, uint64_t what, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		values[i] = value_at(what, i);
}
