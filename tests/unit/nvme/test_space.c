/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: runs of a store are given out once, contiguously, and come back whole; what a catalog
 * claims is believed only when it can be. Method: a byte-per-block model beside the space, random
 * work. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/nvme.h"

#define BLOCK ((uint64_t)ZI_STORE_ALIGN_BYTES)

static struct nvme_space *space;

static void make(uint64_t blocks)
{
	cr_assert_eq(nvme_space_new(blocks * BLOCK, &space), 0);
}

static void drop(void)
{
	space = nvme_space_free(space);
}

TestSuite(space, .fini = drop);

Test(space, superblock_is_never_given_out)
{
	struct zi_extent extent;

	make(3);
	cr_assert_eq(nvme_space_total_bytes(space), 2 * BLOCK);
	cr_assert_eq(nvme_space_free_bytes(space), 2 * BLOCK);
	cr_assert_eq(nvme_space_allocate(space, 2 * BLOCK, &extent), 0);
	cr_assert_eq(extent.offset_bytes, NVME_SUPERBLOCK_BYTES);
	cr_assert_eq(extent.bytes, 2 * BLOCK);
	cr_assert_eq(nvme_space_free_bytes(space), 0);
}

Test(space, store_without_a_block_behind_the_superblock_is_refused)
{
	cr_assert_eq(nvme_space_new(0, &space), -EINVAL);
	cr_assert_eq(nvme_space_new(2 * BLOCK - 1, &space), -EINVAL);
	cr_assert_null(space);
}

Test(space, last_part_block_is_not_used)
{
	cr_assert_eq(nvme_space_new(5 * BLOCK + 100, &space), 0);
	cr_assert_eq(nvme_space_total_bytes(space), 4 * BLOCK);
}

Test(space, runs_of_a_quiet_store_are_sequential)
{
	struct zi_extent extent;

	make(1000);
	for (uint64_t i = 0, next = BLOCK; i < 30; i++, next = extent.offset_bytes + extent.bytes) {
		cr_assert_eq(nvme_space_allocate(space, (1 + i) * BLOCK, &extent), 0);
		cr_assert_eq(extent.offset_bytes, next);
	}
}

Test(space, search_goes_on_where_it_ended_though_earlier_runs_are_free)
{
	struct zi_extent a, b, c;

	make(100);
	cr_assert_eq(nvme_space_allocate(space, 10 * BLOCK, &a), 0);
	cr_assert_eq(nvme_space_allocate(space, 10 * BLOCK, &b), 0);
	nvme_space_release(space, &a);
	cr_assert_eq(nvme_space_allocate(space, 10 * BLOCK, &c), 0);
	cr_assert_eq(c.offset_bytes, b.offset_bytes + b.bytes);
}

/* Free are blocks 1 to 9, 20 to 24, 30 to 36, and those from 50 on. */
static void expect_aim(uint64_t blocks, bool is_end, uint64_t index)
{
	const struct zi_extent claimed[] = { { 10 * BLOCK, 10 * BLOCK },
		                             { 25 * BLOCK, 5 * BLOCK },
		                             { 37 * BLOCK, 13 * BLOCK } };
	struct zi_extent extent;

	make(100);
	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(nvme_space_claim(space, &claimed[i]), 0);
	nvme_space_aim(space, blocks * BLOCK, is_end);
	cr_assert_eq(nvme_space_allocate(space, BLOCK, &extent), 0);
	cr_expect_eq(extent.offset_bytes / BLOCK, index, "%llu blocks go to %llu, not %llu",
	             (unsigned long long)blocks, (unsigned long long)index,
	             (unsigned long long)(extent.offset_bytes / BLOCK));
	drop();
}

Test(space, aim_is_the_shortest_run_that_holds_all)
{
	expect_aim(5, false, 20);
	expect_aim(5, true, 20);
	expect_aim(3, true, 22);
	expect_aim(6, false, 30);
	expect_aim(6, true, 31);
	expect_aim(9, true, 1);
	expect_aim(10, false, 50);
	expect_aim(50, true, 50);
	expect_aim(49, true, 51);
	expect_aim(51, true, 1); /* There is none: as before. */
}

Test(space, search_wraps_and_finds_a_run_across_the_cursor)
{
	struct zi_extent head, middle, tail, run;

	make(1 + 130);
	cr_assert_eq(nvme_space_allocate(space, 60 * BLOCK, &head), 0);
	cr_assert_eq(nvme_space_allocate(space, 10 * BLOCK, &middle), 0);
	cr_assert_eq(nvme_space_allocate(space, 60 * BLOCK, &tail), 0);
	nvme_space_release(space, &middle);
	cr_assert_eq(nvme_space_allocate(space, 4 * BLOCK, &run), 0); /* cursor inside `middle` */
	cr_assert_eq(run.offset_bytes, middle.offset_bytes);
	nvme_space_release(space, &run);
	cr_assert_eq(nvme_space_allocate(space, 10 * BLOCK, &run), 0);
	cr_assert_eq(run.offset_bytes, middle.offset_bytes);
}

Test(space, full_when_free_bytes_are_in_pieces)
{
	struct zi_extent extents[64], extent = { 7, 7 };

	make(65);
	for (int i = 0; i < 64; i++)
		cr_assert_eq(nvme_space_allocate(space, BLOCK, &extents[i]), 0);
	cr_assert_eq(nvme_space_allocate(space, BLOCK, &extent), NVME_E_FULL);
	for (int i = 0; i < 64; i += 2)
		nvme_space_release(space, &extents[i]);
	cr_assert_eq(nvme_space_free_bytes(space), 32 * BLOCK);
	cr_assert_eq(nvme_space_allocate(space, 2 * BLOCK, &extent), NVME_E_FULL);
	cr_assert_eq(extent.bytes, 7, "outputs are untouched");
	cr_assert_eq(nvme_space_allocate(space, BLOCK, &extent), 0);
}

Test(space, empty_extents_cost_nothing)
{
	struct zi_extent empty = { 7, 7 };

	make(2);
	cr_assert_eq(nvme_space_allocate(space, 0, &empty), 0);
	cr_assert_eq(empty.offset_bytes, 0);
	cr_assert_eq(empty.bytes, 0);
	nvme_space_release(space, &empty);
	cr_assert_eq(nvme_space_claim(space, &empty), 0);
	cr_assert_eq(nvme_space_free_bytes(space), BLOCK);
}

Test(space, claim_of_what_cannot_be_is_damage)
{
	const struct zi_extent wrong[] = {
		{ BLOCK + 512, BLOCK },               /* misaligned offset */
		{ BLOCK, BLOCK + 512 },               /* misaligned length */
		{ 0, BLOCK },                         /* the superblock */
		{ 100 * BLOCK, BLOCK },               /* behind the end */
		{ 99 * BLOCK, 2 * BLOCK },            /* over the end */
		{ BLOCK, UINT64_MAX & ~(BLOCK - 1) }, /* would wrap */
		{ UINT64_MAX & ~(BLOCK - 1), BLOCK },
	};

	make(100);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_assert_eq(nvme_space_claim(space, &wrong[i]), -EUCLEAN, "case %zu", i);
	cr_assert_eq(nvme_space_free_bytes(space), 99 * BLOCK);
}

Test(space, claim_of_what_is_claimed_is_damage_and_changes_nothing)
{
	const struct zi_extent first = { 10 * BLOCK, 80 * BLOCK };
	const struct zi_extent overlaps[] = {
		{ 10 * BLOCK, 80 * BLOCK }, { 1 * BLOCK, 10 * BLOCK }, { 89 * BLOCK, 5 * BLOCK },
		{ 50 * BLOCK, BLOCK },      { 5 * BLOCK, 90 * BLOCK },
	};
	const struct zi_extent before = { 1 * BLOCK, 9 * BLOCK };
	const struct zi_extent after = { 90 * BLOCK, 10 * BLOCK };

	make(100);
	cr_assert_eq(nvme_space_claim(space, &first), 0);
	for (size_t i = 0; i < sizeof(overlaps) / sizeof(overlaps[0]); i++)
		cr_assert_eq(nvme_space_claim(space, &overlaps[i]), -EUCLEAN, "case %zu", i);
	cr_assert_eq(nvme_space_claim(space, &before), 0);
	cr_assert_eq(nvme_space_claim(space, &after), 0);
	cr_assert_eq(nvme_space_free_bytes(space), 0);
	nvme_space_release(space, &first);
	cr_assert_eq(nvme_space_free_bytes(space), 80 * BLOCK);
}

/* The model: one byte per block. Returns the first free run of @count blocks, or 0. */
#define MODEL_BLOCKS 777u
static unsigned char model[MODEL_BLOCKS];

static bool model_has_run(uint64_t count)
{
	uint64_t run = 0;

	for (uint64_t i = 1; i < MODEL_BLOCKS; i++) {
		run = model[i] ? 0 : run + 1;
		if (run == count)
			return true;
	}
	return false;
}

static void model_set(const struct zi_extent *extent, unsigned char from, unsigned char to)
{
	for (uint64_t i = 0; i < extent->bytes / BLOCK; i++) {
		unsigned char *block = &model[extent->offset_bytes / BLOCK + i];

		cr_assert_eq(*block, from, "given out twice");
		*block = to;
	}
}

Test(space, random_work_agrees_with_the_model)
{
	struct zi_extent held[MODEL_BLOCKS];
	unsigned held_count = 0;
	uint64_t used = 0;

	make(MODEL_BLOCKS);
	srand(7);
	for (int turn = 0; turn < 20000; turn++) {
		uint64_t count = 1 + (uint64_t)rand() % (turn % 50 ? 20 : 300);
		struct zi_extent extent;

		if (rand() % 100 < 53) {
			int r = nvme_space_allocate(space, count * BLOCK, &extent);

			cr_assert_eq(r, model_has_run(count) ? 0 : NVME_E_FULL, "turn %d", turn);
			if (r)
				continue;
			cr_assert_eq(extent.bytes, count * BLOCK);
			model_set(&extent, 0, 1);
			held[held_count++] = extent;
			used += count;
		} else if (held_count) {
			unsigned index = (unsigned)rand() % held_count;

			nvme_space_release(space, &held[index]);
			model_set(&held[index], 1, 0);
			used -= held[index].bytes / BLOCK;
			held[index] = held[--held_count];
		}
		cr_assert_eq(nvme_space_free_bytes(space), (MODEL_BLOCKS - 1 - used) * BLOCK);
	}
}

Test(space, claims_of_the_living_rebuild_the_same_space)
{
	struct zi_extent extents[100];
	struct nvme_space *again = NULL;

	make(3000);
	srand(11);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(nvme_space_allocate(space, (1 + (uint64_t)rand() % 25) * BLOCK,
		                                 &extents[i]),
		             0);
	for (int i = 0; i < 100; i += 3)
		nvme_space_release(space, &extents[i]);
	cr_assert_eq(nvme_space_new(3000 * BLOCK, &again), 0);
	for (int i = 0; i < 100; i++)
		if (i % 3)
			cr_assert_eq(nvme_space_claim(again, &extents[i]), 0);
	cr_assert_eq(nvme_space_free_bytes(again), nvme_space_free_bytes(space));
	again = nvme_space_free(again);
}

#ifndef NDEBUG
Test(space, double_release_aborts, .signal = SIGABRT)
{
	struct zi_extent extent;

	make(10);
	cr_assert_eq(nvme_space_allocate(space, 2 * BLOCK, &extent), 0);
	nvme_space_release(space, &extent);
	nvme_space_release(space, &extent);
}

Test(space, release_of_more_than_was_allocated_aborts, .signal = SIGABRT)
{
	struct zi_extent extent;

	make(200);
	cr_assert_eq(nvme_space_allocate(space, 100 * BLOCK, &extent), 0);
	extent.bytes += BLOCK;
	nvme_space_release(space, &extent);
}

Test(space, release_outside_the_store_aborts, .signal = SIGABRT)
{
	make(10);
	nvme_space_release(space, &(struct zi_extent){ 10 * BLOCK, BLOCK });
}
#endif
