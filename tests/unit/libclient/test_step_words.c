/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: words of a step that came later are sent to a daemon that knows them and refused by name
 * for an older one; what only a newer daemon tells is not believed of an older one. Method: the
 * fake daemon, with and without the feature. */
#include <math.h>

#include "common/base/cleanup.h"
#include "tests/fake/fake_job.h"

static const struct fake_daemon_options honest = { 0 };

Test(step_words, what_came_later_is_told_where_the_daemon_knows_it)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	zinf_ticket ticket = 0;

	cr_assert_eq(zinf_update_count(job.zinf), -1, "not materialised");
	fake_job_materialize(&job);
	cr_assert_eq(zinf_update_count(job.zinf), 40);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_update_count(job.zinf), 40, "not waited for");
	cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), 0);
	cr_assert_eq(zinf_update_count(job.zinf), 41);
	cr_assert_eq(stats.update_count, 41);
	cr_assert_eq(stats.loss_scale, 512);
	cr_assert_eq(stats.nonfinite_rank, 3);
	cr_assert_eq(stats.nonfinite_unit, 1);
	fake_job_leave(&job);
	job = fake_job_attach(&honest); /* an older one, whatever lies there */
	fake_job_materialize(&job);
	fake_job_backward(&job);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
	cr_assert_eq(zinf_wait(job.zinf, ticket, &stats), 0);
	cr_assert_eq(zinf_update_count(job.zinf), -1);
	cr_assert_eq(stats.update_count, -1);
	cr_assert_eq(stats.loss_scale, 1);
	cr_assert_eq(stats.nonfinite_rank, -1);
	fake_job_leave(&job);
}

Test(step_words, words_that_came_later_travel_and_an_older_daemon_is_named)
{
	const struct zinf_step_group groups[2] = { { 0.5, 0.25 }, { 0, 1 } };
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	const struct zi_step_options *seen = fake_daemon_step_options(job.fake);

	fake_job_materialize(&job);
	step.no_bias_correction = true;
	step.lr_decay = 0.125;
	step.groups = groups;
	step.group_count = 2;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(seen->flags, ZI_STEP_NO_BIAS_CORRECTION);
	cr_assert_eq(seen->lr_decay, 0.125);
	cr_assert_eq(seen->group_count, 2);
	cr_assert_eq(fake_daemon_step_groups(job.fake)[0].lr, 0.5);
	cr_assert_eq(fake_daemon_step_groups(job.fake)[0].weight_decay, 0.25);
	cr_assert_eq(fake_daemon_step_groups(job.fake)[1].weight_decay, 1);
	fake_job_leave(&job);
	job = fake_job_attach(&honest);
	fake_job_materialize(&job);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EOPNOTSUPP);
	expect_text(job.zinf, "use a newer zinfd");
	fake_job_leave(&job);
}

Test(step_words, groups_of_a_step_are_checked_one_by_one)
{
	struct zinf_step_group groups[3] = { { 1, 0 }, { 1, 0 }, { 1, 0 } };
	const double bad[] = { NAN, -1, 1e39, INFINITY };
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;

	fake_job_materialize(&job);
	step.group_count = 3;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "group_count of a step is 3, but groups is NULL");
	step.groups = groups;
	for (size_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		groups[2].lr = bad[i];
		cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
		expect_text(job.zinf, "group 2 of a step has lr ");
		groups[2].lr = 1;
		groups[2].weight_decay = bad[i];
		cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
		groups[2].weight_decay = 0;
	}
	step.group_count = 65;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "group_count is 65: 0 to 64");
	step.group_count = 0;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "group_count of a step is 0, but groups is set");
	step.groups = NULL;
	step.reserved_end = 1;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), -EINVAL);
	expect_text(job.zinf, "reserved step options");
	fake_job_leave(&job);
}
