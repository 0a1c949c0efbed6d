/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the nodes' partials to the result: the owner of a range finishes the tree (subtree.h) in
 * blocks that stay in the cache, averages and rounds once, at the very end. Floor 3.
 */
#pragma once

#include "common/base/cleanup.h"
#include "daemon/worker/subtree.h"

/* 8 KiB of fp32: with the results that wait and a handful of partials within a core's L2. */
#define FINISH_BLOCK_ELEMENTS 2048u

struct finish_scratch; /* one thread's */

struct finish_run {
	const struct subtree_plan *plan;
	const void *const *partials; /* leaf_count pointers to (n,) subtree_dtype(leaf) */
	void *target;                /* (n,) target_dtype; may be exactly a partial of that dtype */
	uint64_t element_count;
	enum zi_dtype dtype; /* of the ranks' elements */
	enum zi_dtype
		target_dtype; /* 0: dtype; of floats also F32: the tree's own result, unrounded */
	enum zi_reduce_op op; /* one that is for the dtype */
	double average;       /* ZI_REDUCE_AVG: 1 / ranks, multiplied after the tree */
};

/* @ret_scratch: finish_scratch_free(). Return: 0, -ENOMEM. */
int finish_scratch_new(struct finish_scratch **ret_scratch);
struct finish_scratch *finish_scratch_free(struct finish_scratch *scratch);
ZI_DEFINE_CLEANUP(struct finish_scratch *, finish_scratch_free)

/* The same bits as kern_combine() of all ranks' elements in one place. Allocates nothing. */
void finish_run(const struct finish_run *run, struct finish_scratch *scratch);

/**
 * finish_partial() - what a node sends for a leaf
 * @sources: (leaf->count,) pointers to (n,) @dtype, the leaf's ranks in order
 * @target: (n,) subtree_dtype(leaf, dtype)
 *
 * Unrounded and not averaged. For a leaf of one rank a copy, but for floats with canonical NaNs;
 * whoever has the rank's own elements at hand may send those instead. Context: any thread.
 */
void finish_partial(const struct subtree *leaf, const void *const *sources, void *target,
                    uint64_t element_count, enum zi_dtype dtype, enum zi_reduce_op op);
