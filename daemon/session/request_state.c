/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about optimizer state; see request_state.h. Floor 6, shard thread. */
#include "daemon/session/request_state.h"

#include "common/base/err.h"
#include "common/wire/state.h"
#include "daemon/session/request_answer.h"
#include "daemon/session/sess.h"

static int sess_reply_window(struct sess *session)
{
	struct tier_segment *window = zero_state_window(session->rank);
	struct zi_state_opened message = { 0 };
	int r;

	if (!window)
		return err_trace(sess_reply_over(session));
	message.bytes = window->region.bytes;
	r = sess_hold(session, window);
	if (r)
		return err_trace(r);
	zi_message_init(&message.header, ZI_MESSAGE_STATE_OPENED, sizeof(message),
	                session->request_sequence);
	return err_trace(zi_message_send(session->socket_fd, &message.header,
	                                 (int[]){ window->region.fd }, 1));
}

/* Kind and range are zero's to check, as it knows the optimizer and the unit's elements. */
static void sess_state_range(struct sess *session, const struct zi_state_range *message)
{
	struct zi_text text;

	if (message->unit >= session->unit_count) {
		zi_text_set(&text, "%s: unit %u of %u", zi_message_name(message->header.type),
		            message->unit, session->unit_count);
		sess_refuse(session, message->header.sequence, -EINVAL, text.chars);
		return;
	}
	session->request = (struct zero_op){
		.unit = message->unit,
		.root = message->root,
		.state = { .kind = message->kind,
		           .first = message->first,
		           .count = message->count },
	};
	sess_submit_request(session, &message->header,
	                    message->header.type == ZI_MESSAGE_STATE_READ ? zero_state_read
	                                                                  : zero_state_write,
	                    NULL);
}

/* See request_state.h. */
void sess_request_state(struct sess *session, const struct zi_message_header *header)
{
	const struct zi_state_count *count = (const void *)header;

	switch (header->type) {
	case ZI_MESSAGE_STATE_OPEN:
		session->request = (struct zero_op){ 0 };
		sess_submit_request(session, header, zero_state_open, sess_reply_window);
		return;
	case ZI_MESSAGE_STATE_COUNT:
		session->request = (struct zero_op){
			.state = { .update_count = count->update_count,
			           .betas = { count->beta1, count->beta2 } },
		};
		sess_submit_request(session, header, zero_state_count, NULL);
		return;
	default:
		sess_state_range(session, (const void *)header);
	}
}
