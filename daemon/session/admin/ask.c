/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADMIN: a question goes to the shard, which knows jobs and tiers, and comes back as JSON, which is
 * sent in pieces at the pace at which the client reads. Floor 6, control thread, but for what says
 * otherwise.
 */
#include "daemon/session/admin/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/session/admin/answer.h"
#include "daemon/session/admin/answer_bench.h"
#include "daemon/session/admin/answer_snapshots.h"
#include "daemon/session/admin/ask_words.h"
#include "daemon/session/admin/export.h"
#include "daemon/session/admin/import.h"
#include "daemon/session/control.h"
#include "daemon/session/sess.h"

/* See ask.h. */
void sess_ask_end(struct sess *session)
{
	struct sess_uids *uids = session->control->shard->uids;

	free(session->reply);
	session->reply = NULL;
	if (!session->answer_bytes)
		return;
	sess_uid_give(uids, session->uid, SESS_UID_ANSWERS, 1);
	sess_uid_give(uids, session->uid, SESS_UID_ANSWER_BYTES, session->answer_bytes);
	session->answer_bytes = 0;
}

/* The uid has room for one more answer: what it asks is not done in vain. */
static int ask_check_room(const struct sess *session, struct zi_text *text)
{
	struct sess_uids *uids = session->control->shard->uids;
	int r = sess_uid_take(uids, session->uid, SESS_UID_ANSWERS, 1, text);

	if (!r)
		sess_uid_give(uids, session->uid, SESS_UID_ANSWERS, 1);
	return err_trace(r);
}

/* One message, which the socket of a client that reads takes at once. Every question that changes
 * something has such an answer, but for EXPORT_OPEN: it is not refused after the change. */
static bool ask_is_short(const struct sess *session)
{
	return strlen(session->reply) <= ZI_MESSAGE_BYTES_MAX - sizeof(struct zi_message_header);
}

/* The reply is about to wait for its reader. */
static int ask_count(struct sess *session, struct zi_text *text)
{
	struct sess_uids *uids = session->control->shard->uids;
	uint64_t bytes = strlen(session->reply) + 1;
	int r;

	r = sess_uid_take(uids, session->uid, SESS_UID_ANSWERS, 1, text);
	if (r)
		return err_trace(r);
	r = sess_uid_take(uids, session->uid, SESS_UID_ANSWER_BYTES, bytes, text);
	if (r) {
		sess_uid_give(uids, session->uid, SESS_UID_ANSWERS, 1);
		return err_trace(r);
	}
	session->answer_bytes = bytes;
	return 0;
}

/* The whole answer is out, or there is none: another question may come. */
static void ask_finish(struct sess *session)
{
	sess_ask_end(session);
	sess_set_state(session, SESS_GREETED);
	if (session->control->is_stopping) {
		sess_drop(session);
		return;
	}
	sess_wait_on(session);
	/* Who exports or loads is at its files meanwhile, on a disk that may be slow. */
	if (session->export || session->import)
		zi_loop_disarm(&session->timer);
	if (zi_loop_modify(&session->socket_source, EPOLLIN | EPOLLRDHUP))
		sess_drop(session);
}

/* Sends pieces while the socket takes them. */
void sess_ask_flush(struct sess *session)
{
	struct zi_message_header *header = session->control->message;
	struct zi_text text;
	int r = 0;

	assert(session->state == SESS_ASKING);
	assert(session->reply);
	while (!r && session->reply_sent_bytes < session->reply_bytes) {
		size_t rest_bytes = session->reply_bytes - session->reply_sent_bytes;
		size_t piece_bytes = ZI_MIN(rest_bytes, ZI_MESSAGE_BYTES_MAX - sizeof(*header));

		zi_message_init(header, ZI_MESSAGE_ADMIN_REPLY,
		                (uint32_t)(sizeof(*header) + piece_bytes),
		                session->inquiry.sequence);
		if (piece_bytes < rest_bytes)
			header->flags = ZI_MESSAGE_MORE;
		memcpy(header + 1, session->reply + session->reply_sent_bytes, piece_bytes);
		r = zi_message_send(session->socket_fd, header, &session->reply_fd,
		                    session->reply_fd >= 0 ? 1 : 0);
		if (r)
			break;
		session->reply_fd = -1;
		session->reply_sent_bytes += piece_bytes;
	}
	if (!r) {
		ask_finish(session);
		return;
	}
	/* Who reads nothing at all has no room even for a short answer, which is not counted. */
	if (r == -EAGAIN && (session->answer_bytes || !ask_count(session, &text)))
		r = zi_loop_modify(&session->socket_source, EPOLLOUT);
	if (r) {
		sess_drop(session);
		return;
	}
	sess_wait_for_reader(session);
}

static void ask_at_shard(struct zi_post *post);

/* The question goes to the shard. */
static void ask_post(struct sess *session)
{
	struct sess_control *control = session->control;

	zi_list_remove(&session->waiting_link);
	zi_list_push_back(&control->asked, &session->waiting_link);
	session->is_asked = true;
	zi_loop_post(control->shard_loop, &session->post, ask_at_shard);
}

/* The first connection in @list with a question of the same uid and lane; NULL: none. */
static struct sess *ask_find(const struct zi_list *list, uid_t uid, enum sess_lane lane)
{
	zi_list_for_each(link, list) {
		struct sess *session = container_of(link, struct sess, waiting_link);

		if (session->uid == uid && session->inquiry.lane == lane)
			return session;
	}
	return NULL;
}

/* The question goes to the shard, or has its turn when the one before it is answered. */
static void ask_enter(struct sess *session, enum sess_lane lane)
{
	struct sess_control *control = session->control;
	bool is_free = !lane || !ask_find(&control->asked, session->uid, lane);

	session->inquiry.lane = lane;
	if (is_free) {
		ask_post(session);
		return;
	}
	zi_list_remove(&session->waiting_link);
	zi_list_push_back(&control->queued, &session->waiting_link);
}

/* A question is answered: the next one of its lane goes. */
static void ask_next(struct sess_control *control, uid_t uid, enum sess_lane lane)
{
	struct sess *next = lane ? ask_find(&control->queued, uid, lane) : NULL;

	if (next)
		ask_post(next);
}

/* The answer is refused: nothing stays of the question. */
static void ask_take_back(struct sess *session)
{
	free(session->reply);
	session->reply = NULL;
	if (session->inquiry.question == SESS_ASK_EXPORT_OPEN)
		sess_export_drop(session);
}

/* The client has gone, and the question is back. */
static void ask_drop(struct sess *session)
{
	if (!session->is_withdrawing) /* Else ask_withdrawn() follows. */
		sess_drop(session);
}

static void ask_withdrawn(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, gone_post);

	session->is_withdrawing = false;
	if (!session->is_asked)
		sess_drop(session);
}

/* Context: shard thread. */
static void ask_withdraw_at_shard(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, gone_post);

	zero_snapshot_withdraw(session->control->shard->zero, &session->inquiry.snapshot_op);
	zi_loop_post(session->control->loop, &session->gone_post, ask_withdrawn);
}

/* See ask.h. */
void sess_ask_withdraw(struct sess *session)
{
	const struct sess_inquiry *inquiry = &session->inquiry;

	assert(session->is_asked);
	assert(!session->is_withdrawing);
	/* With a lane it holds what it asked for. */
	if (inquiry->question != SESS_ASK_EXPORT_OPEN || inquiry->lane)
		return;
	session->is_withdrawing = true;
	zi_loop_post(session->control->shard_loop, &session->gone_post, ask_withdraw_at_shard);
}

/* Back from the shard. */
static void ask_answered(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, post);
	struct sess_inquiry *inquiry = &session->inquiry;
	int r;

	session->is_asked = false;
	zi_list_remove(&session->waiting_link);
	ask_next(session->control, session->uid, inquiry->lane);
	if (session->is_socket_gone) {
		ask_drop(session);
		return;
	}
	if (inquiry->answer) {
		sess_write_out(session);
		sess_free_answer(session);
	}
	if (session->reply && !ask_is_short(session)) {
		inquiry->result = ask_count(session, &inquiry->text);
		if (inquiry->result)
			ask_take_back(session);
	}
	if (session->reply) {
		session->reply_bytes = strlen(session->reply);
		session->reply_sent_bytes = 0;
		sess_ask_flush(session);
		return;
	}
	session->reply_fd = -1;
	r = inquiry->result ? inquiry->result : -ENOMEM; /* Its text was not written out. */
	if (sess_send_error(session, inquiry->sequence, r,
	                    inquiry->result ? inquiry->text.chars : "out of memory")) {
		sess_drop(session);
		return;
	}
	ask_finish(session);
}

/* The step that EXPORT_OPEN waited for is held: what is left of it has its turn in the lane. */
static void ask_held(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, post);

	session->is_asked = false;
	zi_list_remove(&session->waiting_link);
	if (session->is_socket_gone || session->control->is_stopping)
		ask_drop(session);
	else
		ask_enter(session, SESS_LANE_OPEN);
}

/* Context: shard thread. */
static void ask_measured(void *arg, const struct sess_bench_result *result)
{
	struct sess *session = arg;

	sess_answer_bench(&session->inquiry, result);
	sess_answered(session);
}

/* The answer comes later, or is a refusal. Context: shard thread. */
static void ask_for_bench(struct sess *session)
{
	struct sess_control *control = session->control;
	const struct sess_facts *facts = control->facts;
	struct sess_inquiry *inquiry = &session->inquiry;
	const struct sess_bench bench = { .store = inquiry->job,
		                          .duration_ns = inquiry->duration_ns,
		                          .uid = session->uid,
		                          .done = ask_measured,
		                          .arg = session };

	if (control->shard->is_stopping)
		inquiry->result = zi_text_error(&inquiry->text, err_origin(-ESTALE), "%s",
		                                control->shard->stop_reason);
	else if (!facts->bench)
		inquiry->result = zi_text_error(&inquiry->text, err_origin(-EOPNOTSUPP),
		                                "nothing can be measured here");
	else
		inquiry->result = facts->bench(facts->bench_arg, &bench, &inquiry->text);
	if (inquiry->result)
		sess_answered(session);
}

/* Context: shard thread. */
static void ask_at_shard(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, post);
	struct sess_control *control = session->control;
	struct sess_inquiry *inquiry = &session->inquiry;

	switch (inquiry->question) {
	case SESS_ASK_SNAPSHOT_CREATE:
	case SESS_ASK_SNAPSHOT_REMOVE:
	case SESS_ASK_SNAPSHOT_RESTORE:
	case SESS_ASK_DELETE:
		sess_answer_snapshot(control->shard, session->uid, inquiry);
		return;
	case SESS_ASK_EXPORT_OPEN:
	case SESS_ASK_EXPORT_READ:
	case SESS_ASK_EXPORT_WAIT:
		sess_answer_export(control->shard, session);
		return;
	case SESS_ASK_LOAD_OPEN:
	case SESS_ASK_LOAD_DESCRIBE:
	case SESS_ASK_LOAD_PUT:
	case SESS_ASK_LOAD_WAIT:
	case SESS_ASK_LOAD_END:
		sess_answer_import(control->shard, session);
		return;
	case SESS_ASK_BENCH:
		ask_for_bench(session);
		return;
	case SESS_ASK_STATUS:
	case SESS_ASK_TIERS:
	case SESS_ASK_JOBS:
	case SESS_ASK_LIMITS:
	case SESS_ASK_TOPO:
	case SESS_ASK_SNAPSHOT_LIST:
	case SESS_ASK_DRAIN:
	case SESS_ASK_UNDRAIN:
	default:
		sess_answer(control->shard, control->facts, session->uid, inquiry);
		sess_answered_at_length(session);
	}
}

static enum sess_lane ask_lane(const struct sess_inquiry *inquiry)
{
	switch (inquiry->question) {
	case SESS_ASK_STATUS:
	case SESS_ASK_TIERS:
	case SESS_ASK_JOBS:
	case SESS_ASK_LIMITS:
	case SESS_ASK_TOPO:
	case SESS_ASK_SNAPSHOT_LIST:
		return SESS_LANE_SHOW;
	case SESS_ASK_EXPORT_OPEN:
		/* The job's step may wait for a trainer that was stopped: see ask_held(). */
		return inquiry->name[0] ? SESS_LANE_OPEN : SESS_LANE_NONE;
	case SESS_ASK_LOAD_OPEN:
	case SESS_ASK_LOAD_DESCRIBE:
		return SESS_LANE_OPEN;
	case SESS_ASK_SNAPSHOT_REMOVE:
	case SESS_ASK_SNAPSHOT_RESTORE:
	case SESS_ASK_DELETE:
	case SESS_ASK_LOAD_END:
		return SESS_LANE_CHANGE;
	case SESS_ASK_EXPORT_READ:
	case SESS_ASK_EXPORT_WAIT:
	case SESS_ASK_LOAD_PUT:
	case SESS_ASK_LOAD_WAIT:
	case SESS_ASK_BENCH:
	case SESS_ASK_DRAIN:
	case SESS_ASK_UNDRAIN:
	case SESS_ASK_SNAPSHOT_CREATE: /* may wait for a trainer that was stopped */
	default:
		return SESS_LANE_NONE;
	}
}

/* What loads the disks that all jobs share, or changes how the daemon uses them, is not for
 * everybody. */
static int ask_check_uid(const struct sess *session, struct zi_text *text)
{
	enum sess_question question = session->inquiry.question;

	if (question != SESS_ASK_BENCH && question != SESS_ASK_DRAIN &&
	    question != SESS_ASK_UNDRAIN)
		return 0;
	if (session->uid == 0 || session->uid == geteuid())
		return 0;
	return zi_text_error(text, err_origin(-EPERM),
	                     "%s is only for root and the uid of zinfd, %u; you are uid %u",
	                     question == SESS_ASK_BENCH ? "measuring" : "draining", geteuid(),
	                     session->uid);
}

/**
 * sess_ask() - an ADMIN message
 * @session: GREETED
 * @admin: checked by zi_message_check()
 *
 * A wrong question is answered and costs nothing. Return: 0; an errno of answering.
 */
int sess_ask(struct sess *session, const struct zi_admin *admin)
{
	struct zi_text text;
	int r;

	session->inquiry = (struct sess_inquiry){
		.sequence = admin->header.sequence,
		.started_ns = session->control->started_ns,
		.answered = ask_answered,
		.held = ask_held,
	};
	r = sess_ask_words(admin->command, &session->inquiry, &text);
	if (!r)
		r = ask_check_uid(session, &text);
	if (!r)
		r = ask_check_room(session, &text);
	if (r)
		return err_trace(sess_send_error(session, admin->header.sequence, r, text.chars));
	/* Its socket is not read until the answer is out: one question at a time. */
	r = zi_loop_modify(&session->socket_source, 0);
	if (r)
		return err_trace(r);
	sess_set_state(session, SESS_ASKING);
	zi_loop_disarm(&session->timer);
	ask_enter(session, ask_lane(&session->inquiry));
	return 0;
}
