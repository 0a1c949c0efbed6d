/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: sums of gradients over nodes have the bits of kern_reduce() of all ranks, wherever these
 * are, on every node that owns the state; the norm is the same on all; who is not finite is named.
 * Method: several zeros in one process, with what they say carried in drawn orders (nodes.h);
 * ranks hand over in drawn orders, several steps one behind the other.
 */
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "tests/unit/zero/across_grads.h"

#define STEPS 2u

/* ---- what is expected ---- */

/* (padded,) of the dtype of gradients: what one node with all ranks makes. */
static char *expected_sum(const struct run *run, uint64_t step, uint32_t unit)
{
	uint64_t padded = zi_geometry_padded(model_elements[unit]);
	uint64_t members = model_members(unit, ranks.world), bytes;
	uint32_t count = (uint32_t)__builtin_popcountll(members);
	struct kern_reduce_options options = { .dtype = (enum zi_dtype)run->dtype,
		                               .average = (float)(1.0 / count) };
	float *accum = calloc(padded, sizeof(*accum));
	char *sum, *grads[ZI_WORLD_MAX];

	bytes = padded * zi_dtype_bytes(options.dtype);
	sum = calloc(1, bytes);
	for (uint32_t micro = 0; micro < run->micro_batches; micro++) {
		uint64_t rest = members;

		for (uint32_t i = 0; i < count; i++, rest &= rest - 1) {
			grads[i] = calloc(1, bytes);
			fill_grad(grads[i],
			          grad_what(step, micro, (uint32_t)__builtin_ctzll(rest), unit),
			          model_elements[unit], run->dtype);
		}
		if (run->schedule == ZI_SCHEDULE_SHARDED)
			kern_reduce_accumulate(accum, (const void *const *)grads, count, padded,
			                       micro == 0, options.dtype);
		else
			kern_reduce(sum, (const void *const *)grads, count, padded, &options);
		for (uint32_t i = 0; i < count; i++)
			free(grads[i]);
	}
	if (run->schedule == ZI_SCHEDULE_SHARDED)
		kern_reduce_finish(sum, accum, padded, &options);
	free(accum);
	return sum;
}

/* On each node what it holds the state of; the norm of all. */
static double check_sums(const struct run *run, uint64_t step, uint64_t seed)
{
	uint64_t padded_count = 0, block = 0;
	double *blocks, sum;
	uint32_t checked = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		padded_count += zi_geometry_padded(model_elements[unit]);
	blocks = calloc(padded_count / ZI_BLOCK_ELEMENTS, sizeof(*blocks));
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t padded = zi_geometry_padded(model_elements[unit]);
		uint32_t width = zi_dtype_bytes((enum zi_dtype)run->dtype);
		char *expected = expected_sum(run, step, unit);

		for (uint32_t i = 0; i < net.count; i++) {
			struct zero_job *job = node_job(&net.nodes[i], "train");

			for_each_subgroup_here(job, subgroup) {
				if (subgroup->unit != unit)
					continue;
				checked++;
				cr_assert_eq(memcmp(grad_sum_at(job, subgroup),
				                    expected + subgroup->grad_begin,
				                    subgroup->element_count * width),
				             0,
				             "'%s' seed %llu step %llu: unit %u subgroup %u on "
				             "node %u",
				             run->places, (unsigned long long)seed,
				             (unsigned long long)step, unit, subgroup->index, i);
			}
		}
		kern_norm_blocks(&blocks[block], expected, padded, 0.5f, (enum zi_dtype)run->dtype);
		block += padded / ZI_BLOCK_ELEMENTS;
		free(expected);
	}
	cr_assert_geq(checked, node_job(&net.nodes[0], "train")->subgroup_count,
	              "all of it is somewhere");
	sum = kern_norm_join(blocks, block);
	free(blocks);
	return sqrt(sum);
}

static void check_norm(double norm)
{
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_eq(ranks.actors[i].calls[0].op.stats.norm, norm,
		             "rank %u: %.17g, not %.17g", i, ranks.actors[i].calls[0].op.stats.norm,
		             norm);
}

static void train(const struct run *run, uint64_t seed, bool wants_norm)
{
	struct zi_step_options options = model_options();

	options.micro_batches = run->micro_batches;
	options.max_norm = wants_norm ? 1.0 : 0;
	begin_run(run, seed);
	for (uint64_t step = 1; step <= STEPS; step++) {
		double norm;

		cr_assert_eq(make_step(step, &options), 0, "%s", ranks.actors[0].text.chars);
		norm = check_sums(run, step, seed);
		if (wants_norm)
			check_norm(norm);
	}
	end_run(true);
}

static const char *const places[] = {
	"01",  "001",     "0012",    "00122222", "0101", "0120",     "01230123",
	"012", "0001112", "0000111", "00111111", "0123", "01020103", "33221100",
};

/* ---- sums ---- */

Test(across_grads, sums_are_those_of_one_place)
{
	for (uint64_t seed = 1; seed <= 2 * ZI_COUNT_OF(places); seed++) {
		struct run run = {
			.places = places[seed % ZI_COUNT_OF(places)],
			.dtype = seed % 3 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			.schedule = seed % 2 ? ZI_SCHEDULE_SHARDED : ZI_SCHEDULE_LOCAL,
			.offload = ZI_OFFLOAD_CPU,
			.micro_batches = seed % 2 ? 1 + (uint32_t)(seed / 2) % 3 : 1,
			.strategy = (seed / 2) % 2 ? ZI_STRATEGY_ZERO1 : ZI_STRATEGY_DEFAULT,
		};

		train(&run, seed, seed % 4 == 0);
	}
}

/* Divided state, replicas that cut nodes anywhere, in memory and on the store. */
Test(across_grads, sums_come_to_all_owners_of_replicas)
{
	static const char *const even[] = { "0011", "0123", "01", "00011122", "01230123" };

	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct run run = {
			.places = even[seed % ZI_COUNT_OF(even)],
			.dtype = seed % 2 ? ZI_DTYPE_BF16 : ZI_DTYPE_F16,
			.schedule = ZI_SCHEDULE_LOCAL,
			.offload = seed % 3 ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME,
			.micro_batches = 1,
			.strategy = seed % 2 ? ZI_STRATEGY_ZERO2 : ZI_STRATEGY_ZERO1,
			.shard_size = 2,
		};

		train(&run, seed, true);
	}
}

/* In buckets: sums have a plane of their own, of what a node holds or finishes. */
Test(across_grads, sums_of_buckets)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct run run = {
			.places = seed % 2 ? "00112233" : "0001",
			.dtype = ZI_DTYPE_BF16,
			.schedule = seed % 3 ? ZI_SCHEDULE_LOCAL : ZI_SCHEDULE_SHARDED,
			.offload = ZI_OFFLOAD_CPU,
			.micro_batches = seed % 3 ? 1 : 2,
			.strategy = ZI_STRATEGY_ZERO2,
			.shard_size = seed % 2 ? 4 : 0,
			.budget_bytes = 4 * MIB,
		};

		train(&run, seed, true);
	}
}

/* Sets of all nodes, of some, and of one alone, whose sums are made there. */
Test(across_grads, sums_of_sets)
{
	static const struct model_set sets[UNITS] = { { "some", 0x2a },
		                                      { "all", 0x3f },
		                                      { "near", 0x03 } };

	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct run run = {
			.places = seed % 2 ? "001122" : "002121",
			.dtype = seed % 3 ? ZI_DTYPE_BF16 : ZI_DTYPE_F32,
			.schedule = ZI_SCHEDULE_LOCAL,
			.offload = ZI_OFFLOAD_CPU,
			.micro_batches = 1,
			.strategy = seed % 2 ? ZI_STRATEGY_ZERO1 : ZI_STRATEGY_DDP,
			.sets = sets,
		};

		train(&run, seed, true);
	}
}

/* ---- what is not finite ---- */

/* All ranks of all nodes hear the same of it; who it is where one node has seen it by itself. */
Test(across_grads, who_is_not_finite_is_named_alike_on_all_nodes)
{
	static const struct run runs[] = {
		{ .places = "012", .dtype = ZI_DTYPE_BF16, .micro_batches = 1 },
		{ .places = "0101", .dtype = ZI_DTYPE_F32, .micro_batches = 1 },
		{ .places = "021",
		  .dtype = ZI_DTYPE_BF16,
		  .schedule = ZI_SCHEDULE_SHARDED,
		  .micro_batches = 2 },
	};

	for (uint32_t seed = 0; seed < 9; seed++) {
		struct run run = runs[seed % ZI_COUNT_OF(runs)];
		uint32_t culprit = seed % 3, unit = (seed / 3) % UNITS;
		struct zi_step_options options = model_options();

		run.offload = ZI_OFFLOAD_CPU;
		options.micro_batches = run.micro_batches;
		options.flags |= ZI_STEP_SKIP_NONFINITE;
		begin_run(&run, seed + 1);
		poison = (struct poison){ .what = grad_what(1, 0, culprit, unit),
			                  .index = 5 + 300 * seed,
			                  .value = seed % 2 ? NAN : INFINITY,
			                  .count = 1 };
		poison.index %= model_elements[unit];
		cr_assert_eq(make_step(1, &options), 0, "%s", ranks.actors[0].text.chars);
		for (uint32_t i = 0; i < ranks.world; i++) {
			const struct zero_op *op = &ranks.actors[i].calls[0].op;

			cr_expect_eq(op->stats.is_skipped, 1);
			cr_expect_eq(op->stats.culprit, culprit, "seed %u: rank %u, not %u", seed,
			             op->stats.culprit, culprit);
			cr_expect_eq(op->culprit_unit, unit);
		}
		poison.count = 0;
		cr_assert_eq(make_step(2, &options), 0);
		cr_expect_eq(ranks.actors[0].calls[0].op.stats.is_skipped, 0);
		end_run(true);
	}
}

/* A node whose ranks are late keeps the others waiting, and nothing of theirs from going on. */
Test(across_grads, a_late_node_keeps_nobody_from_what_others_need)
{
	struct run run = { .places = "012",
		           .dtype = ZI_DTYPE_BF16,
		           .micro_batches = 1,
		           .offload = ZI_OFFLOAD_CPU };
	struct zi_step_options options = model_options();

	begin_run(&run, 3);
	begin_step(&options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t i = 0; i < 2; i++)
			hand_over(&ranks.actors[i], 1, 0, unit);
	for (uint32_t i = 0; i < 2; i++)
		actor_start(&ranks.actors[i], 0, zero_step, NULL);
	for (uint32_t i = 0; i < 200; i++)
		nodes_turn();
	cr_expect(!ranks.actors[0].calls[0].is_done);
	for (uint32_t unit = UNITS; unit-- > 0;)
		hand_over(&ranks.actors[2], 1, 0, unit);
	actor_start(&ranks.actors[2], 0, zero_step, NULL);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	(void)check_sums(&run, 1, 3);
	end_run(true);
}
