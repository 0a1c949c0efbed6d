/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's tensors, their segment, and the end of both. Floor 5, shard thread. */
#pragma once

#include "daemon/zero/job/job.h"

/* Nothing of it is in flight. Returns NULL. */
struct zero_tensors *tensors_free(struct zero_tensors *tensors);
void tensors_built(struct zero_tensors *tensors);
void tensors_forget(struct zero_rank *rank);
struct zero_tensor *tensors_find(const struct zero_tensors *tensors, uint64_t id);
struct zero_tensor *tensors_add(struct zero_tensors *tensors, uint64_t id, uint64_t bytes);
void tensor_drop(struct zero_tensor *tensor);
void tensor_clear(struct zero_tensor *tensor);
