/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node that lies: what comes from it is not what its daemon said. Of each entry that is hearsay
 * (daemon/worker/talk.h) fields, votes and texts are drawn anew, it is said twice, or not at all,
 * or is another; and of what it serves bytes differ.
 */
#pragma once

#include "tests/unit/zero/nodes_net.h"

static struct {
	uint32_t node;  /* who lies */
	uint64_t from;  /* how many entries are true before */
	uint32_t often; /* of those after that one of so many is not */
	bool is_single; /* of one kind alone: */
	uint8_t kind, what;
	uint32_t count;
} lies;

static inline uint64_t lie_word(uint64_t word)
{
	static const uint64_t words[] = { 0,
		                          1,
		                          2,
		                          0x7fffffff,
		                          0x80000000,
		                          UINT32_MAX,
		                          INT64_MAX,
		                          1ull << 63,
		                          UINT64_MAX - 1,
		                          UINT64_MAX,
		                          0x7ff8000000000000ull, /* NaN */
		                          0x7ff0000000000000ull /* infinity */ };

	switch (net_draw(5)) {
	case 0:
		return word + 1;
	case 1:
		return word - 1;
	case 2:
		return word ^ 1ull << net_draw(64);
	case 3:
		return net_draw(64);
	default:
		return words[net_draw(ZI_COUNT_OF(words))];
	}
}

static inline void lie_data(struct talk_entry *entry)
{
	uint32_t at = entry->data_bytes ? net_draw(entry->data_bytes) : 0;
	uint64_t word = 0;

	switch (net_draw(4)) {
	case 0: /* Shorter, or longer than it is. */
		entry->data_bytes = net_draw(TALK_DATA_BYTES + 1);
		break;
	case 1:
		for (uint32_t i = 0; i < entry->data_bytes; i++)
			entry->data[i] = (uint8_t)net_draw(256);
		break;
	case 2:
		entry->data[at] ^= (uint8_t)(1u << net_draw(8));
		break;
	default:
		at &= net_draw(2) ? ~7u : ~3u;
		at = ZI_MIN(at, (uint32_t)(TALK_DATA_BYTES - sizeof(word)));
		memcpy(&word, &entry->data[at], sizeof(word));
		word = lie_word(word);
		memcpy(&entry->data[at], &word, net_draw(2) ? 4 : 8);
		entry->data_bytes = ZI_MAX(entry->data_bytes, net_draw(2) ? at : 0);
	}
}

static inline void lie_field(struct talk_entry *entry)
{
	switch (net_draw(entry->data_bytes ? 14 : 8)) {
	case 0:
		entry->what = (uint8_t)net_draw(28);
		break;
	case 1:
		entry->unit = (uint32_t)lie_word(entry->unit);
		break;
	case 2:
		entry->subgroup = (uint32_t)lie_word(entry->subgroup);
		break;
	case 3:
		entry->micro = (uint32_t)lie_word(entry->micro);
		break;
	case 4:
		entry->piece = (uint32_t)lie_word(entry->piece);
		break;
	case 5:
		entry->step = (int64_t)lie_word((uint64_t)entry->step);
		break;
	case 6:
		if (entry->kind == TALK_PULL)
			entry->bytes = 1 + lie_word(entry->bytes) % TALK_PULL_BYTES_MAX;
		else if (entry->kind != TALK_REFUSED)
			entry->tag = lie_word(entry->tag);
		break;
	case 7:
		entry->error = -(int32_t)net_draw(TALK_ERRNO_MAX + 1);
		if (entry->kind == TALK_REFUSED && !entry->error)
			entry->error = -EIO;
		break;
	default:
		lie_data(entry);
	}
}

/* Bytes that came; they are whole words of whatever they are. */
static inline void lie_bytes(struct net_worker *worker, const struct talk_entry *entry)
{
	char *bytes = worker->slab + entry->offset_bytes;
	uint64_t at, word;

	for (uint32_t i = 1 + net_draw(4); i > 0; i--) {
		/* What is at the beginning is mostly what is looked at. */
		uint64_t most = net_draw(4) ? ZI_MIN(entry->bytes, 4096ull) : entry->bytes;

		at = net_draw((uint32_t)most) & ~7ull;
		if (at + sizeof(word) > entry->bytes)
			continue;
		memcpy(&word, bytes + at, sizeof(word));
		word = lie_word(word);
		memcpy(bytes + at, &word, net_draw(2) ? 4 : 8);
	}
}

static inline uint32_t lie(struct net_worker *worker, struct talk_entry *entry)
{
	static const uint8_t others[] = { TALK_ROUND, TALK_PULL,    TALK_READY,
		                          TALK_WHY,   TALK_BECAUSE, TALK_BYE };

	if (entry->node != lies.node || net.entry_count < lies.from ||
	    (lies.is_single && (entry->kind != lies.kind || entry->what != lies.what)) ||
	    net_draw(lies.often))
		return 1;
	lies.count++;
	if (entry->kind == TALK_CAME) {
		lie_bytes(worker, entry);
		return 1;
	}
	if (entry->kind == TALK_GONE)
		return 1; /* The own worker's word. */
	switch (net_draw(16)) {
	case 0:
		return entry->kind == TALK_REFUSED;
	case 1:
		return entry->kind == TALK_REFUSED ? 1 : 2;
	case 2:
		if (entry->kind != TALK_REFUSED)
			entry->kind = others[net_draw(ZI_COUNT_OF(others))];
		if (entry->kind == TALK_PULL)
			entry->bytes = ZI_MAX(entry->bytes, 1ull);
		return 1;
	default:
		for (uint32_t i = net_draw(4) ? 1 : 1 + net_draw(6); i > 0; i--)
			lie_field(entry);
		return 1;
	}
}
