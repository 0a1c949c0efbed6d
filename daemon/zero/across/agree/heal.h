/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job whose ranks come back otherwise than they were: on fewer nodes or more, in other numbers,
 * with another strategy, or without a node that is lost. What each node shall hold and does not it
 * pulls from one that does; then all commit the same step anew, under a new name. Floor 5, shard
 * thread. State on NVMe alone.
 *
 *   RESUME: no name is all nodes', each in its place
 *     ─▶ offers are pulled (bytes/offer.h) ─▶ heal_choose(): one commit, or a refusal by name
 *     ─▶ memory is made ─▶ HEAL: does anybody lack anything, and is there room for it?
 *     ─▶ pulled, verified, written (bytes/heal_pull.h) ─▶ HEALED: all have
 *     ─▶ the catalog, which keeps the commit before ─▶ loaded ─▶ MADE ─▶ that one is released
 *
 * A death anywhere leaves what was chosen where it was, or the new commit on nodes that have all of
 * it between them: the next start chooses again.
 */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"

struct heal;
struct zero_job;

typedef void (*heal_done_fn)(struct zero_job *job, int error, const struct zi_text *text);

/* A commit was chosen that is not where it shall be: nodes ask each other HEAL before MADE. */
bool heal_is_due(const struct zero_job *job);
/* Precondition: heal_is_due(). Memory is there: @done, from the loop, when what was chosen is on
 * this node as its ranks now need it, and in the catalog; or with an error that all nodes have. */
void heal_start(struct zero_job *job, heal_done_fn done);
/* … or it could not be made. @done has the error. */
void heal_refuse(struct zero_job *job, int error, const struct zi_text *text, heal_done_fn done);
/* All nodes have it: what was before is nobody's any more. @done, maybe before this returns. */
void heal_release(struct zero_job *job, heal_done_fn done);

/* ---- for across ---- */

struct heal *heal_free(struct heal *heal);
