/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what an operation takes and gives, and who has it, is what zinf/coll.h promises; sizes that
 * do not fit into 64 bits are told, and numbers that name no operation do no harm.
 * Method: figures for a group of three whose root is member 1, written down by hand for each
 * operation; borders of 64 bits.
 */
#include <criterion/criterion.h>

#include "common/wire/coll.h"

#define MEMBERS  3u
#define EVERYONE 7u
#define ROOT     1u
#define BLOCK    40u /* bytes: ten of four */

static const uint64_t to_each[MEMBERS] = { 1, 2, 3 }, from_each[MEMBERS] = { 7, 0, 4 };

static const struct expected {
	const char *name;
	uint64_t source_bytes, target_bytes;
	uint64_t with_source, with_target;
	bool is_join, is_rooted;
} expected[_ZI_COLL_COUNT] = {
	[ZI_COLL_BARRIER] = { "barrier", 0, 0, 0, 0, false, false },
	[ZI_COLL_ALL_REDUCE] = { "all_reduce", 40, 40, 7, 7, true, false },
	[ZI_COLL_REDUCE] = { "reduce", 40, 40, 7, 2, true, true },
	[ZI_COLL_REDUCE_SCATTER] = { "reduce_scatter", 120, 40, 7, 7, true, false },
	[ZI_COLL_ALL_GATHER] = { "all_gather", 40, 120, 7, 7, false, false },
	[ZI_COLL_BROADCAST] = { "broadcast", 40, 40, 2, 5, false, true },
	[ZI_COLL_GATHER] = { "gather", 40, 120, 7, 2, false, true },
	[ZI_COLL_SCATTER] = { "scatter", 120, 40, 2, 7, false, true },
	[ZI_COLL_ALL_TO_ALL] = { "all_to_all", 120, 120, 7, 7, false, false },
	[ZI_COLL_ALL_TO_ALLV] = { "all_to_allv", 24, 44, 7, 7, false, false },
};

static struct zi_coll_lengths lengths_of(uint32_t operation, uint64_t element_count)
{
	return (struct zi_coll_lengths){
		.operation = operation,
		.member_count = MEMBERS,
		.width = 4,
		.element_count = element_count,
		.source_counts = operation == ZI_COLL_ALL_TO_ALLV ? to_each : NULL,
		.target_counts = operation == ZI_COLL_ALL_TO_ALLV ? from_each : NULL,
	};
}

Test(coll, buffers_are_as_long_as_the_operation_says)
{
	for (uint32_t i = ZI_COLL_BARRIER; i <= ZI_COLL_ALL_TO_ALLV; i++) {
		struct zi_coll_lengths lengths = lengths_of(i, BLOCK / 4);
		uint64_t source_bytes = 1, target_bytes = 1;

		cr_assert(zi_coll_bytes(&lengths, &source_bytes, &target_bytes));
		cr_expect_eq(source_bytes, expected[i].source_bytes, "source of %s: %lu",
		             expected[i].name, source_bytes);
		cr_expect_eq(target_bytes, expected[i].target_bytes, "target of %s: %lu",
		             expected[i].name, target_bytes);
	}
}

Test(coll, buffers_are_with_whom_the_operation_says)
{
	for (uint32_t i = ZI_COLL_BARRIER; i <= ZI_COLL_ALL_TO_ALLV; i++) {
		const struct zi_coll_shape *shape = zi_coll_shape_of(i);
		uint64_t sources = 0, targets = 0;

		cr_expect_eq(zi_coll_holders(&shape->source, EVERYONE, ROOT),
		             expected[i].with_source, "sources of %s", expected[i].name);
		cr_expect_eq(zi_coll_holders(&shape->target, EVERYONE, ROOT),
		             expected[i].with_target, "targets of %s", expected[i].name);
		for (uint32_t k = 0; k < MEMBERS; k++) {
			sources |= (uint64_t)zi_coll_is_holder(&shape->source, k, ROOT) << k;
			targets |= (uint64_t)zi_coll_is_holder(&shape->target, k, ROOT) << k;
		}
		cr_expect_eq(sources, expected[i].with_source, "sources of %s, one by one",
		             expected[i].name);
		cr_expect_eq(targets, expected[i].with_target, "targets of %s, one by one",
		             expected[i].name);
	}
}

Test(coll, who_has_the_only_source_or_no_target_needs_nobody_and_who_takes_needs_the_root)
{
	static const uint64_t givers[_ZI_COLL_COUNT] = {
		[ZI_COLL_BROADCAST] = 1ull << ROOT,
		[ZI_COLL_SCATTER] = 1ull << ROOT,
		[ZI_COLL_REDUCE] = EVERYONE & ~(1ull << ROOT),
		[ZI_COLL_GATHER] = EVERYONE & ~(1ull << ROOT),
	};
	static const uint64_t takers[_ZI_COLL_COUNT] = {
		[ZI_COLL_BROADCAST] = EVERYONE & ~(1ull << ROOT),
		[ZI_COLL_SCATTER] = EVERYONE & ~(1ull << ROOT),
	};

	for (uint32_t i = 0; i < _ZI_COLL_COUNT; i++)
		for (uint32_t k = 0; k < MEMBERS; k++) {
			enum zi_coll_needs needs = zi_coll_needs_of(i, k, ROOT);

			cr_expect_eq(needs == ZI_NEEDS_NOBODY, givers[i] >> k & 1, "%s, member %u",
			             zi_coll_operation_name(i), k);
			cr_expect_eq(needs == ZI_NEEDS_ROOT, takers[i] >> k & 1, "%s, member %u",
			             zi_coll_operation_name(i), k);
		}
}

Test(coll, operations_are_told_apart)
{
	for (uint32_t i = ZI_COLL_BARRIER; i <= ZI_COLL_ALL_TO_ALLV; i++) {
		cr_expect_str_eq(zi_coll_operation_name(i), expected[i].name);
		cr_expect(zi_coll_is_collective(i), "%s", expected[i].name);
		cr_expect_eq(zi_coll_is_join(i), expected[i].is_join, "%s", expected[i].name);
		cr_expect_eq(zi_coll_is_rooted(i), expected[i].is_rooted, "%s", expected[i].name);
		cr_expect_eq(zi_coll_is_counted(i), i == ZI_COLL_ALL_TO_ALLV, "%s",
		             expected[i].name);
		cr_expect_eq(zi_coll_has_data(i), i != ZI_COLL_BARRIER, "%s", expected[i].name);
	}
	cr_expect_str_eq(zi_coll_operation_name(ZI_COLL_SEND), "send");
	cr_expect_str_eq(zi_coll_operation_name(ZI_COLL_RECV), "recv");
}

/* What a peer's memory may hold. */
Test(coll, a_number_that_names_no_operation_has_an_empty_shape)
{
	static const uint32_t numbers[] = { 0, _ZI_COLL_COUNT, 255, UINT32_MAX };

	for (uint32_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const struct zi_coll_shape *shape = zi_coll_shape_of(numbers[i]);

		cr_expect_str_eq(zi_coll_operation_name(numbers[i]), "?");
		cr_expect_not(zi_coll_is_collective(numbers[i]), "%u", numbers[i]);
		cr_expect_not(zi_coll_is_join(numbers[i]), "%u", numbers[i]);
		cr_expect_not(zi_coll_is_rooted(numbers[i]), "%u", numbers[i]);
		cr_expect_not(zi_coll_is_counted(numbers[i]), "%u", numbers[i]);
		cr_expect_not(zi_coll_has_data(numbers[i]), "%u", numbers[i]);
		cr_expect_eq(zi_coll_block_count(&shape->source, MEMBERS), 0);
		cr_expect_eq(zi_coll_holders(&shape->target, EVERYONE, ROOT), 0);
	}
	cr_expect_not(zi_coll_is_collective(ZI_COLL_SEND));
	cr_expect_not(zi_coll_is_collective(ZI_COLL_RECV));
}

/* Of every operation a block for each member must fit. */
Test(coll, sizes_that_do_not_fit_are_told_and_leave_no_trace)
{
	uint64_t most = UINT64_MAX / 4 / MEMBERS;

	for (uint32_t i = ZI_COLL_ALL_REDUCE; i <= ZI_COLL_ALL_TO_ALL; i++) {
		struct zi_coll_lengths fits = lengths_of(i, most);
		struct zi_coll_lengths blocks_do_not = lengths_of(i, most + 1);
		struct zi_coll_lengths block_does_not = lengths_of(i, UINT64_MAX / 4 + 1);
		uint64_t source_bytes = 1, target_bytes = 2;

		cr_expect_not(zi_coll_bytes(&blocks_do_not, &source_bytes, &target_bytes), "%s",
		              expected[i].name);
		cr_expect_not(zi_coll_bytes(&block_does_not, &source_bytes, &target_bytes), "%s",
		              expected[i].name);
		cr_expect_eq(source_bytes, 1, "%s", expected[i].name);
		cr_expect_eq(target_bytes, 2, "%s", expected[i].name);
		cr_expect(zi_coll_bytes(&fits, &source_bytes, &target_bytes), "%s",
		          expected[i].name);
	}
}

Test(coll, counts_whose_sum_does_not_fit_are_told_and_leave_no_trace)
{
	static const uint64_t wraps[MEMBERS] = { UINT64_MAX, 1, 0 };
	static const uint64_t is_wide[MEMBERS] = { UINT64_MAX / 4, 1, 0 };
	static const uint64_t fits[MEMBERS] = { UINT64_MAX / 4, 0, 0 };
	struct zi_coll_lengths lengths = lengths_of(ZI_COLL_ALL_TO_ALLV, 0);
	uint64_t source_bytes = 1, target_bytes = 2;

	lengths.source_counts = wraps;
	cr_expect_not(zi_coll_bytes(&lengths, &source_bytes, &target_bytes));
	lengths.source_counts = is_wide;
	cr_expect_not(zi_coll_bytes(&lengths, &source_bytes, &target_bytes));
	lengths.source_counts = fits;
	lengths.target_counts = is_wide;
	cr_expect_not(zi_coll_bytes(&lengths, &source_bytes, &target_bytes));
	cr_expect_eq(source_bytes, 1);
	cr_expect_eq(target_bytes, 2);
	lengths.target_counts = fits;
	cr_expect(zi_coll_bytes(&lengths, &source_bytes, &target_bytes));
	cr_expect_eq(source_bytes, UINT64_MAX / 4 * 4);
	/* What the call says besides is nothing here. */
	lengths.element_count = UINT64_MAX;
	cr_expect(zi_coll_bytes(&lengths, &source_bytes, &target_bytes));
}
