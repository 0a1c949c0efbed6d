/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a job stands: its two slots, each a stand with the extents and blobs of its commit. Floor
 * 2, start-up: the control thread.
 *
 * The one with the larger number is in force, and is the job's; the other one is its former commit.
 * Damage in the rows of the former one is its own: the job goes on without it. But where it is not
 * sure which of the two is the newer one (a stand that is damaged, or missing while there are rows
 * of it; equal numbers) nobody may guess, as a guess could take a committed step away: that is
 * damage of the job, and what both hold is handed over, so that nothing of it is overwritten.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/catalog/load.h"

static int allocate_extents(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct loaded_job *loaded = loader->target;

	loaded->job.extents = load_allocate(row_count, sizeof(*loaded->job.extents));
	loaded->job.extent_count = row_count;
	loaded->hash_capacity = blob_bytes / sizeof(*loaded->hashes);
	loaded->hashes = load_allocate(loaded->hash_capacity, sizeof(*loaded->hashes));
	return loaded->job.extents && loaded->hashes ? 0 : -ENOMEM;
}

/* A damaged row keeps its place, and its hashes theirs. */
static bool take_extent(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct loaded_job *loaded = loader->target;
	struct catalog_extent *extent = &loaded->job.extents[index];
	uint32_t hash_bytes = (uint32_t)sqlite3_column_bytes(row, 8);
	uint64_t *hashes = loaded->hashes;
	uint32_t plane;

	/* Where the former extent's hashes end. */
	if (index)
		hashes = (uint64_t *)extent[-1].hashes + extent[-1].hash_count;
	extent->hashes = hashes;
	extent->extent.offset_bytes = load_take_u64(row, 5);
	extent->extent.bytes = load_take_u64(row, 6);
	extent->step = load_take_u64(row, 7);
	loader->sum += load_take_u64(row, 9);
	if (sqlite3_column_bytes(row, 4) == sizeof(extent->store_uuid))
		memcpy(extent->store_uuid, sqlite3_column_blob(row, 4), sizeof(extent->store_uuid));
	if (!load_take_u32(row, 1, ZI_PLANE_STATE, &plane) ||
	    !load_take_u32(row, 2, UINT32_MAX, &extent->unit) ||
	    !load_take_u32(row, 3, UINT32_MAX, &extent->subgroup) ||
	    sqlite3_column_bytes(row, 4) != sizeof(extent->store_uuid) ||
	    hash_bytes % sizeof(*hashes))
		return false;
	extent->plane = (enum zi_plane)plane;
	extent->hash_count = hash_bytes / (uint32_t)sizeof(*hashes);
	/* The sum was taken in the same state of the file: nobody else has it. */
	assert((uint64_t)(hashes - loaded->hashes) + extent->hash_count <= loaded->hash_capacity);
	if (hash_bytes)
		memcpy(hashes, sqlite3_column_blob(row, 8), hash_bytes);
	/* Nothing of a step that was never committed. */
	return extent->unit < loader->loaded->job.unit_count && extent->step <= INT64_MAX &&
	       (int64_t)extent->step <= loaded->job.step;
}

static int allocate_blobs(struct loader *loader, uint32_t row_count, uint64_t blob_bytes)
{
	struct loaded_job *loaded = loader->target;

	loaded->job.blobs = load_allocate(row_count, sizeof(*loaded->job.blobs));
	loaded->job.blob_count = row_count;
	loaded->blob_bytes = load_allocate(blob_bytes, 1);
	loaded->blob_capacity = blob_bytes;
	return loaded->job.blobs && loaded->blob_bytes ? 0 : -ENOMEM;
}

static bool take_blob(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct loaded_job *loaded = loader->target;
	struct catalog_blob *blob = &loaded->job.blobs[index];
	uint8_t *bytes = loaded->blob_bytes;

	if (index)
		bytes = (uint8_t *)blob[-1].bytes + blob[-1].byte_count;
	blob->byte_count = (uint64_t)sqlite3_column_bytes(row, 2);
	loader->sum += load_take_u64(row, 3);
	blob->bytes = bytes;
	assert((uint64_t)(bytes - loaded->blob_bytes) + blob->byte_count <= loaded->blob_capacity);
	if (blob->byte_count)
		memcpy(bytes, sqlite3_column_blob(row, 2), blob->byte_count);
	return load_take_u32(row, 1, UINT32_MAX, &blob->rank) &&
	       blob->rank < loaded->job.world_size;
}

static bool take_placement(sqlite3_stmt *row, struct catalog_job *job)
{
	struct catalog_placement *placement = &job->placement;
	uint32_t node_bytes = (uint32_t)sqlite3_column_bytes(row, 12);
	const uint8_t *nodes;

	if (!load_take_u32(row, 9, UINT32_MAX, &placement->strategy) ||
	    !load_take_u32(row, 10, UINT32_MAX, &placement->shard_size) ||
	    !load_take_u32(row, 11, ZI_WORLD_MAX, &placement->node_count))
		return false;
	if (node_bytes != (placement->node_count > 1 ? job->world_size + 1 : 0))
		return false;
	if (!node_bytes)
		return true;
	nodes = sqlite3_column_blob(row, 12);
	for (uint32_t i = 0; i < node_bytes; i++)
		if (nodes[i] >= placement->node_count)
			return false;
	memcpy(placement->nodes, nodes, node_bytes - 1);
	placement->node = nodes[node_bytes - 1];
	/* It had ranks: else it would have had no part in the commit. */
	return memchr(placement->nodes, placement->node, node_bytes - 1) != NULL;
}

static bool take_scaler(sqlite3_stmt *row, struct catalog_job *job)
{
	uint32_t bytes = (uint32_t)sqlite3_column_bytes(row, 13);

	if (bytes > sizeof(job->scaler))
		return false;
	if (bytes)
		memcpy(job->scaler, sqlite3_column_blob(row, 13), bytes);
	job->scaler_bytes = bytes;
	return true;
}

static bool take_stand(struct loader *loader, sqlite3_stmt *row, uint32_t index)
{
	struct catalog_job *job = &loader->target->job;

	loader->stand_count++;
	job->step = sqlite3_column_int64(row, 1);
	job->update_count = load_take_u64(row, 3);
	job->beta1_power = sqlite3_column_double(row, 4);
	job->beta2_power = sqlite3_column_double(row, 5);
	job->number = load_take_u64(row, 6);
	job->line = load_take_u64(row, 7);
	job->stamp = load_take_u64(row, 8);
	loader->wanted_sum = load_take_u64(row, 15);
	return index == 0 && job->step >= -1 && job->number <= INT64_MAX &&
	       load_take_u32(row, 2, ZI_WORLD_MAX, &job->world_size) && job->world_size > 0 &&
	       take_placement(row, job) && take_scaler(row, job) &&
	       load_take_u32(row, 14, ZI_WORLD_MAX, &loader->blob_count);
}

static const struct load_table stand_table = {
	"stand",
	"SELECT count(*), 0 FROM stand WHERE job_id = ?1 AND slot = ?2",
	"SELECT job_id, step, world_size, update_count, beta1_power, beta2_power, number, line,"
	" stamp, strategy, shard_size, node_count, nodes, scaler, blob_count, rows_sum, checksum"
	" FROM stand WHERE job_id = ?1 AND slot = ?2",
	load_allocate_nothing,
	take_stand,
};

static const struct load_table extent_table = {
	"extent",
	"SELECT count(*), total(length(hashes)) FROM extent WHERE job_id = ?1 AND slot = ?2",
	"SELECT job_id, plane, unit, subgroup, store_uuid, offset, bytes, step, hashes, checksum"
	" FROM extent WHERE job_id = ?1 AND slot = ?2 ORDER BY plane, unit, subgroup",
	allocate_extents,
	take_extent,
};

static const struct load_table blob_table = {
	"blob",
	"SELECT count(*), total(length(bytes)) FROM blob WHERE job_id = ?1 AND slot = ?2",
	"SELECT job_id, rank, bytes, checksum FROM blob WHERE job_id = ?1 AND slot = ?2"
	" ORDER BY rank",
	allocate_blobs,
	take_blob,
};

/* ---- slots ---- */

/* The stand first: the others are held against it. @ret_is_sure: its row is whole. */
static int load_slot(struct loader *loader, struct loaded_job *target, uint32_t slot,
                     bool *ret_is_sure)
{
	struct zi_text damage = target->job.damage;
	int r;

	loader->target = target;
	loader->slot = slot;
	loader->stand_count = loader->blob_count = 0;
	loader->wanted_sum = loader->sum = 0;
	target->job.damage.chars[0] = '\0';
	r = load_table(loader, &stand_table);
	*ret_is_sure = !target->job.damage.chars[0] && loader->stand_count == 1;
	if (damage.chars[0])
		target->job.damage = damage; /* What was wrong first. */
	if (!r)
		r = load_table(loader, &extent_table);
	if (!r)
		r = load_table(loader, &blob_table);
	if (r)
		return err_trace(r);
	if (loader->stand_count != 1)
		load_note_damage(loader, target, "the number of rows", "stand");
	if (target->job.blob_count != loader->blob_count)
		load_note_damage(loader, target, "the number of rows", "blob");
	if (loader->sum != loader->wanted_sum)
		load_note_damage(loader, target, "rows of another commit", "extent or blob");
	return 0;
}

/* The slot of the largest number: the one in force. Others, and none, are looked at later on. */
static int find_first(struct loader *loader, uint32_t *ret_slot)
{
	_cleanup_(catalog_sql_finalizep) sqlite3_stmt *rows = NULL;
	uint32_t found_count = 0;
	uint32_t first = 0;
	int code = load_prepare(
		loader, "SELECT slot FROM stand WHERE job_id = ?1 ORDER BY number DESC", &rows);

	while (!code && (code = sqlite3_step(rows)) == SQLITE_ROW) {
		uint32_t slot;

		if (!load_take_u32(rows, 0, CATALOG_SLOTS - 1, &slot))
			load_note_damage(loader, loader->loaded, "a value out of its range",
			                 "stand");
		else if (!found_count++)
			first = slot;
		code = SQLITE_OK;
	}
	if (code != SQLITE_DONE)
		return err_trace(
			catalog_sql_error(loader->catalog, code, "reading rows", loader->text));
	*ret_slot = first;
	return 0;
}

/* What a commit shares with the newer one. */
static int former_new(struct loader *loader, struct loaded_job **ret_former)
{
	const struct catalog_job *job = &loader->loaded->job;
	struct loaded_job *former = calloc(1, sizeof(*former));

	if (!former)
		return err_origin(zi_text_error(loader->text, -ENOMEM,
		                                "No memory for the former commit of job '%s'",
		                                job->name));
	memcpy(former->job.name, job->name, sizeof(job->name));
	memcpy(former->job.snapshot, job->snapshot, sizeof(job->snapshot));
	memcpy(former->job.training, job->training, sizeof(job->training));
	former->job.uid = job->uid;
	former->job.config = job->config;
	former->job.incarnation_number = job->incarnation_number;
	memcpy(former->job.incarnation, job->incarnation, sizeof(job->incarnation));
	*ret_former = former;
	return 0;
}

/* See the head of this file. @is_sure: of the former one's stand. */
static void compare_commits(struct loader *loader, bool is_sure)
{
	struct loaded_job *loaded = loader->loaded;
	struct catalog_job *former = loaded->job.former;

	if (!is_sure)
		load_note_damage(loader, loaded, "which commit is the newer one", "stand");
	else if (former->number == loaded->job.number)
		load_note_damage(loader, loaded, "two commits of one number", "stand");
	if (loaded->job.snapshot[0])
		load_note_damage(loader, loaded, "a former commit of a snapshot", "stand");
}

int load_stands(struct loader *loader)
{
	struct loaded_job *former = NULL;
	uint32_t first = 0;
	bool is_sure;
	int r;

	r = find_first(loader, &first);
	if (!r)
		r = load_slot(loader, loader->loaded, first, &is_sure);
	if (!r)
		r = former_new(loader, &former);
	if (r)
		return err_trace(r);
	loader->loaded->job.former = &former->job;
	r = load_slot(loader, former, 1 - first, &is_sure);
	if (r)
		return err_trace(r);
	if (!loader->stand_count && !former->job.extent_count && !former->job.blob_count) {
		loader->loaded->job.former = catalog_job_free(&former->job);
		return 0;
	}
	compare_commits(loader, is_sure);
	return 0;
}
