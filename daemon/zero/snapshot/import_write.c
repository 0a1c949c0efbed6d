/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extents of an import (import.c), and its end. What a client shows may change at any time:
 * each extent is copied first, and only the copy is hashed, compared and written. Floor 5, shard
 * thread, but for put_run() on a device thread.
 */
#include "daemon/zero/snapshot/import_write.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/snapshot/import.h"
#include "daemon/zero/snapshot/snapshot.h"
#include "daemon/zero/snapshot/snapshot_make.h"
#include "daemon/zero/step/commit.h"
#include "kernels/hash.h"

/* ---- extents ---- */

/* See zero.h. */
uint64_t zero_import_extent_bytes(const struct zero_import *import, uint32_t index)
{
	return index < import->extent_count ? import->snapshot->extents[index].bytes : 0;
}

/* It is over, with @result; its text is written. */
static void put_over(struct zero_put *put, int result)
{
	struct zero_import *import = put->import;
	struct zero *zero = import->snapshot->zero;

	zero->snapshot_busy_count--;
	if (result)
		import->extent_bytes[put->index] = import->snapshot->extents[put->index].bytes;
	else
		import->missing_count--;
	import->put_count--;
	put->result = result;
	put->done(put); /* Whoever sent it may have gone, and the import with it. */
	zero_drain(zero);
}

static void written(struct tier_move *move)
{
	struct zero_put *put = container_of(move, struct zero_put, move);
	const struct zero_snapshot *snapshot = put->import->snapshot;
	const struct catalog_extent *row = &snapshot->record->extents[put->index];

	if (move->result)
		zi_text_set(&put->text,
		            "job '%s': writing %s of unit '%.60s', subgroup %u, at offset %llu of "
		            "%s: %s",
		            snapshot->job_name,
		            row->plane == ZI_PLANE_PARAM ? "parameters" : "optimizer state",
		            snapshot->record->units[row->unit].name, row->subgroup,
		            (unsigned long long)move->offset_bytes, move->member->path,
		            zi_err_name(move->result));
	put_over(put, move->result);
}

static uint64_t tile_bytes_of(const struct zero_put *put)
{
	return (uint64_t)ZI_TILE_ELEMENTS *
	       import_plane_width(&put->import->snapshot->record->config, put->index % 2);
}

/* Device thread; several at once, each at an extent of its own. The copy, and the checksums of its
 * tiles. */
static void put_run(struct dev_task *task)
{
	struct zero_put *put = container_of(task, struct zero_put, task);
	const struct zero_import *import = put->import;
	uint64_t bytes = import->snapshot->extents[put->index].bytes;
	uint64_t tile_bytes = tile_bytes_of(put);
	uint32_t width = (uint32_t)(tile_bytes / ZI_TILE_ELEMENTS);
	uint64_t *hashes = import->hashes + import->hash_firsts[put->index];
	const uint8_t *source = put->source;
	uint8_t *copy = put->buffer;
	uint32_t count = 0;

	/* Tile by tile: it is hashed while it is in the cache. */
	for (uint64_t first = 0; first < bytes; first += tile_bytes) {
		uint64_t tile = ZI_MIN(tile_bytes, bytes - first);

		memcpy(copy + first, source + first, tile);
		hashes[count++] = kern_hash_tile(copy + first, tile, width);
	}
	if (kern_hash(hashes, count * sizeof(*hashes)) != put->digest)
		put->error = err_origin(-EBADMSG);
}

static void put_checked(struct dev_task *task)
{
	struct zero_put *put = container_of(task, struct zero_put, task);
	const struct zero_import *import = put->import;
	const struct zero_snapshot *snapshot = import->snapshot;
	const struct tier_extent *extent = &snapshot->extents[put->index];
	struct catalog_extent *row = &snapshot->record->extents[put->index];
	struct nvme_engine *engine = snapshot->zero->options.engine;
	uint64_t tile_bytes = tile_bytes_of(put);
	int r = put->error;

	row->hash_count = (uint32_t)((extent->bytes + tile_bytes - 1) / tile_bytes);
	row->hashes = import->hashes + import->hash_firsts[put->index];
	row->extent =
		(struct zi_extent){ .offset_bytes = extent->offset_bytes, .bytes = extent->bytes };
	memcpy(row->store_uuid, extent->member->uuid, sizeof(row->store_uuid));
	put->move = (struct tier_move){
		.member = extent->member,
		.is_write = true,
		.offset_bytes = extent->offset_bytes,
		.buffer = put->buffer,
		.bytes = extent->bytes,
		.done = written,
	};
	if (!r)
		r = tier_move_submit(engine, &put->move);
	if (r)
		put_over(put, r);
	else
		tier_move_kick(engine);
}

/* See zero.h. */
int zero_import_write(struct zero_put *put)
{
	struct zero_import *import = put->import;
	struct zero *zero = import->snapshot->zero;

	assert(put->index < import->extent_count);
	assert(import->snapshot->extents[put->index].bytes);
	if (!import->extent_bytes[put->index])
		return err_origin(-EALREADY);
	import->extent_bytes[put->index] = 0;
	import->put_count++;
	put->error = 0;
	put->text.chars[0] = '\0';
	put->task = (struct dev_task){ .run = put_run,
		                       .done = put_checked,
		                       .loop = zero->options.loop };
	zero->snapshot_busy_count++;
	dev_submit(zero->options.devices[0], &put->task);
	return 0;
}

/* ---- the end ---- */

/* See import_write.h. */
uint32_t snapshot_members(const struct zero_snapshot *snapshot, struct tier **ret_tier)
{
	uint32_t members = 0;

	*ret_tier = NULL;
	for (uint32_t i = 0; i < snapshot->record->extent_count; i++) {
		if (!snapshot->extents[i].bytes)
			continue;
		*ret_tier = snapshot->extents[i].member->tier;
		members |= tier_member_bit(snapshot->extents[i].member);
	}
	return members;
}

/* See zero.h. Context: shard thread. */
void zero_import_end(struct zero_import *import, struct zero_snapshot_op *op)
{
	struct zero_snapshot *snapshot = import->snapshot;
	struct zero *zero = snapshot->zero;
	struct catalog_job *record = NULL;
	int r = change_check(zero, &op->text);

	assert(!import->put_count);
	zi_list_init(&op->link);
	if (!r && import->missing_count)
		r = zi_text_error(&op->text, err_origin(-ENODATA), "%u extents were not sent",
		                  import->missing_count);
	else if (!r && catalog_job_copy(snapshot->record, &record))
		r = zi_text_error(&op->text, err_origin(-ENOMEM), "no memory for a snapshot");
	if (!r) {
		/* Its own checksums, not the import's. */
		(void)catalog_job_free(snapshot->record);
		snapshot->record = record;
		snapshot->op = op;
		import->snapshot = NULL;
		snapshot_submit(snapshot, ZERO_SNAPSHOT_STORING, snapshot_stored);
	} else {
		snapshot_op_end(zero, op, r);
	}
	zero_import_drop(import);
	zero_drain(zero);
}
