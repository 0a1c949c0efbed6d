/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a placement's maximal subtrees are those of the definition, and finishing the tree from
 * their partials gives the bits of the flat tree, whatever the placement, type, operation and
 * number of elements. Method: the definition as a recursion; seeded random placements (blocks,
 * round robin, any); kern_combine() over all ranks as the flat tree.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "daemon/worker/finish.h"
#include "kernels/combine.h"
#include "kernels/reduce.h"
#include "tests/kernels/data.h"

#define RANKS_MAX 16u

struct leaves {
	struct subtree items[SUBTREE_RANKS_MAX];
	uint32_t count;
};

/* docs/ARITHMETIC.md, word by word. */
static void leaves_by_definition(struct leaves *leaves, const uint32_t *nodes, uint32_t first,
                                 uint32_t count)
{
	uint32_t half = 1;
	bool is_one = true;

	for (uint32_t i = 1; i < count; i++)
		is_one = is_one && nodes[first + i] == nodes[first];
	if (is_one) {
		leaves->items[leaves->count++] = (struct subtree){ first, count, nodes[first] };
		return;
	}
	while (half * 2 < count)
		half *= 2;
	leaves_by_definition(leaves, nodes, first, half);
	leaves_by_definition(leaves, nodes, first + half, count - half);
}

static void draw_nodes(uint32_t *nodes, uint32_t ranks, uint64_t *state)
{
	uint32_t node_count = 1 + data_random(state) % 4;
	uint32_t kind = data_random(state) % 3;

	for (uint32_t i = 0; i < ranks; i++)
		nodes[i] = kind == 0   ? i * node_count / ranks
		           : kind == 1 ? i % node_count
		                       : (uint32_t)(data_random(state) % node_count);
}

Test(subtree, leaves_of_random_placements_are_those_of_the_definition)
{
	uint64_t state = 5;

	for (uint32_t i = 0; i < 4000; i++) {
		uint32_t nodes[SUBTREE_RANKS_MAX] = { 0 };
		uint32_t ranks = i % 8 ? 1 + i % RANKS_MAX
		                       : 1 + (uint32_t)(data_random(&state) % SUBTREE_RANKS_MAX);
		struct leaves expected = { .count = 0 };
		struct subtree_plan plan;
		struct zi_text text;

		draw_nodes(nodes, ranks, &state);
		if (subtree_plan_init(&plan, nodes, ranks, &text)) {
			cr_assert_gt(ranks, ZI_WORLD_MAX, "%s", text.chars);
			continue;
		}
		leaves_by_definition(&expected, nodes, 0, ranks);
		cr_assert_eq(plan.leaf_count, expected.count);
		cr_assert_eq(memcmp(plan.leaves, expected.items,
		                    expected.count * sizeof(expected.items[0])),
		             0);
	}
}

Test(subtree, aligned_nodes_send_one_partial_and_owners_join_once)
{
	uint32_t nodes[8] = { 0, 0, 1, 1, 2, 2, 3, 3 };
	struct subtree_plan plan;

	cr_assert_eq(subtree_plan_init(&plan, nodes, 8, NULL), 0);
	cr_expect_eq(plan.leaf_count, 4);
	cr_expect_eq(plan.step_count, 1);
	cr_expect_eq(plan.steps[0].operand_count, 4);
}

Test(subtree, what_the_header_shows_is_so)
{
	uint32_t nodes[6] = { 0, 0, 0, 1, 1, 1 };
	struct subtree_plan plan;

	cr_assert_eq(subtree_plan_init(&plan, nodes, 6, NULL), 0);
	cr_assert_eq(plan.leaf_count, 4);
	cr_expect_eq(plan.leaves[0].count, 2);
	cr_expect_eq(plan.leaves[1].count, 1);
	cr_expect_eq(plan.leaves[2].first, 3);
	cr_expect_eq(plan.leaves[3].count, 2);
	cr_expect_eq(plan.step_count, 3);
}

Test(subtree, placements_that_cannot_be_are_refused_with_figures)
{
	uint32_t nodes[SUBTREE_RANKS_MAX + 1] = { 0 };
	struct subtree_plan plan;
	struct zi_text text;

	cr_expect_eq(subtree_plan_init(&plan, nodes, 0, &text), -EINVAL);
	cr_expect_eq(subtree_plan_init(&plan, nodes, SUBTREE_RANKS_MAX + 1, &text), -EINVAL);
	cr_expect(strstr(text.chars, "257 ranks"), "%s", text.chars);
	cr_expect_eq(subtree_plan_init(&plan, nodes, ZI_WORLD_MAX + 1, &text), -EINVAL);
	cr_expect(strstr(text.chars, "more than 64"), "%s", text.chars);
	nodes[2] = SUBTREE_NODES_MAX;
	cr_expect_eq(subtree_plan_init(&plan, nodes, 4, &text), -EINVAL);
	cr_expect(strstr(text.chars, "rank 2 is on node 64"), "%s", text.chars);
}

/* Every leaf joined from its ranks, or a rank's own elements; then finished. */
static void finish_placement(const uint32_t *nodes, uint32_t ranks, void *const *sources,
                             void *target, uint64_t elements, enum zi_dtype dtype,
                             enum zi_dtype target_dtype, enum zi_reduce_op op)
{
	_cleanup_(finish_scratch_freep) struct finish_scratch *scratch = NULL;
	void *partials[RANKS_MAX];
	struct subtree_plan plan;
	struct zi_text text;

	cr_assert_eq(subtree_plan_init(&plan, nodes, ranks, &text), 0, "%s", text.chars);
	cr_assert_eq(finish_scratch_new(&scratch), 0);
	for (uint32_t i = 0; i < plan.leaf_count; i++) {
		const struct subtree *leaf = &plan.leaves[i];

		partials[i] = malloc(elements * 8 + 8);
		if (leaf->count == 1)
			memcpy(partials[i], sources[leaf->first], elements * zi_dtype_bytes(dtype));
		else
			finish_partial(leaf, (const void *const *)&sources[leaf->first],
			               partials[i], elements, dtype, op);
	}
	finish_run(&(struct finish_run){ .plan = &plan,
	                                 .partials = (const void *const *)partials,
	                                 .target = target,
	                                 .element_count = elements,
	                                 .dtype = dtype,
	                                 .target_dtype = target_dtype,
	                                 .op = op,
	                                 .average = 1.0 / ranks },
	           scratch);
	for (uint32_t i = 0; i < plan.leaf_count; i++)
		free(partials[i]);
}

static void compare_with_flat(uint64_t seed, enum zi_dtype dtype, enum zi_reduce_op op)
{
	static const uint64_t sizes[] = { 1, 7, 64, 2047, 2048, 2049, 5000 };
	uint64_t state = seed * 77 + 1;
	uint32_t ranks = 1 + seed % RANKS_MAX;
	uint64_t elements = sizes[data_random(&state) % ZI_COUNT_OF(sizes)];
	uint32_t nodes[RANKS_MAX];
	void *sources[RANKS_MAX];
	void *flat = malloc(elements * 8), *target = malloc(elements * 8);

	draw_nodes(nodes, ranks, &state);
	for (uint32_t i = 0; i < ranks; i++) {
		sources[i] = malloc(elements * 8);
		if (zi_dtype_is_float(dtype))
			data_fill(sources[i], elements, dtype, seed % _DATA_COUNT, seed * 64 + i);
		else
			for (uint64_t k = 0; k < elements; k++)
				((uint64_t *)sources[i])[k] = data_random(&state);
	}
	kern_combine(&(struct kern_combine_run){ .targets = &flat,
	                                         .sources = (const void *const *)sources,
	                                         .target_count = 1,
	                                         .source_count = ranks,
	                                         .element_count = elements,
	                                         .source_dtype = dtype,
	                                         .target_dtype = dtype,
	                                         .op = op,
	                                         .average = 1.0 / ranks });
	finish_placement(nodes, ranks, sources, target, elements, dtype, 0, op);
	cr_assert_eq(memcmp(flat, target, elements * zi_dtype_bytes(dtype)), 0,
	             "seed %lu, %u ranks, %lu elements of %s, %s", seed, ranks, elements,
	             zi_dtype_name(dtype), zi_reduce_op_name(op));
	for (uint32_t i = 0; i < ranks; i++)
		free(sources[i]);
	free(flat);
	free(target);
}

Test(finish, bits_of_random_placements_are_those_of_the_flat_tree)
{
	uint32_t compared_count = 0;

	for (uint32_t dtype = 1; dtype < _ZI_DTYPE_COUNT; dtype++) {
		for (uint32_t op = 1; op < _ZI_REDUCE_COUNT; op++) {
			if (!zi_dtype_bytes(dtype) || !zi_reduce_op_is_for(op, dtype))
				continue;
			for (uint64_t seed = 0; seed < 96; seed++, compared_count++)
				compare_with_flat(seed, dtype, op);
		}
	}
	cr_assert_eq(compared_count, (4 * 5 + 4 * 7) * 96);
}

/* What a node makes of its ranks' gradients, a job over several makes too: rounded once, or added
 * up over micro-batches and rounded at the end. */
static void compare_with_reduce(uint64_t seed, enum zi_dtype dtype)
{
	uint64_t state = seed * 91 + 3, elements = 1 + data_random(&state) % 5000;
	uint32_t ranks = 1 + seed % RANKS_MAX, nodes[RANKS_MAX];
	struct kern_reduce_options options = { .dtype = dtype, .average = (float)(1.0 / ranks) };
	void *sources[RANKS_MAX];
	float *accum = malloc(elements * 4), *model = malloc(elements * 4);
	float *sum = malloc(elements * 4), *model_sum = malloc(elements * 4);

	draw_nodes(nodes, ranks, &state);
	for (uint32_t i = 0; i < ranks; i++)
		sources[i] = malloc(elements * 4);
	for (uint32_t micro = 0; micro < 3; micro++) {
		for (uint32_t i = 0; i < ranks; i++)
			data_fill(sources[i], elements, dtype, seed % _DATA_COUNT,
			          (seed * 3 + micro) * 64 + i);
		finish_placement(nodes, ranks, sources, sum, elements, dtype, ZI_DTYPE_F32,
		                 ZI_REDUCE_SUM);
		kern_reduce_accumulate(accum, (const void *[]){ sum }, 1, elements, micro == 0,
		                       ZI_DTYPE_F32);
		kern_reduce_accumulate(model, (const void *const *)sources, ranks, elements,
		                       micro == 0, dtype);
		cr_assert_eq(memcmp(accum, model, elements * 4), 0, "seed %lu, %u ranks of %s",
		             seed, ranks, zi_dtype_name(dtype));
	}
	finish_placement(nodes, ranks, sources, sum, elements, dtype, 0, ZI_REDUCE_AVG);
	kern_reduce(model_sum, (const void *const *)sources, ranks, elements, &options);
	cr_assert_eq(memcmp(sum, model_sum, elements * zi_dtype_bytes(dtype)), 0,
	             "seed %lu, %u ranks of %s, rounded", seed, ranks, zi_dtype_name(dtype));
	for (uint32_t i = 0; i < ranks; i++)
		free(sources[i]);
	free(accum);
	free(model);
	free(sum);
	free(model_sum);
}

Test(finish, gradients_of_several_nodes_have_the_bits_of_one)
{
	for (uint64_t seed = 0; seed < 200; seed++) {
		compare_with_reduce(seed, ZI_DTYPE_F32);
		compare_with_reduce(seed, ZI_DTYPE_BF16);
		compare_with_reduce(seed, ZI_DTYPE_F16);
	}
}

/* The same, were the sums rounded where they travel: the test must see that. */
Test(finish, rounding_a_partial_would_show)
{
	uint16_t ranks[4][64], flat[64], target[64];
	void *sources[4] = { ranks[0], ranks[1], ranks[2], ranks[3] }, *flat_target = flat;
	uint16_t partials[2][64];

	for (uint32_t i = 0; i < 4; i++)
		data_fill(ranks[i], 64, ZI_DTYPE_BF16, DATA_ORDINARY, i + 1);
	for (uint32_t i = 0; i < 3; i++) {
		struct kern_combine_run run = { .targets = &flat_target,
			                        .sources = (const void *const *)sources,
			                        .target_count = 1,
			                        .source_count = 4,
			                        .element_count = 64,
			                        .source_dtype = ZI_DTYPE_BF16,
			                        .target_dtype = ZI_DTYPE_BF16,
			                        .op = ZI_REDUCE_SUM };
		void *place = i < 2 ? (void *)partials[i] : flat_target;

		run.targets = &place;
		run.source_count = i < 2 ? 2 : 4;
		run.sources = (const void *const *)&sources[i == 1 ? 2 : 0];
		kern_combine(&run);
	}
	kern_combine(
		&(struct kern_combine_run){ .targets = (void *[]){ target },
	                                    .sources = (const void *[]){ partials[0], partials[1] },
	                                    .target_count = 1,
	                                    .source_count = 2,
	                                    .element_count = 64,
	                                    .source_dtype = ZI_DTYPE_BF16,
	                                    .target_dtype = ZI_DTYPE_BF16,
	                                    .op = ZI_REDUCE_SUM });
	cr_assert_neq(memcmp(flat, target, sizeof(flat)), 0);
}
