/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: of a deferred step the daemon hears what counts, when it counts; wrong options and wrong
 * order are told by name; an older daemon is told of, and an older header's options are taken;
 * after a discarded step nothing of it is left in this rank. Method: the fake daemon counts what it
 * was asked. */
#include <math.h>

#include "tests/fake/fake_job.h"

static const struct fake_daemon_options able = { .features =
	                                                 ZI_FEATURE_STEPS | ZI_FEATURE_TRAINING };

static uint32_t op_count(struct fake_job *job, enum zi_opcode opcode)
{
	cr_assert_eq(zinf_ping(job->zinf), 0, "all before it was taken");
	return fake_daemon_count(job->fake, FAKE_ON_OP(opcode));
}

static struct zinf_step_options deferred(void)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	step.is_deferred = true;
	return step;
}

static void begin(struct fake_job *job)
{
	struct zinf_step_options step = deferred();

	cr_assert_eq(zinf_step_begin(job->zinf, &step), 0, "%s", zinf_error_text(job->zinf));
}

static void hand_over(struct fake_job *job)
{
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_grad_acquire(job->zinf, i), 0);
		cr_assert_eq(zinf_reduce(job->zinf, i), 0, "%s", zinf_error_text(job->zinf));
	}
}

Test(discard, deferred_step_brings_its_options_when_it_ends)
{
	struct fake_job job = fake_job_attach(&able);
	const struct zi_step_options *seen = fake_daemon_step_options(job.fake);
	struct zinf_step_options step = deferred();
	zinf_ticket ticket;
	double norm = 0;

	fake_job_materialize(&job);
	step.lr = step.beta1 = -1; /* They do not count yet. */
	step.max_norm = (double)NAN;
	step.want_norm = step.nesterov = true;
	step.unscale = 0.25;
	step.skip_nonfinite = true;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(seen->flags, ZI_STEP_DEFERRED | ZI_STEP_SKIP_NONFINITE);
	cr_assert_eq(seen->lr, 0);
	cr_assert_eq(seen->unscale, 0.25);
	cr_assert_eq(zinf_grad_norm(job.zinf, &norm), -ENODATA);
	expect_text(job.zinf, "no gradient for units: a, b");
	hand_over(&job);
	cr_assert_eq(zinf_grad_norm(job.zinf, &norm), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(norm, 2.5);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "zinf_step_with() ends it");
	cr_assert_eq(zinf_step_with(job.zinf, &step, "blob", 4, &ticket), -EINVAL);
	expect_text(job.zinf, "lr is -1");
	step = (struct zinf_step_options)ZINF_STEP_OPTIONS_INIT;
	step.unscale = 0.25;
	step.skip_nonfinite = true;
	step.lr = 0.5;
	step.max_norm = 3;
	cr_assert_eq(op_count(&job, ZI_OP_STEP_OPTIONS), 0);
	cr_assert_eq(zinf_step_with(job.zinf, &step, "blob", 4, &ticket), 0, "%s",
	             zinf_error_text(job.zinf));
	cr_assert_eq(seen->lr, 0.5);
	cr_assert_eq(seen->max_norm, 3.0);
	cr_assert_eq(seen->flags, ZI_STEP_SKIP_NONFINITE);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

Test(discard, what_a_step_began_with_is_not_changed)
{
	struct fake_job job = fake_job_attach(&able);
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT, other = step;
	zinf_ticket ticket;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "call zinf_step_begin() first");
	begin(&job);
	hand_over(&job);
	other.unscale = 0.5;
	cr_assert_eq(zinf_step_with(job.zinf, &other, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "unscale is 0.5 in zinf_step_with(), but 1 in zinf_step_begin()");
	other = step;
	other.micro_batches = 2;
	cr_assert_eq(zinf_step_with(job.zinf, &other, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "micro_batches is 2 in zinf_step_with(), but 1");
	other = step;
	other.sum = true;
	cr_assert_eq(zinf_step_with(job.zinf, &other, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "sum is true in zinf_step_with(), but false");
	other = step;
	other.skip_nonfinite = true;
	cr_assert_eq(zinf_step_with(job.zinf, &other, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "skip_nonfinite is true in zinf_step_with(), but false");
	other = step;
	other.update_early = true;
	cr_assert_eq(zinf_step_with(job.zinf, &other, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "update_early is set in zinf_step_with()");
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, ZINF_BLOB_BYTES + 1, &ticket), -EINVAL);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), -EBUSY);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_no_sync_begin(job.zinf), 0);
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), -EBUSY);
	expect_text(job.zinf, "comes before zinf_step_with()");
	cr_assert_eq(zinf_grad_norm(job.zinf, &(double){ 0 }), -EBUSY);
	expect_text(job.zinf, "comes before zinf_grad_norm()");
	cr_assert_eq(zinf_no_sync_end(job.zinf), 0);
	cr_assert_eq(op_count(&job, ZI_OP_STEP_OPTIONS), 0);
	step.is_deferred = true; /* The options of the beginning may be used again. */
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	/* And of a step that is not deferred. */
	fake_job_backward(&job);
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), -EINVAL);
	expect_text(job.zinf, "begun with its hyperparameters");
	fake_job_leave(&job);
}

Test(discard, deferred_step_is_not_updated_early)
{
	struct fake_job job = fake_job_attach(&able);
	struct zinf_step_options step = deferred();

	fake_job_materialize(&job);
	step.update_early = true;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "is_deferred and update_early are set");
	fake_job_leave(&job);
}

Test(discard, betas_of_groups_travel_bit_by_bit)
{
	struct fake_job job = { .fake = fake_daemon_start(&able) };
	struct zinf_options options = fake_job_options(job.fake);
	const struct zinf_step_group groups[2] = { { 0.1, 0.2 }, { 0.3, 0.4 } };
	struct zinf_step_betas betas[2] = { { 0.5, 0.6, 0.7 }, { 0.8, 0.9, 1e-8 } };
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	const struct zi_step_betas *seen = fake_daemon_step_betas(job.fake);

	options.group_count = 2;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	fake_job_materialize(&job);
	step.group_betas = betas;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "group_betas of a step is set, but groups is NULL");
	step.groups = groups;
	step.group_count = 2;
	betas[1].beta2 = 1;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "group 1 of a step has beta1 0.8");
	betas[1].beta2 = 0.9;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(fake_daemon_step_options(job.fake)->flags, ZI_STEP_BETAS);
	cr_assert_eq(seen[0].beta1, 0.5);
	cr_assert_eq(seen[1].beta1, 0.8);
	cr_assert_eq(seen[1].beta2, 0.9);
	cr_assert_eq(seen[1].eps, 1e-8);
	fake_job_leave(&job);
}

Test(discard, older_daemon_is_not_asked)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });
	struct zinf_step_options step = deferred();
	const struct zinf_step_group group = { 0.1, 0 };
	zinf_ticket ticket;
	double norm;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EOPNOTSUPP);
	expect_text(job.zinf, "is_deferred of zinf_step_begin(): zinfd at ");
	expect_text(job.zinf, "use a newer zinfd");
	step = (struct zinf_step_options)ZINF_STEP_OPTIONS_INIT;
	step.groups = &group;
	step.group_count = 1;
	step.group_betas = &(struct zinf_step_betas){ 0.9, 0.9, 0 };
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EOPNOTSUPP);
	expect_text(job.zinf, "group_betas of a step");
	fake_job_backward(&job);
	cr_assert_eq(zinf_grad_norm(job.zinf, &norm), -EOPNOTSUPP);
	cr_assert_eq(zinf_step_with(job.zinf, &step, NULL, 0, &ticket), -EOPNOTSUPP);
	cr_assert_eq(zinf_step_discard(job.zinf), -EOPNOTSUPP);
	expect_text(job.zinf, "zinf_step_discard(): zinfd at ");
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0, "the step is as it was");
	fake_job_leave(&job);
}

Test(discard, options_of_an_earlier_header_are_taken_as_far_as_they_go)
{
	struct fake_job job = fake_job_attach(&able);
	struct {
		struct zinf_step_options step;
		uint64_t later;
	} wide = { ZINF_STEP_OPTIONS_INIT, 0 };

	fake_job_materialize(&job);
	wide.step.bytes = offsetof(struct zinf_step_options, group_betas);
	wide.step.group_betas = (const void *)8; /* What lies behind it there. */
	cr_assert_eq(zinf_step_begin(job.zinf, &wide.step), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(fake_daemon_step_options(job.fake)->flags, 0);
	cr_assert_eq(zinf_step_discard(job.zinf), 0);
	wide.step.group_betas = NULL;
	wide.step.bytes = sizeof(wide);
	wide.later = 1;
	cr_assert_eq(zinf_step_begin(job.zinf, &wide.step), -EINVAL);
	expect_text(job.zinf, "fields of a later libzinf");
	wide.later = 0;
	cr_assert_eq(zinf_step_begin(job.zinf, &wide.step), 0);
	cr_assert_eq(zinf_step_discard(job.zinf), 0);
	wide.step.bytes = offsetof(struct zinf_step_options, group_betas) - 8;
	cr_assert_eq(zinf_step_begin(job.zinf, &wide.step), -EINVAL);
	expect_text(job.zinf, "step options of 96 bytes: begin with ZINF_STEP_OPTIONS_INIT");
	fake_job_leave(&job);
}

Test(discard, nothing_of_the_step_is_left)
{
	struct fake_job job = fake_job_attach(&able);
	zinf_ticket ticket;

	fake_job_materialize(&job);
	cr_assert_eq(zinf_step_discard(job.zinf), -EINVAL);
	expect_text(job.zinf, "no step was begun: there is nothing to discard");
	begin(&job);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 1), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 1), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0);
	cr_assert_eq(zinf_step_discard(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_step_discard(job.zinf), -EINVAL, "once");
	cr_assert_eq(op_count(&job, ZI_OP_STEP_DISCARD), 1);
	cr_assert_eq(zinf_reduce(job.zinf, 0), -EINVAL);
	cr_assert_eq(zinf_reshard(job.zinf, 1), 0, "it stayed unsharded");
	begin(&job);
	cr_assert_eq(zinf_reduce(job.zinf, 0), -EINVAL);
	expect_text(job.zinf, "call zinf_grad_acquire() first");
	hand_over(&job);
	cr_assert_eq(zinf_step_with(job.zinf, &(struct zinf_step_options)ZINF_STEP_OPTIONS_INIT,
	                            NULL, 0, &ticket),
	             0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_step_discard(job.zinf), -EINVAL);
	expect_text(job.zinf, "this rank has ended its step: zinf_wait() its ticket");
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

Test(discard, buckets_are_no_longer_mapped)
{
	struct fake_daemon_options options = able;
	struct fake_job job = { 0 };

	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	options.features = UINT64_MAX;
	options.has_buckets = true;
	job.fake = fake_daemon_start(&options);
	struct zinf_options attach = fake_job_options(job.fake);

	attach.strategy = ZINF_ZERO2;
	cr_assert_eq(zinf_attach(&attach, &job.zinf), 0, "%s", zinf_attach_error());
	fake_job_materialize(&job);
	begin(&job);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 1), 0, "%s", zinf_error_text(job.zinf));
	*(volatile float *)zinf_grad_data(job.zinf, job.param[2]) = 1;
	cr_assert_eq(zinf_step_discard(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_lt(write(fds[1], zinf_grad_data(job.zinf, job.param[2]), 8), 0);
	cr_assert_eq(errno, EFAULT, "nothing is there");
	close(fds[0]);
	close(fds[1]);
	fake_job_leave(&job);
}

Test(discard, error_of_a_gradient_that_is_dropped_is_not_told)
{
	struct fake_daemon_options options = able;

	options.fail_on = FAKE_ON_OP(ZI_OP_REDUCE);
	options.fail_error = -EIO;
	struct fake_job job = fake_job_attach(&options);

	fake_job_materialize(&job);
	begin(&job);
	hand_over(&job);
	cr_assert_eq(zinf_step_discard(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0);
	fake_job_leave(&job);
}

/* As of another rank that discards it. */
Test(discard, step_that_was_cancelled_is_ended_again_or_discarded)
{
	struct fake_daemon_options options = able;
	zinf_ticket ticket;

	options.fail_on = FAKE_ON_OP(ZI_OP_STEP);
	options.fail_error = -ECANCELED;
	options.fail_text = "rank 1 discards";
	struct fake_job job = fake_job_attach(&options);

	fake_job_materialize(&job);
	fake_job_backward(&job);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
		cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -ECANCELED);
		expect_text(job.zinf, "rank 1 discards");
	}
	cr_assert_eq(zinf_step_discard(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	fake_job_backward(&job);
	fake_job_leave(&job);
}

Test(discard, step_whose_deadline_passed_is_discarded)
{
	struct fake_daemon_options options = able;
	zinf_ticket ticket;

	options.fail_on = FAKE_ON_OP(ZI_OP_STEP);
	options.fail_error = -ETIMEDOUT;
	struct fake_job job = fake_job_attach(&options);

	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), -ETIMEDOUT);
	cr_assert_eq(zinf_step_discard(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_step_discard(job.zinf), -EINVAL);
	fake_job_backward(&job);
	fake_job_leave(&job);
}

Test(discard, refused_discard_may_be_made_again)
{
	struct fake_daemon_options options = able;
	zinf_ticket ticket;

	options.fail_on = FAKE_ON_OP(ZI_OP_STEP_DISCARD);
	options.fail_error = -ETIMEDOUT;
	options.fail_text = "rank 1 did not come";
	struct fake_job job = fake_job_attach(&options);

	fake_job_materialize(&job);
	fake_job_backward(&job);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(zinf_step_discard(job.zinf), -ETIMEDOUT);
		expect_text(job.zinf, "rank 1 did not come");
	}
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0, "or the step is made");
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}
