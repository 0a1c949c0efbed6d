/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a flush is over when each of its stores says so, and a store that does not answer holds up
 * nobody else. Method: fdatasync() of this program is a double that stops at a gate, counts, or
 * fails, for each store by itself; nothing is timed.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "daemon/tier/flush.h"
#include "daemon/tier/member.h"
#include "daemon/tier/tier.h"
#include "tests/guard/guard.h"

#define MIB    (1ull << 20)
#define STORES 2u

/* What the double does to the flushes of a store. */
struct gate {
	int fd;
	bool is_closed;
	uint32_t waiting_count, done_count;
	int error; /* 0 or a positive errno */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the gates */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct gate gates[STORES];

/* Test double of libc's: nothing is flushed. */
int fdatasync(int fd)
{
	struct gate *gate = NULL;
	int error = 0;

	(void)pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < STORES; i++)
		if (gates[i].fd == fd)
			gate = &gates[i];
	if (gate) {
		gate->waiting_count++;
		(void)pthread_cond_broadcast(&changed);
		while (gate->is_closed)
			(void)pthread_cond_wait(&changed, &lock);
		gate->waiting_count--;
		gate->done_count++;
		error = gate->error;
	}
	(void)pthread_mutex_unlock(&lock);
	errno = error;
	return error ? -1 : 0;
}

static void gate_set(uint32_t index, bool is_closed)
{
	(void)pthread_mutex_lock(&lock);
	gates[index].is_closed = is_closed;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

/* Until a flush stands at the gate. */
static void gate_await(uint32_t index)
{
	(void)pthread_mutex_lock(&lock);
	while (!gates[index].waiting_count)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
}

static char directory[64];
static struct nvme_store *stores[STORES];
static struct tier tier;
static struct zi_loop *loop;

static void path_of(uint32_t index, char *path, size_t capacity)
{
	(void)snprintf(path, capacity, "%s/store%u", directory, index);
}

static void set_up(void)
{
	static char paths[STORES][96];
	struct zi_text text;
	char name[8];

	cr_assert_not_null(mkdtemp(guard_path(directory, sizeof(directory), "flush")));
	cr_assert_eq(zi_loop_new(&loop), 0);
	cr_assert_eq(tier_init_nvme(&tier, "t", 0), 0);
	for (uint32_t i = 0; i < STORES; i++) {
		(void)snprintf(name, sizeof(name), "t%u", i);
		path_of(i, paths[i], sizeof(paths[i]));
		cr_assert_eq(nvme_store_open(&(struct nvme_store_options){ .name = name,
		                                                           .path = paths[i],
		                                                           .bytes = 4 * MIB },
		                             &text, &stores[i]),
		             0, "%s", text.chars);
		cr_assert_eq(tier_member_add_store(&tier, stores[i]), 0);
		gates[i] = (struct gate){ .fd = stores[i]->fd };
	}
}

static void tear_down(void)
{
	char path[96];

	tier_deinit(&tier);
	for (uint32_t i = 0; i < STORES; i++) {
		stores[i] = nvme_store_close(stores[i]);
		path_of(i, path, sizeof(path));
		cr_assert_eq(unlink(path), 0);
	}
	cr_assert_eq(rmdir(directory), 0);
	loop = zi_loop_free(loop);
}

TestSuite(flush, .init = set_up, .fini = tear_down, .timeout = 60);

struct wait {
	struct tier_flush flush;
	bool is_done;
};

static void done(struct tier_flush *flush)
{
	struct wait *wait = container_of(flush, struct wait, flush);

	cr_assert_not(wait->is_done, "once");
	wait->is_done = true;
	zi_loop_stop(loop);
}

static void submit(struct wait *wait, uint32_t members)
{
	*wait = (struct wait){
		.flush = { .tier = &tier, .members = members, .loop = loop, .done = done }
	};
	tier_flush_submit(&wait->flush);
}

static void await(struct wait *wait)
{
	while (!wait->is_done)
		cr_assert_eq(zi_loop_run(loop), 0);
}

Test(flush, store_that_does_not_answer_holds_up_nobody_else)
{
	struct wait stalled, other, both;

	gate_set(0, true);
	submit(&stalled, 1u << 0);
	gate_await(0);
	submit(&other, 1u << 1);
	await(&other);
	cr_assert_eq(other.flush.result, 0);
	cr_assert_not(stalled.is_done);
	submit(&both, 1u << 0 | 1u << 1);
	submit(&other, 1u << 1);
	await(&other);
	cr_assert_not(both.is_done, "it waits for the other store");
	gate_set(0, false);
	await(&stalled);
	await(&both);
	cr_assert_eq(stalled.flush.result | both.flush.result, 0);
}

Test(flush, what_is_asked_while_one_runs_is_served_by_one_more)
{
	struct wait first, more[5];

	gate_set(0, true);
	submit(&first, 1u << 0);
	gate_await(0);
	for (uint32_t i = 0; i < 5; i++)
		submit(&more[i], 1u << 0);
	gate_set(0, false);
	await(&first);
	for (uint32_t i = 0; i < 5; i++)
		await(&more[i]);
	cr_assert_eq(gates[0].done_count, 2, "never by the one that had begun before");
}

Test(flush, failure_is_that_of_whoever_asked_and_of_the_store)
{
	struct wait both, other;

	gates[1].error = EIO;
	submit(&both, 1u << 0 | 1u << 1);
	await(&both);
	cr_assert_eq(both.flush.result, -EIO);
	cr_assert_eq(both.flush.failed, &tier.members[1]);
	cr_assert_eq(tier.members[1].state, TIER_MEMBER_FAILED);
	cr_assert_not_null(strstr(tier.members[1].reason.chars, "flushing failed: EIO"), "%s",
	                   tier.members[1].reason.chars);
	cr_assert_eq(tier.members[0].state, TIER_MEMBER_HEALTHY);
	submit(&other, 1u << 0);
	await(&other);
	cr_assert_eq(other.flush.result, 0);
	cr_assert_null(other.flush.failed);
}
