/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the loop share: one loop for each test (Criterion runs each in a process of its
 * own) and a log of what happened, a letter for each event. */
#pragma once

#include <criterion/criterion.h>
#include <semaphore.h>
#include <string.h>

#include "common/base/loop.h"

static struct zi_loop *loop;
static char happened[512];
static sem_t answered;

static inline void note(char letter)
{
	size_t used = strlen(happened);

	cr_assert_lt(used, sizeof(happened) - 1);
	happened[used] = letter;
}

static inline void setup(void)
{
	cr_assert_eq(zi_loop_new(&loop), 0);
	cr_assert_eq(sem_init(&answered, 0, 0), 0);
}

static inline void teardown(void)
{
	loop = zi_loop_free(loop);
}

/* Runs the loop until something calls zi_loop_stop(). */
static inline void run(void)
{
	cr_assert_eq(zi_loop_run(loop), 0);
}

/* The entry of a thread that runs the loop. */
static inline int run_thread(void *arg)
{
	(void)arg;
	return zi_loop_run(loop);
}

static inline void on_stop_post(struct zi_post *post)
{
	(void)post;
	zi_loop_stop(loop);
}

static inline void on_answer_post(struct zi_post *post)
{
	(void)post;
	cr_assert(zi_loop_is_owner(loop));
	sem_post(&answered);
}

static inline void on_stop_timer(struct zi_timer *timer)
{
	(void)timer;
	zi_loop_stop(loop);
}

struct lettered_timer {
	struct zi_timer timer;
	char letter;
};

static inline void on_timer(struct zi_timer *timer)
{
	cr_assert_null(timer->loop, "disarmed before it is called");
	note(container_of(timer, struct lettered_timer, timer)->letter);
}

static inline void on_ready_stop(struct zi_source *source, uint32_t epoll_events)
{
	(void)epoll_events;
	note('s');
	zi_loop_remove(source);
	zi_loop_stop(loop);
}
