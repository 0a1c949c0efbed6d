/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a case of check_coll; see rank.h. */
#include "tests/coll/rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "tests/coll/messages.h"
#include "tests/coll/plain.h"

#define GUARD_BYTES 64u
#define GUARD_BYTE  0xa5
#define PAGE_BYTES  4096u
/* What a target holds before: no result of anything, and not what fresh memory holds. */
#define STALE_BYTE 0x5a

/* A buffer between two guards, in the arena or in memory of its own. */
struct buffer {
	char *data;
	uint64_t bytes;
	char *owned; /* NULL: in the arena */
};

struct pending {
	const struct script_call *call;
	uint32_t members, member, slot;
	bool is_after_break;          /* its group was broken when it was begun */
	struct buffer source, target; /* in place: the longer one holds both */
	struct rank_buffers buffers;
};

struct rank {
	struct rank_link *link;
	const struct script *script;
	struct rank_report *report;
	uint64_t arena_used;
	uint64_t arena_lost; /* others may still write there: a call of theirs has not ended yet */
	struct pending pendings[RANK_PENDING_MAX];
	uint32_t pending_count;
};

/* ---- buffers ---- */

static uint64_t room_for(uint64_t bytes, uint64_t skew_bytes)
{
	return (2 * PAGE_BYTES + skew_bytes + bytes + GUARD_BYTES) / PAGE_BYTES * PAGE_BYTES;
}

/* Misses its page by @skew_bytes. The caller has made sure of the room in the arena. */
static void buffer_init(struct rank *rank, struct buffer *buffer, uint64_t bytes,
                        uint64_t skew_bytes, bool is_outside)
{
	uint64_t room = room_for(bytes, skew_bytes);
	char *room_begin;

	*buffer = (struct buffer){ .bytes = bytes };
	if (is_outside) {
		buffer->owned = aligned_alloc(PAGE_BYTES, room);
		if (!buffer->owned)
			abort();
		room_begin = buffer->owned;
	} else {
		room_begin = rank->link->arena + rank->arena_used;
		rank->arena_used += room;
	}
	/* Without a skew data begin on a page, and the guard before them is the page before. */
	buffer->data = room_begin + PAGE_BYTES + skew_bytes;
	memset(buffer->data - GUARD_BYTES, GUARD_BYTE, GUARD_BYTES);
	memset(buffer->data, STALE_BYTE, bytes);
	memset(buffer->data + bytes, GUARD_BYTE, GUARD_BYTES);
}

static bool buffer_is_guarded(const struct buffer *buffer)
{
	if (!buffer->data)
		return true;
	for (uint32_t i = 0; i < GUARD_BYTES; i++)
		if ((uint8_t)buffer->data[-1 - (int)i] != GUARD_BYTE ||
		    (uint8_t)buffer->data[buffer->bytes + i] != GUARD_BYTE)
			return false;
	return true;
}

static void buffer_free(struct buffer *buffer)
{
	free(buffer->owned);
	*buffer = (struct buffer){ 0 };
}

/* ---- calls ---- */

static int fail(struct rank *rank, const struct script_call *call, const char *words)
{
	if (rank->report->call < 0) {
		rank->report->call = (int32_t)(call - rank->script->calls);
		(void)snprintf(rank->report->words, sizeof rank->report->words, "%s", words);
	}
	return 1;
}

static bool is_breakable(const struct rank *rank, const struct script_call *call)
{
	return rank->link->breakable_groups >> call->group & 1u;
}

static int fail_with(struct rank *rank, const struct script_call *call, int result)
{
	struct rank_report *report = rank->report;
	char words[360];

	if (is_breakable(rank, call) && result == rank->link->ends_with) {
		if (!report->broken_groups)
			(void)snprintf(report->words, sizeof report->words, "%s",
			               rank->link->words(rank->link));
		if (!(report->broken_groups >> call->group & 1u))
			rank->arena_lost = rank->arena_used;
		report->broken_groups |= 1u << call->group;
		return 0;
	}
	(void)snprintf(words, sizeof words, "%s: %s", strerror(-result),
	               rank->link->words(rank->link));
	return fail(rank, call, words);
}

/* As if the engine had been wrong once. */
static void lie(const struct rank *rank, struct pending *pending)
{
	const struct script_call *call = pending->call;
	struct plain_lengths lengths = plain_lengths(call, pending->members, pending->member);
	uint64_t width = zi_dtype_bytes(call->dtype);
	char *target = pending->buffers.target, *source = pending->buffers.source;

	if (rank->link->lie == RANK_FLIPS && target)
		target[lengths.target_elements * width / 2] ^= 4;
	if (rank->link->lie == RANK_LEAVES && target)
		memset(target + (lengths.target_elements - 1) * width, STALE_BYTE, width);
	if (rank->link->lie == RANK_SPOILS && source && !call->is_in_place)
		source[lengths.source_elements * width - 1] ^= 1;
	if (rank->link->lie == RANK_SPILLS && pending->target.data)
		pending->target.data[pending->target.bytes] = 0;
}

/* The call is over: what is in the buffers? */
static int compare(struct rank *rank, struct pending *pending)
{
	const struct script_call *call = pending->call;
	uint64_t bits[2], index;
	char words[200];

	lie(rank, pending);
	if (!buffer_is_guarded(&pending->source) || !buffer_is_guarded(&pending->target))
		return fail(rank, call, "something was written beside a buffer");
	if (!call->is_in_place && pending->buffers.source &&
	    !plain_is_source(pending->buffers.source, call, pending->members, pending->member))
		return fail(rank, call, "the source is not what it was");
	if (!pending->buffers.target)
		return 0;
	index = plain_compare(pending->buffers.target, call, pending->members, pending->member,
	                      bits);
	if (index == UINT64_MAX)
		return 0;
	(void)snprintf(words, sizeof words,
	               "element %llu of the target is 0x%llx, should be 0x%llx",
	               (unsigned long long)index, (unsigned long long)bits[0],
	               (unsigned long long)bits[1]);
	return fail(rank, call, words);
}

static void pending_free(struct pending *pending)
{
	buffer_free(&pending->source);
	buffer_free(&pending->target);
}

/* All that were begun, oldest first; then the arena is free again. */
static int settle(struct rank *rank)
{
	int result = 0;

	for (uint32_t i = 0; i < rank->pending_count; i++) {
		struct pending *pending = &rank->pendings[i];
		int r = pending->call->is_async ? rank->link->wait(rank->link, pending->slot) : 0;

		if (r)
			result |= fail_with(rank, pending->call, r);
		else if (pending->is_after_break)
			result |= fail(rank, pending->call, "its group was broken already");
		else if (!result)
			result = compare(rank, pending);
	}
	for (uint32_t i = 0; i < rank->pending_count; i++)
		pending_free(&rank->pendings[i]);
	rank->pending_count = 0;
	rank->arena_used = rank->arena_lost;
	return result;
}

/* Buffers of a call, filled. */
static void prepare(struct rank *rank, struct pending *pending)
{
	const struct script_call *call = pending->call;
	struct plain_lengths lengths = plain_lengths(call, pending->members, pending->member);
	uint64_t width = zi_dtype_bytes(call->dtype), skew = call->skew * width;
	uint64_t source_bytes = lengths.source_elements * width;
	uint64_t target_bytes = lengths.target_elements * width;
	bool is_in_place = call->is_in_place && lengths.source_elements && lengths.target_elements;
	bool is_source_outside = call->sources_outside >> rank->link->rank & 1u;
	bool is_target_outside = call->targets_outside >> rank->link->rank & 1u;

	if (is_in_place) {
		uint64_t own = lengths.own_offset * width;

		buffer_init(rank, &pending->source, ZI_MAX(source_bytes, target_bytes), skew,
		            is_source_outside);
		pending->buffers.source = pending->source.data + (lengths.is_target_long ? own : 0);
		pending->buffers.target = pending->source.data + (lengths.is_target_long ? 0 : own);
	} else {
		if (lengths.source_elements) {
			buffer_init(rank, &pending->source, source_bytes, skew, is_source_outside);
			pending->buffers.source = pending->source.data;
		}
		if (lengths.target_elements) {
			buffer_init(rank, &pending->target, target_bytes, skew, is_target_outside);
			pending->buffers.target = pending->target.data;
		}
	}
	if (pending->buffers.source)
		plain_fill(pending->buffers.source, call, pending->members, pending->member);
	for (uint32_t i = 0; i < pending->members; i++) {
		pending->buffers.source_counts[i] = plain_uneven(call, pending->member, i);
		pending->buffers.target_counts[i] = plain_uneven(call, i, pending->member);
	}
}

/* Bytes of the arena that a call can need. */
static uint64_t need_of(const struct script_call *call, uint32_t members, uint32_t member)
{
	struct plain_lengths lengths = plain_lengths(call, members, member);
	uint64_t width = zi_dtype_bytes(call->dtype), skew = call->skew * width;

	return room_for(lengths.source_elements * width, skew) +
	       room_for(lengths.target_elements * width, skew);
}

static int begin(struct rank *rank, const struct script_call *call)
{
	uint32_t members = script_member_count(rank->script, call);
	uint32_t member = script_member_of(rank->script, call, rank->link->rank);
	uint64_t need = need_of(call, members, member);
	struct pending *pending;
	int r = 0;

	if (rank->pending_count == RANK_PENDING_MAX ||
	    need > rank->link->arena_bytes - rank->arena_used)
		r = settle(rank);
	if (r)
		return r;
	if (need > rank->link->arena_bytes - rank->arena_used)
		return fail(rank, call, "the arena is too small for this call");
	pending = &rank->pendings[rank->pending_count];
	*pending = (struct pending){
		.call = call,
		.members = members,
		.member = member,
		.slot = rank->pending_count++,
		.is_after_break = rank->report->broken_groups >> call->group & 1u,
	};
	prepare(rank, pending);
	__atomic_fetch_add(&rank->report->progress, 1, __ATOMIC_RELAXED);
	r = rank->link->call(rank->link, rank->script, call, &pending->buffers, pending->slot);
	if (!r)
		return 0;
	rank->pending_count--;
	r = fail_with(rank, call, r);
	pending_free(pending);
	return r;
}

/* Whether @rank has anything to do with @call. */
static bool is_concerned(const struct script *script, const struct script_call *call, uint32_t rank)
{
	uint32_t member = script_member_of(script, call, rank);

	return member != UINT32_MAX &&
	       messages_concern(call, script_member_count(script, call), member);
}

uint32_t rank_call_count(const struct script *script, uint32_t rank)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < script->call_count; i++)
		count += is_concerned(script, &script->calls[i], rank);
	return count;
}

/* Whether this rank makes call @index. */
static bool makes(const struct rank *rank, uint32_t index)
{
	const struct script_call *call = &rank->script->calls[index];

	return is_concerned(rank->script, call, rank->link->rank) &&
	       !(is_breakable(rank, call) && index >= rank->link->absent_from);
}

int rank_run(struct rank_link *link, const struct script *script, struct rank_report *report)
{
	struct rank rank = { .link = link, .script = script, .report = report };
	int result = 0;

	*report = (struct rank_report){ .call = -1 };
	for (uint32_t i = 0; i < script->call_count && !result; i++)
		if (makes(&rank, i))
			result = begin(&rank, &script->calls[i]);
	return settle(&rank) || result;
}
