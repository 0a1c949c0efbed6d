/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other nodes pull from this one: each pull that came waits until what it asks for is there
 * and a slot is free; a pool thread then fills the slot. Floor 5, shard thread. See pull.h.
 */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"

struct across;
struct across_serve;
struct talk_entry;

/* Puts entry.bytes of it at its memory. Any device thread. */
typedef void (*serve_fill_fn)(struct across_serve *serve);
/* It is filled: what it was made of is not needed any more. The job may end with it. */
typedef void (*serve_filled_fn)(struct across_serve *serve);

/* What was heard of kind PULL; GONE. -EPROTO with @text. */
int serve_asked(struct across *across, const struct talk_entry *entry, struct zi_text *text);
int serve_gone(struct across *across, const struct talk_entry *entry, struct zi_text *text);
/* The ranks of this node have left: who waits for parameters hears it, as does who asks later. */
void serve_over(struct across *across);
/* Something that was asked for may be there. */
void serve_more(struct across *across);
/* Nothing that others pulled is in the slab. */
bool serve_is_idle(const struct across *across);
