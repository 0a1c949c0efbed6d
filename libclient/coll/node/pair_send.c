/* SPDX-License-Identifier: Apache-2.0 */
/* A member's send; see pair.c. Floor 2. */
#include "libclient/coll/node/pair_send.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "libclient/coll/node/pair_line.h"
#include "libclient/coll/node/pair_refuse.h"

/* Fills as many letters as are free. Return: whether one was filled. */
static bool fill(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	struct zi_node_message *message = &p2p->message;
	const struct zi_board_take *take = zi_pair_peer_take(group, p2p->peer);
	uint32_t emptied = zi_meet_load(&take->emptied);
	bool is_filled = false;

	/* Letters of messages before this one, which the peer may have refused, are free. */
	if ((int32_t)(emptied - message->base) < 0)
		emptied = message->base;

	for (; message->piece < message->piece_count; message->piece++) {
		uint32_t number = message->base + message->piece;
		uint64_t begin = (uint64_t)message->piece * message->piece_bytes;

		if (number - emptied >= ZI_PAIR_LETTERS)
			break;
		zi_pair_copy(group,
		             zi_pair_letters(group, p2p->peer) +
		                     number % ZI_PAIR_LETTERS * message->piece_bytes,
		             (const char *)p2p->buffer + begin,
		             ZI_MIN(zi_pair_bytes(p2p) - begin, message->piece_bytes), false);
		is_filled = true;
	}
	return is_filled;
}

static void post_send(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	struct zi_board_send *line = zi_pair_own_send(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;
	uint64_t bytes = zi_pair_bytes(p2p);
	uint64_t place = ZI_BOARD_NOWHERE;

	if (zi_pair_is_near(group, p2p->peer))
		place = zi_node_place_of(group, p2p->buffer, bytes);
	message->sequence = ++group->pairs.sent[p2p->peer];
	message->base = group->pairs.filled[p2p->peer];
	message->piece_bytes = (uint32_t)zi_pair_letter_bytes(group, p2p->peer);
	message->piece_count = 0;
	if (place == ZI_BOARD_NOWHERE)
		message->piece_count =
			(uint32_t)((bytes + message->piece_bytes - 1) / message->piece_bytes);
	group->pairs.filled[p2p->peer] += message->piece_count + 1;
	(void)fill(group, p2p); /* comes with the post */
	line->element_count = p2p->element_count;
	line->dtype = (uint8_t)p2p->dtype;
	line->source = place;
	line->staging =
		zi_pair_is_near(group, p2p->peer)
			? (uint64_t)(zi_node_letters(group, zi_pair_line(group, p2p->peer)) -
	                             group->arenas)
			: 0;
	line->piece_bytes = message->piece_bytes;
	line->is_over = 0;
	__atomic_store_n(&line->base, message->base, __ATOMIC_RELAXED);
	__atomic_store_n(&line->refused, message->sequence - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&line->filled, message->base + message->piece, __ATOMIC_RELEASE);
	zi_pair_tell(group, p2p->peer, &line->sequence, message->sequence);
	message->phase = ZI_NODE_MESSAGE_POSTED;
}

static void leave_send(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	p2p->message.phase = ZI_NODE_MESSAGE_OVER;
	/* What a peer here has left it says itself. */
	if (!zi_pair_is_near(group, p2p->peer))
		__atomic_store_n(&zi_pair_own_send(group, p2p->peer)->is_over, 1, __ATOMIC_RELAXED);
}

int zi_pair_poll_send(struct zi_node_group *group, struct zi_node_p2p *p2p,
                      struct zi_meet_wants *wants, struct zi_text *text)
{
	struct zi_board_send *line = zi_pair_own_send(group, p2p->peer);
	const struct zi_board_take *take = zi_pair_peer_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;
	uint32_t end;

	if (message->phase == ZI_NODE_MESSAGE_NEW)
		post_send(group, p2p);
	end = message->base + message->piece_count + 1;
	/* Later messages may have been refused since this one was taken: that is looked at last. */
	if (!zi_meet_has_come(&take->emptied, end) &&
	    zi_meet_has_come(&take->refused, message->sequence) &&
	    !zi_meet_has_come(&take->emptied, end)) {
		uint32_t number = zi_pair_reason_of(group, p2p, &take->refused, &take->refusal);

		leave_send(group, p2p);
		if (number)
			return err_trace(zi_pair_say_refused(group, p2p, number, text));
		return err_trace(zi_pair_say_mismatch(group, p2p, take->refused_count,
		                                      take->refused_dtype, text));
	}
	if (!zi_meet_has_come(&take->emptied, end)) {
		if (fill(group, p2p))
			zi_pair_tell(group, p2p->peer, &line->filled,
			             message->base + message->piece);
		zi_meet_want(wants, &group->meet, &take->emptied,
		             message->piece < message->piece_count
		                     ? message->base + message->piece - ZI_PAIR_LETTERS + 1
		                     : end);
		zi_meet_want(wants, &group->meet, &take->refused, message->sequence);
		return ZI_NODE_E_WAITS;
	}
	leave_send(group, p2p);
	if (take->refused_dtype)
		return zi_pair_say_mismatch(group, p2p, take->refused_count, take->refused_dtype,
		                            text);
	return 0;
}
