/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed pool of equal objects: everything is allocated when the pool is made, so that the data path
 * never calls malloc. Owner thread only. Floor 0.
 */
#pragma once

#include <stdint.h>

struct zi_pool {
	void *base;
	uint32_t *free_indices;
	uint32_t free_count;
	uint32_t capacity_count;
	uint32_t object_bytes;
};

int zi_pool_init(struct zi_pool *pool, uint32_t object_bytes, uint32_t capacity_count);
/* Asserts that every object has come back. Accepts a zeroed pool. */
void zi_pool_deinit(struct zi_pool *pool);
/* A zeroed object, or NULL when all are in use (a condition the caller answers with a figure). */
void *zi_pool_take(struct zi_pool *pool);
void zi_pool_give(struct zi_pool *pool, void *object);
uint32_t zi_pool_used_count(const struct zi_pool *pool);
