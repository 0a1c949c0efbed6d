/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that own what they point to: their copy and their end. Floor 2, any thread. All hashes lie
 * in one block and all blobs in another (load.c says why).
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog_private.h"

static void *copy_array(const void *source, uint64_t count, size_t element_bytes)
{
	void *target = calloc(count ? count : 1, element_bytes);

	if (target && count)
		memcpy(target, source, count * element_bytes);
	return target;
}

static int copy_extents(struct loaded_job *loaded, const struct catalog_job *source)
{
	uint64_t used_count = 0;

	for (uint32_t i = 0; i < source->extent_count; i++)
		loaded->hash_capacity += source->extents[i].hash_count;
	loaded->job.extents =
		copy_array(source->extents, source->extent_count, sizeof(*source->extents));
	loaded->hashes =
		calloc(loaded->hash_capacity ? loaded->hash_capacity : 1, sizeof(*loaded->hashes));
	if (!loaded->job.extents || !loaded->hashes)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < source->extent_count; i++) {
		struct catalog_extent *extent = &loaded->job.extents[i];

		if (extent->hash_count)
			memcpy(loaded->hashes + used_count, extent->hashes,
			       extent->hash_count * sizeof(*loaded->hashes));
		extent->hashes = loaded->hashes + used_count;
		used_count += extent->hash_count;
	}
	assert(used_count == loaded->hash_capacity);
	return 0;
}

static int copy_blobs(struct loaded_job *loaded, const struct catalog_job *source)
{
	uint64_t used_bytes = 0;

	for (uint32_t i = 0; i < source->blob_count; i++)
		loaded->blob_capacity += source->blobs[i].byte_count;
	loaded->job.blobs = copy_array(source->blobs, source->blob_count, sizeof(*source->blobs));
	loaded->blob_bytes = calloc(loaded->blob_capacity ? loaded->blob_capacity : 1, 1);
	if (!loaded->job.blobs || !loaded->blob_bytes)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < source->blob_count; i++) {
		struct catalog_blob *blob = &loaded->job.blobs[i];

		if (blob->byte_count)
			memcpy(loaded->blob_bytes + used_bytes, blob->bytes, blob->byte_count);
		blob->bytes = loaded->blob_bytes + used_bytes;
		used_bytes += blob->byte_count;
	}
	return 0;
}

/*
 * @source: its arrays stay its owner's. @ret_job: the caller's, without incarnations.
 * Return: 0; -ENOMEM.
 */
int catalog_job_copy(const struct catalog_job *source, struct catalog_job **ret_job)
{
	_cleanup_(catalog_job_freep) struct catalog_job *job = NULL;
	struct loaded_job *loaded = calloc(1, sizeof(*loaded));
	int r;

	if (!loaded)
		return err_origin(-ENOMEM);
	job = &loaded->job;
	*job = *source;
	job->incarnations = NULL;
	job->incarnation_count = 0;
	job->former = NULL;
	job->extents = NULL;
	job->blobs = NULL;
	loaded->extra = copy_array(source->extra, source->extra_bytes, 1);
	job->extra = loaded->extra;
	job->sets = copy_array(source->sets, source->set_count, sizeof(*source->sets));
	job->units = copy_array(source->units, source->unit_count, sizeof(*source->units));
	job->params = copy_array(source->params, source->param_count, sizeof(*source->params));
	if (!job->extra || !job->sets || !job->units || !job->params)
		return err_origin(-ENOMEM);
	r = copy_extents(loaded, source);
	if (!r)
		r = copy_blobs(loaded, source);
	if (r)
		return err_trace(r);
	*ret_job = zi_steal(job);
	return 0;
}

static void loaded_free(struct loaded_job *loaded)
{
	struct catalog_job *job = &loaded->job;

	free(job->sets);
	free(job->units);
	free(job->params);
	free(job->extents);
	free(job->blobs);
	free(job->incarnations);
	free(loaded->hashes);
	free(loaded->blob_bytes);
	free(loaded->extra);
	free(loaded);
}

/* @job: from catalog_load_jobs() or catalog_job_copy(), or NULL. Return: NULL. */
struct catalog_job *catalog_job_free(struct catalog_job *job)
{
	if (!job)
		return NULL;
	if (job->former) {
		assert(!job->former->former);
		loaded_free(container_of(job->former, struct loaded_job, job));
	}
	loaded_free(container_of(job, struct loaded_job, job));
	return NULL;
}
