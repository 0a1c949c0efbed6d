/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot that somebody asks for while a job's nodes talk: all of them keep their part of one
 * commit, or none does. Floor 5, shard thread.
 *
 *   where it is asked       node 0                         all nodes
 *   ASK ──────────────────▶ one at a time
 *                           TAKE, which commit ──────────▶ its part is held, and in the catalog
 *                           ◀───────────────────────────── TOLD: it is; it was before; it cannot be
 *                           OVER ────────────────────────▶ it is a snapshot; or is forgotten
 *   is answered ◀────────── ANSWER  ◀───────────────────── HEARD
 *
 * Ranks that have asked may be waited for by all others, so this is no round, to which each node
 * comes at its time: it goes by what nodes say between them. Node 0 names the commit at which it
 * stands when it is in the middle of none, which all have then; and says so before it votes in any
 * later one, on the same way. So TAKE is there before a node may let that commit go: who has the
 * next one in its catalog keeps the former (place/former.h). State in memory alone is written
 * before the next update, which node 0 holds back until all have told (keep_holds()).
 *
 * Where the talk ends before OVER has come, what a node has in its catalog stays: who asked may
 * have been told that all have it. It is made whole, or not, by who asks for that name again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/worker/talk.h"

struct across;
struct zero;
struct zero_job;
struct zero_snapshot;
struct zero_snapshot_op;

/* By which way all nodes of the job can be asked; NULL: they do not talk, and this one is alone. */
struct across *keep_way(const struct zero_job *job);
/* @op: completed when all nodes have it, or with the first error, and whose it is. */
void keep_ask(struct across *across, struct zero_snapshot_op *op);
/* The part of this node, of snapshot->keep_id, is STORED, or comes to nothing. */
void keep_told(struct zero_snapshot *snapshot, int error, const struct zi_text *text);
/* Its phase may let go on what waits. */
void keep_retry(struct zero_job *job);
/* The step under way may not go on to its update: other nodes write what was before. */
bool keep_holds(const struct zero_job *job);
/* So much of its busy_count is ranks that wait for others in a barrier, which changes nothing. */
uint32_t keep_waits(const struct zero_job *job);
/* The daemon stops: who has asked is told, and nobody begins. */
void keep_stop(struct zero *zero);

/* ---- of across ---- */

/* TALK_READY with this `what`. */
bool keep_is_word(uint32_t what);
int keep_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text);
/* From the loop: the step that keep_holds() held goes on. */
void keep_release(struct across *across);
/* The talk is over. No-op where nothing is asked. */
void keep_over(struct across *across);
