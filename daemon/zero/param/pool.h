/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of a pool of parameters. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"

struct zero_job;
struct zero_room;

uint32_t pool_slots_min(const struct zero_job *job, uint32_t *ret_unit);
/* Where param_budget_bytes leaves it open. */
uint64_t pool_slots_chosen(const struct zero_job *job);
/* Uses until any rank uses it next. */
uint64_t pool_distance(const struct zero_job *job, uint32_t unit);
/* Only what is pinned by @pin_mask, and with @is_moving what cannot go right now, stays. */
bool pool_find_room(struct zero_job *job, uint32_t unit, uint64_t soonest, uint64_t pin_mask,
                    bool is_moving, struct zero_room *ret_room);
void pool_insert(struct zero_job *job, uint32_t unit, const struct zero_room *room);
void pool_evict(struct zero_job *job, uint32_t unit);
