/* SPDX-License-Identifier: Apache-2.0 */
/* A unit's way to the GPU, from one phase to the next; see way.h. Floor 2. */
#include "libclient/gpu/way.h"

#include "common/base/err.h"
#include "common/gpu/ring.h"
#include "libclient/gpu/rank.h"

/* The only transitions of phases. */
void zi_gpu_way_set(struct zinf *zinf, uint32_t unit, enum zi_gpu_phase phase)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, unit);
	uint32_t i = 0;

	if (state->phase == ZI_GPU_IDLE && phase != ZI_GPU_IDLE)
		gpu->active[gpu->active_count++] = unit;
	if (state->phase != ZI_GPU_IDLE && phase == ZI_GPU_IDLE) {
		while (gpu->active[i] != unit)
			i++;
		gpu->active[i] = gpu->active[--gpu->active_count];
		state->is_dropped = false;
	}
	state->phase = phase;
}

/* Units that the daemon holds for this rank, beside @unit. The unit of a demand is about to be one,
 * whatever its phase. */
uint32_t zi_gpu_way_held(const struct zinf *zinf, uint32_t unit)
{
	const struct zi_client_gpu *gpu = zinf->gpu;
	uint32_t count = gpu->demanded != ZI_GPU_NO_UNIT && gpu->demanded != unit;

	for (uint32_t i = 0; i < gpu->active_count; i++)
		count += gpu->active[i] != unit && gpu->active[i] != gpu->demanded &&
		         zi_gpu_state_of(zinf, gpu->active[i])->phase != ZI_GPU_PLACED;
	return count;
}

/* @ret_is_free: nothing that was queued uses the place of a coming unit any more. */
int zi_gpu_way_look_at_place(struct zinf *zinf, uint32_t unit, bool *ret_is_free)
{
	const uint64_t *events;
	uint32_t count = zi_gpu_ring_waits(zinf->gpu->params, unit, &events);
	int r = 0;

	*ret_is_free = true;
	for (uint32_t i = 0; i < count && *ret_is_free && !r; i++)
		r = zi_client_gpu_query(zinf, zi_gpu_event(events[i]), ret_is_free);
	return err_trace(r);
}

/* The daemon gets the unit back. */
int zi_gpu_way_give_back(struct zinf *zinf, uint32_t unit)
{
	zi_gpu_way_set(zinf, unit, ZI_GPU_IDLE);
	return err_trace(zi_client_submit(zinf, ZI_OP_RESHARD, unit, 0, true, NULL));
}

/* The copy of a coming unit has failed. The daemon holds the unit until what was queued, now or for
 * an earlier copy, has ended: a stream may wait for another rank, and is not waited for here.
 * @is_begun: a part may be queued, behind the events of its place. */
static void lose(struct zinf *zinf, uint32_t index, bool is_begun)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);

	if (is_begun && !zi_client_cuda(zinf)->cuEventRecord(state->copied, gpu->up.stream)) {
		zi_gpu_ring_lost(gpu->params, index, zi_gpu_event_number(state->copied));
		zi_gpu_way_set(zinf, index, ZI_GPU_COPYING);
		return;
	}
	if (is_begun) /* Of a driver that fails twice nothing better can be asked. */
		(void)zi_gpu_lane_drain(&gpu->up, zinf);
	zi_gpu_ring_cancel(gpu->params, index);
	if (state->phase != ZI_GPU_COPYING)
		(void)zi_gpu_way_give_back(zinf, index); /* The first error counts. */
}

/* The copy of a coming unit, behind all that uses its place. Then the unit is present. */
int zi_gpu_way_copy(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	uint64_t bytes = zinf->units[index].element_count *
	                 zi_dtype_bytes((enum zi_dtype)zinf->attach.config.param_dtype);
	const char *source = gpu->pins.list[gpu->param_pin].base + state->offset_bytes;
	const uint64_t *events;
	uint32_t count = zi_gpu_ring_waits(gpu->params, index, &events);
	uint32_t demanded = gpu->demanded;
	bool is_begun;
	int code;
	int r = zi_client_gpu_wait(zinf, gpu->up.stream, events, count);

	is_begun = !r;
	gpu->demanded = index; /* A copy through buffers waits, and so looks. */
	if (!r)
		r = zi_gpu_lane_up(&gpu->up, zinf, state->param, source, bytes);
	if (!r) {
		code = zi_client_cuda(zinf)->cuEventRecord(state->copied, gpu->up.stream);
		r = zi_client_gpu_fail(zinf, code, "recording the end of a copy");
	}
	gpu->demanded = demanded;
	if (r) {
		const struct zi_text text = zinf->text;

		lose(zinf, index, is_begun);
		return err_trace(zi_client_tell(zinf, r, &text));
	}
	zi_gpu_ring_copied(gpu->params, index, zi_gpu_event_number(state->copied));
	zi_gpu_way_set(zinf, index, ZI_GPU_COPYING);
	gpu->stats.to_gpu_bytes += bytes;
	gpu->stats.to_gpu_count++;
	return 0;
}

/* What the daemon said of where the unit lies. */
int zi_gpu_way_take_place(struct zinf *zinf, uint32_t index, uint64_t offset_bytes)
{
	const struct zi_client_unit *unit = &zinf->units[index];

	if (!zi_client_is_pooled(zinf)) {
		zi_gpu_state_of(zinf, index)->offset_bytes = unit->param_offset_bytes;
		return 0;
	}
	if (!zi_client_is_in_pool(zinf, unit, offset_bytes))
		return err_trace(zi_client_breach(zinf, "a unit outside the pool"));
	zi_gpu_state_of(zinf, index)->offset_bytes = offset_bytes;
	return 0;
}

int zi_gpu_way_ask(struct zinf *zinf, uint32_t index)
{
	bool is_pooled = zi_client_is_pooled(zinf), is_free = true;
	struct zi_client_op *op;
	int r = 0;

	/* A call that was interrupted has asked. */
	if (zinf->units[index].unshard_ticket) {
		zi_gpu_way_set(zinf, index, ZI_GPU_ASKED);
		return 0;
	}
	if (zinf->free_count <= ZI_GPU_SPARE_OPS ||
	    (is_pooled && zi_gpu_way_held(zinf, index) >= ZI_GPU_POOL_HELD_MAX))
		return 0;
	if (is_pooled)
		r = zi_gpu_way_look_at_place(zinf, index, &is_free);
	if (r || !is_free)
		return err_trace(r);
	r = zi_client_submit(zinf, ZI_OP_UNSHARD, index, 0, false, &op);
	if (r)
		return err_trace(r);
	zinf->units[index].unshard_ticket = op->ticket;
	zi_gpu_way_set(zinf, index, ZI_GPU_ASKED);
	return 0;
}

/* Prefetch is a hint: a unit that did not come is asked for again by its use, which tells why. */
static int look_asked(struct zinf *zinf, uint32_t index)
{
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	struct zi_client_op *op = zi_client_find(zinf, zinf->units[index].unshard_ticket);
	int r;

	assert(op);
	if (op->state != ZI_CLIENT_OP_DONE)
		return 0;
	zinf->units[index].unshard_ticket = 0;
	r = op->result;
	if (!r && !state->is_dropped)
		r = zi_gpu_way_take_place(zinf, index, op->value);
	zi_client_op_free(zinf, op);
	if (r) {
		if (!state->is_dropped)
			zi_gpu_ring_cancel(zinf->gpu->params, index);
		zi_gpu_way_set(zinf, index, ZI_GPU_IDLE);
		return zinf->over ? err_trace(r) : 0;
	}
	if (state->is_dropped)
		return err_trace(zi_gpu_way_give_back(zinf, index));
	r = zi_gpu_way_copy(zinf, index);
	if (r)
		return err_trace(r);
	zinf->gpu->stats.prefetch_count++;
	return 0;
}

static int look_copying(struct zinf *zinf, uint32_t index)
{
	bool is_over;
	int r = zi_client_gpu_query(zinf, zi_gpu_state_of(zinf, index)->copied, &is_over);

	if (r || !is_over)
		return err_trace(r);
	return err_trace(zi_gpu_way_give_back(zinf, index));
}

/* The newest first, so that a unit may leave the list meanwhile. */
int zi_gpu_way_look(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int r = 0;

	for (uint32_t i = gpu->active_count; i-- > 0 && !r;) {
		uint32_t unit = gpu->active[i];

		if (unit == gpu->demanded)
			continue;
		switch (zi_gpu_state_of(zinf, unit)->phase) {
		case ZI_GPU_PLACED:
			r = zi_gpu_way_ask(zinf, unit);
			break;
		case ZI_GPU_ASKED:
			r = look_asked(zinf, unit);
			break;
		case ZI_GPU_COPYING:
			r = look_copying(zinf, unit);
			break;
		case ZI_GPU_IDLE:
			assert(false);
		}
	}
	return err_trace(r);
}

/* The unit has lost its place, or loses it now: it is not copied any more. */
void zi_gpu_way_drop(struct zinf *zinf, uint32_t unit)
{
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, unit);

	if (state->phase == ZI_GPU_PLACED)
		zi_gpu_way_set(zinf, unit, ZI_GPU_IDLE);
	else if (state->phase == ZI_GPU_ASKED)
		state->is_dropped = true;
}

void zi_gpu_way_drop_all(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	for (uint32_t i = gpu->active_count; i-- > 0;) {
		uint32_t unit = gpu->active[i];

		if (zi_gpu_ring_presence(gpu->params, unit) == ZI_GPU_COMING)
			zi_gpu_ring_cancel(gpu->params, unit);
		zi_gpu_way_drop(zinf, unit);
	}
}
