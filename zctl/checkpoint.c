/* SPDX-License-Identifier: Apache-2.0 */
/* See checkpoint.h. */
#include "zctl/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/wire/geometry.h"

/* A unit's name, and the index behind it. */
#define NAME_BYTES (ZI_PARAM_NAME_BYTES + 12)

const char *const checkpoint_planes[_PLANE_COUNT] = { "param", "master", "exp_avg", "exp_avg_sq" };

bool checkpoint_has_plane(const struct model *model, uint32_t plane)
{
	if (plane == PLANE_MASTER)
		return zi_remainder_bytes(model->dtype) != 0;
	return plane != PLANE_EXP_AVG_SQ || zi_optimizer_moments(model->optimizer) == 2;
}

int checkpoint_part(const struct model *model, const struct checkpoint_subgroup *subgroups,
                    uint32_t count, struct model *ret_part)
{
	*ret_part = (struct model){
		.job = model->job,
		.dtype = model->dtype,
		.grad_dtype = model->grad_dtype,
		.optimizer = model->optimizer,
		.schedule = model->schedule,
		.state_width = model->state_width,
		.unit_count = count,
		.param_count = count,
		.subgroup_count = count,
		.units = calloc(count + 1ul, sizeof *ret_part->units),
		.params = calloc(count + 1ul, sizeof *ret_part->params),
		.names = calloc(count + 1ul, NAME_BYTES),
	};
	if (!ret_part->units || !ret_part->params || !ret_part->names)
		return 1;
	for (uint32_t i = 0; i < count; i++) {
		const struct checkpoint_subgroup *at = &subgroups[i];
		const struct model_unit *whole = &model->units[at->unit];
		char *name = &ret_part->names[(size_t)i * NAME_BYTES];
		uint64_t first;
		uint64_t elements = model_subgroup_elements(model, at->unit, at->subgroup, &first);

		assert(elements > 0);
		(void)snprintf(name, NAME_BYTES, "%s/%u", whole->name, at->subgroup); /* Fits. */
		ret_part->units[i] = (struct model_unit){
			.name = whole->name,
			.element_count = elements,
			.padded_count =
				zi_geometry_subgroup_elements(whole->padded_count, at->subgroup),
			.element_first = ret_part->element_count,
			.subgroup_first = i,
			.subgroup_count = 1,
			.param_first = i,
			.param_count = 1,
			.subgroup_base = at->subgroup,
		};
		ret_part->params[i] = (struct model_param){
			.name = name,
			.unit = i,
			.dim_count = 1,
			.shape = { elements },
			.element_first = ret_part->element_count,
			.element_count = elements,
		};
		ret_part->element_count += elements;
	}
	return 0;
}
