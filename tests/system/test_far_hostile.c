/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a rank writes into memory that it shares with zinf-net ends no worker. Method: a rank
 * posts a call that is none past the library, and makes its node's card in the slab a good one for
 * as long as it is looked at.
 */
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

	if (!far_open_on_loopback(&scene, 2, 1))
		return;
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

/* It says of a message from rank 1 that it has emptied what has not come. */
static int empty_too_much(struct far_rank *rank)
{
	enum { LONG = 700001 };
	static int32_t values[LONG];
	struct zi_node_group *group = &rank->zinf->coll->groups[ZI_GROUP_WORLD]->node;
	int r = zinf_coll_barrier(rank->zinf, NULL);

	if (r)
		return far_fail(rank, r, 1);
	if (rank->rank == 0) {
		uint32_t line = group->far->mail.lines[1];

		__atomic_store_n(&group->meet.members[group->meet.self].takes[line].emptied, 5,
		                 __ATOMIC_RELEASE);
		r = zinf_coll_barrier(rank->zinf, NULL);
	} else {
		r = zinf_coll_send(rank->zinf, values, LONG, ZINF_I32, 0, NULL);
	}
	(void)far_note(rank, r);
	return 0;
}

Test(far_hostile, a_message_of_which_too_much_is_emptied_ends_its_group)
{
	struct far_scene scene;

	if (!far_open_on_loopback(&scene, 2, 1))
		return;
	far_run(&scene, empty_too_much);
	for (uint32_t k = 0; k < 2; k++)
		cr_expect(strstr(scene.shared->reports[k].text,
		                 "what rank 0 says to have emptied has not come"),
		          "rank %u: %s", k, scene.shared->reports[k].text);
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}
