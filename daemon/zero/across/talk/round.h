/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds: what the nodes of a job decide together. Each casts a vote, with some bytes, and when all
 * have, each has all votes; what follows from them is a pure function of these, and so the same on
 * all nodes. Floor 5, shard thread; knows neither worker nor job.
 *
 * Rounds are numbered, and all nodes hold them in one order: each is a step of the job's state
 * machine. A node that votes for something else under a number has come another way.
 *
 *   ended ◀─────── at most ROUND_WINDOW ───────▶
 *   … n-1 │ n: open, until all have voted │ n+1 … cast │   this node has voted up to here,
 *                                                          and so has each other one: heard[]
 *
 * Votes of one node come in order, so rounds end in order.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "daemon/worker/subtree.h"
#include "daemon/worker/talk.h"

/* Open at a time: who has voted may go on to what needs nobody. */
#define ROUND_WINDOW 8u
/* Others may have ended all that this node has voted in, and have voted as far again. */
#define ROUND_RING (2 * ROUND_WINDOW)

/* One more with each change of what is voted, or of what a vote says: daemons of two builds would
 * come to different rounds, and blame each other's ranks. The first vote says it (model.c). Before
 * it was said it was 0. */
#define ROUND_VERSION 6u

enum round_kind {
	ROUND_MODEL = 1,      /* all ranks have materialized: configuration, what is stored */
	ROUND_LAYOUT = 2,     /* how it trains, and a digest of the model */
	ROUND_SEARCH = 3,     /* where two models differ */
	ROUND_MADE = 4,       /* memory is there, or is not */
	ROUND_WRITE_END = 5,  /* parameters were written */
	ROUND_COMMIT = 6,     /* zero_commit() */
	ROUND_STEP_BEGIN = 7, /* the first rank has begun a step; its options */
	ROUND_STEP = 8,       /* all ranks have called step() */
	ROUND_BARRIER = 9,
	ROUND_SUMMED = 10,    /* all sums of a step in memory alone are there */
	ROUND_PREPARED = 11,  /* a commit is written, */
	ROUND_COMMITTED = 12, /* and in the catalog */
	ROUND_RESUME = 13,    /* the commits that a node has */
	ROUND_WRITTEN = 14,   /* with a pool: each node has its part of what was written */
	/* what to go on from was chosen, and which it is; then, whether a node is to hold what it
	 * does not, and has room for it; */
	ROUND_HEAL = 15,
	ROUND_HEALED = 16, /* it has it */
	ROUND_USED = 19,   /* which parameters ranks have used in a step, a part of them */
	_ROUND_KIND_COUNT,
};

struct round;
/* All nodes have voted: @error 0. Or there will be no outcome: @error and @text, @round without all
 * votes. It may cast others. */
typedef void (*round_done_fn)(void *arg, const struct round *round, int error,
                              const struct zi_text *text);

struct round_vote {
	int error; /* 0; or -errno: this node cannot, and data are a text */
	uint32_t data_bytes;
	uint8_t data[TALK_DATA_BYTES];
};

struct round {
	uint64_t number;
	enum round_kind kind;
	struct round_vote *votes; /* (node_count,) */
	bool is_void;             /* nodes have voted for different kinds */
	/* of the own vote */
	round_done_fn done;
	void *arg;
};

struct rounds {
	uint32_t node, node_count;
	uint64_t ended, cast;
	uint64_t heard[SUBTREE_NODES_MAX]; /* of each other node */
	struct round ring[ROUND_RING];
	struct round_vote *votes; /* (ROUND_RING × node_count,) */
	bool is_ending;           /* somebody is told of one */
	bool is_over;             /* no round has an outcome any more */
};

/* Conditions of rounds_hear(). */
enum { _ROUND_E_SUCCESS, ROUND_E_DIFFERS };

/* @rounds is zero. Return: 0; -ENOMEM. */
int rounds_init(struct rounds *rounds, uint32_t node, uint32_t node_count);
/* None that this node has cast may be open. */
void rounds_deinit(struct rounds *rounds);

/* This node votes. @vote: copied; @ret_entry: what all others are to hear. Precondition:
 * rounds_has_room(). Return: 0; ROUND_E_DIFFERS, @ret_other has voted for another kind: then there
 * is nothing to be said, and no outcome any more. */
int rounds_cast(struct rounds *rounds, enum round_kind kind, const struct round_vote *vote,
                round_done_fn done, void *arg, struct talk_entry *ret_entry, uint32_t *ret_other);
bool rounds_has_room(const struct rounds *rounds);
/* @node has voted. Return: 0; ROUND_E_DIFFERS, @ret_other has voted for another kind; -EPROTO it
 * makes no sense, with @text. */
int rounds_hear(struct rounds *rounds, uint32_t node, const struct talk_entry *entry,
                struct zi_text *text, uint32_t *ret_other);
/* Tells of those that are complete. Called within itself it does nothing. */
void rounds_end(struct rounds *rounds);
/* All that this node has cast and that are open end without an outcome. None has one after this. */
void rounds_fail(struct rounds *rounds, int error, const struct zi_text *text);

/* Of the oldest that this node has cast: nodes that have not voted: bits; 0: none is open. */
uint64_t rounds_silent(const struct rounds *rounds, uint64_t *ret_number);
/* Whether this node has cast one that @node has not voted in. */
bool rounds_waits_for(const struct rounds *rounds, uint32_t node);
/* What @node has voted for under @number: 0 not yet, or it is over. */
uint32_t rounds_kind_of(const struct rounds *rounds, uint32_t node, uint64_t number);
/* This node cannot: @error and @text instead of data. */
void round_vote_refuse(struct round_vote *vote, int error, const struct zi_text *text);
/* The first node that cannot; its error and text. Return: 0, or its error. */
int round_refusal(const struct round *round, uint32_t node_count, struct zi_text *text,
                  uint32_t *ret_node);
/* The first node whose bytes are not those of node 0; @node_count: none. */
uint32_t round_odd_one(const struct round *round, uint32_t node_count);
/* What people call it: "step". */
const char *round_kind_name(uint32_t kind);
