/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the daemon hears of parameters without a gradient by as few slots as name them, none where
 * there is nothing to name; marks before the time, and of units of others, are refused; a slot that
 * the daemon refuses is told. Method: the fake daemon, which counts. What comes of it is the system
 * test's (tests/system/test_unused.c). */
#include "tests/fake/fake_job.h"

static const struct fake_daemon_options able = { .features = UINT64_MAX };

static struct fake_job unused_attach(const struct fake_daemon_options *daemon, bool finds_unused,
                                     int32_t world)
{
	struct fake_job job = { .fake = fake_daemon_start(daemon) };
	struct zinf_options options = fake_job_options(job.fake);

	options.finds_unused = finds_unused;
	options.world_size = world;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static void begin_step(struct fake_job *job)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;

	cr_assert_eq(zinf_step_begin(job->zinf, &options), 0, "%s", zinf_error_text(job->zinf));
}

/* @marks: a bit for each of the three parameters. */
static void hand_over(struct fake_job *job, uint32_t marks)
{
	begin_step(job);
	for (int unit = 0; unit < 2; unit++) {
		cr_assert_eq(zinf_grad_acquire(job->zinf, job->unit[unit]), 0);
		for (uint32_t i = 0; i < 3; i++)
			if (marks >> i & 1 && (i == 2) == (unit == 1))
				cr_assert_eq(zinf_grad_done(job->zinf, job->param[i]), 0, "%s",
				             zinf_error_text(job->zinf));
		cr_assert_eq(zinf_reduce(job->zinf, job->unit[unit]), 0, "%s",
		             zinf_error_text(job->zinf));
	}
}

static void end_step(struct fake_job *job)
{
	uint64_t ticket;

	cr_assert_eq(zinf_step(job->zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(job->zinf));
	cr_assert_eq(zinf_wait(job->zinf, ticket, NULL), 0);
}

static uint32_t told(const struct fake_job *job)
{
	return fake_daemon_count(job->fake, FAKE_ON_OP(ZI_OP_GRAD_UNUSED));
}

Test(unused, nothing_is_said_where_all_have_a_gradient)
{
	struct fake_job job = unused_attach(&able, true, 1);

	fake_job_materialize(&job);
	hand_over(&job, 7);
	end_step(&job);
	cr_assert_eq(told(&job), 0);
	hand_over(&job, 5);
	end_step(&job);
	cr_assert_eq(told(&job), 1, "of one unit");
	hand_over(&job, 0);
	end_step(&job);
	cr_assert_eq(told(&job), 3, "of both");
	fake_job_leave(&job);
}

Test(unused, units_that_were_not_acquired_are_handed_over_as_the_step_ends)
{
	struct fake_job job = unused_attach(&able, true, 1);

	fake_job_materialize(&job);
	hand_over(&job, 7);
	end_step(&job);
	begin_step(&job);
	end_step(&job);
	cr_assert_eq(told(&job), 2);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_REDUCE)), 4);
	fake_job_leave(&job);
}

Test(unused, buckets_are_cleared_before_they_are_unmapped)
{
	struct fake_daemon_options daemon = able;
	struct fake_job job;

	daemon.has_buckets = true;
	job = unused_attach(&daemon, true, 1);
	fake_job_materialize(&job);
	hand_over(&job, 2);
	end_step(&job);
	cr_assert_eq(told(&job), 2);
	fake_job_leave(&job);
}

Test(unused, marks_have_their_time_and_their_ranks)
{
	struct fake_job job = { .fake = fake_daemon_start(&able) };
	struct zinf_options options = fake_job_options(job.fake);
	uint32_t set;

	options.world_size = 2;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	cr_assert_eq(zinf_grad_done(job.zinf, 0), -EINVAL);
	expect_text(job.zinf, "call zinf_materialize() first");
	cr_assert_eq(zinf_dp_group_add(job.zinf, "other", (uint32_t[]){ 1 }, 1, &set), 0);
	fake_job_materialize(&job);
	begin_step(&job);
	cr_assert_eq(zinf_grad_done(job.zinf, job.param[0]), -EPERM);
	expect_text(job.zinf, "it has no gradient there");
	cr_assert_eq(zinf_grad_done(job.zinf, 3), -EINVAL);
	fake_job_leave(&job);
}

Test(unused, what_the_daemon_refuses_is_told)
{
	struct fake_daemon_options daemon = able;
	struct fake_job job;
	uint64_t ticket;

	daemon.fail_on = FAKE_ON_OP(ZI_OP_GRAD_UNUSED);
	daemon.fail_error = -EINVAL;
	daemon.fail_text = "no such parameter";
	job = unused_attach(&daemon, true, 1);
	fake_job_materialize(&job);
	hand_over(&job, 6);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "no such parameter");
	fake_job_leave(&job);
}

/* The session ends where the buffer was handed over already: it is nobody's. */
Test(unused, a_session_that_is_over_takes_no_marks)
{
	struct fake_job job = unused_attach(&able, false, 1);

	fake_job_materialize(&job);
	begin_step(&job);
	cr_assert_eq(zinf_grad_acquire(job.zinf, job.unit[0]), 0);
	job.zinf->over = -ESTALE;
	cr_assert_eq(zinf_grad_done(job.zinf, job.param[0]), -ESTALE);
	cr_assert_eq(zinf_no_sync_begin(job.zinf), -ESTALE);
	cr_assert_eq(zinf_no_sync_end(job.zinf), -ESTALE);
	fake_job_leave(&job);
}

/* Another unit's micro-batch begins while one is held that is about to be written. */
Test(unused, what_is_held_stays_the_trainers)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct fake_job job = { .fake = fake_daemon_start(&able) };
	struct zinf_options options = fake_job_options(job.fake);

	options.finds_unused = true;
	options.grad_reduction = ZINF_REDUCE_PER_MICRO_BATCH;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	fake_job_materialize(&job);
	step.micro_batches = 2;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_grad_done(job.zinf, job.param[2]), 0);
	cr_assert_eq(zinf_reduce(job.zinf, job.unit[1]), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, job.unit[1]), 0);
	cr_assert_eq(told(&job), 0, "nothing is handed over");
	for (int i = 0; i < 3; i++)
		cr_assert_eq(zinf_grad_done(job.zinf, job.param[i]), 0, "%s",
		             zinf_error_text(job.zinf));
	cr_assert_eq(zinf_reduce(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_reduce(job.zinf, job.unit[1]), 0);
	end_step(&job);
	cr_assert_eq(told(&job), 1, "the other micro-batch of the first unit");
	fake_job_leave(&job);
}
