/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the catalog share: a directory of their own, a loop, a job whose values can be
 * told from each other, and requests that are waited for. */
#pragma once

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "daemon/catalog/catalog.h"
#include "tests/guard/guard.h"
#include "tests/unit/catalog/reseal.h"

#define TILES 16u

struct fixture {
	char directory[128];
	char file[160];
	struct zi_text text;
	struct catalog *catalog;
	struct zi_loop *loop;
};

/* A submitter's job with its arrays; `state` is the plane STATE, one extent per subgroup. */
struct sample {
	struct catalog_job job;
	struct catalog_set sets[2];
	struct catalog_unit units[2];
	struct catalog_param params[3];
	struct catalog_blob blobs[2];
	struct catalog_incarnation incarnations[1];
	char blob_chars[2][64];
	struct catalog_extent *extents;
	uint64_t *hashes;
};

static inline void fixture_init(struct fixture *fixture)
{
	*fixture = (struct fixture){ .catalog = NULL };
	cr_assert_not_null(
		mkdtemp(guard_path(fixture->directory, sizeof(fixture->directory), "catalog")));
	(void)snprintf(fixture->file, sizeof(fixture->file), "%s/catalog.db", fixture->directory);
	cr_assert_eq(zi_loop_new(&fixture->loop), 0);
}

static inline int fixture_open(struct fixture *fixture)
{
	fixture->text.chars[0] = '\0';
	return catalog_open(fixture->directory, &fixture->text, &fixture->catalog);
}

static inline void fixture_reopen(struct fixture *fixture)
{
	fixture->catalog = catalog_close(fixture->catalog);
	cr_assert_eq(fixture_open(fixture), 0, "%s", fixture->text.chars);
}

static inline void fixture_deinit(struct fixture *fixture)
{
	static const char *const names[] = { "", "-wal", "-journal", "-shm", "-mark" };

	fixture->catalog = catalog_close(fixture->catalog);
	fixture->loop = zi_loop_free(fixture->loop);
	for (size_t i = 0; i < ZI_COUNT_OF(names); i++) {
		char path[192];

		(void)snprintf(path, sizeof(path), "%s%s", fixture->file, names[i]);
		(void)unlink(path); /* Most are not there. */
	}
	cr_assert_eq(rmdir(fixture->directory), 0, "nothing else was left in the directory");
}

static inline void request_stop_loop(struct catalog_request *request)
{
	zi_loop_stop(request->loop);
}

/* Submits and waits. The request keeps its kind, flags and `before`. */
static inline int fixture_run(struct fixture *fixture, struct catalog_request *request)
{
	request->done = request_stop_loop;
	request->loop = fixture->loop;
	catalog_submit(fixture->catalog, request);
	cr_assert_eq(zi_loop_run(fixture->loop), 0);
	cr_assert_leq(request->started_ns, request->finished_ns);
	return request->result;
}

static inline int fixture_do(struct fixture *fixture, enum catalog_request_kind kind,
                             const struct catalog_job *job)
{
	struct catalog_request request = { .kind = kind, .job = job };
	int r = fixture_run(fixture, &request);

	fixture->text = request.text;
	return r;
}

/* Values of @step in everything a commit writes. */
static inline void sample_set_step(struct sample *sample, int64_t step)
{
	sample->job.step = step;
	sample->job.number = (uint64_t)step + 1;
	sample->job.line = 0xf00dull << 48 | (uint64_t)step;
	sample->job.scaler[39] = (uint8_t)step;
	sample->job.update_count = (uint64_t)step;
	sample->job.beta1_power = 1.0 / ((double)step + 3);
	sample->job.beta2_power = 1.0 / ((double)step + 7);
	for (uint32_t i = 0; i < sample->job.extent_count; i++) {
		struct catalog_extent *extent = &sample->extents[i];

		extent->step = (uint64_t)step;
		extent->extent.offset_bytes = ((uint64_t)step << 24) + (uint64_t)i * 4096;
		extent->extent.bytes = 4096;
		for (uint32_t tile = 0; tile < extent->hash_count; tile++)
			sample->hashes[(size_t)i * TILES + tile] =
				((uint64_t)step + 1) * 0x9e3779b97f4a7c15ull + i * TILES + tile;
	}
	for (uint32_t i = 0; i < 2; i++) {
		(void)snprintf(sample->blob_chars[i], sizeof(sample->blob_chars[i]),
		               "rank %u at step %lld", i, (long long)step);
		sample->blobs[i].byte_count = strlen(sample->blob_chars[i]) + 1;
	}
}

static inline void sample_init(struct sample *sample, const char *name, uint32_t extent_count)
{
	*sample = (struct sample){
		.job = {
			.uid = 1000,
			.world_size = 2,
			.config = { ZI_DTYPE_BF16, ZI_DTYPE_F32, ZI_OPTIMIZER_ADAMW,
				    ZI_SCHEDULE_SHARDED, ZI_OFFLOAD_NVME, ZI_OFFLOAD_CPU,
				    ZI_DURABILITY_PROCESS },
			.incarnation_number = 1,
			.incarnation = "run-0",
			.step = -1,
			.beta1_power = 1,
			.beta2_power = 1,
			.training = { 3, [127] = 7 },
			.extra = "groups",
			.extra_bytes = 7,
			.placement = { .strategy = 4, .shard_size = 1 },
			.scaler_bytes = 40,
			.set_count = 2,
			.unit_count = 2,
			.param_count = 3,
			.extent_count = extent_count,
			.blob_count = 2,
			.incarnation_count = 1,
		},
		.sets = { { "all", 3 }, { "stage", 1 } },
		.units = { { "embedding", 0 }, { "block.0", 1 } },
		.params = { { "wte", 0, 2, { 50257, 768 } },
			    { "attn.weight", 1, 2, { 768, 2304 } },
			    { "scale", 1, 0, { 0 } } },
		.incarnations = { { 1, "run-0" } },
	};
	(void)snprintf(sample->job.name, sizeof(sample->job.name), "%s", name);
	sample->extents = calloc(extent_count + 1, sizeof(*sample->extents));
	sample->hashes = calloc((size_t)extent_count * TILES + 1, sizeof(*sample->hashes));
	cr_assert_not_null(sample->extents);
	cr_assert_not_null(sample->hashes);
	for (uint32_t i = 0; i < extent_count; i++)
		sample->extents[i] = (struct catalog_extent){
			.unit = i % 2,
			.subgroup = i / 2,
			.plane = ZI_PLANE_STATE,
			.store_uuid = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 },
			.hash_count = TILES,
			.hashes = &sample->hashes[(size_t)i * TILES],
		};
	for (uint32_t i = 0; i < 2; i++)
		sample->blobs[i] =
			(struct catalog_blob){ .rank = i, .bytes = sample->blob_chars[i] };
	sample->job.sets = sample->sets;
	sample->job.units = sample->units;
	sample->job.params = sample->params;
	sample->job.extents = sample->extents;
	sample->job.blobs = sample->blobs;
	sample->job.incarnations = sample->incarnations;
}

static inline void sample_deinit(struct sample *sample)
{
	free(sample->extents);
	free(sample->hashes);
}

/* Opens, starts, and creates the sample's job. */
static inline void fixture_begin(struct fixture *fixture, struct sample *sample,
                                 uint32_t extent_count)
{
	fixture_init(fixture);
	cr_assert_eq(fixture_open(fixture), 0, "%s", fixture->text.chars);
	cr_assert_eq(catalog_start(fixture->catalog), 0);
	sample_init(sample, "train", extent_count);
	cr_assert_eq(fixture_do(fixture, CATALOG_JOB_CREATE, &sample->job), 0, "%s",
	             fixture->text.chars);
}

static inline int keep_job(void *arg, struct catalog_job *job)
{
	struct catalog_job **place = arg;

	cr_assert_null(*place, "one job only");
	*place = job;
	return 0;
}

/* The one job in the catalog, which must not be started; NULL: none. */
static inline struct catalog_job *fixture_load(struct fixture *fixture)
{
	struct catalog_job *job = NULL;

	cr_assert_eq(catalog_load_jobs(fixture->catalog, keep_job, &job, &fixture->text), 0, "%s",
	             fixture->text.chars);
	return job;
}

/* That everything a commit writes is of the sample's step. */
static inline void assert_committed(const struct catalog_job *job, const struct sample *sample)
{
	cr_assert_eq(job->step, sample->job.step);
	cr_assert_eq(job->update_count, sample->job.update_count);
	cr_assert_eq(job->beta1_power, sample->job.beta1_power, "bit for bit");
	cr_assert_eq(job->beta2_power, sample->job.beta2_power, "bit for bit");
	cr_assert_eq(job->number, sample->job.number);
	cr_assert_eq(job->line, sample->job.line);
	cr_assert_eq(memcmp(&job->placement, &sample->job.placement, sizeof(job->placement)), 0);
	cr_assert_eq(job->scaler_bytes, sample->job.scaler_bytes);
	cr_assert_eq(memcmp(job->scaler, sample->job.scaler, sizeof(job->scaler)), 0);
	cr_assert_eq(job->extent_count, sample->job.extent_count);
	for (uint32_t i = 0; i < job->extent_count; i++) {
		const struct catalog_extent *extent = &job->extents[i];
		/* Loaded by plane, unit, subgroup; made with the unit changing fastest. */
		const struct catalog_extent *wanted =
			&sample->extents[extent->subgroup * 2 + extent->unit];

		cr_assert_eq(extent->plane, wanted->plane);
		cr_assert_eq(extent->unit, wanted->unit);
		cr_assert_eq(extent->subgroup, wanted->subgroup);
		cr_assert_eq(extent->step, wanted->step);
		cr_assert_eq(extent->extent.offset_bytes, wanted->extent.offset_bytes);
		cr_assert_eq(extent->extent.bytes, wanted->extent.bytes);
		cr_assert_eq(memcmp(extent->store_uuid, wanted->store_uuid, 16), 0);
		cr_assert_eq(extent->hash_count, wanted->hash_count);
		cr_assert_eq(memcmp(extent->hashes, wanted->hashes,
		                    extent->hash_count * sizeof(*extent->hashes)),
		             0);
	}
	cr_assert_eq(job->blob_count, sample->job.blob_count);
	for (uint32_t i = 0; i < job->blob_count; i++) {
		cr_assert_eq(job->blobs[i].rank, i);
		cr_assert_eq(job->blobs[i].byte_count, sample->blobs[i].byte_count);
		cr_assert_str_eq(job->blobs[i].bytes, sample->blobs[i].bytes);
	}
}

/* Closes, opens again, and compares the one job. */
static inline void fixture_assert_committed(struct fixture *fixture, const struct sample *sample)
{
	struct catalog_job *job;

	fixture_reopen(fixture);
	job = fixture_load(fixture);
	cr_assert_not_null(job);
	assert_committed(job, sample);
	job = catalog_job_free(job);
}

/* A catalog with a job at step 5, closed. */
static inline void make_catalog(struct fixture *fixture, struct sample *sample)
{
	fixture_begin(fixture, sample, 100);
	sample_set_step(sample, 5);
	cr_assert_eq(fixture_do(fixture, CATALOG_COMMIT, &sample->job), 0);
	fixture->catalog = catalog_close(fixture->catalog);
}

/* Checksums stay as they were. */
static inline void change_by_sql(const struct fixture *fixture, const char *sql)
{
	change_file(fixture->file, sql, false);
}

/* As if zinf had written it so. */
static inline void change_and_seal(const struct fixture *fixture, const char *sql)
{
	change_file(fixture->file, sql, true);
}
