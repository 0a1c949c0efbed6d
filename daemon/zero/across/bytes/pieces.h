/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be longer than a slot: its pieces come from one node one after the other, and each is
 * taken out of its slot by a task of its own. Floor 5, shard thread.
 */
#pragma once

#include "daemon/zero/across/bytes/fetch.h"

/* Embedded in its owner, who fills in the first ones; all zero where nothing comes. */
struct pieces {
	struct across *across;
	fetch_run_fn run;     /* takes ->pull.bytes at ->pull.memory, which are at ->at_bytes */
	fetch_ended_fn ended; /* which calls pieces_advance() where that was whole */
	uint64_t bytes;       /* of all of it */
	uint64_t at_bytes;    /* where the piece that is under way begins */
	struct fetch fetch;   /* what both are called with */
	struct pull pull;
};

/* Asks for the piece at ->at_bytes, which there is. @wanted: of what, from which node; its piece
 * and bytes are not looked at. */
void pieces_ask(struct pieces *pieces, const struct pull *wanted);
/* The one that was asked for has come. Return: there is another. */
bool pieces_advance(struct pieces *pieces);

static inline bool pieces_are_active(const struct pieces *pieces)
{
	return fetch_is_active(&pieces->fetch);
}
