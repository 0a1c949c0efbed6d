/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a node that lies about its commits, gives other bytes than it should, or asks for what is
 * not to be given, costs its job's start and nothing else: each lie is told by name, and the next
 * start goes on with all bits. So do starts in which a write or a catalog fails, or that are
 * interrupted again and again. Method: as in test_across_heal.c, with a network that changes what
 * comes from node 1 to node 0, and disks that fail.
 */
#include "daemon/zero/across/agree/heal_private.h"
#include "daemon/zero/across/agree/names.h"
#include "tests/unit/catalog/fault_vfs.h"
#include "tests/unit/zero/moved.h"

TestSuite(across_heal_bad, .timeout = 600);

/* Step 1 of a job on two nodes that has to be healed at its next start, which has one more. */
static void begin_moving(uint64_t seed)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_train(&what, seed);
	steps(1, 1);
	train_leave(true);
	move_to("01", ZI_STRATEGY_DDP, 0);
}

/* The start fails, by @error and @words at node 0. */
static void come_in_vain(int error, const char *words)
{
	const struct zero_op *op = &ranks.actors[0].calls[0].op;

	cr_assert_neq(train_come(), 0);
	cr_expect(op->result == error && strstr(op->text.chars, words), "%d: %s", op->result,
	          op->text.chars);
	net.spoil = NULL;
	net.holds = NULL;
}

/* … and nothing has changed. */
static void fails(int error, const char *words)
{
	come_in_vain(error, words);
	train_leave(false);
	nodes_settle();
	cr_expect_eq(job_at(0)->committed_step, 1);
}

static void goes_on(void)
{
	gone_on(1, 2);
	steps(2, 2);
	train_leave(true);
	check_all_held();
	train_deinit();
}

/* ---- names ---- */

static struct commit_offers said;
static uint32_t said_count;

static bool is_resume(const struct talk_entry *entry)
{
	return entry->kind == TALK_ROUND && entry->what == ROUND_RESUME;
}

/* It has said so to itself, too: it would go on with what is true, and end the start first by
 * being elsewhere. So its round is not complete (holds_names()) before node 0 has heard it. */
static void spoil_names(struct net_worker *worker, uint32_t from, struct talk_entry *entry)
{
	struct rounds *mine = &job_at(1)->across->rounds;

	if (worker->place != 0 || from != 1 || !is_resume(entry))
		return;
	memcpy(entry->data, &said, sizeof(said));
	for (uint32_t i = 0; i < ROUND_RING; i++)
		if (mine->ring[i].kind == ROUND_RESUME)
			memcpy(mine->ring[i].votes[1].data, &said, sizeof(said));
	said_count++;
}

static bool holds_names(struct net_worker *worker, uint32_t from, const struct talk_entry *entry)
{
	return worker->place == 1 && from == 0 && is_resume(entry) && !said_count;
}

static void say(const struct commit_offers *lie)
{
	said = *lie;
	said_count = 0;
	net.spoil = spoil_names;
	net.holds = holds_names;
}

static void lies_about_names(const struct commit_offers *lie, uint64_t seed, const char *words)
{
	begin_moving(seed);
	say(lie);
	fails(-EPROTO, words);
	cr_assert_gt(said_count, 0);
	goes_on();
}

Test(across_heal_bad, names_that_cannot_be_end_the_start)
{
	static const struct commit_offers bad[] = {
		{ .count = 0 },
		{ .count = 1, .names = { { .number = UINT64_MAX, .step = 1 } } },
		{ .count = 1, .names = { { .number = 3, .step = -2 } } },
		{ .count = 1, .names = { { .number = 3, .step = INT64_MAX } } },
		{ .count = 2, .names = { { .step = 1 }, { .step = INT64_MIN } } },
		{ .count = 1, .names = { { .step = 1 } }, .doubt = { .number = 1ull << 63 } },
		{ .count = 1, .names = { { .step = 1 } }, .offered = 1u << 7 },
		{ .count = 1, .names = { { .step = 1 } }, .offered = 2 },
		{ .count = 1, .names = { { .step = -1 } }, .offered = 1 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++)
		lies_about_names(&bad[i], i + 1, "node 1 sent an invalid list of commits");
}

/* A job that is new everywhere, of which a node says that it has a commit, and offers none. */
Test(across_heal_bad, a_commit_that_nobody_offers_is_refused)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	train_init(&what, 3);
	say(&(struct commit_offers){ .count = 1,
	                             .names = { { .number = 5, .line = 7, .step = 3 } } });
	come_in_vain(-EPROTO, "no node reported its data of them");
	train_leave(false);
	train_deinit();
}

/* A node that is in doubt at each question: it is settled once. */
Test(across_heal_bad, a_second_doubt_ends_the_start)
{
	begin_moving(4);
	say(&(struct commit_offers){ .count = 1,
	                             .names = { { .number = 1, .step = 1 } },
	                             .doubt = { .number = 2, .line = 9, .step = 2 },
	                             .is_in_doubt = 1 });
	cr_assert_neq(train_come(), 0);
	net.spoil = NULL;
	net.holds = NULL;
	train_leave(false);
	cr_expect_geq(said_count, 1);
	cr_expect_eq(job_at(0)->committed_step, 1);
	goes_on();
}

/* ---- offers ---- */

static struct {
	uint32_t at, bytes;
	uint64_t value;
	uint32_t count;
} patch;

/* What node 0 has pulled of node 1's offers, of as many bytes as these have. */
static void spoil_offer(struct net_worker *worker, uint32_t from, struct talk_entry *entry)
{
	const struct zero_job *job = job_at(0);
	const struct heal *heal = job && job->across ? job->across->heal : NULL;

	(void)from;
	if (worker->place != 0 || entry->kind != TALK_CAME || !heal ||
	    !pieces_are_active(&heal->offers.pieces) || heal->offers.pieces.at_bytes)
		return;
	if (patch.bytes > sizeof(patch.value))
		memset(worker->slab + entry->offset_bytes + patch.at, 0, patch.bytes);
	else
		memcpy(worker->slab + entry->offset_bytes + patch.at, &patch.value, patch.bytes);
	patch.count++;
}

#define PATCH(field, wrong)                                                                 \
	{                                                                                   \
		offsetof(struct offer, field), sizeof(((struct offer *)NULL)->field), wrong \
	}

static void lies_about_offers(uint32_t at, uint32_t bytes, uint64_t value, uint64_t seed, int error,
                              const char *words)
{
	begin_moving(seed);
	patch.at = at;
	patch.bytes = bytes;
	patch.value = value;
	patch.count = 0;
	net.spoil = spoil_offer;
	fails(error, words);
	cr_assert_gt(patch.count, 0);
	goes_on();
}

Test(across_heal_bad, offers_that_cannot_be_end_the_start)
{
	static const struct {
		uint32_t at, bytes;
		uint64_t value;
	} bad[] = {
		PATCH(word_count, 0),
		PATCH(word_count, UINT32_MAX),
		PATCH(reserved, 1),
		PATCH(step, UINT64_MAX),
		PATCH(step, 1ull << 63),
		PATCH(step, INT64_MAX),
		PATCH(update_count, UINT64_MAX),
		PATCH(beta1_power, 0x7ff8000000000000), /* no number */
		PATCH(beta2_power, 0xfff0000000000000), /* -inf */
		PATCH(world, 0),
		PATCH(world, ZI_WORLD_MAX + 1),
		PATCH(scaler_bytes, UINT32_MAX),
		PATCH(placement.strategy, 99),
		PATCH(placement.node_count, SUBTREE_NODES_MAX + 1),
		PATCH(blob_bytes[0], ZI_BLOB_BYTES + 1),
		PATCH(blob_bytes[63], 1),
		{ offsetof(struct offer, words), 8, 0 },      /* state of what it does not hold */
		{ offsetof(struct offer, words) + 16, 8, 0 }, /* without its parameters */
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++)
		lies_about_offers(bad[i].at, bad[i].bytes, bad[i].value, i + 1, -EPROTO,
		                  "node 1 sent an invalid commit");
	lies_about_offers(offsetof(struct offer, number), 8, 77, 31, -EPROTO,
	                  "node 1 offers commit 77, and voted none");
}

/* Two nodes that say different things of one commit. */
Test(across_heal_bad, a_commit_of_two_kinds_is_refused)
{
	lies_about_offers(offsetof(struct offer, step), 8, 9, 1, -EINVAL, "disagree about commit");
	lies_about_offers(offsetof(struct offer, update_count), 8, 9, 2, -EINVAL,
	                  "disagree about commit");
	lies_about_offers(offsetof(struct offer, world), 4, 3, 3, -EINVAL, "disagree about commit");
}

/* What nobody has, when one forgets what it has. */
Test(across_heal_bad, a_node_that_has_nothing_of_it_makes_it_missing)
{
	lies_about_offers(offsetof(struct offer, words), OFFER_BITS * 8, 0, 1, -ENODATA,
	                  "start that node too");
}

/* ---- bytes ---- */

static bool is_healing(uint32_t place)
{
	const struct zero_job *job = job_at(place);

	return job && job->heal && job->heal->memory;
}

static void spoil_bytes(struct net_worker *worker, uint32_t from, struct talk_entry *entry)
{
	uint64_t *at = (uint64_t *)(worker->slab + entry->offset_bytes);

	(void)from;
	if (worker->place != 0 || entry->kind != TALK_CAME || !is_healing(0) || entry->bytes < 8192)
		return;
	at[patch.at] ^= patch.value;
	patch.count++;
}

static void gives_other_bytes(uint32_t at, uint64_t value, uint64_t seed, int error,
                              const char *words)
{
	begin_moving(seed);
	patch.at = at;
	patch.value = value;
	patch.count = 0;
	net.spoil = spoil_bytes;
	fails(error, words);
	cr_assert_gt(patch.count, 0);
	goes_on();
}

Test(across_heal_bad, other_bytes_are_not_taken)
{
	gives_other_bytes(0, 1ull << 63, 1, -EPROTO, "which was not there at step 1");
	gives_other_bytes(0, 6, 2, -EPROTO, "which was not there at step 1");
	gives_other_bytes(1, 1, 3, -EBADMSG, "came damaged from node 1"); /* a checksum */
	gives_other_bytes(600, 1, 4, -EBADMSG, "came damaged from node 1");
}

/* ---- what others ask for ---- */

/* What node 1 would ask of node 0. */
static void ask(struct talk_entry entry)
{
	entry.kind = TALK_PULL;
	entry.tag = 1ull << 50;
	nodes_say(1, 0, entry);
}

static void come_until_healing(void)
{
	train_come_start();
	while (!is_healing(0))
		nodes_turn();
}

static void interrupted(void)
{
	for (uint32_t i = 0; i < ranks.world; i++)
		cr_expect_neq(nodes_wait(&ranks.actors[i], 0), 0);
	train_leave(false);
	nodes_settle();
}

Test(across_heal_bad, nothing_is_given_but_what_was_offered)
{
	static const struct talk_entry bad[] = {
		{ .what = PULL_HEAL, .unit = UNITS, .bytes = 4096 },
		{ .what = PULL_HEAL, .unit = UINT32_MAX, .bytes = 4096 },
		{ .what = PULL_HEAL, .unit = 1, .subgroup = 99, .bytes = 4096 },
		{ .what = PULL_HEAL, .unit = 1, .subgroup = UINT32_MAX, .bytes = 4096 },
		{ .what = PULL_HEAL, .unit = 1, .piece = UINT32_MAX, .bytes = 4096 },
		{ .what = PULL_HEAL, .unit = 0, .bytes = 1 },
		{ .what = PULL_HEAL, .unit = 0, .bytes = 1ull << 20 },
		{ .what = PULL_HEAL, .step = _HEAL_WHAT_COUNT, .bytes = 4096 },
		{ .what = PULL_HEAL, .step = -1, .bytes = 4096 },
		{ .what = PULL_HEAL, .step = INT64_MIN, .bytes = 4096 },
		{ .what = PULL_HEAL, .step = HEAL_BLOB, .unit = ZI_WORLD_MAX, .bytes = 6 },
		{ .what = PULL_HEAL, .step = HEAL_BLOB, .unit = 63, .bytes = 6 },
		{ .what = PULL_HEAL, .step = HEAL_BLOB, .unit = 0, .bytes = 65536 },
		{ .what = PULL_OFFER, .micro = OFFERS_MAX, .bytes = 4096 },
		{ .what = PULL_OFFER, .micro = 1, .bytes = 4096 }, /* it makes one alone */
		{ .what = PULL_OFFER, .piece = 1, .bytes = 4096 },
		{ .what = PULL_OFFER, .bytes = 4096 },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		begin_moving(i + 1);
		come_until_healing();
		ask(bad[i]);
		interrupted();
		cr_expect_not_null(
			strstr(ranks.actors[0].calls[0].op.text.chars, "node 1 asks for"),
			"%zu: %s", i, ranks.actors[0].calls[0].op.text.chars);
		goes_on();
	}
}

/* It is asked for when that is over: a node that has said that it has all. */
Test(across_heal_bad, nothing_is_given_when_all_have_what_they_lacked)
{
	begin_moving(5);
	come_until_healing();
	while (is_healing(0))
		nodes_turn();
	ask((struct talk_entry){ .what = PULL_HEAL, .unit = 1, .bytes = 4096 });
	interrupted();
	cr_expect_not_null(strstr(ranks.actors[0].calls[0].op.text.chars, "node 1 asks for"), "%s",
	                   ranks.actors[0].calls[0].op.text.chars);
	goes_on();
}

/* ---- interrupted again and again, and disks that fail ---- */

Test(across_heal_bad, healing_that_is_interrupted_each_time_goes_on_at_last)
{
	for (uint64_t seed = 1; seed <= 3; seed++) {
		begin_moving(seed);
		for (uint32_t i = 0; i < 6; i++) {
			come_until_healing();
			for (uint32_t turns = 1u << i; turns; turns--)
				nodes_turn();
			lose((enum loss)((seed + i) % _LOSS_COUNT), i % 2);
			nodes_leave(&ranks, false);
			nodes_settle();
		}
		goes_on();
	}
}

/* The k-th write of the node that takes over. */
Test(across_heal_bad, a_write_that_fails_costs_that_start)
{
	static char backend[64];
	uint32_t failed = 0;

	for (uint32_t k = 1; k <= 3; k++) {
		struct node *node;

		begin_moving(k);
		node = &net.nodes[1];
		nodes_settle();
		node_stop(node);
		(void)snprintf(backend, sizeof(backend), "faulty:over=threads,write_eio_at=%u", k);
		node->backend = backend;
		node_start(node);
		if (train_come()) {
			failed++;
			cr_expect_not_null(strstr(ranks.actors[0].text.chars, "EIO"), "%s",
			                   ranks.actors[0].text.chars);
			train_leave(false);
			nodes_settle();
			cr_expect_eq(job_at(0)->committed_step, 1);
			cr_expect_eq(job_at(1)->committed_step, 1);
		} else {
			train_leave(true);
		}
		nodes_settle();
		node_stop(node);
		node->backend = "threads";
		node_start(node);
		goes_on();
	}
	cr_expect_gt(failed, 0);
}

/* The catalog of one of them does not take the commit that follows: the other one may have it. */
Test(across_heal_bad, a_catalog_that_fails_costs_that_start)
{
	fault_install();
	for (uint64_t seed = 1; seed <= 4; seed++) {
		begin_moving(seed);
		come_until_healing();
		fault.failed_count = 0;
		fail_next(OP_WRITE, true, SQLITE_IOERR_WRITE);
		interrupted();
		cr_assert_eq(fault.failed_count, 1);
		cr_expect_eq(job_at(0)->committed_step, 1);
		cr_expect_eq(job_at(1)->committed_step, 1);
		goes_on();
	}
}
