/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a verdict is a word that whoever sleeps on it hears of at once, however many there are.
 * Method: threads that sleep on the word without a deadline; the verdict is given when the kernel
 * has all of them in its queue.
 */
#include <criterion/criterion.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/wire/verdict.h"

#define SLEEPERS 4u

/* Where the verdict wakes nobody the test hangs, and is ended. */
TestSuite(verdict, .timeout = 20);

static struct zi_line verdict;
static uint32_t heard_count;          /* atomic */
static uint32_t thread_ids[SLEEPERS]; /* atomic */

static void *sleep_main(void *arg)
{
	uint32_t *thread_id = arg;

	__atomic_store_n(thread_id, (uint32_t)gettid(), __ATOMIC_RELEASE);
	while (!zi_line_load(&verdict))
		(void)syscall(SYS_futex, &verdict.value, FUTEX_WAIT, 0, NULL, NULL, 0);
	__atomic_fetch_add(&heard_count, zi_line_load(&verdict) == 32, __ATOMIC_RELAXED);
	return NULL;
}

/* Whether the kernel says that a thread of this process sleeps in futex(2). */
static bool is_asleep(uint32_t thread_id)
{
	char path[64], words[64] = "";
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%u/syscall", thread_id); /* Fits. */
	file = fopen(path, "re");
	cr_assert_not_null(file);
	(void)fgets(words, sizeof(words), file); /* "running": not asleep */
	(void)fclose(file);
	return strtol(words, NULL, 10) == SYS_futex;
}

Test(verdict, all_who_sleep_hear_of_it)
{
	pthread_t threads[SLEEPERS];

	for (uint32_t i = 0; i < SLEEPERS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, sleep_main, &thread_ids[i]), 0);
	for (uint32_t i = 0; i < SLEEPERS; i++) {
		uint32_t thread_id;

		while (!(thread_id = __atomic_load_n(&thread_ids[i], __ATOMIC_ACQUIRE)) ||
		       !is_asleep(thread_id))
			(void)sched_yield();
	}
	zi_verdict_give(&verdict, 32);
	for (uint32_t i = 0; i < SLEEPERS; i++)
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
	cr_assert_eq(heard_count, SLEEPERS);
}
