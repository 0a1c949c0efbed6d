/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Called by code that was compiled with -fsanitize-coverage=trace-pc, at every branch: a thread
 * gives its CPU away, or sleeps for a moment, now and then, so that whatever can come between two
 * steps of the engine does come.
 */
#include <sched.h>
#include <stdint.h>
#include <time.h>

#define JITTER_YIELD_EVERY 64u
#define JITTER_SLEEP_EVERY 1024u
#define JITTER_SLEEP_NS    30000l

void __sanitizer_cov_trace_pc(void);

static uint32_t thread_count; /* atomic */
static _Thread_local uint32_t state;

void __sanitizer_cov_trace_pc(void)
{
	if (!state)
		state = 2654435761u * __atomic_add_fetch(&thread_count, 1, __ATOMIC_RELAXED) | 1u;
	state ^= state << 13; /* xorshift32 of G. Marsaglia */
	state ^= state >> 17;
	state ^= state << 5;
	if (state % JITTER_SLEEP_EVERY == 0)
		(void)nanosleep(&(struct timespec){ .tv_nsec = JITTER_SLEEP_NS }, NULL);
	else if (state % JITTER_YIELD_EVERY == 0)
		(void)sched_yield();
}
