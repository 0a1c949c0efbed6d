/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step is: the model, its types, and where units and parameters lie in a plane without
 * padding. The same JSON keys come from the daemon (`export open`) and from a manifest
 * (docs/CHECKPOINT.md); neither is trusted.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "common/base/types.h"

struct model_unit {
	const char *name;
	uint64_t element_count, padded_count;
	uint64_t element_first; /* in a plane without padding */
	uint32_t subgroup_first, subgroup_count;
	uint32_t param_first, param_count;
	uint32_t subgroup_base; /* of a part's: which subgroup of the unit is its first */
};

struct model_param {
	const char *name;
	uint32_t unit;
	uint32_t dim_count;
	uint64_t shape[ZI_PARAM_DIMS_MAX];
	uint64_t element_first, element_count; /* in a plane without padding */
};

struct model {
	json_t *record; /* what it was read from; owned */
	const char *job;
	enum zi_dtype dtype, grad_dtype;
	enum zi_optimizer optimizer;
	enum zi_schedule schedule;
	uint32_t state_width; /* bytes of state per element */
	uint32_t unit_count, param_count, subgroup_count;
	uint64_t element_count; /* without padding */
	struct model_unit *units;
	struct model_param *params;
	char *names; /* of a part's tensors; NULL: names are the record's */
};

/* @record: taken over. 0, or 1 and what makes no sense; model_free() in both cases. */
int model_parse(struct model *model, json_t *record, const char **ret_what);
/* As above, but says so. @source: what it is, for people. */
int model_read(struct model *model, json_t *record, const char *source);
void model_free(struct model *model);

/* What safetensors calls it. */
const char *model_dtype_word(enum zi_dtype dtype);

/* Of @elements in a plane. */
static inline uint64_t model_extent_bytes(const struct model *model, uint64_t elements,
                                          enum zi_plane plane)
{
	return elements *
	       (plane == ZI_PLANE_PARAM ? zi_dtype_bytes(model->dtype) : model->state_width);
}

/* Elements of a subgroup without padding; @ret_first: of the first of them in a plane. */
uint64_t model_subgroup_elements(const struct model *model, uint32_t unit, uint32_t subgroup,
                                 uint64_t *ret_first);
