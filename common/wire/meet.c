/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks of one node meet; see meet.h. Floor 1. */
#include "common/wire/meet.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/futex.h"
#include "common/base/utf8.h"

/* Looks between two looks at the clock: about 2 us. */
#define MEET_LOOKS_PER_CLOCK 64u
#define MEET_SPIN_US_MAX     10000u
/* Where ranks outnumber CPUs a waiter gives its CPU away this often before it sleeps: a switch
 * costs 2 us, a sleep and a wake-up 4 us on the same CPU and 40 us on an idle one. */
#define MEET_YIELDS 32u
/* A sleep that waits for members is no longer: then the daemon is looked for. */
#define MEET_SLEEP_NS ZI_NS_PER_S
/* How long a wait for more words than a sleep can name sleeps. */
#define MEET_CUT_NS ZI_NS_PER_MS
/* Each want's word and its group's verdict. */
#define MEET_SLEEP_WORDS (2u * ZI_MEET_WANTS_MAX)

static_assert(MEET_SLEEP_WORDS <= FUTEX_WAITV_MAX, "one system call waits for all");

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* ---- saying ---- */

/* After @word was stored: wakes who sleeps, on that word. */
static void wake(const struct zi_meet *meet, const uint32_t *word)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the one in sleep_on() */
	for (uint32_t i = 0; i < meet->member_count; i++) {
		if (i == meet->self || !zi_line_load(&meet->members[i].sleeping))
			continue;
		zi_futex_wake(word);
		return;
	}
}

void zi_meet_post(struct zi_meet *meet, uint32_t sequence, uint32_t unseen,
                  const struct zi_board_call *call, uint64_t staging, const void *payload,
                  uint32_t payload_bytes)
{
	struct zi_board_member *self = &meet->members[meet->self];
	uint32_t slot = sequence % ZI_BOARD_SLOTS;
	struct zi_board_post *post = &self->posts[slot];

	assert(payload_bytes <= ZI_BOARD_INLINE_BYTES);
	post->call = *call;
	post->staging = staging;
	post->payload_bytes = (uint16_t)payload_bytes;
	post->unseen = (uint16_t)unseen;
	if (payload_bytes)
		memcpy(payload_bytes <= ZI_BOARD_PAYLOAD_BYTES ? post->payload
		                                               : self->inlined[slot],
		       payload, payload_bytes);
	zi_meet_tell(meet, &post->sequence, sequence);
}

void zi_meet_tell(struct zi_meet *meet, uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE); /* pairs with zi_meet_load() */
	wake(meet, word);
}

void zi_meet_tell_one(struct zi_meet *meet, uint32_t member, uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE); /* pairs with zi_meet_load() */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);         /* pairs with the one in sleep_on() */
	if (member != meet->self && zi_line_load(&meet->members[member].sleeping))
		zi_futex_wake(word);
}

const void *zi_meet_payload_of(const struct zi_meet *meet, uint32_t member, uint32_t sequence,
                               uint32_t payload_bytes)
{
	const struct zi_board_member *other = &meet->members[member];

	return payload_bytes <= ZI_BOARD_PAYLOAD_BYTES
	               ? other->posts[sequence % ZI_BOARD_SLOTS].payload
	               : other->inlined[sequence % ZI_BOARD_SLOTS];
}

struct zi_text zi_meet_reason_of(const struct zi_meet *meet, uint32_t member, uint32_t sequence)
{
	uint32_t payload_bytes = zi_meet_post_of(meet, member, sequence)->payload_bytes;
	struct zi_text reason = { "" };

	memcpy(reason.chars, zi_meet_payload_of(meet, member, sequence, payload_bytes),
	       ZI_MIN(payload_bytes, (uint32_t)sizeof(reason.chars) - 1));
	zi_utf8_clean(reason.chars);
	return reason;
}

/* ---- waiting ---- */

void zi_meet_want(struct zi_meet_wants *wants, struct zi_meet *meet, const uint32_t *word,
                  uint32_t value)
{
	if (wants->count == ZI_MEET_WANTS_MAX) {
		wants->is_cut = true;
		return;
	}
	wants->wants[wants->count++] = (struct zi_meet_want){ meet, word, value };
}

void zi_meet_glance(struct zi_meet_wants *wants, const uint32_t *word, uint32_t value)
{
	if (wants->glance_count < ZI_MEET_WANTS_MAX)
		wants->glances[wants->glance_count++] =
			(struct zi_meet_want){ .word = word, .value = value };
}

static bool has_any_glance_come(const struct zi_meet_wants *wants)
{
	for (uint32_t i = 0; i < wants->glance_count; i++)
		if (zi_meet_has_come(wants->glances[i].word, wants->glances[i].value))
			return true;
	return false;
}

static bool has_any_come(const struct zi_meet_wants *wants)
{
	for (uint32_t i = 0; i < wants->count; i++)
		if (zi_meet_has_come(wants->wants[i].word, wants->wants[i].value))
			return true;
	return false;
}

static bool is_stopped(const struct zi_meet_wants *wants)
{
	return wants->stop && zi_meet_load(wants->stop);
}

static bool is_any_broken(const struct zi_meet_wants *wants)
{
	for (uint32_t i = 0; i < wants->count; i++)
		if (wants->wants[i].meet && zi_meet_verdict(wants->wants[i].meet))
			return true;
	return false;
}

/* All groups of a process have the same word of the daemon's. */
static uint32_t spin_us_of(const struct zi_meet_wants *wants)
{
	for (uint32_t i = 0; i < wants->count; i++)
		if (wants->wants[i].meet) {
			const struct zi_meet *meet = wants->wants[i].meet;
			const struct zi_line *word =
				wants->is_beside ? meet->beside_us : meet->spin_us;

			return word ? ZI_MIN(zi_line_load(word), MEET_SPIN_US_MAX) : 0;
		}
	return 0;
}

/* Whether there is something to look at. */
static bool spin_on(const struct zi_meet_wants *wants)
{
	uint64_t end_ns = 0;

	for (uint32_t spin_us = spin_us_of(wants); spin_us; spin_us = spin_us_of(wants)) {
		for (uint32_t i = 0; i < MEET_LOOKS_PER_CLOCK; i += wants->count) {
			if (has_any_come(wants))
				return true;
			relax();
		}
		if (is_any_broken(wants) || is_stopped(wants))
			return true;
		if (!end_ns)
			end_ns = zi_clock_deadline_ns(spin_us * ZI_NS_PER_US);
		else if (zi_clock_now_ns() >= end_ns)
			return false;
	}
	for (uint32_t i = 0; i < MEET_YIELDS; i++) {
		if (has_any_come(wants))
			return true;
		(void)sched_yield();
	}
	return is_any_broken(wants) || is_stopped(wants);
}

static void raise_sleeping(const struct zi_meet_wants *wants, struct zi_line *sleeping,
                           uint32_t value)
{
	if (sleeping)
		zi_line_store(sleeping, value);
	for (uint32_t i = 0; i < wants->count; i++) {
		const struct zi_meet *meet = wants->wants[i].meet;

		if (meet && (i == 0 || wants->wants[i - 1].meet != meet))
			zi_line_store(&meet->members[meet->self].sleeping, value);
	}
}

/* Sleeps while no word of @wants, none of which had come, nor a verdict changes. */
static void sleep_on(const struct zi_meet_wants *wants, struct zi_line *sleeping,
                     uint64_t deadline_ns)
{
	struct futex_waitv waits[MEET_SLEEP_WORDS];
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / ZI_NS_PER_S),
		                  .tv_nsec = (long)(deadline_ns % ZI_NS_PER_S) };
	unsigned count = 0;

	for (uint32_t i = 0; i < wants->count; i++) {
		const struct zi_meet_want *want = &wants->wants[i];
		uint32_t seen = zi_meet_load(want->word);

		if ((int32_t)(seen - want->value) >= 0)
			return;
		waits[count++] = (struct futex_waitv){ .val = seen,
			                               .uaddr = (uintptr_t)want->word,
			                               .flags = FUTEX_32 };
		if (want->meet && (i == 0 || wants->wants[i - 1].meet != want->meet))
			waits[count++] = (struct futex_waitv){
				.val = 0,
				.uaddr = (uintptr_t)&want->meet->verdict->value,
				.flags = FUTEX_32
			};
	}
	if (wants->stop) {
		assert(count < MEET_SLEEP_WORDS);
		waits[count++] = (struct futex_waitv){ .val = 0,
			                               .uaddr = (uintptr_t)wants->stop,
			                               .flags = FUTEX_32 };
	}
	raise_sleeping(wants, sleeping, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the one in wake() */
	/* The kernel compares all words again, so what came in between is not slept over; nor is
	 * what whoever wrote it took for seen, as nobody slept. */
	if (!has_any_glance_come(wants))
		(void)syscall(SYS_futex_waitv, waits, count, 0, &until, CLOCK_MONOTONIC);
	raise_sleeping(wants, sleeping, 0);
}

/* All groups of a process have the same daemon. NULL: nobody's part of a board is waited for. */
static const struct zi_meet *any_meet(const struct zi_meet_wants *wants)
{
	for (uint32_t i = 0; i < wants->count; i++)
		if (wants->wants[i].meet)
			return wants->wants[i].meet;
	return NULL;
}

int zi_meet_wait(const struct zi_meet_wants *wants, struct zi_line *sleeping, uint64_t deadline_ns)
{
	const struct zi_meet *meet = any_meet(wants);
	uint64_t now_ns;
	int r = 0;

	assert(wants->count > 0);
	if (spin_on(wants))
		return 0;
	now_ns = zi_clock_now_ns();
	if (now_ns >= deadline_ns)
		return -ETIMEDOUT;
	if (meet && meet->look)
		r = meet->look(meet->look_arg);
	if (r)
		return r;
	if (wants->is_cut)
		deadline_ns = ZI_MIN(deadline_ns, now_ns + MEET_CUT_NS);
	else if (meet)
		deadline_ns = ZI_MIN(deadline_ns, now_ns + MEET_SLEEP_NS);
	sleep_on(wants, sleeping, deadline_ns);
	return 0;
}
