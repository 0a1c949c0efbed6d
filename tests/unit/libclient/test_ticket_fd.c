/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: zinf_ticket_fd() is readable when a ticket has completed, whoever took the completion in
 * and whenever the descriptor was asked for, and unreadable after zinf_ticket_clear(). Method: the
 * fake daemon answers what it held when the test says so; a second thread waits by the documented
 * rule. */
#include <poll.h>
#include <pthread.h>

#include "common/base/thread.h"
#include "tests/unit/libclient/coll.h"

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	return poll(&ready, 1, timeout_ms) == 1;
}

static struct fake_job attach_held(unsigned on)
{
	return fake_job_attach(
		&(struct fake_daemon_options){ .features = UINT64_MAX, .hold_on = on });
}

static zinf_ticket begin_step(struct fake_job *job)
{
	zinf_ticket ticket;

	fake_job_backward(job);
	cr_assert_eq(zinf_step(job->zinf, NULL, 0, &ticket), 0);
	return ticket;
}

/* As a loop does: until the ticket is done, or nothing came. */
static bool comes(struct zinf *zinf, zinf_ticket ticket)
{
	bool is_done = false;

	for (int i = 0; i < 100; i++) {
		cr_assert_eq(zinf_ticket_clear(zinf), 0, "%s", zinf_error_text(zinf));
		cr_assert_eq(zinf_test(zinf, ticket, &is_done), 0);
		if (is_done || !is_readable(zinf_ticket_fd(zinf), FAKE_JOB_TIMEOUT_MS))
			return is_done;
	}
	return false;
}

Test(ticket_fd, step_that_completes_makes_it_readable)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_STEP));
	zinf_ticket ticket;
	bool is_done;
	int fd;

	cr_expect_eq(zinf_ticket_clear(job.zinf), -EINVAL);
	expect_text(job.zinf, "zinf_ticket_fd() first");
	fake_job_materialize(&job);
	fd = zinf_ticket_fd(job.zinf);
	cr_assert_geq(fd, 0);
	cr_expect_eq(zinf_ticket_fd(job.zinf), fd);
	ticket = begin_step(&job);
	/* What did not wait completes behind that. */
	cr_assert_eq(zinf_ticket_clear(job.zinf), 0);
	cr_assert_eq(zinf_test(job.zinf, ticket, &is_done), 0);
	cr_expect_not(is_done);
	fake_daemon_release(job.fake);
	cr_expect(is_readable(fd, FAKE_JOB_TIMEOUT_MS));
	cr_expect(comes(job.zinf, ticket));
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_assert_eq(zinf_ticket_clear(job.zinf), 0);
	cr_expect_not(is_readable(fd, 0));
	fake_job_leave(&job);
}

Test(ticket_fd, completion_taken_in_by_another_call_is_told_as_well)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_STEP));
	zinf_ticket ticket;
	int fd;

	fake_job_materialize(&job);
	fd = zinf_ticket_fd(job.zinf);
	ticket = begin_step(&job);
	cr_assert_eq(zinf_ticket_clear(job.zinf), 0);
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_ping(job.zinf), 0); /* behind the step: takes both in */
	cr_expect(is_readable(fd, 0));
	cr_expect(comes(job.zinf, ticket));
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

Test(ticket_fd, asked_for_when_a_ticket_has_completed)
{
	struct fake_job job = attach_held(0);
	zinf_ticket ticket;

	fake_job_materialize(&job);
	ticket = begin_step(&job);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_expect(is_readable(zinf_ticket_fd(job.zinf), 0));
	cr_expect(comes(job.zinf, ticket));
	fake_job_leave(&job);
}

Test(ticket_fd, many_completions_are_all_told)
{
	struct fake_job job = attach_held(0);

	fake_job_materialize(&job);
	cr_assert_geq(zinf_ticket_fd(job.zinf), 0);
	for (int i = 0; i < 200; i++) {
		zinf_ticket ticket = begin_step(&job);

		cr_assert(comes(job.zinf, ticket), "step %d", i);
		cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	}
	fake_job_leave(&job);
}

Test(ticket_fd, end_of_the_session_makes_it_readable)
{
	struct fake_job job = attach_held(0);
	int fd = zinf_ticket_fd(job.zinf);

	cr_assert_eq(zinf_ticket_clear(job.zinf), 0);
	cr_assert_not(is_readable(fd, 0));
	fake_daemon_die(job.fake);
	cr_expect(is_readable(fd, FAKE_JOB_TIMEOUT_MS));
	cr_expect_eq(zinf_ticket_clear(job.zinf), -ESTALE);
	cr_expect(is_readable(fd, 0), "and it stays so");
	fake_job_leave(&job);
}

/* Before and after zinf_coll_open(): a call that ends by its deadline is done as well. */
Test(ticket_fd, collective_that_ends_makes_it_readable)
{
	for (int is_early = 0; is_early < 2; is_early++) {
		struct fake_job job = attach(&honest, 1, 2);
		struct zinf_coll_options options = ZINF_COLL_OPTIONS_INIT;
		zinf_ticket ticket;

		if (is_early)
			cr_assert_geq(zinf_ticket_fd(job.zinf), 0);
		cr_assert_eq(zinf_coll_open(job.zinf, ARENA), 0);
		cr_assert_geq(zinf_ticket_fd(job.zinf), 0);
		options.ret_ticket = &ticket;
		options.timeout_ms = 20;
		cr_assert_eq(zinf_coll_barrier(job.zinf, &options), 0);
		cr_expect(comes(job.zinf, ticket));
		cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), -ETIMEDOUT);
		fake_job_leave(&job);
	}
}

struct other {
	struct zinf *zinf;
	pthread_mutex_t lock;
	zinf_ticket ticket;
	int fd;
};

/* The documented rule, in a thread that does not use the connection otherwise. */
static int wait_elsewhere(void *arg)
{
	struct other *other = arg;
	bool is_done = false;

	while (!is_done) {
		int r;

		(void)pthread_mutex_lock(&other->lock);
		r = zinf_ticket_clear(other->zinf);
		if (!r)
			r = zinf_test(other->zinf, other->ticket, &is_done);
		(void)pthread_mutex_unlock(&other->lock);
		if (r)
			return r;
		if (!is_done && !is_readable(other->fd, FAKE_JOB_TIMEOUT_MS))
			return -ETIMEDOUT;
	}
	return 0;
}

Test(ticket_fd, another_thread_waits_while_this_one_goes_on)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_STEP));
	struct other other = { .zinf = job.zinf, .lock = PTHREAD_MUTEX_INITIALIZER };
	struct zi_thread thread = { 0 };

	fake_job_materialize(&job);
	other.fd = zinf_ticket_fd(job.zinf);
	other.ticket = begin_step(&job);
	cr_assert_eq(zi_thread_start(&thread, "waits", wait_elsewhere, &other), 0);
	fake_daemon_release(job.fake);
	for (int i = 0; i < 500; i++) {
		(void)pthread_mutex_lock(&other.lock);
		cr_assert_eq(zinf_ping(job.zinf), 0);
		(void)pthread_mutex_unlock(&other.lock);
	}
	cr_expect_eq(zi_thread_join(&thread), 0);
	cr_expect_eq(zinf_wait(job.zinf, other.ticket, NULL), 0);
	fake_job_leave(&job);
}
