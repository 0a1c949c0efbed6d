/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks of one node meet; see meet.h. Floor 2. */
#include "libclient/coll/meet.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"

/* Looks between two looks at the clock: about 2 us. */
#define MEET_LOOKS_PER_CLOCK 64u
#define MEET_SPIN_US_MAX     10000u
/* Where ranks outnumber CPUs a waiter gives its CPU away this often before it sleeps: a switch
 * costs 2 us, a sleep and a wake-up 4 us on the same CPU and 40 us on an idle one. */
#define MEET_YIELDS 32u
/* A sleep is no longer: then the daemon is looked for. */
#define MEET_SLEEP_NS ZI_NS_PER_S

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static inline uint32_t load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static int verdict_of(const struct zi_meet *meet)
{
	return -(int)zi_line_load(meet->verdict);
}

/* ---- saying ---- */

/* After @word was stored: wakes who sleeps, on that word. */
static void wake(const struct zi_meet *meet, uint32_t *word)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the one in sleep_on() */
	for (uint32_t i = 0; i < meet->member_count; i++) {
		if (i == meet->self || !zi_line_load(&meet->members[i].sleeping))
			continue;
		(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		return;
	}
}

void zi_meet_post(struct zi_meet *meet, uint32_t sequence, const struct zi_board_call *call,
                  const void *payload, uint32_t payload_bytes)
{
	struct zi_board_member *self = &meet->members[meet->self];
	struct zi_board_post *post = &self->posts[sequence % 2];

	assert(payload_bytes <= ZI_BOARD_INLINE_BYTES);
	post->call = *call;
	post->payload_bytes = payload_bytes;
	if (payload_bytes)
		memcpy(payload_bytes <= ZI_BOARD_PAYLOAD_BYTES ? post->payload
		                                               : self->inlined[sequence % 2],
		       payload, payload_bytes);
	__atomic_store_n(&post->sequence, sequence, __ATOMIC_RELEASE);
	wake(meet, &post->sequence);
}

const void *zi_meet_payload_of(const struct zi_meet *meet, uint32_t member, uint32_t sequence)
{
	const struct zi_board_member *other = &meet->members[member];
	const struct zi_board_post *post = &other->posts[sequence % 2];

	return post->payload_bytes <= ZI_BOARD_PAYLOAD_BYTES ? post->payload
	                                                     : other->inlined[sequence % 2];
}

void zi_meet_finish(struct zi_meet *meet, uint32_t sequence)
{
	struct zi_line *finished = &meet->members[meet->self].finished;

	zi_line_store(finished, sequence);
	wake(meet, &finished->value);
}

/* ---- waiting ---- */

/* 0: @word is @value by now. */
static int spin_on(const struct zi_meet *meet, const uint32_t *word, uint32_t value)
{
	uint64_t end_ns = 0;

	for (;;) {
		uint32_t spin_us = ZI_MIN(zi_line_load(meet->spin_us), MEET_SPIN_US_MAX);

		if (!spin_us)
			break;
		for (uint32_t i = 0; i < MEET_LOOKS_PER_CLOCK; i++) {
			if (load(word) == value)
				return 0;
			relax();
		}
		if (!end_ns)
			end_ns = zi_clock_deadline_ns(spin_us * ZI_NS_PER_US);
		else if (zi_clock_now_ns() >= end_ns)
			return -EAGAIN;
	}
	for (uint32_t i = 0; i < MEET_YIELDS; i++) {
		if (load(word) == value)
			return 0;
		(void)sched_yield();
	}
	return -EAGAIN;
}

/* Sleeps while neither @word, which was @seen, nor the verdict changes. */
static void sleep_on(struct zi_meet *meet, const uint32_t *word, uint32_t seen,
                     uint64_t deadline_ns)
{
	uint64_t until_ns = ZI_MIN(deadline_ns, zi_clock_deadline_ns(MEET_SLEEP_NS));
	struct zi_line *sleeping = &meet->members[meet->self].sleeping;
	struct futex_waitv waits[2] = {
		{ .val = seen, .uaddr = (uintptr_t)word, .flags = FUTEX_32 },
		{ .val = 0, .uaddr = (uintptr_t)&meet->verdict->value, .flags = FUTEX_32 },
	};
	struct timespec until = { .tv_sec = (time_t)(until_ns / ZI_NS_PER_S),
		                  .tv_nsec = (long)(until_ns % ZI_NS_PER_S) };

	zi_line_store(sleeping, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the one in wake() */
	/* The kernel compares both words again, so what came in between is not slept over. */
	(void)syscall(SYS_futex_waitv, waits, ZI_COUNT_OF(waits), 0, &until, CLOCK_MONOTONIC);
	zi_line_store(sleeping, 0);
}

static int wait_for(struct zi_meet *meet, const uint32_t *word, uint32_t value,
                    uint64_t deadline_ns)
{
	for (;;) {
		uint32_t seen;
		int r;

		if (spin_on(meet, word, value) == 0)
			return 0;
		r = verdict_of(meet);
		if (r)
			return r;
		if (zi_clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		r = meet->look ? meet->look(meet->look_arg) : 0;
		if (r)
			return r;
		seen = load(word);
		if (seen == value)
			return 0;
		sleep_on(meet, word, seen, deadline_ns);
	}
}

int zi_meet_wait_post(struct zi_meet *meet, uint32_t member, uint32_t sequence,
                      uint64_t deadline_ns)
{
	return wait_for(meet, &meet->members[member].posts[sequence % 2].sequence, sequence,
	                deadline_ns);
}

int zi_meet_wait_finished(struct zi_meet *meet, uint32_t sequence, uint64_t deadline_ns)
{
	for (uint32_t i = 0; i < meet->member_count; i++) {
		int r = 0;

		/* A member that has gone on to the next call has finished this one. */
		if (i != meet->self)
			r = wait_for(meet, &meet->members[i].finished.value, sequence, deadline_ns);
		if (r)
			return r;
	}
	return 0;
}
