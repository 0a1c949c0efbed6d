/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what daemons say to each other and pull goes through the threads that talk, both ways at
 * once, in order and whole; the daemon hears what its worker has taken; and it ends, by whom it
 * shall, with the reason. Method: two of them in one process, over lanes that are doubles of
 * Gloo's, with the test as both daemons.
 */
#include <sched.h>

#include "common/base/futex.h"
#include "daemon/worker/net/talk.h"
#include "tests/unit/worker/fake_lanes.h"

#define SLAB_BYTES  (4ull << 20)
#define ROUND_COUNT 3000u
#define PULL_COUNT  300u
#define PULL_BYTES  (TALK_CHUNK_BYTES / 2) /* most of them in one chunk, some in two */
#define PLACES      6u

TestSuite(talk, .timeout = 120);

struct side {
	struct talk_options options;
	struct talk_inbox *inbox;
	char *slab;
	uint32_t stop;
	struct zi_thread thread;
	struct zi_text text;
	uint32_t suspect;
	int result;
	/* Of its thread, under the lock. */
	uint32_t taken, heard[_TALK_KIND_COUNT];
	uint64_t next_round;
	/* Both. */
	uint32_t put;
	struct talk_entry asked[TALK_CREDIT]; /* PULLs to be served, oldest first */
	uint32_t asked_count;
	bool is_wrong, is_over;
};

static struct side sides[2];
static uint32_t busy[PLACES]; /* under the lock: 2 until its bytes have come, and gone */

static uint8_t byte_of(uint64_t tag, uint64_t index)
{
	return (uint8_t)(tag * 31 + index * 7 + index / 253);
}

static uint64_t bytes_of(uint64_t tag)
{
	return tag % 5 ? PULL_BYTES - tag * 3 : TALK_CHUNK_BYTES + tag;
}

/* On either side. */
static uint64_t place_of(uint64_t tag)
{
	return tag % PLACES * 2 * TALK_CHUNK_BYTES;
}

static bool is_right(const struct side *side, const struct talk_entry *entry)
{
	for (uint64_t i = 0; i < entry->bytes; i++)
		if ((uint8_t)side->slab[entry->offset_bytes + i] != byte_of(entry->tag, i))
			return false;
	return entry->bytes == bytes_of(entry->tag);
}

static void hear(struct side *side, const struct talk_entry *entry)
{
	side->heard[entry->kind]++;
	if (entry->kind == TALK_ROUND)
		side->is_wrong |= entry->tag != side->next_round++;
	else if (entry->kind == TALK_PULL)
		side->asked[side->asked_count++] = *entry;
	else if (entry->kind == TALK_CAME)
		side->is_wrong |= !is_right(side, entry);
	if (entry->kind == TALK_CAME || entry->kind == TALK_GONE)
		busy[entry->tag % PLACES]--;
}

static void tell(void *arg, const struct net_talk_batch *batch)
{
	struct side *side = arg;

	(void)pthread_mutex_lock(&lock);
	side->is_wrong |= batch->header.type != NET_TALK_BATCH ||
	                  !net_talk_batch_is_whole(batch, batch->header.bytes);
	if (batch->node == 1 - side->options.node)
		side->taken = batch->taken;
	for (uint32_t i = 0; i < batch->count; i++)
		hear(side, &batch->entries[i]);
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

static int side_main(void *arg)
{
	struct side *side = arg;

	side->result = talk_run(&side->options, &side->text, &side->suspect);
	(void)pthread_mutex_lock(&lock);
	side->is_over = true;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

static void make_sides(void)
{
	memset(both, 0, sizeof(both));
	memset(sides, 0, sizeof(sides));
	memset(busy, 0, sizeof(busy));
	torn_count = 0;
	for (uint32_t i = 0; i < 2; i++) {
		struct side *side = &sides[i];

		both[i].mesh.node = i;
		cr_assert((side->inbox = calloc(1, sizeof(*side->inbox))));
		cr_assert((side->slab = malloc(SLAB_BYTES)));
		side->options = (struct talk_options){ .nodes = &both[i],
			                               .node = i,
			                               .node_count = 2,
			                               .inbox = side->inbox,
			                               .stop = &side->stop,
			                               .tell = tell,
			                               .arg = side };
		side->options.slabs[NET_SLAB_TALK] = (struct talk_slab){ side->slab, SLAB_BYTES };
	}
}

static void start_side(uint32_t node)
{
	cr_assert_eq(zi_thread_start(&sides[node].thread, "talk", side_main, &sides[node]), 0);
}

static void open_sides(void)
{
	make_sides();
	start_side(0);
	start_side(1);
}

static void stop_side(uint32_t node)
{
	__atomic_store_n(&sides[node].stop, 1, __ATOMIC_RELEASE);
	zi_futex_wake(&sides[node].stop);
	(void)zi_thread_join(&sides[node].thread);
}

static void close_sides(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		stop_side(i);
		cr_expect_not(sides[i].is_wrong);
		free(sides[i].inbox);
		free(sides[i].slab);
	}
	cr_expect_eq(torn_count, 0);
}

/* Under the lock. Return: whether there was room. */
static bool put(uint32_t node, struct talk_entry entry)
{
	struct side *side = &sides[node];

	if (side->put - side->taken == TALK_QUEUE)
		return false;
	side->put++;
	entry.node = (uint16_t)(1 - node);
	cr_assert_eq(talk_inbox_put(side->inbox, &entry, 1), 0);
	return true;
}

/* Under the lock: node 0 serves the oldest that it is asked for. Return: whether it did. */
static bool serve(void)
{
	struct side *side = &sides[0];
	struct talk_entry entry = side->asked[0];

	entry.kind = TALK_SERVE;
	entry.slab = NET_SLAB_TALK;
	entry.offset_bytes = place_of(entry.tag);
	if (!side->asked_count || side->put - side->taken == TALK_QUEUE)
		return false;
	for (uint64_t i = 0; i < entry.bytes; i++)
		side->slab[entry.offset_bytes + i] = (char)byte_of(entry.tag, i);
	(void)put(0, entry);
	side->asked_count--;
	memmove(side->asked, side->asked + 1, side->asked_count * sizeof(entry));
	return true;
}

/* Under the lock: node 1 pulls @tag, if its place is free. So. */
static bool pull(uint64_t tag)
{
	if (busy[tag % PLACES] || !put(1, (struct talk_entry){ .kind = TALK_PULL,
	                                                       .tag = tag,
	                                                       .slab = NET_SLAB_TALK,
	                                                       .offset_bytes = place_of(tag),
	                                                       .bytes = bytes_of(tag) }))
		return false;
	busy[tag % PLACES] = 2;
	return true;
}

static void await(const uint32_t *count, uint32_t wanted)
{
	(void)pthread_mutex_lock(&lock);
	while (*count < wanted)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
}

static void await_over(uint32_t node)
{
	(void)pthread_mutex_lock(&lock);
	while (!sides[node].is_over)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
}

Test(talk, rounds_go_both_ways_at_once_and_in_order, .init = open_sides, .fini = close_sides)
{
	uint32_t said[2] = { 0 };

	(void)pthread_mutex_lock(&lock);
	while (said[0] < ROUND_COUNT || said[1] < ROUND_COUNT) {
		bool is_any = false;

		for (uint32_t i = 0; i < 2; i++)
			if (said[i] < ROUND_COUNT &&
			    put(i, (struct talk_entry){ .kind = TALK_ROUND, .tag = said[i] })) {
				said[i]++;
				is_any = true;
			}
		if (!is_any)
			(void)pthread_cond_wait(&changed, &lock);
	}
	(void)pthread_mutex_unlock(&lock);
	await(&sides[0].heard[TALK_ROUND], ROUND_COUNT);
	await(&sides[1].heard[TALK_ROUND], ROUND_COUNT);
}

Test(talk, what_is_pulled_is_right_whenever_it_has_come, .init = open_sides, .fini = close_sides)
{
	uint32_t pulled = 0, rounds = 0;

	(void)pthread_mutex_lock(&lock);
	while (sides[1].heard[TALK_CAME] < PULL_COUNT || sides[0].heard[TALK_GONE] < PULL_COUNT) {
		bool is_any = false;

		if (pulled < PULL_COUNT && pull(pulled)) {
			pulled++;
			is_any = true;
		}
		if (rounds < pulled &&
		    put(0, (struct talk_entry){ .kind = TALK_ROUND, .tag = rounds })) {
			rounds++;
			is_any = true;
		}
		if (!serve() && !is_any)
			(void)pthread_cond_wait(&changed, &lock);
	}
	(void)pthread_mutex_unlock(&lock);
	await(&sides[1].heard[TALK_ROUND], rounds);
	cr_expect_eq(both[0].mesh.late_count + both[1].mesh.late_count, 0, "somebody waited");
}

Test(talk, as_many_entries_are_kept_as_may_be, .init = make_sides)
{
	struct talk_entry entry = { .kind = TALK_READY, .node = 1 };

	for (uint32_t i = 0; i < TALK_QUEUE; i++)
		cr_assert_eq(talk_inbox_put(sides[0].inbox, &entry, 1), 0);
	cr_expect_eq(talk_inbox_put(sides[0].inbox, &entry, 1), -EPROTO);
	entry.node = SUBTREE_NODES_MAX;
	cr_expect_eq(talk_inbox_put(sides[0].inbox, &entry, 1), -EPROTO);
	entry.node = SUBTREE_NODES_MAX - 1;
	cr_expect_eq(talk_inbox_put(sides[0].inbox, &entry, 1), 0);
	for (uint32_t i = 0; i < 2; i++) {
		free(sides[i].inbox);
		free(sides[i].slab);
	}
}

/* ---- its end ---- */

Test(talk, whoever_stops_it_is_obeyed, .init = open_sides, .fini = close_sides)
{
	stop_side(0);
	cr_expect_eq(sides[0].result, -ECANCELED);
	cr_expect_eq(sides[0].suspect, NET_CULPRIT_NONE);
	cr_expect_str_eq(sides[0].text.chars, "broken off");
}

Test(talk, a_node_that_is_lost_is_named_when_all_that_it_said_is_heard, .init = make_sides,
     .fini = close_sides)
{
	struct talk_entry entry = { .kind = TALK_BYE, .node = 0 };

	hold(1, true);
	start_side(1);
	for (uint32_t i = 0; i < TALK_WINDOW; i++)
		cr_assert_eq(talk_inbox_put(sides[1].inbox, &entry, 1), 0);
	await(&both[1].mesh.wire_count, TALK_WINDOW);
	start_side(0);
	(void)pthread_mutex_lock(&lock);
	while (both[0].mesh.lane_count < 2 || both[0].mesh.lanes[0]->receive_count < TALK_RING)
		(void)pthread_cond_wait(&changed, &lock);
	both[1].mesh.is_held = false;
	deliver();
	both[0].mesh.is_lost = true;
	(void)pthread_mutex_unlock(&lock);
	await_over(0);
	cr_expect_eq(sides[0].heard[TALK_BYE], TALK_WINDOW);
	cr_expect_eq(sides[0].result, -EPIPE);
	cr_expect_eq(sides[0].suspect, 1);
	cr_expect(strstr(sides[0].text.chars, "lost"), "%s", sides[0].text.chars);
}

Test(talk, a_connection_over_which_nothing_can_be_sent_is_given_up, .init = make_sides,
     .fini = close_sides)
{
	struct talk_entry entry = { .kind = TALK_BYE, .node = 1 };

	start_side(0);
	(void)pthread_mutex_lock(&lock);
	while (both[0].mesh.lane_count < 2 || both[0].mesh.lanes[0]->receive_count < TALK_RING)
		(void)pthread_cond_wait(&changed, &lock);
	both[0].mesh.is_cut = true;
	(void)pthread_mutex_unlock(&lock);
	cr_assert_eq(talk_inbox_put(sides[0].inbox, &entry, 1), 0);
	await_over(0);
	cr_expect_eq(sides[0].result, -EPIPE);
	cr_expect_eq(sides[0].suspect, 1);
	cr_expect(strstr(sides[0].text.chars, "cut"), "%s", sides[0].text.chars);
}

Test(talk, a_node_that_talks_nonsense_is_named, .init = make_sides)
{
	struct talk_frame frame = { .kind = TALK_GONE };
	struct net_lane *lane;
	struct zi_text text;

	cr_assert_eq(net_lane_new(&both[1].mesh, 0, &frame, sizeof(frame), &lane), 0);
	start_side(0);
	cr_assert_eq(net_lane_send(lane, 0x30, 0, sizeof(frame), &text), 0);
	await_over(0);
	cr_expect_eq(sides[0].result, -EPROTO);
	cr_expect_eq(sides[0].suspect, 1);
	cr_expect(strstr(sides[0].text.chars, "node 1 sent an invalid message"), "%s",
	          sides[0].text.chars);
	close_sides();
	lane = net_lane_free(lane);
}

/* Return: what it says then. */
static const char *say_wrongly(struct talk_entry entry)
{
	make_sides();
	start_side(0);
	cr_assert_eq(talk_inbox_put(sides[0].inbox, &entry, 1), 0);
	await_over(0);
	cr_expect_eq(sides[0].result, -EINVAL);
	cr_expect_eq(sides[0].suspect, NET_CULPRIT_NONE);
	close_sides();
	return sides[0].text.chars;
}

Test(talk, what_the_own_daemon_says_wrongly_is_nobody_elses)
{
	const char *says = say_wrongly((struct talk_entry){ .kind = TALK_READY, .node = 0 });

	cr_expect(strstr(says, "there is no other node 0: this one is 0 of 2"), "%s", says);
	says = say_wrongly((struct talk_entry){ .kind = TALK_READY, .node = 2 });
	cr_expect(strstr(says, "there is no other node 2"), "%s", says);
	says = say_wrongly((struct talk_entry){ .kind = TALK_SERVE, .node = 1, .bytes = 1 });
	cr_expect(strstr(says, "1 bytes at 0 of slab 0: it has 0"), "%s", says);
}

Test(talk, without_memory_it_says_so, .init = make_sides, .fini = close_sides)
{
	both[0].mesh.lane_max = 1;
	start_side(0);
	await_over(0);
	cr_expect_eq(sides[0].result, -ENOMEM);
	cr_expect(strstr(sides[0].text.chars, "no memory to talk to node 1"), "%s",
	          sides[0].text.chars);
}
