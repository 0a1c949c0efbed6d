/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member refuses before it posts a call. Floor 2.
 *
 * A refusal is posted as well (call.c): peers that have come, or come later, have it as their error
 * at once, rather than a deadline's.
 */
#include "libclient/coll/node/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/wire/verdict.h"
#include "libclient/coll/node/members.h"

static int check_kind(const struct zi_node_group *group, const struct zi_node_call *call,
                      struct zi_text *text)
{
	const char *name = zi_coll_shape_of(call->operation)->name;
	uint32_t members = zi_node_members(group);

	if (!zi_coll_is_collective(call->operation))
		return zi_text_error(text, -EINVAL, "operation %u does not exist", call->operation);
	if (!zi_coll_has_data(call->operation))
		return 0;
	if (call->dtype < ZI_DTYPE_F32 || call->dtype >= _ZI_DTYPE_COUNT)
		return zi_text_error(text, -EINVAL, "%s: dtype %u does not exist", name,
		                     call->dtype);
	if (zi_coll_is_rooted(call->operation) && call->root >= members)
		return zi_text_error(text, -EINVAL, "%s: root %u of a group of %u members", name,
		                     call->root, members);
	if (!zi_coll_is_join(call->operation))
		return 0;
	if (call->reduce_op < ZI_REDUCE_SUM || call->reduce_op >= _ZI_REDUCE_COUNT)
		return zi_text_error(text, -EINVAL, "%s: reduction %u does not exist", name,
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
		return err_origin(zi_text_error(text, -EINVAL, "%s: dtype %u does not exist", name,
		                                p2p->dtype));
	if (!zi_checked_mul(p2p->element_count, zi_dtype_bytes(p2p->dtype), &bytes))
		return err_origin(zi_text_error(
			text, -EOVERFLOW, "%s of %" PRIu64 " × %s: the size overflows 64 bits",
			name, p2p->element_count, zi_dtype_name(p2p->dtype)));
	r = check_buffer(name, "buffer", p2p->buffer, bytes, p2p->dtype, text);
	return r ? err_origin(r) : 0;
}
