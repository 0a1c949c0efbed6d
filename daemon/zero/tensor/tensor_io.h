/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of tensors, and their way to the store and back. Floor 5, shard thread. */
#pragma once

#include "daemon/zero/job/job.h"

void tensors_build(struct zero_tensors *tensors);
void tensors_pump(struct zero_tensors *tensors);
void tensor_store(struct zero_tensor *tensor);
void tensor_load(struct zero_tensor *tensor);
void tensor_give_up(struct zero_tensor *tensor);
