/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the element functions (kernels/element), compiled for the host, give the bits of kern_*,
 * also of NaN and denormals; so does each kernel of kernels/cuda.h that calls them.
 * Method: drawn cases of all kernels, computed by kern_* and by the fake GPU's loops over the
 * element functions, until $ZINF_ELEMENTS elements (a million) were compared. `make check-element`
 * compares 10^8 of them, from the seed that it prints.
 */
#include <criterion/criterion.h>

#include "kernels/kernels.h"
#include "tests/gpu/kernels.h"
#include "tests/kernels/cuda_case.h"

/* Several turns for each thread. */
static const uint32_t shape[] = { 3, 1, 1, 64, 1, 1 };

static uint64_t number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t check_case(enum kern_cuda_kernel kernel, uint64_t seed)
{
	static char *expected, *found;
	const struct cuda_case c = case_draw(kernel, seed);
	union cuda_args args;
	void *const parameters[] = { &args };

	expected = expected ? expected : case_memory_new();
	found = found ? found : case_memory_new();
	case_fill(&c, expected, (uintptr_t)expected, &args);
	case_expect(&c, &args);
	case_fill(&c, found, (uintptr_t)found, &args);
	fake_state_kernels[kernel].run(shape, parameters);
	case_compare(&c, expected, found);
	return c.element_count;
}

static void check_elements(uint64_t element_count, uint64_t seed)
{
	uint64_t done = 0;

	for (uint64_t i = 0; done < element_count; i++)
		done += check_case((enum kern_cuda_kernel)(i % _KERN_CUDA_COUNT),
		                   seed * 1000003 + i);
}

Test(element, functions_have_the_bits_of_the_kernels_in_use)
{
	check_elements(number_of("ZINF_ELEMENTS", 1000000), number_of("ZINF_SEED", 1));
}

Test(element, functions_have_the_bits_of_the_reference)
{
	cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
	check_elements(300000, 2);
}

Test(element, functions_are_those_of_the_reference_for_each_16_bit_value)
{
	for (uint32_t bits = 0; bits <= 0xffff; bits++) {
		const uint16_t half = (uint16_t)bits;
		float wide;

		kern_widen(&wide, &half, 1, ZI_DTYPE_F16);
		cr_assert_eq(kern_f32_bits(wide), kern_f32_bits(kern_f16_to_f32(half)));
		kern_widen(&wide, &half, 1, ZI_DTYPE_BF16);
		cr_assert_eq(kern_f32_bits(wide), kern_f32_bits(kern_bf16_to_f32(half)));
	}
}
