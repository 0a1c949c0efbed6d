/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what lies in private memory is read there once its takers have shown that they can, and
 * staged in every other case, with the same result: nobody offers it, the kernel forbids it from
 * the start or from some call on, another process has the number, the address is wrong, the peer
 * dies.
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
#include "tests/unit/node/cma_scene.h"

#define LOST_AT 5u
#define NOBODY  65534u

struct way {
	uint64_t from_bytes[RANKS];
	/* Of rank 1: before which call its memory is shut off, or its word changes; 0: never. */
	uint32_t shut_at, changed_at;
};

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

Test(cma, of_thresholds_that_differ_the_highest_counts)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, WORLD_BUFFER_BYTES } });
	assert_paths(&scene, 1, CALLS, ZI_NODE_PIECES, false);
	cr_assert(reads(&scene, 0, 1) && reads(&scene, 1, 0));
	scene_deinit(&scene);
}

/* In one direction it could be: then nobody tries, and no call begins anew. */
Test(cma, who_cannot_be_read_is_staged)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 1 }, .shut_at = 1 });
	assert_paths(&scene, 1, CALLS, ZI_NODE_PIECES, false);
	cr_assert(!reads(&scene, 0, 1) && reads(&scene, 1, 0));
	scene_deinit(&scene);
}

/* Rank 0 reads no more from call LOST_AT on, which begins anew. */
static void assert_lost(struct scene *scene)
{
	assert_paths(scene, 3, LOST_AT - 1, ZI_NODE_CMA, false);
	assert_paths(scene, LOST_AT, LOST_AT, ZI_NODE_PIECES, true);
	assert_paths(scene, LOST_AT + 1, CALLS, ZI_NODE_PIECES, false);
	cr_assert_eq(scene->world.board[0].cma.unread, LOST_AT);
}

Test(cma, who_cannot_be_read_any_more_is_staged_in_the_same_call)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 1 }, .shut_at = LOST_AT });
	assert_lost(&scene);
	cr_assert(!reads(&scene, 0, 1) && reads(&scene, 1, 0));
	scene_deinit(&scene);
}

/* As it would be if another process had the number of the one that was asked first. */
Test(cma, memory_without_the_word_is_somebody_elses)
{
	struct scene scene;

	scene_init(&scene);
	run(&scene, &(struct way){ .from_bytes = { 1, 1 }, .changed_at = LOST_AT });
	assert_lost(&scene);
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
