/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages whose time is passing; see mail.h. Floor 3, of zinf-net. Owner: the mail's thread.
 *
 * A margin before the time of the member that waits, and a larger one where the connection is busy
 * with a call's data, its node asks that of the other one. If it is
 * that member's turn, its daemon sees what the rank does instead, and ends the group with its name;
 * a member that was stopped amid its own message is told by its own node. The other node answers in
 * any case: so whoever says nothing is at fault, or the link to it; and when it is nobody's turn,
 * and half the margin later the message is not over, what is on its way takes too long. In what is
 * left of the margin the nodes hear of it.
 */
#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/mail_private.h"

/* Where data of a call are on their way over the same connection questions and answers wait behind
 * them: so long before the time is asked then. At 100 Mbit/s what may be on its way to a node (four
 * pieces, far.h) takes more than half a second. */
#define LATE_BUSY_NS (4 * ZI_FAR_MARGIN_NS)
/* A receiver that goes on and on meanwhile is not late. */
#define LATE_READS 3u

/* ---- what a member waits for ---- */

/* The mail alone ends what is sent: until it has, the member leaves its line. A refusal that is to
 * be told still is no wait. */
static bool read_send(const struct mail_pair *pair, struct mail_wait *ret_wait)
{
	const struct zi_board_send *line = pair->said;
	uint32_t sequence = zi_meet_load(&line->sequence);

	*ret_wait = (struct mail_wait){ .sequence = sequence,
		                        .timeout_ms = line->timeout_ms,
		                        .deadline_ns = line->deadline_ns,
		                        .element_count = line->element_count,
		                        .dtype = line->dtype };
	return pair->out.is_busy || (!zi_meet_has_come(&pair->out.sequence, sequence) &&
	                             !zi_meet_has_come(&line->refused, sequence));
}

/* Documented in mail_private.h, as are all that are not static. A receiver leaves a message by
 * itself, then says the time of the next one, then its number: whoever reads that time sees that
 * the message before has been left, or that there is another number. */
bool mail_read_take(const struct zi_board_take *line, struct mail_wait *ret_wait)
{
	for (uint32_t i = 0; i < LATE_READS; i++) {
		uint32_t sequence = zi_meet_load(&line->sequence), done;

		*ret_wait = (struct mail_wait){
			.sequence = sequence,
			.timeout_ms = line->timeout_ms,
			/* Pairs with say_deadline(). */
			.deadline_ns = __atomic_load_n(&line->deadline_ns, __ATOMIC_ACQUIRE),
			.element_count = line->element_count,
			.dtype = line->dtype,
		};
		done = zi_meet_load(&line->done);
		if (zi_meet_load(&line->sequence) == sequence)
			return done != sequence;
	}
	return false;
}

static bool read_wait(const struct mail_pair *pair, bool is_send, struct mail_wait *ret_wait)
{
	return is_send ? read_send(pair, ret_wait) : mail_read_take(pair->taken, ret_wait);
}

bool mail_is_wanted(const struct mail_pair *pair)
{
	struct mail_wait wait;

	return read_send(pair, &wait) || mail_read_take(pair->taken, &wait);
}

/* ---- when ---- */

/* When something is to be done about what the member here waits for. */
static uint64_t due_of(struct mail_pair *pair, bool is_send)
{
	struct mail_message *message = is_send ? &pair->out : &pair->in;
	struct mail_wait wait;
	uint64_t now_ns, left_ns;

	if (!read_wait(pair, is_send, &wait) || wait.deadline_ns == ZI_DEADLINE_NEVER)
		return ZI_DEADLINE_NEVER;
	if (message->wait.sequence != wait.sequence) {
		now_ns = zi_clock_now_ns();
		left_ns = wait.deadline_ns > now_ns ? wait.deadline_ns - now_ns : 0;
		message->wait = wait;
		message->late = MAIL_IN_TIME;
		message->margin_ns = ZI_MIN(left_ns / 4, LATE_BUSY_NS);
		message->due_ns = wait.deadline_ns - message->margin_ns;
	}
	return message->late == MAIL_BLAMED ? ZI_DEADLINE_NEVER : message->due_ns;
}

void mail_note_due(struct mail *mail, struct mail_pair *pair)
{
	mail->due_ns = ZI_MIN(mail->due_ns, ZI_MIN(due_of(pair, true), due_of(pair, false)));
}

/* ---- whose turn it is ---- */

static bool is_senders_turn(const struct mail_pair *pair, uint32_t sequence)
{
	const struct mail_message *out = &pair->out;

	if (!zi_meet_has_come(&pair->said->sequence, sequence))
		return true;
	return out->is_busy && out->sequence == sequence && out->moved != out->room &&
	       !zi_meet_has_come(&pair->said->filled, out->moved + 1);
}

/* It has not come to what is there for it, or not emptied it. */
static bool is_receivers_turn(const struct mail_pair *pair, uint32_t sequence)
{
	const struct mail_message *in = &pair->in;

	if (!in->is_busy || in->sequence != sequence || mail_refuses(pair, sequence))
		return false;
	return zi_meet_load(&pair->taken->sequence) != sequence || mail_emptied(pair) != in->moved;
}

/* Whether message @sequence, which @pair's member here sends or takes, waits for that one alone. */
static bool is_own_turn(const struct mail_pair *pair, bool is_send, uint32_t sequence)
{
	return is_send ? is_senders_turn(pair, sequence) : is_receivers_turn(pair, sequence);
}

/* ---- asking ---- */

/* An answer that has not come to a former question: there is nothing more to ask. */
static int ask(struct mail_pair *pair, bool is_send, struct zi_text *text)
{
	struct mail_message *message = is_send ? &pair->out : &pair->in;
	enum mail_kind kind = is_send ? MAIL_LATE_SEND : MAIL_LATE_TAKE;
	struct mail_frame *frame;

	message->late = MAIL_ASKED;
	message->due_ns = zi_clock_deadline_ns(message->margin_ns / 2);
	message->asked_moved = message->moved;
	if (mail_link_lies(pair->link, pair->index, kind, 0))
		return 0;
	frame = mail_frame_of(pair, kind, 0, message->wait.sequence);
	frame->dtype = message->wait.dtype;
	frame->element_count = message->wait.element_count;
	frame->piece = message->wait.timeout_ms;
	return err_trace(mail_link_send(pair->link, frame, text));
}

static bool is_busy(const struct mail *mail)
{
	return zi_meet_load(mail->options.is_loaded);
}

/* Nobody but the link keeps the member here waiting. */
static int say_link(const struct mail *mail, const struct mail_pair *pair, bool is_send,
                    struct zi_text *text)
{
	const struct mail_message *message = is_send ? &pair->out : &pair->in;
	uint32_t self = mail->options.ranks[pair->self], peer = mail->options.ranks[pair->peer];
	uint32_t timeout_ms = message->wait.timeout_ms;
	const char *node = nodes_name(mail->options.nodes, pair->node);
	const char *does = is_send ? "sends to" : "waits for what is sent by";

	if (message->late == MAIL_ASKED)
		return err_origin(zi_text_error(
			text, -ETIMEDOUT,
			"rank %u %s rank %u for %.4g s, and %s, where that is, does not answer: "
			"look at the link%s",
			self, does, peer, timeout_ms / 1e3, node,
			is_busy(mail) ? ", on which data of a call are, too" : ""));
	return err_origin(zi_text_error(
		text, -ETIMEDOUT,
		"rank %u %s rank %u for %.4g s: both do their part, but %u of %u pieces came over "
		"the link to %s: it is too slow for that time",
		self, does, peer, timeout_ms / 1e3, message->moved - message->base,
		message->piece_count, node));
}

static void say_own_late(const struct mail *mail, struct mail_pair *pair, bool is_send)
{
	const struct mail_wait *wait = is_send ? &pair->out.wait : &pair->in.wait;

	mail->options.late(mail->options.arg,
	                   &(struct net_late_message){ .waiting = pair->peer,
	                                               .absent = pair->self,
	                                               .is_send = !is_send,
	                                               .dtype = wait->dtype,
	                                               .element_count = wait->element_count,
	                                               .timeout_ms = wait->timeout_ms });
}

static int look_at(const struct mail *mail, struct mail_pair *pair, bool is_send,
                   struct zi_text *text)
{
	struct mail_message *message = is_send ? &pair->out : &pair->in;

	if (message->late == MAIL_ASKED)
		return err_trace(say_link(mail, pair, is_send, text));
	/* An answer that nothing holds up need not be asked for so soon. */
	if (message->late == MAIL_IN_TIME && message->margin_ns > ZI_FAR_MARGIN_NS &&
	    (!is_busy(mail) || is_own_turn(pair, is_send, message->wait.sequence))) {
		message->margin_ns = ZI_FAR_MARGIN_NS;
		message->due_ns = message->wait.deadline_ns - ZI_FAR_MARGIN_NS;
		return 0;
	}
	/* Amid a message each waits for the other in turn: who moved on meanwhile is not late. */
	if (is_own_turn(pair, is_send, message->wait.sequence) &&
	    (message->late == MAIL_IN_TIME || message->moved == message->asked_moved ||
	     message->moved - message->base == message->piece_count)) {
		message->late = MAIL_BLAMED;
		say_own_late(mail, pair, is_send);
		return 0;
	}
	if (message->late == MAIL_NOT_THERE)
		return err_trace(say_link(mail, pair, is_send, text));
	return err_trace(ask(pair, is_send, text));
}

int mail_ask_late(struct mail *mail, uint64_t now_ns, struct zi_text *text, uint32_t *ret_node)
{
	uint32_t pair_count = mail->wire.self_count * mail->wire.other_count;

	mail->due_ns = ZI_DEADLINE_NEVER;
	for (uint32_t i = 0; i < pair_count; i++) {
		struct mail_pair *pair = &mail->pairs[i];
		int r = 0;

		*ret_node = pair->node;
		if (due_of(pair, true) <= now_ns)
			r = look_at(mail, pair, true, text);
		if (!r && due_of(pair, false) <= now_ns)
			r = look_at(mail, pair, false, text);
		if (r)
			return err_trace(r);
		mail_note_due(mail, pair);
	}
	return 0;
}

/* ---- answering ---- */

int mail_take_late(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame,
                   struct zi_text *text)
{
	bool is_send = frame->kind == MAIL_LATE_SEND, is_turn;
	enum mail_kind kind = is_send ? MAIL_LATE_SEND_HEARD : MAIL_LATE_TAKE_HEARD;
	struct net_late_message late = { .waiting = pair->peer,
		                         .absent = pair->self,
		                         .is_send = is_send,
		                         .dtype = frame->dtype,
		                         .element_count = frame->element_count,
		                         .timeout_ms = frame->piece };
	struct mail_frame *answer;
	/* What the member here has done before is told before. */
	int r = is_send ? mail_poll_in(mail, pair, text) : mail_poll_out(mail, pair, text);

	if (r)
		return err_trace(r);
	is_turn = is_own_turn(pair, !is_send, frame->sequence);
	if (is_turn)
		mail->options.late(mail->options.arg, &late);
	mail_gone(pair, kind, 0); /* Its last answer has come, else there were no question. */
	answer = mail_frame_of(pair, kind, 0, frame->sequence);
	answer->piece = is_turn;
	return err_trace(mail_link_send(pair->link, answer, text));
}

int mail_take_late_heard(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame)
{
	bool is_send = frame->kind == MAIL_LATE_SEND_HEARD;
	enum mail_kind kind = is_send ? MAIL_LATE_SEND : MAIL_LATE_TAKE;
	struct mail_message *message = is_send ? &pair->out : &pair->in;

	if (!mail_link_lies(pair->link, pair->index, kind, 0))
		return 1;
	mail_gone(pair, kind, 0);
	if (message->late != MAIL_ASKED)
		return 0;
	if (message->wait.sequence != frame->sequence) {
		message->late = MAIL_IN_TIME; /* That was about a former one: ask again. */
		message->due_ns = zi_clock_now_ns();
	} else if (frame->piece) {
		message->late = MAIL_BLAMED;
	} else {
		/* What is not there may be coming: as long as an answer may take. */
		message->late = MAIL_NOT_THERE;
		message->due_ns = message->wait.deadline_ns -
		                  ZI_MIN(message->margin_ns, ZI_FAR_MARGIN_NS) / 2;
	}
	mail_note_due(mail, pair);
	return 0;
}
