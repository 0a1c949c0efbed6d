/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: nodes go on from one commit, and under one name, or none does: whatever a node says here
 * and otherwise there, what each has chosen is compared before anything is done by it, and after a
 * start that ended so the next one goes on with all bits. Method: as in test_across_heal_bad.c;
 * what comes from node 1 is changed on its way to node 0 alone, so that honest nodes choose
 * differently.
 */
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/across/agree/names.h"
#include "tests/unit/zero/moved.h"

TestSuite(across_chosen, .timeout = 300);

/* The start ends by it on all nodes, in these words, and nothing has changed. */
static void fails(const char *words)
{
	cr_assert_neq(train_come(), 0);
	net.spoil = NULL;
	for (uint32_t i = 0; i < ranks.world; i++) {
		const char *text = ranks.actors[i].calls[0].op.text.chars;

		cr_expect_eq(ranks.actors[i].calls[0].op.result, -EPROTO, "%s", text);
		cr_expect_not_null(strstr(text, words), "%s", text);
		cr_expect_lt(strlen(text), 201, "%s", text);
	}
	train_leave(false);
	nodes_settle();
}

/* ---- names ---- */

static void (*said_otherwise)(struct commit_offers *offers);

static void spoil_names(struct net_worker *worker, uint32_t from, struct talk_entry *entry)
{
	struct commit_offers offers;

	if (worker->place != 0 || from != 1 || entry->kind != TALK_ROUND ||
	    entry->what != ROUND_RESUME)
		return;
	memcpy(&offers, entry->data, sizeof(offers));
	said_otherwise(&offers);
	memcpy(entry->data, &offers, sizeof(offers));
}

static void is_newer(struct commit_offers *offers)
{
	offers->names[0].number += 3;
}

static void has_the_former_alone(struct commit_offers *offers)
{
	offers->names[0] = offers->names[1];
	offers->count = 1;
	offers->in_place = 1;
	offers->offered = 1;
}

/* What follows would be commit 5 on one node, and 2 on the other. */
Test(across_chosen, a_job_that_moves_is_not_healed_under_two_numbers)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train what = wanted("01", ZI_OFFLOAD_NVME);

		what.training.strategy = ZI_STRATEGY_ZERO1;
		begin_train(&what, seed);
		steps(1, 1);
		train_leave(true);
		move_to("01", ZI_STRATEGY_DDP, 0);
		said_otherwise = is_newer;
		net.spoil = spoil_names;
		fails(" takes commit 2 of step 1 (");
		gone_on(1, 2);
		steps(2, 2);
		train_leave(true);
		check_all_held();
		train_deinit();
	}
}

/* All nodes commit, and none hears that the others have. */
static uint32_t lose_committed(struct net_worker *worker, struct talk_entry *entry)
{
	(void)worker;
	return entry->kind != TALK_ROUND || entry->what != ROUND_COMMITTED;
}

/* Both nodes have two commits: one would go back to the former, and the other drop it. */
Test(across_chosen, nodes_of_two_commits_settle_on_one)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct train what = wanted("01", ZI_OFFLOAD_NVME);

		what.training.strategy = strategy_of(seed);
		begin_train(&what, seed);
		steps(1, 1);
		cr_assert_eq(train_gradients(2), 0);
		net.lie = lose_committed;
		train_step_start(2);
		while (job_at(0)->committed_step != 2 || job_at(1)->committed_step != 2)
			nodes_turn();
		lose(LOSS_WORKER, 1);
		all_go();
		net.lie = NULL;
		cr_assert(job_at(0)->former.is_kept && job_at(1)->former.is_kept);
		said_otherwise = has_the_former_alone;
		net.spoil = spoil_names;
		fails(" takes commit 3 of step 2 (");
		for (uint32_t i = 0; i < 2; i++) {
			cr_assert(job_at(i)->former.is_kept);
			cr_assert_eq(job_at(i)->committed_step, 2);
		}
		resumed(2);
		steps(3, 3);
		train_leave(true);
		check_all_held();
		train_deinit();
	}
}

/* Of state in memory alone one node would forget all that it has. */
Test(across_chosen, memory_is_not_forgotten_by_what_one_node_says)
{
	struct train what = wanted("01", ZI_OFFLOAD_CPU);

	begin_train(&what, 5);
	train_leave(true);
	said_otherwise = is_newer;
	net.spoil = spoil_names;
	fails(" takes commit 1 of step 0 (");
	cr_assert_eq(job_at(0)->committed_step, 0);
	resumed(0);
	steps(1, 2);
	end_train();
}

/* ---- what goes with a name ---- */

static uint32_t spoilt_count;

/* Node 1, which has nothing of it yet, hears of more updates than there were. */
static void spoil_offer(struct net_worker *worker, uint32_t from, struct talk_entry *entry)
{
	struct across *across = job_at(1) ? job_at(1)->across : NULL;
	struct offer *offer = (struct offer *)(worker->slab + entry->offset_bytes);

	(void)from;
	if (worker->place != 1 || entry->kind != TALK_CAME || !across || !across->heal ||
	    !pieces_are_active(&across->heal->offers.pieces) ||
	    across->heal->offers.pieces.at_bytes)
		return;
	offer->update_count += 4;
	spoilt_count++;
}

Test(across_chosen, what_goes_with_a_commit_is_alike_on_all)
{
	struct train what = wanted("00", ZI_OFFLOAD_NVME);

	begin_train(&what, 6);
	steps(1, 1);
	train_leave(true);
	move_to("01", ZI_STRATEGY_DDP, 0);
	net.spoil = spoil_offer;
	fails(" disagree about commit 2 of step 1");
	cr_assert_gt(spoilt_count, 0);
	gone_on(1, 2);
	steps(2, 2);
	end_train();
}
