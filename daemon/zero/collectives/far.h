/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of a job that spans nodes, and its worker zinf-net: started, told where the others are,
 * given the group's memory, watched. Floor 5, shard thread.
 *
 *   MEETING ─▶ JOINING ─▶ MAPPING ─▶ FOLLOWING ─▶ OVER   of all ranks: its worker serves the
 *                                                        store where rank 0 is
 *   AGREEING ─▶ JOINING ─▶ …      others, once all nodes name the same ranks
 *      └─▶ AGREED                 … that do not span nodes, or have no members here
 *
 * Each group has a worker of its own: calls of different groups come in different orders on
 * different nodes, and the end of one costs that group alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

struct far;
struct zero;
struct zero_job;

/* Nodes have met: job->meeting knows who is where; memory is to be made now. */
typedef int (*far_met_fn)(struct far *far, struct zi_text *text);
/* Once: the group can be used, or not. */
typedef void (*far_joined_fn)(struct far *far, int error, const struct zi_text *text);

/* The group of all ranks. @ret_far: far_free(). Return: 0, one of the two comes; -ENOENT the worker
 * is not built, -EAGAIN, -ENOMEM. */
int far_open(struct zero_job *job, far_met_fn met, far_joined_fn joined, struct zi_text *text,
             struct far **ret_far);

/* A group that is to be made. */
struct far_wish {
	uint32_t group;   /* its number here; nothing where no rank here is a member */
	uint64_t members; /* ranks: bits */
	uint64_t timeout_ns;
	bool joins; /* it spans nodes, with members here: its board and slab are there */
};

/* All nodes are asked whether they wish the same. */
int far_make(struct zero_job *job, const struct far_wish *wish, far_joined_fn joined,
             struct zi_text *text, struct far **ret_far);
/* Nothing can be made here: the other nodes, which may wait for this one, are told. */
void far_refuse(struct zero_job *job, int error, const struct zi_text *text);
/* Collectives cannot be opened here, or were not: the other nodes are told, those too who come
 * later, by the group's worker or by one that is started for it. Before those who wait here are. */
void far_refuse_opening(struct zero_job *job, int error, const struct zi_text *text);
/* So too where nodes were to meet for training alone, and this one, with @ranks (bits), comes to it
 * no more. */
void far_tell_meeting(struct zero_job *job, uint64_t ranks, int error, const struct zi_text *text);
/* The group is no more: the other nodes hear of it, for which the worker stays a moment. NULL-safe.
 * Return: NULL. */
struct far *far_free(struct far *far);
/* Workers that stay a moment end now: those of job @name, or all. */
void far_forget(struct zero *zero, const char *name);
/* Those that tell of an opening that failed, and may hold @port. */
void far_forget_openings(struct zero *zero, uint32_t port);
/* What @job's workers have to tell is soon nobody's: a start without a name is not told from the
 * next one. */
void far_hurry(const struct zero_job *job);

/* Numbers of groups of @job (bits) that are over, whose worker may still write to their memory. */
uint64_t far_ending(const struct zero_job *job);
/* The worker of one of them, if there is one, ends now, its last words said or not. */
void far_end(const struct zero_job *job, uint32_t group);

/* The group is broken here: the other nodes hear why. */
void far_abort(struct far *far, int error, const struct zi_text *text);

struct zero_job *far_job(const struct far *far);
uint32_t far_group(const struct far *far);
bool far_joins(const struct far *far);       /* it spans nodes, with members here */
uint64_t far_members(const struct far *far); /* ranks: bits */
/* Which member of the whole group @rank is; UINT32_MAX: none. */
uint32_t far_member_of(const struct far *far, uint32_t rank);
