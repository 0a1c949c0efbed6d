/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pure arithmetic of the flat parameter space, the same in daemon and client: offsets of parameters
 * in units, of units in planes, subgroups, tiles (docs/ARITHMETIC.md, "Layout"). Floor 1.
 */
#pragma once

#include <stdint.h>

#include "common/base/types.h"

/* Elements of a parameter: product of its shape; -EOVERFLOW past 2^48, -EINVAL on a zero. */
int zi_geometry_elements(const uint64_t *shape, uint32_t dim_count, uint64_t *ret_count);
/* Elements of a unit with padding. */
uint64_t zi_geometry_padded(uint64_t element_count);
/* Bytes a unit takes in a plane whose units begin at multiples of @slot_bytes. */
uint64_t zi_geometry_unit_bytes(uint64_t padded_count, uint32_t element_bytes, uint64_t slot_bytes);
uint32_t zi_geometry_subgroup_count(uint64_t padded_count);
/* Elements of subgroup @index of a unit. */
uint64_t zi_geometry_subgroup_elements(uint64_t padded_count, uint32_t index);
uint32_t zi_geometry_tile_count(uint64_t subgroup_elements);
