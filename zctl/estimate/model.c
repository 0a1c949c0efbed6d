/* SPDX-License-Identifier: Apache-2.0 */
/* Units of a model, one after the other (model.h). */
#include "zctl/estimate/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "common/wire/geometry.h"

void estimate_model_free(struct estimate_model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++)
		free(model->units[i].name);
	free(model->units);
	free(model->unit_padded);
	json_decref(model->indices);
	*model = (struct estimate_model){ 0 };
}

static int no_memory(struct zi_text *text)
{
	return zi_text_error(text, err_origin(-ENOMEM), "there is no memory for so many units");
}

static int grow(struct estimate_model *model, struct zi_text *text)
{
	uint32_t capacity = model->unit_capacity ? 2 * model->unit_capacity : 64;
	struct estimate_unit *units;

	if (model->unit_count < model->unit_capacity)
		return 0;
	if (model->unit_count == ESTIMATE_UNITS_MAX)
		return zi_text_error(text, err_origin(-EINVAL), "it has more than %u units",
		                     ESTIMATE_UNITS_MAX);
	units = realloc(model->units, capacity * sizeof(*units));
	if (!units)
		return no_memory(text);
	model->units = units;
	model->unit_capacity = capacity;
	return 0;
}

/* A new unit; its index. */
static int append(struct estimate_model *model, const char *name, uint32_t *ret_index,
                  struct zi_text *text)
{
	_cleanup_(zi_freep) char *copy = name ? strdup(name) : NULL;
	int r = grow(model, text);

	if (r)
		return err_trace(r);
	if (name && !model->indices)
		model->indices = json_object();
	if (name &&
	    (!copy || json_object_set_new(model->indices, name, json_integer(model->unit_count))))
		return no_memory(text);
	if (copy)
		zi_utf8_clean(copy); /* It is shown, and whoever made the file chose it. */
	*ret_index = model->unit_count;
	model->units[model->unit_count++] = (struct estimate_unit){ .name = zi_steal(copy) };
	return 0;
}

int estimate_model_add(struct estimate_model *model, const char *name, uint64_t element_count,
                       struct zi_text *text)
{
	const json_t *known = name ? json_object_get(model->indices, name) : NULL;
	uint32_t index = (uint32_t)json_integer_value(known);
	uint64_t sum = 0;
	int r;

	if (!zi_checked_add(model->element_count, element_count, &sum) ||
	    sum > ESTIMATE_ELEMENTS_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "it has more than 2^48 elements, which no job may have");
	r = known ? 0 : append(model, name, &index, text);
	if (r)
		return err_trace(r);
	model->units[index].element_count += element_count;
	model->element_count = sum;
	return 0;
}

int estimate_model_end(struct estimate_model *model, struct zi_text *text)
{
	if (!model->element_count)
		return zi_text_error(text, err_origin(-EINVAL), "it has no parameters");
	model->unit_padded = calloc(model->unit_count, sizeof(*model->unit_padded));
	if (!model->unit_padded)
		return no_memory(text);
	for (uint32_t i = 0; i < model->unit_count; i++) {
		model->unit_padded[i] = zi_geometry_padded(model->units[i].element_count);
		model->padded_count += model->unit_padded[i];
	}
	return 0;
}

struct zi_plan_model estimate_model_plan(const struct estimate_model *model)
{
	return (struct zi_plan_model){
		.element_count = model->element_count,
		.padded_count = model->padded_count,
		.unit_count = model->unit_count,
		.unit_padded = model->unit_padded,
	};
}
