/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: nothing is taken that was read of private memory after its owner's call had returned; and
 * addresses are posted where that is worth it, of memory that is there, by all members alike or
 * seldom otherwise.
 * Method: both ranks are the test itself, which polls the one and the other.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "libclient/coll/node/op.h"
#include "libclient/coll/node/queue.h"
#include "tests/unit/node/cma_scene.h"

TestSuite(cma_late, .timeout = 60);

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

static void offer_both(struct scene *scene, uint64_t from_bytes)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		scene->ranks[i].group.cma.from_bytes = from_bytes;
		zi_cma_offer(&scene->ranks[i].group);
	}
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
		while (!zi_meet_has_come(step, steps + 1)) {
			cr_assert_neq(__atomic_load_n(&flight->op.state, __ATOMIC_ACQUIRE),
			              ZI_NODE_DONE, "it did not wait for its reader");
			(void)sched_yield();
		}
		queue = zi_node_queue_free(queue);
		return flight->op.result;
	}
	cr_assert_eq(poll_once(flight), ZI_NODE_E_WAITS);
	cr_assert(zi_meet_has_come(step, steps + 1));
	if (end == END_DEADLINE) {
		zi_node_op_fail(&flight->op, &flight->op, -ETIMEDOUT, 1);
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
	offer_both(&scene, 1);
	run_both(&scene, 1);
	run_both(&scene, 2);
	draw(rank, &reader, 3);
	cr_assert_eq(poll_once(&reader), ZI_NODE_E_WAITS);
	cr_assert_eq(end_by(&scene, end, &owner), result);
	memset(scene.ranks[1].outside[0], 0xee, WORLD_BUFFER_BYTES);
	cr_assert_eq(poll_once(&reader), ZI_NODE_E_WAITS, "what the caller wrote was taken");
	cr_assert_eq(scene.world.board[0].cma.unread, 3);
	cr_assert(rank->group.run.is_restaged);
	zi_node_op_fail(&reader.op, &reader.op, -EPIPE, 0);
	cr_assert_eq(reader.op.result, -EPIPE);
	scene_deinit(&scene);
}

Test(cma_late, nothing_is_taken_of_who_left_at_its_deadline)
{
	read_late(END_DEADLINE, -ETIMEDOUT);
}

Test(cma_late, nothing_is_taken_of_who_left_by_a_verdict)
{
	read_late(END_VERDICT, -EPIPE);
}

Test(cma_late, nothing_is_taken_of_who_detached)
{
	read_late(END_DETACHED, -ECANCELED);
}

Test(cma_late, nothing_is_taken_of_a_group_that_was_freed)
{
	struct scene scene;
	char target[4] = "";

	scene_init(&scene);
	offer_both(&scene, 1);
	cr_assert(zi_cma_read(&scene.ranks[0].group, 1, target, (uintptr_t) "abc", 4, NULL, 0));
	cr_assert_str_eq(target, "abc");
	zi_cma_withdraw(&scene.ranks[1].group);
	cr_assert(!zi_cma_read(&scene.ranks[0].group, 1, target, (uintptr_t) "abc", 4, NULL, 0));
	cr_assert(!reads(&scene, 0, 1));
	scene_deinit(&scene);
}

/* By what rank 1 sends on average in all_to_allv it would be staged, by what rank 0 does read. */
Test(cma_late, calls_on_which_members_do_not_agree_become_rare)
{
	static const uint32_t anew = 1u << 2 | 1u << 5 | 1u << 8 | 1u << 11;
	static const uint32_t read = 1u << 3 | 1u << 4 | 1u << 7;
	struct scene scene;

	scene_init(&scene);
	offer_both(&scene, 50000);
	for (uint32_t k = 1; k <= 14; k++) {
		run_both(&scene, k);
		for (uint32_t i = 0; i < RANKS; i++) {
			const struct zi_node_run *run = &scene.ranks[i].group.run;

			cr_assert_eq(run->is_restaged, anew >> k & 1, "rank %u, call %u", i, k);
			cr_assert_eq(run->path == ZI_NODE_CMA, read >> k & 1, "rank %u, call %u", i,
			             k);
		}
	}
	scene_deinit(&scene);
}

/* ---- what is posted ---- */

/* Whether rank 0 posts the address of an all_gather's @source, of @bytes. */
static bool posts_address(const void *source, uint64_t bytes)
{
	struct scene scene;
	struct flight flight;
	void *target = world_memory(RANKS * bytes);
	bool is_posted;

	scene_init(&scene);
	offer_both(&scene, ZI_CMA_FROM_BYTES);
	run_both(&scene, 1); /* all_to_all: shorter, staged */
	draw(&scene.ranks[0], &flight, 3);
	flight.op.call.source = source;
	flight.op.call.target = target;
	flight.op.call.element_count = bytes / sizeof(int32_t);
	cr_assert_eq(poll_once(&flight), ZI_NODE_E_WAITS);
	is_posted = zi_cma_address_at(scene.world.board[0].posts[2].call.source);
	free(target);
	scene_deinit(&scene);
	return is_posted;
}

Test(cma_late, blocks_of_an_all_gather_are_read_from_256_kib_to_4_mib)
{
	char *source = world_memory((4u << 20) + 4);

	cr_assert(!posts_address(source, (256u << 10) - 4));
	cr_assert(posts_address(source, 256u << 10));
	cr_assert(posts_address(source, 4u << 20));
	cr_assert(!posts_address(source, (4u << 20) + 4));
	free(source);
}

/* Mapped and not touched yet, as a file's pages are: none is left to the readers' waiting. */
Test(cma_late, each_page_is_there_before_its_address_is_posted)
{
	const uint64_t bytes = 256u << 10;
	unsigned char *source = shared_memory(bytes);
	FILE *pagemap = fopen("/proc/self/pagemap", "r");
	uint64_t entry;

	cr_assert_not_null(pagemap);
	cr_assert(posts_address(source, bytes));
	for (uint64_t i = 0; i < bytes / 4096; i++) {
		cr_assert_eq(fseek(pagemap, (long)(((uintptr_t)source / 4096 + i) * 8), SEEK_SET),
		             0);
		cr_assert_eq(fread(&entry, sizeof(entry), 1, pagemap), 1);
		cr_assert(entry >> 63, "page %llu", (unsigned long long)i);
	}
	(void)fclose(pagemap);
	(void)munmap(source, bytes);
}
