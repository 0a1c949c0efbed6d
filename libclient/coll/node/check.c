/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member refuses before it posts a call, and in what calls of members differ. Floor 2.
 *
 * A refusal is posted as well (call.c): peers that have come, or come later, have it as their error
 * at once, rather than a deadline's.
 */
#include "libclient/coll/node/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/members.h"
#include "libclient/coll/node/posts.h"

/* ---- words ---- */

/* One that this version does not know, as a later one may have it, by its number. */
static struct zi_node_words words_of_dtype(uint32_t dtype)
{
	struct zi_node_words words;

	if (dtype >= ZI_DTYPE_F32 && dtype < _ZI_DTYPE_COUNT)
		(void)snprintf(words.chars, sizeof(words), "%s",
		               zi_dtype_name((enum zi_dtype)dtype));
	else
		(void)snprintf(words.chars, sizeof(words), "dtype %u", dtype); /* Fits. */
	return words;
}

struct zi_node_words zi_node_words_of(const struct zi_board_call *call)
{
	const char *name = zi_coll_operation_name(call->operation);
	struct zi_node_words words, dtype_words = words_of_dtype(call->dtype);
	const char *dtype = dtype_words.chars;
	int bytes;

	/* 96 bytes hold the longest of each. */
	if (!zi_coll_is_collective(call->operation))
		bytes = snprintf(words.chars, sizeof(words), "operation %u", call->operation);
	else if (call->operation == ZI_COLL_BARRIER)
		bytes = snprintf(words.chars, sizeof(words), "%s", name);
	else if (zi_coll_is_counted(call->operation))
		bytes = snprintf(words.chars, sizeof(words), "%s of %s", name, dtype);
	else
		bytes = snprintf(words.chars, sizeof(words), "%s of %" PRIu64 " × %s", name,
		                 call->element_count, dtype);
	if (zi_coll_is_join(call->operation))
		bytes += snprintf(words.chars + bytes, sizeof(words) - (size_t)bytes, " (%s)",
		                  zi_reduce_op_name((enum zi_reduce_op)call->reduce_op));
	if (zi_coll_is_rooted(call->operation))
		(void)snprintf(words.chars + bytes, sizeof(words) - (size_t)bytes, ", root %u",
		               call->root);
	return words;
}

struct zi_board_call zi_node_board_call(const struct zi_node_call *call)
{
	struct zi_board_call said = { .operation = (uint8_t)call->operation,
		                      .source = ZI_BOARD_NOWHERE,
		                      .target = ZI_BOARD_NOWHERE };

	if (!zi_coll_has_data(call->operation))
		return said;
	said.dtype = (uint8_t)call->dtype;
	if (!zi_coll_is_counted(call->operation))
		said.element_count = call->element_count;
	if (zi_coll_is_join(call->operation))
		said.reduce_op = (uint8_t)call->reduce_op;
	if (zi_coll_is_rooted(call->operation))
		said.root = call->root;
	return said;
}

/* ---- what is wrong with a call ---- */

static int check_kind(const struct zi_node_group *group, const struct zi_node_call *call,
                      struct zi_text *text)
{
	const char *name = zi_coll_shape_of(call->operation)->name;
	uint32_t members = zi_node_members(group);

	if (!zi_coll_is_collective(call->operation))
		return zi_text_error(text, -EINVAL, "operation %u is none", call->operation);
	if (!zi_coll_has_data(call->operation))
		return 0;
	if (call->dtype < ZI_DTYPE_F32 || call->dtype >= _ZI_DTYPE_COUNT)
		return zi_text_error(text, -EINVAL, "%s: dtype %u is none", name, call->dtype);
	if (zi_coll_is_rooted(call->operation) && call->root >= members)
		return zi_text_error(text, -EINVAL, "%s: root %u of a group of %u members", name,
		                     call->root, members);
	if (!zi_coll_is_join(call->operation))
		return 0;
	if (call->reduce_op < ZI_REDUCE_SUM || call->reduce_op >= _ZI_REDUCE_COUNT)
		return zi_text_error(text, -EINVAL, "%s: reduction %u is none", name,
		                     call->reduce_op);
	if (!zi_reduce_op_is_for(call->reduce_op, call->dtype))
		return zi_text_error(text, -EINVAL, "%s: there is no %s of %s, which is %s%s", name,
		                     zi_reduce_op_name(call->reduce_op), zi_dtype_name(call->dtype),
		                     zi_dtype_is_float(call->dtype) ? "a float" : "an integer",
		                     call->reduce_op == ZI_REDUCE_AVG
		                             ? ": ask for the sum, and divide as you like"
		                             : "");
	return 0;
}

/* How long things are, and who has them. */
static int check_lengths(struct zi_node_group *group, const struct zi_node_call *call,
                         struct zi_text *text)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	struct zi_coll_lengths lengths = { .operation = call->operation,
		                           .member_count = zi_node_members(group),
		                           .element_count = call->element_count,
		                           .source_counts = call->source_counts,
		                           .target_counts = call->target_counts };
	bool is_counted = zi_coll_is_counted(call->operation);
	struct zi_node_run *run = &group->run;

	run->with_source = zi_coll_holders(&shape->source, zi_node_everyone(group), call->root);
	run->with_target = zi_coll_holders(&shape->target, zi_node_everyone(group), call->root);
	if (!zi_coll_has_data(call->operation))
		return 0;
	lengths.width = zi_dtype_bytes(call->dtype);
	if (is_counted && (!call->source_counts || !call->target_counts))
		return zi_text_error(text, -EINVAL,
		                     "%s without counts: it needs %u to and %u from the members",
		                     shape->name, lengths.member_count, lengths.member_count);
	if (zi_coll_bytes(&lengths, &run->source_bytes, &run->target_bytes))
		return 0;
	if (is_counted)
		return zi_text_error(text, -EOVERFLOW,
		                     "%s: the sum of the counts of %s overflows 64 bits",
		                     shape->name, zi_dtype_name(call->dtype));
	return zi_text_error(text, -EOVERFLOW,
	                     "%s of %" PRIu64 " × %s by %u members: the size overflows 64 bits",
	                     shape->name, call->element_count, zi_dtype_name(call->dtype),
	                     lengths.member_count);
}

/* A buffer that is there, aligned, and does not wrap around. */
static int check_buffer(const char *name, const char *role, const void *buffer, uint64_t bytes,
                        enum zi_dtype dtype, struct zi_text *text)
{
	uint32_t width = zi_dtype_bytes(dtype);

	if (!bytes)
		return 0;
	if (!buffer)
		return zi_text_error(text, -EINVAL, "%s: no %s, of %" PRIu64 " bytes", name, role,
		                     bytes);
	if ((uintptr_t)buffer % width)
		return zi_text_error(text, -EINVAL,
		                     "%s: the %s at %p is not aligned to the %u bytes of %s", name,
		                     role, buffer, width, zi_dtype_name(dtype));
	if (bytes > UINTPTR_MAX - (uintptr_t)buffer)
		return zi_text_error(text, -EOVERFLOW,
		                     "%s: a %s of %" PRIu64 " bytes at %p ends past the address "
		                     "space",
		                     name, role, bytes, buffer);
	return 0;
}

/* In place: buffers of one length are the same, else the shorter is the own block of the longer. */
static bool may_overlap(const struct zi_node_group *group, const struct zi_node_call *call)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);
	const char *source = call->source, *target = call->target;
	uint64_t bytes = call->element_count * zi_dtype_bytes(call->dtype) * zi_node_self(group);

	if (zi_coll_is_counted(call->operation))
		return false;
	if (shape->source.blocks == shape->target.blocks)
		return source == target;
	return zi_coll_is_for_each(&shape->source) ? target == source + bytes
	                                           : source == target + bytes;
}

static int check_overlap(const struct zi_node_group *group, const struct zi_node_call *call,
                         struct zi_text *text)
{
	const struct zi_node_run *run = &group->run;
	const char *source = call->source, *target = call->target;

	if (!run->source_bytes || !run->target_bytes || source + run->source_bytes <= target ||
	    target + run->target_bytes <= source || may_overlap(group, call))
		return 0;
	return zi_text_error(text, -EINVAL,
	                     "%s: the source (%p, %" PRIu64 " bytes) and the target (%p, %" PRIu64
	                     " bytes) overlap otherwise than in place",
	                     zi_coll_operation_name(call->operation), call->source,
	                     run->source_bytes, call->target, run->target_bytes);
}

int zi_node_check(struct zi_node_group *group, const struct zi_node_call *call,
                  struct zi_text *text)
{
	const char *name =
		zi_coll_shape_of(call->operation)->name; /* of none check_kind() says so */
	struct zi_node_run *run = &group->run;
	bool has_source, has_target;
	int r;

	run->source_bytes = run->target_bytes = 0;
	if (call->refused) {
		assert(zi_verdict_is_refusal(call->refused));
		return err_origin(zi_text_error(text, call->refused, "%s", call->reason));
	}
	r = check_kind(group, call, text);
	if (!r)
		r = check_lengths(group, call, text);
	if (r)
		return err_origin(r);
	has_source = zi_node_has(run->with_source, zi_node_self(group));
	has_target = zi_node_has(run->with_target, zi_node_self(group));
	if (has_source)
		r = check_buffer(name, "source", call->source, run->source_bytes, call->dtype,
		                 text);
	if (!r && has_target)
		r = check_buffer(name, "target", call->target, run->target_bytes, call->dtype,
		                 text);
	if (!r && has_source && has_target)
		r = check_overlap(group, call, text);
	return r ? err_origin(r) : 0;
}

int zi_node_check_p2p(const struct zi_node_group *group, const struct zi_node_p2p *p2p,
                      struct zi_text *text)
{
	const char *name = p2p->is_send ? "send" : "recv";
	uint64_t bytes;
	int r;

	if (p2p->peer >= zi_node_members(group))
		return err_origin(zi_text_error(text, -EINVAL,
		                                "%s: peer %u of a group of %u members", name,
		                                p2p->peer, zi_node_members(group)));
	if (p2p->dtype < ZI_DTYPE_F32 || p2p->dtype >= _ZI_DTYPE_COUNT)
		return err_origin(
			zi_text_error(text, -EINVAL, "%s: dtype %u is none", name, p2p->dtype));
	if (!zi_checked_mul(p2p->element_count, zi_dtype_bytes(p2p->dtype), &bytes))
		return err_origin(zi_text_error(
			text, -EOVERFLOW, "%s of %" PRIu64 " × %s: the size overflows 64 bits",
			name, p2p->element_count, zi_dtype_name(p2p->dtype)));
	r = check_buffer(name, "buffer", p2p->buffer, bytes, p2p->dtype, text);
	return r ? err_origin(r) : 0;
}

/* ---- what differs ---- */

/* A peer's text ends somewhere. */
static int say_refused(const struct zi_node_group *group, uint32_t sequence, uint32_t member,
                       const struct zi_board_call *other, struct zi_text *text)
{
	const struct zi_board_post *post = zi_meet_post_of(&group->meet, member, sequence);
	struct zi_text reason = { "" };
	int error = zi_verdict_is_refusal(-(int)other->root) ? -(int)other->root : -EINVAL;
	uint32_t bytes = post->payload_bytes;

	if (bytes > sizeof(reason) - 1)
		bytes = sizeof(reason) - 1;
	memcpy(reason.chars, zi_meet_payload_of(&group->meet, member, sequence, bytes), bytes);
	return err_origin(zi_text_error(text, error, "call %u: member %u refuses it: %s", sequence,
	                                member, reason.chars));
}

static bool is_same(const struct zi_board_call *a, const struct zi_board_call *b)
{
	return a->operation == b->operation && a->dtype == b->dtype &&
	       a->reduce_op == b->reduce_op && a->root == b->root &&
	       a->element_count == b->element_count;
}

int zi_node_compare(const struct zi_node_group *group, uint32_t sequence, uint32_t member,
                    const struct zi_board_call *other, struct zi_text *text, bool *ret_differs)
{
	*ret_differs = false;
	if (other->flags & ZI_BOARD_REFUSED)
		return say_refused(group, sequence, member, other, text);
	*ret_differs = !is_same(other, zi_node_said(group, sequence));
	return 0;
}

/* What those who have come call, copied: a peer's memory may change. Return: their bits. */
static uint64_t copy_calls(const struct zi_node_group *group, uint32_t sequence,
                           struct zi_board_call ret_calls[ZI_WORLD_MAX])
{
	const struct zi_meet *meet = &group->meet;
	uint64_t come = 0;

	for (uint32_t i = 0; i < meet->member_count; i++) {
		const struct zi_board_post *post = zi_meet_post_of(meet, i, sequence);

		if (i == meet->self)
			ret_calls[i] = *zi_node_said(group, sequence);
		else if (zi_meet_has_come(&post->sequence, sequence))
			ret_calls[i] = post->call;
		else
			continue;
		come |= 1ull << i;
	}
	return come;
}

/* The member whose call most of @come make, the first of several; and of how many. */
static uint32_t find_model(const struct zi_board_call calls[ZI_WORLD_MAX], uint64_t come,
                           uint32_t *ret_count)
{
	uint32_t model = 0;

	*ret_count = 0;
	for (uint64_t left = come; left; left &= left - 1) {
		uint32_t member = (uint32_t)__builtin_ctzll(left), count = 0;

		for (uint64_t others = come; others; others &= others - 1)
			count += is_same(&calls[__builtin_ctzll(others)], &calls[member]);
		if (count <= *ret_count)
			continue;
		*ret_count = count;
		model = member;
	}
	return model;
}

/* Everybody who comes may be the one by whom most call the same. Those who did not come in time are
 * who is named then. */
static int want_all(struct zi_node_group *group, uint32_t sequence, uint64_t come,
                    struct zi_meet_wants *wants)
{
	uint64_t absent = zi_node_everyone(group) & ~come;

	group->run.member = (uint32_t)__builtin_ctzll(absent);
	for (; absent; absent &= absent - 1)
		zi_meet_want(
			wants, &group->meet,
			&zi_meet_post_of(&group->meet, (uint32_t)__builtin_ctzll(absent), sequence)
				 ->sequence,
			sequence);
	return ZI_NODE_E_WAITS;
}

int zi_node_tell_apart(struct zi_node_group *group, uint32_t sequence, struct zi_meet_wants *wants,
                       struct zi_text *text)
{
	struct zi_board_call calls[ZI_WORLD_MAX];
	uint64_t come = copy_calls(group, sequence, calls);
	uint32_t count, model, odd;

	for (uint64_t left = come; left; left &= left - 1) {
		odd = (uint32_t)__builtin_ctzll(left);
		if (odd == group->meet.self || !(calls[odd].flags & ZI_BOARD_REFUSED))
			continue;
		group->culprit = odd;
		return err_trace(say_refused(group, sequence, odd, &calls[odd], text));
	}
	model = find_model(calls, come, &count);
	if (come != zi_node_everyone(group) && count <= group->meet.member_count / 2)
		return want_all(group, sequence, come, wants);
	for (odd = 0; odd < group->meet.member_count; odd++)
		if (come >> odd & 1 && !is_same(&calls[odd], &calls[model]))
			break;
	group->culprit = odd;
	if (odd == group->meet.member_count)
		return err_origin(zi_text_error(text, -EPROTO,
		                                "call %u: what a member posted has changed: its "
		                                "memory is damaged",
		                                sequence));
	return err_origin(zi_text_error(text, -EINVAL, "call %u: member %u calls %s, member %u %s",
	                                sequence, odd, zi_node_words_of(&calls[odd]).chars, model,
	                                zi_node_words_of(&calls[model]).chars));
}

int zi_node_compare_counts(const struct zi_node_group *group, struct zi_text *text)
{
	const struct zi_meet *meet = &group->meet;
	uint32_t members = meet->member_count;
	const uint64_t *counts[ZI_WORLD_MAX];

	for (uint32_t i = 0; i < members; i++)
		counts[i] = zi_meet_payload_of(meet, i, group->sequence,
		                               ZI_BOARD_COUNTS_BYTES(members));
	for (uint32_t from = 0; from < members; from++)
		for (uint32_t to = 0; to < members; to++)
			if (counts[from][to] != counts[to][members + from])
				return err_origin(zi_text_error(
					text, -EINVAL,
					"call %u, all_to_allv: member %u sends %" PRIu64
					" elements to member %u, which takes %" PRIu64,
					group->sequence, from, counts[from][to], to,
					counts[to][members + from]));
	return 0;
}
