/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of squares of blocks, in the order of the CPU's lanes, and the tree over blocks. A block's
 * sum is finite exactly where all its elements are.
 *
 * A team of 16 threads computes a block, each one lane of it. A lane adds its 256 squares one after
 * the other, so a block alone is slow; a multiprocessor works at 128 of them at once. In a row the
 * team reads 16 elements that lie side by side, and 16 rows are on their way at once: whole
 * sectors of memory, although a thread's own accesses are those of one element. Vectors of 8
 * elements for each thread would hold 8 lanes, which leaves two threads for a block.
 */
#include "kernels/cuda/gradient.hh"

#define TEAM_THREADS KERN_LANES
#define TEAM_ROWS    (ZI_BLOCK_ELEMENTS / KERN_LANES)
#define ROWS_AHEAD   16u
#define TILE_BLOCKS  (ZI_TILE_ELEMENTS / ZI_BLOCK_ELEMENTS)

/* The threads of this team, of the warp's 32. */
ALWAYS unsigned team_mask()
{
	return 0xffffu << (threadIdx.x & TEAM_THREADS);
}

/* One lane of a block, whose first element is the tile's element @first: of a gradient of one
 * rank. */
template <enum zi_dtype dtype>
ALWAYS double lane_single(const struct kern_cuda_norm_blocks_args &args,
                          const struct kern_cuda_tile *tile, uint32_t first)
{
	const void *source = kern_cuda_source(&args.gradient, 0);
	double sum = 0;

#pragma unroll 1
	for (unsigned row = 0; row < TEAM_ROWS; row += ROWS_AHEAD) {
		const uint64_t index = tile->gradient_first + first + row * KERN_LANES;
		float x[ROWS_AHEAD];

#pragma unroll
		for (unsigned i = 0; i < ROWS_AHEAD; i++)
			x[i] = kern_widen_at(source, index + i * KERN_LANES, dtype);
#pragma unroll
		for (unsigned i = 0; i < ROWS_AHEAD; i++) {
			if (!args.gradient.is_reduced)
				x[i] = kern_optim_reduced(x[i], args.gradient.average, dtype);
			sum = kern_norm_add(sum, kern_f32_mul(x[i], args.unscale));
		}
	}
	return sum;
}

/* The same of gradients of several ranks, or of a tile with frozen elements. */
SELDOM double lane_slow(const struct kern_cuda_norm_blocks_args &args,
                        const struct kern_cuda_tile *tile, uint32_t first)
{
	double sum = 0;

#pragma unroll 1
	for (unsigned row = 0; row < TEAM_ROWS; row++)
		sum = kern_norm_add(sum,
		                    kern_cuda_norm_value(&args, tile, first + row * KERN_LANES));
	return sum;
}

/* The thread's lane of a block, by the way that its tile and the gradients allow. */
ALWAYS double lane_sum(const struct kern_cuda_norm_blocks_args &args,
                       const struct kern_cuda_tile *tile, uint32_t first)
{
	const bool is_plain = tile->group != KERN_CUDA_FROZEN &&
	                      (tile->group != KERN_CUDA_MIXED || !args.stretches);

	if (!is_plain || args.gradient.source_count > 1)
		return lane_slow(args, tile, first);
	switch (args.gradient.dtype) {
	case ZI_DTYPE_F32:
		return lane_single<ZI_DTYPE_F32>(args, tile, first);
	case ZI_DTYPE_F16:
		return lane_single<ZI_DTYPE_F16>(args, tile, first);
	default:
		return lane_single<ZI_DTYPE_BF16>(args, tile, first);
	}
}

/* The threads of a team stay together. */
KERNEL(norm_blocks, kern_cuda_norm_blocks_args)
{
	__shared__ double lanes[KERN_CUDA_THREADS];
	const unsigned lane = threadIdx.x % TEAM_THREADS;
	double *block_sums = (double *)kern_cuda_at(args.block_sums);

	for (uint64_t number = thread_number() / TEAM_THREADS;
	     number < args.tile_count * TILE_BLOCKS; number += thread_count() / TEAM_THREADS) {
		const struct kern_cuda_tile *tile =
			kern_cuda_tile_at(args.tiles, number / TILE_BLOCKS);
		const uint32_t block = (uint32_t)(number % TILE_BLOCKS);

		if (block * ZI_BLOCK_ELEMENTS >= tile->element_count)
			continue;
		lanes[threadIdx.x] = lane_sum(args, tile, block * ZI_BLOCK_ELEMENTS + lane);
		__syncwarp(team_mask());
		if (!lane)
			block_sums[tile->block_first + block] =
				kern_norm_join_lanes(&lanes[threadIdx.x]);
		__syncwarp(team_mask());
	}
}

/* All threads of a block join one group of nodes, level by level as kern_norm_join_nodes(). */
KERNEL(norm_join, kern_cuda_norm_join_args)
{
	__shared__ double node[KERN_CUDA_JOIN_NODES];
	const double *nodes = (const double *)kern_cuda_at(args.nodes);
	double *joined = (double *)kern_cuda_at(args.joined);

	for (uint64_t group = blockIdx.x; group * KERN_CUDA_JOIN_NODES < args.element_count;
	     group += gridDim.x) {
		const uint64_t first = group * KERN_CUDA_JOIN_NODES;
		const uint64_t rest = args.element_count - first;
		const unsigned count =
			rest < KERN_CUDA_JOIN_NODES ? (unsigned)rest : KERN_CUDA_JOIN_NODES;

		for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
			node[i] = nodes[first + i];
		__syncthreads();
		for (unsigned width = 1; width < count; width *= 2) {
			for (unsigned i = threadIdx.x * 2 * width; i + width < count;
			     i += blockDim.x * 2 * width)
				node[i] = kern_f64_add(node[i], node[i + width]);
			__syncthreads();
		}
		if (!threadIdx.x)
			joined[group] = kern_canonical_f64(node[0]);
		__syncthreads();
	}
}
