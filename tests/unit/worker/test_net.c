/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what zinf-net does across nodes gives the bits of one node that has all ranks, for every
 * mode, placement, type and size, small and in many pieces; bytes go where they shall; and what
 * nodes call differently is named. Method: two to four real workers on loopback, seeded random
 * operations, kern_combine() over all ranks as the model.
 */
#include <netinet/in.h>

#include "kernels/combine.h"
#include "tests/kernels/data.h"
#include "tests/unit/worker/net_fixture.h"

#define RANKS_MAX    8u
#define RESULT_PLACE (24u << 20)

struct sum {
	uint32_t nodes[RANKS_MAX];
	uint32_t ranks, root;
	enum net_mode mode;
	enum zi_dtype dtype;
	enum zi_reduce_op op;
	uint64_t elements;
	char *sources[RANKS_MAX];
	char *expected;
};

static void sum_draw(struct sum *sum, uint32_t node_count, uint64_t *state)
{
	static const uint64_t sizes[] = { 0, 1, 5, 700, 16384, 40000, 160000, 270001 };

	*sum = (struct sum){ .mode = 1 + data_random(state) % (_NET_MODE_COUNT - 1),
		             .root = (uint32_t)(data_random(state) % node_count),
		             .elements = sizes[data_random(state) % ZI_COUNT_OF(sizes)] };
	sum->ranks = node_count + (uint32_t)(data_random(state) % (RANKS_MAX - node_count + 1));
	for (uint32_t i = 0; i < sum->ranks; i++)
		sum->nodes[i] = data_random(state) % 2
		                        ? i * node_count / sum->ranks
		                        : (uint32_t)(data_random(state) % node_count);
	do
		sum->dtype = 1 + data_random(state) % (_ZI_DTYPE_COUNT - 1);
	while (!zi_dtype_bytes(sum->dtype));
	do
		sum->op = 1 + data_random(state) % (_ZI_REDUCE_COUNT - 1);
	while (!zi_reduce_op_is_for(sum->op, sum->dtype));
	if (sum->mode == NET_BROADCAST) {
		sum->ranks = 1;
		sum->nodes[0] = sum->root;
		sum->dtype = ZI_DTYPE_U8;
		sum->op = ZI_REDUCE_SUM;
	}
	if (sum->mode == NET_SCATTER)
		sum->elements = sum->elements / sum->ranks * sum->ranks;
}

static void sum_make(struct sum *sum, uint64_t seed)
{
	uint64_t bytes = sum->elements * zi_dtype_bytes(sum->dtype) + 8;
	void *target;

	for (uint32_t i = 0; i < sum->ranks; i++) {
		uint64_t state = seed * 64 + i + 1;

		sum->sources[i] = malloc(bytes);
		if (zi_dtype_is_float(sum->dtype))
			data_fill(sum->sources[i], sum->elements, sum->dtype, DATA_ORDINARY, state);
		else
			for (uint64_t k = 0; k < bytes; k++)
				sum->sources[i][k] = (char)data_random(&state);
	}
	target = sum->expected = malloc(bytes);
	kern_combine(&(struct kern_combine_run){ .targets = &target,
	                                         .sources = (const void *const *)sum->sources,
	                                         .target_count = 1,
	                                         .source_count = sum->ranks,
	                                         .element_count = sum->elements,
	                                         .source_dtype = sum->dtype,
	                                         .target_dtype = sum->dtype,
	                                         .op = sum->op,
	                                         .average = 1.0 / sum->ranks });
}

static void sum_free(struct sum *sum)
{
	for (uint32_t i = 0; i < sum->ranks; i++)
		free(sum->sources[i]);
	free(sum->expected);
}

/* Each node's partials into its slab, and its call. */
static void sum_prepare(const struct sum *sum, struct net_test *test)
{
	struct subtree_plan plan;

	cr_assert_eq(subtree_plan_init(&plan, sum->nodes, sum->ranks, NULL), 0);
	for (uint32_t n = 0; n < test->node_count; n++) {
		struct net_node *node = &test->nodes[n];

		memset(node->slab + RESULT_PLACE, 0x5a, sum->elements * 8);
		for (uint32_t i = 0; i < plan.leaf_count; i++) {
			uint64_t place =
				shares_partial_offset(&plan, n, i, sum->elements, sum->dtype);

			if (plan.leaves[i].node != n)
				continue;
			if (plan.leaves[i].count == 1)
				memcpy(node->slab + place, sum->sources[plan.leaves[i].first],
				       sum->elements * zi_dtype_bytes(sum->dtype));
			else
				finish_partial(
					&plan.leaves[i],
					(const void *const *)&sum->sources[plan.leaves[i].first],
					node->slab + place, sum->elements, sum->dtype, sum->op);
		}
		node->exchange = (struct net_exchange){ .kind = NET_REDUCE,
			                                .mode = sum->mode,
			                                .dtype = sum->dtype,
			                                .op = sum->op,
			                                .rank_count = sum->ranks,
			                                .root = sum->root,
			                                .average = (float)(1.0 / sum->ranks),
			                                .element_count = sum->elements,
			                                .result_offset_bytes = RESULT_PLACE };
		for (uint32_t i = 0; i < sum->ranks; i++)
			node->exchange.nodes[i] = (uint8_t)sum->nodes[i];
	}
}

static void sum_compare(const struct sum *sum, const struct net_test *test, uint32_t round)
{
	uint64_t width = zi_dtype_bytes(sum->dtype), block = sum->elements / sum->ranks;

	for (uint32_t n = 0; n < test->node_count; n++) {
		const char *result = test->nodes[n].slab + RESULT_PLACE;
		bool is_equal = true;

		cr_assert_eq(test->nodes[n].request.error, 0, "round %u: %s", round,
		             test->nodes[n].request.text.chars);
		if (sum->mode == NET_SCATTER)
			for (uint32_t i = 0; i < sum->ranks; i++)
				is_equal = is_equal && (sum->nodes[i] != n ||
				                        !memcmp(result + i * block * width,
				                                sum->expected + i * block * width,
				                                block * width));
		else if (sum->mode == NET_ALL || (sum->mode == NET_ROOT) == (n == sum->root))
			is_equal = !memcmp(result, sum->expected, sum->elements * width);
		cr_assert(is_equal, "round %u, node %u: mode %u, %lu x %s, %s, %u ranks, root %u",
		          round, n, sum->mode, sum->elements, zi_dtype_name(sum->dtype),
		          zi_reduce_op_name(sum->op), sum->ranks, sum->root);
	}
}

static void sums_of(uint32_t node_count, uint32_t rounds)
{
	uint64_t state = node_count * 1000003;
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, node_count);
	net_test_join(&test);
	for (uint32_t round = 0; round < rounds; round++) {
		struct sum sum;

		sum_draw(&sum, node_count, &state);
		sum_make(&sum, round + 1);
		sum_prepare(&sum, &test);
		net_test_exchange(&test);
		sum_compare(&sum, &test, round);
		sum_free(&sum);
	}
	net_test_deinit(&test);
}

Test(net, sums_over_1_node_have_the_bits_of_the_flat_tree)
{
	sums_of(1, 30);
}

Test(net, sums_over_2_nodes_have_the_bits_of_the_flat_tree)
{
	sums_of(2, 120);
}

Test(net, sums_over_3_nodes_have_the_bits_of_the_flat_tree)
{
	sums_of(3, 100);
}

Test(net, sums_over_4_nodes_have_the_bits_of_the_flat_tree)
{
	sums_of(4, 100);
}

/* As all_reduce of a rank on each node has it: the result over the rank's own elements. */
Test(net, a_sum_in_place_is_as_one_elsewhere)
{
	static const uint64_t sizes[] = { 3, 5000, 1000000 };
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 3);
	net_test_join(&test);
	for (uint32_t i = 0; i < ZI_COUNT_OF(sizes); i++) {
		struct sum sum = { .nodes = { 0, 1, 2 },
			           .ranks = 3,
			           .mode = NET_ALL,
			           .dtype = ZI_DTYPE_F32,
			           .op = ZI_REDUCE_AVG,
			           .elements = sizes[i] };

		sum_make(&sum, i + 1);
		sum_prepare(&sum, &test);
		for (uint32_t n = 0; n < 3; n++)
			test.nodes[n].exchange.result_offset_bytes = 0;
		net_test_exchange(&test);
		for (uint32_t n = 0; n < 3; n++) {
			cr_assert_eq(test.nodes[n].request.error, 0);
			cr_assert_eq(memcmp(test.nodes[n].slab, sum.expected, sizes[i] * 4), 0);
		}
		sum_free(&sum);
	}
	net_test_deinit(&test);
}

Test(net, bytes_go_from_each_node_to_each_other)
{
	struct net_test test = { .host = NULL };
	uint64_t state = 3;

	net_test_skip_unless_built(&test);
	net_test_init(&test, 4);
	net_test_join(&test);
	for (uint32_t round = 0; round < 20; round++) {
		uint64_t bytes[4][4];

		for (uint32_t i = 0; i < 16; i++)
			bytes[i / 4][i % 4] = i / 4 == i % 4 || data_random(&state) % 4 == 0
			                              ? 0
			                              : data_random(&state) % 3000000;
		for (uint32_t n = 0; n < 4; n++) {
			struct net_node *node = &test.nodes[n];

			node->exchange = (struct net_exchange){ .kind = NET_MOVE };
			for (uint32_t i = 0; i < 4; i++) {
				memset(node->slab + (i << 22), (int)(16 * n + i + round),
				       bytes[n][i]);
				node->exchange.sends[i] =
					(struct net_range){ i << 22, bytes[n][i] };
				node->exchange.receives[i] =
					(struct net_range){ (4 + i) << 22, bytes[i][n] };
			}
		}
		net_test_exchange(&test);
		for (uint32_t n = 0; n < 4; n++)
			for (uint32_t i = 0; i < 4; i++) {
				const char *got = test.nodes[n].slab + ((4 + i) << 22);

				cr_assert_eq(test.nodes[n].request.error, 0, "%s",
				             test.nodes[n].request.text.chars);
				for (uint64_t k = 0; k < bytes[i][n]; k += 997)
					cr_assert_eq(got[k], (char)(16 * i + n + round));
			}
	}
	net_test_deinit(&test);
}

static void expect_all(const struct net_test *test, int error, const char *says)
{
	for (uint32_t i = 0; i < test->node_count; i++) {
		cr_expect_eq(test->nodes[i].request.error, error, "node %u: %d %s", i,
		             test->nodes[i].request.error, test->nodes[i].request.text.chars);
		cr_expect(strstr(test->nodes[i].request.text.chars, says), "node %u: %s", i,
		          test->nodes[i].request.text.chars);
	}
}

Test(net, nodes_that_call_different_things_are_told_what_both_do_and_begin_anew)
{
	struct sum sum = { .nodes = { 0, 1 },
		           .ranks = 2,
		           .mode = NET_ALL,
		           .dtype = ZI_DTYPE_F32,
		           .op = ZI_REDUCE_SUM,
		           .elements = 100000 };
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	sum_make(&sum, 1);
	for (uint32_t round = 0; round < 4; round++) {
		net_test_join(&test);
		sum_prepare(&sum, &test);
		if (round == 0)
			test.nodes[1].exchange.element_count--;
		else if (round == 1)
			test.nodes[1].exchange = (struct net_exchange){ .kind = NET_MOVE };
		else if (round == 2)
			test.nodes[1].exchange.element_count = UINT64_MAX / 2;
		net_test_exchange(&test);
		if (round == 3)
			break;
		expect_all(&test, -EINVAL,
		           round == 0   ? "all_reduce of 99999 x f32"
		           : round == 1 ? "moves bytes"
		                        : "outside the slab");
		net_test_exchange(&test); /* Broken until they meet again. */
		expect_all(&test, -EINVAL, "");
	}
	sum_compare(&sum, &test, 3);
	sum_free(&sum);
	net_test_deinit(&test);
}

Test(net, lengths_that_differ_are_named)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	net_test_join(&test);
	for (uint32_t n = 0; n < 2; n++)
		test.nodes[n].exchange = (struct net_exchange){ .kind = NET_MOVE };
	test.nodes[0].exchange.sends[1].bytes = 100;
	test.nodes[1].exchange.receives[0].bytes = 99;
	net_test_exchange(&test);
	expect_all(&test, -EINVAL, "sends 100 bytes where");
	net_test_deinit(&test);
}

/* One thing wrong in a sum of two ranks on one node, or in a move. */
struct mistake {
	const char *says;
	void (*make)(struct net_exchange *exchange);
};

#define MISTAKE(name, change)                                  \
	static void make_##name(struct net_exchange *exchange) \
	{                                                      \
		change;                                        \
	}
MISTAKE(kind, exchange->kind = 9)
MISTAKE(dtype, exchange->dtype = 99)
MISTAKE(no_dtype, exchange->dtype = 0)
MISTAKE(no_op, exchange->op = 0)
MISTAKE(ops, exchange->op = 99)
MISTAKE(op, exchange->op = ZI_REDUCE_BAND)
MISTAKE(mode, exchange->mode = 0)
MISTAKE(root, exchange->root = 1)
MISTAKE(no_ranks, exchange->rank_count = 0)
MISTAKE(ranks, exchange->rank_count = SUBTREE_RANKS_MAX + 1)
MISTAKE(node, exchange->nodes[1] = 1)
MISTAKE(scatter, (exchange->mode = NET_SCATTER, exchange->element_count = 3))
MISTAKE(broadcast, exchange->mode = NET_BROADCAST)
MISTAKE(count, exchange->element_count = UINT64_MAX / 4)
MISTAKE(result, exchange->result_offset_bytes = NET_TEST_SLAB_BYTES)
MISTAKE(partial, exchange->partial_offset_bytes = NET_TEST_SLAB_BYTES - 8)
MISTAKE(wrapping, exchange->partial_offset_bytes = UINT64_MAX - 15)
MISTAKE(aligned, exchange->result_offset_bytes = 2)
MISTAKE(slab, exchange->slab = 1)
MISTAKE(slabs, exchange->slab = NET_SLABS_MAX)
MISTAKE(sends, (exchange->kind = NET_MOVE,
                exchange->sends[0] = (struct net_range){ NET_TEST_SLAB_BYTES, 1 }))
MISTAKE(itself, (exchange->kind = NET_MOVE, exchange->sends[0] = (struct net_range){ 0, 8 }))

Test(net, operations_that_cannot_be_are_refused_with_what_is_wrong)
{
	static const struct mistake mistakes[] = {
		{ "9 is no kind of operation", make_kind },
		{ "type 99", make_dtype },
		{ "operation 6", make_op },
		{ "type 0", make_no_dtype },
		{ "operation 0", make_no_op },
		{ "operation 99", make_ops },
		{ "mode 0", make_mode },
		{ "root 1", make_root },
		{ "a sum of 0 ranks", make_no_ranks },
		{ "a sum of 257 ranks", make_ranks },
		{ "over 1 nodes is none", make_node },
		{ "mode 3", make_scatter },
		{ "mode 4", make_broadcast },
		{ "outside the slab", make_count },
		{ "outside the slab", make_result },
		{ "outside the slab", make_partial },
		{ "outside the slab", make_wrapping },
		{ "not aligned", make_aligned },
		{ "slab 1 is not there", make_slab },
		{ "slab 8 is not there", make_slabs },
		{ "lie outside the slab", make_sends },
		{ "to send to itself", make_itself },
	};
	struct sum sum = { .nodes = { 0, 0 },
		           .ranks = 2,
		           .mode = NET_ALL,
		           .dtype = ZI_DTYPE_F32,
		           .op = ZI_REDUCE_SUM,
		           .elements = 64 };
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 1);
	sum_make(&sum, 1);
	for (uint32_t i = 0; i < ZI_COUNT_OF(mistakes); i++) {
		net_test_join(&test);
		sum_prepare(&sum, &test);
		mistakes[i].make(&test.nodes[0].exchange);
		net_test_exchange(&test);
		expect_all(&test, -EINVAL, mistakes[i].says);
	}
	net_test_join(&test);
	sum_prepare(&sum, &test);
	test.sequence++; /* One is missing. */
	net_test_exchange(&test);
	expect_all(&test, -EINVAL, "operation 2 after 0");
	sum_free(&sum);
	net_test_deinit(&test);
}

Test(net, nodes_that_count_differently_are_told)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 2);
	test.epoch = 1;
	net_test_join_one(&test, 0, 3000);
	test.node_count = 3;
	net_test_join_one(&test, 1, 3000);
	test.node_count = 2;
	net_test_run(&test);
	cr_expect_eq(test.nodes[0].request.error, -EPROTO);
	cr_expect(strstr(test.nodes[0].request.text.chars,
	                 "another number of nodes for the job than 2"),
	          "%s", test.nodes[0].request.text.chars);
	/* It would wait for a third one, and hears that the first is out. */
	cr_expect_eq(test.nodes[1].request.error, -EPROTO);
	cr_expect_str_eq(test.nodes[1].request.text.chars, test.nodes[0].request.text.chars);
	net_test_deinit(&test);
}
