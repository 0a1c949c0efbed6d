/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control thread's half of the sessions: the table in which all of them live. Floor 6, control
 * thread.
 *
 * Bounds: attached sessions by limits.sessions; connections that are not attached by
 * limits.connections, and by limits.connections_per_uid for each uid. When a uid, or the daemon,
 * has no place left for a newcomer, another connection goes (sess_find_victim()); a few places more
 * are for root and the daemon's own uid only.
 */
#include "daemon/session/control.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/session/admin/ask.h"
#include "daemon/session/admin/export.h"
#include "daemon/session/admin/import.h"
#include "daemon/session/sess.h"

/* The daemon is idle when nobody has been connected for so long. */
#define SESS_IDLE_NS ZI_NS_PER_S

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
	zi_list_init(&session->gpu_link);
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
	control->slot_count =
		control->limits.sessions_max + control->limits.connections_max + SESS_RESERVED_MAX;
	zi_list_init(&control->waiting);
	zi_list_init(&control->unread);
	zi_list_init(&control->queued);
	zi_list_init(&control->asked);
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
	zi_loop_disarm(&control->idle_timer);
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
		if (session->is_used && !session->is_counted && !session->is_asked &&
		    !session->is_withdrawing)
			sess_drop(session);
	}
	sess_check_stopped(control);
}

/* What clients made the allocators take from the system, it has back. */
static void sess_idle_due(struct zi_timer *timer)
{
	struct sess_control *control = container_of(timer, struct sess_control, idle_timer);

	if (!control->used_count)
		(void)malloc_trim(0); /* Whether there was anything to give. */
}

/* See control.h. */
void sess_drop(struct sess *session)
{
	struct sess_control *control = session->control;

	assert(!session->is_asked);
	assert(!session->is_withdrawing);
	zi_loop_disarm(&session->timer);
	zi_list_remove(&session->waiting_link);
	zi_loop_remove(&session->socket_source);
	session->socket_fd = zi_close(session->socket_fd);
	session->pidfd = zi_close(session->pidfd);
	sess_export_drop(session);
	sess_import_drop(session);
	sess_ask_end(session);
	json_decref(session->inquiry.answer);
	sess_uid_give(control->shard->uids, session->uid,
	              session->is_counted ? SESS_UID_SESSIONS : SESS_UID_CONNECTIONS, 1);
	sess_set_state(session, SESS_FREE);
	sess_clear(control, session);
	assert(control->used_count > 0);
	control->used_count--;
	if (!control->used_count)
		zi_loop_arm(control->loop, &control->idle_timer, zi_clock_deadline_ns(SESS_IDLE_NS),
		            sess_idle_due);
	sess_check_stopped(control);
}

static struct sess *sess_find_free(struct sess_control *control)
{
	for (uint32_t i = 0; i < control->slot_count; i++)
		if (!control->sessions[i].is_used)
			return &control->sessions[i];
	return NULL;
}

static bool sess_is_privileged(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/* It exports or loads: work is lost when it goes. */
static bool sess_is_moving_data(const struct sess *session)
{
	return session->export || session->import;
}

/* Of @list the first connection of the uid with the most connections; @uid: of this one only. */
static struct sess *sess_find_largest(struct sess_control *control, const struct zi_list *list,
                                      const uid_t *uid, bool is_unread)
{
	uid_t largest_uid = 0;
	uint64_t most = sess_uid_most(control->shard->uids, SESS_UID_CONNECTIONS, &largest_uid);
	struct sess *found = NULL;
	uint64_t found_count = 0;

	zi_list_for_each(link, list) {
		struct sess *session = container_of(link, struct sess, waiting_link);
		uint64_t count =
			sess_uid_used(control->shard->uids, session->uid, SESS_UID_CONNECTIONS);

		if (uid && session->uid != *uid)
			continue;
		/* An export or load is dropped only when it does not read its answer, and then only
		 * for its own uid or when its uid has most connections of all. */
		if (sess_is_moving_data(session) && !(is_unread && (uid || count == most)))
			continue;
		if (count <= found_count)
			continue;
		found = session;
		found_count = count;
	}
	return found;
}

/*
 * Finds the connection that goes for a newcomer: one of the uid with the most connections. One that
 * does not read its answer goes first, then the one that is silent longest, then one whose question
 * waits for others. @uid: a connection of this uid only; NULL: of any. Return: NULL: no connection
 * may go.
 */
static struct sess *sess_find_victim(struct sess_control *control, const uid_t *uid)
{
	struct zi_list *const lists[] = { &control->unread, &control->waiting, &control->queued };
	struct sess *victim = NULL;
	uint64_t most = 0;

	for (uint32_t i = 0; i < ZI_COUNT_OF(lists); i++) {
		bool is_unread = lists[i] == &control->unread;
		struct sess *session = sess_find_largest(control, lists[i], uid, is_unread);
		uint64_t count = session ? sess_uid_used(control->shard->uids, session->uid,
		                                         SESS_UID_CONNECTIONS)
		                         : 0;

		if (count <= most)
			continue;
		victim = session;
		most = count;
	}
	return victim;
}

/* Counts a connection of @uid, for which another of the same uid may go. */
static int sess_take_place(struct sess_control *control, uid_t uid, struct zi_text *text)
{
	struct sess_uids *uids = control->shard->uids;
	struct sess *victim;
	int r;

	r = sess_uid_take(uids, uid, SESS_UID_CONNECTIONS, 1, text);
	if (r != -EMFILE)
		return err_trace(r);
	victim = sess_find_victim(control, &uid);
	if (!victim)
		return err_trace(r);
	sess_drop(victim);
	return err_trace(sess_uid_take(uids, uid, SESS_UID_CONNECTIONS, 1, text));
}

/**
 * sess_control_take_slot() - room for one more connection
 * @uid: who connects
 * @text: of a refusal
 * @ret_session: without a socket, CONNECTED
 *
 * Return: 0; -EMFILE the uid, or all uids together, have too many connections, and none of them may
 * go for this one; -ENOMEM. Context: control thread.
 */
int sess_control_take_slot(struct sess_control *control, uid_t uid, struct zi_text *text,
                           struct sess **ret_session)
{
	uint32_t places =
		control->limits.connections_max + (sess_is_privileged(uid) ? SESS_RESERVED_MAX : 0);
	struct sess *session;
	int r;

	r = sess_take_place(control, uid, text);
	if (r)
		return err_trace(r);
	if (control->used_count - control->attached_count >= places) {
		session = sess_find_victim(control, NULL);
		if (!session) {
			sess_uid_give(control->shard->uids, uid, SESS_UID_CONNECTIONS, 1);
			return zi_text_error(text, err_origin(-EMFILE),
			                     "all %u connections that are not attached are in use "
			                     "(limits.connections): try again",
			                     places);
		}
		sess_drop(session);
	}
	session = sess_find_free(control);
	assert(session);
	sess_set_state(session, SESS_CONNECTED);
	session->is_used = true;
	session->uid = uid;
	control->used_count++;
	session->id = ++control->next_id;
	*ret_session = session;
	return 0;
}

static void sess_silence_due(struct zi_timer *timer)
{
	struct sess *session = container_of(timer, struct sess, timer);

	/* Also one that does not read a long answer. It hears nothing: it does not listen. */
	sess_drop(session);
}

static void sess_wait_in(struct sess *session, struct zi_list *list)
{
	struct sess_control *control = session->control;

	zi_list_remove(&session->waiting_link);
	zi_list_push_back(list, &session->waiting_link);
	zi_loop_arm(control->loop, &session->timer,
	            zi_clock_deadline_ns(control->limits.handshake_ns), sess_silence_due);
}

/* See control.h. */
void sess_wait_on(struct sess *session)
{
	sess_wait_in(session, &session->control->waiting);
}

/* See control.h. */
void sess_wait_for_reader(struct sess *session)
{
	sess_wait_in(session, &session->control->unread);
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
