/* SPDX-License-Identifier: Apache-2.0 */
/* One collective call inside a node; see node.h. Floor 2. */
#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "libclient/coll/node.h"

/* The world, then 63 groups; whole pages. */
#define NODE_WORLD_STAGING_BYTES (4ull << 20)
#define NODE_GROUP_STAGING_BYTES (192ull << 10)

/* ---- how long things are, and who has them ---- */

struct lengths {
	uint64_t source_bytes, target_bytes; /* of a member that has one */
	bool is_source_root, is_target_root; /* the root alone has one */
};

static int lengths_of(const struct zi_node_call *call, uint32_t members, struct lengths *ret)
{
	struct lengths lengths = { 0 };
	uint64_t block, blocks;

	if (call->operation == ZI_COLL_BARRIER) {
		*ret = lengths;
		return 0;
	}
	if (!zi_checked_mul(call->element_count, zi_dtype_bytes(call->dtype), &block) ||
	    !zi_checked_mul(block, members, &blocks))
		return -EOVERFLOW;
	lengths.source_bytes = lengths.target_bytes = block;
	switch (call->operation) {
	case ZI_COLL_REDUCE_SCATTER:
		lengths.source_bytes = blocks;
		break;
	case ZI_COLL_ALL_GATHER:
		lengths.target_bytes = blocks;
		break;
	case ZI_COLL_GATHER:
		lengths.target_bytes = blocks;
		lengths.is_target_root = true;
		break;
	case ZI_COLL_REDUCE:
		lengths.is_target_root = true;
		break;
	case ZI_COLL_BROADCAST:
		lengths.is_source_root = true;
		break;
	case ZI_COLL_SCATTER:
		lengths.source_bytes = blocks;
		lengths.is_source_root = true;
		break;
	case ZI_COLL_ALL_TO_ALL:
		lengths.source_bytes = lengths.target_bytes = blocks;
		break;
	default:
		break;
	}
	*ret = lengths;
	return 0;
}

/* ---- posts ---- */

static uint64_t place_of(const struct zi_node_group *group, const void *pointer)
{
	uint64_t offset = (uint64_t)((const char *)pointer - group->arenas);

	if (!pointer || offset >= group->arenas_bytes)
		return ZI_BOARD_NOWHERE;
	return offset;
}

static void post(struct zi_node_group *group, const struct zi_node_call *call,
                 const struct lengths *lengths, bool is_inline)
{
	bool has_source = !lengths->is_source_root || group->meet.self == call->root;
	struct zi_board_call said = {
		.operation = (uint8_t)call->operation,
		.dtype = (uint8_t)call->dtype,
		.reduce_op = (uint8_t)call->reduce_op,
		.root = call->root,
		.element_count = call->element_count,
		.source = ZI_BOARD_NOWHERE,
		.target = ZI_BOARD_NOWHERE,
	};

	if (!is_inline) {
		said.source = place_of(group, call->source);
		said.target = place_of(group, call->target);
	}
	zi_meet_post(&group->meet, group->sequence, &said, call->source,
	             is_inline && has_source ? (uint32_t)lengths->source_bytes : 0);
}

/* -EINVAL: @member calls something else. */
static int compare(const struct zi_node_group *group, const struct zi_node_call *call,
                   uint32_t member, struct zi_text *text)
{
	const struct zi_board_call *other =
		&zi_meet_post_of(&group->meet, member, group->sequence)->call;

	if (other->operation == call->operation && other->dtype == call->dtype &&
	    other->reduce_op == call->reduce_op && other->root == call->root &&
	    other->element_count == call->element_count)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"call %u: rank %u calls %s of %llu × %s (%s, root %u), rank %u %s of %llu × %s "
		"(%s, root %u)",
		group->sequence, group->meet.self, zi_coll_operation_name(call->operation),
		(unsigned long long)call->element_count, zi_dtype_name(call->dtype),
		zi_reduce_op_name(call->reduce_op), call->root, member,
		zi_coll_operation_name((enum zi_coll_operation)other->operation),
		(unsigned long long)other->element_count,
		zi_dtype_name((enum zi_dtype)other->dtype),
		zi_reduce_op_name((enum zi_reduce_op)other->reduce_op), other->root));
}

/* A peer's word is taken only as far as it lies in the arenas. */
static void *place_at(const struct zi_node_group *group, uint64_t place, uint64_t bytes)
{
	if (bytes > group->arenas_bytes || place > group->arenas_bytes - bytes)
		return NULL;
	return group->arenas + place;
}

static int take_places(const struct zi_node_group *group, const struct zi_node_call *call,
                       const struct lengths *lengths, uint32_t member,
                       struct zi_node_places *places)
{
	const struct zi_board_post *post = zi_meet_post_of(&group->meet, member, group->sequence);
	bool has_source = !lengths->is_source_root || member == call->root;
	bool has_target = !lengths->is_target_root || member == call->root;

	if (places->is_inline) {
		places->sources[member] = zi_meet_payload_of(&group->meet, member, group->sequence);
		places->targets[member] = member == group->meet.self ? call->target : NULL;
		return has_source && post->payload_bytes != lengths->source_bytes ? -EPROTO : 0;
	}
	places->sources[member] =
		has_source ? place_at(group, post->call.source, lengths->source_bytes) : NULL;
	places->targets[member] =
		has_target && post->call.target != ZI_BOARD_NOWHERE
			? place_at(group, post->call.target, lengths->target_bytes)
			: NULL;
	if ((has_source && !places->sources[member]) ||
	    (has_target && !places->targets[member] &&
	     !(call->operation == ZI_COLL_BROADCAST && member == call->root)))
		return -EFAULT;
	return 0;
}

int zi_node_call(struct zi_node_group *group, const struct zi_node_call *call, struct zi_text *text)
{
	struct zi_meet *meet = &group->meet;
	struct zi_node_places places;
	struct lengths lengths;
	int r = lengths_of(call, meet->member_count, &lengths);

	if (r)
		return err_origin(zi_text_error(text, r,
		                                "%s of %llu × %s by %u ranks: the size "
		                                "overflows 64 bits",
		                                zi_coll_operation_name(call->operation),
		                                (unsigned long long)call->element_count,
		                                zi_dtype_name(call->dtype), meet->member_count));
	places.is_inline = lengths.source_bytes <= ZI_BOARD_INLINE_BYTES;
	group->sequence++;
	post(group, call, &lengths, places.is_inline);
	for (uint32_t i = 0; i < meet->member_count && !r; i++) {
		if (i != meet->self)
			r = zi_meet_wait_post(meet, i, group->sequence, call->deadline_ns);
		if (!r)
			r = compare(group, call, i, text);
		if (!r)
			r = take_places(group, call, &lengths, i, &places);
	}
	if (r)
		return err_trace(r);
	if (call->operation >= ZI_COLL_ALL_REDUCE && call->operation <= ZI_COLL_REDUCE_SCATTER)
		zi_node_join(group, call, &places);
	else if (call->operation != ZI_COLL_BARRIER)
		zi_node_move(group, call, &places);
	if (places.is_inline)
		return 0;
	zi_meet_finish(meet, group->sequence);
	return err_trace(zi_meet_wait_finished(meet, group->sequence, call->deadline_ns));
}

int zi_node_batch(struct zi_node_group *group, struct zi_node_p2p *p2ps, uint32_t p2p_count,
                  uint64_t deadline_ns, struct zi_text *text)
{
	(void)group;
	(void)p2ps;
	(void)deadline_ns;
	return err_origin(zi_text_error(text, -EOPNOTSUPP, "a batch of %u messages", p2p_count));
}

void zi_node_staging(uint32_t number, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	*ret_offset =
		number ? NODE_WORLD_STAGING_BYTES + (number - 1) * NODE_GROUP_STAGING_BYTES : 0;
	*ret_bytes = number ? NODE_GROUP_STAGING_BYTES : NODE_WORLD_STAGING_BYTES;
	assert(*ret_offset + *ret_bytes <= ZI_COLL_STAGING_BYTES);
}
