/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a parameter's group goes with the layout, to a daemon that knows groups, and one that there
 * is not is told at once. Method: the fake daemon, and what a rank keeps of its model. */
#include "common/base/cleanup.h"
#include "tests/fake/fake_job.h"

static struct fake_job attach(uint64_t features, uint32_t group_count)
{
	struct fake_job job = { .fake = fake_daemon_start(
					&(struct fake_daemon_options){ .features = features }) };
	struct zinf_options options = fake_job_options(job.fake);

	options.group_count = group_count;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static void expect_refused(struct fake_job *job, uint32_t param, uint32_t group, int error,
                           const char *words)
{
	cr_expect_eq(zinf_param_group(job->zinf, param, group), error);
	expect_text(job->zinf, words);
}

Test(param_group, a_group_or_none_goes_with_the_layout)
{
	struct fake_job job = attach(ZI_FEATURE_TRAINING | ZI_FEATURE_FROZEN, 3);

	expect_refused(&job, 0, 0, -EINVAL, "parameter 0 of 0");
	fake_job_add(&job);
	cr_expect_eq(zinf_param_group(job.zinf, job.param[0], 2), 0);
	cr_expect_eq(zinf_param_group(job.zinf, job.param[1], 1), 0);
	cr_expect_eq(zinf_param_group(job.zinf, job.param[1], ZINF_GROUP_FROZEN), 0, "the last");
	expect_refused(&job, job.param[2], 3, -EINVAL,
	               "parameter 'b.w' cannot be of group 3: group_count of the options is 3");
	expect_refused(&job, 3, 0, -EINVAL, "parameter 3 of 3");
	cr_expect_eq(job.zinf->params[job.param[0]].entry.group, 2);
	cr_expect_eq(job.zinf->params[job.param[1]].entry.group, ZI_LAYOUT_FROZEN);
	cr_expect_eq(job.zinf->params[job.param[2]].entry.group, 0);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	expect_refused(&job, job.param[0], 1, -EINVAL, "zinf_param_group() after zinf_materialize");
	fake_job_leave(&job);
}

Test(param_group, without_a_count_there_is_one_group)
{
	struct fake_job job = attach(ZI_FEATURE_TRAINING | ZI_FEATURE_FROZEN, 0);

	fake_job_add(&job);
	cr_expect_eq(zinf_param_group(job.zinf, 0, 0), 0);
	cr_expect_eq(zinf_param_group(job.zinf, 0, ZINF_GROUP_FROZEN), 0);
	expect_refused(&job, 0, 1, -EINVAL, "group_count of the options is 1");
	fake_job_leave(&job);
}

Test(param_group, an_older_daemon_knows_none)
{
	struct fake_job job = attach(0, 0);

	fake_job_add(&job);
	cr_expect_eq(zinf_param_group(job.zinf, 0, 0), 0, "that is no group");
	expect_refused(&job, 0, ZINF_GROUP_FROZEN, -EOPNOTSUPP,
	               "does not support parameter groups: use a newer zinfd");
	fake_job_leave(&job);
}

Test(param_group, an_older_daemon_knows_no_units_that_are_frozen_whole)
{
	struct fake_job job = attach(ZI_FEATURE_TRAINING, 0);

	fake_job_add(&job);
	cr_expect_eq(zinf_param_group(job.zinf, job.param[0], ZINF_GROUP_FROZEN), 0);
	cr_expect_eq(zinf_param_group(job.zinf, job.param[2], ZINF_GROUP_FROZEN), 0);
	cr_expect_eq(zinf_materialize(job.zinf), -EOPNOTSUPP);
	expect_text(job.zinf, "all parameters of unit 'b' are frozen, but zinfd at");
	cr_expect_eq(zinf_param_group(job.zinf, job.param[2], 0), 0);
	cr_expect_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	fake_job_leave(&job);
}
