/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what lies in private memory is read there once its takers have shown that they can, and
 * staged in every other case, with the same result: nobody offers it, the kernel forbids it from
 * the start or from some call on, another process has the number, the address is wrong, the peer
 * dies. And nothing is taken that was read after its owner's call had returned.
 * Method: two ranks as processes without any privilege, each with private sources and targets, over
 * a board and arenas that they share; each looks at the path that its calls took.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/coll/node/call.h"
#include "libclient/coll/node/op.h"
#include "libclient/coll/node/queue.h"
#include "tests/unit/node/world.h"

#define RANKS    2u
#define ELEMENTS 20000u /* of a block; several pieces */
#define CALLS    8u     /* of which the third is the first in which sources are read */
#define LOST_AT  5u
#define NOBODY   65534u

struct way {
	uint64_t from_bytes[RANKS];
	/* Of rank 1: before which call its memory is shut off, or its word changes; 0: never. */
	uint32_t shut_at, changed_at;
};

struct report {
	uint32_t wrong_call; /* 0: none */
	int result;
	enum zi_node_path paths[CALLS + 1];
	bool is_restaged[CALLS + 1];
	struct zi_text text;
};

struct scene {
	struct world world;
	struct rank ranks[RANKS];
	struct report *reports;  /* (RANKS,), shared */
	struct zi_line *verdict; /* so */
};

static void *shared_memory(uint64_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(map, MAP_FAILED);
	return map;
}

/* Before ranks are forked, so that each of them has the others' addresses in its own memory too:
 * what it copies from there by mistake is not what the other one has. */
static void scene_init(struct scene *scene)
{
	*scene = (struct scene){ .world = { .ranks = RANKS, .seed = 5 } };
	scene->world.board = shared_memory(RANKS * sizeof(*scene->world.board));
	scene->world.arenas = shared_memory(RANKS * WORLD_ARENA_BYTES);
	scene->reports = shared_memory(RANKS * sizeof(*scene->reports));
	scene->verdict = shared_memory(sizeof(*scene->verdict));
	for (uint32_t i = 0; i < RANKS; i++) {
		rank_init(&scene->ranks[i], &scene->world, i);
		scene->ranks[i].group.meet.verdict = scene->verdict;
		scene->ranks[i].group.streaming_bytes = UINT64_MAX;
	}
}

static void scene_deinit(struct scene *scene)
{
	for (uint32_t i = 0; i < RANKS; i++)
		rank_deinit(&scene->ranks[i]);
	(void)munmap(scene->world.board, RANKS * sizeof(*scene->world.board));
	(void)munmap(scene->world.arenas, RANKS * WORLD_ARENA_BYTES);
	(void)munmap(scene->reports, RANKS * sizeof(*scene->reports));
	(void)munmap(scene->verdict, sizeof(*scene->verdict));
}

/* ---- a rank ---- */

/* As any user's process: root may read whatever it likes. */
static void drop_privileges(void)
{
	if (geteuid() == 0 &&
	    (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
		abort();
	if (prctl(PR_SET_DUMPABLE, 1)) /* it was lost with the privileges */
		abort();
}

static struct world_call drawn_of(uint32_t index)
{
	static const enum zi_coll_operation operations[] = { ZI_COLL_ALL_GATHER, ZI_COLL_ALL_TO_ALL,
		                                             ZI_COLL_ALL_TO_ALLV };
	struct world_call drawn = {
		.operation = operations[index % ZI_COUNT_OF(operations)],
		.dtype = ZI_DTYPE_I32,
		.element_count = ELEMENTS,
		.where = WORLD_OUTSIDE,
		.index = index,
		.counts = { { ELEMENTS, ELEMENTS / 2 }, { 3, ELEMENTS } },
	};

	return drawn;
}

static void run_call(struct scene *scene, uint32_t number, uint32_t index)
{
	struct rank *rank = &scene->ranks[number];
	struct report *report = &scene->reports[number];
	struct world_call drawn = drawn_of(index);
	uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
	struct zi_node_call call = world_place(rank, &drawn, source_counts, target_counts);
	int r = zi_node_call(&rank->group, &call, &report->text);

	report->paths[index] = rank->group.run.path;
	report->is_restaged[index] = rank->group.run.is_restaged;
	if (!r && world_check(rank, &drawn, &call))
		return;
	report->wrong_call = index;
	report->result = r;
	zi_line_store(scene->verdict, EPIPE); /* the other one need not wait for ever */
}

static pid_t fork_rank(struct scene *scene, uint32_t number, const struct way *way)
{
	struct rank *rank = &scene->ranks[number];
	struct report *report = &scene->reports[number];
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid)
		return pid;
	drop_privileges();
	rank->group.cma.from_bytes = way->from_bytes[number];
	zi_cma_offer(&rank->group);
	for (uint32_t i = 1; i <= CALLS && !report->wrong_call; i++) {
		if (number == 1 && i == way->shut_at && prctl(PR_SET_DUMPABLE, 0))
			abort();
		if (number == 1 && i == way->changed_at)
			rank->group.cma.word++;
		run_call(scene, number, i);
	}
	_exit(0);
}

/* Both ranks make all their calls. */
static void run(struct scene *scene, const struct way *way)
{
	pid_t pids[RANKS];
	int status;

	for (uint32_t i = 0; i < RANKS; i++)
		pids[i] = fork_rank(scene, i, way);
	for (uint32_t i = 0; i < RANKS; i++) {
		cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
		cr_assert_eq(status, 0, "rank %u: status %x", i, status);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		cr_assert_eq(scene->reports[i].wrong_call, 0, "rank %u, call %u: %d %s", i,
		             scene->reports[i].wrong_call, scene->reports[i].result,
		             scene->reports[i].text.chars);
}

static bool reads(const struct scene *scene, uint32_t reader, uint32_t member)
{
	return scene->world.board[reader].cma.reads >> member & 1;
}

/* Of calls @first to @last, on both ranks. */
static void assert_paths(const struct scene *scene, uint32_t first, uint32_t last,
                         enum zi_node_path path, bool is_restaged)
{
	for (uint32_t i = 0; i < RANKS; i++)
		for (uint32_t k = first; k <= last; k++) {
			cr_assert_eq(scene->reports[i].paths[k], path, "rank %u, call %u: path %d",
			             i, k, (int)scene->reports[i].paths[k]);
			cr_assert_eq(scene->reports[i].is_restaged[k], is_restaged,
			             "rank %u, call %u", i, k);
		}
}

TestSuite(cma, .timeout = 60);

Test(cma, sources_are_read_where_they_lie_from_the_second_call_on)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 1 } });
	assert_paths(&scene, 1, 1, ZI_NODE_PIECES, false);
	assert_paths(&scene, 3, CALLS, ZI_NODE_CMA, false);
	cr_assert(reads(&scene, 0, 1) && reads(&scene, 1, 0));
	scene_deinit(&scene);
}

Test(cma, who_does_not_want_it_is_not_read_and_reads_nobody)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 0 } });
	assert_paths(&scene, 1, CALLS, ZI_NODE_PIECES, false);
	cr_assert(!reads(&scene, 0, 1) && !reads(&scene, 1, 0));
	scene_deinit(&scene);
}

/* Its own address, which it may still post, is read; what the other one gives is staged, both in
 * one call: the first piece of what was to be read comes a step late. */
Test(cma, who_cannot_be_read_is_staged)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 1 }, .shut_at = 1 });
	assert_paths(&scene, 1, 1, ZI_NODE_PIECES, false);
	assert_paths(&scene, 3, CALLS, ZI_NODE_PIECES, true);
	cr_assert(!reads(&scene, 0, 1) && reads(&scene, 1, 0));
	scene_deinit(&scene);
}

Test(cma, who_cannot_be_read_any_more_is_staged_in_the_same_call)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 1 }, .shut_at = LOST_AT });
	assert_paths(&scene, 3, LOST_AT - 1, ZI_NODE_CMA, false);
	assert_paths(&scene, LOST_AT, CALLS, ZI_NODE_PIECES, true);
	cr_assert_eq(scene.world.board[0].cma.unread, LOST_AT);
	cr_assert(!reads(&scene, 0, 1) && reads(&scene, 1, 0));
	scene_deinit(&scene);
}

/* As it would be if another process had the number of the one that was asked first. */
Test(cma, memory_without_the_word_is_somebody_elses)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 1 }, .changed_at = LOST_AT });
	assert_paths(&scene, 3, LOST_AT - 1, ZI_NODE_CMA, false);
	assert_paths(&scene, LOST_AT, CALLS, ZI_NODE_PIECES, true);
	cr_assert_eq(scene.world.board[0].cma.unread, LOST_AT);
	scene_deinit(&scene);
}

/* ---- rank 0 is the test itself ---- */

/* Rank 1 makes two calls, and posts the third. */
static pid_t fork_until_posted(struct scene *scene)
{
	struct rank *rank = &scene->ranks[1];
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid)
		return pid;
	rank->group.cma.from_bytes = 1;
	zi_cma_offer(&rank->group);
	for (uint32_t i = 1; i <= 3; i++)
		run_call(scene, 1, i);
	_exit(scene->reports[1].wrong_call != 0);
}

static void await_post(const struct scene *scene, uint32_t sequence)
{
	const uint32_t *word = &scene->world.board[1].posts[sequence % ZI_BOARD_SLOTS].sequence;

	while (!zi_meet_has_come(word, sequence))
		(void)sched_yield();
}

/* Polls call @index of rank 0 until it waits, or is over. */
static int poll_until_it_waits(struct rank *rank, uint32_t index, struct zi_node_call *call)
{
	static uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
	struct world_call drawn = drawn_of(index);
	struct zi_meet_wants wants;

	*call = world_place(rank, &drawn, source_counts, target_counts);
	zi_meet_wants_clear(&wants);
	zi_node_begin(&rank->group, call);
	return zi_node_poll(&rank->group, &wants, &rank->text);
}

Test(cma, a_peer_that_died_is_waited_for_as_in_pieces)
{
	struct scene scene;
	struct rank *rank = &scene.ranks[0];
	struct zi_node_call call;
	pid_t pid;

	scene_init(&scene);
	pid = fork_until_posted(&scene);
	rank->group.cma.from_bytes = 1;
	zi_cma_offer(&rank->group);
	for (uint32_t i = 1; i <= 2; i++)
		run_call(&scene, 0, i);
	cr_assert_eq(scene.reports[0].wrong_call, 0);
	await_post(&scene, 3);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_assert_eq(poll_until_it_waits(rank, 3, &call), ZI_NODE_E_WAITS);
	cr_assert_eq(rank->group.run.path, ZI_NODE_CMA);
	cr_assert_eq(scene.world.board[0].cma.unread, 3);
	cr_assert(!reads(&scene, 0, 1));
	/* The daemon's word ends it, as it ends every call. */
	zi_line_store(scene.verdict, EPIPE);
	cr_assert_eq(zi_node_call(&rank->group, &call, &rank->text), -EPIPE);
	scene_deinit(&scene);
}

Test(cma, a_wrong_address_hurts_nobody)
{
	struct scene scene;
	struct rank *rank = &scene.ranks[0];
	const struct report *report;
	int status;
	pid_t pid;

	scene_init(&scene);
	pid = fork_until_posted(&scene);
	rank->group.cma.from_bytes = 1;
	zi_cma_offer(&rank->group);
	for (uint32_t i = 1; i <= 2; i++)
		run_call(&scene, 0, i);
	await_post(&scene, 3);
	scene.world.board[1].posts[3].call.source = ZI_BOARD_PRIVATE | 0x10;
	report = &scene.reports[0];
	run_call(&scene, 0, 3);
	cr_assert_eq(report->wrong_call, 0, "%d %s", report->result, report->text.chars);
	cr_assert(report->is_restaged[3]);
	cr_assert_eq(scene.world.board[0].cma.unread, 3);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "rank 1: %s", scene.reports[1].text.chars);
	scene_deinit(&scene);
}

/* ---- both ranks are the test itself ---- */

enum end { END_DEADLINE, END_VERDICT, END_DETACHED };

struct flight {
	struct zi_node_op op;
	struct world_call drawn;
	uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
};

static void draw(struct rank *rank, struct flight *flight, uint32_t index)
{
	*flight = (struct flight){ .op = { .group = &rank->group, .state = ZI_NODE_QUEUED },
		                   .drawn = drawn_of(index) };
	flight->op.call =
		world_place(rank, &flight->drawn, flight->source_counts, flight->target_counts);
}

static int poll_once(struct flight *flight)
{
	static uint64_t pass;
	struct zi_meet_wants wants;

	zi_meet_wants_clear(&wants);
	return zi_node_op_poll(&flight->op, ++pass, &wants);
}

/* A call of both, one step of the one and one of the other. */
static void run_both(struct scene *scene, uint32_t index)
{
	struct flight flights[RANKS];
	bool is_done[RANKS] = { false };

	for (uint32_t i = 0; i < RANKS; i++)
		draw(&scene->ranks[i], &flights[i], index);
	while (!is_done[0] || !is_done[1])
		for (uint32_t i = 0; i < RANKS; i++)
			is_done[i] = is_done[i] || !poll_once(&flights[i]);
	for (uint32_t i = 0; i < RANKS; i++) {
		cr_assert_eq(flights[i].op.result, 0, "%s", flights[i].op.text.chars);
		cr_assert(world_check(&scene->ranks[i], &flights[i].drawn, &flights[i].op.call));
	}
}

/* Call 3 of rank 1, which ends by @end once it has read and told its step. */
static int end_by(struct scene *scene, enum end end, struct flight *flight)
{
	const uint32_t *step = &scene->world.board[1].step.value;
	uint32_t steps = scene->ranks[1].group.steps;
	struct zi_node_queue *queue;

	draw(&scene->ranks[1], flight, 3);
	if (end == END_DETACHED) {
		cr_assert_eq(zi_node_queue_new(&queue), 0);
		cr_assert_eq(zi_node_queue_submit(queue, &flight->op), 0);
		while (!zi_meet_has_come(step, steps + 1))
			(void)sched_yield();
		queue = zi_node_queue_free(queue);
		return flight->op.result;
	}
	cr_assert_eq(poll_once(flight), ZI_NODE_E_WAITS);
	cr_assert(zi_meet_has_come(step, steps + 1));
	if (end == END_DEADLINE) {
		zi_node_op_fail(&flight->op, -ETIMEDOUT, 1);
	} else {
		zi_line_store(scene->verdict, EPIPE);
		cr_assert_eq(poll_once(flight), 0);
	}
	return flight->op.result;
}

/* Rank 0 reads what rank 1's caller has written since. It has looked at the verdict before, so to
 * say: it hears of none. */
static void read_late(enum end end, int result)
{
	static const struct zi_line none;
	struct flight reader, owner;
	struct scene scene;
	struct rank *rank = &scene.ranks[0];

	scene_init(&scene);
	rank->group.meet.verdict = &none;
	for (uint32_t i = 0; i < RANKS; i++) {
		scene.ranks[i].group.cma.from_bytes = 1;
		zi_cma_offer(&scene.ranks[i].group);
	}
	run_both(&scene, 1);
	run_both(&scene, 2);
	draw(rank, &reader, 3);
	cr_assert_eq(poll_once(&reader), ZI_NODE_E_WAITS);
	cr_assert_eq(end_by(&scene, end, &owner), result);
	memset(scene.ranks[1].outside[0], 0xee, WORLD_BUFFER_BYTES);
	cr_assert_eq(poll_once(&reader), ZI_NODE_E_WAITS, "what the caller wrote was taken");
	cr_assert_eq(scene.world.board[0].cma.unread, 3);
	cr_assert(rank->group.run.is_restaged);
	zi_node_op_fail(&reader.op, -EPIPE, 0);
	cr_assert_eq(reader.op.result, -EPIPE);
	scene_deinit(&scene);
}

Test(cma, nothing_is_taken_of_who_left_at_its_deadline)
{
	read_late(END_DEADLINE, -ETIMEDOUT);
}

Test(cma, nothing_is_taken_of_who_left_by_a_verdict)
{
	read_late(END_VERDICT, -EPIPE);
}

Test(cma, nothing_is_taken_of_who_detached)
{
	read_late(END_DETACHED, -ECANCELED);
}

Test(cma, nothing_is_taken_of_a_group_that_was_freed)
{
	struct scene scene;
	char target[4] = "";

	scene_init(&scene);
	for (uint32_t i = 0; i < RANKS; i++) {
		scene.ranks[i].group.cma.from_bytes = 1;
		zi_cma_offer(&scene.ranks[i].group);
	}
	cr_assert(zi_cma_read(&scene.ranks[0].group, 1, target, (uintptr_t) "abc", 4, NULL, 0));
	cr_assert_str_eq(target, "abc");
	zi_cma_withdraw(&scene.ranks[1].group);
	cr_assert(!zi_cma_read(&scene.ranks[0].group, 1, target, (uintptr_t) "abc", 4, NULL, 0));
	cr_assert(!reads(&scene, 0, 1));
	scene_deinit(&scene);
}
