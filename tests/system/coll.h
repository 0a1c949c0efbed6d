/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that make collectives, as processes of a real zinfd's job: what every test of them begins
 * and ends with. A body runs in its own process and does not use Criterion: what is not as it
 * should be is printed, and its exit code is not 0.
 */
#pragma once

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/system/system.h"

#define COLL_RANKS_MAX  4u /* of most tests */
#define COLL_ARENA      (16u << 20)
#define COLL_TIMEOUT_MS 200000u /* nobody waits so long: what takes it has failed */

struct coll_rank;
typedef int (*coll_body_fn)(struct coll_rank *rank);

/* What the processes of a test share. */
struct coll_shared {
	uint32_t told[ZINF_WORLD_MAX]; /* by each rank to the test, see coll_tell() */
	pid_t pids[ZINF_WORLD_MAX];
};

struct coll_scene {
	struct harness harness;
	const char *job, *incarnation;
	uint32_t timeout_ms;
	bool is_plain; /* bodies open collectives themselves */
	uint32_t world;
	coll_body_fn body;
	struct coll_shared *shared;
	int tell_fds[2];  /* ranks to the test */
	int start_fds[2]; /* the test to ranks: a byte each */
};

struct coll_rank {
	struct coll_scene *scene;
	struct zinf *zinf; /* attached; collectives are open */
	uint32_t rank, world;
};

/* In a body: ends it unless @call returns @expected. */
#define coll_must(self, expected, call)                                                         \
	do {                                                                                    \
		int _got = (call);                                                              \
                                                                                                \
		if (_got != (expected)) {                                                       \
			fprintf(stderr, "%s:%d: rank %u: %d, not %d: %s\n", __FILE__, __LINE__, \
			        (self)->rank, _got, (expected), zinf_error_text((self)->zinf)); \
			return 1;                                                               \
		}                                                                               \
	} while (0)
/* … unless @condition holds. */
#define coll_check(self, condition)                                                         \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "%s:%d: rank %u: %s does not hold: %s\n", __FILE__, \
			        __LINE__, (self)->rank, #condition,                         \
			        zinf_error_text((self)->zinf));                             \
			return 1;                                                           \
		}                                                                           \
	} while (0)
/* … unless the text of the last failure has @part. */
#define coll_text(self, part) coll_check(self, strstr(zinf_error_text((self)->zinf), (part)))

static inline int coll_rank_body(void *arg)
{
	struct coll_rank *rank = arg;
	struct zinf_options options = ZINF_OPTIONS_INIT;
	int r;

	options.socket_path = rank->scene->harness.socket_path;
	options.job = rank->scene->job;
	options.rank = (int32_t)rank->rank;
	options.world_size = (int32_t)rank->world;
	options.incarnation = rank->scene->incarnation;
	options.timeout_ms = rank->scene->timeout_ms;
	r = zinf_attach(&options, &rank->zinf);
	if (r) {
		fprintf(stderr, "rank %u: attach: %s\n", rank->rank, zinf_attach_error());
		return 3;
	}
	if (!rank->scene->is_plain)
		coll_must(rank, 0, zinf_coll_open(rank->zinf, COLL_ARENA));
	r = rank->scene->body(rank);
	zinf_detach(rank->zinf);
	return r;
}

static inline void coll_open_scene_with(struct coll_scene *scene,
                                        const struct harness_options *options)
{
	*scene = (struct coll_scene){ .job = "collective",
		                      .incarnation = "first",
		                      .timeout_ms = COLL_TIMEOUT_MS };
	system_start(&scene->harness, options);
	scene->shared = mmap(NULL, sizeof(*scene->shared), PROT_READ | PROT_WRITE,
	                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(scene->shared, MAP_FAILED);
	cr_assert_eq(pipe(scene->tell_fds), 0);
	cr_assert_eq(pipe(scene->start_fds), 0);
}

static inline void coll_open_large_scene(struct coll_scene *scene, const char *cpu_capacity)
{
	coll_open_scene_with(scene, &(struct harness_options){ .cpu_capacity = cpu_capacity });
}

static inline void coll_open_scene(struct coll_scene *scene)
{
	coll_open_large_scene(scene, "512M");
}

static inline void coll_close_scene(struct coll_scene *scene)
{
	cr_assert_eq(harness_stop(&scene->harness), 0);
	cr_assert_eq(munmap(scene->shared, sizeof(*scene->shared)), 0);
	for (int i = 0; i < 2; i++) {
		close(scene->tell_fds[i]);
		close(scene->start_fds[i]);
	}
}

static inline void coll_start_one(struct coll_scene *scene, uint32_t rank)
{
	struct coll_rank child = { .scene = scene, .rank = rank, .world = scene->world };

	scene->shared->pids[rank] = harness_fork(coll_rank_body, &child);
	cr_assert_gt(scene->shared->pids[rank], 0);
}

static inline void coll_start(struct coll_scene *scene, uint32_t world, coll_body_fn body)
{
	scene->world = world;
	scene->body = body;
	for (uint32_t i = 0; i < world; i++)
		coll_start_one(scene, i);
}

static inline void coll_join_one(struct coll_scene *scene, uint32_t rank, int expected)
{
	cr_assert_eq(harness_wait(scene->shared->pids[rank], COLL_TIMEOUT_MS / 2), expected,
	             "rank %u of %u", rank, scene->world);
}

/* Runs @body in @world ranks; each must end with 0. */
static inline void coll_run(struct coll_scene *scene, uint32_t world, coll_body_fn body)
{
	coll_start(scene, world, body);
	for (uint32_t i = 0; i < world; i++)
		coll_join_one(scene, i, 0);
}

/* ---- words between a rank and the test ---- */

static inline int coll_tell(const struct coll_rank *rank)
{
	return write(rank->scene->tell_fds[1], "x", 1) == 1 ? 0 : -errno;
}

static inline void coll_hear(const struct coll_scene *scene, uint32_t count)
{
	struct pollfd ready = { .fd = scene->tell_fds[0], .events = POLLIN };
	char byte;

	for (uint32_t i = 0; i < count; i++) {
		cr_assert_eq(poll(&ready, 1, COLL_TIMEOUT_MS / 2), 1, "a rank says nothing");
		cr_assert_eq(read(scene->tell_fds[0], &byte, 1), 1);
	}
}

static inline void coll_let_go(const struct coll_scene *scene, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(write(scene->start_fds[1], "x", 1), 1);
}

/* When @count ranks have told, the one that awaits goes on. */
static inline void coll_run_and_let_go(struct coll_scene *scene, uint32_t world, coll_body_fn body,
                                       uint32_t count)
{
	coll_start(scene, world, body);
	coll_hear(scene, count);
	coll_let_go(scene, 1);
	for (uint32_t i = 0; i < world; i++)
		coll_join_one(scene, i, 0);
}

static inline int coll_await(const struct coll_rank *rank)
{
	char byte;

	return read(rank->scene->start_fds[0], &byte, 1) == 1 ? 0 : -errno;
}
