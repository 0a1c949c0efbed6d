/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what one rank refuses of messages to and from another node its peer there is told at once,
 * with who and why, whether that one comes before or after; both count on, and what comes next is
 * right. A message ends by its own deadline whatever becomes of the worker. Method: two daemons on
 * the loopback interface with two ranks each, whose deadlines are far beyond the test's.
 */
#include "tests/system/far.h"

TestSuite(far_refuse, .timeout = 240);

#define LONG_COUNT 700001u /* more pieces than a pair of members has letters */
#define MESSAGES   200u
#define PATIENT_MS 3600000u
#define SHORT_MS   2000u
#define CROWDED_MS 1500u /* a machine with much to do; less than what was added to the deadline */
#define WHY        "is not aligned to the 4 bytes of i32"

static int32_t buffer[LONG_COUNT + 1];

static int move_message(struct far_rank *rank, bool is_send, void *data, uint64_t count,
                        uint32_t peer)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	options.timeout_ms = PATIENT_MS;
	return is_send ? zinf_coll_send(rank->zinf, data, count, ZINF_I32, peer, &options)
	               : zinf_coll_recv(rank->zinf, data, count, ZINF_I32, peer, &options);
}

/* What this member alone can see to be wrong. */
static void *bad_buffer(void)
{
	return (char *)buffer + 2;
}

/* ---- one of each kind ---- */

struct kind {
	bool is_sender; /* who refuses */
	bool is_before; /* and is done before the other one comes */
	uint64_t count;
};
static struct kind kind; /* of the ranks that are forked next */

/* Rank 0 sends to rank 2. */
static int refuse_one(struct far_rank *rank)
{
	bool is_send = rank->rank == 0, is_refusing = is_send == kind.is_sender;
	const char *who = kind.is_sender ? "member 0 refuses it: " : "member 2 refuses it: ";
	uint32_t peer = is_send ? 2 : 0;
	int r = 0;

	if (rank->rank % 2 == 0) {
		/* The one goes first, the other when that has begun, or is done. */
		if (is_refusing != kind.is_before)
			far_await(rank, 1);
		if (!kind.is_before)
			far_raise(rank->scene, 1);
		r = move_message(rank, is_send, is_refusing ? bad_buffer() : buffer, kind.count,
		                 peer);
		if (r != -EINVAL || !strstr(zinf_error_text(rank->zinf), WHY) ||
		    (!is_refusing && !strstr(zinf_error_text(rank->zinf), who)))
			return far_fail(rank, r, 1);
		far_raise(rank->scene, 1);
		buffer[0] = is_send ? 4711 : 0;
		r = move_message(rank, is_send, buffer, 1, peer);
		if (r || buffer[0] != 4711)
			return far_fail(rank, r, 2);
	}
	return far_sum_once(rank);
}

Test(far_refuse, who_refuses_a_message_is_told_to_its_peer_on_another_node)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t i = 0; i < 8; i++) {
		kind = (struct kind){ .is_sender = i & 1,
			              .is_before = i & 2,
			              .count = i & 4 ? LONG_COUNT : 3 };
		far_run(&scene, refuse_one);
	}
	far_close_scene(&scene);
}

/* ---- many in a row ---- */

struct plan {
	bool is_refused[2]; /* by the sender, by the receiver */
	uint64_t count;
};

static struct plan plan_of(uint32_t index, uint32_t sender)
{
	static const uint64_t counts[] = { 1, 250, 0, 3000, LONG_COUNT };
	uint32_t draw = (index + 1 + 1000 * sender) * 2654435761u >> 8;

	uint64_t count = counts[draw / 9 % 16 < 12 ? draw / 9 % 4 : 4];

	/* There is nothing wrong with no elements, wherever they are. */
	return (struct plan){ .is_refused = { count && draw % 3 == 0, count && draw / 3 % 3 == 0 },
		              .count = count };
}

static bool are_values(uint64_t count, uint32_t seed)
{
	for (uint64_t i = 0; i < count; i++)
		if (buffer[i] != (int32_t)(i * 2654435761u + seed))
			return false;
	return true;
}

/* Ranks 0 and 3 send to 2 and 1, as fast as they can: either side is some refused ones ahead. */
static int refuse_many(struct far_rank *rank)
{
	bool is_send = rank->rank % 3 == 0;
	uint32_t peer = (rank->rank + 2) % 4, sender = is_send ? rank->rank : peer;

	if (!is_send)
		peer = sender = rank->rank == 2 ? 0 : 3;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		struct plan plan = plan_of(i, sender);
		bool is_mine = plan.is_refused[!is_send];
		bool is_refused = plan.is_refused[0] || plan.is_refused[1];
		int r;

		for (uint64_t k = 0; k < plan.count; k++)
			buffer[k] = is_send ? (int32_t)(k * 2654435761u + i) : 0;
		r = move_message(rank, is_send, is_mine ? bad_buffer() : buffer, plan.count, peer);
		if (r != (is_refused ? -EINVAL : 0))
			return far_fail(rank, r, 1);
		if (is_refused && !is_mine && !strstr(zinf_error_text(rank->zinf), "refuses it"))
			return far_fail(rank, r, 2);
		if (!r && !is_send && !are_values(plan.count, i))
			return 3;
	}
	return far_sum_once(rank);
}

Test(far_refuse, what_is_refused_among_others_is_that_alone)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	for (uint32_t i = 0; i < 3; i++)
		far_run(&scene, refuse_many);
	far_close_scene(&scene);
}

/* ---- a batch ---- */

/* Rank 0's batch has one fault: all of it is refused, for one reason, by peers near and far. */
static int refuse_batch(struct far_rank *rank)
{
	const struct zinf_coll_p2p all[] = {
		{ .is_send = 1, .peer = 1, .data = buffer, .count = 9, .dtype = ZINF_I32 },
		{ .is_send = 1, .peer = 2, .data = buffer, .count = 9, .dtype = ZINF_I32 },
		{ .is_send = 1, .peer = 3, .data = bad_buffer(), .count = 9, .dtype = ZINF_I32 },
	};
	int r = rank->rank ? move_message(rank, false, buffer, 9, 0)
	                   : zinf_coll_batch(rank->zinf, all, 3, NULL);

	if (r != -EINVAL || !strstr(zinf_error_text(rank->zinf), WHY) ||
	    (rank->rank && !strstr(zinf_error_text(rank->zinf), "member 0 refuses it")))
		return far_fail(rank, r, 1);
	return far_sum_once(rank);
}

Test(far_refuse, a_refused_batch_is_told_to_peers_on_all_nodes)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_run(&scene, refuse_batch);
	far_close_scene(&scene);
}

/* ---- deadlines ---- */

/* Rank 0 takes what nobody sends; the others wait until the group is broken. */
static int take_none(struct far_rank *rank)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	uint64_t begin_ns;
	int r = zinf_coll_barrier(rank->zinf, NULL);

	if (r)
		return far_fail(rank, r, 1);
	far_tell(rank);
	far_await(rank, 1);
	begin_ns = zi_clock_now_ns();
	options.timeout_ms = rank->rank ? PATIENT_MS : SHORT_MS;
	r = rank->rank ? zinf_coll_barrier(rank->zinf, &options)
	               : zinf_coll_recv(rank->zinf, buffer, 3, ZINF_I32, 2, &options);
	rank->scene->shared->reports[rank->rank].took_ms =
		(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	return far_note(rank, r) ? 0 : 2;
}

Test(far_refuse, a_message_ends_by_its_deadline_though_nobody_asks_whose_fault_it_is)
{
	struct far_scene scene;

	far_open_on_loopback(&scene, 2, 2);
	far_start(&scene, take_none);
	far_hear(&scene, 4);
	/* The daemon notices, and kills it, seconds after the deadline. */
	cr_assert_eq(kill(far_child_of(scene.harness[0].pid, "zinf-net"), SIGSTOP), 0);
	far_raise(&scene, 1);
	far_join_one(&scene, 0, 0);
	far_expect_error(&scene, 0, -ETIMEDOUT, "did not come within 2 s");
	cr_expect_lt(scene.shared->reports[0].took_ms, SHORT_MS + CROWDED_MS);
	for (uint32_t i = 1; i < 4; i++)
		far_join_one(&scene, i, 0);
	far_run(&scene, far_sum_once);
	far_close_scene(&scene);
}
