/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resume blobs of ranks that are elsewhere: each node keeps those of all ranks with its commits, so
 * that they outlive a node that is lost. Floor 5, shard thread. Of jobs with state on NVMe; what is
 * in memory alone is not healed.
 *
 *   STEP, COMMIT: all ranks have given theirs; the vote says how many bytes a node's are
 *     ─▶ a commit is written ─▶ blobs_pull(): the others' ─▶ its record has all ─▶ PREPARED
 *
 * What is pulled is a table, of how long each rank's is, and behind it the blobs of the node's
 * ranks. They are those of the last STEP or COMMIT, and stay until all nodes have come to the next
 * one: a node that has come there has pulled what it needs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

struct across;
struct across_serve;
struct blobs;
struct talk_entry;
struct zero_job;

/* @error 0, or why they have not come: from the loop. */
typedef void (*blobs_done_fn)(struct zero_job *job, int error, const struct zi_text *text);

/* All of a former start goes. -ENOMEM with @text. */
int blobs_open(struct zero_job *job, struct zi_text *text);
struct blobs *blobs_free(struct blobs *blobs);
/* What this node says in its vote: bytes that it has for others; 0: its ranks gave none. */
uint32_t blobs_said_bytes(const struct zero_job *job);
/* All nodes have voted; @said_bytes: (node_count,). -EPROTO with @text: node @ret_node says what
 * cannot be. */
int blobs_agreed(struct zero_job *job, const uint32_t *said_bytes, struct zi_text *text,
                 uint32_t *ret_node);
/* Into job->blobs of the commit that is under way. @done: maybe before this returns. Nothing comes
 * where the commit has other blobs than those that were last agreed on, as one that follows a start
 * has. */
void blobs_pull(struct zero_job *job, blobs_done_fn done);
/* What it waits for. Return: false, nothing; @ret_text is untouched. */
bool blobs_say_late(const struct zero_job *job, struct zi_text *ret_text);

/* ---- what serve.c asks ---- */

/* It is of what was agreed on last, or will be next. */
bool blobs_asked(const struct across *across, const struct talk_entry *entry);
bool blobs_is_there(const struct across *across, const struct talk_entry *entry);
/* A serve_fill_fn. */
void blobs_fill(struct across_serve *serve);
