/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: calls of members on several NUMA nodes go by those where that spares bytes between them,
 * and only where the tree of sums allows it; they give the bits of the plain model, wherever
 * members are.
 * Method: threads as ranks (world.h), told any mapping to nodes; each compares its own target with
 * the model. Which path a call takes, against a table; how much crosses, counted by hand.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "tests/unit/node/world.h"

/* ---- what a mapping is ---- */

struct mapping {
	const char *places; /* a letter for each member */
	uint32_t node_count, smallest;
	bool is_tree;
};

static const struct mapping mappings[] = {
	{ "a", 1, 1, true },         { "aaaa", 1, 4, true },
	{ "ab", 2, 1, true },        { "ba", 2, 1, true },
	{ "aab", 2, 1, true },       { "abb", 2, 1, false }, /* the tree has 0 and 1 together */
	{ "aba", 2, 1, false },      { "aabb", 2, 2, true },
	{ "bbaa", 2, 2, true },      { "abab", 2, 2, false },
	{ "abba", 2, 2, false },     { "aaab", 2, 1, false },
	{ "aabc", 3, 1, false }, /* 0 and 1, then 2 with 3: not the tree over three */
	{ "abcc", 3, 1, true },      { "abcd", 4, 1, true },
	{ "aaaab", 2, 1, true },     { "aaabb", 2, 2, false },
	{ "aabbc", 3, 1, true },     { "aaabbb", 2, 3, false },
	{ "aaaabb", 2, 2, true },    { "aaaabbbb", 2, 4, true },
	{ "aabbccdd", 4, 2, true },  { "aabbcccc", 3, 2, true },
	{ "aaaabbcc", 3, 2, false }, { "aaaabbbbc", 3, 1, true },
	{ "aaaaaaaab", 2, 1, true }, { "aaaabbbba", 2, 4, false },
};

static struct zi_numa numa_of(const char *letters)
{
	uint8_t places[ZI_WORLD_MAX];
	uint32_t count = (uint32_t)strlen(letters);
	struct zi_numa numa;

	for (uint32_t i = 0; i < count; i++)
		places[i] = (uint8_t)letters[i];
	zi_numa_init(&numa, places, count);
	return numa;
}

Test(numa, a_mapping_is_one_over_whole_subtrees_or_not)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(mappings); i++) {
		struct zi_numa numa = numa_of(mappings[i].places);

		cr_expect_eq(numa.node_count, mappings[i].node_count, "%s", mappings[i].places);
		cr_expect_eq(numa.smallest, mappings[i].smallest, "%s", mappings[i].places);
		cr_expect_eq(numa.is_tree, mappings[i].is_tree, "%s", mappings[i].places);
	}
}

Test(numa, nodes_and_places_on_them_go_by_member_numbers)
{
	struct zi_numa numa = numa_of("dbbd");

	cr_expect_eq(numa.nodes[0], 0);
	cr_expect_eq(numa.nodes[1], 1);
	cr_expect_eq(numa.nodes[3], 0);
	cr_expect_eq(numa.members[0], 9);
	cr_expect_eq(numa.members[1], 6);
	cr_expect_eq(zi_numa_index(&numa, 3), 1);
	cr_expect_eq(zi_numa_index(&numa, 2), 1);
	cr_expect_eq(zi_numa_index(&numa, 1), 0);
	numa = numa_of("aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffgggggggghhhhhhhh");
	cr_expect_eq(numa.node_count, 8, "as many members as there may be");
	cr_expect(numa.is_tree);
	cr_expect_eq(zi_numa_index(&numa, 63), 7);
}

/* ---- which way a call goes ---- */

struct choice {
	const char *places;
	enum zi_coll_operation operation;
	enum zi_dtype dtype;
	uint64_t element_count;
	uint32_t root;
	bool is_outside; /* the source of all */
	enum zi_node_path expected;
};

#define LEVELS_BYTES 65536u
#define MANY         40000u

static const struct choice choices[] = {
	/* One for each of two nodes: 2 units read and 2 written, 4 by nodes. */
	{ "ab", ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, MANY, 0, false, ZI_NODE_SHARED },
	{ "ab", ZI_COLL_ALL_GATHER, ZI_DTYPE_F32, 20000, 0, false, ZI_NODE_PUSH },
	{ "ab", ZI_COLL_BROADCAST, ZI_DTYPE_F32, MANY, 0, false, ZI_NODE_SHARED },
	{ "aaaa", ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, MANY, 0, false, ZI_NODE_SHARED },
	/* 2 + 2: 16 units plain, 8 by nodes, 12 where partials are twice as wide. */
	{ "aabb", ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, MANY, 0, false, ZI_NODE_LEVELS },
	{ "aabb", ZI_COLL_ALL_REDUCE, ZI_DTYPE_I64, 20000, 0, false, ZI_NODE_LEVELS },
	{ "aabb", ZI_COLL_ALL_REDUCE, ZI_DTYPE_BF16, MANY, 0, false, ZI_NODE_LEVELS },
	{ "aabb", ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, 5000, 0, false, ZI_NODE_SHARED },
	{ "aabb", ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, 16, 0, false, ZI_NODE_INLINE },
	{ "aabb", ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, MANY, 0, true, ZI_NODE_PIECES },
	{ "abab", ZI_COLL_ALL_REDUCE, ZI_DTYPE_F32, MANY, 0, false, ZI_NODE_SHARED },
	/* 8 + 2 plain; 4 by nodes, 8 where they are wide. */
	{ "aabb", ZI_COLL_REDUCE, ZI_DTYPE_F32, MANY, 3, false, ZI_NODE_LEVELS },
	{ "aabb", ZI_COLL_REDUCE, ZI_DTYPE_F16, MANY, 3, false, ZI_NODE_LEVELS },
	/* 32 plain; 16 by nodes, 32 where they are wide: no gain. */
	{ "aabb", ZI_COLL_REDUCE_SCATTER, ZI_DTYPE_F32, 10000, 0, false, ZI_NODE_LEVELS },
	{ "aabb", ZI_COLL_REDUCE_SCATTER, ZI_DTYPE_BF16, 10000, 0, false, ZI_NODE_SHARED },
	{ "aaaabbbb", ZI_COLL_REDUCE_SCATTER, ZI_DTYPE_BF16, 5000, 0, false, ZI_NODE_LEVELS },
	/* What only moves needs no subtrees, and no meeting more. */
	{ "aabb", ZI_COLL_ALL_GATHER, ZI_DTYPE_F32, 5000, 0, false, ZI_NODE_NEAR },
	{ "abab", ZI_COLL_ALL_GATHER, ZI_DTYPE_F32, 5000, 0, false, ZI_NODE_NEAR },
	{ "aabb", ZI_COLL_ALL_GATHER, ZI_DTYPE_F32, 5000, 0, true, ZI_NODE_PUSH },
	{ "abba", ZI_COLL_BROADCAST, ZI_DTYPE_F32, 5000, 1, false, ZI_NODE_NEAR },
	{ "aabb", ZI_COLL_ALL_TO_ALL, ZI_DTYPE_F32, 5000, 0, false, ZI_NODE_PULL },
	{ "aabb", ZI_COLL_GATHER, ZI_DTYPE_F32, 5000, 0, false, ZI_NODE_PUSH },
	{ "aabb", ZI_COLL_SCATTER, ZI_DTYPE_F32, 5000, 0, false, ZI_NODE_PULL },
};

struct chooser {
	const struct choice *choice;
	enum zi_node_path path;
};
static struct chooser choosers[WORLD_RANKS_MAX];

static void *choose_main(void *arg)
{
	struct rank *rank = arg;
	struct chooser *chooser = &choosers[rank->number];
	const struct choice *choice = chooser->choice;
	bool is_join = zi_coll_is_join(choice->operation);

	rank->group.levels_bytes = LEVELS_BYTES;
	rank->result =
		zi_node_call(&rank->group,
	                     &(struct zi_node_call){ .operation = choice->operation,
	                                             .dtype = choice->dtype,
	                                             .reduce_op = is_join ? ZI_REDUCE_SUM : 0,
	                                             .root = choice->root,
	                                             .element_count = choice->element_count,
	                                             .source = choice->is_outside ? rank->outside[0]
	                                                                          : rank->inside[0],
	                                             .target = rank->inside[1],
	                                             .deadline_ns = ZI_DEADLINE_NEVER },
	                     &rank->text);
	chooser->path = rank->group.run.path;
	return NULL;
}

Test(numa, calls_go_by_nodes_where_that_spares_bytes)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(choices); i++) {
		uint32_t count = (uint32_t)strlen(choices[i].places);
		struct rank ranks[WORLD_RANKS_MAX] = { 0 };
		struct world world;

		world_init(&world, count, 1);
		memcpy(world.places, choices[i].places, count);
		for (uint32_t k = 0; k < count; k++) {
			rank_init(&ranks[k], &world, k);
			choosers[k].choice = &choices[i];
		}
		world_run(ranks, choose_main);
		for (uint32_t k = 0; k < count; k++) {
			cr_expect_eq(ranks[k].result, 0, "choice %u: %s", i, ranks[k].text.chars);
			cr_expect_eq(choosers[k].path, choices[i].expected,
			             "choice %u, %s of members on %s: path %d, not %d", i,
			             zi_coll_operation_name(choices[i].operation),
			             choices[i].places, (int)choosers[k].path,
			             (int)choices[i].expected);
			rank_deinit(&ranks[k]);
		}
		world_deinit(&world);
	}
}

/* ---- the bits ---- */

#define CALLS (ZI_COLL_ALL_TO_ALLV * WORLD_WHERE_COUNT * (_ZI_DTYPE_COUNT - 1))

static void *rank_main(void *arg)
{
	struct rank *rank = arg;

	for (uint32_t i = 0; i < CALLS && rank->failed_call < 0; i++) {
		struct world_call drawn = world_draw(rank->world, i);
		uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
		struct zi_node_call call;

		drawn.where = i % 4 ? WORLD_INSIDE : drawn.where;
		call = world_place(rank, &drawn, source_counts, target_counts);
		rank->result = zi_node_call(&rank->group, &call, &rank->text);
		if (rank->result || !world_check(rank, &drawn, &call)) {
			rank->failed_call = (int)i;
			/* The others need not wait for ever. */
			zi_line_store(&rank->world->verdict, EPIPE);
		}
	}
	return NULL;
}

static void expect_bits(const char *places, uint64_t seed)
{
	uint32_t count = (uint32_t)strlen(places);
	struct rank ranks[WORLD_RANKS_MAX] = { 0 };
	struct world world;

	world_init(&world, count, seed);
	memcpy(world.places, places, count);
	for (uint32_t i = 0; i < count; i++)
		rank_init(&ranks[i], &world, i);
	world_run(ranks, rank_main);
	for (uint32_t i = 0; i < count; i++) {
		cr_expect_eq(ranks[i].failed_call, -1, "members on %s: call %d of rank %u: %d %s",
		             places, ranks[i].failed_call, i, ranks[i].result, ranks[i].text.chars);
		rank_deinit(&ranks[i]);
	}
	world_deinit(&world);
}

Test(numa, bits_are_the_models_for_every_mapping_of_the_table)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(mappings); i++)
		expect_bits(mappings[i].places, 40 + i);
}

Test(numa, bits_are_the_models_for_1_to_9_members_anywhere)
{
	for (uint32_t count = 1; count <= WORLD_RANKS_MAX; count++) {
		char places[WORLD_RANKS_MAX + 1] = "";
		uint64_t state = 900 + count;

		for (uint32_t i = 0; i < count; i++)
			places[i] = (char)('a' + data_random(&state) % 4);
		expect_bits(places, 70 + count);
	}
}
