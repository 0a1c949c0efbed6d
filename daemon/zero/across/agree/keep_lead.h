/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots that all keep, on node 0: whose turn it is, of which commit, and what has become of it;
 * see keep.h. Floor 5, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/worker/talk.h"

struct across;

/* The next node's turn, if there is one and none is under way. Return: something was done. */
bool keep_lead_begin(struct across *across);
/* What nodes say, this one too: it asks; its part is there, was there before or cannot be; it has
 * heard what has become of it. Return: 0; -EPROTO. */
int keep_lead_asked(struct across *across, const struct talk_entry *entry, struct zi_text *text);
int keep_lead_told(struct across *across, uint32_t node, uint64_t id, int error, bool had,
                   const struct zi_text *text);
int keep_lead_heard(struct across *across, uint32_t node, uint64_t id);
