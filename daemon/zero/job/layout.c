/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from the model's layout, as ranks stream it (layout_check.c): units, subgroups,
 * offsets (docs/ARITHMETIC.md, "Layout"). Floor 5, shard thread.
 */
#include "daemon/zero/job/layout.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/step/queue.h"
#include "daemon/zero/step/unused.h"

/* Frees the arrays and empties @layout. */
void layout_free(struct zero_layout *layout)
{
	free(layout->sets);
	free(layout->units);
	free(layout->params);
	*layout = (struct zero_layout){ 0 };
}

/* See layout.h. Parameters come unit by unit. */
uint64_t layout_padded_from(const struct zero_layout *layout, uint32_t *param)
{
	uint32_t unit = layout->params[*param].unit;
	uint64_t unit_count = 0;

	for (; *param < layout->param_count && layout->params[*param].unit == unit; (*param)++) {
		const struct catalog_param *entry = &layout->params[*param];
		uint64_t count = 0;

		(void)zi_geometry_elements(entry->shape, entry->dim_count, &count); /* Checked. */
		unit_count += count;
	}
	return zi_geometry_padded(unit_count);
}

/* The unit of which @param is the first parameter has no gradient. */
static bool is_frozen_from(const struct zero_layout *layout, uint32_t param)
{
	uint32_t unit = layout->params[param].unit;

	for (; param < layout->param_count && layout->params[param].unit == unit; param++)
		if (layout->params[param].group != ZI_LAYOUT_FROZEN)
			return false;
	return true;
}

uint64_t layout_padded_count(const struct zero_layout *layout)
{
	uint64_t padded_count = 0;

	for (uint32_t param = 0; param < layout->param_count;)
		padded_count += layout_padded_from(layout, &param);
	return padded_count;
}

/* See layout.h. */
uint64_t layout_subgroup_count(const struct zero_layout *layout)
{
	uint64_t count = 0;

	for (uint32_t param = 0; param < layout->param_count;)
		count += zi_geometry_subgroup_count(layout_padded_from(layout, &param));
	return count;
}

uint64_t layout_grad_count(const struct zero_layout *layout, uint64_t ranks)
{
	uint64_t padded_count = 0;

	for (uint32_t param = 0; param < layout->param_count;) {
		const struct catalog_set *set = layout_set_at(layout, layout->params[param].unit);
		uint64_t members = set ? set->members & ranks : ranks;
		bool is_frozen = is_frozen_from(layout, param);
		uint64_t unit_count = layout_padded_from(layout, &param);

		if (!is_frozen)
			padded_count += (uint64_t)__builtin_popcountll(members) * unit_count;
	}
	return padded_count;
}

uint64_t layout_trained_count(const struct zero_layout *layout, uint64_t ranks)
{
	uint64_t padded_count = 0;

	for (uint32_t param = 0; param < layout->param_count;) {
		const struct catalog_set *set = layout_set_at(layout, layout->params[param].unit);
		uint64_t unit_count = layout_padded_from(layout, &param);

		if (!set || set->members & ranks)
			padded_count += unit_count;
	}
	return padded_count;
}

/* See layout.h. */
uint64_t layout_sum_count(const struct zero_layout *layout)
{
	uint64_t padded_count = 0;

	for (uint32_t param = 0; param < layout->param_count;) {
		bool is_frozen = is_frozen_from(layout, param);
		uint64_t unit_count = layout_padded_from(layout, &param);

		padded_count += is_frozen ? 0 : unit_count;
	}
	return padded_count;
}

/* Huge slots where they cost at most an eighth more than small ones. */
static uint64_t choose_slot_bytes(const struct zero_job *job)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	uint64_t huge_bytes = 0;
	uint64_t small_bytes = 0;

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		uint64_t padded = job->units[i].padded_count;

		huge_bytes += zi_geometry_unit_bytes(padded, width, ZI_HUGE_PAGE_BYTES);
		small_bytes += zi_geometry_unit_bytes(padded, width, ZI_STORE_ALIGN_BYTES);
	}
	if (job->cpu_tier->wants_huge && huge_bytes <= small_bytes + small_bytes / 8)
		return ZI_HUGE_PAGE_BYTES;
	return ZI_STORE_ALIGN_BYTES;
}

static void units_count(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.param_count; i++) {
		const struct catalog_param *param = &job->layout.params[i];
		uint64_t count = 0;

		(void)zi_geometry_elements(param->shape, param->dim_count, &count); /* Checked. */
		job->units[param->unit].element_count += count;
	}
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		struct zero_unit *unit = &job->units[i];

		unit->padded_count = zi_geometry_padded(unit->element_count);
		unit->subgroup_first = job->subgroup_count;
		unit->subgroup_count = zi_geometry_subgroup_count(unit->padded_count);
		job->subgroup_count += unit->subgroup_count;
		job->element_count += unit->element_count;
		job->padded_count += unit->padded_count;
	}
	job->block_count = job->padded_count / ZI_BLOCK_ELEMENTS;
}

static void units_place(struct zero_job *job)
{
	uint32_t param_width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);

	job->slot_bytes = choose_slot_bytes(job);
	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		struct zero_unit *unit = &job->units[i];

		unit->param_offset = job->param_bytes;
		job->param_bytes +=
			zi_geometry_unit_bytes(unit->padded_count, param_width, job->slot_bytes);
	}
}

static void subgroups_place(struct zero_job *job)
{
	uint32_t param_width = zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
	uint32_t grad_width = zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
	uint64_t global = 0;

	for (uint32_t i = 0; i < job->layout.unit_count; i++) {
		const struct zero_unit *unit = &job->units[i];
		uint64_t local = 0;

		for (uint32_t index = 0; index < unit->subgroup_count; index++) {
			struct zero_subgroup *subgroup =
				&job->subgroups[unit->subgroup_first + index];

			*subgroup = (struct zero_subgroup){
				.job = job,
				.unit = i,
				.index = index,
				.element_count = (uint32_t)zi_geometry_subgroup_elements(
					unit->padded_count, index),
				.tile_first = job->tile_count,
				.param_offset = unit->param_offset + local * param_width,
				.grad_begin = local * grad_width,
				.block_first = (global + local) / ZI_BLOCK_ELEMENTS,
			};
			subgroup->tile_count = zi_geometry_tile_count(subgroup->element_count);
			job->tile_count += subgroup->tile_count;
			local += subgroup->element_count;
		}
		assert(local == unit->padded_count);
		global += local;
	}
}

/*
 * Units, subgroups, and every array whose length follows from the layout, so that a step allocates
 * nothing. job->layout and job->config are set. Return: 0; -ENOMEM.
 */
int layout_build(struct zero_job *job, struct zi_text *text)
{
	uint64_t subgroups = 0;

	assert(!job->units);
	job->units = calloc(job->layout.unit_count, sizeof(*job->units));
	if (!job->units)
		goto nomem;
	units_count(job);
	units_place(job);
	subgroups = job->subgroup_count;
	job->subgroups = calloc(subgroups, sizeof(*job->subgroups));
	job->norm_blocks = calloc(job->block_count, sizeof(*job->norm_blocks));
	job->record_extents = calloc(subgroups * 2, sizeof(*job->record_extents));
	if (!job->subgroups || !job->norm_blocks || !job->record_extents)
		goto nomem;
	subgroups_place(job);
	if (queue_build(job))
		goto nomem;
	for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
		for (uint32_t i = 0; i < ZERO_HASHES; i++) {
			job->hashes[plane][i] = calloc(job->tile_count, sizeof(uint64_t));
			if (!job->hashes[plane][i])
				goto nomem;
		}
	return 0;
nomem:
	layout_unbuild(job);
	return err_origin(zi_text_error(text, -ENOMEM, "no memory for the job's tables"));
}

/* The layout goes as well. */
void layout_unbuild(struct zero_job *job)
{
	free(job->units);
	free(job->sets);
	free(job->subgroups);
	free(job->norm_blocks);
	free(job->record_extents);
	queue_unbuild(job);
	stretches_unbuild(job);
	unused_unbuild(job);
	job->units = NULL;
	job->sets = NULL;
	job->set_count = 0;
	job->subgroups = NULL;
	job->norm_blocks = NULL;
	job->record_extents = NULL;
	for (uint32_t plane = 0; plane < _ZERO_PLANE_COUNT; plane++)
		for (uint32_t i = 0; i < ZERO_HASHES; i++) {
			free(job->hashes[plane][i]);
			job->hashes[plane][i] = NULL;
		}
	job->subgroup_count = 0;
	job->tile_count = 0;
	job->element_count = 0;
	job->padded_count = 0;
	job->here_count = 0;
	job->here_elements = 0;
	job->kept_count = 0;
	job->kept_elements = 0;
	job->block_count = 0;
	job->param_bytes = 0;
	layout_free(&job->layout);
	tier_charge_return(&job->layout_charge);
}
