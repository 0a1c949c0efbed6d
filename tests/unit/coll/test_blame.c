/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whoever holds up or spoils a call is named, with what it does instead, in words that every
 * rank gets; nobody can break a group that it is not in, whatever it writes or says. Method: boards
 * in this process's memory, written by the test as ranks would, honest and not. */
#include "tests/unit/coll/board.h"

TestSuite(blame, .init = board_setup, .fini = board_teardown);

#define SUM ZI_REDUCE_SUM

Test(blame, uneven_calls_have_no_one_count)
{
	post(0, 0, 1, a_call(ZI_COLL_ALL_TO_ALLV, 0, 0, 0));
	cr_assert_eq(fail(0, failure(0, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "all_to_allv #1 of group 0 (f32): rank 1"), "%s",
	                   text.chars);
}

Test(blame, who_made_no_call_is_named_to_all)
{
	for (uint32_t i = 0; i < 3; i++)
		post(0, i, 1, a_call(ZI_COLL_ALL_REDUCE, 1048576, SUM, 0));
	cr_assert_eq(fail(0, failure(0, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_str_eq(text.chars,
	                 "all_reduce #1 of group 0 (f32 x 1048576, sum): rank 3 (pid 103) did not "
	                 "come within 10 s: it has made no call there");
	cr_expect_eq(verdict(0), ETIMEDOUT);
	/* The first report decides: later ones, and those who only ask, hear the same. */
	cr_expect_eq(fail(1, failure(0, 1, -EINVAL)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "rank 3 (pid 103)"));
	cr_expect_eq(fail(3, failure(0, 0, 0)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "rank 3 (pid 103)"));
}

Test(blame, the_last_call_of_who_did_not_come_is_told)
{
	post(0, 2, 16, a_call(ZI_COLL_BROADCAST, 4, 0, 1));
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != 2)
			post(0, i, 17, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert_eq(fail(3, failure(0, 17, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_str_eq(text.chars, "barrier #17 of group 0: rank 2 (pid 102) did not come within "
	                             "10 s: its last call there is broadcast #16 of group 0 "
	                             "(f32 x 4, from rank 1)");
}

Test(blame, a_call_of_another_group_is_told_with_whom_it_waits_for)
{
	struct zi_coll_fail report = failure(2, 5, -ETIMEDOUT);

	add_group(2, 0xa); /* ranks 1 and 3 */
	post(2, 0, 5, a_call(ZI_COLL_REDUCE, 7, ZI_REDUCE_MAX, 1));
	post(0, 3, 9, a_call(ZI_COLL_ALL_GATHER, 3, 0, 0));
	post(0, 2, 9, a_call(ZI_COLL_ALL_GATHER, 3, 0, 0));
	report.timeout_ms = 250;
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_str_eq(text.chars, "reduce #5 of group 2 (f32 x 7, max, to rank 3): rank 3 (pid "
	                             "103) did not come within 0.25 s: it is in all_gather #9 of "
	                             "group 0 (f32 x 3), which waits for ranks 0, 1");
	cr_expect_eq(verdict(2), ETIMEDOUT);
	cr_expect_eq(verdict(0), 0, "other groups go on");
}

Test(blame, what_it_does_for_the_daemon_is_told)
{
	post(0, 0, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	post(0, 1, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	post(0, 3, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	doing_words[2] = "it has been in step for 3.2 s";
	cr_assert_eq(fail(0, failure(0, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "rank 2 (pid 102) did not come within 10 s: it has "
	                                      "been in step for 3.2 s"),
	                   "%s", text.chars);
}

Test(blame, several_absent_ones_are_all_named)
{
	post(0, 0, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert_eq(fail(0, failure(0, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "rank 1 (pid 101) did not come within 10 s: it has "
	                                      "made no call there; rank 2 (pid 102) did not come: "
	                                      "likewise; nor did rank 3"),
	                   "%s", text.chars);
}

Test(blame, who_came_and_did_not_finish_is_named)
{
	struct zi_board_call call = a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0);

	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 3, call);
	boards[0][0].finished.value = boards[0][1].finished.value = 3;
	boards[0][2].finished.value = 3;
	cr_assert_eq(fail(0, failure(0, 3, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(
		strstr(text.chars, ": rank 3 (pid 103) came, but did not do its part within 10 s"),
		"%s", text.chars);
}

/* Its counts are each pair's: the board does not say how long it is, but it never fits a post. */
Test(blame, who_came_to_an_uneven_call_and_did_not_finish_is_named)
{
	struct coll_description seen;
	struct zi_coll_fail report = failure(0, 3, -ETIMEDOUT);

	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 3, a_call(ZI_COLL_ALL_TO_ALLV, 0, 0, 0));
	boards[0][0].finished.value = boards[0][3].finished.value = 3;
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.awaited_mask, 0x6);
	report.culprit = 2; /* the reporter's guess is not asked */
	cr_assert_eq(fail(0, report), -ETIMEDOUT);
	cr_expect_str_eq(text.chars, "all_to_allv #3 of group 0 (f32): ranks 1, 2 came, but did "
	                             "not do their part within 10 s");
}

Test(blame, in_a_call_in_pieces_who_is_steps_behind_is_named)
{
	struct zi_coll_fail report = failure(0, 6, -ETIMEDOUT);

	for (uint32_t i = 0; i < RANKS; i++) {
		post(0, i, 6, a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0));
		boards[0][i].finished.value = 5;
		boards[0][i].step.value = i == 2 ? UINT32_MAX : 0; /* they count on over 2^32 */
	}
	report.culprit = 2;
	cr_assert_eq(fail(0, report), -ETIMEDOUT);
	cr_expect_not_null(
		strstr(text.chars, ": rank 2 (pid 102) came, but did not do its part within 10 s"),
		"%s", text.chars);
}

Test(blame, one_that_came_at_the_last_moment_is_told_as_that)
{
	struct zi_coll_fail report = failure(0, 3, -ETIMEDOUT);

	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 3, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	report.culprit = 2;
	cr_assert_eq(fail(0, report), -ETIMEDOUT);
	cr_expect_str_eq(text.chars, "barrier #3 of group 0: rank 2 (pid 102) has come, but not "
	                             "within 10 s");
	add_group(1, 0xf);
	for (uint32_t i = 0; i < RANKS; i++)
		post(1, i, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert_eq(fail(0, failure(1, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "its ranks have come, but not within 10 s"), "%s",
	                   text.chars);
}

Test(blame, a_failure_that_the_boards_do_not_explain_is_the_reporters_word)
{
	struct zi_coll_fail report = failure(0, 4, -EFAULT);

	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 4, a_call(ZI_COLL_ALL_REDUCE, 10, SUM, 0));
	report.culprit = 2;
	cr_assert_eq(fail(1, report), -EFAULT);
	cr_expect_str_eq(text.chars,
	                 "rank 1 (pid 101) reports EFAULT of call #4 of group 0, because of rank "
	                 "2 (pid 102)");
}

/* Members would take it for a refusal of one call, and the group for one that stands. */
Test(blame, what_ends_one_call_is_no_verdict)
{
	static const int errors[] = { -EINVAL, -EACCES, -EOVERFLOW, -ECANCELED };
	struct zi_text words = { "another node says so" };

	for (uint32_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		post(0, 1, 4, a_call(ZI_COLL_BARRIER, 0, 0, 0));
		cr_expect_eq(fail(1, failure(0, 4, errors[i])), -EINVAL);
		cr_expect_not_null(strstr(text.chars, "the group stands"), "%s", text.chars);
		cr_expect_eq(verdict(0), 0);
		add_group(1 + i, 0xf);
		coll_break(coll, &coll->groups[1 + i], errors[i], COLL_NOBODY, &words);
		cr_expect_eq(verdict(1 + i), EPROTO);
		cr_expect_eq(fail(2, failure(1 + i, 0, 0)), -EPROTO);
		cr_expect_str_eq(text.chars, words.chars);
	}
}

Test(blame, a_report_of_a_call_that_was_never_made_blames_its_author)
{
	struct coll_description seen;

	cr_assert_eq(fail(1, failure(0, 1000, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_str_eq(text.chars, "rank 1 (pid 101) reports ETIMEDOUT of call #1000 of group 0, "
	                             "which it has not made");
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.culprit, 1);
}

Test(blame, a_send_that_nobody_takes_names_the_peer)
{
	struct zi_coll_fail report = failure(0, 0, -ETIMEDOUT);

	report.operation = ZI_COLL_SEND;
	report.dtype = ZI_DTYPE_F32;
	report.element_count = 100;
	report.root = 2;
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_str_eq(text.chars,
	                 "rank 1 (pid 101) waits in group 0 in send (f32 x 100, to rank 2): rank 2 "
	                 "(pid 102) did not come within 10 s: it has made no call there");
}

Test(blame, two_that_both_receive_are_told)
{
	struct zi_coll_fail report = failure(0, 0, -ETIMEDOUT);
	struct zi_board_take *take = &boards[0][2].takes[1];

	report.operation = ZI_COLL_RECV;
	report.dtype = ZI_DTYPE_F32;
	report.element_count = 100;
	report.root = 2;
	*take = (struct zi_board_take){
		.sequence = 4, .done = 3, .dtype = ZI_DTYPE_I8, .element_count = 7
	};
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "in recv (f32 x 100, from rank 2): rank 2 (pid 102) "
	                                      "did not come within 10 s: it is in recv of group 0 "
	                                      "(i8 x 7, from rank 1)"),
	                   "%s", text.chars);
}

/* Rank 2 was ahead in its last call, and made others before: it is in neither. */
Test(blame, who_is_in_a_send_is_said_to_be)
{
	struct zi_board_call ahead = a_call(ZI_COLL_REDUCE, 5, SUM, 0);

	ahead.flags = ZI_BOARD_AHEAD;
	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 3, i == 2 ? ahead : a_call(ZI_COLL_REDUCE, 5, SUM, 0));
	post(0, 2, 4, ahead);
	zi_line_store(&boards[0][2].sleeping, 1);
	boards[0][2].sends[3] =
		(struct zi_board_send){ .sequence = 1, .dtype = ZI_DTYPE_I32, .element_count = 9 };
	post(0, 0, 4, a_call(ZI_COLL_REDUCE, 5, SUM, 0));
	post(0, 3, 4, ahead);
	add_group(1, 0x6);
	post(1, 0, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert_eq(fail(1, failure(1, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_str_eq(text.chars,
	                 "barrier #1 of group 1: rank 2 (pid 102) did not come within 10 s: it is "
	                 "in send of group 0 (i32 x 9, to rank 3)");
}

Test(blame, what_a_rank_is_at_work_on_is_told)
{
	struct zi_board_call call = a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0);

	add_group(2, 0x3);
	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 8, call);
	boards[0][0].finished.value = boards[0][2].finished.value = 8;
	boards[0][3].finished.value = 8;
	post(2, 0, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert_eq(fail(0, failure(2, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "it is at work on all_reduce #8 of group 0 (f32 x "
	                                      "1048576, sum)"),
	                   "%s", text.chars);
}

Test(blame, a_call_that_a_member_refuses_is_over)
{
	struct zi_board_call call = a_call(ZI_COLL_ALL_REDUCE, 1 << 20, SUM, 0);
	struct coll_description seen;

	add_group(2, 0x3);
	for (uint32_t i = 0; i < RANKS; i++)
		post(0, i, 8, call);
	call.flags = ZI_BOARD_REFUSED;
	call.root = EINVAL;
	post(0, 3, 8, call);
	post(2, 0, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert(coll_describe(coll, 0, &seen));
	cr_expect_eq(seen.awaited_mask, 0);
	cr_assert_eq(fail(0, failure(2, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "it has made no call there"), "%s", text.chars);
}

/* Its root is not on the board: the errno is. */
Test(blame, a_call_that_its_member_refused_is_told_as_it_was_made)
{
	struct zi_board_call call = a_call(ZI_COLL_BROADCAST, 5, 0, EACCES);

	add_group(2, 0x3);
	call.flags = ZI_BOARD_REFUSED;
	post(2, 0, 1, call);
	cr_assert_eq(fail(0, failure(2, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_str_eq(text.chars,
	                 "broadcast #1 of group 2 (f32 x 5): rank 1 (pid 101) did not come within "
	                 "10 s: it has made no call there");
}

Test(blame, a_pair_with_oneself_or_nobody_is_the_reporters_word)
{
	struct zi_coll_fail report = failure(0, 0, -ETIMEDOUT);

	report.root = 77;
	cr_assert_eq(fail(1, report), -ETIMEDOUT);
	cr_expect_str_eq(text.chars, "rank 1 (pid 101) reports ETIMEDOUT of a call of group 0");
}

Test(blame, reports_on_groups_of_others_are_refused_and_break_nothing)
{
	add_group(5, 0x3);
	cr_expect_eq(fail(2, failure(5, 1, -ETIMEDOUT)), -EPERM);
	cr_expect_str_eq(text.chars, "rank 2 is no member of group 5");
	cr_expect_eq(fail(2, failure(6, 1, -ETIMEDOUT)), -EPERM);
	cr_expect_str_eq(text.chars, "there is no group 6");
	cr_expect_eq(fail(2, failure(ZI_GROUPS_MAX, 1, -ETIMEDOUT)), -EPERM);
	cr_expect_eq(fail(2, failure(UINT32_MAX, 1, -ETIMEDOUT)), -EPERM);
	cr_expect_not(coll_group_leave(coll, &coll->groups[5], 0));
	cr_expect_eq(fail(0, failure(5, 1, -ETIMEDOUT)), -EPERM);
	cr_expect_str_eq(text.chars, "rank 0 has freed group 5 before");
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		cr_expect_eq(verdict(i), 0);
}

Test(blame, reports_that_make_no_sense_break_nothing)
{
	const int errors[] = { 0, 1, 22, INT32_MAX, INT32_MIN, -4096 };

	for (uint32_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		cr_expect_eq(fail(0, failure(0, 1, errors[i])), -EINVAL);
		cr_expect_neq(text.chars[0], '\0');
	}
	cr_expect_eq(verdict(0), 0);
}

Test(blame, death_names_who_died_in_its_groups_alone)
{
	struct zi_text died = { "rank 2 (pid 102) died: process 102 died" };
	struct coll_description seen;

	add_group(1, 0x3); /* ranks 0 and 1 */
	add_group(2, 0xc); /* ranks 2 and 3 */
	add_group(3, 0x4); /* rank 2 alone */
	cr_expect_eq(coll_rank_gone(coll, 2, &died), 1u << 3, "nobody is left in group 3");
	cr_expect_eq(verdict(0), EPIPE);
	cr_expect_eq(verdict(1), 0);
	cr_expect_eq(verdict(2), EPIPE);
	cr_expect_not(coll_describe(coll, 3, &seen));
	cr_expect_eq(fail(3, failure(2, 0, 0)), -EPIPE);
	cr_expect_str_eq(text.chars, died.chars);
}

Test(blame, who_freed_a_group_does_not_break_it)
{
	struct zi_text left = { "rank 1 (pid 101) left" };

	add_group(1, 0x6);
	cr_expect_not(coll_group_leave(coll, &coll->groups[1], 1));
	cr_expect_eq(coll_rank_gone(coll, 1, &left), 0);
	cr_expect_eq(verdict(1), 0);
	cr_expect(coll_group_leave(coll, &coll->groups[1], 2), "the last one");
}

Test(blame, all_groups_end_with_the_incarnation)
{
	struct zi_text stale = { "a newer incarnation has taken over" };

	add_group(1, 0x6);
	coll_break_all(coll, -ESTALE, &stale);
	cr_expect_eq(verdict(0), ESTALE);
	cr_expect_eq(verdict(1), ESTALE);
	cr_expect_eq(verdict(2), 0);
	cr_expect_eq(fail(1, failure(1, 9, -ETIMEDOUT)), -ESTALE);
}

Test(blame, numbers_are_used_again_and_run_out_with_a_figure)
{
	uint32_t number = 0;

	for (uint32_t i = 1; i < ZI_GROUPS_MAX; i++) {
		cr_assert_eq(coll_group_choose(coll, 0, &text, &number), 0);
		cr_assert_eq(number, i);
		add_group(number, 0x1);
	}
	cr_assert_eq(coll_group_choose(coll, 0, &text, &number), -ENOSPC);
	cr_expect_not_null(strstr(text.chars, "64 groups"), "%s", text.chars);
	/* A verdict goes with the group that it was on. */
	cr_assert_eq(fail(0, failure(9, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_eq(verdict(9), ETIMEDOUT);
	cr_expect(coll_group_leave(coll, &coll->groups[9], 0));
	cr_assert_eq(coll_group_choose(coll, 0, &text, &number), 0);
	cr_assert_eq(number, 9);
	add_group(9, 0x3);
	cr_expect_eq(verdict(9), 0);
}

Test(blame, numbers_to_be_avoided_are_taken_last)
{
	uint32_t number = 0;

	cr_assert_eq(coll_group_choose(coll, 0x16, &text, &number), 0);
	cr_expect_eq(number, 3);
	cr_assert_eq(coll_group_choose(coll, UINT64_MAX, &text, &number), 0);
	cr_expect_eq(number, 1);
}

Test(blame, numbers_of_calls_may_wrap)
{
	post(0, 0, UINT32_MAX, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	for (uint32_t i = 1; i < RANKS; i++) {
		post(0, i, UINT32_MAX, a_call(ZI_COLL_BARRIER, 0, 0, 0));
		post(0, i, UINT32_MAX - 1, a_call(ZI_COLL_BROADCAST, 1, 0, 0));
	}
	post(0, 1, 2, a_call(ZI_COLL_BROADCAST, 1, 0, 0));
	post(0, 1, 1, a_call(ZI_COLL_BROADCAST, 1, 0, 0));
	post(0, 2, 1, a_call(ZI_COLL_BROADCAST, 1, 0, 0));
	post(0, 3, 1, a_call(ZI_COLL_BROADCAST, 1, 0, 0));
	cr_assert_eq(fail(1, failure(0, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_not_null(strstr(text.chars, "rank 0 (pid 100) did not come within 10 s: its last "
	                                      "call there is barrier #4294967295"),
	                   "%s", text.chars);
}

/* A small generator: what garbage a board holds must not matter. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

Test(blame, garbage_on_boards_breaks_no_more_than_its_group)
{
	uint64_t state = 88172645463325252ull;
	struct coll_description seen;

	for (uint32_t round = 0; round < 2000; round++) {
		uint64_t *words = (uint64_t *)boards[1];
		struct zi_coll_fail report = failure(1, 0, -(int)(1 + next_random(&state) % 4095));

		add_group(1, 0xf);
		for (size_t i = 0; i < sizeof(boards[1]) / (sizeof(*words)); i++)
			words[i] = next_random(&state);
		report.sequence = boards[1][0].posts[round % ZI_BOARD_SLOTS].sequence;
		report.culprit = (uint32_t)next_random(&state);
		report.root = (uint32_t)next_random(&state);
		report.operation = (uint8_t)next_random(&state);
		if (round % 3 == 0 || zi_verdict_is_spared(report.error))
			report.error = -ETIMEDOUT;
		cr_assert(coll_describe(coll, 1, &seen));
		cr_assert_eq(fail(0, report), report.error);
		cr_assert_not_null(memchr(text.chars, '\0', sizeof(text.chars)));
		cr_assert_eq(verdict(0), 0);
		for (uint32_t i = 0; i < RANKS; i++)
			(void)coll_group_leave(coll, &coll->groups[1], i);
	}
}

Test(blame, a_deadline_also_tells_who_calls_something_else)
{
	add_group(2, 0x7);
	post(2, 0, 1, a_call(ZI_COLL_ALL_REDUCE, 5, ZI_REDUCE_SUM, 0));
	post(2, 2, 1, a_call(ZI_COLL_BARRIER, 0, 0, 0));
	cr_assert_eq(fail(0, failure(2, 1, -ETIMEDOUT)), -ETIMEDOUT);
	cr_expect_str_eq(text.chars,
	                 "all_reduce #1 of group 2 (f32 x 5, sum): rank 1 (pid 101) did not come "
	                 "within 10 s: it has made no call there; and rank 2 (pid 102) calls "
	                 "barrier");
}
