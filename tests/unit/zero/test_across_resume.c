/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: where nodes go on when ranks come back: what they are ahead of their commit is committed by
 * all or by none, what only some have is nobody's, and what cannot be gone on from is refused by
 * name. Method: as in test_across_votes.c.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/kept.h"

TestSuite(across_resume, .timeout = 300);

/* ---- steps ahead of their commit ---- */

static struct train ahead_of(uint32_t interval)
{
	struct train what = wanted("0011", ZI_OFFLOAD_NVME);

	what.config.commit_interval = interval;
	what.config.resident_bytes = 3 * MIB;
	what.training.strategy = strategy_of(interval);
	return what;
}

/* Ranks that leave cleanly, in any order: nodes commit what they are ahead before they part. */
Test(across_resume, what_is_ahead_is_committed_when_all_leave)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train what = ahead_of(4);

		begin_train(&what, seed);
		steps(1, 6);
		cr_assert_eq(node_job(&net.nodes[0], "train")->committed_step, 4);
		train_leave(true);
		for (uint32_t i = 0; i < 2; i++) {
			cr_assert_eq(node_job(&net.nodes[i], "train")->committed_step, 6);
			cr_assert_null(node_job(&net.nodes[i], "train")->across);
			node_stop(&net.nodes[i]);
			node_start(&net.nodes[i]);
		}
		resumed(6);
		steps(7, 9);
		end_train();
	}
}

/* Where the group breaks all fall back to what is committed. */
Test(across_resume, what_is_ahead_of_a_group_that_breaks_is_made_anew)
{
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct train what = ahead_of(3);

		begin_train(&what, seed);
		steps(1, 5);
		lose((enum loss)(seed % _LOSS_COUNT), 1);
		all_go();
		resumed(3);
		steps(4, 7);
		end_train();
	}
}

/* One node's ranks have left, another's do not, or die: it does not wait for ever. */
Test(across_resume, what_is_ahead_waits_for_other_nodes_ranks_as_long_as_its_own_would)
{
	struct train what = ahead_of(3);

	begin_train(&what, 3);
	steps(1, 4);
	for (uint32_t i = 0; i < 2; i++) {
		ranks.actors[i].rank->timeout_ns = 100 * ZI_NS_PER_MS;
		actor_leave(&ranks.actors[i], true);
	}
	while (node_job(&net.nodes[0], "train")->busy_count)
		nodes_turn();
	cr_assert_eq(node_job(&net.nodes[0], "train")->current_step, 3);
	all_go();
	resumed(3);
	for (uint32_t i = 0; i < 2; i++)
		actor_leave(&ranks.actors[i], true);
	end_train();
}

/* The next start's ranks wait while nodes of the former one still talk, in vain. */
Test(across_resume, a_new_start_waits_for_the_end_of_what_ranks_left)
{
	static struct nodes_ranks fresh;
	struct train what = ahead_of(3);
	struct attach_options options = { .incarnation = "next", .world = 4, .local = 2 };

	begin_train(&what, 4);
	options.config = train.config;
	options.training = train.training;
	steps(1, 4);
	fresh = (struct nodes_ranks){ .world = 4, .places = { 0, 0, 1, 1 } };
	for (uint32_t i = 0; i < 2; i++) {
		ranks.actors[i].rank->timeout_ns = 100 * ZI_NS_PER_MS;
		actor_leave(&ranks.actors[i], true);
	}
	for (uint32_t i = 0; i < 4; i++) {
		options.rank = i;
		cr_assert_eq(actor_attach(&net.nodes[i / 2], &fresh.actors[i], &options), 0, "%s",
		             fresh.actors[i].text.chars);
		model_layout(&fresh.actors[i]);
		actor_start(&fresh.actors[i], 0, zero_materialize, &nodes_place);
		while (i == 1 && node_job(&net.nodes[0], "train")->current_step != 3)
			nodes_turn();
		if (i >= 2)
			actor_leave(&ranks.actors[i], false);
	}
	for (uint32_t i = 0; i < 4; i++) {
		cr_assert_eq(nodes_wait(&fresh.actors[i], 0), 0, "%s", fresh.actors[i].text.chars);
		zero_materialized(fresh.actors[i].rank, &fresh.actors[i].memory);
		cr_assert_eq(fresh.actors[i].memory.committed_step, 3);
	}
	nodes_leave(&fresh, true);
	end_train();
}

/* A daemon that is told to stop waits for nobody. */
static void quiet(void *arg)
{
	((struct node *)arg)->is_quiesced = true;
}

Test(across_resume, a_daemon_that_stops_falls_back)
{
	struct train what = ahead_of(3);
	struct node *node;

	begin_train(&what, 5);
	steps(1, 4);
	node = &net.nodes[1];
	zero_quiesce(node->zero, quiet, node);
	for (uint32_t i = 0; i < 4; i++)
		while (!ranks.actors[i].is_broken)
			nodes_turn();
	train_leave(false);
	while (!node->is_quiesced)
		nodes_turn();
	node_stop(node);
	node->is_quiesced = false;
	node_start(node);
	resumed(3);
	end_train();
}

/* ---- where to go on ---- */

/* State in memory alone went with its daemon, on one node. */
Test(across_resume, memory_that_one_node_has_lost_is_named)
{
	struct train what = wanted("01", ZI_OFFLOAD_CPU);
	struct kept kept = { .op.done = NULL };

	begin_train(&what, 7);
	steps(1, 2);
	lose(LOSS_DAEMON, 1);
	all_go();
	cr_assert_eq(train_come(), -ENODATA);
	for (uint32_t i = 0; i < 2; i++) {
		const char *text = ranks.actors[i].text.chars;

		cr_expect_not_null(strstr(text, "is at step 2, but node 1"), "%s", text);
		cr_expect_not_null(strstr(text, "has nothing of it"), "%s", text);
		cr_expect_not_null(strstr(text, "zctl delete it there"), "%s", text);
	}
	/* Which is done where it is: then it begins anew. */
	train_leave(false);
	cr_assert_eq(kept_call(&net.nodes[0], &kept, zero_job_delete, "train", ""), 0, "%s",
	             kept.op.text.chars);
	cr_assert_eq(kept.op.step, 2);
	/* Node 1 remembers the step that its daemon lost, once. */
	cr_assert_eq(kept_call(&net.nodes[1], &kept, zero_job_delete, "train", ""), 0, "%s",
	             kept.op.text.chars);
	cr_assert_eq(kept.op.step, 2);
	cr_assert_eq(kept_call(&net.nodes[1], &kept, zero_job_delete, "train", ""), -ENOENT);
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), -1);
	train_plain(0);
	cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
	steps(1, 2);
	end_train();
}

/* Of the first commit nobody needs anything: nothing was trained yet. */
Test(across_resume, memory_whose_first_commit_is_torn_begins_anew)
{
	struct train what = wanted("01", ZI_OFFLOAD_CPU);

	begin_train(&what, 7);
	lose(LOSS_DAEMON, 1);
	all_go();
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), -1);
	cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
	steps(1, 2);
	train_leave(true);
	resumed(2);
	end_train();
}

/* And on the store. */
Test(across_resume, a_store_whose_first_commit_is_torn_begins_anew)
{
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct train what = wanted("012", ZI_OFFLOAD_NVME);
		int64_t committed;

		train_init(&what, seed);
		cr_assert_eq(train_come(), 0);
		for (uint32_t i = 0; i < 3; i++)
			actor_start(&ranks.actors[i], 0, zero_commit,
			            &(struct zero_op){ .blob = "zero", .blob_bytes = 4 });
		while (!has_come(ANCHOR_COMMITTED, 0))
			nodes_turn();
		lose((enum loss)(seed % _LOSS_COUNT), (uint32_t)seed % 3);
		all_go();
		cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
		committed = train_committed();
		cr_assert_leq(committed, 0);
		if (committed < 0)
			cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
		end_train();
	}
}

/* What one node committed alone goes to the others. */
Test(across_resume, a_job_of_one_node_goes_on_on_two)
{
	struct train what = wanted("00", ZI_OFFLOAD_NVME);

	begin_train(&what, 2);
	steps(1, 1);
	train_leave(true);
	net.count = 2;
	node_init(&net.nodes[1]);
	node_start(&net.nodes[1]);
	train.places = "01";
	resumed(1);
	steps(2, 2);
	end_train();
}

/* Nodes that make different commits have come different ways: both hear so, and nothing is
 * written. */
Test(across_resume, commits_that_differ_are_named)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	begin_train(&what, 2);
	node_job(&net.nodes[1], "train")->committed.number = 5;
	cr_assert_eq(train_gradients(1), 0);
	train_step_start(1);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(nodes_wait(&ranks.actors[i], 0), -EINVAL, "%s",
		             ranks.actors[i].text.chars);
	all_hear(-EINVAL, "makes commit 6 of step 1");
	train_leave(false);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(node_job(&net.nodes[i], "train")->committed_step, 0);
	end_train();
}

/* A commit that one node has no room for ends the group of all. */
Test(across_resume, a_store_that_is_full_on_one_node_is_told_to_all)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);
	struct tier_extent taken[64];
	uint32_t count = 0;

	train_init(&what, 2);
	cr_assert_eq(train_come(), 0);
	while (!tier_extent_reserve(&net.nodes[1].nvme, ZERO_PLANE_STATE, MIB, &taken[count]))
		cr_assert_lt(++count, ZI_COUNT_OF(taken));
	for (uint32_t i = 0; i < 2; i++)
		actor_start(&ranks.actors[i], 0, zero_commit, NULL);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(nodes_wait(&ranks.actors[i], 0), -ENOSPC, "%s",
		             ranks.actors[i].text.chars);
	all_hear(-ENOSPC, "a commit of job 'train' needs");
	while (count)
		tier_extent_release(&taken[--count]);
	train_leave(false);
	end_train();
}

/* Of a node the last rank leaves, since another one of it has died, when all nodes have agreed on a
 * step whose sums are still to come, with steps before it that are to be committed: the other node
 * hears of it at once, by name, rather than that each waits for the other.
 */
Test(across_resume, a_step_that_ends_with_its_ranks_ends_everywhere)
{
	uint32_t hit_count = 0;

	each_draw(seed, 12) {
		struct train what = wanted("0011", ZI_OFFLOAD_NVME);
		struct actor *first = &ranks.actors[0];
		int64_t committed;
		int r;

		what.config.commit_interval = 3;
		what.training.strategy = ZI_STRATEGY_ZERO2;
		begin_train(&what, seed);
		steps(1, 1);
		cr_assert_eq(train_gradients(2), 0, "%s", first->text.chars);
		train_step_start(2);
		while (!step_is_called(node_job(&net.nodes[1], "train")))
			nodes_turn();
		hit_count += node_job(&net.nodes[1], "train")->step.phase == ZERO_STEP_STEPPING;
		actor_leave(&ranks.actors[3], false);
		actor_leave(&ranks.actors[2], true);
		r = nodes_wait(first, 0);
		cr_assert(r == 0 || r == -EPIPE, "%d: %s", r, first->text.chars);
		if (r)
			cr_expect_not_null(strstr(first->text.chars, "rank 3"), "%s",
			                   first->text.chars);
		train_leave(false);
		cr_assert_eq(train_come(), 0, "%s", first->text.chars);
		committed = train_committed();
		cr_assert(committed >= 0 && committed <= 2, "%lld", (long long)committed);
		train_plain(committed);
		check_blobs(committed);
		train_check(committed);
		steps((uint64_t)committed + 1, (uint64_t)committed + 2);
		end_train();
	}
	cr_expect_gt(hit_count, draw_share(3), "too little was seen: %u", hit_count);
}
