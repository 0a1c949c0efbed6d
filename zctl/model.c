/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a model out of JSON, and believes nothing of it. */
#include "zctl/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/wire/geometry.h"
#include "zctl/get.h"
#include "zctl/zctl.h"

static int refuse(const char **ret_what, const char *what)
{
	*ret_what = what;
	return 1;
}

static int read_types(struct model *model, const char **ret_what)
{
	const char *dtype = get_word(model->record, "param_dtype");
	const char *grad = get_word(model->record, "grad_dtype");
	const char *optimizer = get_word(model->record, "optimizer");
	const char *schedule = get_word(model->record, "grad_reduction");

	for (int i = 1; i < _ZI_DTYPE_FLOAT_COUNT; i++) {
		if (!strcmp(zi_dtype_name((enum zi_dtype)i), dtype))
			model->dtype = (enum zi_dtype)i;
		if (!strcmp(zi_dtype_name((enum zi_dtype)i), grad))
			model->grad_dtype = (enum zi_dtype)i;
	}
	for (int i = 1; i < _ZI_OPTIMIZER_COUNT; i++)
		if (!strcmp(zi_optimizer_name((enum zi_optimizer)i), optimizer))
			model->optimizer = (enum zi_optimizer)i;
	for (int i = 1; i < _ZI_SCHEDULE_COUNT; i++)
		if (!strcmp(zi_schedule_name((enum zi_schedule)i), schedule))
			model->schedule = (enum zi_schedule)i;
	if (!zi_dtype_is_trained(model->dtype, model->grad_dtype) || !model->optimizer ||
	    !model->schedule)
		return refuse(ret_what, "param_dtype, grad_dtype, optimizer or grad_reduction");
	model->state_width = zi_state_element_bytes(model->optimizer, model->dtype);
	return 0;
}

static int read_param(struct model *model, const json_t *json, struct model_param *param,
                      const char **ret_what)
{
	const json_t *unit = json_object_get(json, "unit"), *shape = json_object_get(json, "shape");

	param->name = json_string_value(json_object_get(json, "name"));
	param->dim_count = (uint32_t)json_array_size(shape);
	if (!param->name || strlen(param->name) >= ZI_PARAM_NAME_BYTES || !json_is_array(shape) ||
	    json_array_size(shape) > ZI_PARAM_DIMS_MAX)
		return refuse(ret_what, "a parameter's name or shape");
	if (!json_is_integer(unit) || json_integer_value(unit) < 0 ||
	    json_integer_value(unit) >= model->unit_count)
		return refuse(ret_what, "a parameter of no unit");
	param->unit = (uint32_t)json_integer_value(unit);
	for (uint32_t i = 0; i < param->dim_count; i++) {
		json_int_t rows = json_integer_value(json_array_get(shape, i));

		param->shape[i] = rows < 0 ? 0 : (uint64_t)rows;
	}
	if (zi_geometry_elements(param->shape, param->dim_count, &param->element_count))
		return refuse(ret_what, "a parameter's shape");
	param->element_first = model->element_count;
	if (!zi_checked_add(model->element_count, param->element_count, &model->element_count) ||
	    model->element_count >> 48)
		return refuse(ret_what, "more than 2^48 elements");
	return 0;
}

static int read_params(struct model *model, const char **ret_what)
{
	const json_t *params = json_object_get(model->record, "params");
	uint32_t former = 0;

	model->param_count = (uint32_t)json_array_size(params);
	model->params = calloc(model->param_count + 1ul, sizeof *model->params);
	if (!model->params)
		return refuse(ret_what, "no memory");
	for (uint32_t i = 0; i < model->param_count; i++) {
		struct model_param *param = &model->params[i];
		struct model_unit *unit;

		if (read_param(model, json_array_get(params, i), param, ret_what))
			return 1;
		if (param->unit < former)
			return refuse(ret_what, "parameters that do not come unit by unit");
		former = param->unit;
		unit = &model->units[param->unit];
		if (!unit->param_count++) {
			unit->param_first = i;
			unit->element_first = param->element_first;
		}
		unit->element_count += param->element_count;
	}
	return 0;
}

static int read_units(struct model *model, const char **ret_what)
{
	const json_t *units = json_object_get(model->record, "units");

	model->unit_count = (uint32_t)json_array_size(units);
	model->units = calloc(model->unit_count + 1ul, sizeof *model->units);
	if (!model->units)
		return refuse(ret_what, "no memory");
	if (read_params(model, ret_what))
		return 1;
	for (uint32_t i = 0; i < model->unit_count; i++) {
		struct model_unit *unit = &model->units[i];

		unit->name = json_string_value(json_array_get(units, i));
		if (!unit->name || strlen(unit->name) >= ZI_PARAM_NAME_BYTES ||
		    !unit->element_count)
			return refuse(ret_what, "a unit without a name or parameters");
		unit->padded_count = zi_geometry_padded(unit->element_count);
		unit->subgroup_first = model->subgroup_count;
		unit->subgroup_count = zi_geometry_subgroup_count(unit->padded_count);
		model->subgroup_count += unit->subgroup_count;
	}
	return 0;
}

int model_parse(struct model *model, json_t *record, const char **ret_what)
{
	*model = (struct model){ .record = record, .job = get_word(record, "job") };
	if (read_types(model, ret_what))
		return 1;
	return read_units(model, ret_what);
}

int model_read(struct model *model, json_t *record, const char *source)
{
	const char *what = "";

	if (!model_parse(model, record, &what))
		return 0;
	zctl_complain("%s is invalid: %s", source, what);
	return 1;
}

void model_free(struct model *model)
{
	free(model->units);
	free(model->params);
	free(model->names);
	json_decref(model->record);
	*model = (struct model){ 0 };
}

const char *model_dtype_word(enum zi_dtype dtype)
{
	static const char *const words[_ZI_DTYPE_FLOAT_COUNT] = {
		[ZI_DTYPE_F32] = "F32", [ZI_DTYPE_F16] = "F16", [ZI_DTYPE_BF16] = "BF16"
	};

	assert(dtype > 0);
	assert(dtype < _ZI_DTYPE_FLOAT_COUNT);
	return words[dtype];
}

uint64_t model_subgroup_elements(const struct model *model, uint32_t unit, uint32_t subgroup,
                                 uint64_t *ret_first)
{
	const struct model_unit *entry = &model->units[unit];
	uint64_t first = (uint64_t)subgroup * ZI_SUBGROUP_ELEMENTS;
	uint64_t padded = zi_geometry_subgroup_elements(entry->padded_count, subgroup);

	*ret_first = entry->element_first + first;
	return first >= entry->element_count ? 0 : ZI_MIN(padded, entry->element_count - first);
}
