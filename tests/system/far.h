/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job over several daemons, each a node to it, with ranks as processes: what every test of
 * collectives across nodes begins and ends with. Nodes meet on the loopback interface, or each is
 * in a network namespace of its own (->namespaces). Bodies run in their own processes and leave
 * what they met in memory that the test shares.
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/futex.h"
#include "tests/harness/port.h"
#include "tests/system/far_node.h"
#include "tests/system/system.h"

#define FAR_NODES_MAX 8u
#define FAR_RANKS_MAX 8u
#define FAR_ARENA     (2u << 20)

struct far_rank;
typedef int (*far_body_fn)(struct far_rank *rank);

/* What a rank met last. */
struct far_report {
	int error;
	uint64_t took_ms; /* the call that failed */
	char text[360];
};

struct far_shared {
	struct far_report reports[FAR_RANKS_MAX];
	uint32_t round_counts[FAR_RANKS_MAX]; /* calls that went well; atomic */
	uint32_t is_over;                     /* far_sum_until_told() is to end; atomic */
};

struct far_scene {
	struct harness harness[FAR_NODES_MAX];
	int namespaces[FAR_NODES_MAX]; /* -1: this process's */
	int home;                      /* with namespaces */
	const char *host;              /* where rank 0 is found */
	uint32_t port;
	const char *job;               /* NULL: "far" */
	uint32_t node_count, per_node; /* rank r is on node first_node + r / per_node */
	uint32_t first_node;
	uint32_t incarnation;
	uint32_t timeout_ms;
	uint32_t call_ms; /* of the call that is to fail; 0: timeout_ms */
	far_body_fn body;
	bool is_plain;                     /* bodies open collectives themselves */
	bool is_backwards;                 /* the last rank is started first */
	bool is_nameless;                  /* no ZINF_INCARNATION */
	uid_t uid;                         /* of the ranks; 0: the test's */
	const char *tokens[FAR_NODES_MAX]; /* ZINF_TOKEN of a node's ranks; NULL: not set */
	const char *odd_token;             /* of each node's last rank, instead */
	bool overlaps; /* a bad launch: node 1 begins with the last rank of node 0 */
	struct far_shared *shared;
	pid_t pids[FAR_RANKS_MAX];
	int tell_fds[2]; /* ranks to the test: a byte each */
};

struct far_rank {
	struct far_scene *scene;
	struct zinf *zinf;
	uint32_t rank, world;
};

static inline uint32_t far_world(const struct far_scene *scene)
{
	return scene->node_count * scene->per_node;
}

static inline uint32_t far_node_of(const struct far_scene *scene, uint32_t rank)
{
	return scene->first_node + rank / scene->per_node;
}

static inline void far_start_node(struct far_scene *scene, uint32_t node, bool is_again)
{
	if (scene->namespaces[node] >= 0)
		cr_assert_eq(setns(scene->namespaces[node], CLONE_NEWNET), 0);
	if (is_again)
		cr_assert_eq(harness_restart(&scene->harness[node]), 0);
	else
		system_start(&scene->harness[node],
		             &(struct harness_options){ .cpu_capacity = "256M" });
	if (scene->namespaces[node] >= 0)
		cr_assert_eq(setns(scene->home, CLONE_NEWNET), 0);
}

/* ->namespaces, ->home and ->host are the caller's to set where they are not the loopback's. */
static inline void far_open_scene(struct far_scene *scene, uint32_t node_count, uint32_t per_node)
{
	scene->node_count = node_count;
	scene->per_node = per_node;
	scene->timeout_ms = 20000;
	scene->port = harness_free_port();
	scene->shared = mmap(NULL, sizeof(*scene->shared), PROT_READ | PROT_WRITE,
	                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(scene->shared, MAP_FAILED);
	cr_assert_eq(pipe(scene->tell_fds), 0);
	for (uint32_t i = 0; i < node_count; i++)
		far_start_node(scene, i, false);
}

/* Daemons on the loopback interface; without zinf-net the test is skipped. */
static inline void far_open_on_loopback(struct far_scene *scene, uint32_t node_count,
                                        uint32_t per_node)
{
	far_need_net();
	*scene = (struct far_scene){ .host = "127.0.0.1" };
	for (uint32_t i = 0; i < FAR_NODES_MAX; i++)
		scene->namespaces[i] = -1;
	far_open_scene(scene, node_count, per_node);
}

static inline void far_close_scene(struct far_scene *scene)
{
	for (uint32_t i = 0; i < scene->node_count; i++)
		cr_assert_eq(harness_stop(&scene->harness[i]), 0, "node %u", i);
	cr_assert_eq(munmap(scene->shared, sizeof(*scene->shared)), 0);
	close(scene->tell_fds[0]);
	close(scene->tell_fds[1]);
}

/* Another job, of one rank each on @node_count daemons of @scene from @first_node on. */
static inline void far_open_beside(const struct far_scene *scene, uint32_t first_node,
                                   uint32_t node_count, struct far_scene *beside)
{
	*beside = *scene;
	beside->job = "beside";
	beside->first_node = first_node;
	beside->node_count = node_count;
	beside->per_node = 1;
	beside->timeout_ms = 20000;
	do
		beside->port = harness_free_port();
	while (beside->port == scene->port);
	beside->shared = mmap(NULL, sizeof(*beside->shared), PROT_READ | PROT_WRITE,
	                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(beside->shared, MAP_FAILED);
	cr_assert_eq(pipe(beside->tell_fds), 0);
}

static inline void far_close_beside(struct far_scene *beside)
{
	cr_assert_eq(munmap(beside->shared, sizeof(*beside->shared)), 0);
	close(beside->tell_fds[0]);
	close(beside->tell_fds[1]);
}

/* ---- ranks ---- */

/* Into this rank's report. Return: @error. */
static inline int far_note(struct far_rank *rank, int error)
{
	struct far_report *report = &rank->scene->shared->reports[rank->rank];

	report->error = error;
	(void)snprintf(report->text, sizeof(report->text), "%s",
	               rank->zinf ? zinf_error_text(rank->zinf) : zinf_attach_error()); /* Cut. */
	return error;
}

/* The same. Return: @code, with which the rank is to end. */
static inline int far_fail(struct far_rank *rank, int error, int code)
{
	(void)far_note(rank, error);
	return code;
}

static inline int far_rank_body(void *arg)
{
	struct far_rank *rank = arg;
	struct far_scene *scene = rank->scene;
	struct zinf_options options = ZINF_OPTIONS_INIT;
	const char *token;
	char incarnation[16];
	int r;

	if (scene->uid && (setgid(scene->uid) || setuid(scene->uid)))
		return 9;
	far_set_number("LOCAL_WORLD_SIZE", scene->per_node);
	far_set_number("ZINF_PORT", scene->port);
	if (scene->host)
		(void)setenv("MASTER_ADDR", scene->host, 1); /* Memory is there. */
	else
		(void)unsetenv("MASTER_ADDR"); /* A name: cannot fail. */
	token = scene->tokens[far_node_of(scene, rank->rank)];
	if (scene->odd_token && (rank->rank + 1) % scene->per_node == 0)
		token = scene->odd_token;
	if (token)
		(void)setenv("ZINF_TOKEN", token, 1); /* Memory is there. */
	else
		(void)unsetenv("ZINF_TOKEN"); /* A name: cannot fail. */
	(void)snprintf(incarnation, sizeof(incarnation), "i%u", scene->incarnation);
	options.socket_path = scene->harness[far_node_of(scene, rank->rank)].socket_path;
	options.job = scene->job ? scene->job : "far";
	options.incarnation = scene->is_nameless ? "" : incarnation;
	options.rank = (int32_t)rank->rank;
	if (scene->overlaps && rank->rank >= scene->per_node)
		options.rank--;
	options.world_size = (int32_t)rank->world;
	options.timeout_ms = scene->timeout_ms;
	r = zinf_attach(&options, &rank->zinf);
	if (!r && !scene->is_plain)
		r = zinf_coll_open(rank->zinf, FAR_ARENA);
	if (r) {
		(void)far_note(rank, r);
		return 3;
	}
	r = scene->body(rank);
	zinf_detach(rank->zinf);
	return r;
}

static inline void far_fork(struct far_scene *scene, uint32_t rank)
{
	struct far_rank child = { .scene = scene, .rank = rank, .world = far_world(scene) };

	scene->pids[rank] = harness_fork(far_rank_body, &child);
	cr_assert_gt(scene->pids[rank], 0);
}

/* The others are the caller's to start. */
static inline void far_start_one(struct far_scene *scene, uint32_t rank, far_body_fn body)
{
	scene->body = body;
	far_fork(scene, rank);
}

static inline void far_start(struct far_scene *scene, far_body_fn body)
{
	uint32_t world = far_world(scene);

	scene->body = body;
	scene->incarnation++;
	memset(scene->shared, 0, sizeof(*scene->shared));
	for (uint32_t i = 0; i < world; i++)
		far_fork(scene, scene->is_backwards ? world - 1 - i : i);
}

static inline void far_join_one(struct far_scene *scene, uint32_t rank, int expected)
{
	int r = harness_wait(scene->pids[rank], FAR_JOIN_MS);

	if (r != expected && scene->node_count)
		harness_print_log(&scene->harness[far_node_of(scene, rank)]);
	cr_assert_eq(r, expected, "rank %u: %d, not %d: %s", rank, r, expected,
	             scene->shared->reports[rank].text);
}

/* @rank met @error, with @part in its text. */
static inline void far_expect_error(const struct far_scene *scene, uint32_t rank, int error,
                                    const char *part)
{
	const struct far_report *report = &scene->shared->reports[rank];

	cr_expect_eq(report->error, error, "rank %u: %d: %s", rank, report->error, report->text);
	cr_expect(strstr(report->text, part), "rank %u: '%s' is not in: %s", rank, part,
	          report->text);
}

/* Runs @body in all ranks; each must end with 0. */
static inline void far_run(struct far_scene *scene, far_body_fn body)
{
	far_start(scene, body);
	for (uint32_t i = 0; i < far_world(scene); i++)
		far_join_one(scene, i, 0);
}

static inline void far_tell(const struct far_rank *rank)
{
	if (write(rank->scene->tell_fds[1], "x", 1) != 1)
		abort();
}

/* The test, or a rank, says that @moment (1, 2, …) has come. Each far_start() begins at 0. */
static inline void far_raise(const struct far_scene *scene, uint32_t moment)
{
	__atomic_store_n(&scene->shared->is_over, moment, __ATOMIC_RELEASE);
	zi_futex_wake(&scene->shared->is_over);
}

/* A rank sleeps until @moment has come: one that spins takes the daemons' CPU. */
static inline void far_await(const struct far_rank *rank, uint32_t moment)
{
	uint32_t *word = &rank->scene->shared->is_over, seen;

	while ((seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) < moment)
		(void)syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

/* Until @count ranks have told. */
static inline void far_hear(const struct far_scene *scene, uint32_t count)
{
	struct pollfd ready = { .fd = scene->tell_fds[0], .events = POLLIN };
	char byte;

	for (uint32_t i = 0; i < count; i++) {
		cr_assert_eq(poll(&ready, 1, FAR_JOIN_MS / 2), 1, "a rank says nothing");
		cr_assert_eq(read(scene->tell_fds[0], &byte, 1), 1);
	}
}

/* ---- bodies ---- */

/* Sums, one after the other, until one fails; the first tells the test. What it met is the report.
 */
static inline int far_sum_until_error(struct far_rank *rank)
{
	struct far_shared *shared = rank->scene->shared;
	float value;
	int r = 0;

	for (uint32_t round = 0; !r; round++) {
		uint64_t begin_ns = zi_clock_now_ns();

		value = (float)rank->rank;
		r = zinf_coll_all_reduce(rank->zinf, &value, &value, 1, ZINF_F32, ZINF_SUM, NULL);
		if (!r && value != (float)(rank->world * (rank->world - 1) / 2))
			return 4;
		shared->reports[rank->rank].took_ms = (zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
		if (!r)
			__atomic_fetch_add(&shared->round_counts[rank->rank], 1, __ATOMIC_RELAXED);
		if (round == 0)
			far_tell(rank);
	}
	(void)far_note(rank, r);
	return 0;
}

/* One sum of a few pieces, which must be right. */
static inline int far_sum_once(struct far_rank *rank)
{
	enum { COUNT = 300001 };
	static float values[COUNT];
	int r;

	for (uint32_t i = 0; i < COUNT; i++)
		values[i] = (float)(rank->rank + i % 64);
	r = zinf_coll_all_reduce(rank->zinf, values, values, COUNT, ZINF_F32, ZINF_SUM, NULL);
	if (r)
		return far_note(rank, r) ? 5 : 0;
	for (uint32_t i = 0; i < COUNT; i++)
		if (values[i] !=
		    (float)(rank->world * (rank->world - 1) / 2 + rank->world * (i % 64)))
			return 6;
	return 0;
}

/* Sums until the test says that it is enough; not one may fail. */
static inline int far_sum_until_told(struct far_rank *rank)
{
	struct far_shared *shared = rank->scene->shared;

	for (uint32_t round = 0;; round++) {
		float over = (float)__atomic_load_n(&shared->is_over, __ATOMIC_RELAXED);
		int r = zinf_coll_all_reduce(rank->zinf, &over, &over, 1, ZINF_F32, ZINF_MAX, NULL);

		if (r)
			return far_fail(rank, r, 5);
		__atomic_fetch_add(&shared->round_counts[rank->rank], 1, __ATOMIC_RELAXED);
		if (round == 0)
			far_tell(rank);
		if (over != 0)
			return 0;
	}
}

/* Until each rank of @beside has made some more of its sums. */
static inline void far_expect_goes_on(const struct far_scene *beside)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(FAR_JOIN_MS * ZI_NS_PER_MS);

	for (uint32_t i = 0; i < far_world(beside); i++) {
		const uint32_t *count = &beside->shared->round_counts[i];
		uint32_t begin = __atomic_load_n(count, __ATOMIC_RELAXED);

		while (__atomic_load_n(count, __ATOMIC_RELAXED) - begin < 3)
			cr_assert_lt(zi_clock_now_ns(), deadline_ns, "rank %u of '%s' stands: %s",
			             i, beside->job, beside->shared->reports[i].text);
	}
}

static inline void far_end_beside(struct far_scene *beside)
{
	__atomic_store_n(&beside->shared->is_over, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < far_world(beside); i++)
		far_join_one(beside, i, 0);
	far_close_beside(beside);
}

/* Sums of many pieces, until one fails; the first tells the test. */
static inline int far_large_until_error(struct far_rank *rank)
{
	enum { COUNT = 6 << 20 };
	struct far_shared *shared = rank->scene->shared;
	float *values = malloc(COUNT * sizeof(*values));
	int r = 0;

	if (!values)
		return 7;
	for (uint32_t round = 0; !r; round++) {
		uint64_t begin_ns = zi_clock_now_ns();

		for (uint32_t i = 0; i < COUNT; i++)
			values[i] = (float)(rank->rank + i % 64);
		if (round == 1)
			far_tell(rank);
		r = zinf_coll_all_reduce(rank->zinf, values, values, COUNT, ZINF_F32, ZINF_SUM,
		                         NULL);
		shared->reports[rank->rank].took_ms = (zi_clock_now_ns() - begin_ns) / ZI_NS_PER_MS;
	}
	(void)far_note(rank, r);
	free(values);
	return 0;
}
