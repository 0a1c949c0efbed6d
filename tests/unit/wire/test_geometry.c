/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the arithmetic of the flat parameter space is as docs/ARITHMETIC.md says. Method: tables on
 * both sides of each limit; subgroups and tiles summed up again. */
#include <criterion/criterion.h>
#include <errno.h>

#include "common/wire/geometry.h"

Test(geometry, elements_are_the_product_of_the_shape)
{
	const uint64_t shape[] = { 2, 3, 5, 7, 1, 1, 1, 11 };
	uint64_t count = 0;

	cr_assert_eq(zi_geometry_elements(NULL, 0, &count), 0);
	cr_assert_eq(count, 1, "a scalar");
	cr_assert_eq(zi_geometry_elements(shape, 8, &count), 0);
	cr_assert_eq(count, 2310);
}

Test(geometry, elements_are_limited_and_never_wrap)
{
	const struct {
		uint64_t shape[3];
		int r;
	} cases[] = {
		{ { 1ull << 48, 1, 1 }, 0 },
		{ { 1ull << 24, 1ull << 24, 1 }, 0 },
		{ { (1ull << 48) + 1, 1, 1 }, -EOVERFLOW },
		{ { 1ull << 24, 1ull << 24, 2 }, -EOVERFLOW },
		{ { 1ull << 32, 1ull << 32, 1 }, -EOVERFLOW }, /* 2^64 is 0 */
		{ { UINT64_MAX, UINT64_MAX, UINT64_MAX }, -EOVERFLOW },
		{ { 5, 0, 5 }, -EINVAL },
		{ { UINT64_MAX, UINT64_MAX, 0 }, -EINVAL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t count = 77;

		cr_expect_eq(zi_geometry_elements(cases[i].shape, 3, &count), cases[i].r, "%zu", i);
		cr_expect(cases[i].r ? count == 77 : count == 1ull << 48, "%zu", i);
	}
}

Test(geometry, units_are_padded_to_blocks_and_begin_on_slots)
{
	cr_assert_eq(zi_geometry_padded(0), 0);
	cr_assert_eq(zi_geometry_padded(1), 4096);
	cr_assert_eq(zi_geometry_padded(4096), 4096);
	cr_assert_eq(zi_geometry_padded(4097), 8192);
	cr_assert_eq(zi_geometry_unit_bytes(4096, 2, 4096), 8192);
	cr_assert_eq(zi_geometry_unit_bytes(4096, 2, 2 << 20), 2 << 20);
	cr_assert_eq(zi_geometry_unit_bytes(1 << 20, 4, 2 << 20), 4 << 20);
	cr_assert_eq(zi_geometry_unit_bytes((1 << 20) + 4096, 4, 2 << 20), 6 << 20);
}

Test(geometry, subgroups_and_tiles_cover_a_unit_exactly)
{
	const uint64_t counts[] = { 4096, 16384, 20480, 262144, 262144 + 4096, 5 * 262144 - 4096 };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		uint32_t subgroup_count = zi_geometry_subgroup_count(counts[i]);
		uint64_t sum = 0;

		for (uint32_t k = 0; k < subgroup_count; k++) {
			uint64_t elements = zi_geometry_subgroup_elements(counts[i], k);
			uint32_t tile_count = zi_geometry_tile_count(elements);

			cr_expect(k == subgroup_count - 1 || elements == ZI_SUBGROUP_ELEMENTS);
			cr_expect_gt(elements, 0);
			cr_expect_geq((uint64_t)tile_count * ZI_TILE_ELEMENTS, elements);
			cr_expect_lt((uint64_t)(tile_count - 1) * ZI_TILE_ELEMENTS, elements);
			sum += elements;
		}
		cr_expect_eq(sum, counts[i]);
	}
}
