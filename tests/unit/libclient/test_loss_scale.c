/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a loss scale that is asked for travels in the words of ATTACH, and zinf_loss_scale() tells
 * the one of the next backward as soon as it is known, and not before. Method: the fake daemon,
 * which says 1024 at first and 512 after a step. */
#include "common/base/cleanup.h"
#include "tests/fake/fake_job.h"

static const struct fake_daemon_options knowing = { .features = ZI_FEATURE_TRAINING };

static struct fake_job attach(const struct fake_daemon_options *daemon,
                              const struct zinf_scaler_options *scaler)
{
	struct fake_job job = { .fake = fake_daemon_start(daemon) };
	struct zinf_options options = fake_job_options(job.fake);

	options.scaler = scaler;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static double scale_of(struct fake_job *job)
{
	double scale = 0;

	cr_expect_eq(zinf_loss_scale(job->zinf, &scale), 0, "%s", zinf_error_text(job->zinf));
	return scale;
}

static void step(struct fake_job *job, zinf_ticket *ret_ticket)
{
	fake_job_backward(job);
	cr_assert_eq(zinf_step(job->zinf, NULL, 0, ret_ticket), 0, "%s",
	             zinf_error_text(job->zinf));
}

Test(loss_scale, what_is_asked_for_is_sent)
{
	const struct zi_job_training *seen;
	struct zinf_scaler_options scaler;
	struct fake_job job;

	cr_assert_eq(zinf_scaler_defaults(ZINF_SCALER_DEEPSPEED, &scaler), 0);
	scaler.window = 7;
	scaler.is_consecutive = true;
	scaler.min = 4;
	job = attach(&knowing, &scaler);
	seen = fake_daemon_training(job.fake);
	cr_expect_eq(seen->scaler_kind, ZI_SCALER_DEEPSPEED);
	cr_expect_eq(seen->scale_window, 7);
	cr_expect_eq(seen->scale_hysteresis, 2);
	cr_expect_eq(seen->flags, ZI_TRAINING_CONSECUTIVE);
	cr_expect_eq(seen->scale_init, 65536);
	cr_expect_eq(seen->scale_min, 4);
	fake_job_leave(&job);
	cr_assert_eq(zinf_scaler_defaults(ZINF_SCALER_NONE, &scaler), 0);
	job = attach(&knowing, &scaler);
	seen = fake_daemon_training(job.fake);
	cr_expect_eq(seen->scale_init, 0, "none is none");
	fake_job_leave(&job);
}

Test(loss_scale, what_is_wrong_is_told_before_anything_is_sent)
{
	struct fake_daemon *fake = fake_daemon_start(&knowing);
	struct zinf_options options = fake_job_options(fake);
	struct zinf_scaler_options scaler;
	struct zinf *zinf = NULL;

	options.scaler = &scaler;
	cr_assert_eq(zinf_scaler_defaults(ZINF_SCALER_TORCH, &scaler), 0);
	scaler.backoff = 2;
	cr_expect_eq(zinf_attach(&options, &zinf), -EINVAL);
	expect_attach_text("torch loss scale: backoff 2 must be above 0 and below 1");
	scaler.bytes = 3;
	cr_expect_eq(zinf_attach(&options, &zinf), -EINVAL);
	expect_attach_text("a loss scale of 3 bytes: begin with zinf_scaler_defaults()");
	cr_expect_eq(fake_daemon_count(fake, FAKE_ON_MESSAGE(ZI_MESSAGE_HELLO)), 0);
	fake_daemon_stop(fake);
	fake = fake_daemon_start(&(struct fake_daemon_options){ 0 });
	options = fake_job_options(fake);
	options.scaler = &scaler;
	cr_assert_eq(zinf_scaler_defaults(ZINF_SCALER_TORCH, &scaler), 0);
	cr_expect_eq(zinf_attach(&options, &zinf), -EOPNOTSUPP);
	expect_attach_text("scaler is torch, but none in every job of");
	fake_daemon_stop(fake);
}

Test(loss_scale, it_is_told_once_the_step_before_was_waited_for)
{
	struct zinf_scaler_options scaler;
	struct fake_job job;
	zinf_ticket ticket = 0;
	double scale = 3;

	cr_assert_eq(zinf_scaler_defaults(ZINF_SCALER_APEX, &scaler), 0);
	job = attach(&knowing, &scaler);
	cr_expect_eq(zinf_loss_scale(job.zinf, &scale), -EINVAL);
	expect_text(job.zinf, "call zinf_materialize() first");
	fake_job_materialize(&job);
	cr_expect_eq(scale_of(&job), 1024);
	step(&job, &ticket);
	cr_expect_eq(zinf_loss_scale(job.zinf, &scale), -EBUSY);
	expect_text(job.zinf, "call zinf_wait() first");
	cr_expect_eq(scale, 3, "untouched on failure");
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_expect_eq(scale_of(&job), 512);
	fake_job_leave(&job);
}

Test(loss_scale, one_that_does_not_move_is_told_always)
{
	struct zinf_scaler_options scaler;
	zinf_ticket ticket = 0;
	struct fake_job job;

	cr_assert_eq(zinf_scaler_defaults(ZINF_SCALER_STATIC, &scaler), 0);
	job = attach(&knowing, &scaler);
	fake_job_materialize(&job);
	step(&job, &ticket);
	cr_expect_eq(scale_of(&job), 1024);
	fake_job_leave(&job);
	/* An older daemon, and no scaler. */
	job = attach(&(struct fake_daemon_options){ 0 }, NULL);
	fake_job_materialize(&job);
	cr_expect_eq(scale_of(&job), 1);
	step(&job, &ticket);
	cr_expect_eq(scale_of(&job), 1);
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_expect_eq(scale_of(&job), 1);
	fake_job_leave(&job);
}

Test(loss_scale, a_daemon_that_tells_an_impossible_one_breaks_the_protocol)
{
	struct fake_job job = attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING,
	                                                            .lie = FAKE_LIE_SCALE },
	                             NULL);

	fake_job_add(&job);
	cr_expect_eq(zinf_materialize(job.zinf), -EPROTO);
	expect_text(job.zinf, "an impossible loss scale");
	fake_job_leave(&job);
}
