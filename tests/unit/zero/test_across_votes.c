/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks on several nodes train the bits of one place, and a commit is on all nodes or on
 * none: whoever is lost, a rank, a worker or a daemon, at any moment of a step and its commit, all
 * go on from one step that is the last or the one before it. Method: several zeros in one process,
 * with what they say carried in drawn orders, beside the plain computation (across_train.h); what
 * is lost, and when, is drawn.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/across/across_private.h"
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/kept.h"

TestSuite(across_votes, .timeout = 300);

static struct train wanted(const char *places, uint32_t offload)
{
	return (struct train){ .places = places, .config = model_config(ZI_DTYPE_BF16, offload) };
}

static void begin_train(const struct train *what, uint64_t seed)
{
	train_init(what, seed);
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), -1);
	cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
	train_check(0);
}

static void end_train(void)
{
	train_leave(true);
	train_deinit();
}

/* What each rank gave with the step that is committed. */
static void check_blobs(int64_t step)
{
	char expected[32];

	(void)snprintf(expected, sizeof(expected), step ? "blob %lld" : "zero", (long long)step);
	for (uint32_t i = 0; i < ranks.world; i++) {
		uint64_t bytes = 0;
		const void *blob = zero_blob(ranks.actors[i].rank, &bytes);

		cr_assert_eq(bytes, strlen(expected), "rank %u", i);
		cr_assert_eq(memcmp(blob, expected, bytes), 0, "rank %u: %.*s", i, (int)bytes,
		             (const char *)blob);
	}
}

static void steps(uint64_t first, uint64_t last)
{
	for (uint64_t step = first; step <= last; step++) {
		train_step(step);
		plain_train(&plain, step, step);
		train_check((int64_t)step);
	}
}

Test(across_votes, nodes_train_the_bits_of_one_place)
{
	static const char *const places[] = { "01", "0012", "0101", "0123" };

	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct train what = wanted(places[seed % ZI_COUNT_OF(places)],
		                           seed % 2 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU);

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

enum loss { LOSS_RANK, LOSS_WORKER, LOSS_DAEMON, _LOSS_COUNT };

static void lose(enum loss loss, uint32_t place)
{
	const struct net_worker *worker = net.workers;

	while (worker && worker->place != place)
		worker = worker->next;
	if (loss == LOSS_DAEMON)
		train_kill(place);
	else if (loss == LOSS_WORKER && worker)
		nodes_crash(place);
	else
		for (uint32_t i = 0; i < ranks.world; i++)
			if (ranks.places[i] == place && ranks.actors[i].rank) {
				actor_leave(&ranks.actors[i], false);
				break;
			}
}

/* Whoever is left hears of it, and goes. */
static void all_go(void)
{
	for (uint32_t i = 0; i < ranks.world; i++) {
		uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

		while (ranks.actors[i].rank && !ranks.actors[i].is_broken) {
			nodes_turn();
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "rank %u hears nothing", i);
		}
	}
	train_leave(false);
}

/* Where losses came, and what became of it. */
static struct {
	uint32_t kept, undone; /* steps that were lost, or not */
	uint32_t torn;         /* commits that some nodes had, and others not */
	uint32_t doubled;      /* nodes that had two commits */
} seen;

/* From where on turns are counted: zero_step(); the first node writes its commit; or has it. */
enum anchor { ANCHOR_STEP, ANCHOR_COMMITTING, ANCHOR_COMMITTED, _ANCHOR_COUNT };

static bool has_come(enum anchor anchor, uint64_t step)
{
	bool has = anchor == ANCHOR_STEP;

	for (uint32_t i = 0; i < net.count; i++) {
		const struct zero_job *job = node_job(&net.nodes[i], "train");

		has |= job->committed_step == (int64_t)step;
		has |= anchor == ANCHOR_COMMITTING && job->step.phase == ZERO_STEP_COMMITTING;
	}
	return has;
}

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
	int64_t committed;

	cr_assert_eq(train_gradients(step), 0, "%s", ranks.actors[0].text.chars);
	train_step_start(step);
	while (!has_come(anchor, step))
		nodes_turn();
	for (uint32_t i = 0; i < moment; i++)
		nodes_turn();
	lose(loss, place);
	all_go();
	look();
	cr_assert_eq(train_come(), 0, "step %llu, %u of node %u after %u turns: %s",
	             (unsigned long long)step, loss, place, moment, ranks.actors[0].text.chars);
	committed = train_committed();
	cr_assert(committed == (int64_t)step || committed == (int64_t)step - 1,
	          "step %llu went to %lld", (unsigned long long)step, (long long)committed);
	train_plain(committed);
	check_blobs(committed);
	train_check(committed);
	return committed;
}

static void lose_often(const struct train *what, uint64_t seed, uint32_t loss_count)
{
	int64_t committed = 0;

	begin_train(what, seed);
	for (uint32_t i = 0; i < 4; i++) {
		enum loss loss = (enum loss)net_draw(loss_count);
		uint32_t place = net_draw(net.count);
		enum anchor anchor = (enum anchor)net_draw(_ANCHOR_COUNT);
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

		lose_often(&what, seed, _LOSS_COUNT);
	}
	cr_expect(seen.kept >= 4 && seen.undone >= 4 && seen.doubled >= 4,
	          "too little was seen: %u kept, %u undone, %u doubled", seen.kept, seen.undone,
	          seen.doubled);
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
		train_step_start(2);
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
		check_blobs(committed);
		train_check(committed);
		steps((uint64_t)committed + 1, (uint64_t)committed + 2);
		end_train();
	}
	cr_expect_gt(seen.torn, 2, "%u commits were torn", seen.torn);
}

/* State in memory alone outlives ranks and workers. */
Test(across_votes, memory_outlives_ranks_and_workers)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct train what = wanted(seed % 2 ? "01" : "0012", ZI_OFFLOAD_CPU);

		lose_often(&what, seed, LOSS_DAEMON);
	}
	cr_expect(seen.kept >= 4 && seen.undone >= 2, "too little was seen: %u kept, %u undone",
	          seen.kept, seen.undone);
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

/* A snapshot is of one node. */
Test(across_votes, a_snapshot_is_not_loaded_over_nodes)
{
	struct train what = wanted("00", ZI_OFFLOAD_NVME);
	struct kept kept = { .op.done = NULL };

	begin_train(&what, 4);
	cr_assert_eq(kept_call(&net.nodes[0], &kept, zero_snapshot_create, "train", "first"), 0);
	train_leave(true);
	net.count = 2;
	node_init(&net.nodes[1]);
	net.nodes[1].trains_across = true;
	node_start(&net.nodes[1]);
	nodes_attach(&ranks, "01",
	             &(struct attach_options){
			     .job = "other", .incarnation = "run.0", .config = train.config });
	cr_assert_eq(zero_load(ranks.actors[0].rank, "train", "first", &ranks.actors[0].text), 0);
	nodes_layout(&ranks);
	actor_start(&ranks.actors[0], 0, zero_materialize, &nodes_place);
	cr_expect_eq(nodes_wait(&ranks.actors[0], 0), -EOPNOTSUPP);
	cr_expect_not_null(strstr(ranks.actors[0].text.chars, "a snapshot is of one node"), "%s",
	                   ranks.actors[0].text.chars);
	end_train();
}

/* ---- steps ahead of their commit ---- */

static struct train ahead_of(uint32_t interval)
{
	struct train what = wanted("0011", ZI_OFFLOAD_NVME);

	what.config.commit_interval = interval;
	what.config.resident_bytes = 3 * MIB;
	return what;
}

static void resumed(int64_t step)
{
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), step);
	train_plain(step);
	check_blobs(step);
	train_check(step);
}

/* Ranks that leave cleanly, in any order: nodes commit what they are ahead before they part. */
Test(across_votes, what_is_ahead_is_committed_when_all_leave)
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
Test(across_votes, what_is_ahead_of_a_group_that_breaks_is_made_anew)
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
Test(across_votes, what_is_ahead_waits_for_other_nodes_ranks_as_long_as_its_own_would)
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

/* A daemon that is told to stop waits for nobody. */
static void quiet(void *arg)
{
	((struct node *)arg)->is_quiesced = true;
}

Test(across_votes, a_daemon_that_stops_falls_back)
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
Test(across_votes, memory_that_one_node_has_lost_is_named)
{
	struct train what = wanted("01", ZI_OFFLOAD_CPU);

	begin_train(&what, 7);
	steps(1, 2);
	lose(LOSS_DAEMON, 1);
	all_go();
	cr_assert_eq(train_come(), -ENODATA);
	for (uint32_t i = 0; i < 2; i++) {
		const char *text = ranks.actors[i].text.chars;

		cr_expect_not_null(strstr(text, "stands at step 2, but node 1"), "%s", text);
		cr_expect_not_null(strstr(text, "has nothing of it"), "%s", text);
	}
	end_train();
}

/* Of the first commit nobody needs anything: nothing was trained yet. */
Test(across_votes, memory_whose_first_commit_is_torn_begins_anew)
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
Test(across_votes, a_store_whose_first_commit_is_torn_begins_anew)
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

/* What one node committed alone is not of several. */
Test(across_votes, a_job_of_one_node_is_refused_on_two)
{
	struct train what = wanted("00", ZI_OFFLOAD_NVME);

	begin_train(&what, 2);
	steps(1, 1);
	train_leave(true);
	net.count = 2;
	node_init(&net.nodes[1]);
	net.nodes[1].trains_across = true;
	node_start(&net.nodes[1]);
	train.places = "01";
	cr_assert_eq(train_come(), -EOPNOTSUPP);
	cr_expect_not_null(strstr(ranks.actors[1].text.chars, "on one node, which holds all"), "%s",
	                   ranks.actors[1].text.chars);
	end_train();
}

/* Nodes that make different commits have come different ways: both hear so, and nothing is
 * written. */
Test(across_votes, commits_that_differ_are_named)
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
Test(across_votes, a_store_that_is_full_on_one_node_is_told_to_all)
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
