/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of operations; see order.h. fake_order_is_ready() alone decides what a GPU may do. */
#include "tests/gpu/order.h"

#include "common/base/assert.h"
#include "tests/gpu/fake.h"
#include "tests/gpu/stream.h"

/*
 * Shuffled: every stream has a random urgency, and the most urgent one that can run does, so that
 * streams run far ahead of others, or fall behind (Burckhardt et al., "A randomized scheduler with
 * probabilistic guarantees of finding bugs", ASPLOS 2010). In one of URGENCY_CHANGES draws the
 * urgency of the drawn stream changes.
 */
#define URGENCY_CHANGES 8u
/* In one of RUN_CALLS calls up to RUN_MAX operations run, so that work piles up in between. */
#define RUN_CALLS 24u
#define RUN_MAX   32u

static uint64_t random_state;

/* xorshift64*, Vigna 2016. */
static uint32_t draw_number(void)
{
	if (!random_state)
		random_state = 2 * fake_options()->seed + 1;
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (uint32_t)(random_state * 2685821657736338717ull >> 32);
}

/* Does @stream keep its order towards @other by itself, one of them the default stream? */
static bool are_in_order(const struct zi_cuda_stream *stream, const struct zi_cuda_stream *other)
{
	return stream->context == other->context && stream->is_blocking && other->is_blocking &&
	       stream->is_default != other->is_default;
}

/* What must be done before @op. NULL: nothing. */
static const struct fake_op *blocker_of(const struct fake_op *op)
{
	if (op->awaited && !op->awaited->is_done)
		return op->awaited;
	for (const struct zi_cuda_stream *other = fake_streams; other; other = other->next)
		if (other->first && other->first->number < op->number &&
		    are_in_order(op->stream, other))
			return other->first;
	return NULL;
}

bool fake_order_is_ready(const struct fake_op *op)
{
	assert(op == op->stream->first);
	return !op->is_running && !op->is_hung && !blocker_of(op);
}

/* The stream that has to run for @wanted to get done. */
static struct zi_cuda_stream *stream_towards(const struct fake_op *wanted)
{
	const struct fake_op *op = wanted->stream->first;

	/* Each blocker is older than what it blocks: this ends. */
	while (!fake_order_is_ready(op)) {
		const struct fake_op *blocker = blocker_of(op);

		if (!blocker) /* It runs in another thread, or hangs. */
			return NULL;
		assert(blocker->number < op->number);
		op = blocker->stream->first;
	}
	return op->stream;
}

struct zi_cuda_stream *fake_order_draw(void)
{
	struct zi_cuda_stream *drawn = NULL;

	for (struct zi_cuda_stream *stream = fake_streams; stream; stream = stream->next) {
		if (!stream->first || !fake_order_is_ready(stream->first))
			continue;
		if (!stream->urgency)
			stream->urgency = draw_number() | 1;
		if (!drawn || stream->urgency > drawn->urgency)
			drawn = stream;
	}
	if (drawn && draw_number() % URGENCY_CHANGES == 0)
		drawn->urgency = 0;
	return drawn;
}

struct zi_cuda_stream *fake_order_next(const struct fake_op *wanted)
{
	return fake_options()->order == FAKE_LATE ? stream_towards(wanted) : fake_order_draw();
}

uint32_t fake_order_draw_count(void)
{
	if (fake_options()->order != FAKE_SHUFFLED || draw_number() % RUN_CALLS != 0)
		return 0;
	return 1 + draw_number() % RUN_MAX;
}
