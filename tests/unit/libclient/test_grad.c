/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with gradients in buckets a gradient keeps its address while what lies behind it comes and
 * goes; nothing is mapped, and a stray write faults, where nothing is acquired; the daemon hears of
 * a reduce only when that is so; no false place is believed. Method: the fake daemon, whose segment
 * holds two units and puts each acquire elsewhere.
 */
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "tests/fake/fake_job.h"

static struct fake_job bucket_attach(const struct fake_daemon_options *daemon)
{
	struct fake_daemon_options able = *daemon;
	struct zinf_options options;
	struct fake_job job;

	able.features = UINT64_MAX;
	able.has_buckets = true;
	job.fake = fake_daemon_start(&able);
	options = fake_job_options(job.fake);
	options.grad_dtype = options.param_dtype;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static const struct fake_daemon_options honest = { 0 };

static void begin_step(struct fake_job *job)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;

	cr_assert_eq(zinf_step_begin(job->zinf, &options), 0, "%s", zinf_error_text(job->zinf));
}

static void end_step(struct fake_job *job)
{
	uint64_t ticket;

	cr_assert_eq(zinf_step(job->zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(job->zinf));
	cr_assert_eq(zinf_wait(job->zinf, ticket, NULL), 0);
}

static void acquire(struct fake_job *job, int unit)
{
	cr_assert_eq(zinf_grad_acquire(job->zinf, job->unit[unit]), 0, "%s",
	             zinf_error_text(job->zinf));
}

static void reduce(struct fake_job *job, int unit)
{
	cr_assert_eq(zinf_reduce(job->zinf, job->unit[unit]), 0, "%s", zinf_error_text(job->zinf));
}

Test(grad, address_stays_and_what_is_behind_it_comes_and_goes)
{
	struct fake_job job = bucket_attach(&honest);
	char *data[2];

	fake_job_materialize(&job);
	for (int i = 0; i < 2; i++) {
		data[i] = zinf_grad_data(job.zinf, job.param[2 * i]);
		cr_assert_not_null(data[i]);
		cr_assert_not(is_mapped(data[i]), "nothing is acquired");
	}
	for (char step = 1; step <= 3; step++) {
		begin_step(&job);
		for (int unit = 1; unit >= 0; unit--) {
			acquire(&job, unit);
			acquire(&job, unit); /* Twice is once. */
			cr_assert_eq(zinf_grad_data(job.zinf, job.param[2 * unit]), data[unit]);
			data[unit][0] = (char)(10 * step + unit);
			cr_assert_not(is_mapped(data[1 - unit]), "the other unit");
			reduce(&job, unit);
			cr_assert_not(is_mapped(data[unit]));
		}
		end_step(&job);
	}
	fake_job_leave(&job);
}

Test(grad, rank_of_no_set_has_no_unit_and_no_harm)
{
	struct fake_daemon_options able = { .features = UINT64_MAX, .has_buckets = true };
	struct fake_job job = { .fake = fake_daemon_start(&able) };
	struct zinf_options options = fake_job_options(job.fake);
	uint32_t set;

	options.world_size = 2;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	cr_assert_eq(zinf_dp_group_add(job.zinf, "other", (uint32_t[]){ 1 }, 1, &set), 0);
	fake_job_materialize(&job);
	begin_step(&job);
	cr_assert_eq(zinf_grad_acquire(job.zinf, job.unit[0]), -EPERM, "%s",
	             zinf_error_text(job.zinf));
	cr_assert_null(zinf_grad_data(job.zinf, job.param[0]));
	end_step(&job);
	fake_job_leave(&job);
}

Test(grad, both_units_are_there_at_once)
{
	struct fake_job job = bucket_attach(&honest);
	char *a, *b;

	fake_job_materialize(&job);
	a = zinf_grad_data(job.zinf, job.param[0]);
	b = zinf_grad_data(job.zinf, job.param[2]);
	begin_step(&job);
	acquire(&job, 0);
	acquire(&job, 1);
	*a = 1;
	*b = 2;
	cr_assert_eq(*a, 1);
	reduce(&job, 0);
	cr_assert_eq(*b, 2);
	cr_assert_not(is_mapped(a));
	reduce(&job, 1);
	end_step(&job);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_GRAD_ACQUIRE)), 2);
	fake_job_leave(&job);
}

static sigjmp_buf faulted;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(faulted, 1);
}

Test(grad, stray_write_after_reduce_faults)
{
	struct sigaction action = { .sa_handler = on_fault };
	struct fake_job job = bucket_attach(&honest);
	volatile char *data;

	fake_job_materialize(&job);
	data = zinf_grad_data(job.zinf, job.param[0]);
	begin_step(&job);
	acquire(&job, 0);
	*data = 1;
	reduce(&job, 0);
	cr_assert_eq(sigaction(SIGSEGV, &action, NULL), 0);
	if (!sigsetjmp(faulted, 1)) {
		*data = 2;
		cr_assert_fail("it was written");
	}
	fake_job_leave(&job);
}

Test(grad, daemon_hears_of_a_reduce_when_nothing_is_mapped_any_more)
{
	struct fake_job job = bucket_attach(&honest);

	fake_job_materialize(&job);
	begin_step(&job);
	fake_daemon_watch(job.fake, zinf_grad_data(job.zinf, job.param[2]));
	acquire(&job, 0);
	acquire(&job, 1);
	reduce(&job, 0);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert(fake_daemon_saw_readable(job.fake), "it sees what is mapped");
	reduce(&job, 1);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_not(fake_daemon_saw_readable(job.fake));
	fake_job_leave(&job);
}

Test(grad, refusal_is_told_and_the_acquire_may_come_again)
{
	struct fake_job job = bucket_attach(
		&(struct fake_daemon_options){ .fail_on = FAKE_ON_OP(ZI_OP_GRAD_ACQUIRE),
	                                       .fail_error = -EDEADLK,
	                                       .fail_text = "every rank waits" });

	fake_job_materialize(&job);
	begin_step(&job);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(zinf_grad_acquire(job.zinf, job.unit[0]), -EDEADLK);
		expect_text(job.zinf, "every rank waits");
		cr_assert_not(is_mapped(zinf_grad_data(job.zinf, job.param[0])));
	}
	cr_assert_eq(zinf_reduce(job.zinf, job.unit[0]), -EINVAL);
	fake_job_leave(&job);
}

Test(grad, false_places_end_the_session)
{
	const enum fake_lie lies[] = { FAKE_LIE_POOL_OUTSIDE, FAKE_LIE_POOL_MISALIGNED };

	for (size_t i = 0; i < 2; i++) {
		struct fake_job job =
			bucket_attach(&(struct fake_daemon_options){ .lie = lies[i] });

		fake_job_materialize(&job);
		begin_step(&job);
		cr_assert_eq(zinf_grad_acquire(job.zinf, job.unit[1]), -EPROTO);
		expect_text(job.zinf, "a gradient outside its segment");
		cr_assert_eq(zinf_ping(job.zinf), -EPROTO);
		fake_job_leave(&job);
	}
}

Test(grad, false_segments_and_unknown_flags_end_the_session)
{
	const enum fake_lie lies[] = { FAKE_LIE_POOL_SMALL, FAKE_LIE_FLAGS };

	for (size_t i = 0; i < 2; i++) {
		struct fake_job job =
			bucket_attach(&(struct fake_daemon_options){ .lie = lies[i] });

		fake_job_add(&job);
		cr_assert_eq(zinf_materialize(job.zinf), -EPROTO, "lie %zu", i);
		cr_assert_null(zinf_grad_data(job.zinf, 0));
		fake_job_leave(&job);
	}
}
