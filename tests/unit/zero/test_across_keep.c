/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a snapshot that is asked for at one node of a job is one commit's on all of them, whatever
 * they are at, or nobody's: where one cannot keep it, all hear which and why, and nothing of it is
 * left. Method: nodes in one process, asked at drawn moments of steps and commits, also while other
 * ranks wait for the one that asks; nodes that are lost meanwhile; what is kept trains on.
 */
#include "daemon/tier/account.h"
#include "daemon/zero/across/agree/keep_private.h"
#include "daemon/zero/across/agree/keep_say.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "tests/unit/zero/across_train.h"
#include "tests/unit/zero/kept.h"

TestSuite(across_keep, .timeout = 300);

static struct kept kept;

/* As begin_train(), with stores for what is kept. */
static void begin_with(const struct train *what, uint64_t seed)
{
	train = *what;
	if (train.config.offload_optimizer == ZI_OFFLOAD_NVME)
		train.config.staging_bytes = 16 * MIB;
	nodes_init(train_node_count(), seed);
	for (uint32_t i = 0; i < net.count; i++)
		net.nodes[i].store_bytes = 96 * MIB;
	nodes_start();
	train_plain(0);
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_write(), 0, "%s", ranks.actors[0].text.chars);
}

static void begin_kept(const char *places, uint32_t offload, uint32_t strategy, uint64_t seed)
{
	struct train what = wanted(places, offload);

	what.training.strategy = strategy;
	begin_with(&what, seed);
}

static int wait_kept(void)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	while (!kept.is_done) {
		nodes_turn();
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the snapshot never ends");
	}
	return kept.op.result;
}

static void ask_at(uint32_t place, const char *name)
{
	memset(&kept, 0, sizeof(kept));
	kept_start(&net.nodes[place], &kept, zero_snapshot_create, "train", name);
}

static const struct zero_snapshot *kept_at(uint32_t place, const char *name)
{
	const struct zero_snapshot *snapshot = snapshot_find(net.nodes[place].zero, "train", name);

	return snapshot && snapshot->phase == ZERO_SNAPSHOT_KEPT ? snapshot : NULL;
}

/* Return: the step that all have kept, of one commit. */
static int64_t all_keep(const char *name)
{
	const struct zero_snapshot *first = kept_at(0, name);

	for (uint32_t i = 0; i < net.count; i++) {
		const struct zero_snapshot *snapshot = kept_at(i, name);

		cr_assert_not_null(snapshot, "node %u", i);
		cr_assert_eq(snapshot->record->number, first->record->number, "node %u", i);
		cr_assert_eq(snapshot->record->line, first->record->line, "node %u", i);
		cr_assert_eq(snapshot->record->step, first->record->step, "node %u", i);
		cr_assert_eq(snapshot->record->placement.node, i);
	}
	return first->record->step;
}

/* What was stored is forgotten soon. */
static void none_keeps(const char *name)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	for (uint32_t i = 0; i < net.count; i++) {
		while (snapshot_find(net.nodes[i].zero, "train", name)) {
			nodes_turn();
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "node %u keeps it", i);
		}
	}
	nodes_settle();
	for (uint32_t i = 0; i < net.count; i++) {
		node_check_space(&net.nodes[i]);
	}
}

/* Job "other" on two nodes begins with what each has kept, and trains on with the same bits. */
static void goes_on_from(const char *name, int64_t step)
{
	nodes_attach(&ranks, train.places,
	             &(struct attach_options){ .job = "other",
	                                       .incarnation = "run.0",
	                                       .config = train.config,
	                                       .training = train.training });
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_assert_eq(zero_load(ranks.actors[i].rank, "train", name, &ranks.actors[i].text),
		             0);
	nodes_layout(&ranks);
	cr_assert_eq(nodes_materialize(&ranks), 0, "%s", ranks.actors[0].text.chars);
	cr_assert_eq(train_committed(), step);
	train_plain(step);
	train_check(step);
	steps((uint64_t)step + 1, (uint64_t)step + 1);
}

/* Between steps, at each node. */
static void between_steps(const char *places, uint32_t offload, uint32_t strategy)
{
	begin_kept(places, offload, strategy, 5);
	for (uint32_t i = 0; i < net.count; i++) {
		char name[16];

		steps(i + 1, i + 1);
		(void)snprintf(name, sizeof(name), "at-%u", i);
		ask_at(i, name);
		cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
		cr_assert_eq(kept.op.step, i + 1);
		cr_assert_eq(kept.op.node_count, net.count);
		cr_assert_eq(kept.op.kept_count, net.count);
		cr_assert_eq(kept.op.held_bytes, kept_at(i, name)->held_bytes);
		nodes_settle();
		cr_assert_eq(all_keep(name), i + 1);
	}
	/* It is there, everywhere; and one without a name has that of its step. */
	ask_at(0, "at-0");
	cr_assert_eq(wait_kept(), -EEXIST, "%s", kept.op.text.chars);
	ask_at(net.count - 1, "");
	cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
	nodes_settle();
	cr_assert_eq(all_keep(kept.op.name), net.count);
	steps(net.count + 1, net.count + 2);
	train_leave(true);
	for (uint32_t i = 0; i < net.count; i++)
		node_check_space(&net.nodes[i]);
	goes_on_from("at-1", 2);
	end_train();
}

Test(across_keep, all_nodes_keep_the_same_step_whoever_is_asked)
{
	between_steps("01", ZI_OFFLOAD_NVME, ZI_STRATEGY_ZERO1);
	between_steps("0012", ZI_OFFLOAD_NVME, ZI_STRATEGY_ZERO3);
	between_steps("01", ZI_OFFLOAD_CPU, ZI_STRATEGY_ZERO2);
	between_steps("012", ZI_OFFLOAD_CPU, ZI_STRATEGY_ZERO3);
	between_steps("01", ZI_OFFLOAD_NVME, ZI_STRATEGY_DDP);
}

/* At each moment of steps that go on meanwhile. */
static void within_steps(const char *places, uint32_t offload, uint32_t interval)
{
	for (uint64_t seed = 1; seed <= 9; seed++) {
		struct train what = wanted(places, offload);
		uint64_t step = 2;
		int64_t kept_step;
		uint32_t turns;

		what.config.commit_interval = interval;
		what.training.strategy = strategy_of(seed);
		begin_with(&what, seed);
		steps(1, 1);
		cr_assert_eq(train_gradients(step), 0);
		if (seed % 3)
			train_step_start(step);
		for (turns = net_draw(60); turns; turns--)
			nodes_turn();
		ask_at(net_draw(net.count), "drawn");
		if (!(seed % 3))
			train_step_start(step);
		cr_assert_eq(train_step_end(), 0, "%s", ranks.actors[0].text.chars);
		plain_train(&plain, step, step);
		steps(3, 3);
		cr_assert_eq(wait_kept(), 0, "seed %llu: %s", (unsigned long long)seed,
		             kept.op.text.chars);
		nodes_settle();
		kept_step = all_keep("drawn");
		cr_assert_eq(kept_step, kept.op.step);
		train_leave(true);
		for (uint32_t i = 0; i < net.count; i++)
			node_check_space(&net.nodes[i]);
		goes_on_from("drawn", kept_step);
		end_train();
	}
}

Test(across_keep, steps_go_on_while_state_on_disk_is_kept)
{
	within_steps("01", ZI_OFFLOAD_NVME, 1);
	within_steps("012", ZI_OFFLOAD_NVME, 2);
}

Test(across_keep, steps_wait_while_state_in_memory_is_written)
{
	within_steps("01", ZI_OFFLOAD_CPU, 1);
	within_steps("012", ZI_OFFLOAD_CPU, 1);
}

/* The rank that asks comes to its next call when it is answered; the others have gone on to what
 * waits for it. */
static void others_wait(uint32_t offload, uint32_t asker, call_fn function)
{
	struct zero_op op = { .options = model_options() };

	begin_kept("01", offload, ZI_STRATEGY_ZERO1, 9);
	steps(1, 2);
	actor_start(&ranks.actors[!asker], 0, function, &op);
	for (uint32_t i = 0; i < 200; i++)
		nodes_turn();
	ask_at(asker, "two");
	cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
	actor_start(&ranks.actors[asker], 0, function, &op);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(nodes_wait(&ranks.actors[i], 0), 0, "%s", ranks.actors[i].text.chars);
	cr_assert_eq(all_keep("two"), 2);
	end_train();
}

Test(across_keep, ranks_that_wait_for_who_asks_keep_nobody)
{
	for (uint32_t asker = 0; asker < 2; asker++) {
		others_wait(ZI_OFFLOAD_CPU, asker, zero_barrier);
		others_wait(ZI_OFFLOAD_NVME, asker, zero_barrier);
		others_wait(ZI_OFFLOAD_CPU, asker, zero_step_begin);
		others_wait(ZI_OFFLOAD_NVME, asker, zero_step_begin);
	}
}

/* Its node's ranks have left; those that are there keep it all the same, as do theirs. */
Test(across_keep, nodes_whose_ranks_have_left_keep_it_too)
{
	for (uint32_t asker = 0; asker < 2; asker++) {
		begin_kept("01", asker ? ZI_OFFLOAD_CPU : ZI_OFFLOAD_NVME, ZI_STRATEGY_ZERO1, 9);
		steps(1, 2);
		actor_leave(&ranks.actors[!asker], true);
		for (uint32_t i = 0; i < 50; i++)
			nodes_turn();
		ask_at(asker, "last");
		cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
		cr_assert_eq(kept.op.kept_count, 2);
		cr_assert_eq(all_keep("last"), 2);
		train_leave(true);
		/* Nobody talks any more: each keeps its own, and says so. */
		ask_at(0, "alone");
		cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
		cr_assert_eq(kept.op.node_count, 2);
		cr_assert_eq(kept.op.kept_count, 1);
		cr_assert_null(kept_at(1, "alone"));
		end_train();
	}
}

/* ---- one that cannot ---- */

static struct tier_account *account_at(uint32_t place)
{
	return zero_account(net.nodes[place].zero, node_job(&net.nodes[place], "train")->uid);
}

static void without_quota(uint32_t offload, uint32_t place)
{
	char name[32];
	uint64_t limit;

	begin_kept("012", offload, ZI_STRATEGY_ZERO1, 3);
	steps(1, 1);
	nodes_settle();
	limit = account_at(place)->limit_bytes[TIER_NVME];
	account_at(place)->limit_bytes[TIER_NVME] = account_at(place)->used_bytes[TIER_NVME] + 4096;
	for (uint32_t i = 0; i < 3; i++) {
		ask_at(i, "one");
		cr_assert_eq(wait_kept(), -EDQUOT, "%d", kept.op.result);
		(void)snprintf(name, sizeof(name), "node %u cannot keep it", place);
		cr_assert_not_null(strstr(kept.op.text.chars, name), "%s", kept.op.text.chars);
		cr_assert_not_null(strstr(kept.op.text.chars, "iB"), "%s", kept.op.text.chars);
		none_keeps("one");
	}
	steps(2, 2);
	account_at(place)->limit_bytes[TIER_NVME] = limit;
	ask_at(1, "one");
	cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
	nodes_settle();
	cr_assert_eq(all_keep("one"), 2);
	end_train();
}

Test(across_keep, what_one_cannot_keep_none_keeps)
{
	without_quota(ZI_OFFLOAD_NVME, 2);
	without_quota(ZI_OFFLOAD_CPU, 1);
	without_quota(ZI_OFFLOAD_NVME, 0);
}

/* Another snapshot of that name on one node; what is of the very same commit is made whole. */
Test(across_keep, a_name_that_one_has_is_that_of_all_or_refused)
{
	begin_kept("01", ZI_OFFLOAD_NVME, ZI_STRATEGY_ZERO1, 3);
	steps(1, 1);
	ask_at(0, "one");
	cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
	nodes_settle();
	memset(&kept, 0, sizeof(kept));
	cr_assert_eq(kept_call(&net.nodes[1], &kept, zero_snapshot_remove, "train", "one"), 0);
	ask_at(1, "one");
	cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
	nodes_settle();
	cr_assert_eq(all_keep("one"), 1);
	memset(&kept, 0, sizeof(kept));
	cr_assert_eq(kept_call(&net.nodes[1], &kept, zero_snapshot_remove, "train", "one"), 0);
	steps(2, 2);
	ask_at(1, "one");
	cr_assert_eq(wait_kept(), -EEXIST);
	cr_assert_not_null(strstr(kept.op.text.chars, "node 0 cannot keep it"), "%s",
	                   kept.op.text.chars);
	nodes_settle();
	cr_assert_null(kept_at(1, "one"));
	cr_assert_eq(kept_at(0, "one")->record->step, 1);
	end_train();
}

/* ---- nodes that are lost ---- */

/* Whoever asked hears something, unless it was lost itself; what all have is of one commit; the job
 * goes on, and a snapshot of its next step is made. */
static void lost_meanwhile(uint32_t offload, uint64_t seed)
{
	enum loss loss = (enum loss)(seed % _LOSS_COUNT);
	bool is_nvme = offload == ZI_OFFLOAD_NVME;
	uint32_t asker, place, turns;
	int64_t step;

	/* State in memory alone goes with its daemon. */
	if (!is_nvme && loss == LOSS_DAEMON)
		loss = LOSS_WORKER;
	begin_kept("012", offload, strategy_of(seed), seed);
	steps(1, 2);
	asker = net_draw(3);
	place = (asker + 1 + net_draw(2)) % 3;
	ask_at(asker, "torn");
	for (turns = net_draw(40); turns; turns--)
		nodes_turn();
	lose(loss, place);
	(void)wait_kept();
	if (!kept.op.result && loss != LOSS_DAEMON)
		cr_assert_eq(all_keep("torn"), 2);
	all_go();
	nodes_settle();
	cr_assert(!kept.op.result || kept.op.text.chars[0]);
	if (!kept.op.result)
		cr_assert_eq(all_keep("torn"), 2);
	for (uint32_t i = 0; i < 3; i++) {
		node_check_space(&net.nodes[i]);
		cr_assert(!kept_at(i, "torn") || kept_at(i, "torn")->record->step == 2);
	}
	cr_assert_eq(train_come(), 0, "%s", ranks.actors[0].text.chars);
	step = train_committed();
	cr_assert_eq(step, 2);
	train_plain(step);
	steps(3, 3);
	ask_at(place, "three");
	cr_assert_eq(wait_kept(), 0, "%s", kept.op.text.chars);
	nodes_settle();
	cr_assert_eq(all_keep("three"), 3);
	end_train();
}

Test(across_keep, nodes_that_are_lost_meanwhile_tear_nothing)
{
	each_draw(seed, 16)
		lost_meanwhile(seed % 4 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_CPU, seed);
}

/* ---- nodes that say what cannot be ---- */

static struct talk_entry word(uint32_t what, uint64_t id, const char *name)
{
	struct keep_words words;
	struct talk_entry entry = keep_entry(what, id);

	if (!name)
		return entry;
	memset(&words, 0, sizeof(words));
	memset(words.name, 'x', sizeof(words.name)); /* Without an end. */
	if (strlen(name) < sizeof(words.name))
		memcpy(words.name, name, strlen(name) + 1);
	keep_put_words(&entry, &words);
	return entry;
}

static const char unended[] =
	"........................................................................";

/* The group ends by name; no daemon does, and nothing is kept. */
Test(across_keep, words_that_cannot_be_end_the_talk)
{
	const uint64_t mine = 2ull << 32 | 7; /* node 1's */
	const struct {
		uint32_t from;
		struct talk_entry entry;
	} bad[] = {
		{ 1, word(KEEP_ASK, mine, NULL) },      { 1, word(KEEP_ASK, mine, "../a") },
		{ 1, word(KEEP_ASK, mine, unended) },   { 1, word(KEEP_ASK, 7, "a") },
		{ 0, word(KEEP_ASK, 1ull << 32, "a") }, { 1, word(KEEP_TAKE, mine, "a") },
		{ 0, word(KEEP_TAKE, mine, "") },       { 0, word(KEEP_TAKE, mine, unended) },
		{ 1, word(KEEP_TOLD, mine, NULL) },     { 0, word(KEEP_TOLD, mine, NULL) },
		{ 0, word(KEEP_OVER, mine, NULL) },     { 1, word(KEEP_OVER, mine, NULL) },
		{ 1, word(KEEP_HEARD, mine, NULL) },    { 0, word(KEEP_HEARD, mine, NULL) },
		{ 0, word(KEEP_ANSWER, mine, NULL) },   { 1, word(KEEP_ANSWER, mine, NULL) },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		begin_kept("01", ZI_OFFLOAD_NVME, ZI_STRATEGY_ZERO1, i + 1);
		nodes_say(bad[i].from, !bad[i].from, bad[i].entry);
		all_hear(-EPROTO, "snapshot");
		train_leave(false);
		none_keeps("a");
		end_train();
	}
}

/* Of a commit that this node does not have: refused here, and so by all. */
Test(across_keep, a_commit_that_a_node_has_not_is_not_kept)
{
	struct talk_entry entry;
	struct keep_words words;

	begin_kept("01", ZI_OFFLOAD_NVME, ZI_STRATEGY_ZERO1, 3);
	entry = word(KEEP_TAKE, 1ull << 32 | 1, "a");
	memcpy(&words, entry.data, sizeof(words));
	words.number = 4711;
	keep_put_words(&entry, &words);
	nodes_say(0, 1, entry);
	all_hear(-EPROTO, "sent an invalid snapshot message"); /* Node 0 has begun none. */
	train_leave(false);
	none_keeps("a");
	end_train();
}
