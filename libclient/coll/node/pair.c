/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives; see node.h. Floor 2.
 *
 * Messages of an ordered pair of members are numbered and go one after the other. The sender posts
 * on its line of the pair; the receiver copies, straight out of the sender's arena or out of two
 * letters in its staging part, and counts what it has emptied on its own line: each piece, and one
 * more for the message. So each side waits for one word that only grows. A message whose type or
 * length is not what the receiver takes is emptied at once, and both sides have the error.
 *
 * To and from members on other nodes the worker is the peer, with letters at this node's end and at
 * the other's (common/wire/mail.h).
 *
 * What a member refuses by itself (check.c), or because its batch is refused, is numbered as well,
 * told to the peer with the reason (`refused`, on its own line) and over at once: its peer may come
 * much later, and then counts on from the sender's word where the pieces of a message begin. So
 * either side may be some refused messages ahead of the other.
 */
#include "libclient/coll/node/pair.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/coll/node/pair_line.h"
#include "libclient/coll/node/pair_refuse.h"
#include "libclient/coll/node/pair_send.h"
#include "libclient/coll/node/pair_take.h"

/* For the mail, which asks the other node before the time has passed. */
static void say_deadline(struct zi_node_group *group, const struct zi_node_p2p *p2p,
                         uint64_t deadline_ns)
{
	struct zi_board_send *send = zi_pair_own_send(group, p2p->peer);
	struct zi_board_take *take = zi_pair_own_take(group, p2p->peer);
	uint64_t now_ns = zi_clock_now_ns();
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	uint32_t timeout_ms = left_ns ? (uint32_t)(left_ns / ZI_NS_PER_MS + 1) : 0;

	*(p2p->is_send ? &send->timeout_ms : &take->timeout_ms) = timeout_ms;
	/* Release: who reads it sees that the message before was left. */
	__atomic_store_n(p2p->is_send ? &send->deadline_ns : &take->deadline_ns, deadline_ns,
	                 __ATOMIC_RELEASE);
}

int zi_node_poll_message(struct zi_node_group *group, struct zi_node_p2p *p2p, uint64_t deadline_ns,
                         struct zi_meet_wants *wants, struct zi_text *text)
{
	if (p2p->message.error) {
		zi_pair_refuse(group, p2p);
		return err_origin(p2p->message.error); /* Its text is the batch's. */
	}
	if (p2p->message.phase == ZI_NODE_MESSAGE_NEW && !zi_pair_is_near(group, p2p->peer))
		say_deadline(group, p2p, deadline_ns);
	return p2p->is_send ? zi_pair_poll_send(group, p2p, wants, text)
	                    : zi_pair_poll_take(group, p2p, wants, text);
}
