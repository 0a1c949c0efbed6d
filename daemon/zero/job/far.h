/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of a job that spans nodes, and its worker zinf-net: started, told where the others are,
 * given the group's memory, watched. Floor 5, shard thread.
 *
 *   MEETING ─▶ JOINING ─▶ MAPPING ─▶ FOLLOWING ─▶ OVER     the group of all ranks: its worker
 *                                                          serves the store where rank 0 is
 *              JOINING ─▶ …                                others
 *
 * Each group has a worker of its own: calls of different groups come in different orders on
 * different nodes, and the end of one costs that group alone.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"

struct far;
struct zero;
struct zero_job;
struct zero_op;

/* Nodes have met: job->collectives knows who is where; memory is to be made now. */
typedef int (*far_met_fn)(struct far *far, struct zi_text *text);
/* Once: the group can be used, or not. */
typedef void (*far_joined_fn)(struct far *far, int error, const struct zi_text *text);

/* Where nodes meet, as a rank sent it: kept in job->collectives. -EINVAL MASTER_ADDR is missing. */
int far_place(struct zero_job *job, const struct zero_op *op, struct zi_text *text);
/* The group of all ranks. @ret_far: far_free(). Return: 0, one of the two comes; -ENOENT the worker
 * is not built, -EAGAIN, -ENOMEM. */
int far_open(struct zero_job *job, far_met_fn met, far_joined_fn joined, struct zi_text *text,
             struct far **ret_far);
/* Group @group of the ranks @members. Its board and slab are there. */
int far_make(struct zero_job *job, uint32_t group, uint64_t members, uint64_t timeout_ns,
             far_joined_fn joined, struct zi_text *text, struct far **ret_far);
/* The group is no more: the other nodes hear of it, for which the worker stays a moment. NULL-safe.
 * Return: NULL. */
struct far *far_free(struct far *far);
/* Workers that stay a moment end now: those of job @name, or all. */
void far_forget(struct zero *zero, const char *name);

/* The group is broken here: the other nodes hear why. */
void far_abort(struct far *far, int error, const struct zi_text *text);

struct zero_job *far_job(const struct far *far);
uint32_t far_group(const struct far *far);
uint64_t far_members(const struct far *far); /* ranks: bits */
/* Which member of the whole group @rank is; UINT32_MAX: none. */
uint32_t far_member_of(const struct far *far, uint32_t rank);
