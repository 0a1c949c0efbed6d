/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients on their way from the GPU: taken by the trainer, copied into this rank's gradients in
 * CPU memory, handed over to the daemon when the copy has ended. Floor 2.
 *
 * Copies end in the order in which they were queued, so REDUCEs go out in the order of the calls.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/gpu/ring.h"
#include "common/wire/geometry.h"
#include "libclient/gpu/rank.h"

/* ---- life ---- */

int zi_gpu_grads_init(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int r = 0;

	gpu->leaving = calloc(gpu->unit_count, sizeof(*gpu->leaving));
	if (!gpu->leaving)
		return zi_client_error(zinf, -ENOMEM, "no memory for gradients of %u units",
		                       gpu->unit_count);
	for (uint32_t i = 0; i < gpu->unit_count && !r; i++)
		if (gpu->units[i].grad)
			r = zi_client_gpu_make_events(zinf, &gpu->units[i].written,
			                              &gpu->units[i].landed);
	return err_trace(r);
}

void zi_gpu_grads_deinit(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	for (uint32_t i = 0; i < gpu->unit_count; i++)
		zi_client_gpu_free_events(zinf, &gpu->units[i].written, &gpu->units[i].landed);
	free(gpu->leaving);
	gpu->leaving = NULL;
	gpu->leaving_count = 0;
}

/* ---- acquire ---- */

static int refuse_busy(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	uint32_t blocker =
		zi_gpu_ring_blocker(gpu->grads, zi_gpu_state_of(zinf, index)->grad_index);
	uint32_t unit = 0;

	while (gpu->units[unit].grad_index != blocker)
		unit++;
	return zi_client_error(
		zinf, -EBUSY,
		"the gradient of unit '%.50s' shares GPU memory with that of unit '%.50s': "
		"zinf_reduce() that first, or raise grad_budget_bytes (%s) of zinf_gpu_open()",
		zinf->units[index].name, zinf->units[unit].name,
		zi_format_bytes(gpu->budget.grad_count * gpu->budget.chunk_bytes).chars);
}

static bool has_left(const struct zinf *zinf, const void *arg)
{
	const uint32_t *unit = arg;

	return !zi_gpu_state_of(zinf, *unit)->is_grad_leaving;
}

/* The place on the ring. The trainer's stream writes there behind the copies of those before. */
static int take(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	const uint64_t *events;
	uint32_t count;
	int r = zi_gpu_ring_acquire(gpu->grads, state->grad_index);

	if (r == ZI_GPU_RING_E_BUSY)
		return err_trace(refuse_busy(zinf, index));
	assert(r == ZI_GPU_RING_E_FRESH);
	count = zi_gpu_ring_waits(gpu->grads, state->grad_index, &events);
	r = zi_client_gpu_wait(zinf, gpu->stream, events, count);
	if (r) {
		zi_gpu_ring_cancel(gpu->grads, state->grad_index);
		return err_trace(r);
	}
	return 0;
}

/* The gradient's place in CPU memory. The daemon gives the next gradient of a unit when it has had
 * the one before. */
static int acquire_host(struct zinf *zinf, uint32_t index)
{
	int r = 0;

	if (!has_left(zinf, &index))
		r = zi_client_gpu_await(zinf, has_left, &index, "a copy of gradients");
	return r ? err_trace(r) : err_trace(zi_client_grad_acquire(zinf, index));
}

static int acquire(struct zinf *zinf, uint32_t index)
{
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	uint64_t start_ns = zi_clock_now_ns();
	int r = take(zinf, index);

	if (r)
		return err_trace(r);
	/* A bucket comes with zinf_reduce(): the trainer needs none. */
	if (zi_client_has_buckets(zinf))
		zinf->units[index].is_grad_held = true;
	else
		r = acquire_host(zinf, index);
	zinf->gpu->stats.grad_wait_s += (double)(zi_clock_now_ns() - start_ns) * 1e-9;
	if (r) {
		zi_gpu_ring_cancel(zinf->gpu->grads, state->grad_index);
		return err_trace(r);
	}
	state->is_grad_taken = true;
	return 0;
}

int zi_client_gpu_acquire(struct zinf *zinf, uint32_t index)
{
	int r, after;

	r = zi_client_check_steps(zinf, "zinf_grad_acquire()");
	if (!r)
		r = zi_client_check_trains(zinf, &zinf->units[index]);
	if (r || zi_client_gpu_has_grad(zinf, index))
		return err_trace(r);
	r = zi_client_gpu_enter(zinf);
	if (r)
		return err_trace(r);
	r = acquire(zinf, index);
	after = zi_client_gpu_leave(zinf);
	return r ? err_trace(r) : err_trace(after);
}

bool zi_client_gpu_has_grad(const struct zinf *zinf, uint32_t unit)
{
	return zinf->gpu && zi_gpu_state_of(zinf, unit)->is_grad_taken;
}

/* ---- reduce ---- */

/* A bucket for a gradient that the trainer has written. The daemon judges by what ranks hold and
 * wait for whether there will ever be room: no gradient of this rank is on its way while it waits.
 */
static int take_bucket(struct zinf *zinf, uint32_t index)
{
	struct zi_client_unit *unit = &zinf->units[index];
	uint64_t start_ns = zi_clock_now_ns();
	int r = zi_client_gpu_settle_grads(zinf);

	if (!r) {
		unit->is_grad_held = false; /* As the daemon sees it. */
		r = zi_client_grad_acquire(zinf, index);
		unit->is_grad_held = true;
	}
	zinf->gpu->stats.grad_wait_s += (double)(zi_clock_now_ns() - start_ns) * 1e-9;
	return err_trace(r);
}

int zi_client_gpu_place_grad(struct zinf *zinf, uint32_t index)
{
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	int r;

	assert(state->is_grad_taken);
	if (!zi_client_has_buckets(zinf) || state->has_bucket)
		return 0;
	r = take_bucket(zinf, index);
	state->has_bucket = !r;
	return err_trace(r);
}

/* Where the unit's gradient lies in CPU memory. */
static char *target_of(const struct zinf *zinf, uint32_t index)
{
	const struct zi_client_unit *unit = &zinf->units[index];
	const struct zi_gpu_pin *pin = &zinf->gpu->pins.list[zinf->gpu->grad_pin];

	return pin->base +
	       (zi_client_has_buckets(zinf) ? unit->bucket_offset_bytes : unit->grad_offset_bytes);
}

/* Parameters that the trainer left out are zeros. */
static int clear_unused(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	const struct zi_client_unit *unit = &zinf->units[index];
	uint32_t width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
	int code = ZI_CUDA_SUCCESS;

	for (uint32_t i = 0; i < unit->param_count && !code; i++) {
		const struct zi_client_param *param = &zinf->params[unit->param_first + i];
		uint64_t elements = 0;

		if (!zi_client_is_unused(zinf, param))
			continue;
		(void)zi_geometry_elements(param->entry.shape, param->entry.dim_count,
		                           &elements); /* Checked when it was added. */
		code = zi_client_cuda(zinf)->cuMemsetD8Async(zi_gpu_state_of(zinf, index)->grad +
		                                                     param->element_offset * width,
		                                             0, elements * width, gpu->down.stream);
	}
	return err_trace(
		zi_client_gpu_fail(zinf, code, "clearing gradients of unit '%s'", unit->name));
}

/* What the trainer's stream was given comes first. After a failure a part may be queued; it reads
 * what the trainer still has. */
static int queue_copy(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	uint64_t bytes = zinf->units[index].element_count *
	                 zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
	uint64_t written = zi_gpu_event_number(state->written);
	int code = cuda->cuEventRecord(state->written, gpu->stream);
	int r = zi_client_gpu_fail(zinf, code, "recording the end of gradients");

	if (!r)
		r = zi_client_gpu_wait(zinf, gpu->down.stream, &written, 1);
	if (!r)
		r = clear_unused(zinf, index);
	if (!r)
		r = zi_gpu_lane_down(&gpu->down, zinf, target_of(zinf, index), state->grad, bytes);
	if (!r) {
		code = cuda->cuEventRecord(state->landed, gpu->down.stream);
		r = zi_client_gpu_fail(zinf, code, "recording the end of a copy");
	}
	if (r)
		return err_trace(r);
	gpu->stats.from_gpu_bytes += bytes;
	gpu->stats.from_gpu_count++;
	return 0;
}

int zi_client_gpu_reduce(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	int r = zi_client_gpu_enter(zinf), after;

	assert(state->is_grad_taken);
	assert(!state->is_grad_leaving);
	if (r)
		return err_trace(r);
	r = queue_copy(zinf, index);
	after = zi_client_gpu_leave(zinf);
	if (r || after)
		return r ? err_trace(r) : err_trace(after);
	zi_gpu_ring_handed(gpu->grads, state->grad_index, zi_gpu_event_number(state->landed));
	state->is_grad_taken = state->has_bucket = false;
	state->is_grad_leaving = true;
	gpu->leaving[gpu->leaving_count++] = index;
	return 0;
}

int zi_gpu_grads_look(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	while (gpu->leaving_count) {
		uint32_t unit = gpu->leaving[0];
		bool is_over;
		int r = zi_client_gpu_query(zinf, zi_gpu_state_of(zinf, unit)->landed, &is_over);

		if (r || !is_over)
			return err_trace(r);
		r = zi_client_grad_hand_over(zinf, unit);
		if (r) /* The next look goes on with it. */
			return err_trace(r);
		gpu->leaving_count--;
		memmove(gpu->leaving, gpu->leaving + 1, gpu->leaving_count * sizeof(*gpu->leaving));
		zi_gpu_state_of(zinf, unit)->is_grad_leaving = false;
	}
	return 0;
}

/* ---- the rest ---- */

/* What the trainer's stream was given may write there still. */
void zi_client_gpu_drop(struct zinf *zinf, uint32_t index)
{
	struct zi_gpu_unit_state *state;
	int code = ZI_CUDA_UNKNOWN;

	if (!zi_client_gpu_has_grad(zinf, index))
		return;
	state = zi_gpu_state_of(zinf, index);
	if (zi_client_gpu_enter(zinf) == 0) {
		code = zi_client_cuda(zinf)->cuEventRecord(state->landed, zinf->gpu->stream);
		(void)zi_client_gpu_leave(zinf); /* The next call tells of the driver again. */
	}
	if (code)
		zi_gpu_ring_cancel(zinf->gpu->grads, state->grad_index);
	else
		zi_gpu_ring_handed(zinf->gpu->grads, state->grad_index,
		                   zi_gpu_event_number(state->landed));
	state->is_grad_taken = state->has_bucket = false;
}

int zi_client_gpu_check_no_sync(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	uint64_t bytes = 0;

	if (!gpu->grads || zinf->attach.config.schedule != ZI_SCHEDULE_LOCAL ||
	    zi_gpu_ring_holds_all(gpu->grads))
		return 0;
	for (uint32_t i = 0; i < gpu->unit_count; i++)
		bytes += gpu->units[i].grad_range_bytes;
	return zi_client_error(
		zinf, -ENOSPC,
		"gradients of all units are added up in GPU memory: raise "
		"grad_budget_bytes of zinf_gpu_open() from %s to %s, or set "
		"accumulation of zinf_attach()",
		zi_format_bytes(gpu->budget.grad_count * gpu->budget.chunk_bytes).chars,
		zi_format_bytes(bytes).chars);
}
