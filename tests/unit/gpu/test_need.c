/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the chunks that a model needs are known, an arena with fewer is refused with both figures,
 * and units lie on the chunks that ring.h describes. Method: models by hand.
 */
#include <errno.h>

#include "tests/unit/gpu/ring.h"

/* Chunks 2, 1, 4, 1. */
static struct zi_gpu_units *four_units(struct scene *scene)
{
	struct zi_gpu_units *units = scene_init(scene, (const uint32_t[]){ 2, 1, 4, 1 }, 4);

	scene->list[0].bytes = CHUNK + 1;
	scene->list[3].bytes = 1;
	return units;
}

Test(gpu_need, neighbours_and_units_apart_are_counted)
{
	static const struct {
		uint32_t neighbour_count, apart; /* a unit; 4: none */
		struct zi_gpu_need need;
	} cases[] = {
		{ 1, 4, { .least_count = 4, .all_count = 8, .unit = 2 } },
		{ 2, 4, { .least_count = 5, .all_count = 8, .unit = 1 } },
		{ 3, 4, { .least_count = 7, .all_count = 8, .unit = 0 } },
		{ 4, 4, { .least_count = 8, .all_count = 8, .unit = 0 } },
		{ 9, 4, { .least_count = 8, .all_count = 8, .unit = 0 } },
		{ 1, 2, { .apart_count = 4, .least_count = 6, .all_count = 8, .unit = 0 } },
		{ 2, 2, { .apart_count = 4, .least_count = 7, .all_count = 8, .unit = 0 } },
		{ 2, 0, { .apart_count = 2, .least_count = 7, .all_count = 8, .unit = 1 } },
		{ 2, 1, { .apart_count = 1, .least_count = 7, .all_count = 8, .unit = 0 } },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct scene scene;
		struct zi_gpu_units *units = four_units(&scene);
		struct zi_gpu_need need;

		units->neighbour_count = cases[i].neighbour_count;
		if (cases[i].apart < units->count)
			scene.list[cases[i].apart].is_apart = true;
		cr_assert_eq(zi_gpu_need(units, NULL, &need), 0);
		cr_expect_eq(need.apart_count, cases[i].need.apart_count, "case %zu", i);
		cr_expect_eq(need.least_count, cases[i].need.least_count, "case %zu: %lu", i,
		             need.least_count);
		cr_expect_eq(need.all_count, cases[i].need.all_count, "case %zu", i);
		cr_expect_eq(need.unit, cases[i].need.unit, "case %zu: %u", i, need.unit);
	}
}

Test(gpu_need, units_that_all_lie_apart_need_their_chunks)
{
	struct scene scene;
	struct zi_gpu_units *units = scene_init(&scene, (const uint32_t[]){ 2, 3 }, 2);
	struct zi_gpu_need need;
	struct zi_gpu_ring *ring;

	scene.list[0].is_apart = scene.list[1].is_apart = true;
	cr_assert_eq(zi_gpu_need(units, NULL, &need), 0);
	cr_expect_eq(need.least_count, 5);
	cr_expect_eq(need.apart_count, 5);
	ring = ring_of(units, 5);
	cr_expect_eq(zi_gpu_ring_chunk(ring, 0, 0), 0);
	cr_expect_eq(zi_gpu_ring_chunk(ring, 1, 2), 4);
	ring = zi_gpu_ring_free(ring);
	cr_expect_null(ring);
}

static void expect_refused(const struct zi_gpu_units *units, uint32_t chunk_count, int error,
                           const char *expected)
{
	struct zi_gpu_ring *ring = NULL;
	struct zi_text text = { 0 };

	cr_expect_eq(zi_gpu_ring_new(units, chunk_count, &text, &ring), error);
	cr_expect_null(ring);
	cr_expect_str_eq(text.chars, expected);
	cr_expect_eq(zi_gpu_ring_new(units, chunk_count, NULL, &ring), error, "without a text");
}

Test(gpu_need, arena_below_the_need_is_refused_with_both_figures)
{
	struct scene scene;
	struct zi_gpu_units *units = four_units(&scene);

	expect_refused(units, 3, -ENOSPC,
	               "GPU memory for parameters: raise the budget from 6 MiB (3 chunks) to at "
	               "least 8 MiB (4 chunks), 4 for unit 'c'");
	(void)zi_gpu_ring_free(ring_of(units, 4));
	units->neighbour_count = 2;
	units->purpose = "gradients";
	expect_refused(units, 4, -ENOSPC,
	               "GPU memory for gradients: raise the budget from 8 MiB (4 chunks) to at "
	               "least 10 MiB (5 chunks), 5 for the 2 units from 'b' on");
	(void)zi_gpu_ring_free(ring_of(units, 5));
	scene.list[2].is_apart = true;
	expect_refused(units, 6, -ENOSPC,
	               "GPU memory for gradients: raise the budget from 12 MiB (6 chunks) to at "
	               "least 14 MiB (7 chunks), 3 for the 2 units from 'a' on, 4 for units in "
	               "use beside others");
	(void)zi_gpu_ring_free(ring_of(units, 7));
	scene.list[0].is_apart = scene.list[1].is_apart = scene.list[3].is_apart = true;
	expect_refused(units, 7, -ENOSPC,
	               "GPU memory for gradients: raise the budget from 14 MiB (7 chunks) to at "
	               "least 16 MiB (8 chunks), 8 for units in use beside others");
}

Test(gpu_need, arena_without_chunks_or_with_too_many_is_refused)
{
	struct scene scene;
	struct zi_gpu_units *units = four_units(&scene);

	expect_refused(
		units, 0, -EINVAL,
		"GPU memory for parameters: the arena has 0 chunks, but must have 1 to 1024");
	expect_refused(units, 1025, -EINVAL,
	               "GPU memory for parameters: the arena has 1025 chunks, but must have 1 to "
	               "1024");
	(void)zi_gpu_ring_free(ring_of(units, 1024));
}

Test(gpu_need, chunk_of_no_possible_size_is_refused)
{
	static const uint64_t sizes[] = { 0, 1, CHUNK - 1, CHUNK + 4096,
		                          ZI_GPU_CHUNK_BYTES_MAX + CHUNK };
	struct scene scene;
	struct zi_gpu_units *units = four_units(&scene);
	struct zi_text text;
	struct zi_gpu_need need;

	for (size_t i = 0; i < ZI_COUNT_OF(sizes); i++) {
		units->chunk_bytes = sizes[i];
		cr_expect_eq(zi_gpu_need(units, &text, &need), -EINVAL);
		cr_expect(strstr(text.chars, "must be a multiple of 2 MiB, at most 1 TiB"), "%s",
		          text.chars);
		expect_refused(units, 8, -EINVAL, text.chars);
	}
	units->chunk_bytes = ZI_GPU_CHUNK_BYTES_MAX;
	cr_expect_eq(zi_gpu_need(units, &text, &need), 0);
	cr_expect_eq(need.least_count, 1);
}

Test(gpu_need, model_without_units_or_with_too_many_is_refused)
{
	struct scene scene;
	struct zi_gpu_units *units = four_units(&scene);

	units->count = 0;
	expect_refused(units, 8, -EINVAL,
	               "GPU memory for parameters: the model has 0 units, but must have 1 to "
	               "1048576");
	units->count = ZI_GPU_UNITS_MAX + 1;
	expect_refused(units, 8, -EINVAL,
	               "GPU memory for parameters: the model has 1048577 units, but must have 1 to "
	               "1048576");
}

Test(gpu_need, unit_of_no_possible_size_is_refused)
{
	struct scene scene;
	struct zi_gpu_units *units = four_units(&scene);
	struct zi_gpu_need need;

	scene.list[3].bytes = 0;
	expect_refused(units, 8, -EINVAL,
	               "GPU memory for parameters: unit 'd' has 0 bytes, but must have 1 to "
	               "4398046511104");
	scene.list[3].bytes = ZI_GPU_UNIT_BYTES_MAX + 1;
	expect_refused(units, 8, -EINVAL,
	               "GPU memory for parameters: unit 'd' has 4398046511105 bytes, but must "
	               "have 1 to 4398046511104");
	scene.list[3].bytes = ZI_GPU_UNIT_BYTES_MAX;
	cr_expect_eq(zi_gpu_need(units, NULL, &need), 0);
	cr_expect_eq(need.least_count, ZI_GPU_UNIT_BYTES_MAX / CHUNK);
}

/* ---- layout ---- */

static void expect_chunks(const struct zi_gpu_ring *ring, uint32_t unit, const char *chunks)
{
	cr_assert_eq(zi_gpu_ring_chunk_count(ring, unit), strlen(chunks), "unit %u", unit);
	for (uint32_t i = 0; chunks[i]; i++)
		cr_expect_eq(zi_gpu_ring_chunk(ring, unit, i), (uint32_t)(chunks[i] - '0'),
		             "unit %u, chunk %u", unit, i);
}

Test(gpu_need, units_lie_one_behind_the_other_round_and_round)
{
	static const struct {
		uint32_t chunk_count, apart;
		const char *chunks[4];
		const char *overlaps; /* pairs */
		bool holds_all;
	} cases[] = {
		{ 4, 4, { "01", "2", "3012", "3" }, "acbccd", false },
		{ 5, 4, { "01", "2", "3401", "2" }, "acbd", false },
		{ 7, 4, { "01", "2", "3456", "0" }, "ad", false },
		{ 8, 4, { "01", "2", "3456", "7" }, "", true },
		{ 9, 4, { "01", "2", "3456", "7" }, "", true },
		{ 6, 1, { "01", "5", "2340", "1" }, "acad", false },
		{ 6, 2, { "01", "0", "2345", "1" }, "abad", false },
		{ 8, 2, { "01", "2", "4567", "3" }, "", true },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct scene scene;
		struct zi_gpu_units *units = four_units(&scene);
		struct zi_gpu_ring *ring;

		if (cases[i].apart < 4)
			scene.list[cases[i].apart].is_apart = true;
		ring = ring_of(units, cases[i].chunk_count);
		for (uint32_t u = 0; u < 4; u++)
			expect_chunks(ring, u, cases[i].chunks[u]);
		for (uint32_t pair = 0; pair < 16; pair++) {
			uint32_t one = pair / 4, other = pair % 4;
			const char name[] = { (char)('a' + ZI_MIN(one, other)),
				              (char)('a' + ZI_MAX(one, other)), '\0' };
			const char *at = cases[i].overlaps;
			bool is_listed = one == other;

			for (; *at; at += 2)
				is_listed |= at[0] == name[0] && at[1] == name[1];
			cr_expect_eq(zi_gpu_ring_overlaps(ring, one, other), is_listed,
			             "case %zu: %s", i, name);
		}
		cr_expect_eq(zi_gpu_ring_holds_all(ring), cases[i].holds_all, "case %zu", i);
		(void)zi_gpu_ring_free(ring);
	}
	cr_expect_null(zi_gpu_ring_free(NULL));
}
