/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections before they are attached: HELLO with a deadline, then questions (ADMIN) or ATTACH.
 * Floor 6, control thread.
 */
#include "daemon/session/greet.h"

#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/check.h"
#include "daemon/session/admin/ask.h"
#include "daemon/session/control.h"
#include "daemon/session/sess.h"
#include "daemon/session/shard.h"

/* What this daemon can do, whatever the other side knows of it. */
static uint64_t sess_features(const struct sess_control *control)
{
	const uint64_t of_nvme = ZI_FEATURE_NVME_STATE | ZI_FEATURE_NVME_PARAM;

	return ZI_FEATURE_PART | ZI_FEATURE_EARLY | ZI_FEATURE_SNAPSHOTS | ZI_FEATURE_INTERVAL |
	       ZI_FEATURE_IO_WEIGHT | ZI_FEATURE_TENSORS | ZI_FEATURE_PERIODIC |
	       ZI_FEATURE_COLLECTIVES | ZI_FEATURE_NODES | ZI_FEATURE_NUMA | ZI_FEATURE_COLL_ABORT |
	       ZI_FEATURE_COLL_VERSION | ZI_FEATURE_TRAINING | ZI_FEATURE_SETS |
	       ZI_FEATURE_STATE_NODES | ZI_FEATURE_FROZEN | ZI_FEATURE_FORWARD | ZI_FEATURE_LOST |
	       ZI_FEATURE_STEPS | ZI_FEATURE_STATE | ZI_FEATURE_EXIST | ZI_FEATURE_GPU |
	       (control->facts->nvme_tier_count ? of_nvme : 0);
}

static int sess_greet(struct sess *session, const struct zi_hello *hello, struct zi_text *text)
{
	struct zi_hello reply = {
		.major = ZI_PROTOCOL_MAJOR,
		.minor = ZI_PROTOCOL_MINOR,
		/* Both sides use the intersection, whatever minor version the other has. */
		.features = sess_features(session->control),
		.coll_version = ZI_COLL_VERSION,
		.program = "zinfd " ZINF_VERSION,
	};

	if (hello->major != ZI_PROTOCOL_MAJOR)
		return zi_text_error(text, err_origin(-EPROTONOSUPPORT),
		                     "%.63s speaks protocol %u.%u, zinfd " ZINF_VERSION
		                     " speaks %u.%u: the major versions must be equal",
		                     hello->program, hello->major, hello->minor, ZI_PROTOCOL_MAJOR,
		                     ZI_PROTOCOL_MINOR);
	session->features = hello->features & reply.features;
	session->coll_version = zi_hello_coll_version(hello);
	zi_message_init(&reply.header, ZI_MESSAGE_HELLO, sizeof(reply), hello->header.sequence);
	sess_set_state(session, SESS_GREETED);
	return err_trace(zi_message_send(session->socket_fd, &reply.header, NULL, 0));
}

/* The tail of ATTACH, or what its absence means; into the session. */
static int sess_take_training(struct sess *session, const struct zi_attach *attach,
                              struct zi_text *text)
{
	struct zi_job_training training = { 0 };
	uint32_t local_size =
		attach->local_world_size ? attach->local_world_size : attach->world_size;
	int r;

	if (attach->header.bytes > sizeof(*attach)) {
		if (!(session->features & ZI_FEATURE_TRAINING))
			return zi_text_error(text, err_origin(-EPROTO),
			                     "ATTACH of %u bytes without feature bit 13",
			                     attach->header.bytes);
		training = ((const struct zi_attach_training *)(const void *)attach)->training;
	}
	r = zi_check_training(&training, &attach->config, attach->world_size, local_size, text);
	if (r)
		return err_trace(r);
	if (zi_training_is_forward_only(&training) && !(session->features & ZI_FEATURE_FORWARD))
		return zi_text_error(text, err_origin(-EOPNOTSUPP),
		                     "is_forward_only is true, but this libzinf does not "
		                     "support it (feature bit 17): use a newer libzinf");
	session->training = training;
	return 0;
}

/* ATTACH: within the limits, the session goes to the shard. */
static int sess_admit(struct sess *session, const struct zi_attach *attach, struct zi_text *text)
{
	struct sess_control *control = session->control;
	const struct sess_limits *limits = &control->limits;
	int r;

	r = zi_check_attach(attach, text);
	if (!r && (attach->flags & ZI_ATTACH_MUST_EXIST) && !(session->features & ZI_FEATURE_EXIST))
		r = zi_text_error(text, err_origin(-EPROTO),
		                  "ATTACH with flag 1 without feature bit 24");
	if (!r)
		r = sess_take_training(session, attach, text);
	if (r)
		return err_trace(r);
	/* Without a store there is another word for it. */
	if (attach->config.offload_param == ZI_OFFLOAD_NVME &&
	    (sess_features(control) & ~session->features & ZI_FEATURE_NVME_PARAM))
		return zi_text_error(text, err_origin(-EPROTONOSUPPORT),
		                     "offload_param nvme: this libzinf does not support a pool of "
		                     "parameters (feature bit 1): use a newer libzinf");
	if (control->attached_count >= limits->sessions_max)
		return zi_text_error(text, err_origin(-EMFILE),
		                     "all %u sessions are in use (limits.sessions)",
		                     limits->sessions_max);
	r = sess_uid_take(control->shard->uids, session->uid, SESS_UID_SESSIONS, 1, text);
	if (r)
		return err_trace(r);
	sess_uid_give(control->shard->uids, session->uid, SESS_UID_CONNECTIONS, 1);
	session->attach = *attach;
	zi_list_remove(&session->waiting_link);
	zi_loop_disarm(&session->timer);
	zi_loop_remove(&session->socket_source);
	sess_set_state(session, SESS_MOVING);
	session->is_counted = true;
	control->attached_count++;
	if (control->facts->changed)
		control->facts->changed(control->facts->changed_arg, control->attached_count);
	sess_shard_take(control->shard, session);
	return 0;
}

/* One message. Errors are told to the client, then it is dropped. */
static int sess_take_message(struct sess *session, const struct zi_message_header *header,
                             struct zi_text *text)
{
	int r;

	r = zi_message_check(header, text);
	if (r)
		return err_trace(r);
	if (session->state == SESS_CONNECTED && header->type == ZI_MESSAGE_HELLO)
		return err_trace(sess_greet(session, (const void *)header, text));
	if (session->state == SESS_GREETED && header->type == ZI_MESSAGE_ADMIN)
		return err_trace(sess_ask(session, (const void *)header));
	if (session->state == SESS_GREETED && header->type == ZI_MESSAGE_ATTACH)
		return err_trace(sess_admit(session, (const void *)header, text));
	return zi_text_error(text, err_origin(-EPROTO), "unexpected %s, %s was awaited",
	                     zi_message_name(header->type),
	                     session->state == SESS_CONNECTED ? "HELLO" : "ATTACH or ADMIN");
}

/* Something on the socket of a connection that is not attached. */
void sess_greet_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct sess *session = container_of(source, struct sess, socket_source);
	struct sess_control *control = session->control;
	const struct zi_message_header *header = control->message;

	if (session->state == SESS_ASKING) {
		if ((epoll_events & (EPOLLHUP | EPOLLERR)) && session->is_asked) {
			/* The answer will find nobody. */
			zi_loop_remove(&session->socket_source);
			session->is_socket_gone = true;
			sess_ask_withdraw(session);
		} else if (epoll_events & (EPOLLHUP | EPOLLERR)) {
			sess_drop(session);
		} else if (epoll_events & EPOLLOUT) {
			sess_ask_flush(session);
		}
		return;
	}
	for (uint32_t i = 0; i < SESS_MESSAGES_PER_TURN; i++) {
		struct zi_text text = { "no message of zinf" };
		uint32_t sequence = 0;
		int r;

		r = zi_message_receive(session->socket_fd, control->message, NULL, NULL);
		if (r == -EAGAIN)
			return;
		if (r && r != -EPROTO) {
			sess_drop(session);
			return;
		}
		if (!r) {
			sequence = header->sequence;
			r = sess_take_message(session, header, &text);
		}
		if (r) {
			if (sess_uid_may_log(control->shard->uids, session->uid))
				log_warning("Refused pid=%d uid=%u: %s", session->pid, session->uid,
				            text.chars);
			/* It is closed next, whether or not it heard why. */
			(void)sess_send_error(session, sequence, r, text.chars);
			sess_drop(session);
			return;
		}
		if (session->is_counted)
			return; /* It is the shard's: not even its state may be read. */
		if (session->state == SESS_ASKING)
			return; /* Its socket is not read for now. */
		sess_wait_on(session);
	}
}
