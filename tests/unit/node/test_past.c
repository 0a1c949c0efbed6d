/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: numbers of calls, messages and pieces run over without anybody noticing: who waits sleeps,
 * and is woken by who comes, by an alarm, and by its deadline.
 * Method: two or three threads as ranks whose board is that of a long past (past.h), begun some
 * calls before 2^31 and before 2^32.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#include "common/wire/verdict.h"
#include "tests/unit/node/past.h"
#include "tests/unit/node/world.h"

#define CALLS 24u
/* Nobody takes so long to fall asleep. */
#define ASLEEP_NS (5 * ZI_NS_PER_S)

static const uint32_t pasts[] = { PAST_HALF - CALLS / 2, PAST_ALL - CALLS / 2 };

/* Until @member sleeps. False: it does not. */
static bool await_asleep(const struct world *world, uint32_t member)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(ASLEEP_NS);

	while (!zi_line_load(&world->board[member].sleeping)) {
		if (zi_clock_now_ns() >= deadline_ns)
			return false;
		(void)sched_yield();
	}
	return true;
}

static void run_each(uint32_t count, void *(*entry)(void *), struct rank *ranks,
                     void (*look)(const struct rank *ranks))
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(pasts); i++) {
		struct world world;

		world_init(&world, count, 1);
		for (uint32_t k = 0; k < count; k++) {
			rank_init(&ranks[k], &world, k);
			past_of(&ranks[k].group, pasts[i]);
		}
		world_run(ranks, entry);
		look(ranks);
		for (uint32_t k = 0; k < count; k++)
			rank_deinit(&ranks[k]);
		world_deinit(&world);
	}
}

static void expect_all_right(const struct rank *ranks)
{
	for (uint32_t i = 0; i < ranks->world->ranks; i++) {
		cr_expect_eq(ranks[i].failed_call, -1, "rank %u, call %d: %d %s", i,
		             ranks[i].failed_call, ranks[i].result, ranks[i].text.chars);
	}
}

/* ---- sleeping ---- */

static int exchange(struct rank *rank, uint32_t call)
{
	char *data = rank->outside[0];
	struct zi_node_p2p p2p = { .is_send = rank->number == 1,
		                   .dtype = ZI_DTYPE_I8,
		                   .peer = 1 - rank->number,
		                   .element_count = call % 2 ? 100 : WORLD_STAGING_BYTES,
		                   .buffer = data };
	int r;

	memset(data, rank->number == 1 ? (int)call : -1, p2p.element_count);
	r = zi_node_batch(&rank->group, &p2p, 1, ZI_DEADLINE_NEVER, &rank->text);
	return r ? r : data[p2p.element_count - 1] == (char)call ? 0 : -EBADMSG;
}

static int meet(struct rank *rank)
{
	const struct zi_node_call barrier = { .operation = ZI_COLL_BARRIER,
		                              .deadline_ns = ZI_DEADLINE_NEVER };

	return zi_node_call(&rank->group, &barrier, &rank->text);
}

/* 1 comes when 0 sleeps. */
static void *come_late(void *arg)
{
	struct rank *rank = arg;

	for (uint32_t i = 0; i < CALLS && rank->failed_call < 0; i++) {
		for (uint32_t way = 0; way < 2; way++) {
			if (rank->number == 1 && !await_asleep(rank->world, 0)) {
				rank->failed_call = (int)i;
				zi_text_set(&rank->text, "rank 0 does not sleep");
				zi_verdict_give(&rank->world->verdict, EPIPE);
				return NULL;
			}
			rank->result = way ? exchange(rank, i) : meet(rank);
			if (rank->result)
				rank->failed_call = (int)i;
		}
	}
	return NULL;
}

Test(past, who_waits_sleeps, .timeout = 100)
{
	struct rank ranks[2];

	run_each(2, come_late, ranks, expect_all_right);
}

/* ---- words that are told now and then ---- */

/* Many small calls, and then a large one, at whose end all wait until the others have left it. */
static void *sum_at_the_end(void *arg)
{
	struct rank *rank = arg;
	float *source = (float *)(void *)rank->inside[0],
	      *target = (float *)(void *)rank->inside[1];
	const struct zi_node_call sum = { .operation = ZI_COLL_ALL_REDUCE,
		                          .dtype = ZI_DTYPE_F32,
		                          .reduce_op = ZI_REDUCE_SUM,
		                          .element_count = 20000,
		                          .source = source,
		                          .target = target,
		                          .deadline_ns = ZI_DEADLINE_NEVER };

	for (uint32_t i = 0; i < CALLS - 1 && !rank->result; i++)
		rank->result = meet(rank);
	for (uint32_t i = 0; i < sum.element_count; i++)
		source[i] = 1;
	if (rank->number == 1 && !rank->result && !await_asleep(rank->world, 0)) {
		rank->result = -ETIMEDOUT;
		zi_verdict_give(&rank->world->verdict, EPIPE); /* nobody need wait for it */
	}
	if (!rank->result)
		rank->result = zi_node_call(&rank->group, &sum, &rank->text);
	/* When this member has left it, the others have too. */
	for (uint32_t i = 0; i < rank->world->ranks && !rank->result; i++)
		if (zi_line_load(&rank->world->board[i].finished) != rank->group.sequence)
			rank->result = -EBADMSG;
	if (rank->result)
		rank->failed_call = 0;
	return NULL;
}

Test(past, a_large_call_after_many_small_ones_is_left_by_all, .timeout = 100)
{
	struct rank ranks[2];

	run_each(2, sum_at_the_end, ranks, expect_all_right);
}

/* ---- alarms ---- */

/* 0 waits for 1, which does not come; 2 refuses, by which 0 has its error at once. */
static void *refuse(void *arg)
{
	struct rank *rank = arg;
	struct zi_node_call call = { .operation = ZI_COLL_BARRIER,
		                     .deadline_ns = ZI_DEADLINE_NEVER };

	for (uint32_t i = 0; i < CALLS && !rank->result; i++)
		rank->result = meet(rank);
	if (rank->result || rank->number == 1)
		return NULL;
	if (rank->number == 2) {
		call.refused = -EACCES;
		call.reason = "it is late";
		(void)await_asleep(rank->world, 0);
	}
	rank->result = zi_node_call(&rank->group, &call, &rank->text);
	return NULL;
}

static void expect_refused(const struct rank *ranks)
{
	cr_expect_eq(ranks[0].result, -EACCES, "%d %s", ranks[0].result, ranks[0].text.chars);
	cr_expect_eq(ranks[1].result, 0, "%s", ranks[1].text.chars);
	cr_expect_eq(ranks[2].result, -EACCES);
	cr_expect_eq(ranks->world->board[2].alarm.value, ranks[2].group.sequence);
}

Test(past, an_alarm_wakes_who_waits_for_somebody_else, .timeout = 100)
{
	struct rank ranks[3];

	run_each(3, refuse, ranks, expect_refused);
}
