/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What export writes into a directory, and load reads (docs/CHECKPOINT.md): a file for each plane
 * beside a manifest, of the whole model, or of one node's part.
 *
 * The planes of a part have a tensor for each subgroup that the node has, "UNIT/INDEX": to whoever
 * writes and reads files that is a model like any other, whose units are these subgroups.
 */
#pragma once

#include <stdbool.h>

#include "zctl/model.h"

#define CHECKPOINT_VERSION 1
#define CHECKPOINT_WHOLE   "zinf-checkpoint"
#define CHECKPOINT_PART    "zinf-checkpoint-part"

/* Files of float32 beside the parameters. */
enum checkpoint_plane { PLANE_PARAM, PLANE_MASTER, PLANE_EXP_AVG, PLANE_EXP_AVG_SQ, _PLANE_COUNT };
extern const char *const checkpoint_planes[_PLANE_COUNT];

/* The planes that a model has; all have parameters. */
bool checkpoint_has_plane(const struct model *model, uint32_t plane);

/* Of @count of a model's subgroups: their units and indices in it. Names of units stay the
 * model's. @ret_part: zero; model_free() in all cases. 0, or 1: no memory. */
struct checkpoint_subgroup {
	uint32_t unit, subgroup;
};
int checkpoint_part(const struct model *model, const struct checkpoint_subgroup *subgroups,
                    uint32_t count, struct model *ret_part);
