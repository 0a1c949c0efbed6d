/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a request says is what a later daemon loads, all of it or nothing, and each request
 * ends once. Method: jobs written through the commit thread, the catalog closed and opened again,
 * and every field compared. */
#include "tests/harness/cpu_time.h"
#include "tests/unit/catalog/fixture.h"

#include <math.h>

Test(commit, a_created_job_is_loaded_field_by_field)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_job *job;

	fixture_begin(&fixture, &sample, 0);
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_str_eq(job->name, "train");
	cr_assert_eq(job->uid, 1000);
	cr_assert_eq(job->world_size, 2);
	cr_assert_eq(memcmp(&job->config, &sample.job.config, sizeof(job->config)), 0);
	cr_assert_eq(job->incarnation_number, 1);
	cr_assert_str_eq(job->incarnation, "run-0");
	cr_assert_eq(job->step, -1);
	cr_assert_eq(job->unit_count, 2);
	cr_assert_eq(job->param_count, 3);
	cr_assert_eq(job->extent_count, 0);
	cr_assert_eq(job->blob_count, 0, "blobs come with a commit");
	cr_assert_eq(memcmp(job->training, sample.job.training, sizeof(job->training)), 0);
	cr_assert_eq(job->extra_bytes, 7);
	cr_assert_str_eq(job->extra, "groups");
	cr_assert_eq(job->set_count, 2);
	cr_assert_eq(memcmp(job->sets, sample.sets, sizeof(sample.sets)), 0);
	cr_assert_null(job->former);
	cr_assert_eq(memcmp(job->units, sample.units, sizeof(sample.units)), 0);
	cr_assert_eq(memcmp(job->params, sample.params, sizeof(sample.params)), 0);
	job = catalog_job_free(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(commit, a_commit_replaces_step_powers_extents_and_blobs)
{
	struct fixture fixture;
	struct sample sample;

	fixture_begin(&fixture, &sample, 200);
	for (int64_t step = 0; step < 5; step++) {
		sample_set_step(&sample, step);
		cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0, "%s",
		             fixture.text.chars);
	}
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(commit, extents_that_a_commit_does_not_name_stay)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_job part;
	struct catalog_job *job;

	fixture_begin(&fixture, &sample, 10);
	sample_set_step(&sample, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	/* Only the last extent, now in the other plane too, and no blobs. */
	sample_set_step(&sample, 1);
	sample.extents[8].plane = ZI_PLANE_PARAM;
	part = sample.job;
	part.extents = &sample.extents[8];
	part.extent_count = 2;
	part.blob_count = 0;
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &part), 0);
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_eq(job->step, 1);
	cr_assert_eq(job->extent_count, 11);
	cr_assert_eq(job->blob_count, 0, "a blob of step 0 is not one of step 1");
	cr_assert_eq(job->extents[0].plane, ZI_PLANE_PARAM);
	cr_assert_eq(job->extents[0].step, 1);
	for (uint32_t i = 1; i < 10; i++)
		cr_assert_eq(job->extents[i].step, 0);
	cr_assert_eq(job->extents[10].step, 1);
	job = catalog_job_free(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(commit, the_extremes_of_every_width_come_back)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_job *job;

	fixture_begin(&fixture, &sample, 1);
	sample_set_step(&sample, INT64_MAX - 1);
	sample.job.number = INT64_MAX;
	sample.job.line = UINT64_MAX;
	sample.job.placement = (struct catalog_placement){ .strategy = UINT32_MAX,
		                                           .shard_size = UINT32_MAX,
		                                           .node_count = 64,
		                                           .nodes = { 63, 1 },
		                                           .node = 1 };
	sample.job.scaler_bytes = CATALOG_SCALER_BYTES;
	sample.job.beta1_power = 0x1.fffffffffffffp-1;
	sample.job.beta2_power = 0x1p-1074;
	sample.job.update_count = UINT64_MAX;
	sample.extents[0].unit = 1;
	sample.extents[0].subgroup = UINT32_MAX;
	sample.extents[0].extent.offset_bytes = UINT64_MAX;
	sample.extents[0].extent.bytes = 0;
	sample.extents[0].hash_count = 2;
	sample.hashes[0] = UINT64_MAX;
	sample.hashes[1] = 0;
	sample.blobs[1].byte_count = 0;
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0, "%s",
	             fixture.text.chars);
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_eq(job->step, INT64_MAX - 1);
	cr_assert_eq(job->update_count, UINT64_MAX);
	cr_assert_eq(job->beta1_power, 0x1.fffffffffffffp-1);
	cr_assert_eq(job->beta2_power, 0x1p-1074);
	cr_assert_eq(job->number, INT64_MAX);
	cr_assert_eq(job->line, UINT64_MAX);
	cr_assert_eq(memcmp(&job->placement, &sample.job.placement, sizeof(job->placement)), 0);
	cr_assert_eq(job->scaler_bytes, CATALOG_SCALER_BYTES);
	cr_assert_eq(job->extents[0].subgroup, UINT32_MAX);
	cr_assert_eq(job->extents[0].extent.offset_bytes, UINT64_MAX);
	cr_assert_eq(job->extents[0].hash_count, 2);
	cr_assert_eq(job->extents[0].hashes[0], UINT64_MAX);
	cr_assert_eq(job->extents[0].hashes[1], 0);
	cr_assert_eq(job->blobs[1].byte_count, 0);
	job = catalog_job_free(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(commit, an_incarnation_is_recorded_and_leaves_the_rest)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_job newer;
	struct catalog_job *job;

	fixture_begin(&fixture, &sample, 4);
	sample_set_step(&sample, 3);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	newer = (struct catalog_job){ .incarnation_number = 2, .incarnation = "run-1" };
	newer.training[0] = 9;
	(void)snprintf(newer.name, sizeof(newer.name), "%s", "train");
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_INCARNATION, &newer), 0);
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_eq(job->incarnation_number, 2);
	cr_assert_str_eq(job->incarnation, "run-1");
	cr_assert_eq(memcmp(job->training, newer.training, sizeof(job->training)), 0);
	assert_committed(job, &sample);
	job = catalog_job_free(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

#define JOB_NAMES_BYTES 256u

static int name_jobs(void *arg, struct catalog_job *job)
{
	char *names = arg; /* (JOB_NAMES_BYTES,) */
	size_t used = strlen(names);

	(void)snprintf(names + used, JOB_NAMES_BYTES - used, "%s ", job->name);
	job = catalog_job_free(job);
	return 0;
}

Test(commit, a_deleted_job_leaves_no_row_and_its_name_is_free)
{
	struct fixture fixture;
	struct sample sample;
	struct sample other;
	char names[JOB_NAMES_BYTES] = "";

	fixture_begin(&fixture, &sample, 50);
	sample_init(&other, "other", 10);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &other.job), 0);
	sample_set_step(&sample, 0);
	sample_set_step(&other, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &other.job), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	fixture_assert_committed(&fixture, &other);
	/* A job of the same name, and perhaps the same row number, begins with nothing. */
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	sample.job.step = -1;
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &sample.job), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &other.job), 0);
	fixture_reopen(&fixture);
	cr_assert_eq(catalog_load_jobs(fixture.catalog, name_jobs, names, NULL), 0);
	cr_assert_str_eq(names, "train ");
	sample_deinit(&sample);
	sample_deinit(&other);
	fixture_deinit(&fixture);
}

Test(commit, a_name_that_is_taken_or_missing_is_refused_and_named)
{
	static const enum catalog_request_kind kinds[] = { CATALOG_JOB_DELETE,
		                                           CATALOG_JOB_INCARNATION,
		                                           CATALOG_COMMIT };
	struct fixture fixture;
	struct sample sample;
	struct sample missing;

	fixture_begin(&fixture, &sample, 1);
	sample_set_step(&sample, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &sample.job), -EEXIST);
	cr_assert_not_null(strstr(fixture.text.chars, "train"));
	sample_init(&missing, "absent", 1);
	sample_set_step(&missing, 1);
	for (size_t i = 0; i < ZI_COUNT_OF(kinds); i++) {
		cr_assert_eq(fixture_do(&fixture, kinds[i], &missing.job), -ENOENT);
		cr_assert_not_null(strstr(fixture.text.chars, "absent"));
	}
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&missing);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

/* A number that is no number cannot be stored, and takes the whole transaction with it. */
Test(commit, a_row_that_cannot_be_stored_leaves_the_former_commit)
{
	struct fixture fixture;
	struct sample sample;

	fixture_begin(&fixture, &sample, 100);
	sample_set_step(&sample, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	sample_set_step(&sample, 1);
	sample.job.beta2_power = (double)NAN;
	cr_assert_lt(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	/* Fails at its very last row, when everything else is written. */
	sample_set_step(&sample, 1);
	sample.blobs[1].rank = 0;
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), -EEXIST);
	sample.blobs[1].rank = 1;
	sample_set_step(&sample, 2);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0,
	             "and the next one is well");
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

#define CROWD 40u

struct crowd {
	struct catalog_request request;
	struct catalog_job job;
	uint32_t *order; /* requests that were done before */
	uint32_t index;
};

static void crowd_done(struct catalog_request *request)
{
	struct crowd *member = container_of(request, struct crowd, request);

	cr_assert_eq(request->result, 0, "%s", request->text.chars);
	cr_assert_eq((*member->order)++, member->index, "in order of submission, once");
	if (*member->order == CROWD)
		zi_loop_stop(request->loop);
}

Test(commit, close_carries_out_what_was_submitted_in_its_order)
{
	static struct crowd crowd[CROWD];
	struct fixture fixture;
	struct sample sample;
	struct catalog_job *job;
	uint32_t order = 0;

	fixture_begin(&fixture, &sample, 0);
	for (uint32_t i = 0; i < CROWD; i++) {
		crowd[i] = (struct crowd){ .order = &order, .index = i };
		crowd[i].job.incarnation_number = i;
		(void)snprintf(crowd[i].job.name, sizeof(crowd[i].job.name), "%s", "train");
		crowd[i].request = (struct catalog_request){
			.kind = CATALOG_JOB_INCARNATION,
			.job = &crowd[i].job,
			.done = crowd_done,
			.loop = fixture.loop,
		};
		catalog_submit(fixture.catalog, &crowd[i].request);
	}
	fixture_reopen(&fixture);
	job = fixture_load(&fixture);
	cr_assert_eq(job->incarnation_number, CROWD - 1);
	job = catalog_job_free(job);
	cr_assert_eq(order, 0, "done runs on the loop only");
	cr_assert_eq(zi_loop_run(fixture.loop), 0);
	cr_assert_eq(order, CROWD);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(commit, power_and_process_jobs_share_a_catalog)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_request request = { .kind = CATALOG_COMMIT };

	fixture_begin(&fixture, &sample, 30);
	request.job = &sample.job;
	for (int64_t step = 0; step < 4; step++) {
		sample_set_step(&sample, step);
		request.is_durable = step & 1;
		cr_assert_eq(fixture_run(&fixture, &request), 0, "%s", request.text.chars);
	}
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

/* 10^5 subgroups of 2^18 elements are a model of 26 Gparam. A tenth of it is what most commit. */
Test(commit, many_extents_are_committed_and_loaded_in_time)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog_request request = { .kind = CATALOG_COMMIT };
	struct catalog_job *job;
	uint64_t open_ns, load_ns;
	uint64_t commit_cpu_ns = 0, load_cpu_ns;

	fixture_begin(&fixture, &sample, 100000);
	request.job = &sample.job;
	sample_set_step(&sample, 0);
	cr_assert_eq(fixture_run(&fixture, &request), 0, "%s", request.text.chars);
	sample.job.extent_count = 10000;
	for (int64_t step = 1; step < 4; step++) {
		sample_set_step(&sample, step);
		commit_cpu_ns = process_cpu_ns();
		cr_assert_eq(fixture_run(&fixture, &request), 0, "%s", request.text.chars);
		commit_cpu_ns = process_cpu_ns() - commit_cpu_ns;
		cr_log_info("commit of 10000 extents: %.1f ms",
		            (double)(request.finished_ns - request.started_ns) / 1e6);
	}
	fixture.catalog = catalog_close(fixture.catalog);
	open_ns = zi_clock_now_ns();
	cr_assert_eq(fixture_open(&fixture), 0);
	load_ns = zi_clock_now_ns();
	load_cpu_ns = process_cpu_ns();
	job = fixture_load(&fixture);
	load_cpu_ns = process_cpu_ns() - load_cpu_ns;
	cr_assert_eq(job->extent_count, 100000);
	cr_log_info("opening %.1f ms, loading 100000 extents %.1f ms",
	            (double)(load_ns - open_ns) / 1e6, (double)(zi_clock_now_ns() - load_ns) / 1e6);
#ifndef ZI_DEBUG
	/* Ten times what was measured: a slow machine passes, a missing index does not. Of CPU
	 * time, that a busy machine passes as well. */
	cr_assert_lt(commit_cpu_ns, 600 * ZI_NS_PER_MS);
	cr_assert_lt(load_cpu_ns, 1000 * ZI_NS_PER_MS);
#endif
	job = catalog_job_free(job);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

/* Two jobs in one transaction: both, or (where one is not known) neither. */
Test(commit, what_goes_together_is_committed_together)
{
	struct fixture fixture;
	struct sample sample, second;
	const struct catalog_job *others[1] = { &second.job };
	struct catalog_request request = {
		.kind = CATALOG_COMMIT, .job = &sample.job, .others = others, .other_count = 1
	};

	fixture_begin(&fixture, &sample, 10);
	sample_init(&second, "second", 10);
	sample_set_step(&sample, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0);
	sample_set_step(&sample, 1);
	sample_set_step(&second, 7);
	cr_assert_eq(fixture_run(&fixture, &request), -ENOENT);
	cr_assert_not_null(strstr(request.text.chars, "second"), "%s", request.text.chars);
	sample_set_step(&sample, 0);
	fixture_assert_committed(&fixture, &sample);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	second.job.step = -1;
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &second.job), 0, "%s",
	             fixture.text.chars);
	sample_set_step(&sample, 1);
	sample_set_step(&second, 7);
	cr_assert_eq(fixture_run(&fixture, &request), 0, "%s", request.text.chars);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	fixture_assert_committed(&fixture, &second);
	sample_deinit(&sample);
	sample_deinit(&second);
	fixture_deinit(&fixture);
}
