/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers of all nodes: when every rank of this node has come to a call, this node votes, and the
 * call goes on when all nodes have. Floor 5, shard thread. In one node nothing is added.
 *
 *   rank ─▶ gather_join() … full here ─▶ a round ─▶ all nodes' ranks have come ─▶ the call goes on
 */
#pragma once

#include <stdint.h>

#include "daemon/zero/across/talk/round.h"
#include "daemon/zero/job/gather.h"

struct zero_job;

/*
 * Every rank here has come to @gather, and the group needs nobody else (group_needs_all()).
 * @words: what must be alike on all nodes, beside the step: else the group breaks, and says so.
 * @go_on: at once in one node; else from the loop, if the group still stands.
 */
void agree_all(struct zero_job *job, enum zero_gather gather, const uint32_t words[2],
               gather_go_fn go_on);
/* What nodes ask each other for a step, commit or write under way has to come first: ranks' calls,
 * and the daemons' own rounds, would come in different orders. agree_held() goes on with the call
 * then. */
bool agree_is_held(const struct zero_job *job);
void agree_hold(struct zero_job *job, enum zero_gather gather, gather_go_fn go_on);
void agree_held(struct zero_job *job);

/* Why a node cannot, with its name: stores and tiers are called alike on all. What all say, as they
 * know it of each other, is no one's. Return: 0, or the first node's error. */
int agree_refusal(const struct zero_job *job, const struct round *round, struct zi_text *ret_text);

/* ---- for begin.c ---- */

/* These are votes that no node makes with an error: one that does cannot go on. Return: true when
 * that broke the group. */
bool agree_refused(struct zero_job *job, const struct round *round);
/* That two nodes are at different steps. */
void agree_say_step(const struct zero_job *job, uint32_t node, int64_t step, int64_t first,
                    struct zi_text *text);
