/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of collectives; see request_coll.h. Floor 6, shard thread. */
#include "daemon/session/request_coll.h"

#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/utf8.h"
#include "daemon/session/request_answer.h"
#include "daemon/session/rings.h"
#include "daemon/session/sess.h"

/* Of Linux (include/linux/err.h, MAX_ERRNO). */
#define SESS_ERRNO_MAX 4095

/* What came between the completion and this may have ended them. */
static int sess_reply_coll_opened(struct sess *session)
{
	struct zi_coll_opened message = { 0 };
	struct zero_coll_opened opened;
	_cleanup_(zi_closep) int verdict_fd = -1;
	int r;

	if (!zero_coll_opened(session->rank, &opened))
		return err_trace(sess_reply_over(session));
	r = tier_segment_readonly_fd(opened.verdicts, &verdict_fd);
	if (!r)
		r = sess_hold(session, opened.verdicts);
	if (!r)
		r = sess_hold(session, opened.arenas);
	if (!r)
		r = sess_hold(session, opened.board);
	if (!r && opened.slab)
		r = sess_hold(session, opened.slab);
	if (r)
		return err_trace(r);
	message.node_count = opened.node_count;
	message.node = opened.node;
	if (opened.slab) {
		message.slab_bytes = opened.slab->region.bytes;
		memcpy(message.nodes, opened.nodes, opened.member_count);
	}
	message.arena_bytes = opened.arena_bytes;
	message.verdict_bytes = opened.verdicts->region.bytes;
	message.arenas_bytes = opened.arenas->region.bytes;
	message.board_bytes = opened.board_bytes;
	message.member_count = opened.member_count;
	zi_message_init(&message.header, ZI_MESSAGE_COLL_OPENED, sizeof(message),
	                session->request_sequence);
	sess_rings_publish_spin(session->shard);
	return err_trace(zi_message_send(session->socket_fd, &message.header,
	                                 (int[]){ verdict_fd, opened.arenas->region.fd,
	                                          opened.board->region.fd,
	                                          opened.slab ? opened.slab->region.fd : -1 },
	                                 opened.slab ? 4 : 3));
}

static int sess_reply_coll_grouped(struct sess *session)
{
	uint32_t group = (uint32_t)session->request.id;
	struct zi_coll_grouped message = { .group = group };
	struct zero_coll_grouped grouped;
	int r = 0;

	if (!zero_coll_grouped(session->rank, group, &grouped))
		return err_trace(sess_reply_over(session));
	if (grouped.board)
		r = sess_hold(session, grouped.board);
	if (!r && grouped.slab)
		r = sess_hold(session, grouped.slab);
	if (r)
		return err_trace(r);
	message.self = grouped.self;
	message.member_count = grouped.member_count;
	message.board_bytes = grouped.board_bytes;
	message.slab_bytes = grouped.slab ? grouped.slab->region.bytes : 0;
	zi_message_init(&message.header, ZI_MESSAGE_COLL_GROUPED, sizeof(message),
	                session->request_sequence);
	return err_trace(zi_message_send(session->socket_fd, &message.header,
	                                 (int[]){ grouped.board ? grouped.board->region.fd : -1,
	                                          grouped.slab ? grouped.slab->region.fd : -1 },
	                                 (grouped.board ? 1u : 0) + (grouped.slab ? 1u : 0)));
}

/* See request_coll.h. The session lives: training needs none of it. The job's other ranks, which
 * would wait for this one, are told. */
bool sess_refuse_coll_version(struct sess *session, const struct zi_message_header *header)
{
	struct zi_text text;

	if (header->type != ZI_MESSAGE_COLL_OPEN || session->coll_version == ZI_COLL_VERSION)
		return false;
	zi_text_set(&text,
	            "its libzinf makes collectives by version %u, zinfd " ZINF_VERSION
	            " by version %u: use both of one release",
	            session->coll_version, ZI_COLL_VERSION);
	if (session->is_requesting || session->broken) {
		sess_refuse(session, header->sequence, -EPROTONOSUPPORT, text.chars);
		return true;
	}
	session->request = (struct zero_op){ .refusal = -EPROTONOSUPPORT, .reason = text.chars };
	sess_submit_request(session, header, zero_coll_open, sess_reply_coll_opened);
	return true;
}

/* Whether @error is what a wish that cannot be may carry. Else it is answered. */
static bool sess_check_refusal(struct sess *session, const struct zi_message_header *header,
                               int error)
{
	struct zi_text text;

	if (error <= 0 && error >= -SESS_ERRNO_MAX)
		return true;
	zi_text_set(&text, "%s: error %d, where 0 or a negative errno is expected",
	            zi_message_name(header->type), error);
	sess_refuse(session, header->sequence, -EINVAL, text.chars);
	return false;
}

static void sess_coll_open(struct sess *session, const struct zi_coll_open *message)
{
	if (!sess_check_refusal(session, &message->header, message->error))
		return;
	memcpy(session->rendezvous_host, message->rendezvous_host,
	       sizeof(message->rendezvous_host));
	memcpy(session->interface, message->interface, sizeof(message->interface));
	memcpy(session->token, message->token, sizeof(message->token));
	session->request =
		(struct zero_op){ .rendezvous_host = session->rendezvous_host,
		                  .interface = session->interface,
		                  .token = session->token,
		                  .rendezvous_port = message->rendezvous_port,
		                  .knows_numa = session->features & ZI_FEATURE_NUMA,
		                  .refusal = message->error,
		                  .reason = message->reason,
		                  .bytes = message->arena_bytes,
		                  .asked_bytes = message->asked_bytes,
		                  .timeout_ns = message->timeout_ms * ZI_NS_PER_MS,
		                  .call_timeout_ns = message->call_timeout_ms * ZI_NS_PER_MS };
	sess_submit_request(session, &message->header, zero_coll_open, sess_reply_coll_opened);
}

static void sess_coll_group(struct sess *session, const struct zi_coll_group *message)
{
	if (!sess_check_refusal(session, &message->header, message->error))
		return;
	session->request = (struct zero_op){ .timeout_ns = message->timeout_ms * ZI_NS_PER_MS,
		                             .refusal = message->error,
		                             .reason = message->reason };
	memcpy(session->request.members, message->members, sizeof(message->members));
	if (message->name[0]) {
		memcpy(session->group_name, message->name, sizeof(message->name));
		zi_utf8_clean(session->group_name); /* It goes to logs and terminals. */
		session->request.name = session->group_name;
	}
	sess_submit_request(session, &message->header, zero_coll_group, sess_reply_coll_grouped);
}

static void sess_coll_group_free(struct sess *session, const struct zi_coll_group_free *message)
{
	struct zi_text text;
	int r = zero_coll_group_free(session->rank, message->group, &text);

	if (r)
		sess_refuse(session, message->header.sequence, r, text.chars);
	else
		sess_sent(session,
		          sess_send_plain(session, ZI_MESSAGE_DONE, message->header.sequence));
}

static void sess_coll_fail(struct sess *session, const struct zi_coll_fail *message)
{
	uint32_t sequence = message->header.sequence;
	struct zi_text text;
	int r = zero_coll_fail(session->rank, message, &text);

	sess_refuse(session, sequence, r, text.chars);
}

static void sess_coll_abort(struct sess *session, const struct zi_coll_abort *message)
{
	uint32_t sequence = message->header.sequence;
	struct zi_text text;
	int r = zero_coll_abort(session->rank, message->group, message->reason, &text);

	if (r)
		sess_refuse(session, sequence, r, text.chars);
	else
		sess_sent(session, sess_send_plain(session, ZI_MESSAGE_DONE, sequence));
}

/* See request_coll.h. */
void sess_request_coll(struct sess *session, const struct zi_message_header *header)
{
	switch (header->type) {
	case ZI_MESSAGE_COLL_OPEN:
		sess_coll_open(session, (const void *)header);
		break;
	case ZI_MESSAGE_COLL_GROUP:
		sess_coll_group(session, (const void *)header);
		break;
	case ZI_MESSAGE_COLL_GROUP_FREE:
		sess_coll_group_free(session, (const void *)header);
		break;
	case ZI_MESSAGE_COLL_FAIL:
		sess_coll_fail(session, (const void *)header);
		break;
	case ZI_MESSAGE_COLL_ABORT:
		sess_coll_abort(session, (const void *)header);
		break;
	default:
		assert(false);
	}
}
