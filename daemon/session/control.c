/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control thread's half of the sessions: the table in which all of them live. Floor 6, control
 * thread.
 *
 * Bounds: attached sessions by limits.sessions, connections that are not attached by
 * SESS_WAITING_MAX. A flood of connections pushes out those that have been silent longest, so one
 * that says HELLO at once is always heard.
 */
#include "daemon/session/control.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/admin/export.h"
#include "daemon/session/admin/import.h"
#include "daemon/session/sess.h"

/* A slot without a session. */
static void sess_clear(struct sess_control *control, struct sess *session)
{
	*session = (struct sess){
		.control = control,
		.socket_fd = -1,
		.pidfd = -1,
		.doorbell_fd = -1,
		.client_doorbell_fd = -1,
		.reply_fd = -1,
	};
	zi_list_init(&session->waiting_link);
}

/**
 * sess_control_new() - a control half without sessions
 * @options: copied; what it points to outlives the control
 * @ret_control: the caller's
 *
 * Return: 0, -ENOMEM, -EMFILE.
 */
int sess_control_new(const struct sess_control_options *options, struct sess_control **ret_control)
{
	_cleanup_(sess_control_freep) struct sess_control *control = NULL;

	control = calloc(1, sizeof(*control));
	if (!control)
		return err_origin(-ENOMEM);
	control->loop = options->loop;
	control->shard_loop = options->shard_loop;
	control->shard = options->shard;
	control->limits = *options->limits;
	control->facts = options->facts;
	control->listen_fd = -1;
	control->spare_fd = -1;
	control->started_ns = zi_clock_now_ns();
	control->slot_count = control->limits.sessions_max + SESS_WAITING_MAX;
	zi_list_init(&control->waiting);
	control->sessions = calloc(control->slot_count, sizeof(struct sess));
	control->message = aligned_alloc(64, ZI_MESSAGE_BYTES_MAX);
	if (!control->sessions || !control->message)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < control->slot_count; i++)
		sess_clear(control, &control->sessions[i]);
	control->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (control->spare_fd < 0)
		return err_origin(-errno);
	*ret_control = zi_steal(control);
	return 0;
}

/* NULL-safe, half-built ones too. Every session has come back (sess_control_stop()). */
struct sess_control *sess_control_free(struct sess_control *control)
{
	if (!control)
		return NULL;
	assert(!control->used_count);
	zi_loop_remove(&control->listen_source);
	control->listen_fd = zi_close(control->listen_fd);
	control->spare_fd = zi_close(control->spare_fd);
	free(control->message);
	free(control->sessions);
	free(control);
	return NULL;
}

/* Return: sessions handed to the shard and not come back. Context: control thread. */
uint32_t sess_control_session_count(const struct sess_control *control)
{
	return control->attached_count;
}

static void sess_check_stopped(struct sess_control *control)
{
	void (*stopped)(void *arg) = control->stopped;

	if (!control->is_stopping || control->used_count || !stopped)
		return;
	control->stopped = NULL;
	stopped(control->stopped_arg);
}

/**
 * sess_control_stop() - take in nobody else
 * @done: runs once, possibly before this returns, when no session is left
 */
void sess_control_stop(struct sess_control *control, void (*done)(void *arg), void *arg)
{
	assert(!control->is_stopping);
	control->is_stopping = true;
	control->stopped = done;
	control->stopped_arg = arg;
	zi_loop_remove(&control->listen_source);
	control->listen_fd = zi_close(control->listen_fd);
	for (uint32_t i = 0; i < control->slot_count; i++) {
		struct sess *session = &control->sessions[i];

		/* Attached ones end in the shard, questions that are out come back by themselves.
		 * */
		if (session->is_used && !session->is_counted && !session->is_asked)
			sess_drop(session);
	}
	sess_check_stopped(control);
}

/* See control.h. */
void sess_drop(struct sess *session)
{
	struct sess_control *control = session->control;

	assert(!session->is_asked);
	zi_loop_disarm(&session->timer);
	zi_list_remove(&session->waiting_link);
	zi_loop_remove(&session->socket_source);
	session->socket_fd = zi_close(session->socket_fd);
	session->pidfd = zi_close(session->pidfd);
	sess_export_drop(session);
	sess_import_drop(session);
	free(session->reply);
	json_decref(session->inquiry.answer);
	sess_set_state(session, SESS_FREE);
	sess_clear(control, session);
	assert(control->used_count > 0);
	control->used_count--;
	sess_check_stopped(control);
}

static struct sess *sess_find_free(struct sess_control *control)
{
	for (uint32_t i = 0; i < control->slot_count; i++)
		if (!control->sessions[i].is_used)
			return &control->sessions[i];
	return NULL;
}

/**
 * sess_control_take_slot() - room for one more connection
 *
 * When all is taken, the one that has been silent longest goes. Return: a session without a socket,
 * CONNECTED; NULL: all are attached or on their way.
 */
struct sess *sess_control_take_slot(struct sess_control *control)
{
	struct sess *session = sess_find_free(control);

	if (!session && !zi_list_is_empty(&control->waiting)) {
		sess_drop(container_of(control->waiting.next, struct sess, waiting_link));
		session = sess_find_free(control);
	}
	if (!session)
		return NULL;
	sess_set_state(session, SESS_CONNECTED);
	session->is_used = true;
	control->used_count++;
	session->id = ++control->next_id;
	return session;
}

static void sess_silence_due(struct zi_timer *timer)
{
	struct sess *session = container_of(timer, struct sess, timer);

	/* Also one that does not read a long answer. It hears nothing: it does not listen. */
	sess_drop(session);
}

/* See control.h. */
void sess_wait_on(struct sess *session)
{
	struct sess_control *control = session->control;

	zi_list_remove(&session->waiting_link);
	zi_list_push_back(&control->waiting, &session->waiting_link);
	zi_loop_arm(control->loop, &session->timer,
	            zi_clock_deadline_ns(control->limits.handshake_ns), sess_silence_due);
}

static void sess_come_back(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, post);
	struct sess_control *control = session->control;

	assert(session->state == SESS_LEAVING);
	assert(control->attached_count > 0);
	control->attached_count--;
	if (control->facts->changed)
		control->facts->changed(control->facts->changed_arg, control->attached_count);
	sess_drop(session);
}

/**
 * sess_control_take_back() - a session is over
 * @session: LEAVING, in no loop of the shard; the control's from here on
 *
 * Context: shard thread.
 */
void sess_control_take_back(struct sess *session)
{
	assert(session->state == SESS_LEAVING);
	zi_loop_post(session->control->loop, &session->post, sess_come_back);
}
