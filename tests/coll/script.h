/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a case of check_coll is: ranks, groups of them, and calls in the order in which every rank
 * makes those of its groups. Drawn from a seed, or read from the words that a failure prints.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/types.h"

#define SCRIPT_RANKS_MAX  9u
#define SCRIPT_GROUPS_MAX 4u
#define SCRIPT_CALLS_MAX  48u
#define SCRIPT_CMA_LOST   16u /* the first bit of those */

enum script_operation {
	SCRIPT_BARRIER,
	SCRIPT_ALL_REDUCE,
	SCRIPT_REDUCE,
	SCRIPT_REDUCE_SCATTER,
	SCRIPT_ALL_GATHER,
	SCRIPT_BROADCAST,
	SCRIPT_GATHER,
	SCRIPT_SCATTER,
	SCRIPT_ALL_TO_ALL,
	SCRIPT_ALL_TO_ALLV,
	SCRIPT_SEND,  /* from the root to the member after it */
	SCRIPT_BATCH, /* what all_to_allv sends to others, in messages */
	_SCRIPT_OPERATION_COUNT,
};

/* What the elements are like. */
enum script_style {
	SCRIPT_ORDINARY, /* numbers that training sees */
	SCRIPT_EDGE,     /* zeros of both signs, denormals, the largest, infinities, NaNs */
	SCRIPT_ANY,      /* any bits */
	_SCRIPT_STYLE_COUNT,
};

struct script_call {
	enum script_operation operation;
	enum zi_dtype dtype;
	enum zi_reduce_op reduce_op; /* of those that join; else 0 */
	enum script_style style;
	uint32_t group;         /* index */
	uint32_t root;          /* member */
	uint64_t element_count; /* as the operation counts; uneven blocks have up to so many each */
	uint64_t seed;          /* of the data, and of uneven counts */
	/* By rank: whose source, whose target lies outside the arenas. */
	uint32_t sources_outside, targets_outside;
	uint32_t skew; /* elements by which buffers miss their page */
	bool is_in_place;
	bool is_async;
};

struct script {
	uint32_t ranks;
	uint32_t group_count;               /* the first is that of all ranks */
	uint32_t groups[SCRIPT_GROUPS_MAX]; /* bitmaps of ranks */
	uint32_t call_count;
	uint64_t arena_bytes;
	uint32_t nodes; /* two bits for each rank: which of four nodes it is on */
	/* By rank: who reads peers' private memory, and lets its own be read, however short the
	 * call; from SCRIPT_CMA_LOST on: whose word for that is wrong from the middle of the case
	 * on (over threads alone). */
	uint32_t cma;
	uint32_t numa; /* so: on which NUMA node its arena is said to lie (over threads alone) */
	struct script_call calls[SCRIPT_CALLS_MAX];
};

/* Case @round of @seed; with @ranks not 0, of so many ranks. */
void script_draw(struct script *script, uint64_t seed, uint64_t round, uint32_t ranks);
#define SCRIPT_NODES_MAX 4u
/* Puts ranks on 1 to 4 nodes. */
void script_spread(struct script *script, uint64_t seed);
static inline uint32_t script_node_of(const struct script *script, uint32_t rank)
{
	return script->nodes >> 2 * rank & 3u;
}
static inline bool script_has_cma(const struct script *script, uint32_t rank)
{
	return script->cma >> rank & 1u;
}
static inline uint8_t script_numa_of(const struct script *script, uint32_t rank)
{
	return script->numa >> 2 * rank & 3u;
}
/* Leaves out what needs staging, messages or a thread for calls that nobody waits for. */
void script_simplify(struct script *script);
/* As words that script_read_word() takes, one after the other; they need no quotes. */
void script_print(const struct script *script, FILE *file);
/* "ranks=…", "arena=…", "nodes=…", "numa=…", "cma=…", "group=…" or "call=…": added to @script.
 * -EINVAL: no such word. */
int script_read_word(struct script *script, const char *word);
/* Whether its numbers fit together, as those of a case that was typed may not. */
bool script_is_sound(const struct script *script);

uint32_t script_member_count(const struct script *script, const struct script_call *call);
/* Which member of @call's group @rank is; UINT32_MAX: none. */
uint32_t script_member_of(const struct script *script, const struct script_call *call,
                          uint32_t rank);
bool script_is_joining(enum script_operation operation);
/* Whether the operation may have its result where its source is. */
bool script_has_in_place(enum script_operation operation);
/* splitmix64, Vigna 2015: one number from another. */
uint64_t script_mix(uint64_t number);
