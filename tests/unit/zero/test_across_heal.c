/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job of state on NVMe goes on wherever its ranks come back, in whichever number and with
 * whichever strategy, with the bits that it had, as long as nodes that are here have all of it; and
 * whoever dies meanwhile costs nothing. Method: as in test_across_train.c; between starts ranks are
 * moved, and nodes are left out or come new.
 */
#include "tests/unit/zero/flip.h"
#include "tests/unit/zero/moved.h"

TestSuite(across_heal, .timeout = 600);

/* All of three nodes: whatever was divided among them is there. */
static const struct {
	const char *places;
	uint32_t strategy, shard_size;
} ways[] = {
	{ "0012", ZI_STRATEGY_ZERO1, 0 }, { "0122", ZI_STRATEGY_ZERO2, 0 },
	{ "0112", ZI_STRATEGY_DDP, 0 },   { "2101", ZI_STRATEGY_ZERO3, 0 },
	{ "2012", ZI_STRATEGY_ZERO1, 2 }, { "1022", ZI_STRATEGY_ZERO3, 2 },
};

static struct train first_way(uint64_t seed)
{
	struct train what = wanted("0012", ZI_OFFLOAD_NVME);

	what.training.strategy = strategy_of(seed);
	return what;
}

/* ---- other places, other strategies ---- */

static void moves(uint64_t seed, bool restarts)
{
	struct train what = first_way(seed);
	uint64_t step = 1;

	begin_train(&what, seed);
	steps(step, step);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t way = net_draw(ZI_COUNT_OF(ways));

		train_leave(true);
		if (restarts)
			restart_nodes();
		move_to(ways[way].places, ways[way].strategy, ways[way].shard_size);
		gone_on((int64_t)step, 4);
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

Test(across_heal, ranks_come_back_elsewhere_with_another_strategy)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		moves(seed, seed % 2);
}

/* ---- other numbers of nodes and ranks, and nodes that are lost ---- */

/* 4 -> 3 -> 5 ranks and nodes, with strategies changed on the way. */
Test(across_heal, fewer_nodes_and_more_go_on_with_the_same_bits)
{
	for (uint64_t seed = 1; seed <= 2; seed++) {
		struct train what = wanted("0123", ZI_OFFLOAD_NVME);

		what.training.strategy = ZI_STRATEGY_ZERO3;
		begin_train(&what, seed);
		steps(1, 2);
		train_leave(true);
		/* Node 3 has its part yet, and a rank that takes it away from there. */
		move_to("0123", ZI_STRATEGY_DDP, 0);
		gone_on(2, 4);
		steps(3, 3);
		train_leave(true);
		move_to("012", ZI_STRATEGY_ZERO2, 0);
		gone_on(3, 3);
		steps(4, 5);
		train_leave(true);
		restart_nodes();
		/* Node 3 comes with an older line: it takes what the others have. */
		move_to("01233", ZI_STRATEGY_ZERO1, 0);
		gone_on(5, 3);
		steps(6, 7);
		train_leave(true);
		check_all_held();
		restart_nodes();
		gone_on(7, 5);
		end_train();
	}
}

/* Each replica has all of it: a node that is lost for good is healed from the other one. */
Test(across_heal, a_lost_node_is_healed_from_replicas)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train what = wanted("0011", ZI_OFFLOAD_NVME);
		bool is_hybrid = seed % 2;
		uint32_t lost = seed / 2 % 2;

		what.training.strategy = is_hybrid ? ZI_STRATEGY_ZERO3 : ZI_STRATEGY_DDP;
		what.training.shard_size = is_hybrid ? 2 : 0;
		begin_train(&what, seed);
		steps(1, 2);
		train_leave(true);
		replace_node(lost);
		gone_on(2, 4); /* Blobs of its ranks are with the other node, too. */
		steps(3, 4);
		train_leave(true);
		check_all_held();
		restart_nodes();
		gone_on(4, 4);
		end_train();
	}
}

/* Without the node, too. */
Test(across_heal, replicas_go_on_without_the_node_that_is_lost)
{
	struct train what = wanted("0011", ZI_OFFLOAD_NVME);

	what.training = (struct zi_job_training){ .strategy = ZI_STRATEGY_DDP };
	begin_train(&what, 3);
	steps(1, 2);
	train_leave(true);
	move_to("0000", ZI_STRATEGY_ZERO2, 0);
	gone_on(2, 4);
	steps(3, 3);
	train_leave(true);
	restart_nodes();
	move_to("0123", ZI_STRATEGY_ZERO3, 2);
	gone_on(3, 4);
	steps(4, 4);
	end_train();
}

/* ---- what cannot be gone on from ---- */

/* Of divided planes a node's part is gone with it: who had it is named, and nothing is changed. */
Test(across_heal, a_part_that_nobody_has_is_named)
{
	struct train what = wanted("0123", ZI_OFFLOAD_NVME);

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_train(&what, 4);
	steps(1, 2);
	train_leave(true);
	move_to("012", ZI_STRATEGY_ZERO1, 0);
	come_refused(-ENODATA, "had: start that node too, or zctl delete it and load an export");
	come_refused(-ENODATA, "on node 3 had");
	move_to("000", ZI_STRATEGY_ZERO1, 0);
	come_refused(-ENODATA, "rank 1 on node 1 had");
	/* With it all is well. */
	restart_nodes();
	move_to("3210", ZI_STRATEGY_ZERO2, 0);
	gone_on(2, 4);
	steps(3, 3);
	end_train();
}

/* A byte that has changed on a disk is found by whoever reads it for another node. */
Test(across_heal, damage_is_named_and_never_taken)
{
	struct train what = wanted("0000", ZI_OFFLOAD_NVME);
	const struct tier_extent *extent;

	begin_train(&what, 5);
	steps(1, 1);
	train_leave(true);
	nodes_settle();
	extent = &job_at(0)->subgroups[1].places[ZERO_PLANE_STATE].extent;
	flip(extent->member->path, extent->offset_bytes + 5000);
	move_to("0012", ZI_STRATEGY_DDP, 0);
	come_refused(-EBADMSG, "optimizer state of unit");
	come_refused(-EBADMSG, "damaged");
	cr_expect_eq(job_at(0)->committed_step, 1);
	train_deinit();
}

/* A node that has no room is named to all, and those that have go on without it. */
Test(across_heal, a_node_without_room_is_told_to_all)
{
	struct train what = wanted("00", ZI_OFFLOAD_NVME);
	struct tier_extent taken[64];
	uint32_t count = 0;

	begin_train(&what, 6);
	steps(1, 1);
	train_leave(true);
	move_to("01", ZI_STRATEGY_DDP, 0);
	while (!tier_extent_reserve(&net.nodes[1].nvme, ZERO_PLANE_STATE, MIB, &taken[count]))
		cr_assert_lt(++count, ZI_COUNT_OF(taken));
	come_refused(-ENOSPC, "from other nodes, and");
	while (count)
		tier_extent_release(&taken[--count]);
	gone_on(1, 2);
	steps(2, 2);
	end_train();
}

/* ---- deaths while it is healed ---- */

Test(across_heal, deaths_while_healing_cost_nothing)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct train what = first_way(seed);
		uint32_t way = seed % 5;

		begin_train(&what, seed);
		steps(1, 1);
		train_leave(true);
		for (uint32_t i = 0; i < 3; i++) {
			way = (way + 1 + net_draw(3)) % ZI_COUNT_OF(ways);
			move_to(ways[way].places, ways[way].strategy, ways[way].shard_size);
			lose_while_coming(seed + i, 20 + net_draw(400));
		}
		way = (way + 1 + net_draw(3)) % ZI_COUNT_OF(ways);
		move_to(ways[way].places, ways[way].strategy, ways[way].shard_size);
		gone_on(1, 4);
		steps(2, 2);
		train_leave(true);
		check_all_held();
		restart_nodes();
		gone_on(2, 4);
		end_train();
	}
}
