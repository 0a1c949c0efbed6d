/* SPDX-License-Identifier: Apache-2.0 */
/* What each node calls, told to all others; see exchange.h. Floor 3, of zinf-net. */
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "daemon/worker/net/exchange_private.h"

/* FNV-1a, 64 bits (Fowler, Noll, Vo). */
static uint64_t hash_bytes(const void *bytes, size_t count)
{
	uint64_t hash = 14695981039346656037ull;

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull;
	return hash;
}

static struct exchange_card card_of(const struct net_exchange *exchange, uint32_t peer)
{
	struct exchange_card card;

	memset(&card, 0, sizeof(card)); /* Padding too: it is hashed and sent. */
	card.sequence = exchange->sequence;
	card.kind = exchange->kind;
	if (exchange->kind == NET_MOVE) {
		card.sent_bytes = exchange->sends[peer].bytes;
		return card;
	}
	card.mode = exchange->mode;
	card.dtype = exchange->dtype;
	card.op = exchange->op;
	card.rank_count = exchange->rank_count;
	card.root = exchange->root;
	card.element_count = exchange->element_count;
	card.placement = hash_bytes(exchange->nodes, exchange->rank_count);
	return card;
}

/* Documented in exchange_private.h, as is the other. */
int exchange_cards_begin(struct exchange_room *room)
{
	struct exchange_op *op = &room->op;
	struct exchange_card card = card_of(&op->exchange, room->node);
	uint64_t hash;

	op->hash = 0; /* none that a card has, but for one in 2^32 */
	if (op->is_agreed)
		return 0;
	card.sent_bytes = 0;
	hash = hash_bytes(&card, sizeof(card));
	op->hash = (uint32_t)(hash ^ hash >> 32);
	for (uint32_t i = 0; i < room->node_count; i++) {
		uint64_t slot = exchange_slot(room, EXCHANGE_CARD);
		int r;

		if (i == room->node)
			continue;
		op->suspect = i;
		room->cards_out[i] = card_of(&op->exchange, i);
		r = net_lane_receive(room->peers[i].cards, slot,
		                     offsetof(struct exchange_room, cards_in[i]) -
		                             offsetof(struct exchange_room, cards_out),
		                     sizeof(card), op->text);
		r = r ? r
		      : net_lane_send(room->peers[i].cards, slot,
		                      offsetof(struct exchange_room, cards_out[i]) -
		                              offsetof(struct exchange_room, cards_out),
		                      sizeof(card), op->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

static void describe(const struct exchange_card *card, char *target, size_t capacity)
{
	static const char *const modes[] = { "?", "all_reduce", "reduce", "reduce_scatter",
		                             "broadcast" };

	if (card->kind == NET_MOVE) {
		(void)snprintf(target, capacity, "moves bytes"); /* Fits, as below: cut. */
		return;
	}
	(void)snprintf(target, capacity, "makes %s of %lu x %s, %s, %u ranks, root %u",
	               modes[card->mode < _NET_MODE_COUNT ? card->mode : 0],
	               (unsigned long)card->element_count, zi_dtype_name(card->dtype),
	               zi_reduce_op_name(card->op), card->rank_count, card->root);
}

static int compare(const struct exchange_room *room, uint32_t peer)
{
	const struct exchange_op *op = &room->op;
	struct exchange_card own = room->cards_out[peer], other = room->cards_in[peer];
	uint64_t expected = op->exchange.kind == NET_MOVE ? op->exchange.receives[peer].bytes : 0;
	char mine[96], theirs[96];

	if (own.kind == other.kind && other.sent_bytes != expected)
		return err_origin(zi_text_error(
			op->text, -EINVAL,
			"%s sends %lu bytes where %s expects %lu (operation %lu)",
			nodes_name(room->nodes, peer), (unsigned long)other.sent_bytes,
			nodes_name(room->nodes, room->node), (unsigned long)expected,
			(unsigned long)own.sequence));
	own.sent_bytes = other.sent_bytes = 0;
	if (!memcmp(&own, &other, sizeof(own)))
		return 0;
	describe(&own, mine, sizeof(mine));
	describe(&other, theirs, sizeof(theirs));
	return err_origin(zi_text_error(op->text, -EINVAL,
	                                "operation %lu: node %u %s, node %u %s%s",
	                                (unsigned long)own.sequence, room->node, mine, peer, theirs,
	                                strcmp(mine, theirs) ? "" : ", on other placements"));
}

/* Documented in exchange_private.h. */
int exchange_cards_end(struct exchange_room *room)
{
	struct exchange_op *op = &room->op;

	for (uint32_t i = 0; i < room->node_count && !op->is_agreed; i++) {
		int r;

		if (i == room->node)
			continue;
		op->suspect = i;
		r = net_lane_wait_received(room->peers[i].cards, 1, op->deadline_ns, op->text);
		r = r ? r : compare(room, i);
		r = r ? r : net_lane_wait_sent(room->peers[i].cards, 1, op->deadline_ns, op->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}
