/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets of collectives, which libclient/ticket.c hands over; see collective.h. Floor 2. */
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/wire/call_words.h"
#include "libclient/coll/collective.h"
#include "libclient/gpu/gpu.h"

/* A text is short: further ranks are counted. */
#define NAMED_MAX 8u

bool zi_client_coll_is_ticket(uint64_t ticket)
{
	return ticket & ZI_CLIENT_TICKET_COLL;
}

static int find(struct zinf *zinf, uint64_t ticket, struct zi_client_call **ret_call)
{
	const struct zi_client_coll *coll = zinf->coll;
	uint64_t index = ticket & (ZI_NODE_QUEUE_MAX - 1);

	if (!coll || index >= coll->call_count || !coll->calls[index]->is_used ||
	    coll->calls[index]->ticket != ticket)
		return zi_client_error(zinf, -EINVAL,
		                       "ticket %#llx does not exist, or was waited for before",
		                       (unsigned long long)ticket);
	*ret_call = coll->calls[index];
	return 0;
}

static void append_ranks(struct zi_text *text, const struct zi_client_group *group,
                         uint64_t members)
{
	uint32_t count = (uint32_t)__builtin_popcountll(members), named = 0;

	zi_text_append(text, count == 1 ? "rank " : "ranks ");
	for (; members && named < NAMED_MAX; members &= members - 1)
		zi_text_append(text, "%s%u", named++ ? ", " : "",
		               group->ranks[__builtin_ctzll(members)]);
	if (members)
		zi_text_append(text, " and %u more", count - named);
}

/* The number of the newest call that a member has posted; 0: none yet. */
static uint32_t newest_post(const struct zi_meet *meet, uint32_t member)
{
	uint32_t newest = 0;

	for (uint32_t i = 0; i < ZI_BOARD_SLOTS; i++) {
		struct zi_board_post post;

		zi_board_look(&meet->members[member].posts[i], &post);
		/* Numbers run over, and the slots hold neighbours. */
		if (post.sequence && (!newest || (int32_t)(post.sequence - newest) > 0))
			newest = post.sequence;
	}
	return newest;
}

/* Bits of members that have posted fewer calls than this rank: its own newest one waits for them.
 * The engine may be at work: its memory is not read here, only the board. */
static uint64_t absent_members(const struct zi_node_group *group)
{
	const struct zi_meet *meet = &group->meet;
	uint32_t own = newest_post(meet, meet->self);
	uint64_t absent = 0;

	for (uint32_t i = 0; own && i < meet->member_count; i++)
		if ((int32_t)(newest_post(meet, i) - own) < 0)
			absent |= 1ull << i;
	return absent;
}

static uint64_t peers_of(const struct zi_node_op *op)
{
	uint64_t peers = 0;

	for (uint32_t i = 0; i < op->p2p_count; i++)
		peers |= 1ull << op->p2ps[i].peer;
	return peers;
}

/* The waiting is over, and the call is not. Return: -ETIMEDOUT with the ranks that it waits for.
 * Posts on other nodes are not visible here: such a group names none. */
static int not_over(struct zinf *zinf, const struct zi_client_call *call, uint64_t timeout_ns)
{
	const struct zi_node_op *op = &call->op;
	const struct zi_board_call what = { .operation = (uint8_t)op->call.operation,
		                            .dtype = (uint8_t)op->call.dtype,
		                            .reduce_op = (uint8_t)op->call.reduce_op,
		                            .root = op->call.root,
		                            .element_count = op->call.element_count };
	double timeout_s = (double)timeout_ns / 1e9;
	struct zi_text text = { "" };
	uint64_t absent;

	if (op->p2p_count) {
		zi_text_set(&text, "messages of group %u with ", call->group->number);
		append_ranks(&text, call->group, peers_of(op));
		zi_text_append(&text, " are not over within %.4g s", timeout_s);
		return zi_client_error(zinf, -ETIMEDOUT, "%s", text.chars);
	}
	zi_text_set(&text, "%s of group %u is not over within %.4g s",
	            zi_call_words_of(&what).chars, call->group->number, timeout_s);
	absent = op->group->far ? 0 : absent_members(op->group);
	if (absent) {
		zi_text_append(&text, ": ");
		append_ranks(&text, call->group, absent);
		zi_text_append(&text, absent & (absent - 1) ? " have not come" : " has not come");
	}
	return zi_client_error(zinf, -ETIMEDOUT, "%s", text.chars);
}

int zi_client_coll_wait(struct zinf *zinf, uint64_t ticket, uint64_t timeout_ns)
{
	struct zi_client_call *call;
	int r = find(zinf, ticket, &call);

	if (r)
		return err_trace(r);
	if (zinf->gpu)
		r = zi_client_gpu_settle_shared(zinf); /* This wait looks for no copies. */
	if (r)
		return err_trace(r);
	/* Without a deadline of the waiting, the call's own ends it. */
	r = zi_node_queue_await(zinf->coll->queue, &call->op,
	                        timeout_ns ? zi_clock_deadline_ns(timeout_ns) : ZI_DEADLINE_NEVER,
	                        zinf->interrupt);
	if (r == -EINTR) {
		(void)zi_client_take_interrupt(zinf); /* It was pending. */
		return err_trace(zi_client_interrupted(zinf));
	}
	if (r)
		return err_trace(not_over(zinf, call, timeout_ns));
	return err_trace(zi_client_call_end(zinf, call));
}

int zi_client_coll_test(struct zinf *zinf, uint64_t ticket, bool *ret_is_done)
{
	struct zi_client_call *call;
	int r = find(zinf, ticket, &call);

	if (r)
		return err_trace(r);
	*ret_is_done = zi_node_op_is_done(&call->op);
	return 0;
}

int zi_client_coll_cancel(struct zinf *zinf, uint64_t ticket)
{
	struct zi_client_call *call;
	int r = find(zinf, ticket, &call);

	if (r)
		return err_trace(r);
	if (zi_node_op_is_done(&call->op))
		return zi_client_error(zinf, -EALREADY, "it has completed: zinf_wait() tells how");
	if (!zi_node_queue_cancel(zinf->coll->queue, &call->op))
		return zi_client_error(zinf, -EBUSY,
		                       "the call is under way, others count on it: it ends with "
		                       "them, or at its deadline");
	return 0;
}
