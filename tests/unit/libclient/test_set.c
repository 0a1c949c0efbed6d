/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: sets of ranks arrive as they were told, each unit behind its own, and a rank has memory and
 * calls for the gradients of its sets alone; what cannot be is refused here, by name. Method: the
 * fake daemon, which counts the bytes of gradients by itself. */
#include <stdio.h>

#include "tests/fake/fake_job.h"

#define ALL_FEATURES (ZI_FEATURE_TRAINING | ZI_FEATURE_SETS)

static struct fake_job attach(int32_t rank, int32_t world_size)
{
	struct fake_job job = { .fake = fake_daemon_start(&(struct fake_daemon_options){
					.features = ALL_FEATURES }) };
	struct zinf_options options = fake_job_options(job.fake);

	options.rank = rank;
	options.world_size = world_size;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	return job;
}

static uint32_t add_unit(struct fake_job *job, const char *name, uint64_t elements)
{
	uint32_t unit, param;

	cr_assert_eq(zinf_unit_add(job->zinf, name, &unit), 0, "%s", zinf_error_text(job->zinf));
	cr_assert_eq(zinf_param_add(job->zinf, "w", 1, &elements, &param), 0);
	cr_assert_eq(param, unit);
	return unit;
}

static uint32_t add_set(struct fake_job *job, const char *name, uint32_t first, uint32_t second)
{
	uint32_t set = 77;

	cr_assert_eq(zinf_dp_group_add(job->zinf, name, (uint32_t[]){ first, second }, 2, &set), 0,
	             "%s", zinf_error_text(job->zinf));
	return set;
}

/* Rank 1 of 4: in "right" and "all". */
static void add_grid(struct fake_job *job)
{
	uint32_t all = 77;

	cr_assert_eq(add_set(job, "left", 0, 2), 0);
	(void)add_unit(job, "a", 5000);
	cr_assert_eq(add_set(job, "right", 3, 1), 1);
	(void)add_unit(job, "b", 5000);
	cr_assert_eq(zinf_dp_group_add(job->zinf, "all", NULL, 0, &all), 0);
	cr_assert_eq(all, 2);
	(void)add_unit(job, "c", 10);
	cr_assert_eq(add_set(job, "right", 1, 3), 1, "it goes on");
	(void)add_unit(job, "d", 10);
	cr_assert_eq(zinf_materialize(job->zinf), 0, "%s", zinf_error_text(job->zinf));
}

Test(set, each_unit_comes_behind_its_set)
{
	struct fake_job job = attach(1, 4);

	add_grid(&job);
	cr_assert_str_eq(fake_daemon_layout(job.fake),
	                 "left right all left a w right b w all c w right d w");
	fake_job_leave(&job);
}

Test(set, units_of_one_set_need_it_once)
{
	struct fake_job job = attach(0, 1);

	cr_assert_eq(zinf_dp_group_add(job.zinf, "only", NULL, 0, &(uint32_t){ 0 }), 0);
	(void)add_unit(&job, "a", 1);
	(void)add_unit(&job, "b", 1);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_str_eq(fake_daemon_layout(job.fake), "only a w b w");
	fake_job_leave(&job);
}

/* Sets one after the other, each with its units: "b" and "d" of "right", then "c". */
Test(set, gradients_lie_set_by_set)
{
	struct fake_job job = attach(1, 4);
	char *grads[4];

	add_grid(&job);
	for (uint32_t i = 0; i < 4; i++)
		grads[i] = zinf_grad_data(job.zinf, i);
	cr_assert_null(grads[0], "of a set of others");
	cr_assert_not_null(zinf_param_data(job.zinf, 0), "its parameters are there");
	cr_assert_eq(grads[3] - grads[1], 4 * 8192);
	cr_assert_eq(grads[2] - grads[3], 4 * 4096);
	memset(grads[2], 1, 40);
	fake_job_leave(&job);
}

Test(set, a_rank_of_no_set_has_no_gradients)
{
	struct fake_job job = attach(1, 4);

	(void)add_set(&job, "others", 0, 2);
	(void)add_unit(&job, "a", 5000);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_null(zinf_grad_data(job.zinf, 0));
	fake_job_leave(&job);
}

Test(set, a_step_wants_the_gradients_of_this_ranks_sets_alone)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct fake_job job = attach(1, 4);
	zinf_ticket ticket;

	add_grid(&job);
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), -EPERM);
	expect_text(job.zinf,
	            "unit 'a' belongs to data-parallel group 'left', and rank 1 does not");
	cr_assert_eq(zinf_reduce(job.zinf, 0), -EPERM);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), -ENODATA);
	expect_text(job.zinf, "no gradient for units: b, c, d (call zinf_reduce()");
	for (uint32_t i = 1; i < 4; i++) {
		cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0, "%s", zinf_error_text(job.zinf));
		cr_assert_eq(zinf_reduce(job.zinf, i), 0);
	}
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	fake_job_leave(&job);
}

Test(set, an_early_step_keeps_a_rank_from_units_of_others)
{
	struct zinf_step_options step = ZINF_STEP_OPTIONS_INIT;
	struct fake_job job = attach(1, 4);

	add_grid(&job);
	step.update_early = true;
	cr_assert_eq(zinf_step_begin(job.zinf, &step), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 0), -EBUSY);
	expect_text(job.zinf, "(in a data-parallel group of others: zinf_step_begin())");
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 1), 0);
	fake_job_leave(&job);
}

Test(set, what_cannot_be_is_refused)
{
	struct fake_job job = attach(1, 4);
	struct zinf *zinf = job.zinf;
	char name[ZINF_PARAM_NAME_BYTES + 1];
	uint32_t set = 77;

	cr_assert_eq(zinf_dp_group_add(zinf, "x", (uint32_t[]){ 4 }, 1, &set), -EINVAL);
	expect_text(zinf, "data-parallel group 'x' names rank 4: the job has 4 ranks");
	cr_assert_eq(zinf_dp_group_add(zinf, "x", (uint32_t[]){ 2, 0, 2 }, 3, &set), -EINVAL);
	expect_text(zinf, "data-parallel group 'x' names rank 2 twice");
	cr_assert_eq(zinf_dp_group_add(zinf, "x", NULL, 2, &set), -EINVAL);
	expect_text(zinf, "rank_count is 2, but ranks is NULL");
	cr_assert_eq(zinf_dp_group_add(zinf, "x", (uint32_t[]){ 0 }, 0, &set), -EINVAL);
	expect_text(zinf, "data-parallel group 'x' has no ranks");
	cr_assert_eq(zinf_dp_group_add(zinf, "", NULL, 0, &set), -EINVAL);
	expect_text(zinf, "without a name");
	memset(name, 'n', sizeof(name));
	name[ZINF_PARAM_NAME_BYTES] = '\0';
	cr_assert_eq(zinf_dp_group_add(zinf, name, NULL, 0, &set), -EINVAL);
	cr_assert_eq(zinf_dp_group_add(zinf, NULL, NULL, 0, &set), -EINVAL);
	cr_assert_eq(set, 77, "untouched");
	(void)add_set(&job, "x", 0, 1);
	cr_assert_eq(zinf_dp_group_add(zinf, "x", (uint32_t[]){ 0 }, 1, &set), -EINVAL);
	expect_text(zinf, "data-parallel group 'x' exists with other ranks");
	for (uint32_t i = 1; i < ZINF_DP_GROUPS_MAX; i++) {
		(void)snprintf(name, sizeof(name), "s%u", i);
		cr_assert_eq(zinf_dp_group_add(zinf, name, NULL, 0, &set), 0);
	}
	cr_assert_eq(zinf_dp_group_add(zinf, "more", NULL, 0, &set), -E2BIG);
	expect_text(zinf, "data-parallel group 'more' is one too many: 256 are allowed");
	(void)add_unit(&job, "a", 1);
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_dp_group_add(zinf, "x", NULL, 0, &set), -EINVAL);
	expect_text(zinf, "zinf_dp_group_add() after zinf_materialize()");
	fake_job_leave(&job);
}

Test(set, the_first_one_comes_before_the_first_unit)
{
	struct fake_job job = attach(0, 1);
	uint32_t set;

	(void)add_unit(&job, "a", 1);
	cr_assert_eq(zinf_dp_group_add(job.zinf, "late", NULL, 0, &set), -EINVAL);
	expect_text(job.zinf,
	            "call zinf_dp_group_add() for 'late' before the first unit: unit 'a'");
	fake_job_leave(&job);
}

Test(set, an_older_daemon_has_none)
{
	struct fake_job job =
		fake_job_attach(&(struct fake_daemon_options){ .features = ZI_FEATURE_TRAINING });
	uint32_t set;

	cr_assert_eq(zinf_dp_group_add(job.zinf, "s", NULL, 0, &set), -EOPNOTSUPP);
	expect_text(job.zinf, "this zinfd is older and has no data-parallel groups: 's'");
	fake_job_leave(&job);
}
