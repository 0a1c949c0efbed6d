/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a collective that was interrupted stays under way with its first deadline, is gone on with
 * by the same call only, and can be given up when its group is broken. Method: the fake daemon,
 * which serves one rank whose peers never come; interrupts that come before the call, and from a
 * thread. */
#include <sched.h>

#include "common/base/thread.h"
#include "libclient/coll/collective.h"
#include "tests/unit/libclient/coll.h"

static float values[8], others[8];

static int sum(struct zinf *zinf, zinf_group group, uint32_t timeout_ms)
{
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	options.group = group;
	options.timeout_ms = timeout_ms;
	return zinf_coll_all_reduce(zinf, values, others, 8, ZINF_F32, ZINF_SUM, &options);
}

static int interrupted_sum(struct zinf *zinf, zinf_group group, uint32_t timeout_ms)
{
	zinf_interrupt(zinf);
	return sum(zinf, group, timeout_ms);
}

#define expect_other_refused(zinf, call)                      \
	do {                                                  \
		cr_expect_eq(call, -EBUSY);                   \
		expect_text(zinf, "was interrupted: repeat"); \
	} while (0)

Test(coll_interrupt, same_call_goes_on_and_any_other_is_refused)
{
	struct fake_job job = begin(&honest, 1, 2);
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket ticket;

	cr_assert_eq(interrupted_sum(job.zinf, ZINF_GROUP_WORLD, 0), -EINTR);
	expect_text(job.zinf, "interrupted by zinf_interrupt(): repeat the call");
	cr_assert_eq(interrupted_sum(job.zinf, ZINF_GROUP_WORLD, 0), -EINTR);
	expect_other_refused(job.zinf, zinf_coll_barrier(job.zinf, NULL));
	expect_text(job.zinf, "group 0: all_reduce was");
	expect_other_refused(job.zinf, zinf_coll_all_reduce(job.zinf, values, values, 8, ZINF_F32,
	                                                    ZINF_SUM, NULL));
	expect_other_refused(job.zinf, zinf_coll_all_reduce(job.zinf, values, others, 7, ZINF_F32,
	                                                    ZINF_SUM, NULL));
	expect_other_refused(job.zinf, zinf_coll_all_reduce(job.zinf, values, others, 8, ZINF_F32,
	                                                    ZINF_MAX, NULL));
	expect_other_refused(job.zinf, zinf_coll_send(job.zinf, values, 8, ZINF_F32, 0, NULL));
	options.ret_ticket = &ticket;
	expect_other_refused(job.zinf, zinf_coll_all_reduce(job.zinf, values, others, 8, ZINF_F32,
	                                                    ZINF_SUM, &options));
	cr_expect_eq(zinf_ping(job.zinf), 0);
	fake_job_leave(&job);
}

Test(coll_interrupt, first_deadline_stays)
{
	struct fake_job job = begin(&honest, 1, 2);

	cr_assert_eq(interrupted_sum(job.zinf, ZINF_GROUP_WORLD, 20), -EINTR);
	cr_assert_eq(sum(job.zinf, ZINF_GROUP_WORLD, 0), -ETIMEDOUT, "not 20 s later");
	cr_expect_eq(fake_daemon_coll_fail(job.fake)->sequence, 1u);
	cr_expect_eq(fake_daemon_coll_fail(job.fake)->timeout_ms, 20u);
	cr_expect_eq(zinf_coll_barrier(job.zinf, NULL), -ETIMEDOUT, "the group is broken");
	cr_expect_null(job.zinf->coll->groups[0]->interrupted);
	fake_job_leave(&job);
}

Test(coll_interrupt, verdict_ends_the_repeated_call)
{
	struct fake_job job = begin(
		&(struct fake_daemon_options){ .fail_on = FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_FAIL),
	                                       .fail_error = -EPIPE,
	                                       .fail_text = "rank 0 died" },
		1, 2);

	cr_assert_eq(interrupted_sum(job.zinf, ZINF_GROUP_WORLD, 0), -EINTR);
	fake_daemon_judge(job.fake, 0, EPIPE);
	zinf_interrupt(job.zinf);
	cr_expect_eq(sum(job.zinf, ZINF_GROUP_WORLD, 0), -EPIPE, "it counts more");
	expect_text(job.zinf, "rank 0 died");
	fake_job_leave(&job);
}

Test(coll_interrupt, messages_go_on_as_well)
{
	struct fake_job job = begin(&honest, 1, 2);
	const struct zinf_coll_p2p ops[2] = {
		{ .is_send = 1, .data = values, .count = 8, .dtype = ZINF_F32 },
		{ .data = others, .count = 8, .dtype = ZINF_F32 },
	};
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;

	options.timeout_ms = 20;
	zinf_interrupt(job.zinf);
	cr_assert_eq(zinf_coll_batch(job.zinf, ops, 2, &options), -EINTR);
	expect_other_refused(job.zinf, zinf_coll_batch(job.zinf, ops, 1, NULL));
	expect_other_refused(job.zinf, zinf_coll_batch(job.zinf, ops, 0, NULL));
	expect_other_refused(job.zinf, zinf_coll_recv(job.zinf, values, 8, ZINF_F32, 0, NULL));
	expect_text(job.zinf, "a call with messages was");
	expect_other_refused(job.zinf, sum(job.zinf, ZINF_GROUP_WORLD, 0));
	zinf_interrupt(job.zinf);
	cr_expect_eq(zinf_coll_batch(job.zinf, ops, 2, NULL), -EINTR);
	cr_expect_eq(zinf_coll_batch(job.zinf, ops, 2, NULL), -ETIMEDOUT);
	fake_job_leave(&job);
}

/* A call behind one with a ticket is made by the thread, and stays there. */
Test(coll_interrupt, call_behind_a_ticket_and_the_ticket_go_on)
{
	struct fake_job job = begin(&honest, 1, 2);
	struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
	zinf_ticket ticket;

	options.ret_ticket = &ticket;
	options.timeout_ms = 300;
	cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0);
	cr_assert_eq(interrupted_sum(job.zinf, ZINF_GROUP_WORLD, 0), -EINTR);
	cr_assert_eq(interrupted_sum(job.zinf, ZINF_GROUP_WORLD, 0), -EINTR);
	expect_other_refused(job.zinf, zinf_coll_barrier(job.zinf, NULL));
	zinf_interrupt(job.zinf);
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), -EINTR);
	zinf_interrupt(job.zinf);
	cr_expect_eq(zinf_wait_for(job.zinf, ticket, 20000, NULL), -EINTR);
	cr_expect_eq(sum(job.zinf, ZINF_GROUP_WORLD, 0), -ETIMEDOUT, "with the ticket's");
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), -ETIMEDOUT);
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), -EINVAL, "once");
	fake_job_leave(&job);
}

Test(coll_interrupt, group_is_freed_only_when_it_is_broken)
{
	for (int is_queued = 0; is_queued < 2; is_queued++) {
		struct fake_job job = begin(&honest, 1, 2);
		struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
		zinf_ticket ticket;
		zinf_group group;

		cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 0, 1 }, 2, NULL, &group), 0);
		options.ret_ticket = &ticket;
		if (is_queued)
			cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0);
		cr_assert_eq(interrupted_sum(job.zinf, group, 0), -EINTR);
		expect_other_refused(job.zinf, zinf_coll_group_free(job.zinf, group));
		cr_expect_eq(zinf_coll_abort(job.zinf, group, "given up"), 0);
		fake_daemon_judge(job.fake, group, ECONNABORTED);
		cr_expect_eq(zinf_coll_group_free(job.zinf, group), 0, "%s",
		             zinf_error_text(job.zinf));
		cr_expect_eq(sum(job.zinf, group, 0), -EINVAL, "it is freed");
		fake_daemon_judge(job.fake, 0, EPIPE); /* leaving waits for nobody */
		fake_job_leave(&job);
	}
}

static int interrupt_sleeper(void *arg)
{
	struct zinf *zinf = arg;
	struct zi_board_member *self = &zinf->coll->groups[0]->node.meet.members[1];

	while (!zi_line_load(&self->sleeping))
		(void)sched_yield();
	zinf_interrupt(zinf);
	return 0;
}

Test(coll_interrupt, sleeper_is_woken_by_another_thread)
{
	struct fake_job job = begin(&honest, 1, 2);
	struct zi_thread thread = { 0 };

	cr_assert_eq(zi_thread_start(&thread, "interrupts", interrupt_sleeper, job.zinf), 0);
	cr_assert_eq(sum(job.zinf, ZINF_GROUP_WORLD, 0), -EINTR);
	cr_assert_eq(zi_thread_join(&thread), 0);
	fake_daemon_judge(job.fake, 0, EPIPE);
	fake_job_leave(&job);
}

/* Requests of a failing call are not sent behind one that is pending. */
Test(coll_interrupt, pending_request_refuses_leaving_and_aborting_a_group)
{
	struct fake_job job = begin(&(struct fake_daemon_options){ .features = UINT64_MAX }, 1, 2);
	zinf_group group;

	cr_assert_eq(zinf_coll_group(job.zinf, (uint32_t[]){ 1 }, 1, NULL, &group), 0);
	job.zinf->pending.is_open = true;
	job.zinf->pending.type = ZI_MESSAGE_COLL_GROUP;
	cr_expect_eq(zinf_coll_group_free(job.zinf, group), -EBUSY);
	expect_text(job.zinf, "zinf_coll_group() was interrupted");
	cr_expect_eq(zinf_coll_abort(job.zinf, group, "no"), -EBUSY);
	job.zinf->pending.is_open = false;
	cr_expect_eq(zinf_coll_group_free(job.zinf, group), 0);
	fake_daemon_judge(job.fake, 0, EPIPE);
	fake_job_leave(&job);
}
