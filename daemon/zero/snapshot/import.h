/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of import.c and import_write.c: a snapshot that a client sends. Floor 5; shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/zero_private.h"

struct zero_import {
	struct zero_snapshot *snapshot;
	uint32_t extent_count; /* 2 of each subgroup */
	uint64_t *hashes;      /* of all extents, one after the other */
	uint32_t *hash_firsts; /* (extent_count,) */
	uint64_t
		*extent_bytes; /* (extent_count,) that are to come; 0: none, or it is here or out */
	uint32_t missing_count;
	uint32_t put_count; /* extents that are out */
};

/* Bytes of an element. @plane: ZERO_PLANE_PARAM, ZERO_PLANE_STATE. */
static inline uint32_t import_plane_width(const struct catalog_job_config *config, uint32_t plane)
{
	enum zi_dtype dtype = (enum zi_dtype)config->param_dtype;

	return plane == ZERO_PLANE_PARAM
	               ? zi_dtype_bytes(dtype)
	               : zi_state_element_bytes((enum zi_optimizer)config->optimizer, dtype);
}
