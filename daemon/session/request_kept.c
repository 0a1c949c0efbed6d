/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on the socket for what a job keeps; see request_kept.h. Floor 6, shard thread. */
#include "daemon/session/request_kept.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "daemon/session/reaper.h"
#include "daemon/session/request_answer.h"
#include "daemon/session/sess.h"

/* Documented in the header, as are the others. */
void sess_blob_get(struct sess *session, uint32_t sequence)
{
	struct zi_blob *piece = session->shard->message; /* The request in it is done with. */
	uint64_t total_bytes;
	uint64_t sent_bytes = 0;
	const char *bytes = zero_blob(session->rank, &total_bytes);

	do {
		uint64_t piece_bytes =
			ZI_MIN(total_bytes - sent_bytes, ZI_MESSAGE_BYTES_MAX - sizeof(*piece));
		int r;

		zi_message_init(&piece->header, ZI_MESSAGE_BLOB,
		                (uint32_t)(sizeof(*piece) + piece_bytes), sequence);
		if (sent_bytes + piece_bytes < total_bytes)
			piece->header.flags = ZI_MESSAGE_MORE;
		piece->total_bytes = total_bytes;
		if (piece_bytes)
			memcpy(piece + 1, bytes + sent_bytes, piece_bytes);
		sent_bytes += piece_bytes;
		r = zi_message_send(session->socket_fd, &piece->header, NULL, 0);
		if (r) {
			sess_sent(session, r);
			return;
		}
	} while (sent_bytes < total_bytes);
}

void sess_load(struct sess *session, const struct zi_load *message)
{
	struct zi_text text = { "LOAD: no name of a job and a snapshot" };
	int r = -EINVAL;

	if (!zi_check_name(message->job, sizeof(message->job)) &&
	    !zi_check_name(message->name, sizeof(message->name)))
		r = zero_load(session->rank, message->job, message->name, &text);
	if (r)
		sess_refuse(session, message->header.sequence, r, text.chars);
	else
		sess_sent(session,
		          sess_send_plain(session, ZI_MESSAGE_DONE, message->header.sequence));
}

static int sess_reply_snapshotted(struct sess *session)
{
	const struct zero_snapshot_op *op = &session->snapshot_op;
	struct zi_snapshotted message = { .step = op->step, .held_bytes = op->held_bytes };

	(void)zi_copy_name(message.name, sizeof(message.name), op->name); /* As long. */
	zi_message_init(&message.header, ZI_MESSAGE_SNAPSHOTTED, sizeof(message),
	                session->request_sequence);
	return err_trace(zi_message_send(session->socket_fd, &message.header, NULL, 0));
}

/* Context: inside zero. */
static void sess_snapshot_done(struct zero_snapshot_op *op)
{
	struct sess *session = container_of(op, struct sess, snapshot_op);

	assert(session->is_requesting);
	session->is_requesting = false;
	if (session->state == SESS_ATTACHED && !session->is_doomed)
		sess_sent(session, op->result ? sess_send_error(session, session->request_sequence,
		                                                op->result, op->text.chars)
		                              : sess_reply_snapshotted(session));
	sess_unref(session);
}

void sess_snapshot(struct sess *session, const struct zi_snapshot *message)
{
	struct zero_snapshot_op *op = &session->snapshot_op;

	if (message->name[0] && zi_check_name(message->name, sizeof(message->name))) {
		sess_refuse(session, message->header.sequence, -EINVAL,
		            "SNAPSHOT: a name is letters, digits, '.', '_', '-' and ':'");
		return;
	}
	*op = (struct zero_snapshot_op){
		.done = sess_snapshot_done,
		.uid = session->uid,
		.is_automatic = message->flags & ZI_SNAPSHOT_AUTOMATIC,
		.keep_count = message->keep_count,
	};
	(void)zi_copy_name(op->job, sizeof(op->job), session->attach.job); /* Both as long. */
	(void)zi_copy_name(op->name, sizeof(op->name), message->name);
	session->request_type = message->header.type;
	session->request_sequence = message->header.sequence;
	session->is_requesting = true;
	sess_ref(session);
	zero_snapshot_create(session->shard->zero, op);
}
