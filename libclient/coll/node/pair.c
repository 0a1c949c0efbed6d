/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives; see node.h. Floor 2.
 *
 * Messages of an ordered pair of members are numbered and go one after the other. The sender posts
 * on its line of the pair; the receiver copies, straight out of the sender's arena or out of two
 * letters in its staging part, and counts what it has emptied on its own line: each piece, and one
 * more for the message. So each side waits for one word that only grows. A message whose type or
 * length is not what the receiver takes is emptied at once, and both sides have the error.
 *
 * To and from members on other nodes the worker is the peer, with letters at this node's end and at
 * the other's (common/wire/mail.h).
 *
 * What a member refuses by itself (check.c), or because its batch is refused, is numbered as well,
 * told to the peer with the reason (`refused`, on its own line) and over at once: its peer may come
 * much later, and then counts on from the sender's word where the pieces of a message begin. So
 * either side may be some refused messages ahead of the other. Between nodes nobody would pass it
 * on: there it is not numbered, as if it had not been called.
 */
#include "libclient/coll/node/pair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "kernels/copy.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/place.h"
#include "libclient/coll/node/words.h"

#define PAIR_LETTERS 2u
static_assert(PAIR_LETTERS == ZI_MAIL_LETTERS, "alike between nodes");

/* ---- whom, and where ---- */

static bool is_near(const struct zi_node_group *group, uint32_t peer)
{
	return !group->far || zi_far_is_here(&group->far->shape, peer);
}

/* Which of the own lines is for @peer; if it is near, also which part of the board it has. */
static uint32_t line_of(const struct zi_node_group *group, uint32_t peer)
{
	return group->far ? group->far->mail.lines[peer] : peer;
}

static struct zi_mail_box *box_of(const struct zi_node_group *group, uint32_t peer)
{
	const struct zi_far_group *far = group->far;

	return zi_mail_box(&far->mail, group->meet.self, zi_mail_other(&far->mail, peer));
}

static struct zi_board_send *own_send(const struct zi_node_group *group, uint32_t peer)
{
	return &group->meet.members[group->meet.self].sends[line_of(group, peer)];
}

static struct zi_board_take *own_take(const struct zi_node_group *group, uint32_t peer)
{
	return &group->meet.members[group->meet.self].takes[line_of(group, peer)];
}

/* What @peer says of what it sends to this member, and of what it takes from it. */
static const struct zi_board_send *peer_send(const struct zi_node_group *group, uint32_t peer)
{
	if (!is_near(group, peer))
		return &box_of(group, peer)->send;
	return &group->meet.members[line_of(group, peer)].sends[group->meet.self];
}

static const struct zi_board_take *peer_take(const struct zi_node_group *group, uint32_t peer)
{
	if (!is_near(group, peer))
		return &box_of(group, peer)->take;
	return &group->meet.members[line_of(group, peer)].takes[group->meet.self];
}

/* Two, in which pieces for @peer lie. */
static char *letters_of(const struct zi_node_group *group, uint32_t peer)
{
	const struct zi_far_group *far = group->far;

	if (is_near(group, peer))
		return zi_node_letters(group, line_of(group, peer));
	return zi_mail_letters(&far->mail, group->meet.self, zi_mail_other(&far->mail, peer), true);
}

static uint64_t letter_bytes_of(const struct zi_node_group *group, uint32_t peer)
{
	return is_near(group, peer) ? zi_node_letter_bytes(group) : group->far->mail.letter_bytes;
}

/* Stores a word of this member's, for @peer. */
static void tell(struct zi_node_group *group, uint32_t peer, uint32_t *word, uint32_t value)
{
	struct zi_board_member *self = &group->meet.members[group->meet.self];

	if (is_near(group, peer)) {
		zi_meet_tell_one(&group->meet, line_of(group, peer), word, value);
		return;
	}
	__atomic_store_n(word, value, __ATOMIC_RELEASE); /* Pairs with zi_meet_load(). */
	zi_meet_tell_one(&group->meet, group->far->shape.self_count + 1, &self->mail.value,
	                 ++group->far->rung);
}

static uint64_t bytes_of(const struct zi_node_p2p *p2p)
{
	return p2p->element_count * zi_dtype_bytes(p2p->dtype);
}

static void copy(const struct zi_node_group *group, void *target, const void *source,
                 uint64_t bytes, bool is_last)
{
	if (bytes)
		kern_copy(&target, 1, source, bytes,
		          is_last && 2 * bytes >= group->streaming_bytes);
}

/* ---- refusals ---- */

uint32_t zi_node_post_reason(struct zi_node_group *group, int error, const struct zi_text *reason)
{
	struct zi_board_member *self = &group->meet.members[group->meet.self];
	struct zi_board_refusal *place;
	uint32_t number = ++group->refusal_count;

	if (!number) /* says that there is no reason */
		number = ++group->refusal_count;
	place = &self->refusals[number % ZI_BOARD_REFUSALS];
	__atomic_store_n(&place->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* pairs with say_refused() */
	place->error = (uint32_t)-error;
	(void)snprintf(place->reason, sizeof(place->reason), "%.247s", reason->chars); /* Cut. */
	__atomic_store_n(&place->number, number, __ATOMIC_RELEASE);
	return number;
}

/* The peer, which refuses @p2p, may have refused later ones since. */
static int say_refused(struct zi_node_group *group, const struct zi_node_p2p *p2p,
                       const uint32_t *refused, uint32_t number, struct zi_text *text)
{
	const struct zi_board_refusal *place = &group->meet.members[line_of(group, p2p->peer)]
	                                                .refusals[number % ZI_BOARD_REFUSALS];
	uint32_t sequence = p2p->message.sequence, self = zi_node_self(group);
	struct zi_board_refusal copy;
	bool is_this;
	int error;

	copy.number = zi_meet_load(&place->number);
	copy.error = place->error;
	memcpy(copy.reason, place->reason, sizeof(copy.reason));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	is_this = number && copy.number == number && zi_meet_load(&place->number) == number &&
	          zi_meet_load(refused) == sequence;
	copy.reason[sizeof(copy.reason) - 1] = '\0';
	error = is_this ? zi_verdict_refusal_of(copy.error) : -EINVAL;
	group->culprit = p2p->peer;
	return err_origin(zi_text_error(
		text, error, "message %u from member %u to member %u: %s refuses it: %s", sequence,
		p2p->is_send ? self : p2p->peer, p2p->is_send ? p2p->peer : self,
		zi_node_name(group, p2p->peer).chars,
		is_this ? copy.reason : "the reason has made room for those of later ones"));
}

/* This member refuses it: whoever comes to it is told. */
static void refuse(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	struct zi_node_message *message = &p2p->message;
	uint32_t peer = p2p->peer;

	message->phase = ZI_NODE_MESSAGE_OVER;
	if (peer >= zi_node_members(group) || peer == zi_node_self(group) || !is_near(group, peer))
		return; /* No peer, or this member, which counts neither side; see above. */
	if (p2p->is_send) {
		struct zi_board_send *line = own_send(group, peer);

		message->sequence = ++group->pairs.sent[peer];
		__atomic_store_n(&line->refusal, message->refusal, __ATOMIC_RELAXED);
		__atomic_store_n(&line->refused, message->sequence, __ATOMIC_RELEASE);
		tell(group, peer, &line->sequence, message->sequence);
	} else {
		struct zi_board_take *line = own_take(group, peer);

		message->sequence = ++group->pairs.taken[peer];
		__atomic_store_n(&line->refusal, message->refusal, __ATOMIC_RELAXED);
		tell(group, peer, &line->refused, message->sequence);
	}
}

static int say_mismatch(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                        uint64_t other_count, uint32_t other_dtype, struct zi_text *text)
{
	uint32_t self = zi_node_self(group);
	bool is_send = p2p->is_send;

	return err_origin(zi_text_error(
		text, -EINVAL,
		"message %u from %s to %s: %" PRIu64 " × %s are sent and %" PRIu64 " × %s taken",
		p2p->message.sequence, zi_node_name(group, is_send ? self : p2p->peer).chars,
		zi_node_name(group, is_send ? p2p->peer : self).chars,
		is_send ? p2p->element_count : other_count,
		zi_node_dtype_words(is_send ? p2p->dtype : other_dtype).chars,
		is_send ? other_count : p2p->element_count,
		zi_node_dtype_words(is_send ? other_dtype : p2p->dtype).chars));
}

/* ---- sending ---- */

/* Fills as many letters as are free. Return: whether one was filled. */
static bool fill(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	struct zi_node_message *message = &p2p->message;
	const struct zi_board_take *take = peer_take(group, p2p->peer);
	uint32_t emptied = zi_meet_load(&take->emptied);
	bool is_filled = false;

	/* Letters of messages before this one, which the peer may have refused, are free. */
	if ((int32_t)(emptied - message->base) < 0)
		emptied = message->base;

	for (; message->piece < message->piece_count; message->piece++) {
		uint32_t number = message->base + message->piece;
		uint64_t begin = (uint64_t)message->piece * message->piece_bytes;

		if (number - emptied >= PAIR_LETTERS)
			break;
		copy(group,
		     letters_of(group, p2p->peer) + number % PAIR_LETTERS * message->piece_bytes,
		     (const char *)p2p->buffer + begin,
		     ZI_MIN(bytes_of(p2p) - begin, message->piece_bytes), false);
		is_filled = true;
	}
	return is_filled;
}

static void post_send(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	struct zi_board_send *line = own_send(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;
	uint64_t bytes = bytes_of(p2p);
	uint64_t place = ZI_BOARD_NOWHERE;

	if (is_near(group, p2p->peer))
		place = zi_node_place_of(group, p2p->buffer, bytes);
	message->sequence = ++group->pairs.sent[p2p->peer];
	message->base = group->pairs.filled[p2p->peer];
	message->piece_bytes = (uint32_t)letter_bytes_of(group, p2p->peer);
	message->piece_count = 0;
	if (place == ZI_BOARD_NOWHERE)
		message->piece_count =
			(uint32_t)((bytes + message->piece_bytes - 1) / message->piece_bytes);
	group->pairs.filled[p2p->peer] += message->piece_count + 1;
	(void)fill(group, p2p); /* comes with the post */
	line->element_count = p2p->element_count;
	line->dtype = (uint8_t)p2p->dtype;
	line->source = place;
	line->staging = is_near(group, p2p->peer)
	                        ? (uint64_t)(zi_node_letters(group, line_of(group, p2p->peer)) -
	                                     group->arenas)
	                        : 0;
	line->piece_bytes = message->piece_bytes;
	__atomic_store_n(&line->base, message->base, __ATOMIC_RELAXED);
	__atomic_store_n(&line->refused, message->sequence - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&line->filled, message->base + message->piece, __ATOMIC_RELEASE);
	tell(group, p2p->peer, &line->sequence, message->sequence);
	message->phase = ZI_NODE_MESSAGE_POSTED;
}

static int poll_send(struct zi_node_group *group, struct zi_node_p2p *p2p,
                     struct zi_meet_wants *wants, struct zi_text *text)
{
	struct zi_board_send *line = own_send(group, p2p->peer);
	const struct zi_board_take *take = peer_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;
	uint32_t end;

	if (message->phase == ZI_NODE_MESSAGE_NEW)
		post_send(group, p2p);
	end = message->base + message->piece_count + 1;
	/* Later messages may have been refused since this one was taken: that is looked at last. */
	if (is_near(group, p2p->peer) && !zi_meet_has_come(&take->emptied, end) &&
	    zi_meet_has_come(&take->refused, message->sequence) &&
	    !zi_meet_has_come(&take->emptied, end)) {
		uint32_t number = zi_meet_load(&take->refusal);

		message->phase = ZI_NODE_MESSAGE_OVER;
		if (number || zi_meet_load(&take->refused) != message->sequence)
			return err_trace(say_refused(group, p2p, &take->refused, number, text));
		return err_trace(
			say_mismatch(group, p2p, take->refused_count, take->refused_dtype, text));
	}
	if (!zi_meet_has_come(&take->emptied, end)) {
		if (fill(group, p2p))
			tell(group, p2p->peer, &line->filled, message->base + message->piece);
		zi_meet_want(wants, &group->meet, &take->emptied,
		             message->piece < message->piece_count
		                     ? message->base + message->piece - PAIR_LETTERS + 1
		                     : end);
		if (is_near(group, p2p->peer))
			zi_meet_want(wants, &group->meet, &take->refused, message->sequence);
		return ZI_NODE_E_WAITS;
	}
	message->phase = ZI_NODE_MESSAGE_OVER;
	if (take->refused_dtype)
		return say_mismatch(group, p2p, take->refused_count, take->refused_dtype, text);
	return 0;
}

/* ---- receiving ---- */

/* The whole message is left, taken or not. */
static void empty(struct zi_node_group *group, struct zi_node_p2p *p2p, bool is_taken)
{
	struct zi_board_take *line = own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	line->refused_dtype = is_taken ? 0 : (uint8_t)p2p->dtype;
	line->refused_count = is_taken ? 0 : p2p->element_count;
	__atomic_store_n(&line->done, message->sequence, __ATOMIC_RELEASE);
	group->pairs.emptied[p2p->peer] = message->base + message->piece_count + 1;
	tell(group, p2p->peer, &line->emptied, group->pairs.emptied[p2p->peer]);
	message->phase = ZI_NODE_MESSAGE_OVER;
}

/* Where what @peer said it sends lies, all of it or two pieces in turn; NULL: nowhere. */
static const char *source_of(const struct zi_node_group *group, uint32_t peer,
                             const struct zi_board_send *said, uint64_t bytes)
{
	const struct zi_far_group *far = group->far;

	if (!is_near(group, peer))
		return said->piece_bytes == far->mail.letter_bytes
		               ? zi_mail_letters(&far->mail, group->meet.self,
		                                 zi_mail_other(&far->mail, peer), false)
		               : NULL;
	if (said->source != ZI_BOARD_NOWHERE)
		return zi_node_place_at(group, said->source, bytes);
	return zi_node_place_at(group, said->staging, (uint64_t)PAIR_LETTERS * said->piece_bytes);
}

/* Of a type that this libzinf does not know: how many pieces it has cannot be told either. */
static int refuse_dtype(struct zi_node_group *group, struct zi_node_p2p *p2p,
                        const struct zi_board_send *said, struct zi_text *text)
{
	struct zi_board_take *line = own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	line->refused_dtype = (uint8_t)p2p->dtype;
	line->refused_count = p2p->element_count;
	__atomic_store_n(&line->done, message->sequence, __ATOMIC_RELEASE);
	__atomic_store_n(&line->refusal, 0, __ATOMIC_RELAXED);
	tell(group, p2p->peer, &line->refused, message->sequence);
	message->phase = ZI_NODE_MESSAGE_OVER;
	return err_trace(say_mismatch(group, p2p, said->element_count, said->dtype, text));
}

/* What the sender posted: copied out, then checked. */
static int take_post(struct zi_node_group *group, struct zi_node_p2p *p2p, struct zi_text *text)
{
	struct zi_node_message *message = &p2p->message;
	struct zi_board_send said = *peer_send(group, p2p->peer);
	bool is_known = said.dtype >= ZI_DTYPE_F32 && said.dtype < _ZI_DTYPE_COUNT;
	uint64_t bytes = 0, pieces = 0;

	if (is_near(group, p2p->peer) && said.dtype >= _ZI_DTYPE_COUNT &&
	    said.sequence == message->sequence)
		return err_trace(refuse_dtype(group, p2p, &said, text));
	if (is_known &&
	    !zi_checked_mul(said.element_count, zi_dtype_bytes((enum zi_dtype)said.dtype), &bytes))
		is_known = false;
	if (said.source == ZI_BOARD_NOWHERE && said.piece_bytes)
		pieces = bytes / said.piece_bytes + (bytes % said.piece_bytes != 0);
	/* The sender's word, which hurts this pair alone; between nodes nothing is refused. */
	message->base = is_near(group, p2p->peer) ? said.base : group->pairs.emptied[p2p->peer];
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
	return say_mismatch(group, p2p, said.element_count, said.dtype, text);
}

static int take_pieces(struct zi_node_group *group, struct zi_node_p2p *p2p,
                       struct zi_meet_wants *wants)
{
	const struct zi_board_send *line = peer_send(group, p2p->peer);
	struct zi_board_take *own = own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	while (message->piece < message->piece_count) {
		uint32_t number = message->base + message->piece;
		uint64_t begin = (uint64_t)message->piece * message->piece_bytes;

		if (!zi_meet_has_come(&line->filled, number + 1)) {
			zi_meet_want(wants, &group->meet, &line->filled, number + 1);
			return ZI_NODE_E_WAITS;
		}
		copy(group, (char *)p2p->buffer + begin,
		     message->source + (uint64_t)(number % PAIR_LETTERS) * message->piece_bytes,
		     ZI_MIN(bytes_of(p2p) - begin, message->piece_bytes), true);
		if (++message->piece < message->piece_count)
			tell(group, p2p->peer, &own->emptied, number + 1);
	}
	return 0;
}

static int poll_take(struct zi_node_group *group, struct zi_node_p2p *p2p,
                     struct zi_meet_wants *wants, struct zi_text *text)
{
	const struct zi_board_send *line = peer_send(group, p2p->peer);
	struct zi_board_take *own = own_take(group, p2p->peer);
	struct zi_node_message *message = &p2p->message;

	if (message->phase == ZI_NODE_MESSAGE_NEW) {
		message->sequence = ++group->pairs.taken[p2p->peer];
		/* For whoever asks what this member waits for; nobody waits on it, but for the mail
		 * when there is nothing yet. */
		own->dtype = (uint8_t)p2p->dtype;
		own->element_count = p2p->element_count;
		__atomic_store_n(&own->refused, message->sequence - 1, __ATOMIC_RELAXED);
		if (is_near(group, p2p->peer) ||
		    zi_meet_has_come(&line->sequence, message->sequence))
			__atomic_store_n(&own->sequence, message->sequence, __ATOMIC_RELEASE);
		else
			tell(group, p2p->peer, &own->sequence, message->sequence);
		message->phase = ZI_NODE_MESSAGE_POSTED;
	}
	if (message->phase == ZI_NODE_MESSAGE_POSTED) {
		int r;

		if (!zi_meet_has_come(&line->sequence, message->sequence)) {
			zi_meet_want(wants, &group->meet, &line->sequence, message->sequence);
			return ZI_NODE_E_WAITS;
		}
		if (is_near(group, p2p->peer) &&
		    zi_meet_has_come(&line->refused, message->sequence)) {
			__atomic_store_n(&own->done, message->sequence, __ATOMIC_RELEASE);
			message->phase = ZI_NODE_MESSAGE_OVER;
			return err_trace(say_refused(group, p2p, &line->refused,
			                             zi_meet_load(&line->refusal), text));
		}
		r = take_post(group, p2p, text);
		if (r)
			return err_trace(r);
	}
	if (take_pieces(group, p2p, wants))
		return ZI_NODE_E_WAITS;
	if (!message->piece_count)
		copy(group, p2p->buffer, message->source, bytes_of(p2p), true);
	empty(group, p2p, true);
	return 0;
}

/* For the mail, which asks the other node when the time has passed. */
static void say_deadline(struct zi_node_group *group, const struct zi_node_p2p *p2p,
                         uint64_t deadline_ns)
{
	struct zi_board_send *send = own_send(group, p2p->peer);
	struct zi_board_take *take = own_take(group, p2p->peer);
	uint64_t now_ns = zi_clock_now_ns(), until_ns = deadline_ns;
	uint32_t timeout_ms;

	if (until_ns != ZI_DEADLINE_NEVER)
		until_ns -= ZI_MIN(until_ns - 1, ZI_MAIL_PATIENCE_NS);
	timeout_ms = until_ns > now_ns ? (uint32_t)((until_ns - now_ns) / ZI_NS_PER_MS + 1) : 0;
	*(p2p->is_send ? &send->deadline_ns : &take->deadline_ns) = until_ns;
	*(p2p->is_send ? &send->timeout_ms : &take->timeout_ms) = timeout_ms;
}

int zi_node_poll_message(struct zi_node_group *group, struct zi_node_p2p *p2p, uint64_t deadline_ns,
                         struct zi_meet_wants *wants, struct zi_text *text)
{
	if (p2p->message.error) {
		refuse(group, p2p);
		return err_origin(p2p->message.error); /* Its text is the batch's. */
	}
	if (p2p->message.phase == ZI_NODE_MESSAGE_NEW && !is_near(group, p2p->peer))
		say_deadline(group, p2p, deadline_ns);
	return p2p->is_send ? poll_send(group, p2p, wants, text)
	                    : poll_take(group, p2p, wants, text);
}
