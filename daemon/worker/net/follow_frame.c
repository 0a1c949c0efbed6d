/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames (common/wire/frame.h) from node to node: what is called, and small data with it. Floor 3,
 * of zinf-net. Owner: the operations' thread.
 *
 * All frames of a group are of one length, so that a receive can be prepared before it is known
 * what comes: that of the next call before the own frame of this one goes out. By then all ranks
 * here have come to this call, and left the one before, whose set of frames the next one takes; and
 * no node sends its next frame before it has everybody's of this call.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/follow_private.h"

/* Beside the streams of exchange_private.h, whose transfers have lanes over the same memory. */
#define FRAME_STREAM 4u
/* The part of the moment after which no further node is asked: who was has the rest to answer. */
#define ASK_SHARE 3

static uint64_t slot_of(uint32_t sequence)
{
	return (uint64_t)(sequence & 0xffffff) << 8 | FRAME_STREAM;
}

/* Where it comes to. */
static struct follow_card *card_at(const struct follow *follow, uint32_t sequence, uint32_t node)
{
	return (void *)(follow->own + zi_frame_at(&follow->shape, sequence, node));
}

/* Room for what the others say of call @sequence. */
static int receive_all(struct follow *follow, uint32_t sequence)
{
	for (uint32_t i = 0; i < follow->shape.node_count; i++) {
		int r;

		if (i == follow->shape.node)
			continue;
		*follow->suspect = i;
		card_at(follow, sequence, i)->sequence = 0; /* Of a group before, perhaps. */
		r = net_lane_receive(follow->frames[i], slot_of(sequence),
		                     zi_frame_at(&follow->shape, sequence, i),
		                     zi_frame_bytes(&follow->shape), follow->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* For exchanges of counts. */
static int map_own(struct follow *follow, const struct exchange_slab *slab)
{
	follow->worker->slabs[NET_SLAB_OWN] = *slab;
	return err_trace(exchange_room_map(follow->worker->room, NET_SLAB_OWN, slab));
}

/* Documented in follow_private.h. */
int follow_frames_begin(struct follow *follow)
{
	struct net_mesh *mesh = nodes_mesh(follow->worker->nodes);
	int r;

	static_assert(sizeof(struct follow_card) <= ZI_FRAME_WORDS_BYTES, "a card fits");
	follow->own = calloc(1, FOLLOW_OWN_BYTES);
	if (!follow->own)
		return err_origin(zi_text_error(follow->text, -ENOMEM, "no memory for frames"));
	for (uint32_t i = 0; i < follow->shape.node_count; i++) {
		if (i == follow->shape.node)
			continue;
		r = net_lane_new(mesh, i, follow->own, FOLLOW_OWN_BYTES, &follow->frames[i]);
		if (r)
			return err_trace(
				zi_text_error(follow->text, r, "no memory for a lane of frames"));
	}
	r = map_own(follow,
	            &(struct exchange_slab){ .memory = follow->own, .bytes = FOLLOW_OWN_BYTES });
	if (r)
		return err_trace(zi_text_error(follow->text, r, "no memory for lanes of counts"));
	return err_trace(receive_all(follow, 1));
}

/* Documented in follow_private.h. */
void follow_frames_end(struct follow *follow)
{
	static const struct exchange_slab none = { .memory = NULL };

	for (uint32_t i = 0; i < follow->shape.node_count; i++)
		follow->frames[i] = net_lane_free(follow->frames[i]);
	(void)map_own(follow, &none); /* Takes none. */
	free(follow->own);
	follow->own = NULL;
}

/* Documented in follow_private.h. */
struct zi_frame_call follow_frame_call(const struct follow_card *card)
{
	return (struct zi_frame_call){ .operation = card->operation,
		                       .dtype = card->dtype,
		                       .root = card->root,
		                       .element_count = card->element_count };
}

/* The data of the ranks here. */
static void add_sources(const struct follow *follow, const struct follow_card *card)
{
	const struct zi_far_shape *shape = &follow->shape;
	const struct zi_coll_shape *operation = zi_coll_shape_of(card->operation);
	struct zi_frame_call call = follow_frame_call(card);
	uint32_t bytes;

	if (card->error || !zi_frame_is_small(shape, &call, &bytes))
		return;
	for (uint32_t i = 0; i < shape->self_count; i++)
		if (zi_coll_is_holder(&operation->source, shape->members[i], call.root))
			memcpy(follow->own + zi_frame_source_at(shape, &call, bytes,
			                                        follow->sequence,
			                                        shape->members[i]),
			       zi_meet_payload_of(&follow->meet, i, follow->sequence, bytes),
			       bytes);
}

static int send_all(struct follow *follow)
{
	for (uint32_t i = 1; i < follow->shape.node_count; i++) {
		uint32_t peer = (follow->shape.node + i) % follow->shape.node_count;
		int r;

		*follow->suspect = peer;
		r = net_lane_send(follow->frames[peer], slot_of(follow->sequence),
		                  zi_frame_at(&follow->shape, follow->sequence, follow->shape.node),
		                  zi_frame_bytes(&follow->shape), follow->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

static int await_all(struct follow *follow)
{
	for (uint32_t i = 0; i < follow->shape.node_count; i++) {
		int r;

		if (i == follow->shape.node)
			continue;
		*follow->suspect = i;
		r = net_lane_wait_received(follow->frames[i], 1, follow->deadline_ns, follow->text);
		r = r ? r
		      : net_lane_wait_sent(follow->frames[i], 1, follow->deadline_ns, follow->text);
		if (r)
			return err_trace(r);
	}
	return 0;
}

/* The own one as well, as it went. */
static void keep_cards(struct follow *follow)
{
	for (uint32_t i = 0; i < follow->shape.node_count; i++)
		memcpy(&follow->cards[i],
		       follow->own + zi_frame_at(&follow->shape, follow->sequence, i),
		       sizeof(follow->cards[i]));
}

/* The time of the present call has passed: the nodes of which nothing has come are asked what their
 * ranks do instead. A frame that is just coming may be taken for none: its node then says nothing.
 * To ask is of the moment that others have to speak: where the store is slow not all are asked. */
static void ask_silent(const struct follow *follow, const struct follow_card *own)
{
	const struct zi_far_shape *shape = &follow->shape;
	struct net_asked asked = { .sequence = follow->sequence,
		                   .operation = own->operation,
		                   .dtype = own->dtype,
		                   .reduce_op = own->reduce_op,
		                   .root = own->root,
		                   .timeout_ms = follow->timeout_ms,
		                   .element_count = own->element_count };
	uint64_t *moment_ns = &follow->worker->moment_ns;
	uint64_t started_ns = zi_clock_now_ns(), spent_ns = 0;
	uint64_t nodes = 0;

	for (uint32_t i = 0; i < shape->member_count; i++) {
		uint32_t node = shape->nodes[i];
		const struct follow_card *card = card_at(follow, follow->sequence, node);

		if (__atomic_load_n(&card->sequence, __ATOMIC_RELAXED) == follow->sequence)
			continue;
		nodes |= 1ull << node;
		asked.silent |= 1ull << follow->message->ranks[i];
	}
	for (; nodes && spent_ns < *moment_ns / ASK_SHARE; nodes &= nodes - 1) {
		nodes_ask(follow->worker->nodes, (uint32_t)__builtin_ctzll(nodes), &asked);
		spent_ns = zi_clock_now_ns() - started_ns;
	}
	*moment_ns -= ZI_MIN(spent_ns, *moment_ns);
}

/* Documented in follow_private.h. */
int follow_exchange_frames(struct follow *follow, const struct follow_card *own)
{
	int r;

	memcpy(follow->own + zi_frame_at(&follow->shape, follow->sequence, follow->shape.node), own,
	       sizeof(*own));
	add_sources(follow, own);
	r = receive_all(follow, follow->sequence + 1);
	r = r ? r : send_all(follow);
	r = r ? r : await_all(follow);
	if (r == -ETIMEDOUT)
		ask_silent(follow, own);
	if (!r) {
		*follow->suspect = NET_CULPRIT_NONE;
		keep_cards(follow);
	}
	return err_trace(follow_explain(follow, r));
}

/* Documented in follow_private.h. */
void follow_give_small(const struct follow *follow, const struct zi_frame_call *call,
                       uint32_t bytes)
{
	const struct zi_far_shape *shape = &follow->shape;
	const struct zi_coll_shape *operation = zi_coll_shape_of(call->operation);

	for (uint32_t i = 0; i < shape->member_count; i++) {
		uint64_t place;

		if (!zi_coll_is_holder(&operation->source, i, call->root))
			continue;
		place = zi_frame_source_at(shape, call, bytes, follow->sequence, i);
		memcpy(follow->slab->memory + place, follow->own + place, bytes);
	}
}
