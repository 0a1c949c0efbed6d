/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: nothing that ranks of a node share is read while it is written, on any path, of calls that
 * are waited for and of others; a rank that dies in the middle of anything leaves nobody behind.
 * Method: threads as ranks (tests/unit/node/world.h), made for ThreadSanitizer; in half of the
 * worlds one rank stops at a random moment of a random call and gives, in the daemon's stead, the
 * verdict, which every other rank must have as its error. Now and then a rank comes only when all
 * others sleep, or interrupts another one, which makes its call again. Of half of the worlds the
 * calls are those after thousands of millions (past.h). Usage: coll [ROUNDS [SEED]]
 */
#include <errno.h>
#include <sched.h>

#include "common/base/futex.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/call.h"
#include "libclient/coll/node/queue.h"
#include "tests/unit/node/past.h"
#include "tests/unit/node/world.h"

#define RANKS_MAX     4u
#define CALLS         60u
#define MESSAGE_BYTES 30000u
#define NEVER         UINT32_MAX
/* Of the first call of some worlds: numbers run over in their midst. */
#define PAST_CALLS (CALLS / 4)
/* Looks at who sleeps, a switch each. */
#define SLEEP_LOOKS_MAX 2000u

struct player {
	struct rank rank;
	struct zi_node_queue *queue;
	uint32_t dies_at; /* call, or NEVER */
	uint32_t polls;   /* of that call, before */
	bool is_dead;
	char *letters; /* (2 × ranks, MESSAGE_BYTES) */
	struct zi_node_p2p p2ps[2 * RANKS_MAX];
	struct zi_line interrupt; /* raised by the rank before, lowered by this one */
	struct player *next;
};

static void give_verdict(struct world *world)
{
	zi_verdict_give(&world->verdict, EPIPE);
}

/* Until all others sleep, which they may also do without having met this one; not for ever, as they
 * may have ended. */
static void let_others_sleep(const struct rank *rank)
{
	struct world *world = rank->world;
	uint32_t awake_count = 1;

	for (uint32_t i = 0; i < SLEEP_LOOKS_MAX && awake_count; i++) {
		awake_count = 0;
		for (uint32_t k = 0; k < world->ranks; k++)
			awake_count +=
				k != rank->number && !zi_line_load(&world->board[k].sleeping);
		(void)sched_yield();
	}
}

/* Makes a few moves of @call, and no more. */
static void die_in(struct player *player, const struct zi_node_call *call)
{
	struct zi_meet_wants wants;
	int r = ZI_NODE_E_WAITS;

	zi_node_begin(&player->rank.group, call);
	for (uint32_t i = 0; i < player->polls && r == ZI_NODE_E_WAITS; i++) {
		zi_meet_wants_clear(&wants);
		r = zi_node_poll(&player->rank.group, &wants, &player->rank.text);
	}
	player->is_dead = true;
	if (player->polls % 2)
		let_others_sleep(&player->rank);
	give_verdict(player->rank.world);
}

static uint64_t message_bytes(const struct world *world, uint32_t call, uint32_t from, uint32_t to)
{
	static const uint64_t sizes[] = { 0, 1, 5, 700, 5000, MESSAGE_BYTES };

	return sizes[world_random(world, call, 50 + from * 8 + to) % ZI_COUNT_OF(sizes)];
}

/* To and from everybody. */
static struct zi_node_op batch_of(struct player *player, uint32_t call)
{
	struct rank *rank = &player->rank;
	uint32_t ranks = rank->world->ranks;

	for (uint32_t i = 0; i < ranks; i++) {
		uint64_t out = message_bytes(rank->world, call, rank->number, i);

		memset(player->letters + i * MESSAGE_BYTES, (int)(call + rank->number), out);
		player->p2ps[i] =
			(struct zi_node_p2p){ .is_send = true,
			                      .dtype = ZI_DTYPE_I8,
			                      .peer = i,
			                      .element_count = out,
			                      .buffer = player->letters + i * MESSAGE_BYTES };
		player->p2ps[ranks + i] = (struct zi_node_p2p){
			.dtype = ZI_DTYPE_I8,
			.peer = i,
			.element_count = message_bytes(rank->world, call, i, rank->number),
			.buffer = player->letters + (ranks + i) * MESSAGE_BYTES
		};
	}
	return (struct zi_node_op){ .group = &rank->group,
		                    .call.deadline_ns = ZI_DEADLINE_NEVER,
		                    .p2ps = player->p2ps,
		                    .p2p_count = 2 * ranks };
}

static bool have_letters_come(const struct player *player, uint32_t call)
{
	uint32_t ranks = player->rank.world->ranks;

	for (uint32_t i = 0; i < ranks; i++)
		for (uint64_t k = 0; k < player->p2ps[ranks + i].element_count; k++)
			if (player->letters[(ranks + i) * MESSAGE_BYTES + k] != (char)(call + i))
				return false;
	return true;
}

static void interrupt_next(struct player *player)
{
	zi_line_store(&player->next->interrupt, 1);
	zi_futex_wake(&player->next->interrupt.value);
}

/* Again, as often as it is interrupted. */
static void run(struct player *player, struct zi_node_op *op)
{
	op->call.interrupt = &player->interrupt;
	do {
		(void)zi_node_queue_run(player->queue, op);
		if (op->is_interrupted)
			zi_line_store(&player->interrupt, 0);
	} while (op->is_interrupted);
}

static void *player_main(void *arg)
{
	struct player *player = container_of((struct rank *)arg, struct player, rank);
	struct rank *rank = &player->rank;

	for (uint32_t i = 0; i < CALLS && !rank->result && rank->failed_call < 0; i++) {
		uint32_t index = (uint32_t)(world_random(rank->world, i, 7) % 1000);
		struct world_call drawn = world_draw(rank->world, index);
		uint64_t source_counts[WORLD_RANKS_MAX], target_counts[WORLD_RANKS_MAX];
		struct zi_node_op op = { .group = &rank->group };
		struct zi_node_op batch = batch_of(player, i);

		op.call = world_place(rank, &drawn, source_counts, target_counts);
		if (i == player->dies_at) {
			die_in(player, &op.call);
			return NULL;
		}
		if (world_random(rank->world, i, 8) % (4 * rank->world->ranks) == rank->number)
			let_others_sleep(rank);
		if (world_random(rank->world, i, 9) % 2)
			interrupt_next(player);
		/* Waited for at once; the one while the other is under way; or both under way. */
		if (i % 3 == 0) {
			run(player, &op);
			run(player, &batch);
		} else if (i % 3 == 1) {
			rank->result = zi_node_queue_submit(player->queue, &batch);
			run(player, &op);
			(void)zi_node_queue_wait(player->queue, &batch, ZI_DEADLINE_NEVER);
		} else {
			rank->result = zi_node_queue_submit(player->queue, &batch);
			rank->result |= zi_node_queue_submit(player->queue, &op);
			(void)zi_node_queue_wait(player->queue, &op, ZI_DEADLINE_NEVER);
			(void)zi_node_queue_wait(player->queue, &batch, ZI_DEADLINE_NEVER);
		}
		rank->result = op.result ? op.result : batch.result;
		if (!rank->result &&
		    (!world_check(rank, &drawn, &op.call) || !have_letters_come(player, i)))
			rank->failed_call = (int)i;
	}
	if (rank->failed_call >= 0)
		give_verdict(rank->world); /* nobody need wait for it */
	return NULL;
}

/* Return: whether everybody had what they should have. */
static bool play(uint32_t round, uint64_t seed)
{
	struct player players[RANKS_MAX] = { 0 };
	uint32_t count = 2 + round % (RANKS_MAX - 1);
	uint32_t victim = round % 2 ? (uint32_t)(seed % count) : NEVER;
	struct world world;
	bool is_right = true;

	world_init(&world, count, seed);
	for (uint32_t i = 0; i < count; i++) {
		rank_init(&players[i].rank, &world, i);
		if (round / 2 % 4 >= 2)
			past_of(&players[i].rank.group,
			        (round / 2 % 4 == 2 ? PAST_HALF : PAST_ALL) - PAST_CALLS);
		players[i].letters = world_memory(2 * RANKS_MAX * MESSAGE_BYTES);
		players[i].dies_at = i == victim ? (uint32_t)(seed / 64 % CALLS) : NEVER;
		players[i].polls = (uint32_t)(seed / 4096 % 6);
		players[i].next = &players[(i + 1) % count];
		if (zi_node_queue_new(&players[i].queue))
			abort();
	}
	for (uint32_t i = 0; i < count; i++)
		if (pthread_create(&players[i].rank.thread, NULL, player_main, &players[i].rank))
			abort();
	for (uint32_t i = 0; i < count; i++)
		(void)pthread_join(players[i].rank.thread, NULL);
	for (uint32_t i = 0; i < count; i++) {
		struct player *player = &players[i];
		int expected = victim == NEVER || player->is_dead ? 0 : -EPIPE;

		player->queue = zi_node_queue_free(player->queue);
		if (player->rank.result != expected || player->rank.failed_call >= 0) {
			printf("coll: round %u, seed %llu, %u ranks: rank %u: call %d, %d instead "
			       "of %d: %s\n",
			       round, (unsigned long long)seed, count, i, player->rank.failed_call,
			       player->rank.result, expected, player->rank.text.chars);
			is_right = false;
		}
		free(player->letters);
		rank_deinit(&player->rank);
	}
	world_deinit(&world);
	return is_right;
}

int main(int argc, char **argv)
{
	uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 24;
	uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < rounds; i++)
		wrong += !play(i, data_random(&state) >> 8);
	printf("coll: %u worlds, %u wrong\n", rounds, wrong);
	return wrong != 0;
}
