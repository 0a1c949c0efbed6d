/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose gradient is not finite, where its sum is finished: looked for while the partials of all
 * nodes lie there, as in culprit.h, whose reasons hold here. Of a partial that another node made of
 * several ranks' it is not told which. Floor 5, any device thread.
 */
#include <math.h>

#include "common/base/assert.h"
#include "daemon/zero/across/across_private.h"
#include "daemon/zero/across/sums/grads_private.h"
#include "daemon/zero/grad/grads.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/culprit.h"
#include "kernels/cast.h"
#include "kernels/finite.h"

/* What was gone through so far. */
struct suspects {
	const struct grads_group *group;
	uint64_t begin;   /* of the block, in the piece */
	uint64_t first;   /* the least element in it that is not finite, of what is left */
	uint32_t culprit; /* whose that is */
	uint32_t lost;    /* whose elements the sum has taken the place of */
	uint64_t index;   /* when others are added up: of this element of the piece */
	double others;
	bool adds_up;
};

/* Elements of one rank, or of a leaf. */
static void look_at(struct suspects *suspects, const void *elements, enum zi_dtype dtype,
                    uint32_t rank)
{
	const char *base = elements;
	uint64_t index;
	float value;

	if (suspects->adds_up) {
		kern_widen(&value, base + suspects->index * zi_dtype_bytes(dtype), 1, dtype);
		suspects->others += fabs((double)value);
		return;
	}
	index = kern_first_nonfinite(base + suspects->begin * zi_dtype_bytes(dtype),
	                             suspects->first, dtype);
	if (index >= suspects->first)
		return;
	suspects->first = index;
	suspects->culprit = rank;
}

/* All that the sum was made of and that is still there. */
static void look_at_all(struct suspects *suspects)
{
	const struct grads_group *group = suspects->group;
	const struct zero_subgroup *subgroup = group->subgroup;
	const struct zero_job *job = subgroup->job;
	const struct grads_plan *plan = grads_plan_of(group->grads, subgroup->unit);
	enum zi_dtype dtype = (enum zi_dtype)job->config.grad_dtype;
	uint64_t offset = subgroup->grad_begin + group->piece.first * zi_dtype_bytes(dtype);
	const struct pull *pull = group->fetch.pulls;

	for (uint32_t i = 0; i < plan->tree.leaf_count; i++) {
		const struct subtree *leaf = &plan->tree.leaves[i];

		if (!grads_leaf_is_of(plan, i, group->grads->across->node)) {
			look_at(suspects, pull->memory, subtree_dtype(leaf, grads_leaf_dtype(job)),
			        leaf->count == 1 ? plan->ranks[leaf->first] : CULPRIT_UNTOLD);
			pull++;
			continue;
		}
		for (uint32_t k = 0; k < leaf->count; k++) {
			uint32_t rank = plan->ranks[leaf->first + k];

			if (rank != suspects->lost)
				look_at(suspects, grad_at(job, rank, subgroup->unit, offset), dtype,
				        rank);
		}
	}
}

/* Half of the last place of the largest finite number: what is below does not make a sum overflow
 * that one finite element is added to. */
static double rounding_room(enum zi_dtype dtype)
{
	if (dtype == ZI_DTYPE_F16)
		return 0x1p4;
	return dtype == ZI_DTYPE_BF16 ? 0x1p119 : 0x1p103;
}

/* Documented in a header. */
uint32_t grads_culprit(const struct grads_group *group, const double *blocks, const void *sum,
                       enum zi_dtype sum_dtype, bool is_in_place)
{
	const struct zero_job *job = group->subgroup->job;
	struct suspects suspects = { .group = group,
		                     .first = ZI_BLOCK_ELEMENTS,
		                     .culprit = CULPRIT_UNTOLD,
		                     .lost = CULPRIT_NONE };
	uint64_t block = 0, count = group->piece.count / ZI_BLOCK_ELEMENTS, index;

	while (block < count && isfinite(blocks[block]))
		block++;
	if (block == count)
		return CULPRIT_NONE;
	suspects.begin = block * ZI_BLOCK_ELEMENTS;
	if (is_in_place && !grad_sums_are_apart(job))
		suspects.lost = grad_sum_rank(job, group->subgroup->unit);
	look_at_all(&suspects);
	index = kern_first_nonfinite((const char *)sum + suspects.begin * zi_dtype_bytes(sum_dtype),
	                             suspects.first, sum_dtype);
	if (index >= suspects.first || suspects.lost == CULPRIT_NONE)
		return suspects.culprit;
	suspects.adds_up = true;
	suspects.index = suspects.begin + index;
	look_at_all(&suspects);
	return suspects.others < rounding_room(is_in_place ? job_reduce_dtype(job) : sum_dtype)
	               ? suspects.lost
	               : CULPRIT_UNTOLD;
}
