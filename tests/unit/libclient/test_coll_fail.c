/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a call of collectives that fails is explained by the daemon, in words that are asked for
 * once and then kept; a daemon that is silent or gone holds nobody up; tickets tell their failures
 * when they are waited for. Method: the fake daemon, which serves one rank whose peers never come.
 */
#include "common/wire/board.h"
#include "tests/unit/libclient/coll.h"

Test(coll_fail, a_deadline_is_explained_by_the_daemon_once_and_kept)
{
	struct fake_job job = begin(&honest, 1, 2);
	const struct zi_coll_fail *told;

	cr_assert_eq(all_reduce(job.zinf, ZINF_GROUP_WORLD, 5), -ETIMEDOUT);
	expect_text(job.zinf, "rank 0 (pid 4711) did not come");
	told = fake_daemon_coll_fail(job.fake);
	cr_assert_eq(told->group, 0);
	cr_assert_eq(told->error, -ETIMEDOUT);
	cr_assert_eq(told->sequence, 1);
	cr_assert_eq(told->timeout_ms, 5);
	cr_assert_eq(told->operation, ZI_COLL_ALL_REDUCE);
	cr_assert_eq(told->dtype, ZI_DTYPE_F32);
	cr_assert_eq(told->reduce_op, ZI_REDUCE_SUM);
	cr_assert_eq(told->element_count, 4);
	cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -ETIMEDOUT, "at once");
	expect_text(job.zinf, "rank 0 (pid 4711) did not come");
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_FAIL)), 1);
	cr_assert_eq(zinf_ping(job.zinf), 0, "the session goes on");
	fake_job_leave(&job);
}

Test(coll_fail, a_verdict_ends_the_next_call_with_the_daemons_words)
{
	struct fake_job job = begin(
		&(struct fake_daemon_options){
			.fail_on = FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_FAIL),
			.fail_error = -EPIPE,
			.fail_text = "rank 0 (pid 4711) died: killed by signal 9" },
		1, 2);

	fake_daemon_judge(job.fake, 0, EPIPE);
	cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -EPIPE);
	expect_text(job.zinf, "killed by signal 9");
	cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -EPIPE);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_FAIL)), 1);
	fake_job_leave(&job);
}

Test(coll_fail, a_daemon_that_does_not_say_why_is_not_waited_for)
{
	struct fake_job job = begin(
		&(struct fake_daemon_options){ .silent_on = FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_FAIL) },
		1, 2);

	cr_assert_eq(all_reduce(job.zinf, ZINF_GROUP_WORLD, 5), -ETIMEDOUT);
	expect_text(job.zinf, "does not say why");
	cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -ETIMEDOUT);
	fake_job_leave(&job);
}

Test(coll_fail, a_daemon_that_is_gone_ends_who_waits_for_others)
{
	struct fake_job job = begin(&honest, 1, 2);
	uint64_t begin_ns = zi_clock_now_ns();

	fake_daemon_die(job.fake);
	cr_assert_eq(all_reduce(job.zinf, ZINF_GROUP_WORLD, 20000), -ESTALE);
	expect_text(job.zinf, "went away");
	cr_assert_lt(zi_clock_now_ns() - begin_ns, 19 * ZI_NS_PER_S, "not the deadline");
	cr_assert_eq(zinf_coll_barrier(job.zinf, NULL), -ESTALE);
	fake_job_leave(&job);
}

Test(coll_fail, other_groups_go_on_when_the_training_group_broke)
{
	struct fake_job job =
		begin(&(struct fake_daemon_options){ .break_on = FAKE_ON_OP(ZI_OP_NOP) }, 1, 2);
	zinf_group group;

	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 1 }, 1, NULL, &group), 0);
	cr_assert_eq(zinf_ping(job.zinf), -EPIPE);
	cr_assert_eq(all_reduce(job.zinf, group, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_coll_group_free(job.zinf, group), 0);
	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 1 }, 1, NULL, &group), -EPIPE,
	             "needs all ranks");
	fake_job_leave(&job);
}

Test(coll_fail, the_end_of_the_training_group_does_not_hide_why_another_broke)
{
	/* The NOTICE comes before the answer to COLL_FAIL, and answers nothing. */
	struct fake_job job = begin(&honest, 1, 2);

	fake_daemon_break(job.fake);
	cr_assert_eq(all_reduce(job.zinf, ZINF_GROUP_WORLD, 5), -ETIMEDOUT);
	expect_text(job.zinf, "rank 0 (pid 4711) did not come");
	cr_assert_eq(zinf_ping(job.zinf), -EPIPE);
	expect_text(job.zinf, "rank 1 (pid 4711) died");
	fake_job_leave(&job);
}

Test(coll_fail, an_abort_asks_the_daemon_whatever_became_of_the_training_group)
{
	struct fake_job job = begin(&honest, 1, 2);
	zinf_group group;

	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0 }, 1, NULL, &group), 0);
	cr_assert_eq(group, ZINF_GROUP_NONE);
	cr_assert_eq(zinf_coll_abort(job.zinf, group, "no"), -EPERM);
	cr_assert_eq(zinf_coll_abort(job.zinf, 17, "no"), -EINVAL);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_ABORT)), 0);
	fake_daemon_break(job.fake);
	cr_assert_eq(zinf_coll_abort(job.zinf, ZINF_GROUP_WORLD, NULL), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_ABORT)), 1);
	fake_job_leave(&job);
}

/* Of 63 characters of two bytes and one more byte all fit, of 64 and that the last does not. */
Test(coll_fail, the_reason_of_an_abort_is_cut_behind_a_whole_character)
{
	struct fake_job job = begin(&honest, 1, 2);
	char reason[160] = "";

	for (uint32_t i = 0; i < 64; i++)
		memcpy(reason + 2 * (size_t)i, "×", 3);
	reason[127] = '\0';
	memcpy(reason + 126, "!", 2);
	cr_assert_eq(zinf_coll_abort(job.zinf, ZINF_GROUP_WORLD, reason), 0);
	cr_expect_str_eq(fake_daemon_coll_abort(job.fake)->reason, reason);
	memcpy(reason + 126, "× and more", 12);
	cr_assert_eq(zinf_coll_abort(job.zinf, ZINF_GROUP_WORLD, reason), 0);
	reason[126] = '\0';
	cr_expect_str_eq(fake_daemon_coll_abort(job.fake)->reason, reason);
	fake_job_leave(&job);
}

Test(coll_fail, an_abort_needs_a_daemon)
{
	struct fake_job job = begin(&honest, 1, 2);

	fake_daemon_die(job.fake);
	cr_assert_eq(zinf_coll_abort(job.zinf, ZINF_GROUP_WORLD, "gone"), -ESTALE);
	fake_job_leave(&job);
}

Test(coll_fail, an_older_daemon_knows_no_abort)
{
	struct fake_job job =
		begin(&(struct fake_daemon_options){ .features = ZI_FEATURE_COLLECTIVES |
	                                                         ZI_FEATURE_COLL_VERSION },
	              1, 2);

	cr_assert_eq(zinf_coll_abort(job.zinf, ZINF_GROUP_WORLD, "no"), -EOPNOTSUPP);
	expect_text(job.zinf, "use a newer one");
	fake_job_leave(&job);
}

/* ---- tickets ---- */

Test(coll_fail, a_ticket_is_waited_for_once)
{
	struct fake_job job = begin(&honest, 0, 1);
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	float data[4] = { 1, 2, 3, 4 };
	zinf_ticket ticket = 0, other;
	bool is_done = false;

	options.ret_ticket = &ticket;
	cr_assert_eq(zinf_coll_all_reduce(job.zinf, data, data, 4, ZINF_F32, ZINF_SUM, &options), 0,
	             "%s", zinf_error_text(job.zinf));
	while (!is_done)
		cr_assert_eq(zinf_test(job.zinf, ticket, &is_done), 0);
	cr_assert_eq(zinf_cancel(job.zinf, ticket), -EALREADY);
	cr_assert_eq(zinf_wait_for(job.zinf, ticket, 0, NULL), -EINVAL);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -EINVAL);
	expect_text(job.zinf, "waited for before");
	cr_assert_eq(zinf_test(job.zinf, ticket, &is_done), -EINVAL);
	cr_assert_eq(zinf_cancel(job.zinf, ticket), -EINVAL);
	options.ret_ticket = &other;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0);
	cr_assert_neq(other, ticket);
	cr_assert_eq(zinf_wait_for(job.zinf, other, 20000, NULL), 0);
	fake_job_leave(&job);
}

Test(coll_fail, a_ticket_that_fails_tells_it_when_it_is_waited_for)
{
	struct fake_job job = begin(&honest, 1, 2);
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket ticket = 0;
	zinf_group group;

	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0, 1 }, 2, NULL, &group), 0);
	options.group = group;
	options.ret_ticket = &ticket;
	options.timeout_ms = 20;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_coll_group_free(job.zinf, group), -EBUSY);
	expect_text(job.zinf, "1 calls of group 1 were not waited for");
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -ETIMEDOUT);
	expect_text(job.zinf, "rank 0 (pid 4711) did not come");
	cr_assert_eq(fake_daemon_coll_fail(job.fake)->operation, ZI_COLL_BARRIER);
	cr_assert_eq(zinf_coll_group_free(job.zinf, group), 0);
	fake_job_leave(&job);
}

/* The second has no time to wait for the first, which has: the daemon is told of the call that is
 * awaited, and of the time that was too short, whichever ticket is waited for first. */
Test(coll_fail, who_waits_behind_a_longer_call_is_told_of_it_with_its_own_time)
{
	for (uint32_t first = 0; first < 2; first++) {
		struct fake_job job = begin(&honest, 1, 2);
		struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
		const struct zi_coll_fail *told;
		float data[4] = { 1, 2, 3, 4 };
		zinf_ticket tickets[2];

		options.timeout_ms = 600000;
		options.ret_ticket = &tickets[0];
		cr_assert_eq(
			zinf_coll_all_reduce(job.zinf, data, data, 4, ZINF_F32, ZINF_SUM, &options),
			0);
		options.timeout_ms = 7;
		options.ret_ticket = &tickets[1];
		cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0);
		for (uint32_t i = 0; i < 2; i++) {
			cr_assert_eq(zinf_wait(job.zinf, tickets[i ^ first], NULL), -ETIMEDOUT);
			expect_text(job.zinf, "rank 0 (pid 4711) did not come");
		}
		told = fake_daemon_coll_fail(job.fake);
		cr_expect_eq(told->sequence, 1);
		cr_expect_eq(told->operation, ZI_COLL_ALL_REDUCE);
		cr_expect_eq(told->culprit, 0);
		cr_expect_eq(told->timeout_ms, 7);
		fake_job_leave(&job);
	}
}

Test(coll_fail, tickets_that_nobody_waits_for_are_counted)
{
	struct fake_job job = begin(&honest, 0, 1);
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	static zinf_ticket tickets[1024];
	zinf_ticket more = 0;

	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 1024; i++) {
			options.ret_ticket = &tickets[i];
			cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0, "%s",
			             zinf_error_text(job.zinf));
		}
		options.ret_ticket = &more;
		cr_assert_eq(zinf_coll_barrier(job.zinf, &options), -ENOBUFS);
		expect_text(job.zinf, "1024 calls were never waited for");
		cr_assert_eq(more, 0);
		for (uint32_t i = 0; i < 1024; i++)
			cr_assert_eq(zinf_wait(job.zinf, tickets[i], NULL), 0);
		cr_assert_eq(zinf_wait(job.zinf, tickets[7], NULL), -EINVAL);
	}
	fake_job_leave(&job);
}

/* What is under way ends with the session, whoever waits for it. */
Test(coll_fail, leaving_ends_what_nobody_waited_for)
{
	struct fake_job job = begin(&honest, 1, 2);
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	uint64_t begin_ns = zi_clock_now_ns();
	zinf_ticket tickets[3];

	for (uint32_t i = 0; i < 3; i++) {
		options.ret_ticket = &tickets[i];
		cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0);
	}
	fake_job_leave(&job);
	cr_assert_lt(zi_clock_now_ns() - begin_ns, 19 * ZI_NS_PER_S, "not the deadline");
}
