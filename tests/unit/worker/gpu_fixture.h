/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of zinf-gpu and its proxy share: a worker on a loop, a request, and what it told. */
#pragma once

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "daemon/worker/gpu_worker.h"
#include "daemon/worker/spawn.h"
#include "tests/harness/patience.h"

#define GPU_TEST_CHUNKS_MAX 256u
#define GPU_TEST_CHUNK      (2ull << 20)

struct gpu_test {
	struct zi_loop *loop;
	struct gpu_worker *worker;
	struct gpu_worker_options options;
	struct gpu_request request;
	struct gpu_chunk chunks[GPU_TEST_CHUNKS_MAX];
	bool is_done;
	uint32_t greeted_count, ended_count, stuck_count, seen_count;
	int ended_error;
	struct zi_text ended, stuck;
	bool is_ending;
	uint32_t fd_count; /* open when the test began */
};

/* Open descriptors of this process. */
static inline uint32_t gpu_test_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	uint32_t count = 0;

	cr_assert(directory);
	while (readdir(directory))
		count++;
	(void)closedir(directory);
	return count;
}

static inline void gpu_test_done(struct gpu_request *request)
{
	struct gpu_test *test = container_of(request, struct gpu_test, request);

	test->is_done = true;
	zi_loop_stop(test->loop);
}

static inline void gpu_test_greeted(void *arg, const struct gpu_facts *facts)
{
	struct gpu_test *test = arg;

	cr_expect(zi_gpu_is_uuid(facts->uuid), "%s", facts->uuid);
	test->greeted_count++;
	zi_loop_stop(test->loop);
}

static inline void gpu_test_ended(void *arg, int error, const struct zi_text *text)
{
	struct gpu_test *test = arg;

	test->ended_count++;
	test->ended_error = error;
	test->ended = *text;
	zi_loop_stop(test->loop);
}

static inline void gpu_test_ending(void *arg, bool is_ending)
{
	struct gpu_test *test = arg;

	cr_expect_neq(test->is_ending, is_ending);
	test->is_ending = is_ending;
	zi_loop_stop(test->loop);
}

static inline void gpu_test_stuck(void *arg, const struct zi_text *text)
{
	struct gpu_test *test = arg;

	cr_expect(test->is_ending);
	test->stuck_count++;
	test->stuck = *text;
	zi_loop_stop(test->loop);
}

static inline void gpu_test_seen(void *arg, uint32_t count)
{
	struct gpu_test *test = arg;

	cr_expect_leq(count, ZI_GPU_DEVICES_MAX);
	test->seen_count = count;
	zi_loop_stop(test->loop);
}

/* @test->options: what differs from the usual. */
static inline void gpu_test_init(struct gpu_test *test)
{
	test->fd_count = gpu_test_fds();
	test->options.greeted = gpu_test_greeted;
	test->options.ended = gpu_test_ended;
	test->options.ending = gpu_test_ending;
	test->options.stuck = gpu_test_stuck;
	test->options.seen = gpu_test_seen;
	test->options.arg = test;
	if (!test->options.device)
		test->options.device = "0";
	cr_assert_eq(zi_loop_new(&test->loop), 0);
	cr_assert_eq(gpu_worker_new(test->loop, &test->options, &test->worker), 0);
	test->request = (struct gpu_request){ .done = gpu_test_done, .chunks = test->chunks };
}

static inline void gpu_test_deinit(struct gpu_test *test)
{
	test->worker = gpu_worker_free(test->worker);
	test->loop = zi_loop_free(test->loop);
	cr_expect_eq(gpu_test_fds(), test->fd_count, "%u descriptors, %u before", gpu_test_fds(),
	             test->fd_count);
}

static inline void gpu_test_start(struct gpu_test *test)
{
	struct zi_text text = { "" };

	cr_assert_eq(gpu_worker_start(test->worker, &text), 0, "%s", text.chars);
}

static inline void gpu_test_await(struct gpu_test *test, enum gpu_worker_state state)
{
	while (gpu_worker_state(test->worker) != state)
		cr_assert_eq(zi_loop_run(test->loop), 0);
}

static inline void gpu_test_await_done(struct gpu_test *test)
{
	while (!test->is_done)
		cr_assert_eq(zi_loop_run(test->loop), 0);
}

/* Return: of the request, when it is over. */
static inline int gpu_test_create(struct gpu_test *test, uint32_t count, uint64_t chunk_bytes)
{
	int r;

	test->is_done = false;
	test->request.count = count;
	test->request.chunk_bytes = chunk_bytes;
	r = gpu_worker_create(test->worker, &test->request);
	if (r)
		return r;
	gpu_test_await_done(test);
	return test->request.error;
}

static inline int gpu_test_release(struct gpu_test *test, uint32_t count)
{
	int r;

	test->is_done = false;
	test->request.count = count;
	r = gpu_worker_release(test->worker, &test->request);
	if (r)
		return r;
	gpu_test_await_done(test);
	return test->request.error;
}

static inline void gpu_test_close(struct gpu_test *test, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		test->chunks[i].fd = zi_close(test->chunks[i].fd);
}

#define gpu_test_expect_text(text, says) \
	cr_expect(strstr((text).chars, says), "'%s' is not in '%s'", says, (text).chars)
