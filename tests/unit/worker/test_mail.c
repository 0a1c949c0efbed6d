/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: frames of messages between nodes lie untouched until they have gone, all of them are
 * counted as gone, and whose turn it is when the time passes is found out by asking, sooner where
 * data of calls are on the link. Method: the mails of two nodes in one process, over lanes that are
 * doubles of Gloo's: they keep what is sent until the test lets it go on. The test writes the lines
 * of the two members.
 */
#include <sched.h>

#include "common/base/clock.h"
#include "common/wire/mail.h"
#include "common/wire/meet.h"
#include "daemon/worker/net/mail.h"
#include "daemon/worker/net/mail_link.h"
#include "daemon/worker/net/mail_private.h"
#include "tests/unit/worker/fake_lanes.h"

#define LATE_COUNT 8u
#define SHORT_NS   ZI_NS_PER_S
#define TIME_NS    (2 * ZI_NS_PER_S)

TestSuite(mail, .timeout = 120);

/* ---- two nodes, of one member each ---- */

struct side {
	struct zi_far_shape shape;
	struct zi_mail wire;
	struct zi_board_member *board;
	char *slab;
	struct mail *mail;
	uint32_t is_carrying, is_loaded;
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
		                                                .is_loaded = &side->is_loaded,
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

/* A scene that returns false where the machine was too crowded for it. */
static void expect_once_in_time(bool (*scene)(void))
{
	bool is_in_time = false;

	for (uint32_t i = 0; i < 5 && !is_in_time; i++)
		is_in_time = scene();
	cr_expect(is_in_time);
}

/* ---- what is late ---- */

/* Whether @word has come to @value before a side failed. */
static bool comes(const uint32_t *word, uint32_t value)
{
	uint32_t failed_count = 0;

	while (!zi_meet_has_come(word, value) && !failed_count) {
		(void)sched_yield();
		(void)pthread_mutex_lock(&lock);
		failed_count = sides[0].failed_count + sides[1].failed_count;
		(void)pthread_mutex_unlock(&lock);
	}
	return !failed_count;
}

/* Message after message whose receiver comes when node 1 was asked about it. Return: false when an
 * answer came too late, on a crowded machine. */
static bool ask_again_and_again(void)
{
	bool is_in_time = true;

	open_sides();
	for (uint32_t i = 1; i <= LATE_COUNT && is_in_time; i++) {
		uint32_t left[2];

		sends()->base = 2 * (i - 1);
		post(i, 1, 1, SHORT_NS);
		is_in_time =
			comes(&sides[1].late_count, i) && comes(&box_of(1)->send.filled, 2 * i - 1);
		if (!is_in_time)
			break;
		cr_expect_eq(sides[1].late.absent, 1);
		takes()->done = i;
		takes()->sequence = i;
		say(1, &takes()->emptied, 2 * i);
		is_in_time = comes(&box_of(0)->take.emptied, 2 * i);
		(void)pthread_mutex_lock(&lock);
		for (uint32_t k = 0; k < 2; k++)
			left[k] = both[k].mesh.lanes[0]->sent + both[k].mesh.lanes[1]->sent;
		(void)pthread_mutex_unlock(&lock);
		/* At most an answer and what may come next are not known to have gone. */
		cr_expect_leq(left[0], 4, "message %u: %u", i, left[0]);
		cr_expect_leq(left[1], 4, "message %u: %u", i, left[1]);
	}
	close_sides();
	return is_in_time;
}

Test(mail, questions_about_late_messages_are_counted_as_gone)
{
	expect_once_in_time(ask_again_and_again);
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
	expect_once_in_time(stop_amid);
}

/* The sender posts as the receiver's time passes, so that its message and the answer that it is not
 * its turn come together. Return: whether that was none's fault; else it came too late. */
static bool come_late(void)
{
	bool is_fine;

	open_sides();
	takes()->deadline_ns = zi_clock_deadline_ns(TIME_NS);
	say(1, &takes()->sequence, 1);
	hold(0, true);
	post(1, 1, 1, 60 * ZI_NS_PER_S);
	(void)pthread_mutex_lock(&lock);
	/* SEND, then the answer to the question. */
	while (both[0].mesh.wire_count < 2)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
	hold(0, false);
	(void)pthread_mutex_lock(&lock);
	while (zi_meet_load(&box_of(1)->send.filled) != 1 && !sides[1].failed_count) {
		(void)pthread_mutex_unlock(&lock);
		(void)sched_yield();
		(void)pthread_mutex_lock(&lock);
	}
	is_fine = !sides[1].failed_count;
	(void)pthread_mutex_unlock(&lock);
	if (is_fine) {
		takes()->done = 1;
		say(1, &takes()->emptied, 2);
		await_word(&box_of(0)->take.emptied, 2);
		is_fine = !sides[0].failed_count && !sides[1].failed_count;
	}
	cr_expect_eq(sides[0].late_count + sides[1].late_count, 0);
	close_sides();
	return is_fine;
}

Test(mail, what_comes_with_the_answer_about_it_is_not_the_links_fault)
{
	expect_once_in_time(come_late);
}

#define LONG_NS (4 * ZI_NS_PER_S)

/* How long before the time of member 0, whose message nobody takes, node 1 is asked about it: which
 * it hears when the test lets it. */
static uint64_t ask_before(uint32_t is_loaded)
{
	uint64_t asked_ns;

	sides[0].is_loaded = is_loaded;
	hold(0, true);
	post(1, 1, 1, LONG_NS);
	await_event(&both[0].mesh.wire_count, 2);
	asked_ns = zi_clock_now_ns();
	return sends()->deadline_ns > asked_ns ? sends()->deadline_ns - asked_ns : 0;
}

/* Return: as above. */
static bool ask_early(void)
{
	uint64_t before_ns;

	open_sides();
	before_ns = ask_before(1);
	close_sides();
	return before_ns > ZI_FAR_MARGIN_NS;
}

Test(mail, behind_data_of_a_call_it_is_asked_earlier)
{
	expect_once_in_time(ask_early);
}

Test(mail, without_data_of_a_call_it_is_asked_no_earlier_than_that_takes, .init = open_sides,
     .fini = close_sides)
{
	cr_expect_leq(ask_before(0), ZI_FAR_MARGIN_NS);
}

Test(mail, what_else_is_on_the_link_is_told_of_a_node_that_does_not_answer, .init = open_sides,
     .fini = close_sides)
{
	(void)ask_before(1);
	await_event(&sides[0].failed_count, 1);
	cr_expect(strstr(sides[0].end.text.chars,
	                 "does not answer: look at the link, on which data of a call are, too"),
	          "%s", sides[0].end.text.chars);
}

/* An early question is answered before data let the message through: there is time till then.
 * Return: as above. */
static bool come_behind_data(void)
{
	struct timespec before;
	uint64_t before_ns;
	bool is_fine;
	int r = 0;

	open_sides();
	sides[1].is_loaded = 1;
	takes()->deadline_ns = zi_clock_deadline_ns(2 * LONG_NS);
	say(1, &takes()->sequence, 1);
	hold(0, true);
	post(1, 1, 1, 60 * ZI_NS_PER_S);
	/* SEND, then the answer to the question. */
	await_event(&both[0].mesh.wire_count, 2);
	hold(0, false);
	await_word(&box_of(1)->send.filled, 1);
	before_ns = takes()->deadline_ns - ZI_FAR_MARGIN_NS;
	before.tv_sec = (time_t)(before_ns / ZI_NS_PER_S);
	before.tv_nsec = (long)(before_ns % ZI_NS_PER_S);
	(void)pthread_mutex_lock(&lock);
	/* Until half a second before the deadline, if all is well. */
	while (!r && !sides[1].failed_count && !sides[1].late_count)
		r = pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &before);
	is_fine = !sides[1].failed_count && !sides[1].late_count;
	(void)pthread_mutex_unlock(&lock);
	close_sides();
	return is_fine;
}

Test(mail, an_early_question_leaves_a_message_its_time)
{
	expect_once_in_time(come_behind_data);
}

/* ---- whose time it is ---- */

#define LOOKS 20000000u

static struct zi_board_take busy_line;
static uint32_t looked;

/* As a member does that receives, message after message (libclient/coll/node/pair_take.c). */
static void *receive_on_and_on(void *arg)
{
	(void)arg;
	for (uint32_t i = 1; !zi_meet_load(&looked); i++) {
		__atomic_store_n(&busy_line.deadline_ns, i, __ATOMIC_RELEASE);
		__atomic_store_n(&busy_line.sequence, i, __ATOMIC_RELEASE);
		__atomic_store_n(&busy_line.done, i, __ATOMIC_RELEASE);
	}
	return NULL;
}

Test(mail, the_time_of_a_receive_is_never_that_of_another)
{
	uint32_t wrong_count = 0;
	struct mail_wait wait;
	pthread_t member;

	busy_line = (struct zi_board_take){ .deadline_ns = 1, .sequence = 1 };
	cr_assert(mail_read_take(&busy_line, &wait));
	cr_assert(wait.sequence == 1 && wait.deadline_ns == 1);
	cr_assert_eq(pthread_create(&member, NULL, receive_on_and_on, NULL), 0);
	for (uint32_t i = 0; i < LOOKS; i++)
		wrong_count += mail_read_take(&busy_line, &wait) &&
		               (uint32_t)wait.deadline_ns != wait.sequence;
	__atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
	cr_assert_eq(pthread_join(member, NULL), 0);
	cr_expect_eq(wrong_count, 0, "%u", wrong_count);
	cr_expect_not(mail_read_take(&busy_line, &wait));
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
	expect_once_in_time(refuse_five);
}
