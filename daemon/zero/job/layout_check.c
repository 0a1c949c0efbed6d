/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's layout as ranks stream it: whole by itself, and compared with each other's and with
 * the stored job's. Floor 5, shard thread.
 */
#include "daemon/zero/job/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "daemon/zero/job/job.h"

static int name_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int units_check_unique(const struct zero_layout *layout, struct zi_text *text)
{
	_cleanup_(zi_freep) const char **names = NULL;

	names = calloc(layout->unit_count, sizeof(*names));
	if (!names)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < layout->unit_count; i++)
		names[i] = layout->units[i].name;
	qsort(names, layout->unit_count, sizeof(*names), name_compare);
	for (uint32_t i = 1; i < layout->unit_count; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			return err_origin(zi_text_error(text, -EINVAL, "two units are called '%s'",
			                                names[i]));
	return 0;
}

static int param_name_compare(const void *a, const void *b)
{
	const struct catalog_param *const *left = a, *const *right = b;

	return strcmp((*left)->name, (*right)->name);
}

/* See layout.h. */
int layout_check_params(const struct zero_layout *layout, struct zi_text *text)
{
	_cleanup_(zi_freep) const struct catalog_param **params = NULL;

	params = calloc(layout->param_count, sizeof(*params));
	if (!params)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for tables"));
	for (uint32_t i = 0; i < layout->param_count; i++)
		params[i] = &layout->params[i];
	qsort(params, layout->param_count, sizeof(*params), param_name_compare);
	for (uint32_t i = 1; i < layout->param_count; i++) {
		/* In the model's order: those of one name come in any. */
		const struct catalog_param *first = ZI_MIN(params[i - 1], params[i]);
		const struct catalog_param *second = ZI_MAX(params[i - 1], params[i]);

		if (strcmp(first->name, second->name) == 0)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"parameter '%.60s' is in the model twice, as number %u in unit "
				"'%.60s' and as number %u in unit '%.60s': register it once (a "
				"tied weight in one unit, which both uses unshard)",
				first->name, (uint32_t)(first - layout->params),
				layout->units[first->unit].name,
				(uint32_t)(second - layout->params),
				layout->units[second->unit].name));
	}
	return 0;
}

/* Whole by itself: units are unique and not empty, sums fit. */
int layout_check(const struct zero_layout *layout, struct zi_text *text)
{
	uint64_t total = 0;
	uint32_t param = 0;

	if (!layout->unit_count)
		return err_origin(zi_text_error(text, -EINVAL, "the model has no units"));
	for (uint32_t unit = 0; unit < layout->unit_count; unit++) {
		uint32_t first = param;

		for (; param < layout->param_count && layout->params[param].unit == unit; param++) {
			const struct catalog_param *entry = &layout->params[param];
			uint64_t count;

			if (zi_geometry_elements(entry->shape, entry->dim_count, &count) ||
			    !zi_checked_add(total, count, &total) || total >> 48)
				return err_origin(zi_text_error(
					text, -EINVAL,
					"parameter '%s' of unit '%s': the model passes 2^48 "
					"elements",
					entry->name, layout->units[unit].name));
		}
		if (param == first)
			return err_origin(zi_text_error(text, -EINVAL,
			                                "unit '%s' has no parameters",
			                                layout->units[unit].name));
	}
	return err_trace(units_check_unique(layout, text));
}

struct shape_text {
	char chars[80];
};

static struct shape_text format_shape(const struct catalog_param *param)
{
	struct shape_text text = { "(" };
	size_t used = 1;

	for (uint32_t i = 0; i < param->dim_count && used < sizeof(text.chars); i++)
		used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used, "%s%llu",
		                         i ? "," : "", (unsigned long long)param->shape[i]);
	if (used < sizeof(text.chars))
		(void)snprintf(text.chars + used, sizeof(text.chars) - used, ")");
	return text;
}

static int param_compare(const struct zero_layout *layout, const struct catalog_param *param,
                         const char *who, const struct catalog_param *model, const char *model_who,
                         struct zi_text *text)
{
	const char *unit = layout->units[param->unit].name;

	if (param->unit != model->unit || strcmp(param->name, model->name) != 0)
		return zi_text_error(
			text, -EINVAL,
			"%s: unit '%.60s' has a parameter '%.60s' where %s has '%.60s'", who, unit,
			param->name, model_who, model->name);
	if (param->dim_count == model->dim_count &&
	    memcmp(param->shape, model->shape, sizeof(param->shape)) == 0)
		return 0;
	return zi_text_error(text, -EINVAL,
	                     "%s: parameter '%.60s' of unit '%.60s' has shape %.40s, %s has %.40s",
	                     who, param->name, unit, format_shape(param).chars, model_who,
	                     format_shape(model).chars);
}

/* @who, @model_who: for the sentence. Return: 0; -EINVAL and the first difference. */
int layout_compare(const struct zero_layout *layout, const char *who,
                   const struct zero_layout *model, const char *model_who, struct zi_text *text)
{
	uint32_t unit_count = ZI_MIN(layout->unit_count, model->unit_count);
	uint32_t param_count = ZI_MIN(layout->param_count, model->param_count);
	int r;

	for (uint32_t i = 0; i < unit_count; i++)
		if (strcmp(layout->units[i].name, model->units[i].name) != 0)
			return err_origin(zi_text_error(
				text, -EINVAL, "%s: unit %u is '%.60s', %s has '%.60s'", who, i,
				layout->units[i].name, model_who, model->units[i].name));
	for (uint32_t i = 0; i < param_count; i++) {
		r = param_compare(layout, &layout->params[i], who, &model->params[i], model_who,
		                  text);
		if (r)
			return err_origin(r);
	}
	if (layout->unit_count == model->unit_count && layout->param_count == model->param_count)
		return 0;
	return err_origin(zi_text_error(text, -EINVAL,
	                                "%s: %u units with %u parameters, %s has %u with %u", who,
	                                layout->unit_count, layout->param_count, model_who,
	                                model->unit_count, model->param_count));
}

/* ---- who trains what ---- */

static int set_compare(const struct catalog_set *set, const char *who,
                       const struct catalog_set *model, const char *model_who, struct zi_text *text)
{
	if (strcmp(set->name, model->name) != 0)
		return zi_text_error(text, -EINVAL,
		                     "%s: data-parallel group '%.60s' where %s has '%.60s'", who,
		                     set->name, model_who, model->name);
	if (set->members == model->members)
		return 0;
	return zi_text_error(text, -EINVAL,
	                     "%s: data-parallel group '%.40s' has ranks %s, %s has %s", who,
	                     set->name, set_format(set->members).chars, model_who,
	                     set_format(model->members).chars);
}

int layout_compare_sets(const struct zero_layout *layout, const char *who,
                        const struct zero_layout *model, const char *model_who,
                        struct zi_text *text)
{
	uint32_t set_count = ZI_MIN(layout->set_count, model->set_count);
	int r;

	for (uint32_t i = 0; i < set_count; i++) {
		r = set_compare(&layout->sets[i], who, &model->sets[i], model_who, text);
		if (r)
			return err_origin(r);
	}
	if (layout->set_count != model->set_count)
		return err_origin(zi_text_error(text, -EINVAL,
		                                "%s: %u data-parallel groups, %s has %u", who,
		                                layout->set_count, model_who, model->set_count));
	assert(layout->unit_count == model->unit_count);
	for (uint32_t i = 0; i < layout->unit_count && set_count; i++)
		if (layout->units[i].member_set != model->units[i].member_set)
			return err_origin(zi_text_error(
				text, -EINVAL,
				"%s: unit '%.60s' is in data-parallel group '%.40s', %s has "
				"'%.40s'",
				who, layout->units[i].name, layout_set_at(layout, i)->name,
				model_who, layout_set_at(model, i)->name));
	return 0;
}

int layout_take_sets(struct zero_layout *layout, const struct zero_layout *source)
{
	struct catalog_set *sets = calloc(ZI_MAX(source->set_count, 1u), sizeof(*sets));

	assert(layout->unit_count == source->unit_count);
	if (!sets)
		return err_origin(-ENOMEM);
	if (source->set_count)
		memcpy(sets, source->sets, source->set_count * sizeof(*sets));
	free(layout->sets);
	layout->sets = sets;
	layout->set_count = source->set_count;
	for (uint32_t i = 0; i < layout->unit_count; i++)
		layout->units[i].member_set = source->units[i].member_set;
	return 0;
}
