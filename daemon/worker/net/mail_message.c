/* SPDX-License-Identifier: Apache-2.0 */
/* One pair of members, and its message under way each way; see mail.h. Floor 3, of zinf-net. Owner:
 * the mail's thread. */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/worker/net/mail_private.h"

static void count_carried(struct mail *mail, bool is_more)
{
	mail->carried_count += is_more ? 1 : -1;
	__atomic_store_n(mail->options.is_carrying, mail->carried_count > 0, __ATOMIC_RELEASE);
}

/* ---- both ways ---- */

/* Return: false when there is no such message. */
static bool measure(const struct mail *mail, struct mail_message *message, uint32_t dtype,
                    uint64_t element_count)
{
	uint64_t pieces;

	if (dtype < ZI_DTYPE_F32 || dtype >= _ZI_DTYPE_COUNT ||
	    !zi_checked_mul(element_count, zi_dtype_bytes((enum zi_dtype)dtype), &message->bytes))
		return false;
	pieces = message->bytes / mail->wire.letter_bytes +
	         (message->bytes % mail->wire.letter_bytes != 0);
	if (pieces > INT32_MAX)
		return false;
	message->dtype = (uint8_t)dtype;
	message->piece_count = (uint32_t)pieces;
	message->moved = message->room = message->base;
	return true;
}

static bool is_short(const struct mail_message *message)
{
	return message->bytes <= MAIL_INLINE_BYTES && message->piece_count <= 1;
}

static uint64_t piece_bytes(const struct mail *mail, const struct mail_message *message,
                            uint32_t piece)
{
	uint64_t begin = (uint64_t)(piece - message->base) * mail->wire.letter_bytes;

	return ZI_MIN(message->bytes - begin, mail->wire.letter_bytes);
}

static uint64_t letter(const struct mail *mail, uint64_t letters, uint32_t piece)
{
	return letters + piece % ZI_MAIL_LETTERS * mail->wire.letter_bytes;
}

static void end_message(struct mail_message *message)
{
	message->is_busy = false;
	message->base += message->piece_count + 1;
}

struct mail_frame *mail_frame_of(const struct mail_pair *pair, enum mail_kind kind, uint32_t piece,
                                 uint32_t sequence)
{
	struct mail_frame *frame = mail_link_frame(pair->link, pair->index, kind, piece);
	bool is_in = mail_kind_is_in(kind);

	frame->from = (uint8_t)(is_in ? pair->self : pair->peer);
	frame->to = (uint8_t)(is_in ? pair->peer : pair->self);
	frame->sequence = sequence;
	return frame;
}

void mail_gone(const struct mail_pair *pair, enum mail_kind kind, uint32_t piece)
{
	mail_link_gone(pair->link, pair->index, kind, piece);
}

/* ---- from here ---- */

static int begin_out(struct mail *mail, struct mail_pair *pair, struct zi_text *text)
{
	struct zi_board_send said = *pair->said; /* The member leaves it until it is taken. */
	struct mail_message *out = &pair->out;
	struct mail_frame *frame;

	if (said.sequence != out->sequence + 1 ||
	    !measure(mail, out, said.dtype, said.element_count))
		return err_origin(zi_text_error(text, -EPROTO,
		                                "what rank %u posted makes no sense: its memory is "
		                                "damaged",
		                                mail->options.ranks[pair->self]));
	out->sequence++;
	out->is_busy = true;
	count_carried(mail, true);
	frame = mail_frame_of(pair, MAIL_SEND, 0, out->sequence);
	frame->dtype = said.dtype;
	frame->element_count = said.element_count;
	if (is_short(out) && out->bytes) {
		frame->bytes = (uint32_t)out->bytes;
		memcpy(frame->data, mail->options.slab + letter(mail, pair->letters_out, out->base),
		       out->bytes);
		out->moved = out->room = out->base + 1;
	}
	return err_trace(mail_link_send(pair->link, frame, text));
}

/* What the member here has refused since is told first. */
static int look_out(struct mail *mail, struct mail_pair *pair, struct zi_text *text)
{
	uint32_t sequence = zi_meet_load(&pair->said->sequence), refused = sequence;
	int r = 0;

	if (!zi_meet_has_come(&pair->said->refused, sequence))
		refused--; /* That one is posted. */
	if (zi_meet_has_come(&pair->out.sequence, sequence))
		return 0;
	if (pair->out.sequence != refused)
		r = mail_tell_refused(mail, pair, refused, text);
	if (r || sequence == refused || pair->out.sequence != refused)
		return err_trace(r);
	return err_trace(begin_out(mail, pair, text));
}

/* Documented in mail_private.h, as are all that are not static. */
int mail_poll_out(struct mail *mail, struct mail_pair *pair, struct zi_text *text)
{
	struct mail_message *out = &pair->out;
	int r = 0;

	if (!out->is_busy)
		r = look_out(mail, pair, text);
	for (; !r && out->is_busy && out->moved != out->room; out->moved++) {
		uint32_t piece = out->moved;

		if (!zi_meet_has_come(&pair->said->filled, piece + 1))
			return 0;
		r = mail_link_send_piece(pair->link, pair->self, pair->peer,
		                         letter(mail, pair->letters_out, piece),
		                         piece_bytes(mail, out, piece), text);
		if (!r)
			r = mail_link_send(pair->link,
			                   mail_frame_of(pair, MAIL_PIECE, piece, out->sequence),
			                   text);
	}
	return err_trace(r);
}

int mail_take_room(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text)
{
	struct mail_message *out = &pair->out;

	if (!out->is_busy || frame->sequence != out->sequence || frame->piece != out->room ||
	    frame->piece - out->base >= out->piece_count)
		return 1;
	/* There is room for a piece when the one before it in its place has come. */
	if (frame->piece - out->moved >= ZI_MAIL_LETTERS)
		return 1;
	out->room++;
	if (frame->piece - out->base >= ZI_MAIL_LETTERS) {
		mail_gone(pair, MAIL_PIECE, frame->piece - ZI_MAIL_LETTERS);
		zi_meet_tell_one(&mail->meet, pair->local, &pair->box->take.emptied,
		                 frame->piece - ZI_MAIL_LETTERS + 1);
	}
	return err_trace(mail_poll_out(mail, pair, text));
}

int mail_take_over(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame)
{
	struct mail_message *out = &pair->out;
	struct zi_board_take *take = &pair->box->take;

	if (!out->is_busy || frame->sequence != out->sequence || out->moved != out->room)
		return 1;
	mail_gone(pair, MAIL_SEND, 0);
	for (uint32_t i = 0; i < ZI_MAIL_LETTERS; i++)
		mail_gone(pair, MAIL_PIECE, i);
	end_message(out);
	count_carried(mail, false);
	if (frame->error) {
		mail_keep_reason(mail, pair, frame);
		__atomic_store_n(&take->refusal, frame->refusal, __ATOMIC_RELAXED);
		zi_meet_tell_one(&mail->meet, pair->local, &take->refused, out->sequence);
		return 0;
	}
	take->refused_dtype = frame->dtype;
	take->refused_count = frame->element_count;
	take->done = out->sequence;
	zi_meet_tell_one(&mail->meet, pair->local, &take->emptied, out->base);
	return 0;
}

/* ---- to here ---- */

uint32_t mail_emptied(const struct mail_pair *pair)
{
	uint32_t emptied = zi_meet_load(&pair->taken->emptied);

	/* Pieces of what was refused before are not counted there. */
	return (int32_t)(emptied - pair->in.base) < 0 ? pair->in.base : emptied;
}

static int tell_over(struct mail *mail, struct mail_pair *pair, bool is_refused,
                     struct zi_text *text)
{
	const struct zi_board_take *taken = pair->taken;
	struct mail_message *in = &pair->in;
	struct mail_frame *frame;

	/* Pieces that were asked for come all the same. */
	if (in->moved != in->room)
		return 0;
	frame = mail_frame_of(pair, MAIL_OVER, 0, in->sequence);
	if (is_refused &&
	    (zi_meet_load(&taken->refusal) || zi_meet_load(&taken->refused) != in->sequence)) {
		mail_put_reason(mail, pair, in->sequence, false, frame);
	} else {
		frame->dtype = taken->refused_dtype;
		frame->element_count = taken->refused_count;
	}
	end_message(in);
	return err_trace(mail_link_send(pair->link, frame, text));
}

int mail_poll_in(struct mail *mail, struct mail_pair *pair, struct zi_text *text)
{
	struct mail_message *in = &pair->in;
	bool is_refused = in->is_busy && mail_refuses(pair, in->sequence);
	uint32_t emptied = mail_emptied(pair), count = emptied - in->base;
	int r = 0;

	if (!in->is_busy)
		return 0;
	/* What came, or all of it, taken or refused. */
	if (count > in->moved - in->base && count != in->piece_count + 1)
		return err_origin(zi_text_error(text, -EPROTO,
		                                "what rank %u says to have emptied has not come: "
		                                "its memory is damaged",
		                                mail->options.ranks[pair->self]));
	if (is_refused || count == in->piece_count + 1)
		return err_trace(tell_over(mail, pair, is_refused, text));
	for (; !r && in->room != in->base + in->piece_count; in->room++) {
		if ((int32_t)(in->room - emptied) >= (int32_t)ZI_MAIL_LETTERS)
			return 0;
		r = mail_link_begin_piece(pair->link, pair->peer, pair->self,
		                          letter(mail, pair->letters_in, in->room),
		                          piece_bytes(mail, in, in->room), text);
		if (!r)
			r = mail_link_send(pair->link,
			                   mail_frame_of(pair, MAIL_ROOM, in->room, in->sequence),
			                   text);
	}
	return err_trace(r);
}

int mail_take_send(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text)
{
	struct mail_message *in = &pair->in;
	struct zi_board_send *send = &pair->box->send;

	if (in->is_busy || frame->sequence != in->sequence + 1 ||
	    !measure(mail, in, frame->dtype, frame->element_count) ||
	    frame->bytes != (is_short(in) ? in->bytes : 0))
		return 1;
	mail_gone(pair, MAIL_OVER, 0); /* of the one before */
	in->sequence++;
	in->is_busy = true;
	if (frame->bytes) {
		memcpy(mail->options.slab + letter(mail, pair->letters_in, in->base), frame->data,
		       frame->bytes);
		in->moved = in->room = in->base + 1;
	}
	send->element_count = frame->element_count;
	send->dtype = frame->dtype;
	send->source = ZI_BOARD_NOWHERE;
	send->staging = 0;
	send->piece_bytes = (uint32_t)mail->wire.letter_bytes;
	__atomic_store_n(&send->base, in->base, __ATOMIC_RELAXED);
	__atomic_store_n(&send->refused, in->sequence - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&send->filled, in->moved, __ATOMIC_RELEASE); /* zi_meet_load() */
	zi_meet_tell_one(&mail->meet, pair->local, &send->sequence, in->sequence);
	return err_trace(mail_poll_in(mail, pair, text));
}

int mail_take_piece(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                    struct zi_text *text)
{
	struct mail_message *in = &pair->in;
	int r;

	if (!in->is_busy || frame->sequence != in->sequence || frame->piece != in->moved ||
	    in->moved == in->room)
		return 1;
	mail_gone(pair, MAIL_ROOM, frame->piece);
	r = mail_link_end_piece(pair->link, text);
	if (r)
		return err_trace(r);
	in->moved++;
	zi_meet_tell_one(&mail->meet, pair->local, &pair->box->send.filled, in->moved);
	return err_trace(mail_poll_in(mail, pair, text));
}
