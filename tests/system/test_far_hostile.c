/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a rank writes into memory that it shares with zinf-net ends no worker, and makes nodes
 * of its job conclude nothing that others do not. Method: a rank posts a call that is none past the
 * library, and makes its node's card in the slab a good one for as long as it is looked at; threads
 * of a rank write over its post, and over the nodes' words in the slab, while it makes calls.
 */
#include <pthread.h>

#include "common/wire/frame.h"
#include "daemon/worker/net/follow_private.h"
#include "libclient/client.h"
#include "libclient/coll/collective.h"
#include "libclient/coll/node/far.h"
#include "tests/system/far.h"

TestSuite(far_hostile, .timeout = 120);

#define COUNT 100000u

/* Until the worker has answered, or the group is broken. */
static void post_none(struct far_rank *rank)
{
	struct zi_node_group *group = &rank->zinf->coll->groups[ZI_GROUP_WORLD]->node;
	const struct zi_far_group *far = group->far;
	uint64_t deadline_ns = zi_clock_deadline_ns(FAR_JOIN_MS / 2 * ZI_NS_PER_MS);
	uint32_t sequence = ++group->sequence;
	const struct zi_board_post *answer =
		zi_meet_post_of(&group->meet, far->shape.self_count, sequence);
	struct zi_board_call none = { .operation = ZI_COLL_ALL_REDUCE,
		                      .dtype = 200,
		                      .reduce_op = 77,
		                      .root = 1u << 31,
		                      .element_count = COUNT,
		                      .source = zi_clock_deadline_ns(2 * ZI_NS_PER_S) };
	struct follow_card good = { .sequence = sequence,
		                    .operation = ZI_COLL_ALL_REDUCE,
		                    .dtype = ZI_DTYPE_F32,
		                    .reduce_op = ZI_REDUCE_SUM,
		                    .element_count = COUNT };

	zi_meet_post(&group->meet, sequence, 0, &none, 0, NULL, 0);
	while (!zi_meet_has_come(&answer->sequence, sequence) &&
	       !zi_meet_load(&group->meet.verdict->value) && zi_clock_now_ns() < deadline_ns)
		memcpy(far->slab + zi_frame_at(&far->shape, sequence, far->shape.node), &good,
		       sizeof(good));
}

static int call_none(struct far_rank *rank)
{
	static float values[COUNT];
	int r = zinf_coll_barrier(rank->zinf, NULL);

	if (r)
		return far_fail(rank, r, 1);
	if (rank->rank == 0)
		post_none(rank);
	else if (!zinf_coll_all_reduce(rank->zinf, values, values, COUNT, ZINF_F32, ZINF_SUM, NULL))
		return 2;
	/* The group stands where the other node saw what was posted; else it has its deadline. */
	(void)far_note(rank, zinf_coll_barrier(rank->zinf, NULL));
	return 0;
}

Test(far_hostile, a_call_that_is_none_ends_no_worker)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 1);
	scene.timeout_ms = 3000;
	for (uint32_t i = 0; i < 4; i++) {
		far_run(&scene, call_none);
		for (uint32_t k = 0; k < 2; k++) {
			const struct far_report *report = &scene.shared->reports[k];

			cr_expect(!report->error || !strstr(report->text, "signal"), "rank %u: %s",
			          k, report->text);
		}
	}
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* It says of a message from rank 1 that it has emptied what has not come: before that one is sent,
 * as nobody looks at what is written later. */
static int empty_too_much(struct far_rank *rank)
{
	enum { LONG = 700001 };
	static int32_t values[LONG];
	struct zi_node_group *group = &rank->zinf->coll->groups[ZI_GROUP_WORLD]->node;
	int r;

	if (rank->rank == 0) {
		uint32_t line = group->far->mail.lines[1];

		__atomic_store_n(&group->meet.members[group->meet.self].takes[line].emptied, 5,
		                 __ATOMIC_RELEASE);
	}
	r = zinf_coll_barrier(rank->zinf, NULL);
	if (r)
		return far_fail(rank, r, 1);
	r = rank->rank == 0 ? zinf_coll_barrier(rank->zinf, NULL)
	                    : zinf_coll_send(rank->zinf, values, LONG, ZINF_I32, 0, NULL);
	(void)far_note(rank, r);
	return 0;
}

Test(far_hostile, a_message_of_which_too_much_is_emptied_ends_its_group)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 1);
	far_run(&scene, empty_too_much);
	for (uint32_t k = 0; k < 2; k++)
		cr_expect(strstr(scene.shared->reports[k].text,
		                 "what rank 0 says to have emptied has not come"),
		          "rank %u: %s", k, scene.shared->reports[k].text);
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

/* ---- while calls go on ---- */

#define ROUNDS 200u

struct vandal {
	struct far_rank *rank;
	void (*spoil)(struct far_rank *rank, uint32_t turn);
	uint32_t is_over;
};

static void *vandal_main(void *arg)
{
	struct vandal *vandal = arg;

	for (uint32_t turn = 0; !zi_meet_load(&vandal->is_over); turn++)
		vandal->spoil(vandal->rank, turn);
	return NULL;
}

/* Sums and an all_to_allv after another, each right; rank 0's other thread spoils what it can. */
static int call_beside(struct far_rank *rank, void (*spoil)(struct far_rank *rank, uint32_t turn))
{
	static const uint64_t counts[2] = { 3, 3 };
	struct vandal vandal = { .rank = rank, .spoil = spoil };
	float *values, small[6], taken[6];
	void *memory;
	pthread_t thread;
	int code = 0;

	if (zinf_coll_alloc(rank->zinf, COUNT * sizeof(*values), &memory))
		return far_fail(rank, -1, 1);
	values = memory;
	if (rank->rank == 0 && pthread_create(&thread, NULL, vandal_main, &vandal))
		return 2;
	for (uint32_t i = 0; i < ROUNDS && !code; i++) {
		uint64_t count = i % 2 ? COUNT : 1;
		float own = (float)(rank->rank + i), all = (float)(2 * i + 1);
		int r;

		for (uint64_t k = 0; k < count; k++)
			values[k] = own;
		r = zinf_coll_all_reduce(rank->zinf, values, values, count, ZINF_F32, ZINF_SUM,
		                         NULL);
		for (uint64_t k = 0; k < count && !r && !code; k++)
			code = values[k] == all ? 0 : 3;
		for (uint32_t k = 0; k < 6; k++)
			small[k] = own;
		r = r ? r
		      : zinf_coll_all_to_allv(rank->zinf, small, counts, taken, counts, ZINF_F32,
		                              NULL);
		if (!r && (taken[0] != (float)i || taken[5] != (float)(1 + i)))
			code = 4;
		if (r)
			code = far_fail(rank, r, 5);
	}
	__atomic_store_n(&vandal.is_over, 1, __ATOMIC_RELEASE); /* Pairs with vandal_main(). */
	if (rank->rank == 0)
		(void)pthread_join(thread, NULL); /* It is there. */
	return code;
}

/* Both nodes' frames of two calls, as if they called something else; and all counts. */
static void spoil_slab(struct far_rank *rank, uint32_t turn)
{
	const struct zi_far_group *far = rank->zinf->coll->groups[ZI_GROUP_WORLD]->node.far;
	const struct follow_card other = { .operation = ZI_COLL_BROADCAST,
		                           .dtype = ZI_DTYPE_I8,
		                           .element_count = turn };

	for (uint32_t i = 0; i < 4; i++)
		memcpy(far->slab + zi_frame_at(&far->shape, i / 2, i % 2), &other, sizeof(other));
	for (uint32_t i = 0; i < 8; i++)
		((uint64_t *)far->slab)[i] = turn;
}

static int call_beside_spoilt_slab(struct far_rank *rank)
{
	return call_beside(rank, spoil_slab);
}

Test(far_hostile, what_nodes_agree_by_is_out_of_the_ranks_reach)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 1);
	far_run(&scene, call_beside_spoilt_slab);
	far_close_scene(&scene);
}

/* Where the data of a call lie, which go straight: now there, now nowhere. */
static void spoil_places(struct far_rank *rank, uint32_t turn)
{
	const struct zi_node_group *group = &rank->zinf->coll->groups[ZI_GROUP_WORLD]->node;
	uint32_t sequence = zi_meet_load(&group->sequence);
	struct zi_board_post *post =
		&group->meet.members[group->meet.self].posts[sequence % ZI_BOARD_SLOTS];
	static struct zi_far_places places;
	static uint32_t kept;

	(void)turn;
	if (!zi_meet_has_come(&post->sequence, sequence) || post->payload_bytes != sizeof(places))
		return;
	if (kept != sequence)
		memcpy(&places, post->payload, sizeof(places));
	kept = sequence;
	for (uint32_t i = 0; i < 64; i++)
		__atomic_store_n((uint64_t *)(void *)post->payload,
		                 i % 2 ? places.source : ZI_BOARD_NOWHERE, __ATOMIC_RELAXED);
}

/* A neighbour takes from where it says that its data lie: it has an error, or whatever is there,
 * but what comes from the other node is as it was judged, and nobody's end. */
static int exchange_beside_spoilt_places(struct far_rank *rank)
{
	enum { BLOCK = 20000 };
	struct vandal vandal = { .rank = rank, .spoil = spoil_places };
	uint64_t count = (uint64_t)rank->world * BLOCK;
	void *memory[2];
	float *source, *target;
	pthread_t thread;
	int code = 0, r = 0;

	for (uint32_t i = 0; i < 2; i++)
		if (zinf_coll_alloc(rank->zinf, count * sizeof(float), &memory[i]))
			return far_fail(rank, -1, 1);
	source = memory[0];
	target = memory[1];
	for (uint64_t i = 0; i < count; i++)
		source[i] = (float)rank->rank;
	if (rank->rank == 0 && pthread_create(&thread, NULL, vandal_main, &vandal))
		return 2;
	for (uint32_t i = 0; i < ROUNDS && !code && !r; i++) {
		r = zinf_coll_all_to_all(rank->zinf, source, target, BLOCK, ZINF_F32, NULL);
		for (uint32_t k = 0; k < rank->world && !r && !code; k++)
			if (k / 2 != rank->rank / 2 && target[k * BLOCK + i] != (float)k)
				code = 3;
	}
	__atomic_store_n(&vandal.is_over, 1, __ATOMIC_RELEASE); /* Pairs with vandal_main(). */
	if (rank->rank == 0)
		(void)pthread_join(thread, NULL); /* It is there. */
	if (r)
		(void)far_note(rank, r);
	return code;
}

Test(far_hostile, where_a_neighbour_has_its_data_is_its_own_nodes_affair)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t i = 0; i < 3; i++) {
		far_run(&scene, exchange_beside_spoilt_places);
		for (uint32_t k = 0; k < 4; k++) {
			const struct far_report *report = &scene.shared->reports[k];

			cr_expect(!report->error ||
			                  strstr(report->text, "what it posted is damaged") ||
			                  strstr(report->text, "reports EPROTO of call"),
			          "rank %u: %s", k, report->text);
		}
	}
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}

static int call_beside_spoilt_places(struct far_rank *rank)
{
	return call_beside(rank, spoil_places);
}

Test(far_hostile, where_data_lie_is_what_was_judged)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 1);
	far_run(&scene, call_beside_spoilt_places);
	far_close_scene(&scene);
}
