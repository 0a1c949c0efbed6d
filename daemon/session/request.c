/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on an attached session's socket: layout, materialize, parameter writes, leaving; those
 * of what is kept are in request_kept.c, of collectives in request_coll.c.
 * Floor 6, shard thread. One at a time: a second one while the first is pending ends the session,
 * but for DETACH, which may always be asked for. The LAYOUT stream has no replies; what is wrong in
 * it is kept and answers MATERIALIZE.
 */
#include "daemon/session/request.h"

#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "daemon/session/reaper.h"
#include "daemon/session/request_coll.h"
#include "daemon/session/request_kept.h"
#include "daemon/session/request_private.h"
#include "daemon/session/sess.h"

/* Answers that do not go out end the session: the client does not read. One that has closed its
 * socket is heard of by that: why it is gone is said there. */
void sess_sent(struct sess *session, int r)
{
	if (r && r != -EPIPE && r != -ECONNRESET && session->state == SESS_ATTACHED)
		sess_doom(session, false, "process %d does not read its socket (%s)", session->pid,
		          zi_err_name(r));
}

/* See request_private.h. */
void sess_refuse(struct sess *session, uint32_t sequence, int error, const char *text)
{
	sess_sent(session, sess_send_error(session, sequence, error, text));
}

/* A descriptor is sent only after its holder is written down. */
int sess_hold(struct sess *session, struct tier_segment *segment)
{
	return err_trace(
		tier_holders_add(session->shard->holders, session->pid, session->pidfd, segment));
}

/* What was done is undone already: its group ended between the completion and the answer, and says
 * so next. */
int sess_reply_over(struct sess *session)
{
	return err_trace(sess_send_error(session, session->request_sequence, -ESTALE,
	                                 "the group ended meanwhile: detach, then attach again"));
}

static int sess_reply_materialized(struct sess *session)
{
	struct zi_materialized message = { 0 };
	struct zero_materialized result;
	int param_fd;
	int r;

	session->unit_count = zero_unit_count(session->rank);
	if (!session->unit_count)
		return err_trace(sess_reply_over(session));
	zero_materialized(session->rank, &result);
	r = tier_segment_readonly_fd(result.param, &param_fd);
	if (!r)
		r = sess_hold(session, result.param);
	if (!r && result.grad)
		r = sess_hold(session, result.grad);
	if (r)
		return err_trace(r);
	message.committed_step = result.committed_step;
	message.slot_bytes = result.slot_bytes;
	if (session->features & ZI_FEATURE_TRAINING) {
		message.loss_scale = result.loss_scale;
		message.update_count = result.update_count;
		message.flags = result.has_pooled_grads ? ZI_MATERIALIZED_GRADS_POOLED : 0;
		message.flags |= result.has_pooled_params ? ZI_MATERIALIZED_PARAMS_POOLED : 0;
	}
	message.param_bytes = result.param->region.bytes;
	message.grad_bytes = result.grad ? result.grad->region.bytes : 0;
	zi_message_init(&message.header, ZI_MESSAGE_MATERIALIZED, sizeof(message),
	                session->request_sequence);
	return err_trace(
		zi_message_send(session->socket_fd, &message.header,
	                        (int[]){ param_fd, result.grad ? result.grad->region.fd : -1 },
	                        result.grad ? 2 : 1));
}

static int sess_reply_param_write(struct sess *session)
{
	struct tier_segment *staging = zero_param_staging(session->rank);
	struct zi_param_write message = { 0 };
	int r;

	if (!staging)
		return err_trace(sess_reply_over(session));
	message.bytes = staging->region.bytes;
	r = sess_hold(session, staging);
	if (r)
		return err_trace(r);
	zi_message_init(&message.header, ZI_MESSAGE_PARAM_WRITE, sizeof(message),
	                session->request_sequence);
	return err_trace(zi_message_send(session->socket_fd, &message.header,
	                                 (int[]){ staging->region.fd }, 1));
}

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
		else if (session->request_type == ZI_MESSAGE_MATERIALIZE)
			r = sess_reply_materialized(session);
		else if (session->request_type == ZI_MESSAGE_PARAM_WRITE_BEGIN)
			r = sess_reply_param_write(session);
		else if (session->request_type == ZI_MESSAGE_TENSOR_OPEN)
			r = sess_reply_tensors(session);
		else if (session->request_type == ZI_MESSAGE_COLL_OPEN)
			r = sess_reply_coll_opened(session);
		else if (session->request_type == ZI_MESSAGE_COLL_GROUP)
			r = sess_reply_coll_grouped(session);
		else
			r = sess_send_plain(session, ZI_MESSAGE_DONE, session->request_sequence);
		sess_sent(session, r);
		if (session->request_type == ZI_MESSAGE_DESTROY && op->result >= 0)
			sess_doom(session, true, "its job was destroyed");
	}
	sess_unref(session);
}

/* See request_private.h. */
void sess_submit_request(struct sess *session, const struct zi_message_header *header,
                         void (*submit)(struct zero_rank *rank, struct zero_op *op))
{
	session->request.done = sess_request_done;
	session->request_type = header->type;
	session->request_sequence = header->sequence;
	session->is_requesting = true;
	sess_ref(session);
	submit(session->rank, &session->request);
}

/* Parameters come behind their unit. */
static void note_frozen(struct sess *session, const struct zi_layout_entry *entry)
{
	if (entry->kind == ZI_LAYOUT_PARAM) {
		session->is_unit_frozen &= entry->group == ZI_LAYOUT_FROZEN;
		session->has_unit_params = true;
		return;
	}
	session->has_frozen_unit |= session->is_unit_frozen && session->has_unit_params;
	session->is_unit_frozen = true;
	session->has_unit_params = false;
}

static int sess_take_layout(struct sess *session, const struct zi_layout *layout,
                            struct zi_text *text)
{
	const struct zi_layout_entry *entries = (const void *)(layout + 1);

	for (uint32_t i = 0; i < layout->entry_count && !session->layout_error; i++) {
		int r = zi_check_layout_entry(&entries[i], text);

		if (r == -EPROTO)
			return err_trace(r);
		if (entries[i].group && !(session->features & ZI_FEATURE_TRAINING))
			return zi_text_error(text, err_origin(-EPROTO),
			                     "LAYOUT entry with a group without feature bit 13");
		if (entries[i].kind == ZI_LAYOUT_SET && !(session->features & ZI_FEATURE_SETS))
			return zi_text_error(text, err_origin(-EPROTO),
			                     "LAYOUT entry of a set without feature bit 14");
		if (!r)
			r = zero_layout_add(session->rank, &entries[i], text);
		if (r) {
			session->layout_error = r;
			session->layout_text = *text;
		}
		note_frozen(session, &entries[i]);
		if (entries[i].kind == ZI_LAYOUT_UNIT)
			session->unit_entry_count++;
		else if (entries[i].kind == ZI_LAYOUT_PARAM)
			session->param_entry_count++;
	}
	return 0;
}

/* Where its nodes meet: of a job that spans some, and has not met for collectives. */
static void sess_take_rendezvous(struct sess *session, const struct zi_rendezvous *rendezvous)
{
	memcpy(session->rendezvous_host, rendezvous->host, sizeof(rendezvous->host));
	memcpy(session->interface, rendezvous->interface, sizeof(rendezvous->interface));
	memcpy(session->token, rendezvous->token, sizeof(rendezvous->token));
	session->request.rendezvous_host = session->rendezvous_host;
	session->request.interface = session->interface;
	session->request.token = session->token;
	session->request.rendezvous_port = rendezvous->port;
}

static void sess_materialize(struct sess *session, const struct zi_materialize *message)
{
	const struct zi_materialize_nodes *whole = (const void *)message;
	struct zi_text text;

	if (session->layout_error) {
		sess_refuse(session, message->header.sequence, session->layout_error,
		            session->layout_text.chars);
		return;
	}
	if (message->unit_count != session->unit_entry_count ||
	    message->param_count != session->param_entry_count) {
		zi_text_set(&text,
		            "MATERIALIZE of %u units and %u parameters, but LAYOUT gave %u and %u",
		            message->unit_count, message->param_count, session->unit_entry_count,
		            session->param_entry_count);
		sess_refuse(session, message->header.sequence, -EINVAL, text.chars);
		return;
	}
	note_frozen(session, &(struct zi_layout_entry){ .kind = ZI_LAYOUT_UNIT }); /* The last. */
	if (session->has_frozen_unit && !(session->features & ZI_FEATURE_FROZEN)) {
		sess_refuse(session, message->header.sequence, -EOPNOTSUPP,
		            "a unit is frozen whole: such a unit has no gradient any more, which "
		            "this libzinf does not know; use a newer one");
		return;
	}
	/* It would take units that come and go, and where its nodes meet, for a breach. */
	if (zero_spans_nodes(session->rank) && !(session->features & ZI_FEATURE_STATE_NODES)) {
		sess_refuse(session, message->header.sequence, -EOPNOTSUPP,
		            "ranks of the job are on several nodes, and this libzinf does not know "
		            "training over nodes (feature bit 15); use a newer one");
		return;
	}
	session->request = (struct zero_op){ 0 };
	if (message->header.bytes == sizeof(*whole))
		sess_take_rendezvous(session, &whole->rendezvous);
	sess_submit_request(session, &message->header, zero_materialize);
}

static void sess_param_write(struct sess *session, const struct zi_message_header *header)
{
	/* The two messages begin alike: a unit, then (END) the root. */
	const struct zi_param_write_end *message = (const void *)header;
	bool is_end = header->type == ZI_MESSAGE_PARAM_WRITE_END;
	struct zi_text text;

	if (message->unit >= session->unit_count) {
		zi_text_set(&text, "%s: unit %u of %u", zi_message_name(header->type),
		            message->unit, session->unit_count);
		sess_refuse(session, header->sequence, -EINVAL, text.chars);
		return;
	}
	if (is_end && message->root >= session->attach.world_size) {
		zi_text_set(&text, "PARAM_WRITE_END: root %u of %u ranks", message->root,
		            session->attach.world_size);
		sess_refuse(session, header->sequence, -EINVAL, text.chars);
		return;
	}
	session->request = (struct zero_op){ .unit = message->unit };
	if (is_end)
		session->request.root = message->root;
	sess_submit_request(session, header,
	                    is_end ? zero_param_write_end : zero_param_write_begin);
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
		sess_submit_request(session, header, zero_tensor_open);
		return 0;
	case ZI_MESSAGE_COLL_OPEN:
	case ZI_MESSAGE_COLL_GROUP:
	case ZI_MESSAGE_COLL_GROUP_FREE:
	case ZI_MESSAGE_COLL_FAIL:
	case ZI_MESSAGE_COLL_ABORT:
		sess_request_coll(session, header);
		return 0;
	case ZI_MESSAGE_DESTROY:
		session->request = (struct zero_op){ 0 };
		sess_submit_request(session, header, zero_job_destroy);
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
