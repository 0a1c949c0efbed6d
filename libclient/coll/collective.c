/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of zinf/coll.h; see collective.h. Floor 2. */
#include <string.h>

#include "common/base/err.h"
#include "libclient/coll/collective.h"
#include "libclient/sized.h"

static int check_options(struct zinf *zinf, const struct zinf_coll_options *options)
{
	static const struct zi_sized sized = { "options", "ZINF_COLL_OPTIONS_INIT",
		                               sizeof(*options),
		                               offsetof(struct zinf_coll_options, reserved) };
	int r = zi_client_check_sized(&sized, options, &zinf->text);

	if (!r && options->reserved0)
		return zi_client_error(zinf, -EINVAL, "zinf_coll_options.reserved0 is set");
	return err_trace(r);
}

/* What others have nothing to do with is not looked at. */
static void drop_unused(struct zi_node_call *call, uint32_t self)
{
	const struct zi_coll_shape *shape = zi_coll_shape_of(call->operation);

	if (!zi_coll_is_holder(&shape->source, self, call->root))
		call->source = NULL;
	if (!zi_coll_is_holder(&shape->target, self, call->root))
		call->target = NULL;
}

int zi_client_coll_begin(struct zinf *zinf, const struct zinf_coll_options *options,
                         struct zi_client_call **ret_call)
{
	struct zi_client_group *group;
	int r = zi_client_coll_enter(zinf);

	if (!r && options)
		r = check_options(zinf, options);
	if (!r)
		r = zi_client_group_find(zinf, options ? options->group : ZINF_GROUP_WORLD, &group);
	if (!r && group->interrupted) {
		*ret_call = group->interrupted;
		return 0;
	}
	if (!r)
		r = zi_client_group_look(zinf, group);
	if (!r)
		r = zi_client_call_new(zinf, group, options, ret_call);
	return err_trace(r);
}

int zi_client_coll_make(struct zinf *zinf, struct zi_client_call *call,
                        const struct zinf_coll_options *options)
{
	/* A refusal is a call as well: the others hear of it instead of waiting. */
	if (!call->op.call.refused)
		call->op.call.refused = zi_client_coll_reach(zinf, call, &call->reason);
	call->op.call.reason = call->reason.chars;
	return err_trace(zi_client_call_run(zinf, call, options));
}

/* Of all_to_allv: the caller's are its own again when the call has begun. */
static void copy_counts(struct zi_client_call *call)
{
	struct zi_node_call *node_call = &call->op.call;
	size_t bytes = zi_node_members(&call->group->node) * sizeof(call->counts[0][0]);

	if (!node_call->source_counts || !node_call->target_counts)
		return; /* the engine says so */
	memcpy(call->counts[0], node_call->source_counts, bytes);
	memcpy(call->counts[1], node_call->target_counts, bytes);
	node_call->source_counts = call->counts[0];
	node_call->target_counts = call->counts[1];
}

static bool are_same_counts(const struct zi_client_call *call, const uint64_t *mine,
                            const uint64_t *counts)
{
	if (!mine || !counts)
		return mine == counts;
	return memcmp(mine, counts, zi_node_members(&call->group->node) * sizeof(*mine)) == 0;
}

/* Whether @call, which was interrupted, is @what. */
static bool is_same(const struct zi_client_call *call, const struct zi_node_call *what)
{
	const struct zi_node_call *mine = &call->op.call;

	return !call->op.p2p_count && mine->operation == what->operation &&
	       mine->dtype == what->dtype && mine->reduce_op == what->reduce_op &&
	       mine->root == what->root && mine->element_count == what->element_count &&
	       mine->source == what->source && mine->target == what->target &&
	       are_same_counts(call, mine->source_counts, what->source_counts) &&
	       are_same_counts(call, mine->target_counts, what->target_counts);
}

static int run(struct zinf *zinf, const struct zi_node_call *asked,
               const struct zinf_coll_options *options)
{
	struct zi_node_call what = *asked;
	struct zi_client_call *call;
	int r = zi_client_coll_begin(zinf, options, &call);

	if (r)
		return err_trace(r);
	drop_unused(&what, zi_node_self(&call->group->node));
	if (call->op.is_interrupted)
		return err_trace(zi_client_call_repeat(zinf, call, options, is_same(call, &what)));
	call->op.call = what;
	copy_counts(call);
	return err_trace(zi_client_coll_make(zinf, call, options));
}

/* What one count tells the length of; @op: 0 where elements are only moved. */
static int run_counted(struct zinf *zinf, enum zi_coll_operation operation, const void *source,
                       void *target, uint64_t count, enum zinf_dtype dtype, enum zinf_reduce_op op,
                       uint32_t root, const struct zinf_coll_options *options)
{
	return err_trace(run(zinf,
	                     &(struct zi_node_call){
				     .operation = operation,
				     .dtype = (enum zi_dtype)dtype,
				     .reduce_op = (enum zi_reduce_op)op,
				     .root = root,
				     .element_count = count,
				     .source = source,
				     .target = target,
			     },
	                     options));
}

int zinf_coll_all_reduce(struct zinf *zinf, const void *source, void *target, uint64_t count,
                         enum zinf_dtype dtype, enum zinf_reduce_op op,
                         const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(run_counted(zinf, ZI_COLL_ALL_REDUCE, source, target, count, dtype, op, 0,
	                             options));
}

int zinf_coll_reduce(struct zinf *zinf, const void *source, void *target, uint64_t count,
                     enum zinf_dtype dtype, enum zinf_reduce_op op, uint32_t root,
                     const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(
		run_counted(zinf, ZI_COLL_REDUCE, source, target, count, dtype, op, root, options));
}

int zinf_coll_reduce_scatter(struct zinf *zinf, const void *source, void *target, uint64_t count,
                             enum zinf_dtype dtype, enum zinf_reduce_op op,
                             const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(run_counted(zinf, ZI_COLL_REDUCE_SCATTER, source, target, count, dtype, op,
	                             0, options));
}

/* What only moves elements. */
static int move(struct zinf *zinf, enum zi_coll_operation operation, const void *source,
                void *target, uint64_t count, enum zinf_dtype dtype, uint32_t root,
                const struct zinf_coll_options *options)
{
	return err_trace(run_counted(zinf, operation, source, target, count, dtype,
	                             (enum zinf_reduce_op)0, root, options));
}

int zinf_coll_all_gather(struct zinf *zinf, const void *source, void *target, uint64_t count,
                         enum zinf_dtype dtype, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(move(zinf, ZI_COLL_ALL_GATHER, source, target, count, dtype, 0, options));
}

int zinf_coll_broadcast(struct zinf *zinf, void *data, uint64_t count, enum zinf_dtype dtype,
                        uint32_t root, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(move(zinf, ZI_COLL_BROADCAST, data, data, count, dtype, root, options));
}

int zinf_coll_gather(struct zinf *zinf, const void *source, void *target, uint64_t count,
                     enum zinf_dtype dtype, uint32_t root, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(move(zinf, ZI_COLL_GATHER, source, target, count, dtype, root, options));
}

int zinf_coll_scatter(struct zinf *zinf, const void *source, void *target, uint64_t count,
                      enum zinf_dtype dtype, uint32_t root, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(move(zinf, ZI_COLL_SCATTER, source, target, count, dtype, root, options));
}

int zinf_coll_all_to_all(struct zinf *zinf, const void *source, void *target, uint64_t count,
                         enum zinf_dtype dtype, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(move(zinf, ZI_COLL_ALL_TO_ALL, source, target, count, dtype, 0, options));
}

int zinf_coll_barrier(struct zinf *zinf, const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(
		run(zinf, &(struct zi_node_call){ .operation = ZI_COLL_BARRIER }, options));
}

int zinf_coll_all_to_allv(struct zinf *zinf, const void *source, const uint64_t *source_counts,
                          void *target, const uint64_t *target_counts, enum zinf_dtype dtype,
                          const struct zinf_coll_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, source_counts, source_counts);
	ZI_CLIENT_NEED(zinf, target_counts, target_counts);
	return err_trace(run(zinf,
	                     &(struct zi_node_call){
				     .operation = ZI_COLL_ALL_TO_ALLV,
				     .dtype = (enum zi_dtype)dtype,
				     .source = source,
				     .target = target,
				     .source_counts = source_counts,
				     .target_counts = target_counts,
			     },
	                     options));
}
