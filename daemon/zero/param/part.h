/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a unit that a rank reads. A rank waits only until the subgroups that it reads are
 * updated. Example: an embedding reads the rows of its tokens. Floor 5, shard thread.
 */
#pragma once

#include "common/base/types.h"

struct zero_job;
struct zero_op;

/* @index: a subgroup of the unit. Return: whether @op, an UNSHARD, reads it. */
bool part_has(const struct zero_op *op, uint32_t index);
/* The unit is being updated. Return: whether every subgroup that @op reads is updated. */
bool part_is_updated(const struct zero_job *job, const struct zero_op *op);
/* Moves the subgroups that @op waits for before other ready ones, once for each operation. */
void part_prefer(struct zero_job *job, struct zero_op *op);
