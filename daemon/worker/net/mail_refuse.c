/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that a member refuses; see mail.h. Floor 3, of zinf-net. Owner: the mail's thread.
 *
 * What a sender here refuses its receiver's node is told at once, by one frame at a time: what is
 * refused before that one is answered is told together, with the newest reason. What a receiver
 * here refuses is told when its message has come, as its OVER.
 */
#include <errno.h>
#include <string.h>

#include "common/base/err.h"
#include "daemon/worker/net/mail_private.h"

/* ---- why ---- */

/* Documented in mail_private.h, as are all that are not static. */
void mail_put_reason(const struct mail *mail, const struct mail_pair *pair, uint32_t sequence,
                     bool is_send, struct mail_frame *frame)
{
	const struct zi_board_member *member = &mail->meet.members[pair->local];
	struct zi_board_refusal refusal;
	uint32_t number =
		zi_board_refused_for(member, sequence, mail->wire.lines[pair->peer], is_send);

	frame->refusal = ZI_BOARD_REFUSAL_LOST;
	frame->error = EINVAL;
	if (!zi_board_refusal_of(member->refusals, number, &refusal))
		return; /* It has refused many others since. */
	frame->refusal = refusal.number;
	frame->error = refusal.error ? refusal.error : EINVAL; /* hearsay */
	frame->bytes = sizeof(refusal.reason);
	memcpy(frame->data, refusal.reason, sizeof(refusal.reason));
}

/* The same one may come with messages to several members here, and an older one late. */
void mail_keep_reason(const struct mail *mail, const struct mail_pair *pair,
                      const struct mail_frame *frame)
{
	struct zi_board_refusal *refusals =
		zi_mail_refusals(&mail->wire, zi_mail_other(&mail->wire, pair->peer));
	uint32_t newest = refusals[frame->refusal % ZI_BOARD_REFUSALS].number;
	char reason[sizeof(refusals->reason)];

	if (frame->refusal == ZI_BOARD_REFUSAL_LOST || frame->bytes != sizeof(reason) ||
	    (newest && (int32_t)(frame->refusal - newest) <= 0))
		return;
	memcpy(reason, frame->data, sizeof(reason));
	reason[sizeof(reason) - 1] = '\0';
	zi_board_refuse(refusals, frame->refusal, frame->error, reason);
}

/* ---- by the sender ---- */

int mail_tell_refused(struct mail *mail, struct mail_pair *pair, uint32_t sequence,
                      struct zi_text *text)
{
	struct mail_frame *frame;

	if (mail_link_lies(pair->link, pair->index, MAIL_REFUSED, 0))
		return 0; /* The answer brings the mail back here. */
	frame = mail_frame_of(pair, MAIL_REFUSED, 0, sequence);
	mail_put_reason(mail, pair, sequence, true, frame);
	pair->out.sequence = sequence;
	return err_trace(mail_link_send(pair->link, frame, text));
}

int mail_take_refused(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                      struct zi_text *text)
{
	struct zi_board_send *send = &pair->box->send;
	struct mail_message *in = &pair->in;

	if (in->is_busy || (int32_t)(frame->sequence - in->sequence) <= 0)
		return 1;
	mail_gone(pair, MAIL_OVER, 0); /* of what came before */
	mail_gone(pair, MAIL_REFUSED_HEARD, 0);
	in->sequence = frame->sequence;
	mail_keep_reason(mail, pair, frame);
	/* In this order: who is still at an older message does not take the new reason for its own
	 * (pairs with zi_pair_reason_of()). Who waits for this one waits for `sequence`. */
	__atomic_store_n(&send->refused, in->sequence, __ATOMIC_RELAXED);
	__atomic_store_n(&send->refusal, frame->refusal, __ATOMIC_RELEASE);
	zi_meet_tell_one(&mail->meet, pair->local, &send->sequence, in->sequence);
	return err_trace(mail_link_send(
		pair->link, mail_frame_of(pair, MAIL_REFUSED_HEARD, 0, in->sequence), text));
}

int mail_take_refused_heard(struct mail *mail, struct mail_pair *pair, struct zi_text *text)
{
	if (!mail_link_lies(pair->link, pair->index, MAIL_REFUSED, 0))
		return 1;
	mail_gone(pair, MAIL_REFUSED, 0);
	return err_trace(mail_poll_out(mail, pair, text));
}

/* ---- by the receiver ---- */

bool mail_refuses(const struct mail_pair *pair, uint32_t sequence)
{
	/* It may have taken this one, and refused later ones since: that is looked at last. */
	return zi_meet_has_come(&pair->taken->refused, sequence) &&
	       mail_emptied(pair) - pair->in.base != pair->in.piece_count + 1;
}
