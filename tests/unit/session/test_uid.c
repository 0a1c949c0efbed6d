/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what each uid holds is counted by itself; what is over a limit is refused with both figures
 * and the key, and counts nothing; a uid's bucket of log lines is its own, and outlives what it
 * holds. Method: the table alone.
 */
#include "daemon/session/uid.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/clock.h"

static struct sess_uids *uids;

static void open_table(void)
{
	const uint64_t limits[_SESS_UID_KIND_COUNT] = {
		[SESS_UID_SESSIONS] = 2,
		[SESS_UID_CONNECTIONS] = 3,
		[SESS_UID_ANSWERS] = 4,
		[SESS_UID_ANSWER_BYTES] = 4096,
	};

	cr_assert_eq(sess_uids_new(limits, &uids), 0);
}

static void close_table(void)
{
	uids = sess_uids_free(uids);
}

TestSuite(uids, .init = open_table, .fini = close_table);

Test(uids, each_uid_has_its_own_limit_and_hears_the_figures)
{
	struct zi_text text;

	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(sess_uid_take(uids, 1001, SESS_UID_CONNECTIONS, 1, &text), 0);
	cr_assert_eq(sess_uid_take(uids, 1001, SESS_UID_CONNECTIONS, 1, &text), -EMFILE);
	cr_assert_str_eq(text.chars, "uid 1001 has 3 connections that are not attached, 3 are "
	                             "allowed (limits.connections_per_uid)");
	cr_assert_eq(sess_uid_take(uids, 1002, SESS_UID_CONNECTIONS, 1, &text), 0);
	cr_assert_eq(sess_uid_used(uids, 1001, SESS_UID_CONNECTIONS), 3);
	cr_assert_eq(sess_uid_used(uids, 1002, SESS_UID_CONNECTIONS), 1);
	cr_assert_eq(sess_uid_used(uids, 1003, SESS_UID_CONNECTIONS), 0);
	cr_assert_eq(sess_uid_sum(uids, SESS_UID_CONNECTIONS), 4);
	sess_uid_give(uids, 1002, SESS_UID_CONNECTIONS, 1);
	sess_uid_give(uids, 1001, SESS_UID_CONNECTIONS, 3);
}

Test(uids, bytes_are_refused_as_a_whole)
{
	struct zi_text text;

	cr_assert_eq(sess_uid_take(uids, 7, SESS_UID_ANSWER_BYTES, 3072, &text), 0);
	cr_assert_eq(sess_uid_take(uids, 7, SESS_UID_ANSWER_BYTES, 2048, &text), -EMFILE);
	cr_assert_str_eq(text.chars, "uid 7 has 3 KiB of answers that it has not read and needs 2 "
	                             "KiB more, 4 KiB are allowed (limits.answer_bytes_per_uid)");
	cr_assert_eq(sess_uid_take(uids, 7, SESS_UID_ANSWER_BYTES, UINT64_MAX, &text), -EMFILE);
	cr_assert_eq(sess_uid_used(uids, 7, SESS_UID_ANSWER_BYTES), 3072);
	sess_uid_give(uids, 7, SESS_UID_ANSWER_BYTES, 3072);
}

Test(uids, the_uid_with_most_is_found)
{
	enum sess_uid_kind kind;
	uid_t uid = 99;

	cr_assert_eq(sess_uid_most(uids, SESS_UID_SESSIONS, &uid), 0);
	cr_assert_eq(uid, 99);
	cr_assert_eq(sess_uid_take(uids, 5, SESS_UID_SESSIONS, 1, NULL), 0);
	cr_assert_eq(sess_uid_take(uids, 6, SESS_UID_SESSIONS, 2, NULL), 0);
	cr_assert_eq(sess_uid_most(uids, SESS_UID_SESSIONS, &uid), 2);
	cr_assert_eq(uid, 6);
	sess_uid_give(uids, 6, SESS_UID_SESSIONS, 2);
	cr_assert_eq(sess_uid_most(uids, SESS_UID_SESSIONS, &uid), 1);
	cr_assert_eq(uid, 5);
	sess_uid_give(uids, 5, SESS_UID_SESSIONS, 1);
	cr_assert(sess_uid_find_kind("limits.sessions_per_uid", &kind));
	cr_assert_eq(kind, SESS_UID_SESSIONS);
	cr_assert_not(sess_uid_find_kind("limits.sessions", &kind));
}

/* Return: lines that may be written at once. */
static uint32_t log_burst(uid_t uid)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < 64; i++)
		count += sess_uid_may_log(uids, uid);
	return count;
}

/* Lines that the clock alone has allowed since @start_ns. */
static uint64_t refilled_since(uint64_t start_ns)
{
	return (zi_clock_now_ns() - start_ns) / ZI_NS_PER_S + 1;
}

Test(uids, a_bucket_of_log_lines_is_the_uids_and_one_is_of_all)
{
	uint64_t start_ns = zi_clock_now_ns();
	uint64_t first = log_burst(1), sum = first, again;

	cr_assert_gt(first, 0);
	/* Holding something anew fills no bucket. */
	cr_assert_eq(sess_uid_take(uids, 1, SESS_UID_CONNECTIONS, 1, NULL), 0);
	sess_uid_give(uids, 1, SESS_UID_CONNECTIONS, 1);
	again = log_burst(1);
	cr_assert_leq(again, refilled_since(start_ns));
	cr_assert_gt(log_burst(2), 0, "another uid has its own");
	for (uid_t uid = 3; uid < 60; uid++)
		sum += log_burst(uid);
	cr_assert_leq(sum, 16 + refilled_since(start_ns), "all uids together have an end");
}

Test(uids, the_table_does_not_grow_by_uids_that_hold_nothing)
{
	cr_assert_eq(sess_uid_take(uids, 1, SESS_UID_CONNECTIONS, 1, NULL), 0);
	for (uid_t uid = 2; uid < 1000; uid++) {
		cr_assert_eq(sess_uid_take(uids, uid, SESS_UID_CONNECTIONS, 1, NULL), 0);
		sess_uid_give(uids, uid, SESS_UID_CONNECTIONS, 1);
	}
	cr_assert_eq(sess_uid_used(uids, 1, SESS_UID_CONNECTIONS), 1);
	sess_uid_give(uids, 1, SESS_UID_CONNECTIONS, 1);
}
