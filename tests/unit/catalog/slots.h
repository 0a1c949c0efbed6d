/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose catalog has a commit beside the one in force, for a test each. */
#pragma once

#include "tests/unit/catalog/fixture.h"

#define SLOTS_EXTENTS 40u

static struct fixture fixture;
static struct sample sample;

static inline int slots_commit(int64_t step, bool keeps_former)
{
	struct catalog_request request = {
		.kind = CATALOG_COMMIT,
		.job = &sample.job,
		.keeps_former = keeps_former,
	};
	int r;

	sample_set_step(&sample, step);
	r = fixture_run(&fixture, &request);
	fixture.text = request.text;
	return r;
}

static inline int slots_step_back(uint64_t number, uint64_t line)
{
	struct catalog_job job = { .name = "train", .number = number, .line = line };

	return fixture_do(&fixture, CATALOG_STEP_BACK, &job);
}

/* To the commit that the sample makes of @step. */
static inline int slots_step_back_to(int64_t step)
{
	sample_set_step(&sample, step);
	return slots_step_back(sample.job.number, sample.job.line);
}

/* The job stands at @step, beside it the commit of @former_step; -1 none. */
static inline void slots_assert(int64_t step, int64_t former_step)
{
	struct catalog_job *job;

	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_not_null(job);
	cr_assert_eq(job->damage.chars[0], '\0', "%s", job->damage.chars);
	sample_set_step(&sample, step);
	assert_committed(job, &sample);
	cr_assert_eq(job->former != NULL, former_step >= 0);
	if (job->former) {
		cr_assert_eq(job->former->damage.chars[0], '\0', "%s", job->former->damage.chars);
		sample_set_step(&sample, former_step);
		assert_committed(job->former, &sample);
		cr_assert_str_eq(job->former->name, "train");
		cr_assert_eq(job->former->world_size, job->world_size);
		cr_assert_eq(memcmp(&job->former->config, &job->config, sizeof(job->config)), 0);
		cr_assert_eq(job->former->unit_count, 0, "the layout is the job's");
	}
	job = catalog_job_free(job);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
}

/* Nothing was committed yet. */
static inline void slots_begin_new(void)
{
	fixture_begin(&fixture, &sample, SLOTS_EXTENTS);
}

/* Stands at 3, beside it 2. */
static inline void slots_begin(void)
{
	slots_begin_new();
	cr_assert_eq(slots_commit(0, false), 0, "%s", fixture.text.chars);
	for (int64_t step = 1; step < 4; step++)
		cr_assert_eq(slots_commit(step, true), 0, "%s", fixture.text.chars);
}

static inline void slots_end(void)
{
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}
