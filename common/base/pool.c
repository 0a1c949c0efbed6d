/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed pool. Floor 0, owner thread only. Free objects are a stack of indices beside the objects,
 * so that a free object's bytes hold no link that a late writer could break, and the object given
 * last, still warm in the cache, is taken first.
 */
#include "common/base/pool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

/* Objects may hold fields with a cache line of their own; sizeof() is then a multiple of it, so
 * that an aligned base and a 16-byte stride (max_align_t) keep every object aligned. */
#define POOL_BASE_ALIGN   64u
#define POOL_STRIDE_ALIGN 16u

/* Only in debug builds: linear in the pool. */
__attribute__((unused)) static bool pool_is_free(const struct zi_pool *pool, uint32_t index)
{
	for (uint32_t i = 0; i < pool->free_count; i++)
		if (pool->free_indices[i] == index)
			return true;
	return false;
}

/*
 * @object_bytes, @capacity_count: at least 1. All memory is taken, and touched, here.
 * Return: 0, or -ENOMEM with @pool untouched.
 */
int zi_pool_init(struct zi_pool *pool, uint32_t object_bytes, uint32_t capacity_count)
{
	_cleanup_(zi_freep) uint32_t *free_indices = NULL;
	_cleanup_(zi_freep) void *base = NULL;
	uint64_t stride_bytes;
	uint64_t bytes;

	assert(object_bytes > 0);
	assert(capacity_count > 0);
	stride_bytes = zi_align_up(object_bytes, POOL_STRIDE_ALIGN);
	if (stride_bytes > UINT32_MAX || !zi_checked_mul(stride_bytes, capacity_count, &bytes) ||
	    !zi_checked_align(bytes, POOL_BASE_ALIGN, &bytes) || bytes > PTRDIFF_MAX)
		return err_origin(-ENOMEM);
	base = aligned_alloc(POOL_BASE_ALIGN, bytes);
	if (!base)
		return err_origin(-ENOMEM);
	free_indices = malloc((size_t)capacity_count * sizeof(*free_indices));
	if (!free_indices)
		return err_origin(-ENOMEM);
	memset(base, 0, bytes); /* Page faults now, not on the data path. */
	for (uint32_t i = 0; i < capacity_count; i++)
		free_indices[i] = capacity_count - 1 - i; /* Index 0 is taken first. */
	*pool = (struct zi_pool){
		.base = zi_steal(base),
		.free_indices = zi_steal(free_indices),
		.free_count = capacity_count,
		.capacity_count = capacity_count,
		.object_bytes = (uint32_t)stride_bytes,
	};
	return 0;
}

/* Frees the memory; every object must have been given back. A zeroed @pool is fine. */
void zi_pool_deinit(struct zi_pool *pool)
{
	assert(pool->free_count == pool->capacity_count);
	free(pool->base);
	free(pool->free_indices);
	*pool = (struct zi_pool){ 0 };
}

/* Return: a zeroed object, aligned to 16 bytes (64 when its size is a multiple of 64), until
 * zi_pool_give(); NULL when all are in use. */
void *zi_pool_take(struct zi_pool *pool)
{
	uint32_t index;
	void *object;

	if (!pool->free_count)
		return NULL;
	index = pool->free_indices[--pool->free_count];
	assert(index < pool->capacity_count);
	object = (char *)pool->base + (size_t)index * pool->object_bytes;
	memset(object, 0, pool->object_bytes);
	return object;
}

/* @object: from zi_pool_take() of this pool, not given back yet. */
void zi_pool_give(struct zi_pool *pool, void *object)
{
	uintptr_t offset_bytes = (uintptr_t)object - (uintptr_t)pool->base;
	uint32_t index = (uint32_t)(offset_bytes / pool->object_bytes);

	assert((uintptr_t)object >= (uintptr_t)pool->base);
	assert(offset_bytes % pool->object_bytes == 0);
	assert(offset_bytes / pool->object_bytes < pool->capacity_count);
	assert(pool->free_count < pool->capacity_count);
	zi_debug_assert(!pool_is_free(pool, index));
	pool->free_indices[pool->free_count++] = index;
}

/* Return: objects taken and not given back. */
uint32_t zi_pool_used_count(const struct zi_pool *pool)
{
	return pool->capacity_count - pool->free_count;
}
