/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that a member refuses, or that are not what the other side says; see pair.c. Floor 2. */
#include "libclient/coll/node/pair_refuse.h"

#include <errno.h>
#include <inttypes.h>

#include "common/base/err.h"
#include "common/wire/call_words.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/pair_line.h"
#include "libclient/coll/node/words.h"

/* Why @peer refuses messages. */
static const struct zi_board_refusal *refusals_of(const struct zi_node_group *group, uint32_t peer)
{
	const struct zi_far_group *far = group->far;

	if (zi_pair_is_near(group, peer))
		return group->meet.members[zi_pair_line(group, peer)].refusals;
	return zi_mail_refusals(&far->mail, zi_mail_other(&far->mail, peer));
}

bool zi_pair_has_peer(const struct zi_node_group *group, const struct zi_node_p2p *p2p)
{
	return p2p->peer < zi_node_members(group) && p2p->peer != zi_node_self(group);
}

uint32_t zi_node_post_reason(struct zi_node_group *group, int error, const struct zi_text *reason)
{
	uint32_t number = ++group->refusal_count;

	/* Those say that there is no reason; of a message's the low half is told. */
	while (!(uint16_t)number || number == ZI_BOARD_REFUSAL_LOST)
		number = ++group->refusal_count;
	zi_board_refuse(group->meet.members[group->meet.self].refusals, number, (uint32_t)-error,
	                reason->chars);
	return number;
}

/* On this node each message says its own. From another one, the newest: the reason is read before
 * the message that it is of, which a newer one changes first. */
uint32_t zi_pair_reason_of(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                           const uint32_t *refused, const uint32_t *refusal)
{
	uint32_t sequence = p2p->message.sequence, number = zi_meet_load(refusal);

	if (zi_pair_is_near(group, p2p->peer))
		number = zi_board_refused_for(&group->meet.members[zi_pair_line(group, p2p->peer)],
		                              sequence, group->meet.self, !p2p->is_send);
	else if (zi_meet_load(refused) != sequence)
		number = ZI_BOARD_REFUSAL_LOST;
	/* The type and count are those of the newest one. */
	return number || zi_meet_load(refused) == sequence ? number : ZI_BOARD_REFUSAL_LOST;
}

int zi_pair_say_refused(struct zi_node_group *group, const struct zi_node_p2p *p2p, uint32_t number,
                        struct zi_text *text)
{
	uint32_t sequence = p2p->message.sequence, self = zi_node_self(group);
	struct zi_board_refusal refusal;
	bool is_this = zi_board_refusal_of(refusals_of(group, p2p->peer), number, &refusal);
	int error = is_this ? zi_verdict_refusal_of(refusal.error) : -EINVAL;

	group->culprit = p2p->peer;
	return err_origin(zi_text_error(
		text, error, "message %u from member %u to member %u: %s refuses it: %s", sequence,
		p2p->is_send ? self : p2p->peer, p2p->is_send ? p2p->peer : self,
		zi_node_name(group, p2p->peer).chars,
		is_this ? refusal.reason : "the reason has made room for those of later ones"));
}

void zi_pair_refuse_one(struct zi_node_group *group, const struct zi_node_p2p *p2p, uint32_t number)
{
	zi_board_refuse_message(&group->meet.members[group->meet.self], group->refused_count++,
	                        p2p->message.sequence, zi_pair_line(group, p2p->peer), p2p->is_send,
	                        number);
}

/* This member refuses it: whoever comes to it is told. */
void zi_pair_refuse(struct zi_node_group *group, struct zi_node_p2p *p2p)
{
	struct zi_node_message *message = &p2p->message;
	uint32_t peer = p2p->peer;

	message->phase = ZI_NODE_MESSAGE_OVER;
	if (!zi_pair_has_peer(group, p2p))
		return; /* This member counts neither side. */
	if (p2p->is_send) {
		struct zi_board_send *line = zi_pair_own_send(group, peer);

		message->sequence = ++group->pairs.sent[peer];
		zi_pair_refuse_one(group, p2p, message->refusal);
		__atomic_store_n(&line->refusal, message->refusal, __ATOMIC_RELAXED);
		__atomic_store_n(&line->refused, message->sequence, __ATOMIC_RELEASE);
		zi_pair_tell(group, peer, &line->sequence, message->sequence);
	} else {
		struct zi_board_take *line = zi_pair_own_take(group, peer);

		message->sequence = ++group->pairs.taken[peer];
		zi_pair_refuse_one(group, p2p, message->refusal);
		__atomic_store_n(&line->refusal, message->refusal, __ATOMIC_RELAXED);
		zi_pair_tell(group, peer, &line->refused, message->sequence);
	}
}

int zi_pair_say_mismatch(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                         uint64_t other_count, uint32_t other_dtype, struct zi_text *text)
{
	uint32_t self = zi_node_self(group);
	bool is_send = p2p->is_send;

	return err_origin(zi_text_error(
		text, -EINVAL,
		"message %u from %s to %s: %" PRIu64 " × %s are sent and %" PRIu64 " × %s taken",
		p2p->message.sequence, zi_node_name(group, is_send ? self : p2p->peer).chars,
		zi_node_name(group, is_send ? p2p->peer : self).chars,
		is_send ? p2p->element_count : other_count,
		zi_dtype_words_of(is_send ? p2p->dtype : other_dtype).chars,
		is_send ? other_count : p2p->element_count,
		zi_dtype_words_of(is_send ? other_dtype : p2p->dtype).chars));
}
