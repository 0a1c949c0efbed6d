/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose gradient is not finite: looked for where a block of the norm says that something is not, by
 * the device thread that summed it, while the gradients still lie there. Floor 5.
 *
 * The sum lies in the place of one of them. What that one was follows from the others: an element
 * that is not finite though all others are was not finite there either, unless the sum overflowed,
 * which it cannot while the others together are below half of the last place of the largest number.
 * Where they are not, nobody is blamed. (What former micro-batches left in the accumulator is not
 * reckoned with: each of them was looked at by itself.)
 */
#include "daemon/zero/step/culprit.h"

#include <math.h>

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "kernels/cast.h"
#include "kernels/finite.h"

/* A gradient of a rank here, by its place among the sources. */
static uint32_t rank_of(const struct zero_subgroup *subgroup, uint32_t source)
{
	uint64_t rest = set_mask_here(subgroup->job, subgroup->unit);

	for (uint32_t i = 0; i < source; i++)
		rest &= rest - 1;
	assert(rest);
	return (uint32_t)__builtin_ctzll(rest);
}

static const void *element_at(const void *base, uint64_t index, enum zi_dtype dtype)
{
	return (const char *)base + index * zi_dtype_bytes(dtype);
}

/* Half of the last place of the largest finite number of @dtype. */
static double rounding_room(enum zi_dtype dtype)
{
	if (dtype == ZI_DTYPE_F16)
		return 0x1p4;
	return dtype == ZI_DTYPE_BF16 ? 0x1p119 : 0x1p103;
}

/* Whether the lost gradient alone can have spoilt the sum at @index. */
static bool lost_is_it(const struct zero_subgroup *subgroup, const struct culprit_sum *sum,
                       uint64_t index)
{
	enum zi_dtype dtype = (enum zi_dtype)subgroup->job->config.grad_dtype;
	double others = 0;

	/* Sums of f16 do not leave f32, nor does their average leave f16. */
	if (job_reduce_dtype(subgroup->job) == ZI_DTYPE_F16 &&
	    (sum->rounded_to == ZI_DTYPE_F32 || !(subgroup->job->step.options.flags & ZI_STEP_SUM)))
		return true;
	for (uint32_t i = 0; i < sum->source_count; i++) {
		float value;

		if (sum->sources[i] == sum->lost)
			continue;
		kern_widen(&value, element_at(sum->sources[i], index, dtype), 1, dtype);
		others += fabs((double)value);
	}
	return others < rounding_room(sum->rounded_to);
}

/* Return: a rank; CULPRIT_UNTOLD. */
static uint32_t look_at(const struct zero_subgroup *subgroup, const struct culprit_sum *sum,
                        uint64_t begin)
{
	enum zi_dtype dtype = (enum zi_dtype)subgroup->job->config.grad_dtype;
	uint64_t first = ZI_BLOCK_ELEMENTS;
	uint32_t lost = CULPRIT_NONE;
	uint32_t culprit = CULPRIT_UNTOLD;
	uint64_t index;

	for (uint32_t i = 0; i < sum->source_count; i++) {
		if (sum->sources[i] == sum->lost) {
			lost = rank_of(subgroup, i);
			continue;
		}
		index = kern_first_nonfinite(element_at(sum->sources[i], begin, dtype), first,
		                             dtype);
		if (index < first) {
			first = index;
			culprit = rank_of(subgroup, i);
		}
	}
	index = kern_first_nonfinite(element_at(sum->sum, begin, sum->sum_dtype), first,
	                             sum->sum_dtype);
	if (index < first && lost != CULPRIT_NONE && lost_is_it(subgroup, sum, begin + index))
		culprit = lost;
	return culprit;
}

/* See culprit.h. */
void culprit_look(struct zero_subgroup *subgroup, const struct culprit_sum *sum)
{
	const double *blocks = &subgroup->job->norm_blocks[subgroup->block_first];
	uint32_t block_count = subgroup->element_count / ZI_BLOCK_ELEMENTS;

	if (subgroup->culprit != CULPRIT_NONE)
		return;
	for (uint32_t i = 0; i < block_count; i++) {
		if (isfinite(blocks[i]))
			continue;
		subgroup->culprit = look_at(subgroup, sum, (uint64_t)i * ZI_BLOCK_ELEMENTS);
		return;
	}
}

/* See culprit.h. */
bool culprit_find(const struct zero_job *job, uint32_t *ret_rank, uint32_t *ret_unit)
{
	for_each_subgroup_here(job, subgroup) {
		if (subgroup->culprit == CULPRIT_NONE)
			continue;
		*ret_rank = subgroup->culprit == CULPRIT_UNTOLD ? UINT32_MAX : subgroup->culprit;
		*ret_unit = subgroup->unit;
		return true;
	}
	return false;
}
