/* SPDX-License-Identifier: Apache-2.0 */
/* A shard's half of the sessions: its making, what it takes in, its end. Floor 6, shard thread. */
#include "daemon/session/shard.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/session/attach.h"
#include "daemon/session/control.h"
#include "daemon/session/poll.h"
#include "daemon/session/reaper.h"
#include "daemon/session/request_gpu.h"
#include "daemon/session/sess.h"

/**
 * sess_shard_new() - a shard without sessions
 * @options: copied; what it points to outlives the shard
 * @ret_shard: the caller's
 *
 * Everything that requests will need is allocated here. Return: 0, -ENOMEM. Context: before the
 * shard's thread runs its loop.
 */
int sess_shard_new(const struct sess_shard_options *options, struct sess_shard **ret_shard)
{
	_cleanup_(sess_shard_freep) struct sess_shard *shard = NULL;
	const struct sess_limits *limits = options->limits;
	int r;

	assert(limits->sessions_max > 0);
	assert(limits->inflight_ops_max >= limits->sessions_max);
	shard = calloc(1, sizeof(*shard));
	if (!shard)
		return err_origin(-ENOMEM);
	shard->loop = options->loop;
	shard->zero = options->zero;
	shard->ring_tier = options->ring_tier;
	shard->holders = options->holders;
	shard->arenas = options->arenas;
	zi_list_init(&shard->gpu_waiting);
	if (shard->arenas)
		tier_arenas_watch(shard->arenas, sess_gpu_ready, shard);
	shard->worker = options->worker;
	shard->limits = *limits;
	r = sess_uids_new(
		(const uint64_t[]){
			[SESS_UID_SESSIONS] = limits->sessions_per_uid_max,
			[SESS_UID_CONNECTIONS] = limits->connections_per_uid_max,
			[SESS_UID_ANSWERS] = limits->answers_per_uid_max,
			[SESS_UID_ANSWER_BYTES] = limits->answer_bytes_per_uid_max,
		},
		&shard->uids);
	if (r)
		return err_trace(r);
	shard->cpu_count = options->cpu_count;
	shard->pool_threads = options->pool_threads;
	shard->inflight_per_session_max =
		ZI_MIN(limits->ring_entries, limits->inflight_ops_max / limits->sessions_max);
	shard->polled = calloc(limits->sessions_max, sizeof(struct sess *));
	shard->message = aligned_alloc(64, ZI_MESSAGE_BYTES_MAX);
	if (!shard->polled || !shard->message)
		return err_origin(-ENOMEM);
	r = zi_pool_init(&shard->ops, sizeof(struct sess_op),
	                 shard->inflight_per_session_max * limits->sessions_max);
	if (r)
		return err_trace(r);
	zi_loop_set_poller(shard->loop, &(struct zi_poller){
						.arg = shard,
						.poll = sess_poller.poll,
						.arm = sess_poller.arm,
						.disarm = sess_poller.disarm,
						.spin_ns = sess_poller.spin_ns,
					});
	*ret_shard = zi_steal(shard);
	return 0;
}

/* NULL-safe, half-built ones too. */
struct sess_shard *sess_shard_free(struct sess_shard *shard)
{
	if (!shard)
		return NULL;
	assert(!shard->polled_count);
	assert(!shard->ending_count);
	assert(zi_list_is_empty(&shard->gpu_waiting));
	if (shard->arenas)
		tier_arenas_watch(shard->arenas, NULL, NULL);
	shard->uids = sess_uids_free(shard->uids);
	zi_loop_disarm(&shard->stall_timer);
	zi_loop_set_poller(shard->loop, NULL);
	zi_pool_deinit(&shard->ops);
	free(shard->message);
	free(shard->polled);
	free(shard);
	return NULL;
}

/* Context: a turn of the shard's loop. */
static void sess_take(struct zi_post *post)
{
	struct sess *session = container_of(post, struct sess, post);
	struct sess_shard *shard = session->shard;
	int r;

	shard->text.chars[0] = '\0';
	if (shard->is_stopping)
		r = zi_text_error(&shard->text, err_origin(-ESTALE), "%s", shard->stop_reason);
	else
		r = sess_attach(shard, session, &shard->text);
	if (!r)
		return;
	if (sess_uid_may_log(shard->uids, session->uid))
		log_warning("Attaching pid=%d uid=%u job=%s refused: %s", session->pid,
		            session->uid, session->attach.job, shard->text.chars);
	/* It is closed next, whether or not it heard why. */
	(void)sess_send_error(session, session->attach.header.sequence, r, shard->text.chars);
	sess_set_state(session, SESS_LEAVING);
	sess_control_take_back(session);
}

/**
 * sess_shard_take() - hand a session over to its shard
 * @session: MOVING, in no list and no loop of the control thread; the shard's from here on
 *
 * Context: control thread.
 */
void sess_shard_take(struct sess_shard *shard, struct sess *session)
{
	assert(session->state == SESS_MOVING);
	session->shard = shard;
	zi_loop_post(shard->loop, &session->post, sess_take);
}

/**
 * sess_shard_stop() - the daemon stops
 * @reason: told to every client
 *
 * Their ranks leave cleanly, as nothing they did is at fault. Operations in flight come back by
 * themselves; then the sessions go back to the control thread. Context: shard thread.
 */
void sess_shard_stop(struct sess_shard *shard, const char *reason)
{
	struct zi_text text;

	shard->is_stopping = true;
	zi_text_set(&text, "%s", reason);
	(void)strncpy(shard->stop_reason, reason, sizeof(shard->stop_reason) - 1); /* Cut. */
	/* First all are told, so that none hears of another's leaving instead. */
	for (uint32_t i = 0; i < shard->polled_count; i++)
		if (!shard->polled[i]->broken)
			sess_broken(shard->polled[i], -ESTALE, UINT32_MAX, &text);
	while (shard->polled_count)
		sess_end(shard->polled[shard->polled_count - 1], true, reason);
}
