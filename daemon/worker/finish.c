/* SPDX-License-Identifier: Apache-2.0 */
/* Finishing the tree from partials; see finish.h. Floor 3. A scratch belongs to one thread. */
#include "daemon/worker/finish.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "kernels/combine.h"

#define FINISH_ALIGN_BYTES 64u

struct finish_scratch {
	/* Results that wait, by level: 8 bytes an element, for i64. */
	uint64_t levels[SUBTREE_DEPTH_MAX][FINISH_BLOCK_ELEMENTS];
	/* Ranks' own elements, widened where others of their step are fp32 already. */
	float widened[ZI_WORLD_MAX][FINISH_BLOCK_ELEMENTS];
};

/* Documented in the header. */
int finish_scratch_new(struct finish_scratch **ret_scratch)
{
	struct finish_scratch *scratch;

	static_assert(sizeof(*scratch) % FINISH_ALIGN_BYTES == 0, "whole lines");
	scratch = aligned_alloc(FINISH_ALIGN_BYTES, sizeof(*scratch));
	if (!scratch)
		return err_origin(-ENOMEM);
	*ret_scratch = scratch;
	return 0;
}

/* NULL-safe. Return: NULL. */
struct finish_scratch *finish_scratch_free(struct finish_scratch *scratch)
{
	free(scratch);
	return NULL;
}

/* What goes on inside the tree: averaging is for the end. */
static enum zi_reduce_op inner_op(enum zi_reduce_op op)
{
	return op == ZI_REDUCE_AVG ? ZI_REDUCE_SUM : op;
}

/* Where operand @value is for the block at @offset, and in which type. */
static const void *operand_at(const struct finish_run *run, const struct finish_scratch *scratch,
                              uint32_t value, uint64_t offset, enum zi_dtype *ret_dtype)
{
	const struct subtree_plan *plan = run->plan;

	if (value < plan->leaf_count) {
		*ret_dtype = subtree_dtype(&plan->leaves[value], run->dtype);
		return (const char *)run->partials[value] + offset * zi_dtype_bytes(*ret_dtype);
	}
	*ret_dtype = zi_dtype_joined(run->dtype);
	return scratch->levels[value - plan->leaf_count];
}

static void widen(const void **source, enum zi_dtype dtype, float *target, uint64_t elements)
{
	kern_combine(&(struct kern_combine_run){ .targets = (void *[]){ target },
	                                         .sources = (const void *[]){ *source },
	                                         .target_count = 1,
	                                         .source_count = 1,
	                                         .element_count = elements,
	                                         .source_dtype = dtype,
	                                         .target_dtype = ZI_DTYPE_F32,
	                                         .op = ZI_REDUCE_SUM });
	*source = target;
}

/* The step's operands in one type: their own, or fp32. Return: which. */
static enum zi_dtype collect(const struct finish_run *run, struct finish_scratch *scratch,
                             const struct subtree_step *step, uint64_t offset, uint64_t elements,
                             const void **sources)
{
	enum zi_dtype dtypes[ZI_WORLD_MAX];
	bool is_mixed = false;

	assert(step->operand_count <= ZI_WORLD_MAX);
	for (uint32_t i = 0; i < step->operand_count; i++) {
		uint32_t value = run->plan->operands[step->operand_first + i];

		sources[i] = operand_at(run, scratch, value, offset, &dtypes[i]);
		is_mixed = is_mixed || dtypes[i] != dtypes[0];
	}
	/* Between two steps there is fp32 alone, which 16-bit operands cannot be joined into. */
	if (!is_mixed)
		return dtypes[0];
	for (uint32_t i = 0; i < step->operand_count; i++)
		if (dtypes[i] != ZI_DTYPE_F32)
			widen(&sources[i], dtypes[i], scratch->widened[i], elements);
	return ZI_DTYPE_F32;
}

static enum zi_dtype result_dtype(const struct finish_run *run)
{
	return run->target_dtype ? run->target_dtype : run->dtype;
}

static void run_step(const struct finish_run *run, struct finish_scratch *scratch, uint32_t index,
                     uint64_t offset, uint64_t elements)
{
	const struct subtree_step *step = &run->plan->steps[index];
	bool is_last = index + 1 == run->plan->step_count;
	const void *sources[ZI_WORLD_MAX];
	void *target = scratch->levels[step->level];
	enum zi_dtype source_dtype = collect(run, scratch, step, offset, elements, sources);
	enum zi_dtype target_dtype = result_dtype(run);

	if (is_last)
		target = (char *)run->target + offset * zi_dtype_bytes(target_dtype);
	else
		target_dtype = zi_dtype_joined(run->dtype);
	kern_combine(&(struct kern_combine_run){ .targets = &target,
	                                         .sources = sources,
	                                         .target_count = 1,
	                                         .source_count = step->operand_count,
	                                         .element_count = elements,
	                                         .source_dtype = source_dtype,
	                                         .target_dtype = target_dtype,
	                                         .op = is_last ? run->op : inner_op(run->op),
	                                         .average = run->average });
}

/**
 * finish_run() - finish the tree, average, round once
 * @run: see finish.h
 *
 * Why the bits are those of the flat tree: each step joins in fp32 what the flat tree joins in
 * fp32 at the same place; rounding and averaging are the last step's alone. A NaN that a step
 * makes canonical would have become so at the end.
 * Context: the thread of @scratch.
 */
void finish_run(const struct finish_run *run, struct finish_scratch *scratch)
{
	uint64_t elements;

	assert(run->plan->step_count > 0);
	assert(zi_reduce_op_is_for(run->op, run->dtype));
	assert(result_dtype(run) == run->dtype || run->target_dtype == zi_dtype_joined(run->dtype));
	for (uint64_t offset = 0; offset < run->element_count; offset += elements) {
		elements = ZI_MIN(run->element_count - offset, (uint64_t)FINISH_BLOCK_ELEMENTS);
		for (uint32_t i = 0; i < run->plan->step_count; i++)
			run_step(run, scratch, i, offset, elements);
	}
}

/* Documented in the header. */
void finish_partial(const struct subtree *leaf, const void *const *sources, void *target,
                    uint64_t element_count, enum zi_dtype dtype, enum zi_reduce_op op)
{
	kern_combine(&(struct kern_combine_run){ .targets = &target,
	                                         .sources = sources,
	                                         .target_count = 1,
	                                         .source_count = leaf->count,
	                                         .element_count = element_count,
	                                         .source_dtype = dtype,
	                                         .target_dtype = subtree_dtype(leaf, dtype),
	                                         .op = inner_op(op) });
}
