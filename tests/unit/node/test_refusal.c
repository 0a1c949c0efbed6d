/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a call that one member refuses, or that differs between members, ends at once for all of
 * them with words that name who and what, and the group goes on; one that does not come, a verdict
 * and a peer whose board is damaged end the group, also at once or by the deadline.
 * Method: threads as ranks (world.h); every case is followed by a call that is right.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#include "common/wire/verdict.h"
#include "libclient/coll/node/call.h"
#include "tests/unit/node/past.h"
#include "tests/unit/node/world.h"

#define RANKS 3u

/* What each rank calls; the rest is as in base_call(). */
struct scene {
	void (*spoil)(struct rank *rank, struct zi_node_call *call);
	int error;
	const char *words[RANKS]; /* a part of what each is told */
	const char *also;         /* another part, or NULL */
};

static uint64_t counts[RANKS] = { 1000, 1000, 1000 };

static struct zi_node_call base_call(struct rank *rank)
{
	return (struct zi_node_call){ .operation = ZI_COLL_ALL_REDUCE,
		                      .dtype = ZI_DTYPE_F32,
		                      .reduce_op = ZI_REDUCE_SUM,
		                      .element_count = 5000,
		                      .source = rank->number == 1 ? rank->outside[0]
		                                                  : rank->inside[0],
		                      .target = rank->inside[1],
		                      .source_counts = counts,
		                      .target_counts = counts,
		                      .deadline_ns = ZI_DEADLINE_NEVER };
}

static void spoil_operation(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 2)
		*call = (struct zi_node_call){ .operation = ZI_COLL_BARRIER,
			                       .deadline_ns = ZI_DEADLINE_NEVER };
}

static void spoil_count(struct rank *rank, struct zi_node_call *call)
{
	call->operation = ZI_COLL_BROADCAST;
	call->element_count += rank->number == 0;
}

static void spoil_root(struct rank *rank, struct zi_node_call *call)
{
	call->operation = ZI_COLL_GATHER;
	call->element_count = 2000; /* a small one is ahead: test_ahead.c */
	call->root = rank->number / 2;
}

static void spoil_dtype(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 1)
		call->dtype = ZI_DTYPE_I32;
}

/* Nobody's is most members': the first is as good as any. */
static void spoil_all(struct rank *rank, struct zi_node_call *call)
{
	call->operation = ZI_COLL_REDUCE_SCATTER;
	call->element_count = 100 + rank->number;
}

static void spoil_average(struct rank *rank, struct zi_node_call *call)
{
	call->dtype = ZI_DTYPE_I32;
	if (rank->number == 1)
		call->reduce_op = ZI_REDUCE_AVG;
}

static void spoil_bits(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 0)
		call->reduce_op = ZI_REDUCE_BXOR;
}

static void spoil_alignment(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 2)
		call->source = (const char *)call->source + 2;
}

static void spoil_overlap(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 0)
		call->target = (char *)call->source + 4;
}

static void spoil_block(struct rank *rank, struct zi_node_call *call)
{
	call->operation = ZI_COLL_REDUCE_SCATTER;
	call->element_count = 1000;
	if (rank->number == 1) /* a block, but not its own */
		call->target = (char *)call->source;
}

static void spoil_size(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 1)
		call->element_count = UINT64_MAX / 8;
}

static void spoil_pointer(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 1)
		call->target = NULL;
}

static void spoil_kind(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 1)
		call->dtype = 77;
}

static void spoil_member(struct rank *rank, struct zi_node_call *call)
{
	call->operation = ZI_COLL_BROADCAST;
	if (rank->number == 1)
		call->root = 3;
}

static void spoil_by_caller(struct rank *rank, struct zi_node_call *call)
{
	if (rank->number == 1) {
		call->refused = -EACCES;
		call->reason = "the target is not writable";
	}
}

static void spoil_counts(struct rank *rank, struct zi_node_call *call)
{
	static uint64_t others[RANKS] = { 1000, 999, 1000 };

	call->operation = ZI_COLL_ALL_TO_ALLV;
	if (rank->number == 2)
		call->target_counts = others;
}

static void spoil_sum(struct rank *rank, struct zi_node_call *call)
{
	static uint64_t many[RANKS] = { UINT64_MAX / 2, UINT64_MAX / 2, 2 };

	call->operation = ZI_COLL_ALL_TO_ALLV;
	if (rank->number == 0)
		call->source_counts = many;
}

/* Both calls are named to each; who is the odd one is, to those who see it (test_differ.c). */
#define ALIKE(words)                 \
	{                            \
		words, words, words, \
	}

static const struct scene scenes[] = {
	{ spoil_operation, -EINVAL, ALIKE("barrier"), "all_reduce of 5000 × f32 (sum)" },
	{ spoil_count, -EINVAL, ALIKE("broadcast of 5001 × f32, root 0"),
	  "broadcast of 5000 × f32, root 0" },
	{ spoil_root, -EINVAL, ALIKE("member 2 calls gather of 2000 × f32, root 1"),
	  "gather of 2000 × f32, root 0" },
	{ spoil_dtype, -EINVAL, ALIKE("all_reduce of 5000 × i32 (sum)"),
	  "all_reduce of 5000 × f32 (sum)" },
	{ spoil_all, -EINVAL, ALIKE("calls reduce_scatter of 10"), NULL },
	{ spoil_average,
	  -EINVAL,
	  { "member 1 refuses it: all_reduce: there is no avg of i32, which is an integer",
	    "all_reduce: there is no avg of i32", "member 1 refuses it: all_reduce: there is no" },
	  NULL },
	{ spoil_bits,
	  -EINVAL,
	  { "there is no bxor of f32", "member 0 refuses", "member 0" },
	  NULL },
	{ spoil_alignment,
	  -EINVAL,
	  { "member 2 refuses it: all_reduce: the source at",
	    "is not aligned to the 4 bytes of f32", "is not aligned to the 4 bytes" },
	  NULL },
	{ spoil_overlap,
	  -EINVAL,
	  { "overlap otherwise than in place", "member 0 refuses", "member 0 refuses" },
	  NULL },
	{ spoil_block,
	  -EINVAL,
	  { "member 1 refuses", "overlap otherwise", "overlap otherwise" },
	  NULL },
	{ spoil_size, -EOVERFLOW, { "member 1 refuses", "overflows 64 bits", "overflows" }, NULL },
	{ spoil_pointer,
	  -EINVAL,
	  { "member 1 refuses", "no target, of 20000 bytes", "no target, of 20000 bytes" },
	  NULL },
	{ spoil_kind,
	  -EINVAL,
	  { "dtype 77 does not exist", "dtype 77 does not exist", "member 1 refuses" },
	  NULL },
	{ spoil_member,
	  -EINVAL,
	  { "root 3 of a group of 3 members", "root 3 of a group of 3", "member 1 refuses" },
	  NULL },
	{ spoil_by_caller,
	  -EACCES,
	  { "member 1 refuses it: the target is not writable", "the target is not writable",
	    "member 1 refuses it: the target is not writable" },
	  NULL },
	{ spoil_counts, -EINVAL, ALIKE("member 1 sends 1000 elements to member 2, which takes 999"),
	  NULL },
	{ spoil_sum,
	  -EOVERFLOW,
	  { "overflows 64 bits", "member 0 refuses", "member 0 refuses" },
	  NULL },
};

/* Every scene, several times without a pause, then a sum that is right. */
static void *play(void *arg)
{
	struct rank *rank = arg;

	for (uint32_t i = 0; i < 3 * ZI_COUNT_OF(scenes) && rank->failed_call < 0; i++) {
		const struct scene *scene = &scenes[i / 3];
		struct zi_node_call call = base_call(rank);

		scene->spoil(rank, &call);
		rank->result = zi_node_call(&rank->group, &call, &rank->text);
		if (rank->result != scene->error ||
		    !strstr(rank->text.chars, scene->words[rank->number]) || rank->group.over ||
		    (scene->also && !strstr(rank->text.chars, scene->also))) {
			rank->failed_call = (int)i;
			break;
		}
		if (i % 3 == 1)
			continue;
		for (uint32_t k = 0; k < 5000; k++) {
			((float *)rank->inside[0])[k] = 1.0f;
			((float *)rank->outside[0])[k] = 1.0f;
		}
		call = base_call(rank);
		rank->result = zi_node_call(&rank->group, &call, &rank->text);
		if (rank->result || ((const float *)rank->inside[1])[4999] != (float)RANKS)
			rank->failed_call = (int)i;
	}
	if (rank->failed_call >= 0)
		zi_line_store(&rank->world->verdict, EPIPE);
	return NULL;
}

static void world_of(struct world *world, struct rank *ranks)
{
	world_init(world, RANKS, 1);
	for (uint32_t i = 0; i < RANKS; i++)
		rank_init(&ranks[i], world, i);
}

static void world_end(struct world *world, struct rank *ranks)
{
	for (uint32_t i = 0; i < RANKS; i++)
		rank_deinit(&ranks[i]);
	world_deinit(world);
}

/* @past: tests/unit/node/past.h; 0: none. */
static void play_after(uint32_t past)
{
	struct rank ranks[RANKS];
	struct world world;

	world_of(&world, ranks);
	for (uint32_t i = 0; i < RANKS && past; i++)
		past_of(&ranks[i].group, past);
	world_run(ranks, play);
	for (uint32_t i = 0; i < RANKS; i++)
		cr_assert(ranks[i].failed_call < 0 || ranks[i].result == -EPIPE,
		          "scene %d, rank %u: %d %s", ranks[i].failed_call / 3, i, ranks[i].result,
		          ranks[i].text.chars);
	for (uint32_t i = 0; i < RANKS; i++)
		cr_assert_eq(ranks[i].failed_call, -1);
	world_end(&world, ranks);
}

Test(refusal, all_members_are_told_at_once_and_the_group_goes_on)
{
	play_after(0);
	play_after(PAST_HALF - (uint32_t)ZI_COUNT_OF(scenes));
	play_after(PAST_ALL - (uint32_t)ZI_COUNT_OF(scenes));
}

/* ---- who does not come ---- */

static void *come_late(void *arg)
{
	struct rank *rank = arg;
	struct zi_node_call call = base_call(rank);

	if (rank->number == 1)
		return NULL;
	call.deadline_ns = zi_clock_deadline_ns(20 * ZI_NS_PER_MS);
	rank->result = zi_node_call(&rank->group, &call, &rank->text);
	return NULL;
}

Test(refusal, who_does_not_come_is_named_and_the_group_is_over)
{
	struct rank ranks[RANKS];
	struct world world;
	struct zi_node_call call;

	world_of(&world, ranks);
	world_run(ranks, come_late);
	for (uint32_t i = 0; i < RANKS; i += 2) {
		cr_assert_eq(ranks[i].result, -ETIMEDOUT, "%d", ranks[i].result);
		cr_assert_str_eq(ranks[i].text.chars,
		                 "call 1, all_reduce of 5000 × f32 (sum): member 1 did not come "
		                 "in time");
		cr_assert_eq(ranks[i].group.culprit, 1);
		call = base_call(&ranks[i]);
		cr_assert_eq(zi_node_call(&ranks[i].group, &call, &ranks[i].text), -ETIMEDOUT);
		cr_assert_str_eq(ranks[i].text.chars,
		                 "group 0 is broken (ETIMEDOUT): make another one");
	}
	world_end(&world, ranks);
}

/* The last rank gives the verdict, once the others wait and maybe sleep. */
static void *break_it(void *arg)
{
	struct rank *rank = arg;
	struct zi_node_call call = base_call(rank);

	if (rank->number == 1) {
		/* A daemon's part: it sees in the posts that they have come. */
		while (!zi_meet_has_come(&rank->world->board[0].posts[1].sequence, 1) ||
		       !zi_meet_has_come(&rank->world->board[2].posts[1].sequence, 1))
			(void)sched_yield();
		zi_verdict_give(&rank->world->verdict, EPIPE);
		return NULL;
	}
	rank->result = zi_node_call(&rank->group, &call, &rank->text);
	return NULL;
}

Test(refusal, a_verdict_ends_what_waits)
{
	struct rank ranks[RANKS];
	struct world world;

	world_of(&world, ranks);
	world_run(ranks, break_it);
	for (uint32_t i = 0; i < RANKS; i += 2) {
		cr_assert_eq(ranks[i].result, -EPIPE);
		cr_assert_str_eq(ranks[i].text.chars, "group 0 is broken (EPIPE)");
		cr_assert_eq(ranks[i].group.culprit, ZI_NODE_NOBODY);
	}
	world_end(&world, ranks);
}

/* ---- boards with anything in them ---- */

/* Member 0 calls, the parts of the others are random but for the number of the call, so that they
 * seem to have come; then, nearly what it calls, with places of its own choice. */
Test(refusal, a_damaged_board_is_an_error_and_nothing_else)
{
	struct rank ranks[RANKS];
	struct world world;
	uint64_t state = 4711;

	for (uint32_t round = 0; round < 2000; round++) {
		struct zi_board_member *others;
		struct zi_node_call call;
		int r;

		world_of(&world, ranks);
		others = &world.board[1];
		for (uint32_t i = 0; i < 2 * sizeof(*others) / 8; i++)
			((uint64_t *)others)[i] = data_random(&state);
		call = base_call(&ranks[0]);
		call.operation = 1 + round % ZI_COLL_ALL_TO_ALLV;
		call.element_count = round % 3 ? 3000 : 10;
		call.deadline_ns = 0;
		for (uint32_t i = 0; i < 2; i++) {
			struct zi_board_post *post = &others[i].posts[1];

			post->sequence = 1;
			others[i].sleeping.value = 0;
			if (round % 2 == 0)
				continue;
			post->call.operation = (uint8_t)call.operation;
			post->call.dtype = ZI_DTYPE_F32;
			post->call.reduce_op =
				round % 10 >= 1 && round % 10 <= 3 ? ZI_REDUCE_SUM : 0;
			post->call.root = 0;
			post->call.flags = 0;
			post->call.element_count =
				call.operation == ZI_COLL_ALL_TO_ALLV ? 0 : call.element_count;
			post->payload_bytes = call.operation == ZI_COLL_ALL_TO_ALLV ? 48 : 0;
			if (data_random(&state) % 2)
				post->call.source = ZI_BOARD_NOWHERE;
			if (data_random(&state) % 2)
				post->call.target = ZI_BOARD_NOWHERE;
			if (data_random(&state) % 2)
				post->staging %= 2 * WORLD_ARENA_BYTES;
		}
		r = zi_node_call(&ranks[0].group, &call, &ranks[0].text);
		cr_assert(r == 0 || r == -EINVAL || r == -EPROTO || r == -EFAULT ||
		                  r == -EOVERFLOW || r == -EACCES || r == -ETIMEDOUT,
		          "round %u: %d", round, r);
		cr_assert(!r || ranks[0].text.chars[0], "round %u: %d", round, r);
		world_end(&world, ranks);
	}
}

Test(refusal, a_damaged_pair_line_is_an_error_and_nothing_else)
{
	struct rank ranks[RANKS];
	struct world world;
	uint64_t state = 4712;
	uint32_t proto = 0;

	for (uint32_t round = 0; round < 1000; round++) {
		struct zi_node_p2p p2p = { .is_send = round % 2,
			                   .dtype = ZI_DTYPE_F32,
			                   .peer = 1,
			                   .element_count = 3000 };
		struct zi_board_send *send;
		int r;

		world_of(&world, ranks);
		for (uint32_t i = 0; i < sizeof(world.board[1]) / 8; i++)
			((uint64_t *)&world.board[1])[i] = data_random(&state);
		world.board[1].sleeping.value = 0;
		send = &world.board[1].sends[0];
		send->sequence = 1;
		if (round % 4 == 0) {
			send->dtype = ZI_DTYPE_F32;
			send->element_count = 3000;
			if (round % 8 == 0)
				send->source = ZI_BOARD_NOWHERE;
		}
		p2p.buffer = ranks[0].outside[0];
		r = zi_node_batch(&ranks[0].group, &p2p, 1, 0, &ranks[0].text);
		cr_assert(r == 0 || r == -EINVAL || r == -EPROTO || r == -ETIMEDOUT, "round %u: %d",
		          round, r);
		proto += r == -EPROTO;
		cr_assert(r != -EPROTO || ranks[0].group.culprit == 1);
		world_end(&world, ranks);
	}
	cr_assert_gt(proto, 100);
}

/* Of three members, in one thread: 1 has posted counts that 0 does not expect, which are what it
 * expects by the time that 2 has come. Where places would lie was reckoned from the former. */
Test(refusal, counts_that_change_after_they_were_posted_are_noticed)
{
	struct zi_meet_wants wants = { .count = 0 };
	struct rank ranks[RANKS];
	struct world world;
	uint64_t *posted;

	world_of(&world, ranks);
	for (uint32_t i = 0; i < RANKS; i++) {
		struct zi_node_call call = base_call(&ranks[i]);

		call.operation = ZI_COLL_ALL_TO_ALLV;
		call.source = ranks[i].inside[0];
		zi_node_begin(&ranks[i].group, &call);
	}
	cr_assert_eq(zi_node_poll(&ranks[1].group, &wants, &ranks[1].text), ZI_NODE_E_WAITS);
	posted = (uint64_t *)world.board[1].inlined[1];
	posted[0] = counts[0] / 2;
	cr_assert_eq(zi_node_poll(&ranks[0].group, &wants, &ranks[0].text), ZI_NODE_E_WAITS);
	posted[0] = counts[0];
	cr_assert_eq(zi_node_poll(&ranks[2].group, &wants, &ranks[2].text), ZI_NODE_E_WAITS);
	cr_assert_eq(zi_node_poll(&ranks[0].group, &wants, &ranks[0].text), -EPROTO);
	cr_assert_not_null(strstr(ranks[0].text.chars, "counts changed"), "%s",
	                   ranks[0].text.chars);
	world_end(&world, ranks);
}
