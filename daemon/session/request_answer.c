/* SPDX-License-Identifier: Apache-2.0 */
/* How requests on the socket are answered, whatever they ask for. Floor 6, shard thread. */
#include "daemon/session/request_answer.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/session/reaper.h"
#include "daemon/session/sess.h"

/* Answers that do not go out end the session: the client does not read. One that has closed its
 * socket is heard of by that: why it is gone is said there. */
void sess_sent(struct sess *session, int r)
{
	if (r && r != -EPIPE && r != -ECONNRESET && session->state == SESS_ATTACHED)
		sess_doom(session, false, "process %d does not read its socket (%s)", session->pid,
		          zi_err_name(r));
}

/* See request_answer.h. */
void sess_refuse(struct sess *session, uint32_t sequence, int error, const char *text)
{
	sess_sent(session, sess_send_error(session, sequence, error, text));
}

/* A descriptor is sent only after its holder is written down. */
int sess_hold(struct sess *session, struct tier_segment *segment)
{
	return err_trace(zero_rank_hold(session->rank, segment));
}

/* What was done is undone already: its group ended between the completion and the answer, and says
 * so next. */
int sess_reply_over(struct sess *session)
{
	return err_trace(sess_send_error(session, session->request_sequence, -ESTALE,
	                                 "the group ended meanwhile: detach, then attach again"));
}

/* Context: inside zero. */
static void sess_request_done(struct zero_op *op)
{
	struct sess *session = container_of(op, struct sess, request);
	int r = 0;

	assert(session->is_requesting);
	session->is_requesting = false;
	explicit_bzero(session->token, sizeof(session->token)); /* Zero has its own, or none. */
	if (session->request_type == ZI_MESSAGE_DESTROY && op->result >= 0)
		session->rank = NULL; /* The job is gone, and the rank with it. */
	if (session->state == SESS_ATTACHED && !session->is_doomed) {
		if (op->result < 0)
			r = sess_send_error(session, session->request_sequence, op->result,
			                    op->text.chars);
		else if (session->request_reply)
			r = session->request_reply(session);
		else
			r = sess_send_plain(session, ZI_MESSAGE_DONE, session->request_sequence);
		sess_sent(session, r);
		if (session->request_type == ZI_MESSAGE_DESTROY && op->result >= 0)
			sess_doom(session, true, "its job was destroyed");
	}
	sess_unref(session);
}

/* See request_answer.h. */
void sess_submit_request(struct sess *session, const struct zi_message_header *header,
                         sess_submit_fn submit, sess_reply_fn reply)
{
	session->request.done = sess_request_done;
	session->request_reply = reply;
	session->request_type = header->type;
	session->request_sequence = header->sequence;
	session->is_requesting = true;
	sess_ref(session);
	submit(session->rank, &session->request);
}
