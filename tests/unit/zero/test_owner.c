/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever the strategy and however its ranks lie on nodes, each subgroup of a job is held by
 * the nodes of those ranks that own it and by no other, once; one rank in all finishes its sum; and
 * with all ranks on one node that node holds everything. Method: layouts, worlds, sizes of shards
 * and nodes drawn from a seed, each node asked for itself; owners found again by the rule alone.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/geometry.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/set.h"
#include "daemon/zero/place/owner.h"

#define CASES     200u
#define UNITS_MAX 12u
#define NODES_MAX 5u

struct drawn {
	struct zero_job *job;
	uint32_t owners[UNITS_MAX * 8]; /* member of a shard, of each subgroup */
	uint8_t nodes[ZI_WORLD_MAX];
	uint32_t node_count;
};

static uint64_t state = 0x13198a2e03707344ull;

static uint32_t draw(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state % below);
}

/* As layout_build() makes them, as far as owners go. */
static void draw_layout(struct zero_job *job)
{
	job->layout.unit_count = 1 + draw(UNITS_MAX);
	job->units = calloc(UNITS_MAX, sizeof(*job->units));
	job->subgroups = calloc(UNITS_MAX * 8, sizeof(*job->subgroups));
	cr_assert(job->units && job->subgroups);
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		struct zero_unit *unit = &job->units[i];

		unit->padded_count =
			zi_geometry_padded(1 + draw(draw(2) ? 5 * ZI_SUBGROUP_ELEMENTS : 9000));
		unit->subgroup_first = job->subgroup_count;
		unit->subgroup_count = zi_geometry_subgroup_count(unit->padded_count);
		job->padded_count += unit->padded_count;
		for (uint32_t k = 0; k < unit->subgroup_count; k++)
			job->subgroups[job->subgroup_count++] = (struct zero_subgroup){
				.job = job,
				.unit = i,
				.index = k,
				.element_count = (uint32_t)zi_geometry_subgroup_elements(
					unit->padded_count, k),
			};
	}
}

/* A size that divides the world, or 0: all. */
static uint32_t draw_shard_size(uint32_t world)
{
	uint32_t size = 1 + draw(world);

	return world % size ? 0 : size;
}

static void draw_case(struct drawn *drawn)
{
	struct zero_job *job = calloc(1, sizeof(*job));
	struct zi_owners owners;

	cr_assert(job);
	*drawn = (struct drawn){ .job = job, .node_count = 1 + draw(NODES_MAX) };
	draw_layout(job);
	job->world = 1 + draw(draw(4) ? 8 : ZI_WORLD_MAX);
	job->training.strategy = draw(_ZI_STRATEGY_COUNT);
	if (zi_strategy_divides_state(job->training.strategy))
		job->training.shard_size = draw_shard_size(job->world);
	for (uint32_t i = 0; i < job->world; i++)
		drawn->nodes[i] = (uint8_t)draw(drawn->node_count);
	job->here_mask = job_mask_of(job->world);
	job->slot_bytes = ZI_STORE_ALIGN_BYTES;
	job->config.grad_dtype = ZI_DTYPE_F32;
	cr_assert_eq(sets_build(job), 0);
	zi_owners_init(&owners, job->sets[0].shard_count);
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		drawn->owners[i] = zi_owners_deal(&owners, job->subgroups[i].element_count);
}

static void drop_case(struct drawn *drawn)
{
	free(drawn->job->units);
	free(drawn->job->sets);
	free(drawn->job->subgroups);
	free(drawn->job);
}

/* Ranks of one node after the other. */
static void see(struct drawn *drawn, uint32_t node)
{
	struct zero_job *job = drawn->job;

	job->here_mask = 0;
	for (uint32_t i = 0; i < job->world; i++)
		job->here_mask |= drawn->nodes[i] == node ? 1ull << i : 0;
	cr_assert_eq(sets_build(job), 0);
	owners_build(job);
}

/* By the rule alone: rank r of a shard of n owns what member r % n was dealt. */
static bool should_hold(const struct drawn *drawn, uint32_t subgroup, uint32_t node)
{
	const struct zero_job *job = drawn->job;

	for (uint32_t i = 0; i < job->world; i++)
		if (drawn->nodes[i] == node &&
		    i % job->sets[0].shard_count == drawn->owners[subgroup])
			return true;
	return false;
}

Test(owner, a_node_holds_what_its_ranks_own_and_no_more)
{
	for (uint32_t i = 0; i < CASES; i++) {
		uint32_t held_counts[UNITS_MAX * 8] = { 0 };
		uint8_t finishers[UNITS_MAX * 8] = { 0 };
		struct drawn drawn;

		draw_case(&drawn);
		for (uint32_t node = 0; node < drawn.node_count; node++) {
			struct zero_job *job = drawn.job;
			uint64_t elements = 0;
			uint32_t count = 0;

			see(&drawn, node);
			for (uint32_t k = 0; k < job->subgroup_count; k++) {
				const struct zero_subgroup *subgroup = &job->subgroups[k];
				bool is_zero3 = job->training.strategy == ZI_STRATEGY_ZERO3;

				cr_assert_eq(subgroup->is_here, should_hold(&drawn, k, node),
				             "case %u: node %u, subgroup %u", i, node, k);
				cr_assert_eq(subgroup->is_param_here,
				             subgroup->is_here || !is_zero3);
				cr_assert_lt(subgroup->finisher, job->world);
				cr_assert(!node || finishers[k] == subgroup->finisher,
				          "nodes differ about who finishes");
				finishers[k] = subgroup->finisher;
				held_counts[k] += subgroup->is_here;
			}
			for_each_subgroup_here(job, subgroup) {
				cr_assert(subgroup->is_here);
				elements += subgroup->element_count;
				count++;
			}
			cr_assert_eq(count, job->here_count);
			cr_assert_eq(elements, job->here_elements);
		}
		for (uint32_t k = 0; k < drawn.job->subgroup_count; k++)
			cr_assert_gt(held_counts[k], 0, "case %u: nobody holds subgroup %u", i, k);
		drop_case(&drawn);
	}
}

Test(owner, a_node_of_all_ranks_holds_everything)
{
	for (uint32_t i = 0; i < CASES; i++) {
		struct drawn drawn;
		struct zero_job *job;

		draw_case(&drawn);
		job = drawn.job;
		memset(drawn.nodes, 0, sizeof(drawn.nodes));
		see(&drawn, 0);
		cr_assert_eq(job->here_count, job->subgroup_count);
		cr_assert_eq(job->here_elements, job->padded_count);
		for (uint32_t k = 0; k < job->layout.unit_count; k++)
			cr_assert_eq(job->units[k].here_count, job->units[k].subgroup_count);
		drop_case(&drawn);
	}
}

/* Within each replica shares are whole, and nobody has more than a subgroup over the mean. */
Test(owner, shares_of_each_replica_are_the_model)
{
	for (uint32_t i = 0; i < CASES; i++) {
		struct drawn drawn;
		struct zero_job *job;
		uint32_t shard;

		draw_case(&drawn);
		job = drawn.job;
		see(&drawn, 0);
		shard = job->sets[0].shard_count;
		for (uint32_t first = 0; first < job->world; first += shard) {
			uint64_t sum = 0;

			for (uint32_t k = first; k < first + shard; k++) {
				sum += job->shares[k].owned_count;
				cr_assert_leq(job->shares[k].owned_count,
				              job->padded_count / shard + ZI_SUBGROUP_ELEMENTS);
			}
			cr_assert_eq(sum, job->padded_count, "case %u: replica at rank %u", i,
			             first);
		}
		drop_case(&drawn);
	}
}

Test(owner, ranks_here_are_walked_in_order)
{
	struct zero_job *job = calloc(1, sizeof(*job));
	uint32_t seen[4], count = 0;

	cr_assert(job);
	for_each_rank_here(job, rank) {
		(void)rank;
		cr_assert_fail("a node without ranks");
	}
	job->here_mask = 1ull << 2 | 1ull << 5 | 1ull << 63;
	for_each_rank_here(job, rank)
		seen[count++] = rank;
	cr_assert_eq(count, 3);
	cr_expect_eq(seen[0], 2);
	cr_expect_eq(seen[1], 5);
	cr_expect_eq(seen[2], 63);
	cr_expect_eq(job_first_rank(job), 2);
	job->world = 64;
	job->config.grad_dtype = ZI_DTYPE_F32;
	cr_assert_eq(sets_build(job), 0);
	cr_expect_eq(job->set_count, 1);
	cr_expect_eq(job->sets[0].members, UINT64_MAX);
	cr_expect_eq(job->sets[0].average, 1.0f / 64.0f);
	cr_expect_eq(set_rank(&job->sets[0], 63), 63);
	free(job->sets);
	free(job);
}
