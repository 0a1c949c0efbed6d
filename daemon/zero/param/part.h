/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a unit that a rank reads. An embedding reads the rows of its tokens, and no others:
 * a rank need not wait until all of the unit is updated. Floor 5, shard thread.
 */
#pragma once

#include "common/base/types.h"

struct zero_job;
struct zero_op;

/* @index: a subgroup of the unit. Return: whether @op, an UNSHARD, needs it at the current step. */
bool part_has(const struct zero_op *op, uint32_t index);
/* The unit is being updated. Return: whether what @op needs of it has been. */
bool part_is_updated(const struct zero_job *job, const struct zero_op *op);
/* What @op waits for is updated before the rest of its unit. */
void part_prefer(struct zero_job *job, const struct zero_op *op);
