/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a node that says of messages what no zinf-net says ends the group, not the process. Method:
 * the mail of one node, over lanes that are doubles of Gloo's, of which the test holds the other
 * end.
 */
#include <sched.h>

#include "common/wire/mail.h"
#include "common/wire/meet.h"
#include "daemon/worker/net/mail.h"
#include "daemon/worker/net/mail_link.h"
#include "tests/unit/worker/fake_lanes.h"

/* mail_link.c's, as it goes over the network. */
#define SLOT_FRAMES 0x10u
#define PIECES      5u

static uint32_t failed_count;
static struct nodes_end failure;

static void note_failed(void *arg, const struct nodes_end *end)
{
	(void)arg;
	(void)pthread_mutex_lock(&lock);
	failure = *end;
	failed_count++;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

static void note_late(void *arg, const struct net_late_message *late)
{
	(void)arg;
	(void)late;
}

/* More room than a pair has would have the third piece's frame overwrite the first one's. */
Test(mail_foe, room_for_more_pieces_than_there_are_letters_ends_the_group, .timeout = 120)
{
	static const uint8_t places[] = { 0, 1 }, ranks[] = { 0, 1 };
	struct zi_board_member *board = aligned_alloc(4096, zi_board_bytes(3));
	char *slab = aligned_alloc(4096, ZI_FAR_GROUP_BYTES);
	static struct mail_frame frames[PIECES];
	uint32_t is_carrying = 0, is_loaded = 0, receive_count;
	struct zi_board_send *line;
	struct zi_far_shape shape;
	struct net_lane *lane;
	struct zi_meet meet;
	struct zi_mail wire;
	struct mail *mail;
	struct zi_text text;

	memset(board, 0, zi_board_bytes(3));
	memset(slab, 0, ZI_FAR_GROUP_BYTES);
	both[1].mesh.node = 1;
	zi_far_shape_init(&shape, places, 2, 2, 0);
	zi_mail_init(&wire, &shape, slab, ZI_FAR_GROUP_BYTES);
	cr_assert_eq(mail_start(&(struct mail_options){ .nodes = &both[0],
	                                                .shape = &shape,
	                                                .board = board,
	                                                .slab = slab,
	                                                .slab_bytes = ZI_FAR_GROUP_BYTES,
	                                                .ranks = ranks,
	                                                .is_carrying = &is_carrying,
	                                                .is_loaded = &is_loaded,
	                                                .failed = note_failed,
	                                                .late = note_late },
	                        &text, &mail),
	             0);
	cr_assert_eq(net_lane_new(&both[1].mesh, 0, frames, sizeof(frames), &lane), 0);
	line = &board[0].sends[1];
	line->dtype = ZI_DTYPE_I8;
	line->element_count = PIECES * wire.letter_bytes;
	line->piece_bytes = (uint32_t)wire.letter_bytes;
	line->source = ZI_BOARD_NOWHERE;
	line->deadline_ns = ZI_DEADLINE_NEVER;
	line->filled = 0;
	meet = (struct zi_meet){ .members = board, .member_count = 2 };
	__atomic_store_n(&line->sequence, 1, __ATOMIC_RELEASE);
	zi_meet_tell_one(&meet, 2, &board[0].mail.value, 1);
	(void)pthread_mutex_lock(&lock);
	while (!both[0].mesh.wire_count) /* SEND: the message is under way. */
		(void)pthread_cond_wait(&changed, &lock);
	receive_count = both[0].mesh.lanes[0]->receive_count;
	(void)pthread_mutex_unlock(&lock);
	for (uint32_t i = 0; i < PIECES; i++) {
		frames[i] = (struct mail_frame){
			.kind = MAIL_ROOM, .from = 0, .to = 1, .sequence = 1, .piece = i
		};
		(void)net_lane_send(lane, SLOT_FRAMES, i * sizeof(frames[0]), sizeof(frames[0]),
		                    &text);
	}
	/* All are taken before the member fills a letter: each frame taken makes room. */
	(void)pthread_mutex_lock(&lock);
	while (!failed_count && (both[0].mesh.lanes[0]->come_count < PIECES ||
	                         both[0].mesh.lanes[0]->receive_count < receive_count))
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
	__atomic_store_n(&line->filled, PIECES, __ATOMIC_RELEASE);
	zi_meet_tell_one(&meet, 2, &board[0].mail.value, 2);
	(void)pthread_mutex_lock(&lock);
	while (!failed_count)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
	cr_expect_eq(failure.error, -EPROTO, "%d", failure.error);
	cr_expect(strstr(failure.text.chars, "sent an invalid state of message"), "%s",
	          failure.text.chars);
	mail = mail_stop(mail);
	net_lane_free(lane);
	free(board);
	free(slab);
}
