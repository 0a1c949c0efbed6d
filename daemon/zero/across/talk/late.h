/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The culprit of a call that timed out while it waited for ranks of any node: the rank that has not
 * come, with its present call; or its node, where that node does not answer. Floor 5, shard thread.
 *
 *   a rank's deadline ─▶ one of this node has not come: that one is it
 *                     ├▶ all are here: WHY to the nodes that have not voted ─▶ BECAUSE, or 1 s
 *                     └▶ all nodes have voted, but bytes of some are awaited: WHY to all of them;
 *                        who does not answer is it, else the call fails alone
 */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"
#include "daemon/zero/job/gather.h"

struct zero_job;
struct zero_op;

/* The time of @op, which waits in @gather, is over. Return: true, that is seen to: the group breaks
 * on all nodes, now or in a moment; false, this call waits for nobody of another node. */
bool late_expired(struct zero_op *op, enum zero_gather gather);
/* So, where it waits for bytes of other nodes: which of them does not answer? Return: true, that is
 * asked, or told; false, all do, or there is none. */
bool late_bytes_expired(struct zero_op *op);
/* Who has not voted in what this node has: all answer, and some are slower. Return: false, nobody;
 * @ret_text is untouched. */
bool late_say_silent(const struct zero_job *job, struct zi_text *ret_text);
