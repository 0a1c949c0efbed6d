/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in the rank's segment a tensor lies, and which must go for it. Floor 5, shard thread.
 */
#pragma once

#include "daemon/zero/job/job.h"

static inline uint64_t tensor_offset(const struct zero_tensor *tensor)
{
	return (uint64_t)tensor->slot_first * ZI_STORE_ALIGN_BYTES;
}
/* Slots of ZI_STORE_ALIGN_BYTES that so many bytes take. */
uint64_t tensor_slots(uint64_t bytes);
/* Its bytes in the segment of its rank. */
void *tensor_place(const struct zero_tensor *tensor);
bool tensor_is_held(const struct zero_tensor *tensor);
bool tensor_has_hope(struct zero_tensors *tensors, uint64_t bytes);
bool tensor_settle_in(struct zero_tensor *tensor, bool is_modest);
void tensor_move_out(struct zero_tensor *tensor);
