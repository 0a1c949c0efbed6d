/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks on several nodes train the bits of one place, and a commit is on all nodes or on
 * none: whoever is lost, a rank, a worker or a daemon, at any moment of a step and its commit, all
 * go on from one step that is the last or the one before it. Method: several zeros in one process,
 * with what they say carried in drawn orders, beside the plain computation (across_train.h); what
 * is lost, and when, is drawn.
 */
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/kept.h"

TestSuite(across_votes, .timeout = 300);

Test(across_votes, nodes_train_the_bits_of_one_place)
{
	static const char *const places[] = { "01", "0012", "0101", "0123" };

	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct train what = wanted(places[seed % ZI_COUNT_OF(places)],
		                           seed % 2 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);

		what.training.strategy = strategy_of(seed / 2);
		if (seed % 3 == 0)
			what.config.param_dtype = what.config.grad_dtype = ZI_DTYPE_F32;
		begin_train(&what, seed);
		steps(1, 3);
		train_leave(true);
		cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
		cr_assert_eq(train_committed(), 3);
		check_blobs(3);
		train_check(3);
		steps(4, 5);
		end_train();
	}
}

/* All daemons began anew. */
Test(across_votes, nodes_go_on_from_their_stores)
{
	struct train what = wanted("0011", ZI_OFFLOAD_NVME);

	begin_train(&what, 3);
	steps(1, 2);
	train_leave(true);
	for (uint32_t i = 0; i < 2; i++) {
		node_stop(&net.nodes[i]);
		node_start(&net.nodes[i]);
	}
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), 2);
	check_blobs(2);
	train_check(2);
	steps(3, 4);
	end_train();
}

/* ---- what is lost ---- */

/* Where losses came, and what became of it. */
static struct {
	uint32_t kept, undone; /* steps that were lost, or not */
	uint32_t torn;         /* commits that some nodes had, and others not */
	uint32_t doubled;      /* nodes that had two commits */
} seen;

/* Ranks have gone: what do nodes stand at? */
static void look(void)
{
	bool is_torn = false;

	for (uint32_t i = 0; i < net.count; i++) {
		const struct zero_job *job = node_job(&net.nodes[i], "train");

		seen.doubled += job->former.is_kept;
		is_torn |= job->committed_step != node_job(&net.nodes[0], "train")->committed_step;
	}
	seen.torn += is_torn;
}

/* @moment: turns from there on. Return: the step that all went on from. */
static int64_t step_lost(uint64_t step, enum loss loss, uint32_t place, enum anchor anchor,
                         uint32_t moment)
{
	lose_in_step(step, anchor, moment, loss, place);
	look();
	return go_on_from(step);
}

static void lose_often(const struct train *what, uint64_t seed, uint32_t loss_count,
                       enum anchor always)
{
	int64_t committed = 0;

	begin_train(what, seed);
	for (uint32_t i = 0; i < 4; i++) {
		enum loss loss = (enum loss)net_draw(loss_count);
		uint32_t place = net_draw(net.count);
		enum anchor drawn = (enum anchor)net_draw(_ANCHOR_COUNT);
		enum anchor anchor = always ? always : drawn;
		int64_t former = committed;

		committed = step_lost((uint64_t)committed + 1, loss, place, anchor,
		                      net_draw(anchor == ANCHOR_COMMITTED ? 12 : 40));
		seen.kept += committed > former;
		seen.undone += committed == former;
	}
	steps((uint64_t)committed + 1, (uint64_t)committed + 2);
	end_train();
}

Test(across_votes, who_is_lost_at_any_moment_costs_a_step_at_most)
{
	static const char *const places[] = { "01", "0012", "012", "0101" };

	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct train what = wanted(places[seed % ZI_COUNT_OF(places)], ZI_OFFLOAD_NVME);

		what.training.strategy = strategy_of(seed);
		lose_often(&what, seed, _LOSS_COUNT, ANCHOR_STEP);
	}
	cr_expect(seen.kept >= 4 && seen.undone >= 4 && seen.doubled >= 4,
	          "too little was seen: %u kept, %u undone, %u doubled", seen.kept, seen.undone,
	          seen.doubled);
}

/* Without blobs: nodes need nothing of each other for its commit but votes. */
static void start_bare_step(void)
{
	for (uint32_t i = 0; i < ranks.world; i++)
		actor_start(&ranks.actors[i], 0, zero_step, &(struct zero_op){ .blob = NULL });
}

static void check_blobs_or_none(int64_t committed, int64_t bare)
{
	uint64_t bytes = 0;

	if (committed != bare) {
		check_blobs(committed);
		return;
	}
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_null(zero_blob(ranks.actors[i].rank, &bytes));
}

/* One node hears all votes and commits, another one does not hear them any more: the one that is
 * ahead steps back, whoever of them began anew. */
Test(across_votes, who_is_ahead_steps_back)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct train what = wanted("01", ZI_OFFLOAD_NVME);
		uint32_t ahead = seed % 2, behind = 1 - ahead;
		int64_t committed;

		begin_train(&what, seed);
		steps(1, 1);
		cr_assert_eq(train_gradients(2), 0);
		start_bare_step();
		/* Neither needs more of the other for the step than votes. */
		while (node_job(&net.nodes[behind], "train")->step.phase < ZERO_STEP_UPDATING ||
		       node_job(&net.nodes[ahead], "train")->step.phase < ZERO_STEP_UPDATING)
			nodes_turn();
		nodes_hold(ahead, behind, true);
		while (!has_come(ANCHOR_COMMITTED, 2))
			nodes_turn();
		lose((enum loss)(seed / 2 % _LOSS_COUNT), behind);
		nodes_hold(ahead, behind, false);
		all_go();
		look();
		if (seed % 3 == 0)
			train_kill(ahead);
		cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
		committed = train_committed();
		cr_assert(committed == 1 || committed == 2);
		train_plain(committed);
		check_blobs_or_none(committed, 2);
		train_check(committed);
		steps((uint64_t)committed + 1, (uint64_t)committed + 2);
		end_train();
	}
	cr_expect_gt(seen.torn, 2, "%u commits were torn", seen.torn);
}

/* State in memory alone outlives ranks and workers, from where all nodes have what a step takes. */
Test(across_votes, memory_outlives_ranks_and_workers)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct train what = wanted(seed % 2 ? "01" : "0012", ZI_OFFLOAD_CPU);

		what.training.strategy = strategy_of(seed / 2);
		lose_often(&what, seed, LOSS_DAEMON, ANCHOR_CERTAIN);
	}
	cr_expect(seen.kept >= 4, "too little was seen: %u kept, %u undone", seen.kept,
	          seen.undone);
}

/* A node that says nothing of its commit is named, when a rank's time is up. */
Test(across_votes, a_node_that_does_not_commit_is_named)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	begin_train(&what, 9);
	cr_assert_eq(train_gradients(1), 0);
	ranks.actors[0].rank->timeout_ns = 200 * ZI_NS_PER_MS;
	train_step_start(1);
	while (node_job(&net.nodes[0], "train")->step.phase < ZERO_STEP_UPDATING ||
	       node_job(&net.nodes[1], "train")->step.phase < ZERO_STEP_UPDATING)
		nodes_turn();
	nodes_hold(1, 0, true);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -ETIMEDOUT);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "node 1 (ranks 1"), "%s",
	                   ranks.actors[0].text.chars);
	nodes_hold(1, 0, false);
	all_go();
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	train_plain(train_committed());
	train_check(train_committed());
	end_train();
}

/* step(), barrier(), then the ticket: what ranks call and what daemons ask each other keep one
 * order on all nodes, however long each node writes. */
Test(across_votes, a_barrier_behind_a_step_waits_for_its_commit)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct train what = wanted("0011", seed % 2 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);

		what.training.strategy = strategy_of(seed);
		begin_train(&what, seed);
		for (uint64_t step = 1; step <= 3; step++) {
			uint32_t slow = net_draw(2);

			cr_assert_eq(train_gradients(step), 0);
			train_step_start(step);
			net.nodes[slow].is_disk_held = true;
			for (uint32_t i = 0; i < 4; i++) {
				actor_start(&ranks.actors[i], 1, zero_barrier, NULL);
				for (uint32_t k = net_draw(60); k > 0; k--)
					nodes_turn();
			}
			net.nodes[slow].is_disk_held = false;
			(void)nvme_engine_reap(net.nodes[slow].engine);
			for (uint32_t i = 0; i < 4; i++) {
				cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s",
				             ranks.actors[i].text.chars);
				cr_assert_eq(nodes_wait(&ranks.actors[i], 1), 0, "%s",
				             ranks.actors[i].text.chars);
			}
			plain_train(&plain, step, step);
			train_check((int64_t)step);
		}
		end_train();
	}
}

/* Whose time is over meanwhile has not come to it, as all ranks of its node; no step is lost by
 * that, and it may come anew. */
Test(across_votes, a_barrier_behind_a_step_may_be_given_up)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train what = wanted("0011", ZI_OFFLOAD_NVME);
		uint32_t slow = seed % 2;

		begin_train(&what, seed);
		cr_assert_eq(train_gradients(1), 0);
		net.nodes[slow].is_disk_held = true;
		train_step_start(1);
		for (uint32_t i = 0; i < 4; i++)
			actor_start(&ranks.actors[i], 1, zero_barrier,
			            &(struct zero_op){ .timeout_ns = (ranks.places[i] == slow) *
			                                             50 * ZI_NS_PER_MS });
		for (uint32_t i = 0; i < 4; i++) {
			if (ranks.places[i] != slow)
				continue;
			cr_expect_eq(nodes_wait(&ranks.actors[i], 1), -ETIMEDOUT);
			cr_expect_not_null(strstr(ranks.actors[i].text.chars, "called before it"),
			                   "%s", ranks.actors[i].text.chars);
		}
		net.nodes[slow].is_disk_held = false;
		(void)nvme_engine_reap(net.nodes[slow].engine);
		cr_assert_eq(train_step_end(), 0, "%s", ranks.actors[0].text.chars);
		for (uint32_t i = 0; i < 4; i++)
			if (ranks.places[i] == slow)
				actor_start(&ranks.actors[i], 1, zero_barrier, NULL);
		for (uint32_t i = 0; i < 4; i++)
			cr_expect_eq(nodes_wait(&ranks.actors[i], 1), 0, "%s",
			             ranks.actors[i].text.chars);
		plain_train(&plain, 1, 1);
		train_check(1);
		end_train();
	}
}

/* ---- a node's part ---- */

static void refused(kept_fn function, const char *name, const char *as, const char *words)
{
	struct kept kept = { .op.done = NULL };

	cr_assert_eq(zi_copy_name(kept.op.as, sizeof(kept.op.as), as), 0);
	cr_expect_eq(kept_call(&net.nodes[0], &kept, function, "train", name), -EOPNOTSUPP);
	cr_expect_not_null(strstr(kept.op.text.chars, words), "%s", kept.op.text.chars);
}

/* What other nodes hold is never read as zeros, nor does a node go back by itself. */
Test(across_votes, a_part_is_not_restored_by_itself)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);
	struct kept kept = { .op.done = NULL };

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_train(&what, 6);
	train_leave(true);
	nodes_settle();
	/* Nobody talks: it is kept by this node alone. */
	cr_assert_eq(kept_call(&net.nodes[0], &kept, zero_snapshot_create, "train", "part"), 0);
	refused(zero_snapshot_restore, "part", "", "job 'train' runs on 2 nodes");
	refused(zero_snapshot_restore, "part", "", "zinf_load");
	refused(zero_snapshot_restore, "part", "other", "snapshot 'train/part' is one node's part");
	end_train();
}

/* Whoever exports it hears which part of which commit it is, and that it is no more. */
Test(across_votes, a_part_is_held_as_what_it_is)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);
	const struct catalog_job *records[2];
	struct kept kept[2] = { 0 };

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_train(&what, 6);
	nodes_settle();
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(kept_call(&net.nodes[i], &kept[i], zero_snapshot_hold, "train", ""), 0,
		             "%s", kept[i].op.text.chars);
		records[i] = zero_snapshot_record(kept[i].op.held);
		cr_expect_eq(records[i]->placement.node, i);
		cr_expect_eq(records[i]->placement.node_count, 2);
		cr_expect_eq(records[i]->extent_count,
		             _ZERO_PLANE_COUNT * node_job(&net.nodes[i], "train")->here_count);
	}
	cr_expect_eq(records[0]->line, records[1]->line);
	cr_expect_eq(records[0]->number, records[1]->number);
	cr_expect_eq(records[0]->extent_count + records[1]->extent_count,
	             _ZERO_PLANE_COUNT * node_job(&net.nodes[0], "train")->subgroup_count);
	for (uint32_t i = 0; i < 2; i++)
		zero_snapshot_release(kept[i].op.held);
	end_train();
}

/* Where each node holds everything, one of them is enough. */
Test(across_votes, a_whole_copy_is_exported)
{
	struct train what = wanted("01", ZI_OFFLOAD_CPU);
	struct kept kept = { .op.done = NULL };

	what.training.strategy = ZI_STRATEGY_DDP;
	begin_train(&what, 7);
	cr_assert_eq(kept_call(&net.nodes[0], &kept, zero_snapshot_hold, "train", ""), 0, "%s",
	             kept.op.text.chars);
	cr_expect_eq(zero_snapshot_record(kept.op.held)->extent_count,
	             _ZERO_PLANE_COUNT * node_job(&net.nodes[0], "train")->subgroup_count);
	zero_snapshot_release(kept.op.held);
	end_train();
}
