/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of votes; see round.h. Floor 5, shard thread. */
#include "daemon/zero/across/talk/round.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

static struct round *round_at(struct rounds *rounds, uint64_t number)
{
	assert(number > rounds->ended);
	assert(number <= rounds->ended + ROUND_RING);
	return &rounds->ring[number % ROUND_RING];
}

/* Up to which number @node has voted. */
static uint64_t voted_of(const struct rounds *rounds, uint32_t node)
{
	return node == rounds->node ? rounds->cast : rounds->heard[node];
}

/* Somebody's first vote in it makes it. */
static struct round *open_round(struct rounds *rounds, uint64_t number, uint32_t kind)
{
	struct round *round = round_at(rounds, number);

	if (round->number != number) {
		round->number = number;
		round->kind = (enum round_kind)kind;
		round->done = NULL;
		round->is_void = false;
		memset(round->votes, 0, rounds->node_count * sizeof(*round->votes));
	}
	return round;
}

/* Who has voted in it for what it is; other than @node. */
static uint32_t voter_of(const struct rounds *rounds, uint64_t number, uint32_t node)
{
	for (uint32_t i = 0; i < rounds->node_count; i++)
		if (i != node && voted_of(rounds, i) >= number)
			return i;
	assert(false && "who has made it has voted in it");
	return node;
}

/* Documented in the header, as are all others. */
int rounds_init(struct rounds *rounds, uint32_t node, uint32_t node_count)
{
	assert(node < node_count);
	assert(node_count <= SUBTREE_NODES_MAX);
	rounds->votes = calloc((size_t)ROUND_RING * node_count, sizeof(*rounds->votes));
	if (!rounds->votes)
		return err_origin(-ENOMEM);
	rounds->node = node;
	rounds->node_count = node_count;
	for (uint32_t i = 0; i < ROUND_RING; i++)
		rounds->ring[i].votes = &rounds->votes[(size_t)i * node_count];
	return 0;
}

void rounds_deinit(struct rounds *rounds)
{
	assert(rounds->cast == rounds->ended);
	free(rounds->votes);
	*rounds = (struct rounds){ .votes = NULL };
}

bool rounds_has_room(const struct rounds *rounds)
{
	return rounds->cast < rounds->ended + ROUND_WINDOW;
}

int rounds_cast(struct rounds *rounds, enum round_kind kind, const struct round_vote *vote,
                round_done_fn done, void *arg, struct talk_entry *ret_entry, uint32_t *ret_other)
{
	uint64_t number = rounds->cast + 1;
	struct round *round;

	assert(done);
	assert(rounds_has_room(rounds));
	assert(vote->data_bytes <= TALK_DATA_BYTES);
	round = open_round(rounds, number, kind);
	round->done = done;
	round->arg = arg;
	rounds->cast = number;
	if (round->kind != kind) {
		round->is_void = true;
		*ret_other = voter_of(rounds, number, rounds->node);
		return ROUND_E_DIFFERS;
	}
	round->votes[rounds->node] = *vote;
	*ret_entry = (struct talk_entry){ .kind = TALK_ROUND,
		                          .what = (uint8_t)kind,
		                          .error = vote->error,
		                          .tag = number,
		                          .data_bytes = vote->data_bytes };
	memcpy(ret_entry->data, vote->data, vote->data_bytes);
	return 0;
}

int rounds_hear(struct rounds *rounds, uint32_t node, const struct talk_entry *entry,
                struct zi_text *text, uint32_t *ret_other)
{
	uint64_t number = rounds->heard[node] + 1;
	struct round *round;
	struct round_vote *vote;

	assert(node != rounds->node);
	assert(node < rounds->node_count);
	if (entry->tag != number || number > rounds->ended + ROUND_RING)
		return err_origin(zi_text_error(
			text, -EPROTO,
			"node %u votes in round %llu: it has voted in %llu, and %llu are over",
			node, (unsigned long long)entry->tag, (unsigned long long)number - 1,
			(unsigned long long)rounds->ended));
	if (!entry->what || entry->what >= _ROUND_KIND_COUNT || entry->error > 0 ||
	    entry->error < -TALK_ERRNO_MAX || entry->data_bytes > TALK_DATA_BYTES)
		return err_origin(zi_text_error(
			text, -EPROTO, "node %u votes of kind %u in round %llu, error %d, %u bytes",
			node, entry->what, (unsigned long long)number, entry->error,
			entry->data_bytes));
	round = open_round(rounds, number, entry->what);
	if (round->kind != entry->what) {
		*ret_other = voter_of(rounds, number, node);
		return ROUND_E_DIFFERS;
	}
	vote = &round->votes[node];
	vote->error = entry->error;
	vote->data_bytes = entry->data_bytes;
	memcpy(vote->data, entry->data, entry->data_bytes);
	rounds->heard[node] = number;
	return 0;
}

static bool is_complete(const struct rounds *rounds, uint64_t number)
{
	if (rounds->is_over || rounds->ring[number % ROUND_RING].is_void)
		return false;
	for (uint32_t i = 0; i < rounds->node_count; i++)
		if (voted_of(rounds, i) < number)
			return false;
	return true;
}

void rounds_end(struct rounds *rounds)
{
	if (rounds->is_ending)
		return;
	rounds->is_ending = true;
	while (is_complete(rounds, rounds->ended + 1)) {
		struct round *round = round_at(rounds, rounds->ended + 1);

		round->done(round->arg, round, 0, NULL);
		rounds->ended++; /* What was cast in between has not taken its place. */
	}
	rounds->is_ending = false;
}

void rounds_fail(struct rounds *rounds, int error, const struct zi_text *text)
{
	assert(error < 0);
	rounds->is_over = true;
	while (rounds->ended < rounds->cast) {
		struct round *round = round_at(rounds, rounds->ended + 1);

		rounds->ended++;
		round->done(round->arg, round, error, text);
	}
}

uint64_t rounds_silent(const struct rounds *rounds, uint64_t *ret_number)
{
	uint64_t nodes = 0;

	if (rounds->cast == rounds->ended)
		return 0;
	for (uint32_t i = 0; i < rounds->node_count; i++)
		nodes |= (uint64_t)(voted_of(rounds, i) <= rounds->ended) << i;
	*ret_number = rounds->ended + 1;
	return nodes;
}

bool rounds_waits_for(const struct rounds *rounds, uint32_t node)
{
	return voted_of(rounds, node) < rounds->cast;
}

uint32_t rounds_kind_of(const struct rounds *rounds, uint32_t node, uint64_t number)
{
	const struct round *round = &rounds->ring[number % ROUND_RING];

	if (number <= rounds->ended || number > voted_of(rounds, node) ||
	    (round->is_void && node == rounds->node))
		return 0;
	return round->kind;
}

/* How much of a sentence a vote has room for, in whole words. */
static uint32_t room_for(const struct zi_text *text)
{
	uint32_t end = TALK_DATA_BYTES;

	if (strlen(text->chars) <= end)
		return (uint32_t)strlen(text->chars);
	while (end > TALK_DATA_BYTES / 2 && text->chars[end] != ' ')
		end--;
	return end > TALK_DATA_BYTES / 2 ? end : TALK_DATA_BYTES;
}

void round_vote_refuse(struct round_vote *vote, int error, const struct zi_text *text)
{
	vote->error = error;
	vote->data_bytes = room_for(text);
	memcpy(vote->data, text->chars, vote->data_bytes);
}

int round_refusal(const struct round *round, uint32_t node_count, struct zi_text *text,
                  uint32_t *ret_node)
{
	for (uint32_t i = 0; i < node_count; i++) {
		const struct round_vote *vote = &round->votes[i];

		if (!vote->error)
			continue;
		*ret_node = i;
		if (!vote->data_bytes)
			return zi_text_error(text, vote->error, "node %u gives no reason", i);
		return zi_text_error(text, vote->error, "%.*s", (int)vote->data_bytes,
		                     (const char *)vote->data);
	}
	return 0;
}

uint32_t round_odd_one(const struct round *round, uint32_t node_count)
{
	const struct round_vote *first = &round->votes[0];
	uint32_t node = 1;

	while (node < node_count && round->votes[node].data_bytes == first->data_bytes &&
	       memcmp(round->votes[node].data, first->data, first->data_bytes) == 0)
		node++;
	return node;
}

const char *round_kind_name(uint32_t kind)
{
	static const char *const names[] = {
		[ROUND_MODEL] = "materialize",
		[ROUND_LAYOUT] = "materialize",
		[ROUND_SEARCH] = "materialize",
		[ROUND_MADE] = "materialize",
		[ROUND_WRITE_END] = "param_write_end",
		[ROUND_COMMIT] = "commit",
		[ROUND_STEP_BEGIN] = "step_begin",
		[ROUND_STEP] = "step",
		[ROUND_BARRIER] = "barrier",
		[ROUND_SUMMED] = "step",
		[ROUND_PREPARED] = "a commit",
		[ROUND_COMMITTED] = "a commit",
		[ROUND_RESUME] = "materialize",
		[ROUND_WRITTEN] = "param_write_end",
		[ROUND_USED] = "step",
		[ROUND_HEAL] = "materialize",
		[ROUND_HEALED] = "materialize",
	};

	return kind < ZI_COUNT_OF(names) && names[kind] ? names[kind] : "?";
}
