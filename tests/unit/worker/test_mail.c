/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: frames of messages between nodes lie untouched until they have gone, all of them are
 * counted as gone, and whose turn it is when the time passes is found out by asking. Method: the
 * mails of two nodes in one process, over lanes that are doubles of Gloo's: they keep what is sent
 * until the test lets it go on. The test writes the lines of the two members.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/wire/mail.h"
#include "common/wire/meet.h"
#include "daemon/worker/net/mail.h"
#include "daemon/worker/net/mail_link.h"

#define TRANSFERS  256u
#define LATE_COUNT 40u
#define SHORT_NS   (20 * ZI_NS_PER_MS)
#define TIME_NS    (2 * ZI_NS_PER_S)

TestSuite(mail, .timeout = 120);

/* ---- doubles of gloo.h and nodes.h ---- */

struct transfer {
	uint64_t slot, offset, bytes;
	char *copy; /* of a send: as it was then */
};

struct net_lane {
	struct net_mesh *mesh;
	uint32_t index; /* of its mesh */
	char *memory;
	struct transfer receives[TRANSFERS]; /* that wait, in no order */
	uint32_t receive_count, sent, received;
};

struct net_mesh {
	uint32_t node;
	bool is_aborted, is_held; /* what this node sends stays */
	struct net_lane *lanes[2];
	uint32_t lane_count;
	/* On their way, oldest first: lanes share one connection. */
	struct transfer wire[TRANSFERS];
	struct net_lane *wire_lanes[TRANSFERS];
	uint32_t wire_count;
};

struct nodes {
	struct net_mesh mesh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct nodes both[2];
static uint32_t torn_count;

/* Under the lock. Return: whether the oldest of @mesh's went. */
static bool deliver_one(struct net_mesh *mesh)
{
	struct net_lane *lane = mesh->wire_lanes[0];
	struct transfer *send = &mesh->wire[0];
	struct net_lane *peer;

	if (!mesh->wire_count || mesh->is_held)
		return false;
	peer = both[1 - mesh->node].mesh.lanes[lane->index];
	for (uint32_t i = 0; peer && i < peer->receive_count; i++) {
		struct transfer *receive = &peer->receives[i];

		if (receive->slot != send->slot)
			continue;
		torn_count += memcmp(lane->memory + send->offset, send->copy, send->bytes) != 0;
		memcpy(peer->memory + receive->offset, send->copy, send->bytes);
		free(send->copy);
		memmove(receive, receive + 1, (--peer->receive_count - i) * sizeof(*receive));
		memmove(send, send + 1, --mesh->wire_count * sizeof(*send));
		memmove(mesh->wire_lanes, mesh->wire_lanes + 1,
		        mesh->wire_count * sizeof(mesh->wire_lanes[0]));
		lane->sent++;
		peer->received++;
		return true;
	}
	return false;
}

static void deliver(void)
{
	while (deliver_one(&both[0].mesh) || deliver_one(&both[1].mesh))
		;
	(void)pthread_cond_broadcast(&changed);
}

static void hold(uint32_t node, bool is_held)
{
	(void)pthread_mutex_lock(&lock);
	both[node].mesh.is_held = is_held;
	deliver();
	(void)pthread_mutex_unlock(&lock);
}

int net_lane_new(struct net_mesh *mesh, uint32_t peer, void *memory, uint64_t bytes,
                 struct net_lane **ret_lane)
{
	struct net_lane *lane = calloc(1, sizeof(*lane));

	(void)peer;
	(void)bytes;
	cr_assert(lane && mesh->lane_count < 2);
	lane->mesh = mesh;
	lane->memory = memory;
	(void)pthread_mutex_lock(&lock);
	lane->index = mesh->lane_count++;
	mesh->lanes[lane->index] = lane;
	(void)pthread_mutex_unlock(&lock);
	*ret_lane = lane;
	return 0;
}

struct net_lane *net_lane_free(struct net_lane *lane)
{
	struct net_mesh *mesh = lane ? lane->mesh : NULL;

	if (!lane)
		return NULL;
	(void)pthread_mutex_lock(&lock);
	mesh->lanes[lane->index] = NULL;
	for (; mesh->wire_count; mesh->wire_count--)
		free(mesh->wire[mesh->wire_count - 1].copy);
	(void)pthread_mutex_unlock(&lock);
	free(lane);
	return NULL;
}

int net_lane_send(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                  struct zi_text *text)
{
	struct net_mesh *mesh = lane->mesh;
	char *copy = malloc(bytes);

	(void)text;
	cr_assert(copy);
	memcpy(copy, lane->memory + offset_bytes, bytes);
	(void)pthread_mutex_lock(&lock);
	cr_assert_lt(mesh->wire_count, TRANSFERS);
	mesh->wire_lanes[mesh->wire_count] = lane;
	mesh->wire[mesh->wire_count++] = (struct transfer){ slot, offset_bytes, bytes, copy };
	deliver();
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

int net_lane_receive(struct net_lane *lane, uint64_t slot, uint64_t offset_bytes, uint64_t bytes,
                     struct zi_text *text)
{
	(void)text;
	(void)pthread_mutex_lock(&lock);
	cr_assert_lt(lane->receive_count, TRANSFERS);
	lane->receives[lane->receive_count++] =
		(struct transfer){ slot, offset_bytes, bytes, NULL };
	deliver();
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

static int await_count(struct net_lane *lane, uint32_t *count, uint32_t wanted)
{
	(void)pthread_mutex_lock(&lock);
	while (*count < wanted && !lane->mesh->is_aborted)
		(void)pthread_cond_wait(&changed, &lock);
	*count -= *count < wanted ? 0 : wanted;
	(void)pthread_mutex_unlock(&lock);
	return lane->mesh->is_aborted ? -ECANCELED : 0;
}

int net_lane_wait_sent(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                       struct zi_text *text)
{
	(void)deadline_ns;
	(void)text;
	return await_count(lane, &lane->sent, count);
}

int net_lane_wait_received(struct net_lane *lane, uint32_t count, uint64_t deadline_ns,
                           struct zi_text *text)
{
	(void)deadline_ns;
	(void)text;
	return await_count(lane, &lane->received, count);
}

void net_mesh_abort(struct net_mesh *mesh)
{
	(void)pthread_mutex_lock(&lock);
	mesh->is_aborted = true;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

struct net_mesh *nodes_mesh(struct nodes *nodes)
{
	return &nodes->mesh;
}

const char *nodes_name(const struct nodes *nodes, uint32_t node)
{
	(void)nodes;
	return node ? "node 1" : "node 0";
}

/* ---- two nodes, of one member each ---- */

struct side {
	struct zi_far_shape shape;
	struct zi_mail wire;
	struct zi_board_member *board;
	char *slab;
	struct mail *mail;
	uint32_t is_carrying;
	/* Of its mail's thread, under the lock. */
	uint32_t late_count, failed_count;
	struct net_late_message late;
	struct nodes_end end;
};

static struct side sides[2];

static void note_failed(void *arg, const struct nodes_end *end)
{
	struct side *side = arg;

	(void)pthread_mutex_lock(&lock);
	side->failed_count++;
	side->end = *end;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

static void note_late(void *arg, const struct net_late_message *late)
{
	struct side *side = arg;

	(void)pthread_mutex_lock(&lock);
	side->late_count++;
	side->late = *late;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

static void open_sides(void)
{
	static const uint8_t nodes[] = { 0, 1 }, ranks[] = { 0, 1 };

	memset(both, 0, sizeof(both));
	memset(sides, 0, sizeof(sides));
	torn_count = 0;
	for (uint32_t i = 0; i < 2; i++) {
		struct side *side = &sides[i];
		struct zi_text text;

		both[i].mesh.node = i;
		zi_far_shape_init(&side->shape, nodes, 2, 2, i);
		side->board = aligned_alloc(4096, zi_board_bytes(3));
		side->slab = aligned_alloc(4096, ZI_FAR_GROUP_BYTES);
		cr_assert(side->board && side->slab);
		memset(side->board, 0, zi_board_bytes(3));
		memset(side->slab, 0, ZI_FAR_GROUP_BYTES);
		zi_mail_init(&side->wire, &side->shape, side->slab, ZI_FAR_GROUP_BYTES);
		cr_assert_eq(mail_start(&(struct mail_options){ .nodes = &both[i],
		                                                .shape = &side->shape,
		                                                .board = side->board,
		                                                .slab = side->slab,
		                                                .slab_bytes = ZI_FAR_GROUP_BYTES,
		                                                .ranks = ranks,
		                                                .is_carrying = &side->is_carrying,
		                                                .failed = note_failed,
		                                                .late = note_late,
		                                                .arg = side },
		                        &text, &side->mail),
		             0);
	}
}

static void close_sides(void)
{
	for (uint32_t i = 0; i < 2; i++)
		hold(i, false);
	for (uint32_t i = 0; i < 2; i++)
		sides[i].mail = mail_stop(sides[i].mail);
	for (uint32_t i = 0; i < 2; i++) {
		free(sides[i].board);
		free(sides[i].slab);
	}
	cr_expect_eq(torn_count, 0);
}

/* Member 0's line, and member 1's: of the other one, who is the first elsewhere. */
static struct zi_board_send *sends(void)
{
	return &sides[0].board[0].sends[1];
}

static struct zi_board_take *takes(void)
{
	return &sides[1].board[0].takes[1];
}

static const struct zi_mail_box *box_of(uint32_t node)
{
	return zi_mail_box(&sides[node].wire, 0, 0);
}

/* A word of @node's member. */
static void say(uint32_t node, uint32_t *word, uint32_t value)
{
	struct zi_meet meet = { .members = sides[node].board, .member_count = 2 };

	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	zi_meet_tell_one(&meet, 2, &sides[node].board[0].mail.value,
	                 sides[node].board[0].mail.value + 1);
}

/* Until the mail has stored @value. */
static void await_word(const uint32_t *word, uint32_t value)
{
	while (!zi_meet_has_come(word, value))
		(void)sched_yield();
}

static void await_event(const uint32_t *count, uint32_t wanted)
{
	(void)pthread_mutex_lock(&lock);
	while (*count < wanted)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
}

/* Posts message @sequence: of @piece_count whole letters, of which @filled are. */
static void post(uint32_t sequence, uint32_t piece_count, uint32_t filled, uint64_t time_ns)
{
	struct zi_board_send *line = sends();

	line->dtype = ZI_DTYPE_I8;
	line->element_count = piece_count * sides[0].wire.letter_bytes;
	line->piece_bytes = (uint32_t)sides[0].wire.letter_bytes;
	line->source = ZI_BOARD_NOWHERE;
	line->deadline_ns = zi_clock_deadline_ns(time_ns);
	line->timeout_ms = (uint32_t)(time_ns / ZI_NS_PER_MS);
	line->refused = sequence - 1;
	line->filled = line->base + filled;
	say(0, &line->sequence, sequence);
}

/* ---- what is late ---- */

Test(mail, questions_about_late_messages_are_counted_as_gone, .init = open_sides,
     .fini = close_sides)
{
	for (uint32_t i = 1; i <= LATE_COUNT; i++) {
		uint32_t left[2];

		sends()->base = 2 * (i - 1);
		post(i, 1, 1, SHORT_NS);
		/* Node 1 was asked: its member does not come. */
		await_event(&sides[1].late_count, i);
		cr_expect_eq(sides[1].late.absent, 1);
		await_word(&box_of(1)->send.filled, 2 * i - 1);
		takes()->done = i;
		takes()->sequence = i;
		say(1, &takes()->emptied, 2 * i);
		await_word(&box_of(0)->take.emptied, 2 * i);
		(void)pthread_mutex_lock(&lock);
		for (uint32_t k = 0; k < 2; k++)
			left[k] = both[k].mesh.lanes[0]->sent + both[k].mesh.lanes[1]->sent;
		(void)pthread_mutex_unlock(&lock);
		/* At most an answer and what may come next are not known to have gone. */
		cr_assert_leq(left[0], 4, "message %u: %u", i, left[0]);
		cr_assert_leq(left[1], 4, "message %u: %u", i, left[1]);
	}
	cr_expect_eq(sides[0].failed_count + sides[1].failed_count, 0);
}

Test(mail, a_node_that_does_not_answer_is_named, .init = open_sides, .fini = close_sides)
{
	hold(0, true);
	post(1, 1, 1, TIME_NS);
	await_event(&sides[0].failed_count, 1);
	cr_expect_eq(sides[0].end.error, -ETIMEDOUT);
	cr_expect(strstr(sides[0].end.text.chars, "for 2 s, and node 1, where that is, does not "
	                                          "answer: look at the link"),
	          "%s", sides[0].end.text.chars);
}

/* The sender fills two letters of three and stops; that there is room for the third is still on its
 * way when its time passes, so that it seems to be the receiver's turn. Return: whether it was told
 * of itself; else the answer came too late, on a crowded machine. */
static bool stop_amid(void)
{
	bool is_told;

	open_sides();
	takes()->deadline_ns = zi_clock_deadline_ns(60 * ZI_NS_PER_S);
	say(1, &takes()->sequence, 1);
	post(1, 3, 2, TIME_NS);
	await_word(&box_of(1)->send.filled, 2);
	hold(1, true);
	say(1, &takes()->emptied, 2);
	(void)pthread_mutex_lock(&lock);
	/* ROOM, then the answer to the question. */
	while (both[1].mesh.wire_count < 2 && !sides[0].failed_count)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
	hold(1, false);
	(void)pthread_mutex_lock(&lock);
	while (!sides[0].late_count && !sides[0].failed_count)
		(void)pthread_cond_wait(&changed, &lock);
	is_told = sides[0].late_count;
	(void)pthread_mutex_unlock(&lock);
	cr_expect_eq(sides[1].late_count, 0);
	if (is_told)
		cr_expect(sides[0].late.absent == 0 && sides[0].late.waiting == 1 &&
		          !sides[0].late.is_send);
	close_sides();
	return is_told;
}

Test(mail, who_stopped_amid_its_message_is_told_when_the_other_node_says_it_is_not_its_turn)
{
	bool is_told = false;

	for (uint32_t i = 0; i < 5 && !is_told; i++)
		is_told = stop_amid();
	cr_expect(is_told);
}

/* ---- what is refused ---- */

static void refuse(uint32_t sequence)
{
	struct zi_board_member *self = &sides[0].board[0];

	zi_board_refuse_message(self, sequence - 1, sequence, 1, true, 1);
	sends()->refusal = 1;
	__atomic_store_n(&sends()->refused, sequence, __ATOMIC_RELEASE);
	say(0, &sends()->sequence, sequence);
}

/* What node 0 sends stays on its way; its last word is a question about what member 0 waits for: by
 * then it has seen all that was refused. Return: as above. */
static bool refuse_five(void)
{
	struct zi_board_take *own;
	struct zi_board_refusal refusal;
	bool is_in_time;

	open_sides();
	own = &sides[0].board[0].takes[1];
	zi_board_refuse(sides[0].board[0].refusals, 1, EACCES, "no such page");
	hold(0, true);
	refuse(1);
	await_event(&both[0].mesh.wire_count, 1);
	for (uint32_t i = 2; i <= 5; i++)
		refuse(i);
	own->deadline_ns = zi_clock_deadline_ns(TIME_NS);
	say(0, &own->sequence, 1);
	await_event(&both[0].mesh.wire_count, 2);
	cr_expect_eq(both[0].mesh.wire_count, 2);
	hold(0, false);
	await_word(&box_of(1)->send.sequence, 1);
	while (!zi_meet_has_come(&box_of(1)->send.sequence, 5) &&
	       !zi_meet_load(&sides[0].failed_count))
		(void)sched_yield();
	is_in_time = zi_meet_has_come(&box_of(1)->send.sequence, 5);
	cr_expect(!is_in_time || zi_meet_load(&box_of(1)->send.refused) == 5);
	cr_expect(zi_board_refusal_of(zi_mail_refusals(&sides[1].wire, 0), 1, &refusal));
	cr_expect_eq(refusal.error, EACCES);
	cr_expect_str_eq(refusal.reason, "no such page");
	close_sides();
	return is_in_time;
}

Test(mail, a_refusal_is_told_when_the_one_before_has_been_heard_of)
{
	bool is_in_time = false;

	for (uint32_t i = 0; i < 5 && !is_in_time; i++)
		is_in_time = refuse_five();
	cr_expect(is_in_time);
}
