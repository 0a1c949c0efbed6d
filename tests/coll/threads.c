/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of check_coll over libclient/coll alone: threads as ranks, boards and arenas in plain
 * memory, the verdicts set by the test. No daemon is needed, and ThreadSanitizer can watch.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "libclient/coll/queue.h"
#include "tests/coll/plain.h"
#include "tests/coll/runner.h"

#define STREAMING_BYTES 65536u
#define SPIN_US         50u
/* Of a whole case: more than its calls can take one after the other. */
#define CASE_TIMEOUT_MS 240000u

struct world {
	const struct script *script;
	struct rank_report *reports;
	char *arenas; /* of all ranks */
	uint64_t arena_bytes;
	struct zi_board_member *boards[SCRIPT_GROUPS_MAX];
	struct zi_line verdicts[SCRIPT_GROUPS_MAX];
	struct zi_line spin_us;
	uint64_t timeout_ns;
	enum rank_lie lie;
};

struct rank {
	struct rank_link link;
	struct world *world;
	pthread_t thread;
	struct zi_node_queue *queue;
	struct zi_node_group groups[SCRIPT_GROUPS_MAX];
	struct zi_node_op ops[RANK_PENDING_MAX];
	struct zi_node_p2p p2ps[RANK_PENDING_MAX][2 * SCRIPT_RANKS_MAX];
	struct zi_text words;
	int result;
};

static void *pages(uint64_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		abort();
	return map;
}

/* ---- the link of a rank ---- */

static const enum zi_coll_operation operations[_SCRIPT_OPERATION_COUNT] = {
	[SCRIPT_BARRIER] = ZI_COLL_BARRIER,       [SCRIPT_ALL_REDUCE] = ZI_COLL_ALL_REDUCE,
	[SCRIPT_REDUCE] = ZI_COLL_REDUCE,         [SCRIPT_REDUCE_SCATTER] = ZI_COLL_REDUCE_SCATTER,
	[SCRIPT_ALL_GATHER] = ZI_COLL_ALL_GATHER, [SCRIPT_BROADCAST] = ZI_COLL_BROADCAST,
	[SCRIPT_GATHER] = ZI_COLL_GATHER,         [SCRIPT_SCATTER] = ZI_COLL_SCATTER,
	[SCRIPT_ALL_TO_ALL] = ZI_COLL_ALL_TO_ALL, [SCRIPT_ALL_TO_ALLV] = ZI_COLL_ALL_TO_ALLV,
};

/* The messages of a send or a batch that concern member @self. */
static uint32_t messages_of(const struct script_call *call, uint32_t members, uint32_t self,
                            const struct rank_buffers *buffers, struct zi_node_p2p *p2ps)
{
	uint32_t width = zi_dtype_bytes(call->dtype), count = 0;
	char *source = buffers->source, *target = buffers->target;

	if (call->operation == SCRIPT_SEND) {
		uint32_t taker = (call->root + 1) % members;

		if (taker != call->root && (self == call->root || self == taker))
			p2ps[count++] = (struct zi_node_p2p){
				.is_send = self == call->root,
				.dtype = call->dtype,
				.peer = self == call->root ? taker : call->root,
				.element_count = call->element_count,
				.buffer = self == call->root ? source : target,
			};
		return count;
	}
	for (uint32_t i = 0; i < members; i++) {
		if (plain_has_message(call, self, i))
			p2ps[count++] = (struct zi_node_p2p){
				.is_send = true,
				.dtype = call->dtype,
				.peer = i,
				.element_count = buffers->source_counts[i],
				.buffer = source,
			};
		if (plain_has_message(call, i, self))
			p2ps[count++] = (struct zi_node_p2p){
				.dtype = call->dtype,
				.peer = i,
				.element_count = buffers->target_counts[i],
				.buffer = target,
			};
		if (source)
			source += buffers->source_counts[i] * width;
		if (target)
			target += buffers->target_counts[i] * width;
	}
	return count;
}

static int rank_call(struct rank_link *link, const struct script *script,
                     const struct script_call *call, const struct rank_buffers *buffers,
                     uint32_t slot)
{
	struct rank *rank = container_of(link, struct rank, link);
	uint32_t members = script_member_count(script, call);
	uint32_t self = script_member_of(script, call, link->rank);
	struct zi_node_op *op = &rank->ops[slot];
	int r;

	*op = (struct zi_node_op){
		.group = &rank->groups[call->group],
		.call = { .deadline_ns = zi_clock_deadline_ns(rank->world->timeout_ns) },
	};
	if (call->operation == SCRIPT_SEND || call->operation == SCRIPT_BATCH) {
		op->p2ps = rank->p2ps[slot];
		op->p2p_count = messages_of(call, members, self, buffers, op->p2ps);
		if (!op->p2p_count) { /* nothing to do with it */
			op->state = ZI_NODE_DONE;
			return 0;
		}
	} else {
		op->call.operation = operations[call->operation];
		op->call.dtype = call->dtype;
		op->call.reduce_op = call->reduce_op;
		op->call.root = call->root;
		op->call.element_count = call->element_count;
		op->call.source = buffers->source;
		op->call.target = buffers->target;
		if (call->operation == SCRIPT_ALL_TO_ALLV) {
			op->call.element_count = 0;
			op->call.source_counts = buffers->source_counts;
			op->call.target_counts = buffers->target_counts;
		}
	}
	r = call->is_async ? zi_node_queue_submit(rank->queue, op)
	                   : zi_node_queue_run(rank->queue, op);
	rank->words = op->text;
	return r;
}

static int rank_wait(struct rank_link *link, uint32_t slot)
{
	struct rank *rank = container_of(link, struct rank, link);
	struct zi_node_op *op = &rank->ops[slot];

	while (!zi_node_queue_wait(rank->queue, op, ZI_DEADLINE_NEVER))
		;
	rank->words = op->text;
	return op->result;
}

static const char *rank_words(const struct rank_link *link)
{
	return container_of(link, struct rank, link)->words.chars;
}

/* ---- the world ---- */

/* Nobody waits for a rank that has given up. */
static void break_all(struct world *world)
{
	for (uint32_t i = 0; i < world->script->group_count; i++) {
		zi_line_store(&world->verdicts[i], ECANCELED);
		(void)syscall(SYS_futex, &world->verdicts[i].value, FUTEX_WAKE, INT_MAX, NULL, NULL,
		              0);
	}
}

static void *rank_main(void *arg)
{
	struct rank *rank = arg;

	rank->result =
		rank_run(&rank->link, rank->world->script, &rank->world->reports[rank->link.rank]);
	if (rank->result)
		break_all(rank->world);
	return NULL;
}

static void group_init(struct rank *rank, uint32_t index)
{
	struct world *world = rank->world;
	const struct script *script = world->script;
	struct script_call any = { .group = index };
	char *arena = world->arenas + rank->link.rank * world->arena_bytes;
	uint64_t offset, bytes;

	zi_node_staging(index, &offset, &bytes);
	rank->groups[index] = (struct zi_node_group){
		.meet = { .members = world->boards[index],
		          .verdict = &world->verdicts[index],
		          .spin_us = &world->spin_us,
		          .member_count = script_member_count(script, &any),
		          .self = script_member_of(script, &any, rank->link.rank) },
		.arenas = world->arenas,
		.arenas_bytes = world->arena_bytes * script->ranks,
		.own = arena,
		.own_bytes = world->arena_bytes,
		.staging = arena + offset,
		.staging_bytes = bytes,
		.streaming_bytes = STREAMING_BYTES,
		.number = index,
	};
}

static void rank_init(struct rank *rank, struct world *world, uint32_t number)
{
	*rank = (struct rank){
		.world = world,
		.link = { .rank = number,
		          .lie = number == 0 ? world->lie : RANK_HONEST,
		          .arena = world->arenas + number * world->arena_bytes +
		                   ZI_COLL_STAGING_BYTES,
		          .arena_bytes = world->script->arena_bytes,
		          .call = rank_call,
		          .wait = rank_wait,
		          .words = rank_words },
	};
	for (uint32_t i = 0; i < world->script->group_count; i++)
		if (world->script->groups[i] >> number & 1u)
			group_init(rank, i);
	if (zi_node_queue_new(&rank->queue))
		abort();
}

/* In a process of its own, which gives everything back by ending. */
static int world_run(struct world *world)
{
	const struct script *script = world->script;
	struct rank *ranks = calloc(script->ranks, sizeof(*ranks));
	int result = 0;

	if (!ranks)
		abort();
	world->arena_bytes = script->arena_bytes + ZI_COLL_STAGING_BYTES;
	world->arenas = pages(world->arena_bytes * script->ranks);
	world->spin_us.value =
		script->ranks <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? SPIN_US : 0;
	for (uint32_t i = 0; i < script->group_count; i++)
		world->boards[i] = pages(script->ranks * sizeof(struct zi_board_member));
	for (uint32_t i = 0; i < script->ranks; i++)
		rank_init(&ranks[i], world, i);
	for (uint32_t i = 0; i < script->ranks; i++)
		if (pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]))
			abort();
	for (uint32_t i = 0; i < script->ranks; i++) {
		(void)pthread_join(ranks[i].thread, NULL);
		result |= ranks[i].result;
		ranks[i].queue = zi_node_queue_free(ranks[i].queue);
	}
	free(ranks);
	return result;
}

static int world_main(void *arg)
{
	return world_run(arg);
}

static int run(struct runner *runner, const struct script *script)
{
	struct world world = {
		.script = script,
		.reports = runner->reports,
		.timeout_ns = runner->timeout_ms * ZI_NS_PER_MS,
		.lie = runner->lie,
	};
	int r;

	for (uint32_t i = 0; i < SCRIPT_RANKS_MAX; i++)
		runner->reports[i] = (struct rank_report){ .call = -1 };
	r = harness_wait(harness_fork(world_main, &world), CASE_TIMEOUT_MS);
	if (r != 0 && r != 1)
		(void)snprintf(runner->reports[0].words, sizeof runner->reports[0].words,
		               r == -ETIMEDOUT ? "the ranks hung" : "the ranks died: signal %d",
		               r - 1000);
	return r != 0;
}

void runner_init_threads(struct runner *runner)
{
	*runner = (struct runner){ .run = run, .name = "threads", .timeout_ms = 30000 };
	runner->reports = mmap(NULL, SCRIPT_RANKS_MAX * sizeof(*runner->reports),
	                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (runner->reports == MAP_FAILED)
		abort();
}

void runner_deinit(struct runner *runner)
{
	(void)munmap(runner->reports, SCRIPT_RANKS_MAX * sizeof(*runner->reports));
}
