/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots in tests: asked for and waited for, and what is held on the store beside its free
 * space, counted anew from every holder. */
#pragma once

#include <fcntl.h>

#include "daemon/zero/job/layout.h"
#include "daemon/zero/place/extent.h"
#include "kernels/hash.h"
#include "tests/unit/zero/plain.h"

struct kept {
	struct zero_snapshot_op op;
	bool is_done;
};

static inline void kept_done(struct zero_snapshot_op *op)
{
	struct kept *kept = container_of(op, struct kept, op);

	cr_assert(!kept->is_done, "completed once");
	kept->is_done = true;
}

typedef void (*kept_fn)(struct zero *zero, struct zero_snapshot_op *op);

static inline void kept_start(struct node *node, struct kept *kept, kept_fn function,
                              const char *job, const char *name)
{
	cr_assert_eq(zi_copy_name(kept->op.job, sizeof(kept->op.job), job), 0);
	cr_assert_eq(zi_copy_name(kept->op.name, sizeof(kept->op.name), name), 0);
	kept->op.done = kept_done;
	kept->is_done = false;
	function(node->zero, &kept->op);
}

static inline int kept_wait(struct node *node, struct kept *kept)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	while (!kept->is_done) {
		node_rest(node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the snapshot never ends");
	}
	return kept->op.result;
}

static inline int kept_call(struct node *node, struct kept *kept, kept_fn function, const char *job,
                            const char *name)
{
	kept_start(node, kept, function, job, name);
	return kept_wait(node, kept);
}

/* ---- who holds what ---- */

#define STORE_BLOCKS_MAX 65536u

struct holding {
	uint8_t blocks[STORE_BLOCKS_MAX]; /* of 4 KiB: held */
	const struct tier_member *member;
	int fd;
};

/* One more holder; the bytes on the store match the checksums that it has of them. */
static inline void holding_add(struct holding *holding, const struct tier_extent *extent,
                               const uint64_t *hashes, uint32_t element_bytes)
{
	uint64_t tile_bytes = (uint64_t)ZI_TILE_ELEMENTS * element_bytes;
	uint8_t *bytes;

	if (!extent->bytes || extent->member != holding->member)
		return;
	bytes = aligned_alloc(4096, extent->bytes);
	cr_assert_eq(pread(holding->fd, bytes, extent->bytes, (off_t)extent->offset_bytes),
	             (ssize_t)extent->bytes);
	for (uint64_t done = 0, tile = 0; done < extent->bytes; done += tile_bytes, tile++)
		cr_assert_eq(kern_hash_tile(bytes + done, ZI_MIN(tile_bytes, extent->bytes - done),
		                            element_bytes),
		             hashes[tile], "a named extent was overwritten");
	free(bytes);
	for (uint64_t block = extent->offset_bytes / 4096;
	     block < (extent->offset_bytes + extent->bytes) / 4096; block++)
		holding->blocks[block] = 1;
}

static inline void holding_add_job(struct holding *holding, const struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++)
		for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++) {
			const struct zero_subgroup *subgroup = &job->subgroups[i];
			const struct zero_place *place = &subgroup->places[plane];

			cr_assert_eq(place->next.bytes, 0, "at rest");
			if (place->kept_is)
				holding_add(holding, &place->kept,
				            &job->hashes[plane][place->kept_index]
				                        [subgroup->tile_first],
				            plane == ZERO_PLANE_STATE
				                    ? job_state_bytes(job)
				                    : zi_dtype_bytes(job->config.param_dtype));
			holding_add(holding, &place->extent,
			            &job->hashes[plane][place->hash_index][subgroup->tile_first],
			            plane == ZERO_PLANE_STATE
			                    ? job_state_bytes(job)
			                    : zi_dtype_bytes(job->config.param_dtype));
		}
}

/* Of a node at rest: what is not free is what somebody names, and every byte of it is as it was
 * written. */
static inline void node_check_member(struct node *node, const struct tier_member *member)
{
	struct holding *holding = calloc(1, sizeof(*holding));
	struct nvme_space *space = member->space;
	uint64_t held_bytes = 0;

	holding->member = member;
	holding->fd = open(member->path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(holding->fd, 0);
	zi_list_for_each(link, &node->zero->jobs)
		holding_add_job(holding, container_of(link, struct zero_job, jobs_link));
	zi_list_for_each(link, &node->zero->snapshots) {
		const struct zero_snapshot *snapshot =
			container_of(link, struct zero_snapshot, snapshots_link);
		const struct catalog_job *record = snapshot->record;

		for (uint32_t i = 0; i < record->extent_count; i++)
			holding_add(holding, &snapshot->extents[i], record->extents[i].hashes,
			            record->extents[i].plane == ZI_PLANE_STATE
			                    ? zi_state_element_bytes(record->config.optimizer,
			                                             record->config.param_dtype)
			                    : zi_dtype_bytes(record->config.param_dtype));
	}
	for (uint32_t i = 0; i < STORE_BLOCKS_MAX; i++)
		held_bytes += holding->blocks[i] * 4096ull;
	cr_assert_eq(nvme_space_total_bytes(space) - nvme_space_free_bytes(space), held_bytes,
	             "free space is exact");
	holding->fd = zi_close(holding->fd);
	free(holding);
}

static inline void node_check_space(struct node *node)
{
	for (uint32_t i = 0; i < node->store_count; i++)
		if (node->nvme.members[i].store)
			node_check_member(node, &node->nvme.members[i]);
}
