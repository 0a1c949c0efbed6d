/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: zinf_unshard_rows() asks for the runs of subgroups in which the rows lie, excludes uses of
 * the whole unit, goes on after an interrupt, and is an unshard where the daemon knows no parts.
 * Method: the fake daemon, with a model of one large parameter. */
#include "tests/fake/fake_job.h"

#define ROWS  600u
#define WIDTH 1024u /* so that a subgroup has 256 rows */

/* "a" of a scalar and (ROWS, WIDTH) */
static struct fake_job rows_attach(const struct fake_daemon_options *options)
{
	struct fake_job job = fake_job_attach(options);

	cr_assert_eq(zinf_unit_add(job.zinf, "a", &job.unit[0]), 0);
	cr_assert_eq(zinf_param_add(job.zinf, "a.s", 0, NULL, &job.param[0]), 0);
	cr_assert_eq(zinf_param_add(job.zinf, "a.w", 2, (uint64_t[]){ ROWS, WIDTH }, &job.param[1]),
	             0);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	return job;
}

static const struct fake_daemon_options able = { .features = UINT64_MAX };

static uint32_t count_of(struct fake_job *job, uint16_t opcode)
{
	cr_assert_eq(zinf_ping(job->zinf), 0);
	return fake_daemon_count(job->fake, FAKE_ON_OP(opcode));
}

static uint64_t bits_of(struct fake_job *job, const int64_t *rows, size_t count)
{
	uint64_t bits;

	cr_assert_eq(zinf_unshard_rows(job->zinf, job->param[1], rows, count), 0, "%s",
	             zinf_error_text(job->zinf));
	cr_assert_eq(job->zinf->units[0].part_args[0], 1, "a run is one subgroup");
	bits = job->zinf->units[0].part_args[1];
	cr_assert_eq(zinf_reshard(job->zinf, job->unit[0]), 0);
	return bits;
}

Test(rows, asks_for_the_subgroups_of_the_rows)
{
	struct fake_job job = rows_attach(&able);

	cr_assert_eq(bits_of(&job, (int64_t[]){ 0 }, 1), 1);
	cr_assert_eq(bits_of(&job, (int64_t[]){ 254, 254, 3 }, 3), 1);
	cr_assert_eq(bits_of(&job, (int64_t[]){ 255 }, 1), 3, "the scalar moves it over the edge");
	cr_assert_eq(bits_of(&job, (int64_t[]){ ROWS - 1, 0 }, 2), 5);
	cr_assert_eq(bits_of(&job, NULL, 0), 0);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD_PART), 5);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD), 0);
	cr_assert_eq(count_of(&job, ZI_OP_RESHARD), 5);
	fake_job_leave(&job);
}

/* 400 subgroups: two of them share a bit. The model is as long in libzinf's tables only. */
Test(rows, subgroups_of_a_large_parameter_share_bits)
{
	struct fake_job job = rows_attach(&able);
	struct zi_client_param *param = &job.zinf->params[1];
	const uint64_t *args = job.zinf->units[0].part_args;

	job.zinf->units[0].element_count = 400ull * ZI_SUBGROUP_ELEMENTS;
	param->element_offset = 0;
	param->entry.shape[0] = 400;
	param->entry.shape[1] = ZI_SUBGROUP_ELEMENTS;
	cr_assert_eq(zinf_unshard_rows(job.zinf, 1, (int64_t[]){ 0, 3, 399 }, 3), 0);
	cr_assert_eq(args[0], 2);
	cr_assert_eq(args[1], 3);
	cr_assert_eq(args[4], 1ull << (399 / 2 - 192));
	cr_assert_eq(args[2] | args[3] | args[5], 0);
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	fake_job_leave(&job);
}

Test(rows, part_and_whole_exclude_each_other)
{
	struct fake_job job = rows_attach(&able);
	const int64_t row = 1;

	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &row, 1), 0);
	cr_assert_not(zinf_param_is_resident(job.zinf, job.param[1]));
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), -EBUSY);
	expect_text(job.zinf, "rows of unit 'a' are unsharded");
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &row, 1), -EBUSY);
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), 0);
	cr_assert(zinf_param_is_resident(job.zinf, job.param[1]));
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &row, 1), 0, "one more use");
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert(zinf_param_is_resident(job.zinf, job.param[1]), "the first use is left");
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD_PART), 1);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD), 1);
	cr_assert_eq(count_of(&job, ZI_OP_RESHARD), 2);
	fake_job_leave(&job);
}

Test(rows, bad_arguments_are_refused)
{
	struct fake_job job = rows_attach(&able);
	const int64_t below = -1, above = ROWS;

	cr_assert_eq(zinf_unshard_rows(NULL, 0, &below, 1), -EINVAL);
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], NULL, 1), -EINVAL);
	expect_text(job.zinf, "rows is NULL");
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &below, 1), -EINVAL);
	expect_text(job.zinf, "row -1 of parameter 'a.w', which has 600");
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &above, 1), -EINVAL);
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[0], &below, 1), -EINVAL);
	expect_text(job.zinf, "'a.s' is a scalar");
	cr_assert_eq(zinf_unshard_rows(job.zinf, 2, &below, 1), -EINVAL);
	expect_text(job.zinf, "parameter 2: there are 2");
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD_PART), 0);
	fake_job_leave(&job);
}

Test(rows, older_daemon_unshards_the_unit)
{
	struct fake_job job = rows_attach(
		&(struct fake_daemon_options){ .features = ~(uint64_t)ZI_FEATURE_PART });
	const int64_t row = 1;

	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &row, 1), 0);
	cr_assert(zinf_param_is_resident(job.zinf, job.param[1]));
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD_PART), 0);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD), 1);
	fake_job_leave(&job);
}

Test(rows, failed_call_may_come_again)
{
	struct fake_job job = rows_attach(
		&(struct fake_daemon_options){ .features = UINT64_MAX,
	                                       .fail_on = FAKE_ON_OP(ZI_OP_UNSHARD_PART),
	                                       .fail_error = -EBADMSG,
	                                       .fail_text = "damaged at 4096" });
	const int64_t row = 1;

	for (int i = 0; i < 2; i++) {
		cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &row, 1), -EBADMSG);
		expect_text(job.zinf, "damaged at 4096");
	}
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), -EINVAL);
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	fake_job_leave(&job);
}

/* ---- interrupted ---- */

static struct zinf *victim;

static void interrupt_victim(void *arg)
{
	(void)arg;
	zinf_interrupt(victim);
}

/* A call for row 1, which was interrupted, and whose answer comes now. */
static struct fake_job interrupted(void)
{
	struct fake_job job = rows_attach(
		&(struct fake_daemon_options){ .features = UINT64_MAX,
	                                       .hold_on = FAKE_ON_OP(ZI_OP_UNSHARD_PART),
	                                       .on_hold = interrupt_victim });
	const int64_t row = 1;

	victim = job.zinf;
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &row, 1), -EINTR);
	fake_daemon_release(job.fake);
	return job;
}

Test(rows, the_same_rows_go_on_after_an_interrupt)
{
	struct fake_job job = interrupted();

	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], (int64_t[]){ 2 }, 1), 0,
	             "of the same subgroup");
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD_PART), 1);
	fake_job_leave(&job);
}

Test(rows, other_rows_after_an_interrupt_are_asked_for_anew)
{
	struct fake_job job = interrupted();

	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], (int64_t[]){ ROWS - 1 }, 1), 0);
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD_PART), 2);
	cr_assert_eq(count_of(&job, ZI_OP_RESHARD), 1, "the first part was given back");
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	fake_job_leave(&job);
}

Test(rows, whole_unit_after_an_interrupt_is_asked_for)
{
	struct fake_job job = interrupted();

	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), 0);
	cr_assert(zinf_param_is_resident(job.zinf, job.param[1]));
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD), 1);
	cr_assert_eq(count_of(&job, ZI_OP_RESHARD), 1);
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	fake_job_leave(&job);
}

static const struct fake_daemon_options whole_held = { .features = UINT64_MAX,
	                                               .hold_on = FAKE_ON_OP(ZI_OP_UNSHARD),
	                                               .on_hold = interrupt_victim };

Test(rows, rows_after_an_interrupted_unshard_wait_for_the_unit)
{
	struct fake_job job = rows_attach(&whole_held);
	const int64_t row = 1;

	victim = job.zinf;
	cr_assert_eq(zinf_unshard(job.zinf, job.unit[0]), -EINTR);
	fake_daemon_release(job.fake);
	cr_assert_eq(zinf_unshard_rows(job.zinf, job.param[1], &row, 1), 0);
	cr_assert(zinf_param_is_resident(job.zinf, job.param[1]));
	cr_assert_eq(count_of(&job, ZI_OP_UNSHARD_PART), 0);
	cr_assert_eq(zinf_reshard(job.zinf, job.unit[0]), 0);
	fake_job_leave(&job);
}
