/* SPDX-License-Identifier: Apache-2.0 */
/* See stretches.h. Floor 5, shard thread. */
#include "daemon/zero/job/stretches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/culprit.h"
#include "daemon/zero/step/unused.h"

/* See stretches.h. */
uint32_t stretches_group_count(const struct zero_job *job)
{
	return ZI_MAX(job->training.group_count, 1u);
}

static int check_count(const struct zero_layout *layout, uint32_t group_count, struct zi_text *text)
{
	for (uint32_t i = 0; i < layout->param_count; i++) {
		const struct catalog_param *param = &layout->params[i];

		if (param->group < group_count || param->group == ZI_LAYOUT_FROZEN)
			continue;
		return err_origin(zi_text_error(
			text, -EINVAL,
			"parameter '%.96s' is of group %u, but group_count of the job is %u",
			param->name, param->group, group_count));
	}
	return 0;
}

struct group_text {
	char chars[24];
};

static struct group_text format_group(uint32_t group)
{
	struct group_text text = { "frozen" };

	if (group != ZI_LAYOUT_FROZEN)
		(void)snprintf(text.chars, sizeof(text.chars), "of group %u", group); /* Fits. */
	return text;
}

static int compare(const struct zero_rank *rank, const struct zero_rank *model,
                   struct zi_text *text)
{
	assert(rank->layout.param_count == model->layout.param_count);
	for (uint32_t i = 0; i < rank->layout.param_count; i++) {
		const struct catalog_param *mine = &rank->layout.params[i];
		const struct catalog_param *other = &model->layout.params[i];

		if (mine->group == other->group)
			continue;
		return err_origin(zi_text_error(text, -EINVAL,
		                                "parameter '%.96s' is %s in rank %u, but %s in "
		                                "rank %u",
		                                mine->name, format_group(mine->group).chars,
		                                rank->number, format_group(other->group).chars,
		                                model->number));
	}
	return 0;
}

/* See stretches.h. */
int stretches_check(const struct zero_rank *rank, struct zi_text *text)
{
	const struct zero_group *group = &rank->job->group;
	int r = check_count(&rank->layout, ZI_MAX(group->training.group_count, 1u), text);

	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < group->world_size; i++) {
		const struct zero_rank *model = group->ranks[i];

		if (model && model != rank && model->gathered[ZERO_GATHER_MATERIALIZE])
			return err_trace(compare(rank, model, text));
	}
	return 0;
}

/* Takes one more parameter in. @stretches: NULL, they are only counted. */
static uint32_t stretch_add(struct zero_stretch *stretches, uint32_t count, uint64_t end,
                            uint32_t group, uint32_t *last_group)
{
	if (!count || *last_group != group)
		count++;
	*last_group = group;
	if (stretches)
		stretches[count - 1] = (struct zero_stretch){ .end = end, .group = group };
	return count;
}

static bool is_unused(const uint64_t *used, uint32_t param)
{
	return used && !(used[param / 64] >> (param % 64) & 1);
}

/* See stretches.h. */
uint32_t stretches_of_unit(const struct zero_job *job, uint32_t unit, uint32_t param,
                           const uint64_t *used, struct zero_stretch *stretches)
{
	const struct zero_layout *layout = &job->layout;
	uint32_t count = 0, last_group = 0;
	uint64_t end = 0;

	for (; param < layout->param_count && layout->params[param].unit == unit; param++) {
		const struct catalog_param *entry = &layout->params[param];
		uint32_t group = is_unused(used, param) ? ZI_LAYOUT_FROZEN : entry->group;
		uint64_t elements = 0;

		(void)zi_geometry_elements(entry->shape, entry->dim_count,
		                           &elements); /* Checked. */
		end += elements;
		count = stretch_add(stretches, count, end, group, &last_group);
	}
	assert(count > 0);
	assert(end == job->units[unit].element_count);
	if (stretches)
		stretches[count - 1].end = job->units[unit].padded_count;
	return count;
}

/* The first parameter behind those of @unit, of which @param is the first. */
static uint32_t next_unit(const struct zero_layout *layout, uint32_t unit, uint32_t param)
{
	while (param < layout->param_count && layout->params[param].unit == unit)
		param++;
	return param;
}

static void unit_freeze(struct zero_job *job, uint32_t index)
{
	struct zero_unit *unit = &job->units[index];

	unit->is_frozen =
		unit->stretch_count == 1 && stretch_is_frozen(&job->stretches[unit->stretch_first]);
	for (uint32_t i = 0; i < unit->subgroup_count; i++)
		job->subgroups[unit->subgroup_first + i].culprit = CULPRIT_NONE;
}

/* See stretches.h. */
void stretches_clear_norm(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->subgroup_count; i++) {
		const struct zero_subgroup *subgroup = &job->subgroups[i];
		uint32_t block_count = subgroup->element_count / ZI_BLOCK_ELEMENTS;

		if (job->units[subgroup->unit].is_frozen)
			memset(&job->norm_blocks[subgroup->block_first], 0,
			       block_count * sizeof(*job->norm_blocks));
	}
}

/* See stretches.h. */
int stretches_build(struct zero_job *job, const struct zero_layout *layout, struct zi_text *text)
{
	uint32_t count = 0, param = 0;
	struct zero_stretch *stretches;

	assert(layout->param_count == job->layout.param_count);
	for (uint32_t i = 0; i < layout->param_count; i++)
		job->layout.params[i].group = layout->params[i].group;
	for (uint32_t unit = 0; unit < job->layout.unit_count; unit++) {
		count += stretches_of_unit(job, unit, param, NULL, NULL);
		param = next_unit(&job->layout, unit, param);
	}
	stretches = calloc(count, sizeof(*stretches));
	if (!stretches)
		return err_origin(zi_text_error(text, -ENOMEM,
		                                "no memory for %u stretches of groups", count));
	free(job->stretches);
	job->stretches = stretches;
	count = param = 0;
	for (uint32_t unit = 0; unit < job->layout.unit_count; unit++) {
		job->units[unit].stretch_first = count;
		job->units[unit].stretch_count =
			stretches_of_unit(job, unit, param, NULL, stretches + count);
		param = next_unit(&job->layout, unit, param);
		count += job->units[unit].stretch_count;
		unit_freeze(job, unit);
	}
	return err_trace(unused_build(job, text));
}

/* See stretches.h. */
void stretches_unbuild(struct zero_job *job)
{
	free(job->stretches);
	job->stretches = NULL;
}

/* See stretches.h. */
const struct zero_stretch *stretches_find(const struct zero_job *job, uint32_t unit,
                                          uint64_t element)
{
	uint32_t cut_count = job->units[unit].cut_count;
	bool is_cut = cut_count > 0;
	const struct zero_stretch *stretches =
		is_cut ? unused_stretches(job, unit)
		       : &job->stretches[job->units[unit].stretch_first];
	uint32_t count = is_cut ? cut_count : job->units[unit].stretch_count;
	uint32_t low = 0, high = count - 1;

	assert(element < job->units[unit].padded_count);
	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (element < stretches[middle].end)
			high = middle;
		else
			low = middle + 1;
	}
	return &stretches[low];
}

/* See stretches.h. */
void stretches_clear(const struct zero_job *job, uint32_t unit, uint64_t element, uint64_t count,
                     void *values, uint32_t width)
{
	const struct zero_stretch *run = stretches_find(job, unit, element);

	for (uint64_t done = 0; done < count; run++) {
		uint64_t end = ZI_MIN(run->end - element, count);

		if (stretch_is_frozen(run))
			memset((char *)values + done * width, 0, (end - done) * width);
		done = end;
	}
}
