/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of the flat parameter space (docs/ARITHMETIC.md, "Layout"). Floor 1, pure. */
#include "common/wire/geometry.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

/* 2^48 elements are 1 PiB of fp32: no byte count of any plane of one parameter overflows. */
#define GEOMETRY_ELEMENTS_MAX (1ull << 48)

/*
 * @shape: (@dim_count,) elements per dimension; @dim_count 0 is a scalar.
 * Return: 0; -EINVAL when a dimension is 0; -EOVERFLOW past 2^48 elements.
 */
int zi_geometry_elements(const uint64_t *shape, uint32_t dim_count, uint64_t *ret_count)
{
	uint64_t count = 1;

	assert(dim_count <= ZI_PARAM_DIMS_MAX);
	for (uint32_t i = 0; i < dim_count; i++)
		if (!shape[i])
			return err_origin(-EINVAL);
	for (uint32_t i = 0; i < dim_count; i++)
		if (!zi_checked_mul(count, shape[i], &count) || count > GEOMETRY_ELEMENTS_MAX)
			return err_origin(-EOVERFLOW);
	*ret_count = count;
	return 0;
}

/* @element_count: of all parameters of a unit. Return: with padding to whole blocks. */
uint64_t zi_geometry_padded(uint64_t element_count)
{
	assert(element_count <= UINT64_MAX - ZI_BLOCK_ELEMENTS);
	return zi_align_up(element_count, ZI_BLOCK_ELEMENTS);
}

/* @slot_bytes: a power of two. Return: the distance from the unit's begin to the next one's. */
uint64_t zi_geometry_unit_bytes(uint64_t padded_count, uint32_t element_bytes, uint64_t slot_bytes)
{
	uint64_t bytes = 0;
	bool is_fit = zi_checked_mul(padded_count, element_bytes, &bytes) &&
	              zi_checked_align(bytes, slot_bytes, &bytes);

	assert(is_fit); /* Elements are limited to 2^48 per parameter, and counted with overflow. */
	(void)is_fit;
	return bytes;
}

/* Return: subgroups of a unit of @padded_count elements; only the last one may be shorter. */
uint32_t zi_geometry_subgroup_count(uint64_t padded_count)
{
	uint64_t count;

	assert(padded_count % ZI_BLOCK_ELEMENTS == 0);
	count = (padded_count + ZI_SUBGROUP_ELEMENTS - 1) / ZI_SUBGROUP_ELEMENTS;
	assert(count <= UINT32_MAX);
	return (uint32_t)count;
}

/* @index: below zi_geometry_subgroup_count(). Return: its elements. */
uint64_t zi_geometry_subgroup_elements(uint64_t padded_count, uint32_t index)
{
	uint64_t first = (uint64_t)index * ZI_SUBGROUP_ELEMENTS;

	assert(first < padded_count);
	return ZI_MIN((uint64_t)ZI_SUBGROUP_ELEMENTS, padded_count - first);
}

/* Return: tiles of a subgroup; only the last one may be short. */
uint32_t zi_geometry_tile_count(uint64_t subgroup_elements)
{
	assert(subgroup_elements <= ZI_SUBGROUP_ELEMENTS);
	assert(subgroup_elements % ZI_BLOCK_ELEMENTS == 0);
	return (uint32_t)((subgroup_elements + ZI_TILE_ELEMENTS - 1) / ZI_TILE_ELEMENTS);
}
