/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages whose time has passed; see mail.h. Floor 3, of zinf-net. Owner: the mail's thread.
 *
 * The node of the member that waits tells that of the other one, whose daemon sees what that rank
 * does instead, and ends the group with its name. Where it does not answer, the node is at fault,
 * or the link to it. A member that was stopped amid its own message is told by its own node.
 */
#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/mail_private.h"

/* The other daemon's answer goes through the store: a few round trips. */
#define LATE_ANSWER_NS (800 * ZI_NS_PER_MS)
static_assert(LATE_ANSWER_NS < ZI_MAIL_PATIENCE_NS, "this node's ranks hear of it in time");

static bool wants_send(const struct mail_pair *pair)
{
	return zi_meet_load(&pair->said->sequence) != pair->out.sequence || pair->out.is_busy;
}

static bool wants_take(const struct mail_pair *pair)
{
	return zi_meet_load(&pair->taken->sequence) != zi_meet_load(&pair->taken->done);
}

/* Documented in mail_private.h, as are all that are not static. */
bool mail_is_wanted(const struct mail_pair *pair)
{
	return wants_send(pair) || wants_take(pair);
}

/* When something is to be done about a message that is waited for until @deadline_ns. */
static uint64_t due_of(const struct mail_message *message, uint32_t sequence, uint64_t deadline_ns)
{
	if (message->told_own == sequence)
		return ZI_DEADLINE_NEVER; /* The daemon ends the group. */
	if (message->told_late != sequence || deadline_ns == ZI_DEADLINE_NEVER)
		return deadline_ns;
	return deadline_ns + LATE_ANSWER_NS;
}

static uint64_t due_of_send(const struct mail_pair *pair)
{
	if (!wants_send(pair))
		return ZI_DEADLINE_NEVER;
	return due_of(&pair->out, pair->said->sequence, pair->said->deadline_ns);
}

static uint64_t due_of_take(const struct mail_pair *pair)
{
	if (!wants_take(pair))
		return ZI_DEADLINE_NEVER;
	return due_of(&pair->in, pair->taken->sequence, pair->taken->deadline_ns);
}

void mail_note_due(struct mail *mail, const struct mail_pair *pair)
{
	mail->due_ns = ZI_MIN(mail->due_ns, ZI_MIN(due_of_send(pair), due_of_take(pair)));
}

static int tell(struct mail_pair *pair, bool is_send, struct zi_text *text)
{
	struct mail_message *message = is_send ? &pair->out : &pair->in;
	struct mail_frame *frame = mail_link_frame(pair->link, pair->index,
	                                           is_send ? MAIL_LATE_SEND : MAIL_LATE_TAKE, 0);

	frame->from = (uint8_t)(is_send ? pair->self : pair->peer);
	frame->to = (uint8_t)(is_send ? pair->peer : pair->self);
	frame->sequence = is_send ? pair->said->sequence : pair->taken->sequence;
	frame->dtype = is_send ? pair->said->dtype : pair->taken->dtype;
	frame->element_count = is_send ? pair->said->element_count : pair->taken->element_count;
	frame->piece = is_send ? pair->said->timeout_ms : pair->taken->timeout_ms;
	message->told_late = frame->sequence;
	return err_trace(mail_link_send(pair->link, frame, text));
}

static int say_silent(const struct mail *mail, const struct mail_pair *pair, bool is_send,
                      struct zi_text *text)
{
	const uint8_t *ranks = mail->options.ranks;

	return err_origin(zi_text_error(
		text, -ETIMEDOUT,
		"rank %u %s rank %u for %.4g s, and %s, where that is, does not answer: look at "
		"the link",
		ranks[pair->self], is_send ? "sends to" : "waits for what is sent by",
		ranks[pair->peer],
		(is_send ? pair->said->timeout_ms : pair->taken->timeout_ms) / 1e3,
		nodes_name(mail->options.nodes, pair->node)));
}

/* Whether the member here has come, and emptied all that came. */
static bool has_taken_all(const struct mail_pair *pair)
{
	return zi_meet_load(&pair->taken->sequence) == pair->in.sequence &&
	       zi_meet_load(&pair->taken->emptied) == pair->in.moved;
}

/* Whether its message is under way and waits for nobody but the member here, whose own time has
 * passed: it was stopped amid it, and its peer may have more time. */
static bool is_own_turn(const struct mail_pair *pair, bool is_send)
{
	if (is_send)
		return pair->out.is_busy && pair->out.moved != pair->out.room &&
		       !zi_meet_has_come(&pair->said->filled, pair->out.moved + 1);
	return pair->in.is_busy && !has_taken_all(pair);
}

static void say_own_late(const struct mail *mail, struct mail_pair *pair, bool is_send)
{
	struct net_late_message late = { .waiting = pair->peer,
		                         .absent = pair->self,
		                         .is_send = !is_send };

	late.dtype = is_send ? pair->said->dtype : pair->taken->dtype;
	late.element_count = is_send ? pair->said->element_count : pair->taken->element_count;
	late.timeout_ms = is_send ? pair->said->timeout_ms : pair->taken->timeout_ms;
	mail->options.late(mail->options.arg, &late);
}

static int tell_pair(const struct mail *mail, struct mail_pair *pair, bool is_send,
                     struct zi_text *text)
{
	uint32_t sequence = is_send ? pair->said->sequence : pair->taken->sequence;
	struct mail_message *message = is_send ? &pair->out : &pair->in;

	if (is_own_turn(pair, is_send)) {
		message->told_own = sequence;
		say_own_late(mail, pair, is_send);
		return 0;
	}
	if (message->told_late == sequence)
		return say_silent(mail, pair, is_send, text);
	return err_trace(tell(pair, is_send, text));
}

int mail_tell_late(struct mail *mail, uint64_t now_ns, struct zi_text *text, uint32_t *ret_node)
{
	uint32_t pair_count = mail->wire.self_count * mail->wire.other_count;

	mail->due_ns = ZI_DEADLINE_NEVER;
	for (uint32_t i = 0; i < pair_count; i++) {
		struct mail_pair *pair = &mail->pairs[i];
		int r = 0;

		*ret_node = pair->node;
		if (due_of_send(pair) <= now_ns)
			r = tell_pair(mail, pair, true, text);
		if (!r && due_of_take(pair) <= now_ns)
			r = tell_pair(mail, pair, false, text);
		if (r)
			return err_trace(r);
		mail_note_due(mail, pair);
	}
	return 0;
}

void mail_take_late(struct mail *mail, struct mail_pair *pair, const struct mail_frame *frame)
{
	bool is_send = frame->kind == MAIL_LATE_SEND;
	const struct mail_message *message = is_send ? &pair->in : &pair->out;

	/* What was on its way, and is over. */
	if (!message->is_busy && (int32_t)(message->sequence - frame->sequence) >= 0)
		return;
	/* Of two that wait for each other it is the other one's turn: its own node says so. */
	if (message->is_busy && message->sequence == frame->sequence &&
	    (is_send ? has_taken_all(pair) : message->moved == message->room))
		return;
	mail->options.late(mail->options.arg,
	                   &(struct net_late_message){ .waiting = pair->peer,
	                                               .absent = pair->self,
	                                               .is_send = is_send,
	                                               .dtype = frame->dtype,
	                                               .element_count = frame->element_count,
	                                               .timeout_ms = frame->piece });
}
