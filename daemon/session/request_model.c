/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about the model: the LAYOUT stream, MATERIALIZE, parameter writes. The stream has no
 * replies; what is wrong in it is kept and answers MATERIALIZE. Floor 6, shard thread.
 */
#include "daemon/session/request_model.h"

#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/check.h"
#include "common/wire/state.h"
#include "daemon/session/request_answer.h"
#include "daemon/session/sess.h"

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

/* See request_model.h, as are the next two. */
int sess_take_layout(struct sess *session, const struct zi_layout *layout, struct zi_text *text)
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
			return zi_text_error(
				text, err_origin(-EPROTO),
				"LAYOUT entry of a data-parallel group without feature bit 14");
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

static int sess_reply_materialized(struct sess *session)
{
	struct zi_materialized message = { 0 };
	struct zero_materialized result;
	_cleanup_(zi_closep) int param_fd = -1;
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

void sess_materialize(struct sess *session, const struct zi_materialize *message)
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
		            "all parameters of a unit are frozen, so it has no gradient: this "
		            "libzinf does not support that; use a newer one");
		return;
	}
	/* It would take units that come and go, and where its nodes meet, for a breach. */
	if (zero_spans_nodes(session->rank) && !(session->features & ZI_FEATURE_STATE_NODES)) {
		sess_refuse(session, message->header.sequence, -EOPNOTSUPP,
		            "ranks of the job are on several nodes, but this libzinf does not "
		            "support training over nodes (feature bit 15); use a newer one");
		return;
	}
	session->request = (struct zero_op){ 0 };
	if (message->header.bytes == sizeof(*whole))
		sess_take_rendezvous(session, &whole->rendezvous);
	sess_submit_request(session, &message->header, zero_materialize, sess_reply_materialized);
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

void sess_param_write(struct sess *session, const struct zi_message_header *header)
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
	if (is_end) {
		session->request.root = message->root;
		session->request.keeps_state = header->flags & ZI_PARAM_WRITE_KEEP;
	}
	if (is_end)
		sess_submit_request(session, header, zero_param_write_end, NULL);
	else
		sess_submit_request(session, header, zero_param_write_begin,
		                    sess_reply_param_write);
}
