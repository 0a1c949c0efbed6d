/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One extent on its way to another path: read, compared with its checksums, written. It knows all
 * it needs: its owner may go meanwhile. Floor 5, shard thread, but for evacuee_run() on a device
 * thread.
 */
#include "daemon/zero/zero.h"

#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/evacuate.h"
#include "kernels/hash.h"

static void evacuee_fail(struct zero_evacuee *evacuee, int error)
{
	const struct tier_move *move = &evacuee->move;

	evacuee->error = error;
	zi_text_set(&evacuee->text, "%.170s: %s at offset %llu of %s: %s", evacuee->what.chars,
	            error == -EBADMSG ? "damaged"
	            : move->is_write  ? "writing"
	                              : "reading",
	            (unsigned long long)move->offset_bytes, move->member->path, zi_err_name(error));
}

static void evacuee_written(struct tier_move *move)
{
	struct zero_evacuee *evacuee = container_of(move, struct zero_evacuee, move);

	if (move->result)
		evacuee_fail(evacuee, move->result);
	evacuate_evacuee_over(evacuee);
}

static int evacuee_move(struct zero_evacuee *evacuee, bool is_write,
                        const struct tier_extent *extent, tier_move_fn done)
{
	struct nvme_engine *engine = evacuee->zero->options.engine;
	int r;

	evacuee->move = (struct tier_move){
		.member = extent->member,
		.is_write = is_write,
		.offset_bytes = extent->offset_bytes,
		.buffer = evacuee->slot,
		.bytes = extent->bytes,
		.done = done,
	};
	r = tier_move_submit(engine, &evacuee->move);
	if (r) {
		evacuee_fail(evacuee, r);
		return err_trace(r);
	}
	tier_move_kick(engine);
	return 0;
}

/* Device thread. The checksums of what is committed. */
static void evacuee_run(struct dev_task *task)
{
	struct zero_evacuee *evacuee = container_of(task, struct zero_evacuee, task);
	uint64_t tile_bytes = (uint64_t)ZI_TILE_ELEMENTS * evacuee->element_bytes;
	uint64_t first = 0;

	for (uint32_t i = 0; i < evacuee->hash_count && !evacuee->error; i++) {
		uint64_t bytes = ZI_MIN(tile_bytes, evacuee->from.bytes - first);

		if (kern_hash_tile((char *)evacuee->slot + first, bytes, evacuee->element_bytes) !=
		    evacuee->hashes[i])
			evacuee->error = -EBADMSG;
		first += bytes;
	}
}

static void evacuee_verified(struct dev_task *task)
{
	struct zero_evacuee *evacuee = container_of(task, struct zero_evacuee, task);

	if (evacuee->error)
		evacuee_fail(evacuee, evacuee->error);
	if (evacuee->error || evacuee_move(evacuee, true, &evacuee->to, evacuee_written))
		evacuate_evacuee_over(evacuee);
}

static void evacuee_read(struct tier_move *move)
{
	struct zero_evacuee *evacuee = container_of(move, struct zero_evacuee, move);

	if (move->result) {
		evacuee_fail(evacuee, move->result);
		evacuate_evacuee_over(evacuee);
		return;
	}
	evacuee->task = (struct dev_task){ .run = evacuee_run,
		                           .done = evacuee_verified,
		                           .loop = evacuee->zero->options.loop };
	dev_submit(evacuee->zero->evacuation.device, &evacuee->task);
}

/* See evacuate.h. */
int evacuee_begin(struct zero_evacuee *evacuee)
{
	return err_trace(evacuee_move(evacuee, false, &evacuee->from, evacuee_read));
}
