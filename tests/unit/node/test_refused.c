/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: of messages that a member refuses in a row each keeps its own reason and error for the peer
 * that comes late, whatever was refused since. Method: two members in one thread (world.h). */
#include <criterion/criterion.h>
#include <errno.h>

#include "libclient/coll/node/queue.h"
#include "tests/unit/node/world.h"

static struct world world;
static struct rank ranks[2];

static void setup(void)
{
	world_open(&world, ranks, 2, 1);
}

static void teardown(void)
{
	world_close(&world, ranks);
}

TestSuite(refused, .init = setup, .fini = teardown);

/* @way: 0 a right one, 1 no buffer, 2 too long, 3 a fault that the caller found. */
static int message(uint32_t member, bool is_send, uint32_t way, uint32_t count)
{
	struct rank *rank = &ranks[member];
	struct zi_node_p2p p2ps[4];
	struct zi_node_op op = { .group = &rank->group, .p2ps = p2ps, .p2p_count = count };

	for (uint32_t i = 0; i < count; i++)
		p2ps[i] = (struct zi_node_p2p){ .is_send = is_send,
			                        .dtype = ZI_DTYPE_F32,
			                        .peer = 1 - member,
			                        .element_count = way == 2 ? UINT64_MAX / 2 : 3,
			                        .buffer = way == 1 ? NULL : rank->outside[0] };
	op.call.deadline_ns = ZI_DEADLINE_NEVER;
	op.call.refused = way == 3 ? -EACCES : 0;
	op.call.reason = "the target is not writable";
	(void)zi_node_queue_run(NULL, &op); /* op.result */
	rank->text = op.text;
	return op.result;
}

static const int errors[] = { 0, -EINVAL, -EOVERFLOW, -EACCES };
static const char *const reasons[] = { "", "no buffer, of 12 bytes", "overflows 64 bits",
	                               "the target is not writable" };

Test(refused, each_of_several_keeps_its_reason)
{
	for (uint32_t is_send = 0; is_send < 2; is_send++) {
		for (uint32_t way = 1; way <= 3; way++)
			cr_assert_eq(message(0, is_send, way, 1), errors[way]);
		for (uint32_t way = 1; way <= 3; way++) {
			cr_expect_eq(message(1, !is_send, 0, 1), errors[way], "%u: %s", way,
			             ranks[1].text.chars);
			cr_expect_not_null(strstr(ranks[1].text.chars, reasons[way]), "%u: %s", way,
			                   ranks[1].text.chars);
		}
	}
}

/* Both directions have a message 1. */
Test(refused, a_send_and_a_receive_of_one_number_are_two)
{
	cr_assert_eq(message(0, true, 2, 1), -EOVERFLOW);
	cr_assert_eq(message(0, false, 3, 1), -EACCES);
	cr_expect_eq(message(1, true, 0, 1), -EACCES);
	cr_expect_eq(message(1, false, 0, 1), -EOVERFLOW);
}

Test(refused, all_of_a_batch_have_the_same)
{
	cr_assert_eq(message(0, true, 3, 4), -EACCES);
	cr_assert_eq(message(0, true, 1, 1), -EINVAL);
	for (uint32_t i = 0; i < 4; i++)
		cr_expect_eq(message(1, false, 0, 1), -EACCES, "%s", ranks[1].text.chars);
	cr_expect_eq(message(1, false, 0, 1), -EINVAL);
	cr_expect_not_null(strstr(ranks[1].text.chars, "message 5 from member 0 to member 1"), "%s",
	                   ranks[1].text.chars);
}

/* The op of the parts is the same: what was refused before them keeps its reason, as do the first
 * parts. */
Test(refused, parts_of_a_batch_have_one_reason)
{
	struct zi_node_p2p p2p;
	struct zi_node_op op = { .group = &ranks[0].group, .p2ps = &p2p, .p2p_count = 1 };

	op.call.refused = -EACCES;
	op.call.reason = "no room";
	op.call.deadline_ns = ZI_DEADLINE_NEVER;
	cr_assert_eq(message(0, true, 2, 1), -EOVERFLOW);
	for (uint32_t i = 0; i <= ZI_BOARD_REFUSALS; i++) {
		p2p = (struct zi_node_p2p){ .is_send = true, .dtype = ZI_DTYPE_F32, .peer = 1 };
		cr_assert_eq(zi_node_queue_run(NULL, &op), -EACCES);
	}
	cr_assert_eq(message(0, true, 1, 1), -EINVAL);
	cr_expect_eq(message(1, false, 0, 1), -EOVERFLOW, "%s", ranks[1].text.chars);
	for (uint32_t i = 0; i <= ZI_BOARD_REFUSALS; i++) {
		cr_expect_eq(message(1, false, 0, 1), -EACCES, "%u: %s", i, ranks[1].text.chars);
		cr_expect_not_null(strstr(ranks[1].text.chars, "no room"), "%u: %s", i,
		                   ranks[1].text.chars);
	}
	cr_expect_eq(message(1, false, 0, 1), -EINVAL, "%s", ranks[1].text.chars);
}

/* Reasons are kept for the newest 8, and for which each of 128 messages was refused. */
Test(refused, the_newest_reasons_are_kept)
{
	for (uint32_t i = 1; i <= 140; i++)
		cr_assert_eq(message(0, true, i % 3 + 1, 1), errors[i % 3 + 1]);
	for (uint32_t i = 1; i <= 140; i++) {
		int r = message(1, false, 0, 1);

		if (i > 140 - ZI_BOARD_REFUSALS)
			cr_expect_eq(r, errors[i % 3 + 1], "message %u", i);
		else
			cr_expect_not_null(strstr(ranks[1].text.chars, "has made room"),
			                   "message %u: %s", i, ranks[1].text.chars);
	}
}

/* Of batches that nobody is told of there may be any number: of the reason that message 1 has only
 * the low half of the number is kept with it. */
Test(refused, what_nobody_is_told_of_takes_no_reason_away)
{
	struct zi_node_p2p p2p = { .is_send = true, .dtype = ZI_DTYPE_F32, .peer = 2 };

	cr_assert_eq(message(0, true, 3, 1), -EACCES);
	for (uint32_t i = 0; i < UINT16_MAX; i++) {
		p2p = (struct zi_node_p2p){ .is_send = true,
			                    .dtype = ZI_DTYPE_F32,
			                    .peer = i % 3 * 2 };
		cr_assert_eq(zi_node_batch(&ranks[0].group, &p2p, 1, 0, &ranks[0].text), -EINVAL);
	}
	cr_assert_eq(message(0, true, 2, 1), -EOVERFLOW);
	cr_expect_eq(message(1, false, 0, 1), -EACCES, "%s", ranks[1].text.chars);
	cr_expect_eq(message(1, false, 0, 1), -EOVERFLOW, "%s", ranks[1].text.chars);
}

/* A reason is text, whatever a peer writes there. */
Test(refused, a_reason_can_be_printed)
{
	cr_assert_eq(message(0, true, 1, 1), -EINVAL);
	memcpy(world.board[0].refusals[1].reason, "\x1b[2J µ\xc2\x9b\xe2", 11);
	cr_expect_eq(message(1, false, 0, 1), -EINVAL);
	cr_expect_not_null(strstr(ranks[1].text.chars, "refuses it: ?[2J µ??"), "%s",
	                   ranks[1].text.chars);
}
