/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step begins on all nodes: each votes once, by the options of the first rank there that begins
 * it, for which nobody waits; or, where all ranks have joined (step/join.h), without. Of such nodes
 * the first other one's options are the step's, and its groups, which came before its vote; where
 * all have joined there is none. Floor 5, shard thread.
 */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"

struct across;
struct talk_entry;
struct zero_job;

/* The first rank here has begun a step: its options are those of all nodes. */
void agree_begin(struct zero_job *job);
/* All ranks here have joined. join_begun() or join_over() comes from the loop, or the group
 * ends. */
void agree_begin_joined(struct zero_job *job);
/* A node that has not voted. Return: false, all have; @ret_text is untouched. */
bool agree_begin_say_late(const struct zero_job *job, struct zi_text *ret_text);
/* Groups of a step that is about to begin. -EPROTO with @text. */
int agree_groups_heard(struct across *across, const struct talk_entry *entry, struct zi_text *text);
