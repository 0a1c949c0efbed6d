/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double of futex(2) for programs whose ranks are threads (ld --wrap=syscall): who waits for
 * a word sleeps without an end, so that nobody is saved by the second after which meet.c looks for
 * the daemon; and whoever sleeps on although its word has changed is told, and the program ends
 * with 70; so it does when nobody falls asleep or wakes up any more. That a wake-up was forgotten
 * costs a second otherwise, and no test could see it. Who wakes others lets them run before it goes
 * on itself, now and then: what it should have done before is not there then.
 *
 * What each thread sleeps on is in a part of its own, which the watch alone reads besides: threads
 * get no order from it that a sanitizer would take for the engine's.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WATCH_LOOK_NS 100000000l
/* A word that has changed at so many looks in a row has woken nobody: a crowded machine may take
 * its time to run a thread, but it holds the watch up as well. */
#define WATCH_LOOKS_MAX 40u
/* Sleeps that are meant to be short are left alone. */
#define WATCH_SHORT_NS  500000000ll
#define WATCH_LOST_CODE 70
/* So many wake-ups of a thread to one after which the others run first. */
#define WATCH_NAP_EVERY 8u
#define WATCH_NAP_NS    100000l

struct sleeper {
	struct sleeper *next; /* of all threads there ever were */
	pthread_mutex_t mutex;
	struct futex_waitv words[FUTEX_WAITV_MAX];
	uint32_t count; /* 0: awake */
	uint32_t changed_looks;
};

static _Atomic(struct sleeper *) sleepers;
static uint32_t move_count; /* of all: sleeps begun and ended; atomic, and orders nothing */
static _Thread_local struct sleeper *own;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

/* ---- the watch ---- */

static bool has_changed(const struct sleeper *sleeper)
{
	for (uint32_t i = 0; i < sleeper->count; i++) {
		const uint32_t *word = (const uint32_t *)(uintptr_t)sleeper->words[i].uaddr;

		if (__atomic_load_n(word, __ATOMIC_RELAXED) != (uint32_t)sleeper->words[i].val)
			return true;
	}
	return false;
}

static void end_with(const char *words)
{
	printf("%s\n", words);
	(void)fflush(stdout);
	_exit(WATCH_LOST_CODE);
}

static void *watch_main(void *arg)
{
	const struct timespec pause = { .tv_nsec = WATCH_LOOK_NS };
	uint32_t seen = 0, still_looks = 0;

	for (;;) {
		uint32_t sleeper_count = 0, moves;

		(void)nanosleep(&pause, NULL);
		for (struct sleeper *s = atomic_load(&sleepers); s; s = s->next) {
			(void)pthread_mutex_lock(&s->mutex);
			s->changed_looks = has_changed(s) ? s->changed_looks + 1 : 0;
			if (s->changed_looks >= WATCH_LOOKS_MAX)
				end_with("a thread sleeps on although what it waits for has come: "
				         "nobody woke it");
			sleeper_count += s->count != 0;
			(void)pthread_mutex_unlock(&s->mutex);
		}
		moves = __atomic_load_n(&move_count, __ATOMIC_RELAXED);
		still_looks = sleeper_count && moves == seen ? still_looks + 1 : 0;
		seen = moves;
		if (still_looks >= WATCH_LOOKS_MAX)
			end_with("nobody moves any more: all who could wake others sleep on");
	}
	return arg;
}

static void watch_start(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, watch_main, NULL) || pthread_detach(thread))
		abort();
}

/* ---- the calls ---- */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static struct sleeper *sleeper_of_thread(void)
{
	if (own)
		return own;
	own = calloc(1, sizeof(*own));
	if (!own || pthread_mutex_init(&own->mutex, NULL))
		abort();
	own->next = atomic_load(&sleepers);
	while (!atomic_compare_exchange_weak(&sleepers, &own->next, own))
		;
	return own;
}

static void note(struct sleeper *sleeper, const struct futex_waitv *words, uint32_t count)
{
	(void)__atomic_add_fetch(&move_count, 1, __ATOMIC_RELAXED);
	(void)pthread_mutex_lock(&sleeper->mutex);
	for (uint32_t i = 0; i < count; i++)
		sleeper->words[i] = words[i];
	sleeper->count = count;
	sleeper->changed_looks = 0;
	(void)pthread_mutex_unlock(&sleeper->mutex);
}

static bool is_short(const struct timespec *until)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail. */
	return until && (until->tv_sec - now.tv_sec) * 1000000000ll + until->tv_nsec - now.tv_nsec <
	                        WATCH_SHORT_NS;
}

static long sleep_on_words(const long *arguments)
{
	struct sleeper *sleeper = sleeper_of_thread();
	bool ends = is_short((const struct timespec *)arguments[3]);
	long r;

	note(sleeper, (const struct futex_waitv *)arguments[0], (uint32_t)arguments[1]);
	r = __real_syscall(SYS_futex_waitv, arguments[0], arguments[1], arguments[2],
	                   ends ? arguments[3] : 0, arguments[4]);
	note(sleeper, NULL, 0);
	return r;
}

static long sleep_on_word(const long *arguments)
{
	struct sleeper *sleeper = sleeper_of_thread();
	const struct futex_waitv word = { .uaddr = (uintptr_t)arguments[0],
		                          .val = (uint32_t)arguments[2] };
	long r;

	note(sleeper, &word, 1);
	r = __real_syscall(SYS_futex, arguments[0], arguments[1], arguments[2], arguments[3],
	                   arguments[4], arguments[5]);
	note(sleeper, NULL, 0);
	return r;
}

static void let_them_run(void)
{
	static _Thread_local uint32_t wake_count;

	if (wake_count++ % WATCH_NAP_EVERY == 0)
		(void)nanosleep(&(struct timespec){ .tv_nsec = WATCH_NAP_NS }, NULL);
}

long __wrap_syscall(long number, ...)
{
	long arguments[6], r;
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	(void)pthread_once(&watch_once, watch_start);
	if (number == SYS_futex_waitv)
		return sleep_on_words(arguments);
	if (number == SYS_futex && arguments[1] == FUTEX_WAIT_BITSET)
		return sleep_on_word(arguments);
	r = __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
	                   arguments[4], arguments[5]);
	if (number == SYS_futex && arguments[1] == FUTEX_WAKE)
		let_them_run();
	return r;
}
