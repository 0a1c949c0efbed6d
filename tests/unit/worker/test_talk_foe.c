/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: nothing that another node says in a talk, or the own daemon, does more than end it, and
 * what fails says so. Method: the link of one node (talk_scene.h), and frames that the test makes
 * up.
 */
#include "tests/unit/worker/talk_scene.h"

TestSuite(talk_foe, .timeout = 120);

/* ---- nonsense of the own daemon ---- */

static void expect_refused(struct talk_entry entry, const char *says)
{
	struct zi_text text = { "" };

	cr_expect_eq(talk_link_say(&ends[0].link, &entry, &text), -EINVAL, "%s", says);
	cr_expect(strstr(text.chars, says), "%s", text.chars);
}

Test(talk_foe, what_makes_no_sense_is_not_said, .init = open_ends, .fini = close_ends)
{
	static const uint8_t kinds[] = { 0, TALK_CAME, TALK_GONE, TALK_PART, TALK_HEARD, 255 };
	struct talk_entry entry;

	for (uint32_t i = 0; i < ZI_COUNT_OF(kinds); i++)
		expect_refused(entry_of(kinds[i], 1, 0, 1), "no daemon says");
	entry = entry_of(TALK_READY, 1, 0, 0);
	entry.data_bytes = TALK_DATA_BYTES + 1;
	expect_refused(entry, "193 bytes of data");
	entry.data_bytes = 0;
	entry.error = 1;
	expect_refused(entry, "error 1");
	entry.error = -TALK_ERRNO_MAX - 1;
	expect_refused(entry, "error -4096");
}

Test(talk_foe, places_beyond_a_slab_are_not_pulled_or_served, .init = open_ends, .fini = close_ends)
{
	static const uint64_t places[][2] = {
		{ SLAB_BYTES, 1 }, { SLAB_BYTES - 4, 5 },          { UINT64_MAX, 2 },
		{ 0, 0 },          { 0, TALK_PULL_BYTES_MAX + 1 }, { 0, UINT64_MAX }
	};
	struct talk_entry entry = entry_of(TALK_PULL, 1, 0, 1);

	for (uint32_t i = 0; i < ZI_COUNT_OF(places); i++) {
		expect_refused(entry_of(TALK_PULL, 1, places[i][0], places[i][1]), "bytes at");
		expect_refused(entry_of(TALK_SERVE, 1, places[i][0], places[i][1]), "bytes at");
	}
	entry.slab = NET_SLAB_DATA;
	expect_refused(entry, "of slab 0: it has 0");
	entry.slab = NET_SLABS_MAX;
	expect_refused(entry, "of slab 8: it has 0");
	cr_expect_eq(say(0, entry_of(TALK_PULL, 1, SLAB_BYTES - 5, 5)), 0);
}

Test(talk_foe, as_many_are_pulled_as_may_be_and_each_once, .init = open_ends, .fini = close_ends)
{
	for (uint32_t i = 0; i < TALK_CREDIT; i++) {
		cr_assert_eq(say(0, entry_of(TALK_PULL, i, i, 1)), 0);
		if (!i)
			expect_refused(entry_of(TALK_PULL, i, i, 1), "is there already");
		turn(1);
		turn(0);
	}
	expect_refused(entry_of(TALK_PULL, TALK_CREDIT, 0, 1), "one beyond 64");
}

Test(talk_foe, what_was_not_asked_for_is_not_answered, .init = open_ends, .fini = close_ends)
{
	struct talk_entry refused = entry_of(TALK_REFUSED, 5, 0, 0);

	expect_refused(entry_of(TALK_SERVE, 5, 0, 1), "pull 5 is answered");
	refused.error = -EIO;
	expect_refused(refused, "pull 5 is answered");
	cr_assert_eq(say(1, entry_of(TALK_PULL, 5, 0, 8)), 0);
	turn(0);
	expect_refused(entry_of(TALK_SERVE, 5, 0, 7), "other than 7 bytes");
	refused.error = 0;
	expect_refused(refused, "pull 5 is answered");
	cr_assert_eq(say(0, entry_of(TALK_SERVE, 5, 0, 8)), 0);
	expect_refused(entry_of(TALK_SERVE, 5, 0, 8), "pull 5 is answered");
}

/* ---- a hostile node ---- */

/* Node 1 is the test: its frames are what it writes. */
struct foe {
	struct net_lane *lanes[FAKE_LANES];
	struct talk_frame frame;
	char in[64 * sizeof(struct talk_frame)];
};

static struct foe foe;

static void open_foe(void)
{
	struct zi_text text;

	make_ends();
	memset(&foe, 0, sizeof(foe));
	for (uint32_t i = 0; i < FAKE_LANES; i++)
		cr_assert_eq(net_lane_new(&both[1].mesh, 0, i ? (void *)ends[1].slabs[0] : &foe,
		                          sizeof(foe), &foe.lanes[i]),
		             0);
	for (uint32_t i = 0; i < 64; i++)
		(void)net_lane_receive(foe.lanes[0], 0x30,
		                       offsetof(struct foe, in) + i * sizeof(foe.frame),
		                       sizeof(foe.frame), &text);
	open_end(0);
}

static void close_foe(void)
{
	close_ends();
	for (uint32_t i = 0; i < FAKE_LANES; i++)
		foe.lanes[i] = net_lane_free(foe.lanes[i]);
}

/* Return: what comes of it. */
static int send_foe(struct talk_frame frame, struct zi_text *text)
{
	foe.frame = frame;
	cr_assert_eq(net_lane_send(foe.lanes[0], 0x30, offsetof(struct foe, frame),
	                           sizeof(foe.frame), text),
	             0);
	return hear_all(0, text);
}

#define TAG         4u
#define ASKED_BYTES (2u * TALK_CHUNK_BYTES)

/* @before: frames that are fine, up to one without a kind. Then each of @frames is not. */
static void expect_nonsense(const struct talk_frame *before, const struct talk_frame *frames,
                            uint32_t count, const char *says)
{
	for (uint32_t i = 0; i < count; i++) {
		struct zi_text text = { "" };

		open_foe();
		cr_assert_eq(say(0, entry_of(TALK_PULL, TAG, 0, ASKED_BYTES)), 0);
		for (const struct talk_frame *frame = before; frame && frame->kind; frame++) {
			(void)net_lane_send(foe.lanes[1], 0x40, 0, TALK_CHUNK_BYTES, &text);
			cr_assert_eq(send_foe(*frame, &text), 0, "%u: %s", i, text.chars);
		}
		cr_expect_eq(send_foe(frames[i], &text), -EPROTO, "%u: %s", i, says);
		cr_expect(strstr(text.chars, "node 1 sent an invalid message") &&
		                  strstr(text.chars, says),
		          "%u: %s", i, text.chars);
		close_foe();
	}
}

Test(talk_foe, frames_that_are_none_end_it)
{
	const struct talk_frame frames[] = { { .kind = 0 },
		                             { .kind = TALK_SERVE },
		                             { .kind = TALK_GONE },
		                             { .kind = _TALK_FRAME_KIND_COUNT },
		                             { .kind = 255 },
		                             { .kind = TALK_READY, .reserved0 = 1 },
		                             { .kind = TALK_READY, .reserved1 = 1 },
		                             { .kind = TALK_READY, .error = 1 },
		                             { .kind = TALK_READY, .error = INT32_MIN },
		                             { .kind = TALK_READY,
		                               .data_bytes = TALK_DATA_BYTES + 1 } };

	expect_nonsense(NULL, frames, ZI_COUNT_OF(frames), "there is no such word");
}

Test(talk_foe, who_took_what_was_never_sent_ends_it)
{
	const struct talk_frame frames[] = { { .kind = TALK_HEARD, .took = 2 },
		                             { .kind = TALK_READY, .took = UINT32_MAX } };
	const struct talk_frame before[] = { { .kind = TALK_HEARD, .took = 1 }, { .kind = 0 } };
	const struct talk_frame back[] = { { .kind = TALK_HEARD, .took = 0 } };

	expect_nonsense(NULL, frames, 2, "it took what was never sent");
	expect_nonsense(before, back, 1, "it took what was never sent");
}

Test(talk_foe, answers_to_what_was_not_asked_end_it)
{
	const struct talk_frame frames[] = {
		{ .kind = TALK_CAME, .tag = TAG + 1, .bytes = ASKED_BYTES },
		{ .kind = TALK_PART, .tag = TAG + 1, .bytes = ASKED_BYTES },
		{ .kind = TALK_REFUSED, .tag = TAG + 1, .error = -EIO },
		{ .kind = TALK_PART, .tag = TAG, .bytes = ASKED_BYTES, .index = 1 },
		{ .kind = TALK_PART, .tag = TAG, .bytes = ASKED_BYTES, .index = TALK_CREDIT },
		{ .kind = TALK_PART, .tag = TAG, .bytes = ASKED_BYTES, .index = 255 },
	};

	expect_nonsense(NULL, frames, ZI_COUNT_OF(frames), "nothing is pulled as that");
}

Test(talk_foe, answers_that_do_not_fit_end_it)
{
	const struct talk_frame frames[] = {
		{ .kind = TALK_CAME, .tag = TAG, .bytes = ASKED_BYTES },
		{ .kind = TALK_PART, .tag = TAG, .bytes = ASKED_BYTES - 1 },
		{ .kind = TALK_REFUSED, .tag = TAG, .error = 0 },
	};
	const struct talk_frame before[] = {
		{ .kind = TALK_PART, .tag = TAG, .bytes = ASKED_BYTES }, { .kind = 0 }
	};
	const struct talk_frame amid[] = {
		{ .kind = TALK_PART, .tag = TAG, .bytes = ASKED_BYTES },
		{ .kind = TALK_REFUSED, .tag = TAG, .error = -EIO },
	};

	expect_nonsense(NULL, frames, ZI_COUNT_OF(frames), "it is not what is pulled");
	expect_nonsense(before, amid, ZI_COUNT_OF(amid), "it is not what is pulled");
}

Test(talk_foe, who_pulls_more_than_it_may_ends_it)
{
	const struct talk_frame before[] = { { .kind = TALK_PULL, .tag = 1, .bytes = 1 },
		                             { .kind = 0 } };
	const struct talk_frame more[] = {
		{ .kind = TALK_PULL, .tag = 2, .bytes = 1 },
		{ .kind = TALK_PULL, .tag = 2, .bytes = 1, .index = TALK_CREDIT },
	};
	const struct talk_frame sizes[] = {
		{ .kind = TALK_PULL, .tag = 2, .index = 1, .bytes = 0 },
		{ .kind = TALK_PULL, .tag = 2, .index = 1, .bytes = TALK_PULL_BYTES_MAX + 1 },
	};
	const struct talk_frame twice[] = {
		{ .kind = TALK_PULL, .tag = 1, .index = 1, .bytes = 1 },
	};

	expect_nonsense(before, more, ZI_COUNT_OF(more), "it pulls more than it may");
	expect_nonsense(NULL, sizes, ZI_COUNT_OF(sizes), "nobody pulls so much");
	expect_nonsense(before, twice, ZI_COUNT_OF(twice), "it is pulled already");
}

Test(talk_foe, bytes_that_are_said_to_have_come_and_have_not_end_it, .init = open_foe,
     .fini = close_foe)
{
	struct zi_text text = { "" };

	cr_assert_eq(say(0, entry_of(TALK_PULL, TAG, 0, 5)), 0);
	cr_expect_eq(
		send_foe((struct talk_frame){ .kind = TALK_CAME, .tag = TAG, .bytes = 5 }, &text),
		-ETIMEDOUT);
	cr_expect_eq(ends[0].heard_count, 0);
}

/* Of bytes that went out it says so before it could: Gloo knows better. */
Test(talk_foe, bytes_that_lie_are_not_said_to_have_gone, .init = open_foe, .fini = close_foe)
{
	struct zi_text text = { "" };

	cr_assert_eq(
		send_foe((struct talk_frame){ .kind = TALK_PULL, .tag = 1, .bytes = 5 }, &text), 0);
	cr_assert_eq(say(0, entry_of(TALK_SERVE, 1, 0, 5)), 0);
	talk_link_serve(&ends[0].link); /* Nobody receives. */
	cr_expect_eq(send_foe((struct talk_frame){ .kind = TALK_HEARD, .took = 1 }, &text),
	             -ETIMEDOUT);
	cr_expect_eq(last_heard(0)->kind, TALK_PULL);
}

/* It never says what it took, and says more than it may. */
Test(talk_foe, who_says_too_much_is_heard_as_long_as_it_makes_sense, .init = open_foe,
     .fini = close_foe)
{
	struct zi_text text = { "" };

	for (uint32_t i = 0; i < 40 * TALK_WINDOW; i++) {
		cr_assert_eq(send_foe((struct talk_frame){ .kind = TALK_READY }, &text), 0);
		talk_link_answer(&ends[0].link);
		ends[0].heard_count = 0;
	}
	cr_expect_eq(ends[0].link.sent, TALK_RING);
	cr_expect_eq(say(0, full_entry(1)), 1, "no place is free");
}

/* ---- what fails ---- */

Test(talk_foe, without_memory_for_lanes_it_is_not_opened)
{
	for (uint32_t i = 1; i < FAKE_LANES; i++) {
		struct talk_link_options options;
		struct zi_text text = { "" };

		make_ends();
		options = options_of(0);
		both[0].mesh.lane_max = i;
		cr_expect_eq(talk_link_open(&ends[0].link, &options, &text), -ENOMEM);
		cr_expect(strstr(text.chars, "no memory to talk to node 1"), "%s", text.chars);
		close_ends();
	}
}

Test(talk_foe, a_lost_connection_shows_when_all_that_came_is_heard, .init = open_ends,
     .fini = close_ends)
{
	struct zi_text text = { "" };

	cr_assert_eq(say(1, full_entry(1)), 0);
	lose(0);
	while (!__atomic_load_n(&ends[0].link.is_dead, __ATOMIC_ACQUIRE))
		(void)sched_yield();
	cr_expect_eq(hear_all(0, &text), 0);
	cr_expect_eq(last_heard(0)->tag, 1);
	cr_expect(strstr(ends[0].link.text.chars, "lost"), "%s", ends[0].link.text.chars);
}
