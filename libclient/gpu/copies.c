/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters in GPU memory: which units go there (demands, prefetch), and which are void. Floor 2.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/gpu/ring.h"
#include "libclient/gpu/rank.h"
#include "libclient/gpu/way.h"

/* Units that are prefetched at one time. More would only be displaced. */
#define AHEAD_MAX 4u

/* ---- life ---- */

int zi_gpu_copies_init(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int r = zi_order_init(&gpu->order, gpu->unit_count);

	if (!r && zi_training_is_forward_only(&zinf->training))
		r = zi_order_cycle(&gpu->order);
	gpu->active = calloc(gpu->unit_count, sizeof(*gpu->active));
	if (r || !gpu->active)
		return zi_client_error(zinf, -ENOMEM, "no memory for the order of %u units",
		                       gpu->unit_count);
	for (uint32_t i = 0; i < gpu->unit_count && !r; i++)
		r = zi_client_gpu_make_events(zinf, &gpu->units[i].copied, &gpu->units[i].used);
	return err_trace(r);
}

void zi_gpu_copies_deinit(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	for (uint32_t i = 0; i < gpu->unit_count; i++)
		zi_client_gpu_free_events(zinf, &gpu->units[i].copied, &gpu->units[i].used);
	free(gpu->active);
	gpu->active = NULL;
	gpu->active_count = 0;
	zi_order_deinit(&gpu->order);
}

/* ---- a demand ---- */

static void drop_displaced(struct zinf *zinf)
{
	const uint32_t *units;
	uint32_t count = zi_gpu_ring_displaced(zinf->gpu->params, &units);

	for (uint32_t i = 0; i < count; i++)
		zi_gpu_way_drop(zinf, units[i]);
}

/* In a pool: the unit may be asked for. */
struct turn {
	struct zinf *zinf;
	uint32_t unit;
	int *error; /* of a query */
};

static bool is_turn(const struct zinf *zinf, const void *arg)
{
	const struct turn *turn = arg;
	bool is_free = false;

	if (zi_gpu_way_held(zinf, turn->unit) >= ZI_GPU_POOL_HELD_MAX)
		return false;
	*turn->error = zi_gpu_way_look_at_place(turn->zinf, turn->unit, &is_free);
	return is_free || *turn->error;
}

static int await_turn(struct zinf *zinf, uint32_t unit)
{
	int error = 0;
	const struct turn turn = { zinf, unit, &error };
	int r = 0;

	if (!is_turn(zinf, &turn))
		r = zi_client_gpu_await(zinf, is_turn, &turn, "the former use of its GPU memory");
	return r ? err_trace(r) : err_trace(error);
}

/* The daemon's answer, waited for. The unit was asked for before, or is now. */
static int ask(struct zinf *zinf, uint32_t index)
{
	uint64_t offset_bytes = 0;
	int r = 0;

	if (!zinf->units[index].unshard_ticket && zi_client_is_pooled(zinf))
		r = await_turn(zinf, index);
	if (!r)
		r = zi_client_finish(zinf, ZI_OP_UNSHARD, index, &zinf->units[index].unshard_ticket,
		                     &offset_bytes);
	return r ? err_trace(r) : err_trace(zi_gpu_way_take_place(zinf, index, offset_bytes));
}

static bool is_given_back(const struct zinf *zinf, const void *arg)
{
	const uint32_t *unit = arg;

	return zi_gpu_state_of(zinf, *unit)->phase == ZI_GPU_IDLE;
}

/* From any phase to COPYING. The place is the unit's. */
static int bring(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	uint64_t start_ns = zi_clock_now_ns();
	int r = 0;

	/* Pool memory is not held until the place is free: see rank.h. */
	if (state->phase == ZI_GPU_COPYING && zi_client_is_pooled(zinf))
		r = zi_client_gpu_await(zinf, is_given_back, &index, "an earlier copy of the unit");
	if (r) {
		zi_gpu_ring_cancel(gpu->params, index);
		return err_trace(r);
	}
	state->is_dropped = false;
	gpu->demanded = index;
	/* COPYING: the daemon still holds the unit for an earlier copy, whose place is lost. */
	if (state->phase != ZI_GPU_COPYING) {
		r = ask(zinf, index);
		gpu->stats.unshard_wait_s += (double)(zi_clock_now_ns() - start_ns) * 1e-9;
	}
	gpu->demanded = ZI_GPU_NO_UNIT;
	if (!r)
		return err_trace(zi_gpu_way_copy(zinf, index));
	/* It did not come. What is under way at a deadline is for the next call, or goes back. */
	zi_gpu_ring_cancel(gpu->params, index);
	state->is_dropped = true;
	zi_gpu_way_set(zinf, index, zinf->units[index].unshard_ticket ? ZI_GPU_ASKED : ZI_GPU_IDLE);
	return err_trace(r);
}

static int refuse_busy(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	uint32_t blocker = zi_gpu_ring_blocker(gpu->params, index);

	return zi_client_error(
		zinf, -EBUSY,
		"unit '%.50s' shares GPU memory with unit '%.50s', which is "
		"unsharded: zinf_reshard() that first, or raise neighbour_count (%u) "
		"or param_budget_bytes (%s) of zinf_gpu_open()",
		zinf->units[index].name, zinf->units[blocker].name, gpu->neighbour_count,
		zi_format_bytes(gpu->budget.param_count * gpu->budget.chunk_bytes).chars);
}

/* What comes next is asked for, as far as its place may be taken. */
static int prefetch(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	uint32_t unit;
	int r = 0;

	while (!r && gpu->active_count < AHEAD_MAX && zinf->free_count > ZI_GPU_SPARE_OPS &&
	       zi_gpu_ring_prefetch(gpu->params, &gpu->order, gpu->place, &unit)) {
		struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, unit);

		/* The daemon still has it for an earlier copy, or an earlier question: go on with
		 * that. */
		if (state->phase == ZI_GPU_ASKED) {
			state->is_dropped = false;
			continue;
		}
		if (state->phase == ZI_GPU_COPYING && zi_client_is_pooled(zinf)) {
			/* The copy would hold pool memory until the trainer's stream came. */
			zi_gpu_ring_cancel(gpu->params, unit);
			break;
		}
		if (state->phase == ZI_GPU_COPYING) {
			r = zi_gpu_way_copy(zinf, unit);
			if (!r)
				gpu->stats.prefetch_count++;
			continue;
		}
		zi_gpu_way_set(zinf, unit, ZI_GPU_PLACED);
		/* From NVMe it may come while its place is not free yet. */
		if (zi_client_is_pooled(zinf))
			r = zi_client_submit(zinf, ZI_OP_PREFETCH, unit, 0, true, NULL);
		if (!r)
			r = zi_gpu_way_ask(zinf, unit);
	}
	return err_trace(r);
}

static int unshard(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	uint64_t event = 0;
	int r = zi_gpu_ring_unshard(gpu->params, index, &event);

	if (r == ZI_GPU_RING_E_BUSY)
		return err_trace(refuse_busy(zinf, index));
	if (r == ZI_GPU_RING_E_FRESH)
		drop_displaced(zinf);
	if (r) {
		r = bring(zinf, index);
		event = zi_gpu_event_number(zi_gpu_state_of(zinf, index)->copied);
	} else {
		gpu->stats.hit_count++;
	}
	if (r)
		return err_trace(r);
	r = zi_client_gpu_wait(zinf, gpu->stream, &event, 1);
	if (r) {
		zi_gpu_ring_reshard(gpu->params, index, 0); /* Nothing uses it. */
		return err_trace(r);
	}
	zi_order_use(&gpu->order, index, true, &gpu->place);
	return 0;
}

/* A hint: where it fails, the driver or the session tells the next call. */
static void prefetch_next(struct zinf *zinf)
{
	if (zi_client_gpu_enter(zinf))
		return;
	(void)prefetch(zinf);
	(void)zi_client_gpu_leave(zinf);
}

int zi_client_gpu_unshard(struct zinf *zinf, uint32_t index)
{
	int r = zi_client_gpu_enter(zinf), after;

	if (r)
		return err_trace(r);
	r = unshard(zinf, index);
	after = zi_client_gpu_leave(zinf);
	if (!r && after)
		zi_gpu_ring_reshard(zinf->gpu->params, index, 0); /* Nothing uses it. */
	if (r || after)
		return r ? err_trace(r) : err_trace(after);
	prefetch_next(zinf);
	return 0;
}

int zi_client_gpu_reshard(struct zinf *zinf, uint32_t index)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_gpu_unit_state *state = zi_gpu_state_of(zinf, index);
	int r = zi_client_gpu_enter(zinf), code, after;

	if (r)
		return err_trace(r);
	code = zi_client_cuda(zinf)->cuEventRecord(state->used, gpu->stream);
	r = zi_client_gpu_fail(zinf, code, "recording the end of a use");
	after = zi_client_gpu_leave(zinf);
	if (r || after)
		return r ? err_trace(r) : err_trace(after);
	zi_gpu_ring_reshard(gpu->params, index, zi_gpu_event_number(state->used));
	prefetch_next(zinf);
	return 0;
}

/* ---- values ---- */

bool zi_client_gpu_has(const struct zinf *zinf, uint32_t unit)
{
	return zi_gpu_ring_presence(zinf->gpu->params, unit) != ZI_GPU_ABSENT;
}

/* A copy that is under way goes on to its end; what waits for it does. */
void zi_client_gpu_void(struct zinf *zinf, uint32_t unit)
{
	zi_gpu_way_drop(zinf, unit);
	zi_gpu_ring_void(zinf->gpu->params, unit);
}

void zi_client_gpu_step(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	for (uint32_t i = 0; i < gpu->unit_count; i++)
		if (!zinf->units[i].is_frozen)
			zi_client_gpu_void(zinf, i);
	zi_order_step(&gpu->order, true, &gpu->place);
}

void zi_client_gpu_discard(struct zinf *zinf)
{
	zi_order_discard(&zinf->gpu->order, true, &zinf->gpu->place);
}
