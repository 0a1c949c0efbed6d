/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused step: gradients of the ranks → tree → average, rounded → unscale, clip → optimizer →
 * new parameter and state, one pass over memory. With bf16 and AdamW a thread reads 8 elements of
 * six planes and writes those of five, 16 or 32 bytes of each.
 *
 * What the PTX names (tools/check_ptx): of an optimizer with F fma a kernel has 8 F, one vector,
 * and its function for a vector of several groups F, one element. (Numbers of optimizers: enum
 * zi_optimizer.)
 *   check_ptx: fma kern_cuda_adamw_ 24
 *   check_ptx: fma kern_cuda_adam_ 32
 *   check_ptx: fma kern_cuda_sgd_ 32
 *   check_ptx: fma kern_cuda_adagrad_ 24
 *   check_ptx: fma kern_cuda_lion_ 24
 *   check_ptx: fma mixed_stepIL12zi_optimizer1E 3
 *   check_ptx: fma mixed_stepIL12zi_optimizer2E 4
 *   check_ptx: fma mixed_stepIL12zi_optimizer3E 4
 *   check_ptx: fma mixed_stepIL12zi_optimizer4E 3
 *   check_ptx: fma mixed_stepIL12zi_optimizer5E 3
 */
#include "kernels/cuda/gradient.hh"

#define TILE_VECTORS (ZI_TILE_ELEMENTS / VECTOR)

/* Masters of the parameters, from element @i of the tile on. */
template <enum zi_dtype dtype>
ALWAYS struct vector master_load(const struct kern_cuda_planes &planes, uint32_t i)
{
	struct vector masters;

	if constexpr (dtype == ZI_DTYPE_F32) {
		masters = vector_load<ZI_DTYPE_F32>(planes.param, i);
	} else if constexpr (dtype == ZI_DTYPE_F16) {
		const struct words halves = words_load((const uint16_t *)planes.param + i);
		uint32_t remainders[VECTOR];

		wide_load(planes.remainder, i, remainders);
#pragma unroll
		for (unsigned j = 0; j < VECTOR; j++)
			masters.at[j] = kern_join_f16(half_of(halves, j), (int32_t)remainders[j]);
	} else {
		const struct words halves = words_load((const uint16_t *)planes.param + i);
		const struct words remainders = words_load((const uint16_t *)planes.remainder + i);

#pragma unroll
		for (unsigned j = 0; j < VECTOR; j++)
			masters.at[j] =
				kern_join(half_of(halves, j), (int16_t)half_of(remainders, j));
	}
	return masters;
}

/* @masters: canonical. */
template <enum zi_dtype dtype>
ALWAYS void master_store(const struct kern_cuda_planes &planes, uint32_t i,
                         const struct vector &masters)
{
	if constexpr (dtype == ZI_DTYPE_F32) {
		vector_store<ZI_DTYPE_F32>(planes.param, i, masters);
		if (planes.param_copy)
			vector_store<ZI_DTYPE_F32>(planes.param_copy, i, masters);
	} else {
		struct words halves = {};
		uint16_t half;

		if constexpr (dtype == ZI_DTYPE_F16) {
			uint32_t remainders[VECTOR];

#pragma unroll
			for (unsigned j = 0; j < VECTOR; j++) {
				int32_t remainder;

				kern_split_f16(masters.at[j], &half, &remainder);
				half_put(halves, j, half);
				remainders[j] = (uint32_t)remainder;
			}
			wide_store(planes.remainder, i, remainders);
		} else {
			struct words remainders = {};

#pragma unroll
			for (unsigned j = 0; j < VECTOR; j++) {
				int16_t remainder;

				kern_split(masters.at[j], &half, &remainder);
				half_put(halves, j, half);
				half_put(remainders, j, (uint16_t)remainder);
			}
			words_store((uint16_t *)planes.remainder + i, remainders);
		}
		words_store((uint16_t *)planes.param + i, halves);
		if (planes.param_copy)
			words_store((uint16_t *)planes.param_copy + i, halves);
	}
}

/* A vector of one group. */
template <enum zi_optimizer optimizer, enum zi_dtype dtype>
ALWAYS void vector_step(const struct kern_cuda_optim_args &args, const struct kern_cuda_tile *tile,
                        uint32_t i, uint32_t group)
{
	constexpr bool has_second =
		optimizer == ZI_OPTIMIZER_ADAMW || optimizer == ZI_OPTIMIZER_ADAM;
	const struct kern_optim_scalars scalars = args.groups[group];
	const struct kern_cuda_planes planes = kern_cuda_planes_of(tile, dtype);
	const struct vector g = gradient_reduced(args.gradient, tile->gradient_first + i);
	struct vector p = master_load<dtype>(planes, i);
	struct vector m = vector_load<ZI_DTYPE_F32>(planes.exp_avg, i), v = m;

	if constexpr (has_second)
		v = vector_load<ZI_DTYPE_F32>(planes.exp_avg_sq, i);
#pragma unroll
	for (unsigned j = 0; j < VECTOR; j++)
		p.at[j] = kern_canonical(kern_optim_element(&scalars, optimizer, p.at[j],
		                                            kern_optim_gradient(&scalars, g.at[j]),
		                                            &m.at[j], &v.at[j]));
	vector_store<ZI_DTYPE_F32>(planes.exp_avg, i, m);
	if constexpr (has_second)
		vector_store<ZI_DTYPE_F32>(planes.exp_avg_sq, i, v);
	master_store<dtype>(planes, i, p);
}

/* A vector of several groups. */
template <enum zi_optimizer optimizer, enum zi_dtype dtype>
SELDOM void mixed_step(const struct kern_cuda_optim_args &args, const struct kern_cuda_tile *tile,
                       uint32_t i)
{
#pragma unroll 1
	for (unsigned j = 0; j < VECTOR; j++)
		kern_cuda_optim_item(&args, tile, i + j, optimizer, dtype);
}

/* A tile's count is a multiple of 16, so each vector is whole. */
template <enum zi_optimizer optimizer, enum zi_dtype dtype>
ALWAYS void all_step(const struct kern_cuda_optim_args &args)
{
	for (uint64_t number = thread_number(); number < args.tile_count * TILE_VECTORS;
	     number += thread_count()) {
		const struct kern_cuda_tile *tile =
			kern_cuda_tile_at(args.tiles, number / TILE_VECTORS);
		const uint32_t i = (uint32_t)(number % TILE_VECTORS) * VECTOR;
		uint32_t group = tile->group;

		if (i >= tile->element_count)
			continue;
		if (group == KERN_CUDA_MIXED) {
			const struct kern_cuda_stretch *stretch =
				kern_cuda_stretch_at(args.stretches, tile, i);

			if (stretch->end < i + VECTOR) {
				mixed_step<optimizer, dtype>(args, tile, i);
				continue;
			}
			group = stretch->group;
		}
		if (group != KERN_CUDA_FROZEN)
			vector_step<optimizer, dtype>(args, tile, i, group);
	}
}

#define OPTIM_KERNEL(name, optimizer, dtype)                                \
	KERNEL(name, kern_cuda_optim_args)                                  \
	{                                                                   \
		all_step<ZI_OPTIMIZER_##optimizer, ZI_DTYPE_##dtype>(args); \
	}
KERN_CUDA_OPTIMS(OPTIM_KERNEL)
