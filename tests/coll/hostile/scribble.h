/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile rank of a case: a thread that changes words, by a little or entirely, of all memory
 * that its process shares with its peers and the workers of its node: boards, and slabs with their
 * cards, frames, pieces, lines and letters. What it writes, and in which order, a seed decides.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

#define SCRIBBLE_AREAS_MAX 16u

enum scribble_where {
	SCRIBBLE_ALL,
	SCRIBBLE_SLABS, /* what members post stays as it is */
	SCRIBBLE_MAIL,  /* lines and letters of messages alone */
	_SCRIBBLE_WHERE_COUNT,
};

/* Which word of so many is written next. */
typedef uint64_t (*scribble_pick_fn)(uint64_t random, uint64_t word_count);

struct scribble_area {
	uint32_t *words;
	uint64_t word_count;
	scribble_pick_fn pick;
};

struct scribbler {
	struct scribble_area areas[SCRIBBLE_AREAS_MAX];
	uint32_t area_count;
	uint64_t seed;
	uint32_t is_over; /* atomic */
	pthread_t thread;
};

/* On what is mapped now. There is some of it, and a thread can be had, or the process ends. */
void scribble_start(struct scribbler *scribbler, enum scribble_where where, uint64_t seed);
void scribble_stop(struct scribbler *scribbler);
