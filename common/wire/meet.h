/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks of one node meet: each says that it has come, and waits until others have, until the
 * daemon declares the group broken, or until a deadline. Floor 1; belongs to the thread that makes
 * the group's calls.
 *
 * Everything that is waited for is a word that one member alone writes and that only grows. Who has
 * come late enough to have let others fall asleep wakes them: a waiter raises `sleeping` and then
 * looks once more; a writer stores its word and then looks at `sleeping`. With a full fence between
 * the two steps on both sides one of them sees the other (tests/model/meet.pml). The daemon's
 * verdict is a word that every sleeper waits on as well.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/wire/board.h"

struct zi_meet {
	struct zi_board_member *members; /* (member_count,) the board */
	const struct zi_line *verdict;   /* 0: the group stands; else it is broken, by -value */
	const struct zi_line *spin_us;   /* how long waiting may burn a CPU; 0: not at all */
	/* The same of a thread that waits while another one of this member computes; NULL: 0. */
	const struct zi_line *beside_us;
	/* Whether there is still a daemon to give a verdict: asked before a sleep and every second
	 * of it; waiting ends with its error. NULL: nobody asks. */
	int (*look)(void *arg);
	void *look_arg;
	uint32_t member_count;
	uint32_t self;
};

/* ---- saying ---- */

/* Says that this member calls @call, number @sequence, with up to ZI_BOARD_INLINE_BYTES of data; it
 * has @unseen calls before that yet to look at. */
void zi_meet_post(struct zi_meet *meet, uint32_t sequence, uint32_t unseen,
                  const struct zi_board_call *call, uint64_t staging, const void *payload,
                  uint32_t payload_bytes);
/* Stores a word of this member's, for all members or for @member alone. */
void zi_meet_tell(struct zi_meet *meet, uint32_t *word, uint32_t value);
void zi_meet_tell_one(struct zi_meet *meet, uint32_t member, uint32_t *word, uint32_t value);

/* ---- looking ---- */

/* What @member posted as @sequence. */
static inline const struct zi_board_post *zi_meet_post_of(const struct zi_meet *meet,
                                                          uint32_t member, uint32_t sequence)
{
	return &meet->members[member].posts[sequence % ZI_BOARD_SLOTS];
}
/* Its data, of @payload_bytes in all. */
const void *zi_meet_payload_of(const struct zi_meet *meet, uint32_t member, uint32_t sequence,
                               uint32_t payload_bytes);
/* Of one that is ZI_BOARD_REFUSED: why. A peer's text: cut, and such as can be printed. */
struct zi_text zi_meet_reason_of(const struct zi_meet *meet, uint32_t member, uint32_t sequence);
/* 0, or the negative errno by which the group is broken. */
static inline int zi_meet_verdict(const struct zi_meet *meet)
{
	return -(int)zi_line_load(meet->verdict);
}
/* The load's acquire pairs with the writer's release. */
static inline uint32_t zi_meet_load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
/* Words count on over 2^32. */
static inline bool zi_meet_has_come(const uint32_t *word, uint32_t value)
{
	return (int32_t)(zi_meet_load(word) - value) >= 0;
}

/* ---- waiting ---- */

/* Until @word is at least @value. */
struct zi_meet_want {
	struct zi_meet *meet; /* NULL: a word of this process's own */
	const uint32_t *word;
	uint32_t value;
};

#define ZI_MEET_WANTS_MAX 64u

struct zi_meet_wants {
	struct zi_meet_want wants[ZI_MEET_WANTS_MAX];
	uint32_t count;
	/* Words that are looked at once more before a sleep, and do not end it: their writer looks
	 * whether anybody sleeps (zi_meet_glance()). */
	struct zi_meet_want glances[ZI_MEET_WANTS_MAX];
	uint32_t glance_count;
	/* A word of this process's own; waiting ends when it is not 0. NULL: nothing stops it. Only
	 * with wants of one group. */
	const uint32_t *stop;
	bool is_cut;    /* there were more: waiting ends soon, so that they are looked at */
	bool is_beside; /* who waits does so beside a thread that computes: zi_meet.beside_us */
};

/* For a look: what is beyond the count, three KiB, is never read. */
static inline void zi_meet_wants_clear(struct zi_meet_wants *wants)
{
	wants->count = wants->glance_count = 0;
	wants->stop = NULL;
	wants->is_cut = wants->is_beside = false;
}
/* Adds one, or says that there were more. */
void zi_meet_want(struct zi_meet_wants *wants, struct zi_meet *meet, const uint32_t *word,
                  uint32_t value);
/* Adds one that no sleep begins after, but that wakes nobody. Of more than ZI_MEET_WANTS_MAX the
 * rest is left out. */
void zi_meet_glance(struct zi_meet_wants *wants, const uint32_t *word, uint32_t value);

/*
 * Until one of @wants, of which there is at least one, has come, one of their groups is broken, or
 * the wants' `stop` is set; may also return for nothing. @sleeping: raised as well while this
 * thread sleeps; or NULL.
 * Return: 0, -ETIMEDOUT, what `look` says.
 */
int zi_meet_wait(const struct zi_meet_wants *wants, struct zi_line *sleeping, uint64_t deadline_ns);
