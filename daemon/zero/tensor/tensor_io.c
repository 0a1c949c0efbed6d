/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors on their way to the store and back. Checksums are taken and verified on device threads,
 * straight in the rank's segment, and the disk moves the same bytes: no copy between. Floor 5,
 * shard thread, but for the functions called ..._run().
 *
 * The segment is not registered with the kernel: a rank that punches holes into registered memory
 * would hold it twice.
 */
#include "daemon/zero/tensor/tensor_io.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/tensor/tensor_room.h"
#include "daemon/zero/tensor/tensor_table.h"
#include "daemon/zero/tensor/tensor_wait.h"
#include "kernels/hash.h"

/* Calls @each with every piece: its number, first byte and count. */
static void each_piece(struct zero_tensor *tensor,
                       void (*each)(struct zero_tensor *tensor, uint32_t index, uint64_t first,
                                    uint64_t count))
{
	uint32_t index = 0;

	for (uint64_t first = 0; first < tensor->bytes; first += tensor->piece_bytes)
		each(tensor, index++, first, ZI_MIN(tensor->piece_bytes, tensor->bytes - first));
}

static void piece_hash(struct zero_tensor *tensor, uint32_t index, uint64_t first, uint64_t count)
{
	tensor->hashes[index] = kern_hash((const char *)tensor_place(tensor) + first, count);
}

static void piece_check(struct zero_tensor *tensor, uint32_t index, uint64_t first, uint64_t count)
{
	const struct zero_tensors *tensors = tensor->tensors;

	if (tensor->error ||
	    kern_hash((const char *)tensor_place(tensor) + first, count) == tensor->hashes[index])
		return;
	tensor->error = err_origin(zi_text_error(
		&tensor->text, -EBADMSG,
		"job '%s': tensor %llu of rank %u is damaged: %llu bytes from its byte %llu on, at "
		"offset %llu of %.80s, do not match their checksum",
		tensors->job_name, (unsigned long long)tensor->id, tensors->rank_number,
		(unsigned long long)count, (unsigned long long)first,
		(unsigned long long)(tensor->extent.offset_bytes + first),
		tensor->extent.member->path));
}

static void hash_piece_run(struct dev_task *task)
{
	each_piece(container_of(task, struct zero_tensor, task), piece_hash);
}

static void check_piece_run(struct dev_task *task)
{
	each_piece(container_of(task, struct zero_tensor, task), piece_check);
}

static void busy(struct zero_tensors *tensors)
{
	tensors->busy_count++;
	tensors->zero->tensor_busy_count++;
}

static void unbusy(struct zero_tensors *tensors)
{
	assert(tensors->busy_count > 0);
	tensors->busy_count--;
	tensors->zero->tensor_busy_count--;
}

static void task_submit(struct zero_tensor *tensor, dev_task_fn run, dev_task_fn done)
{
	struct zero_tensors *tensors = tensor->tensors;

	tensor->task =
		(struct dev_task){ .run = run, .done = done, .loop = tensors->zero->options.loop };
	busy(tensors);
	dev_submit(tensors->device, &tensor->task);
}

static void fail_io(struct zero_tensor *tensor, int error)
{
	tensor->error = error;
	zi_text_set(&tensor->text,
	            "job '%s': %s tensor %llu of rank %u at offset %llu of %.100s: %s",
	            tensor->tensors->job_name, tensor->move.is_write ? "writing" : "reading",
	            (unsigned long long)tensor->id, tensor->tensors->rank_number,
	            (unsigned long long)tensor->extent.offset_bytes, tensor->extent.member->path,
	            zi_err_name(error));
}

/* ---- to the store ---- */

/* It stays in memory, and must be put once more if it is to leave that. */
static void store_undo(struct zero_tensor *tensor)
{
	tensor->stage = ZERO_TENSOR_KEPT;
	tier_extent_release(&tensor->extent);
}

/* Written, or not. */
static void store_end(struct zero_tensor *tensor)
{
	int error = tensor->error;

	tensor->is_given_up = false;
	if (error) {
		store_undo(tensor);
	} else {
		tensor->stage = ZERO_TENSOR_KEPT;
		tensor->is_stored = true;
		tensor->tensors->write_bytes += tensor->extent.bytes;
		if (tensor->tensors->rank) /* Has not left. */
			tensor->tensors->rank->job->write_bytes += tensor->extent.bytes;
	}
	tensor_tell(tensor, error);
}

/* ---- and back ---- */

static void load_end(struct zero_tensor *tensor)
{
	int error = tensor->error;
	bool is_given_up = tensor->is_given_up;

	tensor->stage = ZERO_TENSOR_KEPT;
	tensor->is_given_up = false;
	if (error) {
		tensor_move_out(tensor);
		tensor->is_prefetched = false;
	} else {
		tensor->tensors->read_bytes += tensor->extent.bytes;
		if (tensor->tensors->rank)
			tensor->tensors->rank->job->read_bytes += tensor->extent.bytes;
	}
	/* Who came after it was given up begins anew. */
	if (!error || !is_given_up)
		tensor_tell(tensor, error);
}

/* What was in flight of @tensor is back. Its rank may be gone, and all of it with this. */
static void returned(struct zero_tensor *tensor)
{
	struct zero_tensors *tensors = tensor->tensors;
	struct zero *zero = tensors->zero;

	if (tensor->is_dropped)
		tensor_clear(tensor);
	else if (tensor->stage == ZERO_TENSOR_STORING)
		store_end(tensor);
	else
		load_end(tensor);
	tensors_go_on(tensors);
	zero_drain(zero);
}

static void checked(struct dev_task *task)
{
	struct zero_tensor *tensor = container_of(task, struct zero_tensor, task);

	unbusy(tensor->tensors);
	returned(tensor);
}

/* A path that takes nothing more did not take @tensor either: another one shall, if one has room.
 * Ends, as each path fails once. What was given back there is nobody's while the path is left. */
static bool store_elsewhere(struct zero_tensor *tensor)
{
	struct zero_tensors *tensors = tensor->tensors;
	struct tier_extent extent;

	if (!tensor->move.is_write || tensor->is_dropped || tensor->is_given_up ||
	    !tier_member_is_leaving(tensor->extent.member) ||
	    tier_extent_reserve(tensors->nvme_tier, ZERO_PLANE_STATE, tensor->extent.bytes,
	                        &extent))
		return false;
	tier_extent_release(&tensor->extent);
	tensor->extent = extent;
	zi_list_push_front(&tensors->stores, &tensor->link);
	tensors_pump(tensors);
	return true;
}

static void moved(struct tier_move *move)
{
	struct zero_tensor *tensor = container_of(move, struct zero_tensor, move);
	struct zero_tensors *tensors = tensor->tensors;

	unbusy(tensors);
	tensor->is_moving = false;
	assert(tensors->moving_count > 0);
	tensors->moving_count--;
	if (move->result && store_elsewhere(tensor))
		return;
	if (move->result) {
		fail_io(tensor, move->result);
	} else if (!move->is_write && !tensor->is_dropped) {
		tensor->stage = ZERO_TENSOR_CHECKING;
		task_submit(tensor, check_piece_run, checked);
		tensors_pump(tensors);
		return;
	}
	returned(tensor);
}

/* Told like a move that failed, where every other one is: on the way back. */
static void refused_run(struct dev_task *task)
{
	(void)task;
}

static void move_begin(struct zero_tensor *tensor)
{
	struct zero_tensors *tensors = tensor->tensors;
	bool is_write = tensor->stage == ZERO_TENSOR_STORING;
	int r;

	tensor->move = (struct tier_move){ .member = tensor->extent.member,
		                           .is_write = is_write,
		                           .offset_bytes = tensor->extent.offset_bytes,
		                           .buffer = tensor_place(tensor),
		                           .bytes = tensor->extent.bytes,
		                           .flow = tensors->flow,
		                           .tally = tensors->tally,
		                           .done = moved };
	r = tier_move_submit(tensors->zero->options.engine, &tensor->move);
	if (r) {
		fail_io(tensor, r);
		task_submit(tensor, refused_run, checked);
		return;
	}
	busy(tensors);
	tensors->moving_count++;
	tensor->is_moving = true;
}

/* Somebody waits for a load, or will soon: before what is only put away. */
static struct zi_list *next_queued(struct zero_tensors *tensors)
{
	struct zi_list *link = zi_list_pop_front(&tensors->loads);

	return link ? link : zi_list_pop_front(&tensors->stores);
}

/* Hands to the disk what it may have. */
void tensors_pump(struct zero_tensors *tensors)
{
	bool has_moved = false;
	struct zi_list *link;

	while (tensors->moving_count < ZERO_TENSOR_MOVES_MAX && (link = next_queued(tensors))) {
		move_begin(container_of(link, struct zero_tensor, link));
		has_moved = true;
	}
	if (has_moved)
		tier_move_kick(tensors->zero->options.engine);
}

static void hashed(struct dev_task *task)
{
	struct zero_tensor *tensor = container_of(task, struct zero_tensor, task);
	struct zero_tensors *tensors = tensor->tensors;

	unbusy(tensors);
	tensor->stage = ZERO_TENSOR_STORING;
	if (tensor->is_given_up)
		tensor->error = -ECANCELED;
	if (tensor->is_dropped || tensor->is_given_up) {
		returned(tensor);
		return;
	}
	zi_list_push_back(&tensors->stores, &tensor->link);
	tensors_pump(tensors);
}

/* OPEN, or KEPT and not stored; with an extent. */
void tensor_store(struct zero_tensor *tensor)
{
	uint64_t piece_bytes =
		zi_align_up((tensor->bytes + ZERO_TENSOR_PIECES_MAX - 1) / ZERO_TENSOR_PIECES_MAX,
	                    ZI_STORE_ALIGN_BYTES);

	assert(tensor->extent.bytes);
	tensor->stage = ZERO_TENSOR_HASHING;
	tensor->error = 0;
	tensor->is_given_up = false;
	tensor->piece_bytes = ZI_MAX(piece_bytes, (uint64_t)ZERO_TENSOR_PIECE_BYTES_MIN);
	task_submit(tensor, hash_piece_run, hashed);
}

/* KEPT, stored, and room was found for it. */
void tensor_load(struct zero_tensor *tensor)
{
	assert(tensor->is_resident);
	assert(tensor->is_stored);
	tensor->stage = ZERO_TENSOR_LOADING;
	tensor->error = 0;
	tensor->is_given_up = false;
	zi_list_push_back(&tensor->tensors->loads, &tensor->link);
}

/* Nobody waits for what is under way: what has not begun never does, the rest is asked back. */
void tensor_give_up(struct zero_tensor *tensor)
{
	switch (tensor->stage) {
	case ZERO_TENSOR_HASHING:
		tensor->is_given_up = true;
		return;
	case ZERO_TENSOR_STORING:
	case ZERO_TENSOR_LOADING:
		if (tensor->is_moving) {
			tensor->is_given_up = true;
			tier_move_cancel(tensor->tensors->zero->options.engine, &tensor->move);
		} else if (zi_list_is_linked(&tensor->link)) {
			zi_list_remove(&tensor->link);
			if (tensor->stage == ZERO_TENSOR_STORING) {
				store_undo(tensor);
			} else {
				tensor->stage = ZERO_TENSOR_KEPT;
				tensor->is_prefetched = false;
				tensor_move_out(tensor);
			}
		}
		return;
	case ZERO_TENSOR_FREE:
	case ZERO_TENSOR_OPEN:
	case ZERO_TENSOR_KEPT:
	case ZERO_TENSOR_CHECKING:
	default:
		return;
	}
}

/* ---- the segment ---- */

static void build_run(struct dev_task *task)
{
	struct zero_tensors *tensors = container_of(task, struct zero_tensors, build_task);

	tensors->build_error = tier_segment_build(tensors->segment, &tensors->build_text);
}

static void built(struct dev_task *task)
{
	struct zero_tensors *tensors = container_of(task, struct zero_tensors, build_task);
	struct zero *zero = tensors->zero;

	unbusy(tensors);
	tensors_built(tensors);
	zero_drain(zero);
}

/* Fresh pages are slow: on a device thread. Ends in tensors_built(). */
void tensors_build(struct zero_tensors *tensors)
{
	tensors->build_task = (struct dev_task){ .run = build_run,
		                                 .done = built,
		                                 .loop = tensors->zero->options.loop };
	busy(tensors);
	dev_submit(tensors->device, &tensors->build_task);
}
