/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of a host and of a GPU over the model of the chunk ring. */
#include "tests/harness/ring_model.h"

typedef bool (*unit_test_fn)(const struct ring_model_unit *unit);

static bool is_any(const struct ring_model_unit *unit)
{
	return unit->count > 0;
}

static bool is_coming(const struct ring_model_unit *unit)
{
	return unit->presence == ZI_GPU_COMING;
}

static bool is_usable(const struct ring_model_unit *unit)
{
	return unit->presence == ZI_GPU_PRESENT && unit->use_count;
}

static bool is_idle(const struct ring_model_unit *unit)
{
	return !unit->use_count;
}

static bool is_held(const struct ring_model_unit *unit)
{
	return unit->presence != ZI_GPU_ABSENT;
}

static bool is_written(const struct ring_model_unit *unit)
{
	return is_coming(unit) && unit->is_written;
}

static bool is_clean(const struct ring_model_unit *unit)
{
	return is_coming(unit) && !unit->is_written;
}

/* From a drawn unit on the first one that is @wanted; ZI_GPU_RING_NONE: there is none. */
static uint32_t draw_unit(const struct ring_model *model, ring_draw_fn draw, void *source,
                          unit_test_fn wanted)
{
	uint32_t first = draw(source, model->unit_count);

	for (uint32_t i = 0; i < model->unit_count; i++) {
		uint32_t unit = (first + i) % model->unit_count;

		if (wanted(&model->units[unit]))
			return unit;
	}
	return ZI_GPU_RING_NONE;
}

static void run_some(struct ring_model *model, ring_draw_fn draw, void *source)
{
	uint32_t count = 1 + draw(source, 4);

	for (uint32_t i = 0; i < count; i++)
		(void)ring_model_run(model, (enum ring_stream)draw(source, _RING_STREAM_COUNT));
}

/* What comes next in the order, or any unit. */
static uint32_t draw_next(const struct ring_model *model, ring_draw_fn draw, void *source)
{
	uint32_t unit = zi_order_ahead(&model->order, model->place, 0);

	if (unit != ZI_ORDER_NONE && draw(source, 4))
		return unit;
	return draw_unit(model, draw, source, is_any);
}

/* A step ends or is discarded, or nothing happens. */
static void end_order(struct ring_model *model, ring_draw_fn draw, void *source)
{
	uint32_t kind = draw(source, 8);

	if (kind < 2)
		ring_model_step(model);
	else if (kind < 4)
		ring_model_discard(model);
}

void ring_model_act_param(struct ring_model *model, ring_draw_fn draw, void *source)
{
	static const unit_test_fn wanted[] = {
		[4] = is_usable,  [5] = is_usable, [6] = is_usable,
		[7] = is_usable,  [8] = is_coming, [9] = is_coming,
		[10] = is_coming, [11] = is_held,  [12] = is_idle,
	};
	uint32_t action = draw(source, 20), unit = ZI_GPU_RING_NONE;

	if (action < sizeof(wanted) / sizeof(wanted[0]) && wanted[action])
		unit = draw_unit(model, draw, source, wanted[action]);
	if (action < 4)
		(void)ring_model_unshard(model, draw_next(model, draw, source));
	else if (action == 13 || action == 14)
		(void)ring_model_prefetch(model, &unit);
	else if (action == 15)
		end_order(model, draw, source);
	else if (action > 15)
		run_some(model, draw, source);
	else if (unit == ZI_GPU_RING_NONE)
		return;
	else if (action == 4)
		ring_model_reshard_unused(model, unit);
	else if (action < 8)
		ring_model_reshard(model, unit);
	else if (action == 8 && draw(source, 4) == 0)
		ring_model_cancel(model, unit);
	else if (action == 9 && draw(source, 8) == 0)
		ring_model_lose(model, unit);
	else if (action < 11)
		ring_model_copy(model, unit);
	else if (action == 11)
		ring_model_pin(model, unit, !model->units[unit].is_pinned && !draw(source, 4));
	else
		ring_model_renew(model, unit);
}

void ring_model_act_grad(struct ring_model *model, ring_draw_fn draw, void *source)
{
	uint32_t action = draw(source, 12), unit;

	if (action < 3) {
		(void)ring_model_acquire(model, draw_unit(model, draw, source, is_any));
	} else if (action < 6) {
		unit = draw_unit(model, draw, source, is_coming);
		if (unit != ZI_GPU_RING_NONE)
			ring_model_write(model, unit);
	} else if (action < 8) {
		unit = draw_unit(model, draw, source, is_written);
		if (unit != ZI_GPU_RING_NONE)
			ring_model_hand(model, unit);
	} else if (action == 8 && draw(source, 4) == 0) {
		unit = draw_unit(model, draw, source, is_clean);
		if (unit != ZI_GPU_RING_NONE)
			ring_model_cancel(model, unit);
	} else {
		run_some(model, draw, source);
	}
}
