/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever becomes of the daemon or the group, no call hangs, crashes or forgets why: the
 * first reason is returned at once by every call from then on. Method: the fake daemon dies, breaks
 * the group, falls silent or lies, at each kind of call; times are bounded. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "libclient/client.h"
#include "tests/fake/fake_job.h"

/* Every call that can fail, with what it should return once the session is over. */
static void expect_all(struct zinf *zinf, int error)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	uint64_t before_ns = zi_clock_now_ns();
	zinf_ticket ticket;
	uint32_t index;
	size_t bytes;

	cr_expect_eq(zinf_ping(zinf), error);
	cr_expect_eq(zinf_barrier(zinf), error);
	cr_expect_eq(zinf_unit_add(zinf, "x", &index), error);
	cr_expect_eq(zinf_param_add(zinf, "x", 0, NULL, &index), error);
	cr_expect_eq(zinf_materialize(zinf), error);
	cr_expect_eq(zinf_param_write_begin(zinf, 0), error);
	cr_expect_eq(zinf_param_write_end(zinf, 0, 0), error);
	cr_expect_eq(zinf_commit(zinf, NULL, 0), error);
	cr_expect_eq(zinf_blob_get(zinf, NULL, 0, &bytes), error);
	cr_expect_eq(zinf_unshard(zinf, 0), error);
	cr_expect_eq(zinf_reshard(zinf, 0), error);
	cr_expect_eq(zinf_prefetch(zinf, 0), error);
	cr_expect_eq(zinf_grad_acquire(zinf, 0), error);
	cr_expect_eq(zinf_reduce(zinf, 0), error);
	cr_expect_eq(zinf_step_begin(zinf, &step), error);
	cr_expect_eq(zinf_step(zinf, NULL, 0, &ticket), error);
	cr_expect_eq(zinf_destroy_job(zinf), error);
	cr_expect_lt(zi_clock_now_ns() - before_ns, ZI_NS_PER_S, "at once");
}

static bool is_readable(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	return poll(&ready, 1, 0) == 1;
}

/* Calls that wait, by number; the fake daemon meets each with a fault. */
static const unsigned waiting_on[] = {
	FAKE_ON_OP(ZI_OP_NOP),
	FAKE_ON_OP(ZI_OP_BARRIER),
	FAKE_ON_OP(ZI_OP_UNSHARD),
	FAKE_ON_OP(ZI_OP_GRAD_ACQUIRE),
	FAKE_ON_OP(ZI_OP_STEP_BEGIN),
	FAKE_ON_OP(ZI_OP_COMMIT),
	FAKE_ON_OP(ZI_OP_STEP),
	FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_BEGIN),
	FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_END),
	FAKE_ON_MESSAGE(ZI_MESSAGE_BLOB_GET),
};
#define WAITING_COUNT (sizeof(waiting_on) / sizeof(waiting_on[0]))

/* What the daemon answers before call(). */
static void prepare(struct fake_job *job, unsigned on)
{
	if (on == FAKE_ON_OP(ZI_OP_STEP))
		fake_job_backward(job);
	if (on == FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_END))
		cr_assert_eq(zinf_param_write_begin(job->zinf, 0), 0);
}

static int call(struct fake_job *job, unsigned on)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;
	size_t bytes;

	switch (on) {
	case FAKE_ON_OP(ZI_OP_NOP):
		return zinf_ping(job->zinf);
	case FAKE_ON_OP(ZI_OP_BARRIER):
		return zinf_barrier(job->zinf);
	case FAKE_ON_OP(ZI_OP_UNSHARD):
		return zinf_unshard(job->zinf, 0);
	case FAKE_ON_OP(ZI_OP_GRAD_ACQUIRE):
		return zinf_grad_acquire(job->zinf, 0);
	case FAKE_ON_OP(ZI_OP_STEP_BEGIN):
		return zinf_step_begin(job->zinf, &step);
	case FAKE_ON_OP(ZI_OP_COMMIT):
		return zinf_commit(job->zinf, NULL, 0);
	case FAKE_ON_OP(ZI_OP_STEP):
		cr_assert_eq(zinf_step(job->zinf, NULL, 0, &ticket), 0);
		return zinf_wait(job->zinf, ticket, NULL);
	case FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_BEGIN):
		return zinf_param_write_begin(job->zinf, 0);
	case FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_END):
		return zinf_param_write_end(job->zinf, 0, 0);
	default:
		return zinf_blob_get(job->zinf, NULL, 0, &bytes);
	}
}

Test(end, daemon_that_dies_in_any_call_is_estale_at_once_and_for_ever)
{
	for (size_t i = 0; i < WAITING_COUNT; i++)
		for (uint32_t spin_us = 0; spin_us <= 100; spin_us += 100) {
			struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
				.die_on = waiting_on[i], .spin_us = spin_us });
			uint64_t before_ns = zi_clock_now_ns();

			fake_job_materialize(&job);
			cr_assert_not(is_readable(zinf_event_fd(job.zinf)));
			prepare(&job, waiting_on[i]);
			cr_expect_eq(call(&job, waiting_on[i]), -ESTALE, "%zu", i);
			expect_text(job.zinf, "went away; attach again: the job is at its last "
			                      "committed step");
			expect_text(job.zinf, fake_daemon_path(job.fake));
			cr_expect(is_readable(zinf_event_fd(job.zinf)));
			expect_all(job.zinf, -ESTALE);
			cr_expect_lt(zi_clock_now_ns() - before_ns,
			             FAKE_JOB_TIMEOUT_MS * ZI_NS_PER_MS, "not by its deadline");
			fake_job_leave(&job);
		}
}

Test(end, daemon_that_dies_between_calls_is_found_and_memory_stays)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ 0 });
	const volatile char *data;

	fake_job_materialize(&job);
	data = zinf_param_data(job.zinf, 0);
	fake_daemon_die(job.fake);
	cr_assert(is_readable(zinf_event_fd(job.zinf)));
	cr_assert_eq(zinf_ping(job.zinf), -ESTALE);
	cr_assert_eq(data[0], 1, "no SIGBUS");
	*(volatile char *)zinf_grad_data(job.zinf, 0) = 1;
	fake_job_leave(&job);
}

Test(end, step_that_was_committed_before_the_end_is_reported_so)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ 0 });
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	zinf_ticket ticket;

	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_ping(job.zinf), 0, "it is done");
	fake_daemon_die(job.fake);
	cr_assert_eq(zinf_ping(job.zinf), -ESTALE);
	cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), 0);
	cr_assert_eq(stats.step, 1);
	fake_job_leave(&job);
}

/* Its completion lies in the ring, and is not taken. */
Test(end, a_daemon_that_broke_the_protocol_is_believed_nothing_more, .timeout = 120)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ 0 });
	zinf_ticket ticket;

	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	while (!zi_ring_has_work(&job.zinf->cq))
		(void)sched_yield();
	cr_assert_eq(zi_client_breach(job.zinf, "garbage on the socket"), -EPROTO);
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), -EPROTO);
	expect_text(job.zinf, "garbage on the socket");
	fake_job_leave(&job);
}

Test(end, last_completion_of_a_dying_daemon_still_counts)
{
	for (int i = 0; i < 50; i++) {
		struct fake_job job = fake_job_attach(
			&(struct fake_daemon_options){ .last_on = FAKE_ON_OP(ZI_OP_STEP) });
		zinf_ticket ticket;

		fake_job_materialize(&job);
		fake_job_backward(&job);
		cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
		cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0, "it was committed");
		cr_assert_eq(zinf_ping(job.zinf), -ESTALE);
		fake_job_leave(&job);
	}
}

Test(end, broken_group_is_told_with_the_text_of_its_notice)
{
	for (size_t i = 0; i < WAITING_COUNT; i++) {
		struct fake_job job =
			fake_job_attach(&(struct fake_daemon_options){ .break_on = waiting_on[i] });

		fake_job_materialize(&job);
		prepare(&job, waiting_on[i]);
		cr_expect_eq(call(&job, waiting_on[i]), -EPIPE, "%zu", i);
		expect_text(job.zinf, "rank 1 (pid 4711) died");
		cr_expect(is_readable(zinf_event_fd(job.zinf)));
		expect_all(job.zinf, -EPIPE);
		expect_text(job.zinf, "rank 1 (pid 4711) died");
		zinf_detach(job.zinf);
		cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_DETACH)), 1,
		             "it takes its leave all the same");
		fake_daemon_stop(job.fake);
	}
}

Test(end, broken_word_counts_also_when_its_notice_never_comes)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.break_on = FAKE_ON_OP(ZI_OP_BARRIER), .is_break_silent = true });

	fake_job_materialize(&job);
	cr_assert_eq(zinf_barrier(job.zinf), -EPIPE);
	expect_text(job.zinf, "Broken pipe");
	expect_all(job.zinf, -EPIPE);
	fake_job_leave(&job);
}

Test(end, silent_daemon_is_etimedout_and_the_session_goes_on)
{
	for (size_t i = 0; i < WAITING_COUNT; i++) {
		struct fake_job job = fake_job_attach(
			&(struct fake_daemon_options){ .silent_on = waiting_on[i] });

		fake_job_materialize(&job);
		prepare(&job, waiting_on[i]);
		fake_job_limit_time(&job, 40);
		cr_expect_eq(call(&job, waiting_on[i]), -ETIMEDOUT, "%zu", i);
		expect_text(job.zinf, "within 40 ms");
		if (i) /* The first is the ping. */
			fake_job_limit_time(&job, FAKE_JOB_TIMEOUT_MS);
		cr_expect_eq(zinf_ping(job.zinf), i ? 0 : -ETIMEDOUT, "%zu", i);
		fake_job_leave(&job);
	}
}

Test(end, call_made_again_after_a_deadline_waits_for_the_same_operation)
{
	struct fake_job job = fake_job_attach(
		&(struct fake_daemon_options){ .silent_on = FAKE_ON_OP(ZI_OP_UNSHARD) });

	fake_job_materialize(&job);
	fake_job_limit_time(&job, 30);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(zinf_unshard(job.zinf, 0), -ETIMEDOUT);
	fake_job_limit_time(&job, FAKE_JOB_TIMEOUT_MS);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_UNSHARD)), 1);
	fake_job_leave(&job);
}

Test(end, late_reply_is_not_taken_for_another_ones)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.late_on = FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_END), .blob_bytes = 10 });
	size_t bytes;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_param_write_begin(job.zinf, 0), 0);
	fake_job_limit_time(&job, 40);
	cr_assert_eq(zinf_param_write_end(job.zinf, 0, 0), -ETIMEDOUT);
	fake_job_limit_time(&job, FAKE_JOB_TIMEOUT_MS);
	cr_assert_eq(zinf_blob_get(job.zinf, NULL, 0, &bytes), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(bytes, 10);
	cr_assert_eq(zinf_param_write_end(job.zinf, 0, 0), 0, "and it may be made again");
	fake_job_leave(&job);
}

Test(end, detach_does_not_wait_for_a_daemon_that_says_nothing)
{
	struct fake_job job = fake_job_attach(
		&(struct fake_daemon_options){ .silent_on = FAKE_ON_MESSAGE(ZI_MESSAGE_DETACH) });
	uint64_t before_ns;

	fake_job_limit_time(&job, 40);
	before_ns = zi_clock_now_ns();
	fake_job_leave(&job);
	cr_assert_lt(zi_clock_now_ns() - before_ns, FAKE_JOB_TIMEOUT_MS * ZI_NS_PER_MS);
}

Test(end, lying_rings_are_eproto_and_end_the_session)
{
	const struct {
		enum fake_lie lie;
		const char *word;
	} cases[] = {
		{ FAKE_LIE_CQ_TAIL, "tail" },
		{ FAKE_LIE_CQE_UNKNOWN, "completion of nothing" },
		{ FAKE_LIE_CQE_TWICE, "completion of nothing" },
		{ FAKE_LIE_CQE_TEXT, "completion of nothing" },
		{ FAKE_LIE_SQ_HEAD, "head" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake_job job =
			fake_job_attach(&(struct fake_daemon_options){ .lie = cases[i].lie });
		int r = 0;

		fake_job_materialize(&job);
		for (int k = 0; k < 40 && !r; k++)
			r = zinf_ping(job.zinf);
		cr_expect_eq(r, -EPROTO, "%zu", i);
		expect_text(job.zinf, cases[i].word);
		expect_all(job.zinf, -EPROTO);
		fake_job_leave(&job);
	}
}

/* zinfd asks the other nodes only after the deadline, and its answer names the one that is lost. */
Test(end, over_several_nodes_the_nodes_have_time_to_answer)
{
	struct zinf zinf = { .timeout_ns = 10 * ZI_NS_PER_S };
	uint64_t before_ns = zi_clock_now_ns(), here_ns, over_nodes_ns;

	here_ns = zi_client_deadline_ns(&zinf);
	cr_expect_geq(here_ns, before_ns + zinf.timeout_ns);
	zinf.attach.local_world_size = 2;
	over_nodes_ns = zi_client_deadline_ns(&zinf);
	cr_expect_geq(over_nodes_ns, here_ns + 2 * ZI_NODE_ANSWER_NS);
}
