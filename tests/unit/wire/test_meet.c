/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who waits for no member's part of a board sleeps until there is something to do, however
 * long that takes; who waits for members looks for the daemon in between. Method: words that nobody
 * writes, and a deadline past the longest sleep between two looks. And: what a peer posts as its
 * reason is such as can be shown.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/wire/meet.h"

/* More than a sleep that ends for nothing. */
#define LONG_NS (ZI_NS_PER_S + 100 * ZI_NS_PER_MS)

Test(meet, a_thread_with_nothing_to_do_does_not_wake_up)
{
	uint32_t bell = 0;
	struct zi_meet_wants wants = { .count = 0 };
	uint64_t deadline_ns = zi_clock_deadline_ns(LONG_NS);

	zi_meet_want(&wants, NULL, &bell, 1);
	cr_assert_eq(zi_meet_wait(&wants, NULL, deadline_ns), 0);
	cr_assert_geq(zi_clock_now_ns(), deadline_ns, "one sleep");
	cr_assert_eq(zi_meet_wait(&wants, NULL, deadline_ns), -ETIMEDOUT);
}

/* It would sleep for good. */
Test(meet, nobody_sleeps_over_what_came_without_a_wake_up, .timeout = 20)
{
	uint32_t bell = 0, other = 7;
	struct zi_meet_wants wants = { .count = 0 };

	zi_meet_want(&wants, NULL, &bell, 1);
	zi_meet_glance(&wants, &other, 7);
	cr_assert_eq(zi_meet_wait(&wants, NULL, ZI_DEADLINE_NEVER), 0);
	zi_meet_wants_clear(&wants);
	cr_assert_eq(wants.glance_count, 0);
}

/* A damaged peer may post anything, of any length, without an end. */
Test(meet, the_reason_of_a_peer_ends_and_can_be_printed)
{
	static struct zi_board_member members[2];
	struct zi_meet meet = { .members = members, .member_count = 2, .self = 1 };
	const struct zi_board_call call = { .flags = ZI_BOARD_REFUSED };
	struct zi_text reason;
	char words[2 * ZI_TEXT_BYTES];

	memset(words, 'x', sizeof(words));
	memcpy(words, "\033[2J\xff\xc3\xa9", 7);
	for (uint32_t bytes = 0; bytes <= sizeof(words); bytes += sizeof(words) / 2) {
		zi_meet_post(&meet, 1 + bytes, 0, &call, 0, words, bytes);
		reason = zi_meet_reason_of(&meet, 1, 1 + bytes);
		cr_assert_eq(strlen(reason.chars), bytes ? ZI_TEXT_BYTES - 1 : 0);
		cr_assert_eq(strncmp(reason.chars, "?[2J?\xc3\xa9xxx", bytes ? 10 : 0), 0, "%s",
		             reason.chars);
	}
	zi_meet_post(&meet, 3, 0, &call, 0, "short", 3);
	cr_assert_str_eq(zi_meet_reason_of(&meet, 1, 3).chars, "sho");
}

static int look_count;

static int look(void *arg)
{
	(void)arg;
	return ++look_count == 3 ? -ESTALE : 0;
}

Test(meet, who_waits_for_members_looks_for_the_daemon_in_between)
{
	static struct zi_board_member members[2];
	struct zi_line verdict = { 0 }, spin_us = { 0 };
	struct zi_meet meet = { .members = members,
		                .verdict = &verdict,
		                .spin_us = &spin_us,
		                .look = look,
		                .member_count = 2 };
	struct zi_meet_wants wants = { .is_beside = true };
	int r = 0;

	zi_meet_want(&wants, &meet, &members[1].finished.value, 1);
	while (!r)
		r = zi_meet_wait(&wants, NULL, ZI_DEADLINE_NEVER);
	cr_assert_eq(r, -ESTALE);
	cr_assert_eq(look_count, 3);
}
