/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a pool of parameters is that nobody gave a budget: pure, so that daemon and estimates
 * say the same. Floor 1, any thread.
 *
 * What three of the largest unit would take: one in use, one on its way, one that is still being
 * let go. Beside them the small units, so that these (embeddings of a short vocabulary, the last
 * norm) do not cost the room of a large one: in a pool of three blocks that would leave two. They
 * take at most as much as another one of the largest, however many there are. Where no other node
 * has parameters of its own, an eighth of all, if that is more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_plan_pool {
	uint64_t all_bytes, largest_bytes; /* units in whole slots */
	uint64_t small_bytes;              /* of those that zi_plan_pool_is_small() names */
	uint64_t slot_bytes;
	bool is_divided; /* among nodes */
};

/* @padded_count: of a unit; @largest_count: of the largest. */
bool zi_plan_pool_is_small(uint64_t padded_count, uint64_t largest_count);
/* Return: whole slots, no more than all. */
uint64_t zi_plan_pool_bytes(const struct zi_plan_pool *pool);
