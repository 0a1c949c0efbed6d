/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks of an incarnation are on which node, and where its nodes meet: of all who have to do
 * with other nodes, met by whoever of them comes first. Floor 5, shard thread.
 *
 * Meetings are counted: each node's n-th is the others' n-th, and one that fails fails on all. The
 * store in which nodes have met has a number (`run`), by which the same one is found again.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "common/wire/control.h"

struct net_done;
struct net_way;
struct zero_job;
struct zero_op;
struct zero_rank;

struct zero_meeting {
	struct zi_coll_open *place;  /* where; its own. NULL: no rank has said so yet */
	uint32_t node_count;         /* 0: nodes have not met */
	uint32_t node, run;          /* run: of the store */
	uint8_t nodes[ZI_WORLD_MAX]; /* of each rank */
	uint32_t talk_count;         /* talks begun in this store (across.c) */
	uint32_t failed_count;       /* meetings that failed, of this start of the job */
	int failed_error;            /* of the last of them, */
	struct zi_text failed_text;  /* and why */
};

/* Two ranks of this node would meet the others at one place, by one way. Return: 0; -EINVAL with
 * what differs; of tokens that they do. */
int meeting_compare(const struct zero_rank *rank, const struct zero_op *op,
                    const struct zero_rank *other, const struct zero_op *theirs,
                    struct zi_text *text);
/* Where nodes meet, as a rank sent it: kept. -EINVAL MASTER_ADDR is missing, or no port. */
int meeting_place(struct zero_job *job, const struct zero_op *op, struct zi_text *text);
void meeting_forget_place(struct zero_job *job);
/* The way to the job's store. Its token is the caller's to wipe. */
void meeting_way(const struct zero_job *job, struct net_way *ret_way);
/* Nodes have met. -EPROTO the worker says what cannot be. */
int meeting_take(struct zero_job *job, const struct net_done *reply, struct zi_text *text);
/* It, or what it was for, has failed, on all nodes. */
void meeting_failed(struct zero_job *job, int error, const struct zi_text *text);
/* Nobody has to do with other nodes any more. */
void meeting_over(struct zero_job *job);
/* Ranks of this node: bits. */
uint64_t meeting_here_mask(const struct zero_job *job);
/* Nodes on which ranks of @mask are: bits. One alone, where the job does not span nodes. */
uint64_t meeting_node_mask(const struct zero_job *job, uint64_t mask);
