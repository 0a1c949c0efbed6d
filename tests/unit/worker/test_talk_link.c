/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: frames of a talk come in order and lie untouched until they have gone; nobody is stuck,
 * whatever is slow; pulled bytes are there when they are said to be, and no more of them are on
 * their way than may. Method: the links of two nodes (talk_scene.h).
 */
#include "tests/kernels/data.h"
#include "tests/unit/worker/talk_scene.h"

TestSuite(talk_link, .timeout = 120);

/* ---- frames ---- */

Test(talk_link, an_entry_comes_as_it_was_said, .init = open_ends, .fini = close_ends)
{
	struct talk_entry expected = full_entry(41);

	expected.node = 0;
	cr_assert_eq(say(0, full_entry(41)), 0);
	turn(1);
	cr_assert_eq(ends[1].heard_count, 1);
	cr_expect_eq(memcmp(last_heard(1), &expected, sizeof(expected)), 0);
}

Test(talk_link, places_are_the_own_sides_and_do_not_travel, .init = open_ends, .fini = close_ends)
{
	struct talk_entry entry = full_entry(1);

	entry.offset_bytes = 4096;
	entry.bytes = 77;
	entry.slab = NET_SLAB_PARAM;
	entry.node = 1;
	cr_assert_eq(say(0, entry), 0);
	turn(1);
	cr_expect_eq(last_heard(1)->offset_bytes, 0);
	cr_expect_eq(last_heard(1)->bytes, 0);
	cr_expect_eq(last_heard(1)->slab, 0);
	cr_expect_eq(last_heard(1)->node, 0);
}

Test(talk_link, no_more_frames_lie_than_the_other_one_has_begun_to_receive, .init = open_ends,
     .fini = close_ends)
{
	hold(0, true);
	for (uint32_t i = 0; i < TALK_WINDOW; i++)
		cr_assert_eq(say(0, full_entry(i)), 0, "%u", i);
	cr_expect_eq(say(0, full_entry(TALK_WINDOW)), 1);
	hold(0, false);
	cr_expect_eq(say(0, full_entry(TALK_WINDOW)), 1, "nobody has said yet that it took them");
	turn(1);
	turn(0);
	cr_expect_eq(say(0, full_entry(TALK_WINDOW)), 0);
	turn(1);
	cr_assert_eq(ends[1].heard_count, TALK_WINDOW + 1);
	for (uint32_t i = 0; i <= TALK_WINDOW; i++)
		cr_expect_eq(ends[1].heard[i].tag, i);
}

Test(talk_link, who_only_listens_says_little, .init = open_ends, .fini = close_ends)
{
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(say(0, full_entry(i)), 0);
		turn(1);
	}
	cr_expect_eq(ends[1].link.sent, 0);
}

/* Either node says, hears, and has its frames go or stay, as drawn. */
static void talk_in_a_drawn_order(uint64_t seed)
{
	uint64_t state = seed * 2 + 1, said[2] = { 0 };
	uint32_t lying_max = 0;

	open_ends();
	hold(0, true);
	hold(1, true);
	for (uint32_t i = 0; i < 6000; i++) {
		uint32_t node = (uint32_t)(data_random(&state) >> 32) % 2;
		/* Now and then one of them is slow. */
		uint32_t act =
			(uint32_t)(data_random(&state) >> 32) % (i / 500 % 2 == node ? 24 : 6);

		if (act < 3 && !say(node, full_entry(said[node])))
			said[node]++;
		else if (act == 3)
			turn(node);
		else
			(void)let_one_go(node);
		lying_max = ZI_MAX(lying_max, ends[node].link.sent - ends[node].link.gone);
		ends[0].heard_count %= HEARD_MAX / 2;
		ends[1].heard_count %= HEARD_MAX / 2;
	}
	hold(0, false);
	hold(1, false);
	turn_both();
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_gt(said[i], TALK_WINDOW);
		cr_expect_eq(last_heard(1 - i)->tag, said[i] - 1);
		cr_expect_eq(say(i, full_entry(said[i])), 0, "stuck");
	}
	cr_expect_gt(lying_max, TALK_WINDOW / 2);
	close_ends();
}

Test(talk_link, nobody_is_stuck_whatever_is_slow)
{
	for (uint64_t seed = 1; seed <= 20; seed++)
		talk_in_a_drawn_order(seed);
}

/* ---- pulls ---- */

static uint64_t wire_bytes(uint32_t node)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < both[node].mesh.wire_count; i++)
		if (both[node].mesh.wire_lanes[i]->index)
			bytes += both[node].mesh.wire[i].bytes;
	return bytes;
}

/* Node 0's pull, up to its daemon's answer at node 1. */
static void pull(uint64_t tag, uint64_t offset, uint64_t bytes, uint64_t from)
{
	cr_assert_eq(say(0, entry_of(TALK_PULL, tag, offset, bytes)), 0);
	turn(1);
	cr_assert(last_heard(1)->kind == TALK_PULL && last_heard(1)->tag == tag &&
	          last_heard(1)->bytes == bytes && !last_heard(1)->offset_bytes);
	cr_assert_eq(say(1, entry_of(TALK_SERVE, tag, from, bytes)), 0);
}

Test(talk_link, what_is_pulled_comes_to_where_the_puller_said, .init = open_ends,
     .fini = close_ends)
{
	static const uint64_t sizes[] = { 1, TALK_CHUNK_BYTES, TALK_CHUNK_BYTES + 1,
		                          TALK_WAY_BYTES * 3 + 17, TALK_PULL_BYTES_MAX };

	for (uint64_t i = 0; i < SLAB_BYTES; i++)
		ends[1].slabs[0][i] = (char)(i * 7 + i / 251);
	for (uint32_t i = 0; i < ZI_COUNT_OF(sizes); i++) {
		memset(ends[0].slabs[0], 0, SLAB_BYTES);
		pull(i, 64, sizes[i], 128);
		for (uint32_t k = 0; k < 40; k++)
			turn_both();
		cr_expect(last_heard(0)->kind == TALK_CAME && last_heard(0)->tag == i &&
		          last_heard(0)->offset_bytes == 64 && last_heard(0)->bytes == sizes[i] &&
		          last_heard(0)->slab == NET_SLAB_TALK);
		cr_expect(last_heard(1)->kind == TALK_GONE && last_heard(1)->tag == i &&
		          last_heard(1)->offset_bytes == 128 && last_heard(1)->bytes == sizes[i]);
		cr_expect_eq(memcmp(ends[0].slabs[0] + 64, ends[1].slabs[0] + 128, sizes[i]), 0);
		cr_expect(!ends[0].slabs[0][63] && !ends[0].slabs[0][64 + sizes[i]]);
	}
	cr_expect_eq(both[0].mesh.late_count + both[1].mesh.late_count, 0, "somebody waited");
}

Test(talk_link, between_slabs_of_any_kind, .init = open_ends, .fini = close_ends)
{
	struct talk_entry entry = entry_of(TALK_PULL, 9, SLAB_BYTES - 5, 5);

	memcpy(ends[1].slabs[0], "right", 5);
	memcpy(ends[1].slabs[1], "wrong", 5);
	entry.slab = NET_SLAB_PARAM;
	cr_assert_eq(say(0, entry), 0);
	turn(1);
	cr_assert_eq(say(1, entry_of(TALK_SERVE, 9, 0, 5)), 0);
	turn_both();
	cr_expect(last_heard(0)->kind == TALK_CAME && last_heard(0)->slab == NET_SLAB_PARAM);
	cr_expect(last_heard(1)->kind == TALK_GONE && last_heard(1)->slab == NET_SLAB_TALK);
	cr_expect_eq(memcmp(ends[0].slabs[1] + SLAB_BYTES - 5, "right", 5), 0);
}

Test(talk_link, bytes_go_before_the_frame_that_says_so, .init = open_ends, .fini = close_ends)
{
	pull(1, 0, 5, 0);
	hold(1, true);
	turn(1);
	cr_assert_eq(both[1].mesh.wire_count, 2);
	cr_expect_eq(both[1].mesh.wire_lanes[0]->index, 1, "the bytes");
	cr_expect_eq(both[1].mesh.wire_lanes[1]->index, 0, "their frame");
	cr_assert(let_one_go(1));
	turn(0);
	cr_expect_eq(ends[0].heard_count, 0);
	cr_assert(let_one_go(1));
	turn(0);
	cr_expect_eq(last_heard(0)->kind, TALK_CAME);
}

Test(talk_link, memory_that_is_served_has_gone_when_the_other_one_has_taken_it, .init = open_ends,
     .fini = close_ends)
{
	pull(1, 0, 5, 0);
	turn(1);
	hold(0, true);
	turn(0);
	cr_expect_eq(last_heard(0)->kind, TALK_CAME);
	turn(1);
	cr_expect_eq(last_heard(1)->kind, TALK_PULL);
	hold(0, false);
	turn(1);
	cr_expect_eq(last_heard(1)->kind, TALK_GONE);
}

Test(talk_link, what_is_refused_comes_back_with_its_reason, .init = open_ends, .fini = close_ends)
{
	struct talk_entry refused = full_entry(3);

	refused.kind = TALK_REFUSED;
	for (uint32_t i = 0; i < 3 * TALK_CREDIT; i++) {
		cr_assert_eq(say(0, entry_of(TALK_PULL, 3, 32, 5)), 0);
		turn(1);
		cr_assert_eq(say(1, refused), 0);
		turn(0);
		cr_assert(last_heard(0)->kind == TALK_REFUSED && last_heard(0)->tag == 3 &&
		          last_heard(0)->error == -ENOSPC && last_heard(0)->offset_bytes == 32 &&
		          last_heard(0)->bytes == 5);
		cr_assert_eq(memcmp(last_heard(0)->data, refused.data, TALK_DATA_BYTES), 0);
	}
	/* Nothing of them is in the way of one that is served. */
	memcpy(ends[1].slabs[0], "right", 5);
	pull(3, 64, 5, 0);
	turn_both();
	cr_expect_eq(last_heard(0)->kind, TALK_CAME);
	cr_expect_eq(memcmp(ends[0].slabs[0] + 64, "right", 5), 0);
	cr_expect_eq(ends[0].slabs[0][32], 0);
}

Test(talk_link, no_more_bytes_are_on_their_way_than_may_be, .init = open_ends, .fini = close_ends)
{
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(say(0, entry_of(TALK_PULL, i, i * TALK_WAY_BYTES, TALK_WAY_BYTES)), 0);
	turn(1);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(say(1, entry_of(TALK_SERVE, i, 0, TALK_WAY_BYTES)), 0);
	hold(1, true);
	turn(1);
	cr_expect_eq(wire_bytes(1), TALK_WAY_BYTES);
	/* In turn: each has had one chunk before any has two. */
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(ends[1].link.serves[i].sent_bytes,
		             (i ? 1 : 2) * (uint64_t)TALK_CHUNK_BYTES);
	/* A vote waits for these alone. */
	cr_assert_eq(say(1, full_entry(77)), 0);
	turn(1);
	cr_expect_eq(wire_bytes(1), TALK_WAY_BYTES);
	while (let_one_go(1))
		;
	turn(0);
	cr_expect_eq(last_heard(0)->tag, 77);
	turn(1);
	cr_expect_eq(wire_bytes(1), TALK_WAY_BYTES, "and then the next");
	hold(1, false);
	for (uint32_t i = 0; i < 4; i++)
		turn_both();
	cr_expect_eq(ends[0].heard_count, 4);
	cr_expect_eq(ends[0].heard[0].tag, 77);
	cr_expect_eq(ends[1].link.way_bytes, 0);
}

Test(talk_link, small_pulls_leave_room_for_votes, .init = open_ends, .fini = close_ends)
{
	for (uint32_t i = 0; i < TALK_CREDIT; i++)
		pull(i, i, 1, i);
	hold(1, true);
	turn(1);
	cr_expect_lt(ends[1].link.lying, TALK_WINDOW);
	cr_expect_eq(say(1, full_entry(77)), 0);
	hold(1, false);
	turn_both();
	cr_expect_eq(ends[0].heard_count, TALK_CREDIT + 1);
}
