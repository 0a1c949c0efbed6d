/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element of each kernel of cuda.h, from the kernel's arguments: what the kernels of cuda/ do
 * at the ends of arrays, and what the fake GPU of the tests does everywhere. Floor 1.
 */
#pragma once

#include "kernels/cuda.h"
#include "kernels/element/norm.h"
#include "kernels/element/optim.h"

/* An address of the GPU as a pointer. (A conversion by __cvta_global_to_generic() would tell nvcc
 * that it is no address of a thread's own memory; nvcc 13.0 then does not come to an end.) */
KERN_ELEMENT void *kern_cuda_at(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

KERN_ELEMENT void kern_cuda_widen_item(const struct kern_cuda_widen_args *args, uint64_t i)
{
	((float *)kern_cuda_at(args->target))[i] =
		kern_widen_at(kern_cuda_at(args->source), i, (enum zi_dtype)args->dtype);
}

KERN_ELEMENT void kern_cuda_narrow_item(const struct kern_cuda_narrow_args *args, uint64_t i)
{
	kern_round_at(kern_cuda_at(args->target), i, ((const float *)kern_cuda_at(args->source))[i],
	              (enum zi_dtype)args->dtype);
}

/* The gradients of a rank. */
KERN_ELEMENT const void *kern_cuda_source(const struct kern_cuda_gradient *gradient, uint32_t rank)
{
	return kern_cuda_at(((const uint64_t *)kern_cuda_at(gradient->sources))[rank]);
}

/* The tree over the ranks. */
KERN_ELEMENT float kern_cuda_sum_at(const struct kern_cuda_gradient *gradient, uint64_t i)
{
	const enum zi_dtype dtype = (enum zi_dtype)gradient->dtype;
	float partial[KERN_TREE_DEPTH];

	for (uint32_t rank = 0; rank < gradient->source_count; rank++)
		kern_tree_push(partial, rank,
		               kern_widen_at(kern_cuda_source(gradient, rank), i, dtype));
	return kern_tree_end(partial, gradient->source_count);
}

/* The reduced gradient. */
KERN_ELEMENT float kern_cuda_reduced_at(const struct kern_cuda_gradient *gradient, uint64_t i)
{
	float sum = kern_cuda_sum_at(gradient, i);

	return gradient->is_reduced
	               ? sum
	               : kern_optim_reduced(sum, gradient->average, (enum zi_dtype)gradient->dtype);
}

KERN_ELEMENT void kern_cuda_reduce_item(const struct kern_cuda_reduce_args *args, uint64_t i)
{
	kern_narrow_at(kern_cuda_at(args->target), i,
	               kern_f32_mul(kern_cuda_sum_at(&args->gradient, i), args->gradient.average),
	               (enum zi_dtype)args->gradient.dtype);
}

KERN_ELEMENT void kern_cuda_accumulate_item(const struct kern_cuda_accumulate_args *args,
                                            uint64_t i)
{
	kern_accumulate_at((float *)kern_cuda_at(args->accum), i,
	                   kern_cuda_sum_at(&args->gradient, i), args->is_first != 0);
}

KERN_ELEMENT void kern_cuda_finish_item(const struct kern_cuda_finish_args *args, uint64_t i)
{
	const float *accum = (const float *)kern_cuda_at(args->accum);

	kern_narrow_at(kern_cuda_at(args->target), i, kern_f32_mul(accum[i], args->average),
	               (enum zi_dtype)args->dtype);
}

/* ---- tiles ---- */

KERN_ELEMENT const struct kern_cuda_tile *kern_cuda_tile_at(uint64_t tiles, uint64_t number)
{
	return (const struct kern_cuda_tile *)kern_cuda_at(tiles) + number;
}

/* The stretch of a mixed tile with its element @i, by halves. */
KERN_ELEMENT const struct kern_cuda_stretch *
kern_cuda_stretch_at(uint64_t stretches, const struct kern_cuda_tile *tile, uint32_t i)
{
	const struct kern_cuda_stretch *of_tile =
		(const struct kern_cuda_stretch *)kern_cuda_at(stretches) + tile->stretch_first;
	uint32_t low = 0, high = tile->stretch_count - 1;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (of_tile[middle].end <= i)
			low = middle + 1;
		else
			high = middle;
	}
	return &of_tile[low];
}

/* The group of element @i, or KERN_CUDA_FROZEN. Without @stretches a mixed tile is as it says. */
KERN_ELEMENT uint32_t kern_cuda_group(uint64_t stretches, const struct kern_cuda_tile *tile,
                                      uint32_t i)
{
	if (tile->group != KERN_CUDA_MIXED || !stretches)
		return tile->group;
	return kern_cuda_stretch_at(stretches, tile, i)->group;
}

/* What element @i of a tile adds to its lane of the norm. */
KERN_ELEMENT float kern_cuda_norm_value(const struct kern_cuda_norm_blocks_args *args,
                                        const struct kern_cuda_tile *tile, uint32_t i)
{
	if (kern_cuda_group(args->stretches, tile, i) == KERN_CUDA_FROZEN)
		return 0.0f;
	return kern_f32_mul(kern_cuda_reduced_at(&args->gradient, tile->gradient_first + i),
	                    args->unscale);
}

/* Planes of a tile. */
struct kern_cuda_planes {
	void *param, *param_copy; /* param_copy: may be NULL */
	void *remainder;          /* not of F32 */
	float *exp_avg;
	float *exp_avg_sq; /* of two moments */
};

KERN_ELEMENT struct kern_cuda_planes kern_cuda_planes_of(const struct kern_cuda_tile *tile,
                                                         enum zi_dtype param_dtype)
{
	const uint64_t count = tile->element_count;
	struct kern_cuda_planes planes;
	uint64_t remainder_bytes = 0;

	if (param_dtype != ZI_DTYPE_F32)
		remainder_bytes = param_dtype == ZI_DTYPE_F16 ? 4 : 2;
	planes.param = kern_cuda_at(tile->param);
	planes.param_copy = kern_cuda_at(tile->param_copy);
	planes.remainder = kern_cuda_at(tile->state);
	planes.exp_avg = (float *)kern_cuda_at(tile->state + count * remainder_bytes);
	planes.exp_avg_sq = planes.exp_avg + count;
	return planes;
}

/* Element @i of a tile. @optimizer, @param_dtype: the kernel's. */
KERN_ELEMENT void kern_cuda_optim_item(const struct kern_cuda_optim_args *args,
                                       const struct kern_cuda_tile *tile, uint32_t i,
                                       enum zi_optimizer optimizer, enum zi_dtype param_dtype)
{
	const uint32_t group = kern_cuda_group(args->stretches, tile, i);
	const struct kern_cuda_planes planes = kern_cuda_planes_of(tile, param_dtype);
	const struct kern_optim_scalars *scalars;
	float g, p;

	if (group == KERN_CUDA_FROZEN)
		return;
	scalars = &args->groups[group];
	g = kern_optim_gradient(scalars,
	                        kern_cuda_reduced_at(&args->gradient, tile->gradient_first + i));
	p = kern_master_at(planes.param, planes.remainder, i, param_dtype);
	p = kern_optim_element(scalars, optimizer, p, g, &planes.exp_avg[i], &planes.exp_avg_sq[i]);
	kern_master_put(planes.param, planes.param_copy, planes.remainder, i, p, param_dtype);
}
