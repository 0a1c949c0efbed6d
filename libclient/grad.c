/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients taken and handed over. Floor 2.
 *
 * With buckets (ZI_MATERIALIZED_GRADS_POOLED) an acquire tells where in this rank's segment the
 * unit's gradient lies, and those pages are mapped at the unit's own address; a reduce puts the
 * bare reservation back, and only then tells the daemon, which may give the place to another unit.
 * An address means the same gradient always, and a stray access faults.
 *
 * With a GPU the trainer writes a gradient in GPU memory. It is copied to its place in CPU memory
 * after zinf_reduce(), and handed over when the copy has ended (gpu/grads.c).
 */
#include <string.h>

#include "common/base/err.h"
#include "common/wire/region.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

static void *address_of(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	return (char *)zinf->grad_base + unit->grad_offset_bytes;
}

/* When that fails the bucket is this rank's all the same: the next acquire is told of it again. */
static int map_bucket(struct zinf *zinf, struct zi_client_unit *unit, uint64_t offset_bytes)
{
	int r;

	if (offset_bytes % zinf->slot_bytes || offset_bytes > zinf->bucket_bytes ||
	    zinf->bucket_bytes - offset_bytes < unit->grad_bytes)
		return err_trace(zi_client_breach(zinf, "a gradient outside its segment"));
	unit->bucket_offset_bytes = offset_bytes;
	r = zi_region_map_at(address_of(zinf, unit), unit->grad_bytes, zinf->grad_fd, offset_bytes,
	                     true);
	if (!r)
		return 0;
	return zi_client_error(zinf, r, "mapping %s of gradients of unit '%s': %s",
	                       zi_format_bytes(unit->grad_bytes).chars, unit->name, strerror(-r));
}

static int unmap_bucket(struct zinf *zinf, struct zi_client_unit *unit)
{
	int r = zi_region_map_at(address_of(zinf, unit), unit->grad_bytes, -1, 0, false);

	if (!r)
		return 0;
	return zi_client_error(zinf, r, "unmapping gradients of unit '%s': %s", unit->name,
	                       strerror(-r));
}

/* See client.h. */
int zi_client_grad_drop(struct zinf *zinf, uint32_t index)
{
	struct zi_client_unit *unit = &zinf->units[index];
	int r = zi_client_has_buckets(zinf) ? unmap_bucket(zinf, unit) : 0;

	if (r)
		return err_trace(r);
	zi_client_gpu_drop(zinf, index);
	unit->is_grad_held = false;
	return 0;
}

/* See client.h. */
int zi_client_grad_acquire(struct zinf *zinf, uint32_t index)
{
	struct zi_client_unit *unit;
	uint64_t offset_bytes = 0;
	int r = zi_client_enter_unit(zinf, index);

	if (!r)
		r = zi_client_check_steps(zinf, "zinf_grad_acquire()");
	if (r)
		return err_trace(r);
	unit = &zinf->units[index];
	r = zi_client_check_trains(zinf, unit);
	if (r)
		return err_trace(r);
	if (unit->is_grad_held)
		return 0;
	r = zi_client_finish(zinf, ZI_OP_GRAD_ACQUIRE, index, &unit->acquire_ticket, &offset_bytes);
	if (!r && zi_client_has_buckets(zinf))
		r = map_bucket(zinf, unit, offset_bytes);
	if (r)
		return err_trace(r);
	unit->is_grad_held = true;
	return 0;
}

/* The unit's next micro-batch waits for the sum of the one before, hence for all that this rank
 * left out of that. */
int zinf_grad_acquire(struct zinf *zinf, uint32_t index)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	const struct zi_client_unit *unit;
	int r = zi_client_enter_unit(zinf, index);

	if (r)
		return err_trace(r);
	unit = &zinf->units[index];
	if (zinf->is_step_begun && !unit->is_grad_held &&
	    unit->reduce_count < zi_client_reduce_max(zinf))
		r = zi_client_reduce_unused(zinf, unit->reduce_count);
	if (r)
		return err_trace(r);
	/* The gradients of a rank that shadows a step are zeros, in CPU memory. */
	if (zinf->gpu && !zinf->is_shadowing)
		return err_trace(zi_client_gpu_acquire(zinf, index));
	return err_trace(zi_client_grad_acquire(zinf, index));
}

/* See client.h. Whatever comes of it, nothing is behind its address any more, or only the daemon's.
 */
int zi_client_grad_hand_over(struct zinf *zinf, uint32_t index)
{
	int r = zi_client_has_buckets(zinf) ? unmap_bucket(zinf, &zinf->units[index]) : 0;

	return r ? err_trace(r)
	         : err_trace(zi_client_submit(zinf, ZI_OP_REDUCE, index, 0, true, NULL));
}

/* From CPU memory, now. */
static int reduce_host(struct zinf *zinf, uint32_t index)
{
	struct zi_client_unit *unit = &zinf->units[index];
	int r;

	zi_client_clear_unused(zinf, unit);
	r = zi_client_has_buckets(zinf) ? unmap_bucket(zinf, unit) : 0;
	if (r)
		return err_trace(r);
	/* Whatever comes of it, nothing is behind its address any more, or only the daemon's. */
	unit->is_grad_held = false;
	r = zi_client_say_unused(zinf, index);
	if (!r)
		r = zi_client_submit(zinf, ZI_OP_REDUCE, index, 0, true, NULL);
	zi_client_forget_done(zinf, unit);
	return err_trace(r);
}

/* From GPU memory, when it is copied: a look sends REDUCE, behind what is said here. */
static int reduce_gpu(struct zinf *zinf, uint32_t index)
{
	struct zi_client_unit *unit = &zinf->units[index];
	int r = zi_client_gpu_place_grad(zinf, index);

	if (!r)
		r = zi_client_say_unused(zinf, index);
	if (!r)
		r = zi_client_gpu_reduce(zinf, index);
	if (r)
		return err_trace(r);
	unit->is_grad_held = false;
	zi_client_forget_done(zinf, unit);
	return 0;
}

int zinf_reduce(struct zinf *zinf, uint32_t index)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_client_unit *unit;
	int r = zi_client_check_unit(zinf, index);

	if (!r)
		r = zi_client_check_steps(zinf, "zinf_reduce()");
	if (r)
		return err_trace(r);
	unit = &zinf->units[index];
	r = zi_client_check_trains(zinf, unit);
	if (r)
		return err_trace(r);
	if (!zinf->is_step_begun)
		return zi_client_error(zinf, -EINVAL, "call zinf_step_begin() first");
	if (unit->reduce_count >= zi_client_reduce_max(zinf) ||
	    (unit->reduce_count && !unit->is_grad_held))
		return zi_client_error(zinf, -EALREADY,
		                       "unit '%s' was handed over %u of %u times in this step "
		                       "already, and not acquired since",
		                       unit->name, unit->reduce_count, zi_client_reduce_max(zinf));
	if (!unit->is_grad_held)
		return zi_client_error(zinf, -EINVAL, "unit '%s': call zinf_grad_acquire() first",
		                       unit->name);
	if (zinf->no_sync_count && zinf->attach.config.schedule == ZI_SCHEDULE_LOCAL)
		return 0; /* This rank goes on adding up in it. */
	r = zi_client_check_done(zinf, unit);
	if (r)
		return err_trace(r);
	r = zi_client_gpu_has_grad(zinf, index) ? reduce_gpu(zinf, index)
	                                        : reduce_host(zinf, index);
	if (r)
		return err_trace(r);
	if (!unit->reduce_count && !zinf->is_shadowing)
		zinf->units[zinf->handed_count++].handed = index;
	unit->reduce_count++;
	return 0;
}

int zinf_no_sync_begin(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter(zinf);

	if (!r && zinf->gpu)
		r = zi_client_gpu_check_no_sync(zinf);
	if (r)
		return err_trace(r);
	zinf->no_sync_count++;
	return 0;
}

int zinf_no_sync_end(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (!zinf->no_sync_count)
		return zi_client_error(zinf, -EINVAL, "call zinf_no_sync_begin() first");
	zinf->no_sync_count--;
	return 0;
}
