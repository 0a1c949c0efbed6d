/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a group call, told from node to node; see follow.c. Floor 3, of zinf-net.
 * Owner: the operations' thread. */
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/wire/call_words.h"
#include "common/wire/verdict.h"
#include "daemon/worker/net/follow_private.h"

#define CARD_ERRNO_MAX 4095 /* the kernel's */

/* ---- what is called ---- */

/* As a rank posts it. */
static struct zi_board_call call_of(const struct follow_card *card)
{
	return (struct zi_board_call){ .operation = card->operation,
		                       .dtype = card->dtype,
		                       .reduce_op = card->reduce_op,
		                       .root = card->root,
		                       .element_count = card->element_count };
}

static uint32_t rank_of(const struct follow *follow, uint32_t local)
{
	return follow->message->ranks[follow->shape.members[local]];
}

static void take_refusal(const struct follow *follow, uint32_t local,
                         const struct zi_board_call *call, struct follow_card *card)
{
	struct zi_text reason = zi_meet_reason_of(&follow->meet, local, follow->sequence);

	card->error = zi_verdict_refusal_of(call->root);
	zi_text_set(&card->text, "call %u: rank %u refuses it: %.180s", follow->sequence,
	            rank_of(follow, local), reason.chars);
}

static uint64_t *counts_at(const struct follow *follow, uint32_t order)
{
	return (void *)(follow->own + FOLLOW_COUNTS_OFFSET +
	                order * ZI_BOARD_COUNTS_BYTES(follow->shape.member_count));
}

/* What the ranks of this node send to and take from whom. */
static void take_counts(const struct follow *follow, struct follow_card *card)
{
	uint32_t members = follow->shape.member_count, bytes = ZI_BOARD_COUNTS_BYTES(members);

	for (uint32_t i = 0; i < follow->shape.self_count; i++) {
		uint64_t *counts = counts_at(follow, follow->shape.firsts[follow->shape.node] + i);

		memcpy(counts, zi_meet_payload_of(&follow->meet, i, follow->sequence, bytes),
		       bytes);
		for (uint32_t k = 0; k < 2 * members; k++)
			card->longest = ZI_MAX(card->longest, counts[k]);
	}
}

/* What a rank that is damaged might post would be the end of this process. */
static bool is_call(const struct follow *follow, const struct follow_card *card)
{
	if (card->operation == ZI_COLL_BARRIER)
		return true;
	if (!zi_coll_is_collective(card->operation) || card->root >= follow->shape.member_count ||
	    card->dtype < ZI_DTYPE_F32 || card->dtype >= _ZI_DTYPE_COUNT ||
	    card->element_count > UINT64_MAX / 16 / ZI_WORLD_MAX ||
	    card->longest > UINT64_MAX / 16 / ZI_WORLD_MAX)
		return false;
	return !zi_coll_is_join(card->operation) ||
	       zi_reduce_op_is_for(card->reduce_op, card->dtype);
}

/* Documented in follow_private.h. */
void follow_make_card(const struct follow *follow, struct follow_card *card)
{
	struct zi_board_call first = { .operation = 0 };

	memset(card, 0, sizeof(*card)); /* All of it is sent. */
	for (uint32_t i = 0; i < follow->shape.self_count && !card->error; i++) {
		struct zi_board_post post = *zi_meet_post_of(&follow->meet, i, follow->sequence);

		if (post.call.flags & ZI_BOARD_REFUSED) {
			take_refusal(follow, i, &post.call, card);
			continue;
		}
		if (i == 0)
			first = post.call;
		if (!zi_board_is_same_call(&first, &post.call)) {
			card->error = -EINVAL;
			zi_text_set(&card->text, "call %u: rank %u calls %s, rank %u %s",
			            follow->sequence, rank_of(follow, i),
			            zi_call_words_of(&post.call).chars, rank_of(follow, 0),
			            zi_call_words_of(&first).chars);
		}
	}
	card->sequence = follow->sequence;
	card->element_count = first.element_count;
	card->operation = first.operation;
	card->dtype = first.dtype;
	card->reduce_op = first.reduce_op;
	card->root = first.root;
	if (card->error)
		return;
	if (card->operation == ZI_COLL_ALL_TO_ALLV)
		take_counts(follow, card);
	if (!is_call(follow, card)) {
		card->error = -EINVAL;
		zi_text_set(&card->text, "call %u: what %s posted makes no sense", follow->sequence,
		            follow_say_node(follow, follow->shape.node).chars);
	}
}

/* Documented in follow_private.h. */
struct zi_text follow_say_node(const struct follow *follow, uint32_t node)
{
	struct zi_text text = { "" };
	size_t used = 0;

	for (uint32_t i = 0; i < follow->shape.member_count && used < 40; i++)
		if (follow->shape.nodes[i] == node)
			used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used,
			                         "%s%u",
			                         used                             ? ", "
			                         : follow->shape.counts[node] > 1 ? "ranks "
			                                                          : "rank ",
			                         follow->message->ranks[i]); /* Fits. */
	return text;
}

/* Documented in follow_private.h. What its ranks do instead its own daemon says, if it is asked in
 * time (follow_frame.c). */
void follow_say_late(const struct follow *follow, uint32_t node, struct zi_text *ret_text)
{
	struct zi_board_call call = call_of(&follow->cards[follow->shape.node]);
	bool is_one = follow->shape.counts[node] == 1;
	const char *does;

	if (follow->is_met)
		does = is_one ? "has come, but did not do its part"
		              : "have come, but did not do their part";
	else
		does = is_one ? "did not come" : "did not all come";
	zi_text_set(ret_text, "call %u of group %u, %s: %s on %.64s %s within %.4g s",
	            follow->sequence, follow->message->group, zi_call_words_of(&call).chars,
	            follow_say_node(follow, node).chars, nodes_name(follow->worker->nodes, node),
	            does, follow->timeout_ms / 1e3);
}

/* ---- from node to node ---- */

/* Documented in follow_private.h. */
int follow_judge(const struct follow *follow, struct zi_text *reason)
{
	struct zi_board_call first = call_of(&follow->cards[0]);

	for (uint32_t i = 0; i < follow->shape.node_count; i++) {
		const struct follow_card *card = &follow->cards[i];

		if (card->error ? card->error > 0 || card->error < -CARD_ERRNO_MAX
		                : !is_call(follow, card))
			return zi_text_error(reason, -EINVAL,
			                     "call %u: what %s posted makes no sense",
			                     follow->sequence, follow_say_node(follow, i).chars);
		if (!card->error)
			continue;
		*reason = card->text;
		reason->chars[sizeof(reason->chars) - 1] = '\0';
		return card->error;
	}
	for (uint32_t i = 1; i < follow->shape.node_count; i++) {
		struct zi_board_call call = call_of(&follow->cards[i]);

		if (!zi_board_is_same_call(&first, &call))
			return zi_text_error(
				reason, -EINVAL, "call %u: %s: %s; %s: %s", follow->sequence,
				follow_say_node(follow, i).chars, zi_call_words_of(&call).chars,
				follow_say_node(follow, 0).chars, zi_call_words_of(&first).chars);
	}
	return 0;
}

/* Documented in follow_private.h. */
bool follow_all_direct(const struct follow *follow)
{
	for (uint32_t i = 0; i < follow->shape.node_count; i++)
		if (!follow->cards[i].is_direct)
			return false;
	return true;
}

/* Documented in follow_private.h. */
int follow_exchange_counts(struct follow *follow)
{
	const struct zi_far_shape *shape = &follow->shape;
	uint64_t bytes = ZI_BOARD_COUNTS_BYTES(shape->member_count);

	follow->exchange = (struct net_exchange){ .kind = NET_MOVE, .slab = NET_SLAB_OWN };
	for (uint32_t i = 0; i < shape->node_count; i++) {
		if (i == shape->node)
			continue;
		follow->exchange.sends[i] =
			(struct net_range){ FOLLOW_COUNTS_OFFSET +
			                            shape->firsts[shape->node] * bytes,
			                    shape->self_count * bytes };
		follow->exchange.receives[i] =
			(struct net_range){ FOLLOW_COUNTS_OFFSET + shape->firsts[i] * bytes,
			                    shape->counts[i] * bytes };
	}
	return err_trace(follow_exchange(follow));
}

/* Documented in follow_private.h. */
int follow_judge_counts(const struct follow *follow, struct zi_text *reason)
{
	const struct zi_far_shape *shape = &follow->shape;
	const uint8_t *ranks = follow->message->ranks;
	const uint64_t *counts = follow_counts(follow);
	uint32_t members = shape->member_count;

	for (uint32_t from = 0; from < members; from++)
		for (uint32_t to = 0; to < members; to++) {
			uint64_t sent = counts[shape->orders[from] * 2 * members + to];
			uint64_t taken = counts[(shape->orders[to] * 2 + 1) * members + from];

			if (sent != taken)
				return zi_text_error(
					reason, -EINVAL,
					"call %u, all_to_allv: rank %u sends %llu elements to rank "
					"%u, which takes %llu",
					follow->sequence, ranks[from], (unsigned long long)sent,
					ranks[to], (unsigned long long)taken);
		}
	return 0;
}

/* Documented in follow_private.h. */
uint64_t follow_longest(const struct follow *follow)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < follow->shape.node_count; i++)
		longest = ZI_MAX(longest, follow->cards[i].longest);
	return longest;
}
