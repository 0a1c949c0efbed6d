/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on an attached session's socket: whose each is (the model's in request_model.c, of what
 * is kept in request_kept.c, of collectives in request_coll.c, of GPUs in request_gpu.c), and
 * leaving. Floor 6, shard thread. One at a time: a second one while the first is pending ends the
 * session, but for DETACH, which may always be asked for.
 */
#include "daemon/session/request.h"

#include <sys/epoll.h>

#include "common/base/err.h"
#include "daemon/session/reaper.h"
#include "daemon/session/request_answer.h"
#include "daemon/session/request_coll.h"
#include "daemon/session/request_gpu.h"
#include "daemon/session/request_kept.h"
#include "daemon/session/request_model.h"
#include "daemon/session/request_state.h"
#include "daemon/session/sess.h"

static int sess_reply_tensors(struct sess *session)
{
	struct tier_segment *segment = zero_tensor_segment(session->rank);
	struct zi_tensor_opened message = { 0 };
	int r;

	if (!segment)
		return err_trace(sess_reply_over(session));
	message.bytes = segment->region.bytes;
	r = sess_hold(session, segment);
	if (r)
		return err_trace(r);
	zi_message_init(&message.header, ZI_MESSAGE_TENSOR_OPENED, sizeof(message),
	                session->request_sequence);
	return err_trace(zi_message_send(session->socket_fd, &message.header,
	                                 (int[]){ segment->region.fd }, 1));
}

/* A group of ranks outlives the job's, where who is gone has no part in it. */
static bool sess_is_for_broken(uint16_t type)
{
	return type == ZI_MESSAGE_DESTROY || type == ZI_MESSAGE_COLL_FAIL ||
	       type == ZI_MESSAGE_COLL_ABORT || type == ZI_MESSAGE_COLL_GROUP_FREE;
}

/* First everyone else hears it, then the one who asked. */
static void sess_leave(struct sess *session, uint32_t sequence)
{
	sess_end(session, true, "it detached");
	/* It may have closed its end already. */
	(void)sess_send_plain(session, ZI_MESSAGE_DONE, sequence);
}

/* One message. 0, whatever the answer was; -EPROTO: the session must end, @text says why. */
static int sess_request(struct sess *session, const struct zi_message_header *header,
                        struct zi_text *text)
{
	if (header->type == ZI_MESSAGE_DETACH) {
		sess_leave(session, header->sequence);
		return 0;
	}
	if (session->is_requesting)
		return zi_text_error(text, err_origin(-EPROTO), "%s while %s is pending",
		                     zi_message_name(header->type),
		                     zi_message_name(session->request_type));
	if (session->broken && !sess_is_for_broken(header->type)) {
		if (header->type != ZI_MESSAGE_LAYOUT)
			sess_refuse(session, header->sequence, session->broken,
			            session->broken_text.chars);
		return 0;
	}
	switch (header->type) {
	case ZI_MESSAGE_LAYOUT:
		return err_trace(sess_take_layout(session, (const void *)header, text));
	case ZI_MESSAGE_MATERIALIZE:
		if (header->bytes > sizeof(struct zi_materialize) &&
		    !(session->features & ZI_FEATURE_STATE_NODES))
			return zi_text_error(text, err_origin(-EPROTO),
			                     "MATERIALIZE with a tail without feature bit 15");
		sess_materialize(session, (const void *)header);
		return 0;
	case ZI_MESSAGE_PARAM_WRITE_BEGIN:
	case ZI_MESSAGE_PARAM_WRITE_END:
		sess_param_write(session, header);
		return 0;
	case ZI_MESSAGE_STATE_OPEN:
	case ZI_MESSAGE_STATE_READ:
	case ZI_MESSAGE_STATE_WRITE:
	case ZI_MESSAGE_STATE_COUNT:
		sess_request_state(session, header);
		return 0;
	case ZI_MESSAGE_BLOB_GET:
		sess_blob_get(session, header->sequence);
		return 0;
	case ZI_MESSAGE_LOAD:
		sess_load(session, (const void *)header);
		return 0;
	case ZI_MESSAGE_SNAPSHOT:
		sess_snapshot(session, (const void *)header);
		return 0;
	case ZI_MESSAGE_TENSOR_OPEN:
		session->request = (struct zero_op){
			.bytes = ((const struct zi_tensor_open *)(const void *)header)->budget_bytes
		};
		sess_submit_request(session, header, zero_tensor_open, sess_reply_tensors);
		return 0;
	case ZI_MESSAGE_COLL_OPEN:
	case ZI_MESSAGE_COLL_GROUP:
	case ZI_MESSAGE_COLL_GROUP_FREE:
	case ZI_MESSAGE_COLL_FAIL:
	case ZI_MESSAGE_COLL_ABORT:
		sess_request_coll(session, header);
		return 0;
	case ZI_MESSAGE_GPU_OPEN:
	case ZI_MESSAGE_GPU_CHUNKS:
		return err_trace(sess_request_gpu(session, header, text));
	case ZI_MESSAGE_DESTROY:
		session->request = (struct zero_op){ 0 };
		sess_submit_request(session, header, zero_job_destroy, NULL);
		return 0;
	default:
		return zi_text_error(text, err_origin(-EPROTO), "unexpected %s in a session",
		                     zi_message_name(header->type));
	}
}

/* It may have a token in it, and stay for long. */
static void sess_wipe(void *message)
{
	uint16_t type = ((const struct zi_message_header *)message)->type;

	if (type == ZI_MESSAGE_COLL_OPEN)
		explicit_bzero(message, sizeof(struct zi_coll_open));
	else if (type == ZI_MESSAGE_MATERIALIZE)
		explicit_bzero(message, sizeof(struct zi_materialize_nodes));
}

/* The socket of an attached session has messages, or is at its end. */
void sess_socket_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct sess *session = container_of(source, struct sess, socket_source);
	struct sess_shard *shard = session->shard;

	(void)epoll_events; /* What is there is read first; the end shows as a reset. */
	for (uint32_t i = 0; i < SESS_MESSAGES_PER_TURN; i++) {
		int r;

		if (session->state != SESS_ATTACHED || session->is_doomed)
			return;
		zi_text_set(&shard->text, "no message of zinf");
		r = zi_message_receive(session->socket_fd, shard->message, NULL, NULL);
		if (r == -EAGAIN)
			return;
		if (r && r != -EPROTO) {
			sess_hung_up(session);
			return;
		}
		if (!r && sess_refuse_coll_version(session, shard->message))
			continue;
		if (!r)
			r = zi_message_check(shard->message, &shard->text);
		if (!r)
			r = sess_request(session, shard->message, &shard->text);
		sess_wipe(shard->message);
		if (r)
			sess_doom(session, false, "process %d broke the protocol: %s", session->pid,
			          shard->text.chars);
	}
}
