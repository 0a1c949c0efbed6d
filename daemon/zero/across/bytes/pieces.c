/* SPDX-License-Identifier: Apache-2.0 */
/* What comes piece by piece; see pieces.h. Floor 5, shard thread. */
#include "daemon/zero/across/bytes/pieces.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "daemon/zero/across/across_private.h"

/* Documented in the header, as is the other. */
void pieces_ask(struct pieces *pieces, const struct pull *wanted)
{
	uint64_t slot_bytes = pieces->across->slot_bytes;

	assert(pieces->at_bytes < pieces->bytes);
	assert(pieces->at_bytes % slot_bytes == 0);
	pieces->pull = *wanted;
	pieces->pull.piece = (uint32_t)(pieces->at_bytes / slot_bytes);
	pieces->pull.bytes = ZI_MIN(pieces->bytes - pieces->at_bytes, slot_bytes);
	pieces->fetch = (struct fetch){ .across = pieces->across,
		                        .run = pieces->run,
		                        .ended = pieces->ended,
		                        .pulls = &pieces->pull,
		                        .pull_count = 1 };
	fetch_start(&pieces->fetch);
}

bool pieces_advance(struct pieces *pieces)
{
	assert(!pieces_are_active(pieces));
	pieces->at_bytes += pieces->pull.bytes;
	assert(pieces->at_bytes <= pieces->bytes);
	return pieces->at_bytes < pieces->bytes;
}
