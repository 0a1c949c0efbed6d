/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of units whose ranks are on several nodes: each subgroup's sum is finished on one of
 * them, its *finisher* (the node of subgroup->finisher), from the partials of all. Floor 5, shard
 * thread. In one node nothing of it is called.
 *
 *   every node                       finisher                           who owns the state
 *   its ranks have handed it over
 *   READY ─────────────────────────▶ is it ready on all nodes?
 *     ◀─────────────── PULL PARTIAL  a piece: of each leaf of the tree
 *   a pool thread makes it ────────▶ a pool thread finishes the tree,
 *   the ranks' buffers are free      in place of the first rank's, or adds it to accum
 *                                    the last micro-batch's is there: READY ──▶ PULL SUM
 *
 * A piece is asked for when it can come at once, and the same goes for sums: so what is pulled has
 * its slot for no longer than its transfer and its computation, whoever is late. What ranks hand
 * over is counted from when nodes talk, alike on all of them (number), for a step that does not
 * come to its end ends the talk.
 *
 * Sums that have no room in memory pass through slots: grads_spill.h.
 *
 * Which sum it is does not depend on nodes: the tree is over members (docs/ARITHMETIC.md).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

struct across;
struct zero_job;

/* The job's sets and owners are built: what is summed across nodes, and in which pieces; nothing
 * forward only. What was there of a former start that failed goes. -EINVAL, -ENOMEM, -EBUSY with
 * @text. */
int grads_open(struct zero_job *job, struct zi_text *text);

/* Ranks of several nodes train the unit. */
bool grads_span(const struct zero_job *job, uint32_t unit);
/* Every rank here has handed this micro-batch's gradient over. */
void grads_hand_over(struct zero_job *job, uint32_t unit);
/* What the daemon still needs the ranks' buffers for. Return: false, nothing that has to do with
 * other nodes; @ret_text is untouched. */
bool grads_say_late(const struct zero_job *job, uint32_t unit, struct zi_text *ret_text);
/* All sums are where they are needed, here and of here: nothing of it is under way. */
bool grads_are_there(const struct zero_job *job);
