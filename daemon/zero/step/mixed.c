/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See mixed.h. Floor 5, any device thread.
 *
 * The kernel takes vectors of 16 elements, and groups end anywhere. Each run is cut at those
 * vectors: what fills them is computed in place, and a vector that several groups share in a copy
 * for each of them, of which its own elements are taken back. An element's result depends on
 * nothing beside it, so that all bits are those of a tile of one group.
 */
#include "daemon/zero/step/mixed.h"

#include <stdalign.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/wire/layout.h"
#include "daemon/zero/job/stretches.h"

#define MIXED_LANES 16u /* of the kernel, whatever the processor */

/* @offset elements of @width bytes behind @base; NULL stays NULL. */
static void *behind(const void *base, uint64_t offset, uint32_t width)
{
	return base ? (char *)(uintptr_t)base + offset * width : NULL;
}

/* The part of @whole from element @first on. @grads: (rank_count,) of it. */
static struct kern_optim_run part_of(const struct kern_optim_run *whole, uint64_t first,
                                     uint64_t count, const void **grads)
{
	struct kern_optim_run part = *whole;

	assert(!whole->param_copy);
	part.param = behind(whole->param, first, zi_dtype_bytes(whole->param_dtype));
	part.remainder = behind(whole->remainder, first, zi_remainder_bytes(whole->param_dtype));
	part.exp_avg = behind(whole->exp_avg, first, sizeof(float));
	part.exp_avg_sq = behind(whole->exp_avg_sq, first, sizeof(float));
	for (uint32_t i = 0; i < whole->rank_count; i++)
		grads[i] = behind(whole->grads[i], first, zi_dtype_bytes(whole->grad_dtype));
	part.grads = grads;
	part.element_count = count;
	return part;
}

/* A vector of every plane, in 32 bits at most. */
struct mixed_vector {
	alignas(ZI_LINE_BYTES) uint32_t param[MIXED_LANES];
	uint32_t remainder[MIXED_LANES];
	float exp_avg[MIXED_LANES], exp_avg_sq[MIXED_LANES];
	uint32_t grads[ZI_WORLD_MAX][MIXED_LANES];
};

/* Elements @from to @to, of the vector that begins at @block. */
static void vector_step(const struct kern_optim_run *whole, uint64_t block, uint64_t from,
                        uint64_t to, const struct kern_optim_scalars *scalars)
{
	const void *grads[ZI_WORLD_MAX], *copied[ZI_WORLD_MAX];
	struct kern_optim_run place = part_of(whole, block, MIXED_LANES, grads);
	struct kern_optim_run copy = place;
	struct mixed_vector vector;
	const struct {
		void *place, *copy;
		uint32_t width;
	} planes[] = {
		{ place.param, vector.param, zi_dtype_bytes(whole->param_dtype) },
		{ place.remainder, vector.remainder, zi_remainder_bytes(whole->param_dtype) },
		{ place.exp_avg, vector.exp_avg, sizeof(float) },
		{ place.exp_avg_sq, vector.exp_avg_sq, sizeof(float) },
	};

	assert(block % MIXED_LANES == 0);
	assert(block <= from && from < to && to <= block + MIXED_LANES);
	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++)
		if (planes[i].place)
			memcpy(planes[i].copy, planes[i].place, MIXED_LANES * planes[i].width);
	for (uint32_t i = 0; i < whole->rank_count; i++) {
		memcpy(vector.grads[i], grads[i], MIXED_LANES * zi_dtype_bytes(whole->grad_dtype));
		copied[i] = vector.grads[i];
	}
	copy.param = vector.param;
	copy.remainder = place.remainder ? vector.remainder : NULL;
	copy.exp_avg = vector.exp_avg;
	copy.exp_avg_sq = place.exp_avg_sq ? vector.exp_avg_sq : NULL;
	copy.grads = copied;
	kern_optim_step(&copy, scalars);
	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++)
		if (planes[i].place)
			memcpy(behind(planes[i].place, from - block, planes[i].width),
			       behind(planes[i].copy, from - block, planes[i].width),
			       (to - from) * planes[i].width);
}

/* Elements @from to @to, all of one group. */
static void run_step(const struct kern_optim_run *whole, uint64_t from, uint64_t to,
                     const struct kern_optim_scalars *scalars)
{
	uint64_t block = from / MIXED_LANES * MIXED_LANES;
	const void *grads[ZI_WORLD_MAX];
	struct kern_optim_run part;
	uint64_t count;

	if (from > block) {
		uint64_t end = ZI_MIN(to, block + MIXED_LANES);

		vector_step(whole, block, from, end, scalars);
		from = end;
	}
	count = (to - from) / MIXED_LANES * MIXED_LANES;
	if (count) {
		part = part_of(whole, from, count, grads);
		kern_optim_step(&part, scalars);
		from += count;
	}
	if (from < to)
		vector_step(whole, from, from, to, scalars);
}

/* See mixed.h. */
void mixed_step(const struct kern_optim_run *whole, const struct zero_stretch *run, uint64_t begin,
                const struct kern_optim_scalars *scalars, float average)
{
	struct kern_optim_scalars own;

	assert(whole->element_count % MIXED_LANES == 0);
	for (uint64_t done = 0; done < whole->element_count; run++) {
		uint64_t end = ZI_MIN(run->end - begin, whole->element_count);

		assert(end > done);
		if (!stretch_is_frozen(run)) {
			own = scalars[run->group];
			own.average = average;
			run_step(whole, done, end, &own);
		}
		done = end;
	}
}
