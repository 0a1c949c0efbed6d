/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both halves of a session need: its state machine and short answers. Floor 6. Context: the
 * thread that owns the session.
 */
#include "daemon/session/sess.h"

#include "common/base/assert.h"
#include "common/base/err.h"

/* The diagram in sess.h. Only asserted. */
__attribute__((unused)) static bool sess_may_become(enum sess_state from, enum sess_state to)
{
	switch (from) {
	case SESS_FREE:
		return to == SESS_CONNECTED;
	case SESS_CONNECTED:
		return to == SESS_GREETED || to == SESS_FREE;
	case SESS_GREETED:
		return to == SESS_ASKING || to == SESS_MOVING || to == SESS_FREE;
	case SESS_ASKING:
		return to == SESS_GREETED || to == SESS_FREE;
	case SESS_MOVING:
		return to == SESS_ATTACHED || to == SESS_LEAVING;
	case SESS_ATTACHED:
		return to == SESS_ENDING;
	case SESS_ENDING:
		return to == SESS_LEAVING;
	case SESS_LEAVING:
		return to == SESS_FREE;
	case _SESS_STATE_COUNT:
		break;
	}
	return false;
}

/* The one place where a session changes its state. */
void sess_set_state(struct sess *session, enum sess_state state)
{
	assert(sess_may_become(session->state, state));
	session->state = state;
}

/**
 * sess_send_plain() - a message that is nothing but its header
 * @session: its socket is non-blocking
 * @sequence: of the request that this answers
 *
 * Return: 0; -EAGAIN the client does not read its answers; -EPIPE it is gone.
 */
int sess_send_plain(struct sess *session, enum zi_message_type type, uint32_t sequence)
{
	struct zi_message_header header;

	zi_message_init(&header, type, sizeof(header), sequence);
	return err_trace(zi_message_send(session->socket_fd, &header, NULL, 0));
}

/**
 * sess_send_error() - refuse a request
 * @error: -errno
 * @text: for people; may be empty
 *
 * Return: as sess_send_plain().
 */
int sess_send_error(struct sess *session, uint32_t sequence, int error, const char *text)
{
	struct zi_error_message message = { .error = error };

	assert(error < 0);
	zi_message_init(&message.header, ZI_MESSAGE_ERROR, sizeof(message), sequence);
	zi_text_set(&message.text, "%s", text);
	return err_trace(zi_message_send(session->socket_fd, &message.header, NULL, 0));
}

/**
 * sess_answered() - the answer, or why there is none, lies in the inquiry
 *
 * Context: shard thread, once for each question.
 */
void sess_answered(struct sess *session)
{
	zi_loop_post(session->control->loop, &session->post, session->inquiry.answered);
}

/* The answer becomes text. Context: any thread that has the question. */
void sess_write_out(struct sess *session)
{
	assert(!session->reply);
	session->reply = json_dumps(session->inquiry.answer, JSON_COMPACT);
}

/* The thread that made the answer frees it: a worker's thread, whose priority is low, would keep
 * the lock of the shard's memory while others have the CPU. */
void sess_free_answer(struct sess *session)
{
	json_decref(session->inquiry.answer);
	session->inquiry.answer = NULL;
}

/* Context: a thread of the worker. */
static void dump_run(struct dev_task *task)
{
	sess_write_out(container_of(task, struct sess, dump_task));
}

static void dump_done(struct dev_task *task)
{
	struct sess *session = container_of(task, struct sess, dump_task);

	sess_free_answer(session);
	sess_answered(session);
}

/* See sess.h. Context: shard thread. */
void sess_answered_at_length(struct sess *session)
{
	struct sess_shard *shard = session->control->shard;

	if (!session->inquiry.answer) {
		sess_answered(session);
		return;
	}
	session->dump_task =
		(struct dev_task){ .run = dump_run, .done = dump_done, .loop = shard->loop };
	dev_submit(shard->worker, &session->dump_task);
}
