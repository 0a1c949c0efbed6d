/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job whose nodes keep parameters of what others hold (zero1, zero2 with offload_param
 * NVMe) goes on wherever its ranks come back, and whichever of its nodes keep them then: none reads
 * as zeros, none stays behind, and whoever dies meanwhile costs nothing. Method: as in
 * test_across_heal.c.
 */
#include "tests/unit/zero/flip.h"
#include "tests/unit/zero/moved.h"

TestSuite(across_heal_kept, .timeout = 600);

/* All of three nodes. */
static const struct way {
	const char *places;
	uint32_t strategy, shard_size;
	enum zi_offload offload_param;
} ways[] = {
	{ "0012", ZI_STRATEGY_ZERO1, 0, ZI_OFFLOAD_NVME },
	{ "0012", ZI_STRATEGY_ZERO1, 0, ZI_OFFLOAD_CPU },
	{ "0012", ZI_STRATEGY_ZERO2, 0, ZI_OFFLOAD_NVME },
	{ "0122", ZI_STRATEGY_ZERO3, 0, ZI_OFFLOAD_NVME },
	{ "2012", ZI_STRATEGY_ZERO2, 2, ZI_OFFLOAD_NVME },
	{ "0112", ZI_STRATEGY_DDP, 0, ZI_OFFLOAD_NVME },
	{ "2101", ZI_STRATEGY_ZERO2, 0, ZI_OFFLOAD_CPU },
	{ "21001", ZI_STRATEGY_ZERO1, 0, ZI_OFFLOAD_NVME },
};

static void go(const struct way *way)
{
	move_to(way->places, way->strategy, way->shard_size);
	train.config.offload_param = way->offload_param;
}

static struct train first_way(uint64_t seed)
{
	const struct way *way = &ways[seed % ZI_COUNT_OF(ways)];
	struct train what = wanted(way->places, ZI_OFFLOAD_NVME);

	what.config.offload_param = way->offload_param;
	what.config.staging_bytes = 16 * MIB;
	what.training.strategy = way->strategy;
	what.training.shard_size = way->shard_size;
	return what;
}

/* Every node that is asked has what its ranks' strategy says, and nothing else. */
static void check_kept(void)
{
	for (uint32_t i = 0; i < net.count; i++) {
		const struct zero_job *job = job_at(i);
		bool keeps_all = train.config.offload_param == ZI_OFFLOAD_NVME &&
		                 train.training.strategy != ZI_STRATEGY_ZERO3;

		if (!job || !job->attached_count)
			continue;
		cr_assert_eq(job->kept_count, keeps_all ? job->subgroup_count : job->here_count);
		for (uint32_t k = 0; k < job->subgroup_count; k++) {
			const struct zero_subgroup *subgroup = &job->subgroups[k];

			cr_assert_eq(subgroup->is_kept, subgroup->is_here || keeps_all);
			cr_assert_eq(subgroup->places[ZERO_PLANE_PARAM].extent.bytes > 0,
			             subgroup->is_kept);
		}
	}
}

/* ---- other places, strategies, and tiers of parameters ---- */

/* Starts end behind a step, before one, or with all daemons. */
static void moves(uint64_t seed)
{
	struct train what = first_way(seed);
	uint64_t step = 1;

	begin_train(&what, seed);
	steps(step, step);
	for (uint32_t i = 0; i < 5; i++) {
		train_leave(true);
		if (net_draw(2))
			restart_nodes();
		go(&ways[net_draw(ZI_COUNT_OF(ways))]);
		gone_on((int64_t)step, 4);
		check_kept();
		if (!net_draw(4))
			continue;
		steps(step + 1, step + 1);
		step++;
	}
	train_leave(true);
	check_all_held();
	restart_nodes();
	check_all_held();
	gone_on((int64_t)step, 4);
	end_train();
}

Test(across_heal_kept, ranks_come_back_and_nodes_keep_others_parameters_or_do_not)
{
	for (uint64_t seed = 1; seed <= 6; seed++)
		moves(seed);
}

/* There and back, of ranks that stay where they are. */
Test(across_heal_kept, parameters_move_from_memory_to_all_stores_and_back)
{
	for (uint32_t is_first = 0; is_first < 2; is_first++) {
		struct train what = first_way(is_first);
		bool stores = what.config.offload_param == ZI_OFFLOAD_NVME;

		begin_train(&what, is_first);
		for (uint64_t step = 1; step <= 5; step++) {
			steps(step, step);
			check_kept();
			train_leave(true);
			if (step == 3)
				restart_nodes();
			stores = !stores;
			train.config.offload_param = stores ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU;
			gone_on((int64_t)step, 4);
			check_kept();
		}
		train_leave(true);
		check_all_held();
		restart_nodes();
		gone_on(5, 4);
		end_train();
	}
}

/* ---- nodes that are lost, or come new ---- */

/* What the new one lacks it takes from the replica, and parameters from whoever keeps them. */
Test(across_heal_kept, a_node_that_comes_new_takes_all_parameters)
{
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct train what = wanted("0011", ZI_OFFLOAD_NVME);

		what.config.offload_param = ZI_OFFLOAD_NVME;
		what.config.staging_bytes = 16 * MIB;
		what.training.strategy = seed % 2 ? ZI_STRATEGY_ZERO1 : ZI_STRATEGY_ZERO2;
		what.training.shard_size = 2;
		begin_train(&what, seed);
		steps(1, 2);
		train_leave(true);
		replace_node((uint32_t)seed / 2);
		gone_on(2, 0);
		check_kept();
		steps(3, 3);
		train_leave(true);
		/* A third node, and state divided among all: parameters are on each. */
		move_to("0012", what.training.strategy, 0);
		gone_on(3, 2);
		check_kept();
		steps(4, 5);
		train_leave(true);
		check_all_held();
		restart_nodes();
		gone_on(5, 4);
		end_train();
	}
}

/* Parameters alone are not the job: its state is lost with the node that had it, by name. */
Test(across_heal_kept, state_that_nobody_has_is_named_though_parameters_are_there)
{
	struct train what = wanted("0123", ZI_OFFLOAD_NVME);

	what.config.offload_param = ZI_OFFLOAD_NVME;
	what.config.staging_bytes = 16 * MIB;
	what.training.strategy = ZI_STRATEGY_ZERO2;
	begin_train(&what, 4);
	steps(1, 2);
	train_leave(true);
	move_to("012", ZI_STRATEGY_ZERO2, 0);
	come_refused(-ENODATA, "on node 3 had");
	move_to("3210", ZI_STRATEGY_ZERO1, 0);
	gone_on(2, 4);
	check_kept();
	steps(3, 3);
	end_train();
}

/* A copy that has changed on a disk is named by whoever reads it for another node. */
Test(across_heal_kept, damage_of_a_copy_is_named_and_never_taken)
{
	struct train what = first_way(0); /* "0012" */
	uint32_t damaged_count = 0;

	begin_train(&what, 5);
	steps(1, 1);
	train_leave(true);
	nodes_settle();
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t k = 0; k < job_at(i)->subgroup_count; k++) {
			const struct zero_subgroup *subgroup = &job_at(i)->subgroups[k];
			const struct tier_extent *extent =
				&subgroup->places[ZERO_PLANE_PARAM].extent;

			if (subgroup->is_here)
				continue;
			flip(extent->member->path, extent->offset_bytes + 4000);
			damaged_count++;
		}
	cr_assert_gt(damaged_count, 0);
	move_to("0123", ZI_STRATEGY_ZERO2, 0); /* Node 3 takes them all. */
	come_refused(-EBADMSG, "parameters of unit");
	train_deinit();
}

/* ---- deaths while it is healed ---- */

Test(across_heal_kept, deaths_while_healing_cost_nothing)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct train what = first_way(seed);

		begin_train(&what, seed);
		steps(1, 1);
		train_leave(true);
		for (uint32_t i = 0; i < 3; i++) {
			go(&ways[net_draw(ZI_COUNT_OF(ways))]);
			lose_while_coming(seed + i, 20 + net_draw(500));
		}
		go(&ways[net_draw(ZI_COUNT_OF(ways))]);
		gone_on(1, 0);
		check_kept();
		steps(2, 2);
		train_leave(true);
		check_all_held();
		restart_nodes();
		gone_on(2, 4);
		end_train();
	}
}
