/* SPDX-License-Identifier: Apache-2.0 */
/* A member's receive; see pair.c. Floor 2. */
#include "libclient/coll/node/pair_take.h"

#include <errno.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "libclient/coll/node/pair_line.h"
#include "libclient/coll/node/pair_refuse.h"

/* The whole message is left, taken or not. */
static void empty(struct zi_node_group *group, struct zi_node_p2p *p2p, bool is_taken)
{
	struct zi_board_take *line = zi_pair_own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	line->refused_dtype = is_taken ? 0 : (uint8_t)p2p->dtype;
	line->refused_count = is_taken ? 0 : p2p->element_count;
	__atomic_store_n(&line->done, message->sequence, __ATOMIC_RELEASE);
	zi_pair_tell(group, p2p->peer, &line->emptied, message->base + message->piece_count + 1);
	message->phase = ZI_NODE_MESSAGE_OVER;
}

/* Where what @peer said it sends lies, all of it or two pieces in turn; NULL: nowhere. */
static const char *source_of(const struct zi_node_group *group, uint32_t peer,
                             const struct zi_board_send *said, uint64_t bytes)
{
	const struct zi_far_group *far = group->far;

	if (!zi_pair_is_near(group, peer))
		return said->piece_bytes == far->mail.letter_bytes
		               ? zi_mail_letters(&far->mail, group->meet.self,
		                                 zi_mail_other(&far->mail, peer), false)
		               : NULL;
	if (said->source != ZI_BOARD_NOWHERE)
		return zi_node_place_at(group, said->source, bytes);
	/* All have letters of the same size: of tiny ones there would be no end. */
	if (said->piece_bytes != zi_node_letter_bytes(group))
		return NULL;
	return zi_node_place_at(group, said->staging,
	                        (uint64_t)ZI_PAIR_LETTERS * said->piece_bytes);
}

/* Of a type that this libzinf does not know: how many pieces it has cannot be told either. */
static int refuse_dtype(struct zi_node_group *group, struct zi_node_p2p *p2p,
                        const struct zi_board_send *said, struct zi_text *text)
{
	struct zi_board_take *line = zi_pair_own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	line->refused_dtype = (uint8_t)p2p->dtype;
	line->refused_count = p2p->element_count;
	__atomic_store_n(&line->done, message->sequence, __ATOMIC_RELEASE);
	zi_pair_refuse_one(group, p2p, 0);
	__atomic_store_n(&line->refusal, 0, __ATOMIC_RELAXED);
	zi_pair_tell(group, p2p->peer, &line->refused, message->sequence);
	message->phase = ZI_NODE_MESSAGE_OVER;
	return err_trace(zi_pair_say_mismatch(group, p2p, said->element_count, said->dtype, text));
}

/* What the sender posted: copied out, then checked. */
static int take_post(struct zi_node_group *group, struct zi_node_p2p *p2p, struct zi_text *text)
{
	struct zi_node_message *message = &p2p->message;
	struct zi_board_send said = *zi_pair_peer_send(group, p2p->peer);
	bool is_known = said.dtype >= ZI_DTYPE_F32 && said.dtype < _ZI_DTYPE_COUNT;
	uint64_t bytes = 0, pieces = 0;

	if (said.dtype >= _ZI_DTYPE_COUNT && said.sequence == message->sequence)
		return err_trace(refuse_dtype(group, p2p, &said, text));
	if (is_known &&
	    !zi_checked_mul(said.element_count, zi_dtype_bytes((enum zi_dtype)said.dtype), &bytes))
		is_known = false;
	if (said.source == ZI_BOARD_NOWHERE && said.piece_bytes)
		pieces = bytes / said.piece_bytes + (bytes % said.piece_bytes != 0);
	message->base = said.base; /* The sender's word, which hurts this pair alone. */
	message->piece_bytes = said.piece_bytes;
	message->piece_count = (uint32_t)pieces;
	message->source = source_of(group, p2p->peer, &said, bytes);
	if (!is_known || said.sequence != message->sequence || !message->source ||
	    pieces > INT32_MAX || (said.source == ZI_BOARD_NOWHERE && !said.piece_bytes))
		return err_origin(zi_text_error(
			text, -EPROTO,
			"message %u from member %u: what it posted makes no sense: its memory is "
			"damaged, or it is another version",
			message->sequence, p2p->peer));
	if (said.dtype == p2p->dtype && said.element_count == p2p->element_count) {
		message->phase = ZI_NODE_MESSAGE_MOVING;
		return 0;
	}
	empty(group, p2p, false);
	return zi_pair_say_mismatch(group, p2p, said.element_count, said.dtype, text);
}

static int take_pieces(struct zi_node_group *group, struct zi_node_p2p *p2p,
                       struct zi_meet_wants *wants)
{
	const struct zi_board_send *line = zi_pair_peer_send(group, p2p->peer);
	struct zi_board_take *own = zi_pair_own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	while (message->piece < message->piece_count) {
		uint32_t number = message->base + message->piece;
		uint64_t begin = (uint64_t)message->piece * message->piece_bytes;

		if (!zi_meet_has_come(&line->filled, number + 1)) {
			zi_meet_want(wants, &group->meet, &line->filled, number + 1);
			return ZI_NODE_E_WAITS;
		}
		zi_pair_copy(group, (char *)p2p->buffer + begin,
		             message->source +
		                     (uint64_t)(number % ZI_PAIR_LETTERS) * message->piece_bytes,
		             ZI_MIN(zi_pair_bytes(p2p) - begin, message->piece_bytes), true);
		if (++message->piece < message->piece_count)
			zi_pair_tell(group, p2p->peer, &own->emptied, number + 1);
	}
	return 0;
}

/* For whoever asks what this member waits for; nobody waits on it, but for the mail when there is
 * nothing yet. */
static void post_take(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	const struct zi_board_send *line = zi_pair_peer_send(group, p2p->peer);
	struct zi_board_take *own = zi_pair_own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	message->sequence = ++group->pairs.taken[p2p->peer];
	own->dtype = (uint8_t)p2p->dtype;
	own->element_count = p2p->element_count;
	/* Release: who reads it sees that the message before was emptied. */
	__atomic_store_n(&own->refused, message->sequence - 1, __ATOMIC_RELEASE);
	if (zi_pair_is_near(group, p2p->peer) ||
	    zi_meet_has_come(&line->sequence, message->sequence))
		__atomic_store_n(&own->sequence, message->sequence, __ATOMIC_RELEASE);
	else
		zi_pair_tell(group, p2p->peer, &own->sequence, message->sequence);
	message->phase = ZI_NODE_MESSAGE_POSTED;
}

/* Until the sender has posted, or refused, this message. */
static int await_post(struct zi_node_group *group, struct zi_node_p2p *p2p,
                      struct zi_meet_wants *wants, struct zi_text *text)
{
	const struct zi_board_send *line = zi_pair_peer_send(group, p2p->peer);
	struct zi_board_take *own = zi_pair_own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	if (!zi_meet_has_come(&line->sequence, message->sequence)) {
		zi_meet_want(wants, &group->meet, &line->sequence, message->sequence);
		return ZI_NODE_E_WAITS;
	}
	if (zi_meet_has_come(&line->refused, message->sequence)) {
		__atomic_store_n(&own->done, message->sequence, __ATOMIC_RELEASE);
		message->phase = ZI_NODE_MESSAGE_OVER;
		return err_trace(zi_pair_say_refused(
			group, p2p, zi_pair_reason_of(group, p2p, &line->refused, &line->refusal),
			text));
	}
	return err_trace(take_post(group, p2p, text));
}

int zi_pair_poll_take(struct zi_node_group *group, struct zi_node_p2p *p2p,
                      struct zi_meet_wants *wants, struct zi_text *text)
{
	struct zi_node_message *message = &p2p->message;

	if (message->phase == ZI_NODE_MESSAGE_NEW)
		post_take(group, p2p);
	if (message->phase == ZI_NODE_MESSAGE_POSTED) {
		int r = await_post(group, p2p, wants, text);

		if (r)
			return r;
	}
	if (take_pieces(group, p2p, wants))
		return ZI_NODE_E_WAITS;
	if (!message->piece_count)
		zi_pair_copy(group, p2p->buffer, message->source, zi_pair_bytes(p2p), true);
	empty(group, p2p, true);
	return 0;
}
