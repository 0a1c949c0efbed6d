/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of tensors that wait. Floor 5, shard thread. */
#pragma once

#include "daemon/zero/tensor/tensor.h"

/* The pending op of @rank of that opcode on that tensor, or NULL. */
struct zero_op *tensor_find_op(const struct zero_rank *rank, uint16_t opcode, uint64_t id);
/* An extent for @tensor, where there is a tier for it: -ENOSPC, -EDQUOT with figures in @text. */
int tensor_reserve(struct zero_tensor *tensor, struct zi_text *text);
/* Something came back or was given back: who waits is looked at again. May free @tensors, when the
 * rank has left. */
void tensors_go_on(struct zero_tensors *tensors);
/* Who waits for @tensor hears that its move is over. */
void tensor_tell(struct zero_tensor *tensor, int error);
/* @op, pending, is about to end without what it waits for. */
void tensor_op_abandon(struct zero_op *op);
