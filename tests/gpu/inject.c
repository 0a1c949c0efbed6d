/* SPDX-License-Identifier: Apache-2.0 */
/* Counting calls, and letting the n-th one go wrong. Rules: fake_gpu.h. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/context.h"
#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"

#define PLACES_MAX 128u

pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

/* All under the mutex. */
static struct {
	char name[FAKE_NAME_MAX];
	uint64_t count;
} places[PLACES_MAX];
static bool is_started, is_forked, has_vanished;

/* A child of fork() finds the mutex free, whichever thread had it. */
static void before_fork(void)
{
	(void)pthread_mutex_lock(&fake_mutex);
}

static void after_fork(void)
{
	(void)pthread_mutex_unlock(&fake_mutex);
}

static void after_fork_in_child(void)
{
	is_forked = is_started;
	(void)pthread_mutex_unlock(&fake_mutex);
}

static __attribute__((constructor)) void watch_forks(void)
{
	/* Fails only where nothing else works either. */
	(void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* The name without a version. */
static void copy_place(const char *name, char *place)
{
	size_t length = strlen(name);

	if (length > 3 && !strncmp(name + length - 3, "_v", 2))
		length -= 3;
	(void)snprintf(place, FAKE_NAME_MAX, "%.*s", (int)length, name);
}

/* Under the mutex. Return: the number of this call, from 1. */
static uint64_t count_call(const char *place)
{
	for (uint32_t i = 0; i < PLACES_MAX; i++) {
		if (!places[i].name[0])
			(void)snprintf(places[i].name, FAKE_NAME_MAX, "%s", place);
		if (!strcmp(places[i].name, place))
			return ++places[i].count;
	}
	return 0;
}

/* See fake_gpu.h. */
uint64_t fake_call_count(const char *place)
{
	uint64_t count = 0;

	(void)pthread_mutex_lock(&fake_mutex);
	for (uint32_t i = 0; i < PLACES_MAX; i++)
		if (!strcmp(places[i].name, place))
			count = places[i].count;
	(void)pthread_mutex_unlock(&fake_mutex);
	return count;
}

static void sleep_ms(int ms)
{
	const struct timespec pause = { ms / 1000, ms % 1000 * 1000000l };

	(void)nanosleep(&pause, NULL); /* A signal makes a delay shorter. */
}

/* Nobody signals the condition: a debugger and a test see a thread that sleeps on a futex. */
_Noreturn void fake_hang(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

	(void)pthread_mutex_lock(&mutex);
	for (;;)
		(void)pthread_cond_wait(&never, &mutex);
}

/* What a call comes to. */
struct outcome {
	int code, sticky_code;
	int delay_ms;
	bool hangs;
};

/* Under the mutex. */
static void apply(const struct fake_rule *rule, struct outcome *outcome)
{
	switch (rule->kind) {
	case FAKE_FAIL:
		outcome->code = rule->value;
		break;
	case FAKE_STICKY:
		outcome->code = outcome->sticky_code = rule->value;
		break;
	case FAKE_DELAY:
		outcome->delay_ms += rule->value;
		break;
	case FAKE_HANG:
		outcome->hangs = true;
		break;
	case FAKE_KILL:
		(void)kill(getpid(), SIGKILL); /* Of oneself: cannot fail. */
		break;
	case FAKE_VANISH:
		has_vanished = true;
		outcome->code = ZI_CUDA_UNKNOWN;
		break;
	}
}

/* Under the mutex. */
static void note_call(const char *path, const char *place)
{
	static int fd = -1;

	if (fd < 0)
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	(void)dprintf(fd, "%s\n", place); /* A test without its file fails. */
}

static struct outcome happen(const char *place)
{
	const struct fake_options *options = fake_options();
	struct outcome outcome = { 0 };
	uint64_t number;

	(void)pthread_mutex_lock(&fake_mutex);
	number = count_call(place);
	if (options->trace[0])
		note_call(options->trace, place);
	for (uint32_t i = 0; i < options->rule_count; i++) {
		const struct fake_rule *rule = &options->rules[i];

		if (!strcmp(rule->place, place) && (!rule->nth || rule->nth == number))
			apply(rule, &outcome);
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	sleep_ms(outcome.delay_ms);
	return outcome;
}

int fake_enter_always(const char *name)
{
	struct outcome outcome;
	char place[FAKE_NAME_MAX];

	copy_place(name, place);
	outcome = happen(place);
	if (outcome.hangs)
		fake_hang();
	if (outcome.sticky_code)
		fake_context_break(NULL, outcome.sticky_code);
	return outcome.code;
}

int fake_enter(const char *name)
{
	int code = ZI_CUDA_SUCCESS;

	(void)pthread_mutex_lock(&fake_mutex);
	if (!is_started || is_forked)
		code = ZI_CUDA_NOT_INITIALIZED;
	else if (has_vanished)
		code = ZI_CUDA_UNKNOWN;
	(void)pthread_mutex_unlock(&fake_mutex);
	return code ? code : fake_enter_always(name);
}

int fake_enter_operation(const char *place, bool *ret_hangs)
{
	struct outcome outcome = happen(place);

	(void)pthread_mutex_lock(&fake_mutex);
	if (has_vanished)
		outcome.code = ZI_CUDA_UNKNOWN;
	(void)pthread_mutex_unlock(&fake_mutex);
	*ret_hangs = outcome.hangs;
	return outcome.code;
}

/* As NVIDIA's driver: what was begun in the parent cannot be used in the child. */
int cuInit(uint32_t flags)
{
	int code = fake_enter_always(__func__);

	if (code)
		return code;
	if (flags)
		return ZI_CUDA_INVALID_VALUE;
	if (!fake_options()->gpus)
		return ZI_CUDA_NO_DEVICE;
	(void)pthread_mutex_lock(&fake_mutex);
	code = is_forked ? ZI_CUDA_NOT_INITIALIZED : ZI_CUDA_SUCCESS;
	is_started = true;
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}
