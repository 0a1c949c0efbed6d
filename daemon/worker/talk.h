/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemons of a job's nodes say to each other while it trains, through zinf-net: entries of
 * one length, and pulled bytes. Floor 3; between a daemon and its worker, within one build.
 *
 *   daemon         its worker           the other's worker        the other's daemon
 *   ROUND, …  ──▶  ────────────────────────────────────────────▶  ──▶ ROUND, …
 *
 *   PULL      ──▶  begins to receive, then asks ───────────────▶  ──▶ PULL
 *                                       ◀─────────────────── takes it from there ◀── SERVE
 *   CAME      ◀──  all is there         all has gone              ──▶ GONE
 *   REFUSED   ◀──  ◀──────────────────────────────────────────── ◀── REFUSED
 *
 * Entries of one daemon to another come in the order in which they were sent; CAME, REFUSED and
 * GONE come when they come, each once for its PULL or SERVE, or the talk ends first. Where bytes
 * lie each side says for itself: places are never another node's. Who serves decides whether, and
 * what.
 *
 * Memory of a pull is the worker's from PULL to CAME or REFUSED, that of a SERVE from there to
 * GONE, and all of it until the talk is over, where that comes first.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum talk_kind {
	TALK_ROUND = 1, /* a vote: `tag` is the round's number */
	TALK_PULL = 2,  /* `bytes` are asked for; to whom it comes: they are to be served */
	TALK_SERVE =
		3,     /* a PULL that came, by its tag, is answered: from there, `bytes` as asked */
	TALK_CAME = 4, /* a PULL's bytes are there */
	TALK_REFUSED = 5, /* a PULL is answered with `error`; data: why */
	TALK_GONE = 6,    /* what was served is not needed any more */
	TALK_READY = 7,   /* something may be pulled */
	TALK_WHY = 8,     /* what keeps it? */
	TALK_BECAUSE = 9, /* that does */
	TALK_BYE = 10,    /* nothing more comes from here; of a rank: it left, or (error) died */
	_TALK_KIND_COUNT,
};

#define TALK_DATA_BYTES 192u
/* Of one pull; what is longer is pulled in pieces. */
#define TALK_PULL_BYTES_MAX (16ull << 20)
/* PULLs to one node that are not answered yet. */
#define TALK_CREDIT 64u
/* Entries to one node that the worker has not taken yet. */
#define TALK_QUEUE 64u
/* Entries of one message. */
#define TALK_BATCH_MAX 16u
/* Errors on their way are 0 or such: Linux has none beyond. */
#define TALK_ERRNO_MAX 4095

/* What came from another node is hearsay, but for kind, node and data_bytes, and the words of CAME,
 * REFUSED and GONE that are the own side's: tag, slab, offset_bytes, bytes. */
struct talk_entry {
	uint8_t kind;  /* enum talk_kind */
	uint8_t what;  /* the daemons' */
	uint16_t node; /* the other one */
	int32_t error; /* 0 or -errno; below 0 of REFUSED */
	uint64_t tag;  /* a pull's: none of those to one node that are not answered has the same */
	uint32_t unit, subgroup, micro, piece; /* the daemons' */
	int64_t step;                          /* so */
	uint64_t offset_bytes, bytes;          /* PULL, SERVE, CAME, GONE: where, in … */
	uint32_t slab;                         /* … NET_SLAB_TALK or NET_SLAB_PARAM */
	uint32_t data_bytes;                   /* of `data`; the rest of it is 0 */
	uint8_t data[TALK_DATA_BYTES];
};
static_assert(sizeof(struct talk_entry) == 256, "whole");

/* Kinds that a daemon gives to its worker, and that it gets. */
static inline bool talk_kind_is_said(uint32_t kind)
{
	return kind >= TALK_ROUND && kind < _TALK_KIND_COUNT && kind != TALK_CAME &&
	       kind != TALK_GONE;
}
static inline bool talk_kind_is_heard(uint32_t kind)
{
	return kind >= TALK_ROUND && kind < _TALK_KIND_COUNT && kind != TALK_SERVE;
}
