/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank that attached forward only has parameters and no gradients, and every call of a step
 * says by its own name why it is not for it; nothing of one is sent. Method: the fake daemon, an
 * honest one and two that are not.
 */
#include <stdio.h>

#include "tests/fake/fake_job.h"

static struct fake_job forward_attach(enum fake_lie lie, enum zinf_offload offload_param)
{
	struct fake_daemon_options able = { .features = UINT64_MAX, .lie = lie };
	struct fake_job job = { .fake = fake_daemon_start(&able) };
	struct zinf_options options = fake_job_options(job.fake);

	options.is_forward_only = true;
	options.offload_param = offload_param;
	if (offload_param)
		options.offload_optimizer = offload_param;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static void expect_refused(const struct fake_job *job, const char *call, int got)
{
	char words[96];

	(void)snprintf(words, sizeof(words), "%s: this rank attached forward only", call);
	cr_expect_eq(got, -EPERM, "%s: %d", call, got);
	cr_expect_not_null(strstr(zinf_error_text(job->zinf), words), "%s",
	                   zinf_error_text(job->zinf));
}

static void use(enum zinf_offload offload_param)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct fake_job job = forward_attach(FAKE_LIE_NONE, offload_param);
	zinf_ticket ticket = 5;
	double scale = 0;

	fake_job_materialize(&job);
	cr_expect_null(zinf_grad_data(job.zinf, job.param[0]));
	for (int i = 0; i < 2; i++) {
		const unsigned char *data = zinf_param_data(job.zinf, job.param[2 * i]);

		cr_assert_eq(zinf_unshard(job.zinf, job.unit[i]), 0, "%s",
		             zinf_error_text(job.zinf));
		cr_expect_neq(data[0], 0);
		cr_assert_eq(zinf_reshard(job.zinf, job.unit[i]), 0);
	}
	expect_refused(&job, "zinf_step_begin()", zinf_step_begin(job.zinf, &options));
	expect_refused(&job, "zinf_grad_acquire()", zinf_grad_acquire(job.zinf, 0));
	expect_refused(&job, "zinf_reduce()", zinf_reduce(job.zinf, 1));
	expect_refused(&job, "zinf_step()", zinf_step(job.zinf, NULL, 0, &ticket));
	cr_expect_eq(ticket, 5, "untouched");
	expect_refused(&job, "zinf_grad_done()", zinf_grad_done(job.zinf, 0));
	expect_refused(&job, "zinf_join()", zinf_join(job.zinf, false));
	cr_expect_eq(zinf_loss_scale(job.zinf, &scale), 0);
	cr_expect_eq(zinf_commit(job.zinf, NULL, 0), 0, "%s", zinf_error_text(job.zinf));
	fake_job_leave(&job);
}

Test(forward, parameters_are_there_and_no_call_of_a_step_is)
{
	use(ZINF_OFFLOAD_NONE);
	use(ZINF_OFFLOAD_NVME);
}

/* It would send a gradient's memory, or refuse the word itself. */
Test(forward, an_older_daemon_is_not_asked)
{
	struct fake_daemon_options able = { .features = UINT64_MAX & ~ZI_FEATURE_FORWARD };
	struct fake_daemon *fake = fake_daemon_start(&able);
	struct zinf_options options = fake_job_options(fake);
	struct zinf *zinf;

	options.is_forward_only = true;
	cr_expect_eq(zinf_attach(&options, &zinf), -EOPNOTSUPP);
	cr_expect_not_null(strstr(zinf_attach_error(), "is_forward_only is true, but zinfd at"),
	                   "%s", zinf_attach_error());
	options.is_forward_only = false;
	cr_assert_eq(zinf_attach(&options, &zinf), 0, "%s", zinf_attach_error());
	zinf_detach(zinf);
	fake_daemon_stop(fake);
}

Test(forward, gradients_that_nobody_asked_for_are_a_breach)
{
	static const enum fake_lie lies[] = { FAKE_LIE_GRADS, FAKE_LIE_GRAD_BYTES };

	for (size_t i = 0; i < ZI_COUNT_OF(lies); i++) {
		struct fake_job job = forward_attach(lies[i], ZINF_OFFLOAD_NONE);

		fake_job_add(&job);
		cr_expect_eq(zinf_materialize(job.zinf), -EPROTO, "%s", zinf_error_text(job.zinf));
		fake_job_leave(&job);
	}
}
