/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what was streamed past the caches is there for whoever is told of it next: stores like
 * these are ordered with no other store but by a fence. Method: a thread streams two lines and
 * tells their number, over and over; another one, on another CPU, looks at them when it is told.
 * (Zen 5 without the fence: up to every second time it sees those of before; tests/broken.) Where
 * there is one CPU alone nothing can be seen.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <string.h>

#include "common/base/clock.h"
#include "kernels/combine.h"
#include "kernels/copy.h"
#include "tests/kernels/data.h"

#define WORDS      32u /* two lines: what waits longest in the CPU to be written */
#define ROUNDS_MAX 200000u
/* Rounds are as fast as two CPUs meet; on one that others use as well they are few. */
#define ROUNDS_NS (2 * ZI_NS_PER_S)

TestSuite(fence, .timeout = 120);

static struct {
	alignas(4096) float line[WORDS];
	alignas(256) uint32_t told;
	alignas(256) uint32_t seen; /* round, answered */
	alignas(256) uint32_t old_count;
	void (*stream)(void *target, const float *values);
} shared;

static void stream_copy(void *target, const float *values)
{
	kern_copy(&target, 1, values, sizeof(shared.line), true);
}

static void stream_sum(void *target, const float *values)
{
	static const float zeros[WORDS];
	const void *sources[2] = { values, zeros };

	kern_combine(&(struct kern_combine_run){ .targets = &target,
	                                         .sources = sources,
	                                         .target_count = 1,
	                                         .source_count = 2,
	                                         .element_count = WORDS,
	                                         .source_dtype = ZI_DTYPE_F32,
	                                         .target_dtype = ZI_DTYPE_F32,
	                                         .op = ZI_REDUCE_SUM,
	                                         .average = 0.5f,
	                                         .is_streaming = true });
}

static void await(const uint32_t *word, uint32_t value)
{
	for (uint32_t looks = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; looks++)
		if (looks % 4096 == 0)
			(void)sched_yield();
}

static void *look_main(void *arg)
{
	for (uint32_t round = 1; round <= ROUNDS_MAX; round++) {
		uint32_t told;

		while ((told = __atomic_load_n(&shared.told, __ATOMIC_ACQUIRE)) < round)
			;
		if (told == UINT32_MAX)
			break;
		for (uint32_t i = WORDS; i-- > 0;)
			if (shared.line[i] != (float)round) {
				shared.old_count++;
				break;
			}
		__atomic_store_n(&shared.seen, round, __ATOMIC_RELEASE);
	}
	return arg;
}

static void expect_no_old_line(void (*stream)(void *target, const float *values))
{
	uint64_t end_ns = zi_clock_deadline_ns(ROUNDS_NS);
	pthread_t thread;
	float values[WORDS];

	memset(&shared, 0, sizeof(shared));
	cr_assert_eq(pthread_create(&thread, NULL, look_main, NULL), 0);
	for (uint32_t round = 1; round <= ROUNDS_MAX; round++) {
		for (uint32_t i = 0; i < WORDS; i++)
			values[i] = (float)round;
		stream(shared.line, values);
		__atomic_store_n(&shared.told, round, __ATOMIC_RELEASE);
		await(&shared.seen, round);
		if (round % 256 == 0 && zi_clock_now_ns() >= end_ns)
			break;
	}
	__atomic_store_n(&shared.told, UINT32_MAX, __ATOMIC_RELEASE);
	(void)pthread_join(thread, NULL);
	cr_assert_eq(shared.old_count, 0, "%u times the lines of before were seen",
	             shared.old_count);
}

Test(fence, a_copy_is_there_when_it_is_told)
{
	expect_no_old_line(stream_copy);
}

Test(fence, a_sum_is_there_when_it_is_told)
{
	expect_no_old_line(stream_sum);
}
