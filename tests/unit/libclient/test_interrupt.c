/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: zinf_interrupt() ends each waiting call with -EINTR, once; the same call then goes on with
 * what is under way, and no other call can get in between where it must not. Method: the fake
 * daemon holds its answer to each kind of call, interrupts from its own thread, and answers later.
 * */
#include <signal.h>
#include <sys/time.h>

#include "libclient/client.h"
#include "tests/fake/fake_job.h"

/* What the fake daemon interrupts when it has taken what it holds. */
static struct zinf *victim;

static void interrupt_victim(void *arg)
{
	(void)arg;
	zinf_interrupt(victim);
}

static struct fake_job attach_held(unsigned on, uint32_t spin_us)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = UINT64_MAX,
	                                                       .hold_on = on,
	                                                       .on_hold = interrupt_victim,
	                                                       .spin_us = spin_us });

	victim = job.zinf;
	return job;
}

#define expect_interrupted(job, call)                                     \
	do {                                                              \
		cr_assert_eq(call, -EINTR);                               \
		expect_text((job).zinf, "repeat the call with the same"); \
	} while (0)

/* ---- calls on the rings and on the socket, after zinf_materialize() ---- */

static const unsigned waiting_on[] = {
	FAKE_ON_OP(ZI_OP_NOP),
	FAKE_ON_OP(ZI_OP_BARRIER),
	FAKE_ON_OP(ZI_OP_UNSHARD),
	FAKE_ON_OP(ZI_OP_GRAD_ACQUIRE),
	FAKE_ON_OP(ZI_OP_STEP_BEGIN),
	FAKE_ON_OP(ZI_OP_COMMIT),
	FAKE_ON_OP(ZI_OP_TENSOR_ALLOC),
	FAKE_ON_OP(ZI_OP_TENSOR_GET),
	FAKE_ON_OP(ZI_OP_TENSOR_RELEASE),
	FAKE_ON_OP(ZI_OP_TENSOR_FREE),
	FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_BEGIN),
	FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_END),
	FAKE_ON_MESSAGE(ZI_MESSAGE_TENSOR_OPEN),
	FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_OPEN),
};

/* What comes before the call that waits. */
static void prepare(struct fake_job *job, unsigned on)
{
	fake_job_materialize(job);
	if (on == FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_END))
		cr_assert_eq(zinf_param_write_begin(job->zinf, 0), 0);
	if (on >= FAKE_ON_OP(ZI_OP_TENSOR_ALLOC) && on < FAKE_ON_MESSAGE(0))
		cr_assert_eq(zinf_tensor_open(job->zinf, 65536), 0);
}

static int call(struct fake_job *job, unsigned on)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	const void *data;
	void *place;
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
		return zinf_commit(job->zinf, "blob", 4);
	case FAKE_ON_OP(ZI_OP_TENSOR_ALLOC):
		return zinf_tensor_alloc(job->zinf, 1, 64, &place);
	case FAKE_ON_OP(ZI_OP_TENSOR_GET):
		return zinf_tensor_map(job->zinf, 1, &data, &bytes);
	case FAKE_ON_OP(ZI_OP_TENSOR_RELEASE):
		return zinf_tensor_unmap(job->zinf, 1);
	case FAKE_ON_OP(ZI_OP_TENSOR_FREE):
		return zinf_tensor_free(job->zinf, 1);
	case FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_BEGIN):
		return zinf_param_write_begin(job->zinf, 0);
	case FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_END):
		return zinf_param_write_end(job->zinf, 0, 0);
	case FAKE_ON_MESSAGE(ZI_MESSAGE_COLL_OPEN):
		return zinf_coll_open(job->zinf, 4096);
	default:
		return zinf_tensor_open(job->zinf, 65536);
	}
}

Test(interrupt, every_waiting_call_returns_eintr_and_goes_on_when_it_is_repeated)
{
	for (size_t i = 0; i < sizeof(waiting_on) / sizeof(waiting_on[0]); i++)
		for (uint32_t spin_us = 0; spin_us <= 100; spin_us += 100) {
			unsigned on = waiting_on[i];
			struct fake_job job = attach_held(on, spin_us);

			prepare(&job, on);
			expect_interrupted(job, call(&job, on));
			zinf_interrupt(job.zinf); /* between calls: the next one that waits */
			expect_interrupted(job, call(&job, on));
			fake_daemon_release(job.fake);
			cr_assert_eq(call(&job, on), 0, "%zu: %s", i, zinf_error_text(job.zinf));
			cr_assert_eq(zinf_ping(job.zinf), 0);
			cr_expect_eq(fake_daemon_count(job.fake, on),
			             on == FAKE_ON_OP(ZI_OP_NOP) ? 2u : 1u, "%zu: it was sent once",
			             i);
			cr_expect_eq(job.zinf->interrupted_count, 0u);
			fake_job_leave(&job);
		}
}

Test(interrupt, layout_and_materialize_are_sent_once)
{
	struct fake_job job = attach_held(FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE), 0);

	fake_job_add(&job);
	expect_interrupted(job, zinf_materialize(job.zinf));
	cr_expect_eq(zinf_unit_add(job.zinf, "c", &job.unit[0]), -EINVAL, "it is sent");
	cr_expect_eq(zinf_param_data(job.zinf, 0), NULL);
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_str_eq(fake_daemon_layout(job.fake), "a a.w a.s b b.w");
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE)), 1u);
	cr_expect_not_null(zinf_param_data(job.zinf, 0));
	fake_job_leave(&job);
}

/* A session ends when a second request comes. */
Test(interrupt, other_requests_are_refused_while_one_is_pending)
{
	struct fake_job job = attach_held(FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE), 0);
	size_t bytes;

	fake_job_add(&job);
	expect_interrupted(job, zinf_materialize(job.zinf));
	cr_expect_eq(zinf_load(job.zinf, "other/one"), -EBUSY);
	expect_text(job.zinf, "zinf_materialize() was interrupted: repeat that call");
	cr_expect_eq(zinf_coll_open(job.zinf, 4096), -EBUSY);
	cr_expect_eq(zinf_destroy_job(job.zinf), -EBUSY);
	cr_expect_eq(zinf_blob_get(job.zinf, NULL, 0, &bytes), -EINVAL);
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_materialize(job.zinf), 0);
	cr_expect_eq(zinf_load(job.zinf, "other/one"), 0);
	fake_job_leave(&job);
}

Test(interrupt, request_with_other_arguments_is_refused)
{
	struct fake_job job = attach_held(FAKE_ON_MESSAGE(ZI_MESSAGE_PARAM_WRITE_BEGIN), 0);
	size_t bytes;

	fake_job_materialize(&job);
	expect_interrupted(job, zinf_param_write_begin(job.zinf, 0));
	cr_expect_eq(zinf_param_write_begin(job.zinf, 1), -EBUSY);
	cr_expect_eq(zinf_snapshot(job.zinf, NULL, NULL), -EBUSY);
	expect_text(job.zinf, "zinf_param_write_begin() was interrupted");
	cr_expect_eq(zinf_blob_get(job.zinf, NULL, 0, &bytes), -EBUSY);
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_param_write_begin(job.zinf, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_expect(zinf_param_is_resident(job.zinf, 0));
	fake_job_leave(&job);
}

/* Its reply comes while another call looks at the socket. */
Test(interrupt, reply_that_comes_during_another_call_is_kept)
{
	struct fake_job job = attach_held(FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE), 0);

	fake_job_add(&job);
	expect_interrupted(job, zinf_materialize(job.zinf));
	fake_daemon_release(job.fake);
	/* The fake daemon answers what it held before it takes a slot. */
	for (uint32_t i = 0; i < 8; i++)
		cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(zi_client_read_notices(job.zinf), 0);
	cr_expect(job.zinf->pending.has_reply);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_expect(is_mapped(zinf_param_data(job.zinf, 0)));
	cr_expect_eq(zinf_commit(job.zinf, NULL, 0), 0);
	fake_job_leave(&job);
}

Test(interrupt, kept_reply_is_closed_when_the_call_is_never_repeated)
{
	struct fake_job job = attach_held(FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE), 0);

	fake_job_add(&job);
	expect_interrupted(job, zinf_materialize(job.zinf));
	fake_daemon_release(job.fake);
	for (uint32_t i = 0; i < 8; i++)
		cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(zi_client_read_notices(job.zinf), 0);
	fake_job_leave(&job); /* guard.c counts descriptors under ASan: nothing leaks. */
}

Test(interrupt, detach_leaves_at_once_with_an_interrupt_and_a_pending_request)
{
	struct fake_job job = attach_held(FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE), 0);

	fake_job_add(&job);
	expect_interrupted(job, zinf_materialize(job.zinf));
	zinf_interrupt(job.zinf);
	fake_daemon_release(job.fake);
	zinf_detach(job.zinf);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_DETACH)), 1u);
	fake_daemon_stop(job.fake);
}

/* The late completion is dropped, and the next call sends a new operation. */
Test(interrupt, repeated_call_may_time_out_and_be_called_again)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_NOP), 0);

	fake_job_materialize(&job);
	expect_interrupted(job, zinf_ping(job.zinf));
	job.zinf->timeout_ns = 10 * ZI_NS_PER_MS;
	cr_expect_eq(zinf_ping(job.zinf), -ETIMEDOUT);
	cr_expect_eq(job.zinf->interrupted_count, 0u);
	job.zinf->timeout_ns = 5 * ZI_NS_PER_S;
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_ping(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_NOP)), 2u);
	cr_expect_eq(job.zinf->free_count, job.zinf->entries);
	fake_job_leave(&job);
}

/* ---- what may not come in between ---- */

Test(interrupt, calls_of_all_ranks_keep_their_order)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_BARRIER), 0);
	const struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	fake_job_materialize(&job);
	expect_interrupted(job, zinf_barrier(job.zinf));
	cr_expect_eq(zinf_commit(job.zinf, NULL, 0), -EBUSY);
	expect_text(job.zinf, "zinf_barrier() was interrupted");
	cr_expect_eq(zinf_step_begin(job.zinf, &step), -EBUSY);
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_ping(job.zinf), 0, "no other rank has a part in it");
	cr_expect_eq(zinf_unshard(job.zinf, 0), 0, "nor in this");
	cr_expect_eq(zinf_barrier(job.zinf), 0);
	cr_expect_eq(zinf_barrier(job.zinf), 0);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_BARRIER)), 2u);
	cr_expect_eq(zinf_commit(job.zinf, NULL, 0), 0);
	fake_job_leave(&job);
}

Test(interrupt, step_begin_with_other_options_is_refused_and_theirs_stay)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_STEP_BEGIN), 0);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	fake_job_materialize(&job);
	step.lr = 0.5;
	expect_interrupted(job, zinf_step_begin(job.zinf, &step));
	step.lr = 0.25;
	cr_expect_eq(zinf_step_begin(job.zinf, &step), -EBUSY);
	cr_expect_eq(zinf_join(job.zinf, false), -EBUSY);
	step.lr = 0.5;
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_step_begin(job.zinf, &step), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(fake_daemon_step_options(job.fake)->lr, 0.5);
	fake_job_leave(&job);
}

Test(interrupt, commit_with_another_blob_is_refused)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_COMMIT), 0);
	uint64_t bytes;

	fake_job_materialize(&job);
	expect_interrupted(job, zinf_commit(job.zinf, "one", 3));
	cr_expect_eq(zinf_commit(job.zinf, "two", 3), -EBUSY);
	expect_text(job.zinf, "the same blob");
	cr_expect_eq(zinf_commit(job.zinf, "on", 2), -EBUSY);
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_commit(job.zinf, "one", 3), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(memcmp(fake_daemon_blob(job.fake, &bytes), "one", 3), 0);
	fake_job_leave(&job);
}

/* ---- the end of a deferred step ---- */

static struct fake_job attach_deferred(unsigned on)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct fake_job job = attach_held(on, 0);

	fake_job_materialize(&job);
	step.is_deferred = true;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0, "%s", zinf_error_text(job.zinf));
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0);
		cr_assert_eq(zinf_reduce(job.zinf, i), 0);
	}
	return job;
}

/* Takes another deferred step. Its norm is asked for anew. */
static void expect_next_norm(struct fake_job *job)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;
	double norm = 0;

	step.is_deferred = true;
	cr_assert_eq(zinf_step_begin(job->zinf, &step), 0, "%s", zinf_error_text(job->zinf));
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_grad_acquire(job->zinf, i), 0);
		cr_assert_eq(zinf_reduce(job->zinf, i), 0);
	}
	cr_assert_eq(zinf_grad_norm(job->zinf, &norm), 0, "%s", zinf_error_text(job->zinf));
	cr_expect_eq(fake_daemon_count(job->fake, FAKE_ON_OP(ZI_OP_GRAD_NORM)), 2u);
	cr_expect_eq(job->zinf->interrupted_count, 0u);
	step.is_deferred = false;
	cr_expect_eq(zinf_step_with(job->zinf, &step, NULL, 0, &ticket), 0);
	cr_expect_eq(zinf_wait(job->zinf, ticket, NULL), 0);
}

Test(interrupt, step_is_discarded_instead_of_repeating_the_norm)
{
	struct fake_job job = attach_deferred(FAKE_ON_OP(ZI_OP_GRAD_NORM));
	double norm;

	expect_interrupted(job, zinf_grad_norm(job.zinf, &norm));
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_step_discard(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	expect_next_norm(&job);
	fake_job_leave(&job);
}

Test(interrupt, step_ends_instead_of_repeating_the_norm)
{
	struct fake_job job = attach_deferred(FAKE_ON_OP(ZI_OP_GRAD_NORM));
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;
	double norm;

	expect_interrupted(job, zinf_grad_norm(job.zinf, &norm));
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), 0, "%s",
	             zinf_error_text(job.zinf));
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	expect_next_norm(&job);
	fake_job_leave(&job);
}

Test(interrupt, step_with_other_options_is_refused_and_theirs_stay)
{
	struct fake_job job = attach_deferred(FAKE_ON_OP(ZI_OP_STEP_OPTIONS));
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;

	step.lr = 0.5;
	expect_interrupted(job, zinf_step_with(job.zinf, &step, NULL, 0, &ticket));
	step.lr = 0.25;
	cr_expect_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), -EBUSY);
	expect_text(job.zinf, "zinf_step_with() was interrupted");
	step.lr = 0.5;
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), 0, "%s",
	             zinf_error_text(job.zinf));
	cr_expect_eq(fake_daemon_step_options(job.fake)->lr, 0.5);
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

/* ---- tickets ---- */

Test(interrupt, ticket_of_a_step_stays)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_STEP), 0);
	zinf_ticket ticket;

	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	expect_interrupted(job, zinf_wait(job.zinf, ticket, NULL));
	zinf_interrupt(job.zinf);
	expect_interrupted(job, zinf_wait_for(job.zinf, ticket, 10000, NULL));
	cr_expect_eq(zinf_wait_for(job.zinf, ticket, 1, NULL), -ETIMEDOUT);
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

/* ---- when it is used up ---- */

Test(interrupt, several_before_a_call_are_one)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_BARRIER), 0);

	zinf_interrupt(NULL);
	for (int i = 0; i < 5; i++)
		zinf_interrupt(job.zinf);
	expect_interrupted(job, zinf_barrier(job.zinf));
	fake_daemon_release(job.fake);
	/* The fake daemon's own may have come behind that. */
	if (zinf_barrier(job.zinf) == -EINTR)
		cr_expect_eq(zinf_barrier(job.zinf), 0);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_BARRIER)), 1u);
	fake_job_leave(&job);
}

static void on_alarm(int number)
{
	(void)number;
	zinf_interrupt(victim);
}

/* Of a handler, in the thread that waits. */
Test(interrupt, signal_handler_may_call_it)
{
	struct fake_job job = fake_job_attach(
		&(struct fake_daemon_options){ .hold_on = FAKE_ON_OP(ZI_OP_BARRIER) });
	const struct itimerval soon = { .it_value = { .tv_usec = 1000 } };

	victim = job.zinf;
	cr_assert_neq(signal(SIGALRM, on_alarm), SIG_ERR);
	cr_assert_eq(setitimer(ITIMER_REAL, &soon, NULL), 0);
	expect_interrupted(job, zinf_barrier(job.zinf));
	fake_daemon_release(job.fake);
	cr_expect_eq(zinf_barrier(job.zinf), 0);
	fake_job_leave(&job);
}

Test(interrupt, end_of_the_session_counts_more)
{
	struct fake_job job = attach_held(FAKE_ON_OP(ZI_OP_BARRIER), 0);

	fake_job_materialize(&job);
	expect_interrupted(job, zinf_barrier(job.zinf));
	fake_daemon_release(job.fake);
	fake_daemon_die(job.fake);
	cr_expect_eq(zinf_unshard(job.zinf, 0), -ESTALE);
	zinf_interrupt(job.zinf);
	cr_expect_eq(zinf_commit(job.zinf, NULL, 0), -ESTALE);
	fake_job_leave(&job);
}

/* ---- resident ---- */

Test(interrupt, parameter_is_resident_while_its_unit_is_unsharded_or_writable)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ 0 });

	cr_expect_not(zinf_param_is_resident(NULL, 0));
	fake_job_add(&job);
	cr_expect_not(zinf_param_is_resident(job.zinf, 0), "not materialized");
	cr_assert_eq(zinf_materialize(job.zinf), 0);
	cr_expect_not(zinf_param_is_resident(job.zinf, 0));
	cr_expect_not(zinf_param_is_resident(job.zinf, 3), "no such parameter");
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_expect(zinf_param_is_resident(job.zinf, 0));
	cr_expect(zinf_param_is_resident(job.zinf, 1));
	cr_expect_not(zinf_param_is_resident(job.zinf, 2));
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_expect(zinf_param_is_resident(job.zinf, 0), "uses nest");
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_expect_not(zinf_param_is_resident(job.zinf, 0));
	cr_assert_eq(zinf_param_write_begin(job.zinf, 1), 0);
	cr_expect(zinf_param_is_resident(job.zinf, 2));
	cr_assert_eq(zinf_param_write_end(job.zinf, 1, 0), 0);
	cr_expect_not(zinf_param_is_resident(job.zinf, 2));
	fake_job_leave(&job);
}

/* The daemon may have discarded the step meanwhile: no second zinf_step() follows. */
Test(interrupt, join_goes_on_with_the_discard_of_the_step_that_it_shadowed)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct fake_job job = fake_job_attach(
		&(struct fake_daemon_options){ .features = UINT64_MAX,
	                                       .fail_on = FAKE_ON_OP(ZI_OP_STEP),
	                                       .fail_error = -ECANCELED,
	                                       .hold_on = FAKE_ON_OP(ZI_OP_STEP_DISCARD),
	                                       .on_hold = interrupt_victim });

	victim = job.zinf;
	fake_job_materialize(&job);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0, "%s", zinf_error_text(job.zinf));
	job.zinf->is_shadowing = true; /* as in a join that another rank's begin answered */
	expect_interrupted(job, zinf_join(job.zinf, false));
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_join(job.zinf, false), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_STEP)), 1u);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_STEP_DISCARD)), 1u);
	fake_job_leave(&job);
}
