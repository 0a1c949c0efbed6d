/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a join that nobody answers ends at its deadline and goes on when it is called again, one of
 * a daemon that does not know it is refused by name, and one where all have joined ends at once.
 * Method: the fake daemon, which begins no step for anybody. What ranks do together is the system
 * test's (tests/system/test_join.c). */
#include "tests/fake/fake_job.h"

Test(join, ends_when_all_have_joined)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });

	fake_job_materialize(&job);
	cr_assert_eq(zinf_join(job.zinf, true), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_join(job.zinf, false), 0, "%s", zinf_error_text(job.zinf));
	fake_job_backward(&job);
	fake_job_leave(&job);
}

Test(join, own_step_after_one_that_ran_out_of_time_is_nobody_elses)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });

	fake_job_materialize(&job);
	/* What a join leaves whose shadowed step the caller has ended by himself. */
	job.zinf->is_shadowing = true;
	fake_job_backward(&job);
	cr_assert_eq(zinf_join(job.zinf, false), -EBUSY);
	expect_text(job.zinf, "a step has begun");
	fake_job_leave(&job);
}

Test(join, an_older_daemon_does_not_know_it)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){ 0 });

	fake_job_materialize(&job);
	cr_assert_eq(zinf_join(job.zinf, false), -EOPNOTSUPP);
	expect_text(job.zinf, "zinf_join(): zinfd at");
	fake_job_leave(&job);
}

Test(join, a_daemon_that_says_nothing_is_not_waited_for_without_end)
{
	struct fake_job job = fake_job_attach(&(struct fake_daemon_options){
		.features = ZI_FEATURE_TRAINING, .silent_on = FAKE_ON_OP(ZI_OP_STEP_BEGIN) });

	fake_job_materialize(&job);
	fake_job_limit_time(&job, 20);
	cr_assert_eq(zinf_join(job.zinf, false), -ETIMEDOUT);
	fake_job_leave(&job);
}
