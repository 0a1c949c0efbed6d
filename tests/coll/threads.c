/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of check_coll over libclient/coll/node alone: threads as ranks, boards and arenas in plain
 * memory, the verdicts set by the test. No daemon is needed, and ThreadSanitizer can watch. Which
 * NUMA node an arena lies on is said by the case: a double, since the memory lies wherever it does.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/queue.h"
#include "tests/coll/messages.h"
#include "tests/coll/runner.h"
#include "tests/unit/node/past.h"

#define STREAMING_BYTES 65536u
#define SPIN_US         50u
#define BREAK_SPINS_MAX 20000u
/* For a rank that will not come. */
#define ABSENCE_TIMEOUT_MS 100u
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
	/* A group that breaks: by a verdict after so many calls, or since a rank does not come. */
	int ends_with;
	uint32_t broken_group, absent_rank, absent_from;
	uint32_t begun_count; /* calls of all ranks; atomic */
	uint32_t break_after, break_spins;
	uint32_t past; /* calls of each group before the first; 0: none */
};

struct rank {
	struct rank_link link;
	struct world *world;
	pthread_t thread;
	struct zi_node_queue *queue;
	struct zi_node_group groups[SCRIPT_GROUPS_MAX];
	struct zi_node_op ops[RANK_PENDING_MAX];
	struct zi_node_p2p p2ps[RANK_PENDING_MAX][MESSAGES_MAX];
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

static uint32_t p2ps_of(const struct script_call *call, uint32_t members, uint32_t self,
                        const struct rank_buffers *buffers, struct zi_node_p2p *p2ps)
{
	struct message messages[MESSAGES_MAX];
	uint32_t count = messages_of(call, members, self, buffers, messages);

	for (uint32_t i = 0; i < count; i++)
		p2ps[i] = (struct zi_node_p2p){
			.is_send = messages[i].is_send,
			.dtype = call->dtype,
			.peer = messages[i].peer,
			.element_count = messages[i].element_count,
			.buffer = messages[i].data,
		};
	return count;
}

/* What stands where peers look for this rank's word is not what it says from now on, as if another
 * process had its number: whoever reads its memory is to find that out. */
static void lose_memory(const struct rank *rank, const struct script *script)
{
	for (uint32_t i = 0; i < script->group_count; i++) {
		const struct zi_node_group *group = &rank->groups[i];

		if (script->cma >> SCRIPT_CMA_LOST >> rank->link.rank & 1u &&
		    script->groups[i] >> rank->link.rank & 1u)
			__atomic_fetch_add(&group->meet.members[group->meet.self].cma.word, 1,
			                   __ATOMIC_RELAXED);
	}
}

static int rank_call(struct rank_link *link, const struct script *script,
                     const struct script_call *call, const struct rank_buffers *buffers,
                     uint32_t slot)
{
	struct rank *rank = container_of(link, struct rank, link);
	uint32_t members = script_member_count(script, call);
	uint32_t self = script_member_of(script, call, link->rank);
	struct zi_node_op *op = &rank->ops[slot];
	struct world *world = rank->world;
	uint64_t timeout_ns = world->ends_with == -ETIMEDOUT && call->group == world->broken_group
	                              ? ABSENCE_TIMEOUT_MS * ZI_NS_PER_MS
	                              : world->timeout_ns;
	int r;

	__atomic_fetch_add(&world->begun_count, 1, __ATOMIC_RELAXED);
	if (call == &script->calls[script->call_count / 2])
		lose_memory(rank, script);
	*op = (struct zi_node_op){
		.group = &rank->groups[call->group],
		.call = { .deadline_ns = zi_clock_deadline_ns(timeout_ns) },
	};
	if (call->operation == SCRIPT_SEND || call->operation == SCRIPT_BATCH) {
		op->p2ps = rank->p2ps[slot];
		op->p2p_count = p2ps_of(call, members, self, buffers, op->p2ps);
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
	if (call->is_async) /* from now on its words are the queue's until it is done */
		return zi_node_queue_submit(rank->queue, op);
	r = zi_node_queue_run(rank->queue, op);
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
	for (uint32_t i = 0; i < world->script->group_count; i++)
		zi_verdict_give(&world->verdicts[i], ECANCELED);
}

/* Gives the verdict at its moment. */
static void *breaker_main(void *arg)
{
	struct world *world = arg;

	while (__atomic_load_n(&world->begun_count, __ATOMIC_RELAXED) < world->break_after)
		(void)sched_yield();
	for (uint32_t i = 0; i < world->break_spins; i++)
		(void)__atomic_load_n(&world->begun_count, __ATOMIC_RELAXED);
	zi_verdict_give(&world->verdicts[world->broken_group], EPIPE);
	return NULL;
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
	uint8_t places[SCRIPT_RANKS_MAX];
	uint32_t count = 0;

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
		/* What streams is mostly staged: not in each case. */
		.streaming_bytes =
			script->cma && script->calls[0].seed % 2 ? UINT64_MAX : STREAMING_BYTES,
		.number = index,
		.levels_bytes = 0,
		.cma = { .from_bytes = script_has_cma(script, rank->link.rank) },
	};
	for (uint32_t i = 0; i < script->ranks; i++)
		if (script->groups[index] >> i & 1u)
			places[count++] = script_numa_of(script, i);
	zi_numa_init(&rank->groups[index].numa, places, count);
	if (world->past)
		past_of(&rank->groups[index], world->past);
	zi_cma_offer(&rank->groups[index]);
}

static void rank_init(struct rank *rank, struct world *world, uint32_t number)
{
	*rank = (struct rank){
		.world = world,
		.link = { .rank = number,
		          .lie = number == 0 ? world->lie : RANK_HONEST,
		          .ends_with = world->ends_with,
		          .breakable_groups = world->ends_with ? 1u << world->broken_group : 0,
		          .absent_from =
		                  number == world->absent_rank ? world->absent_from : UINT32_MAX,
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
	bool has_breaker = world->ends_with == -EPIPE;
	pthread_t breaker;
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
	if (has_breaker && pthread_create(&breaker, NULL, breaker_main, world))
		abort();
	for (uint32_t i = 0; i < script->ranks; i++) {
		(void)pthread_join(ranks[i].thread, NULL);
		result |= ranks[i].result;
		ranks[i].queue = zi_node_queue_free(ranks[i].queue);
	}
	/* Ranks may have ended before the moment came. */
	__atomic_store_n(&world->begun_count, UINT32_MAX, __ATOMIC_RELAXED);
	if (has_breaker)
		(void)pthread_join(breaker, NULL);
	free(ranks);
	return result;
}

/* From the case alone, so that it is the same each time. */
static void draw_break(struct world *world, bool has_absence)
{
	const struct script *script = world->script;
	uint64_t random = script_mix(script->calls[0].seed + script->call_count);

	world->ends_with = has_absence ? -ETIMEDOUT : -EPIPE;
	world->broken_group = (uint32_t)(random % script->group_count);
	world->break_after =
		(uint32_t)(script_mix(random) % (script->ranks * script->call_count + 1));
	world->break_spins = (uint32_t)(script_mix(random + 1) % BREAK_SPINS_MAX);
	if (!has_absence)
		return;
	world->absent_rank = (uint32_t)(script_mix(random + 2) % script->ranks);
	world->absent_from = (uint32_t)(script_mix(random + 3) % (script->call_count + 1));
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
		.absent_from = UINT32_MAX,
		.past = runner->past,
	};
	int r;

	if (runner->has_verdict || runner->has_absence)
		draw_break(&world, runner->has_absence);
	for (uint32_t i = 0; i < SCRIPT_RANKS_MAX; i++)
		runner->reports[i] = (struct rank_report){ .call = -1 };
	r = harness_wait(harness_fork(world_main, &world), CASE_TIMEOUT_MS);
	if (r != 0 && r != 1)
		runner_note_end(&runner->reports[0], r);
	return r != 0;
}

void runner_init_threads(struct runner *runner)
{
	runner_init(runner, run, "threads");
}
