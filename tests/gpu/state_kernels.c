/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels for state in GPU memory (kernels/cuda.h) on a fake GPU: the element functions that
 * the GPU's kernels call, in loops that go as the threads of the launch do. A grid that leaves
 * elements out shows in what the test compares.
 */
#include "common/base/cleanup.h"
#include "kernels/element/items.h"
#include "tests/gpu/kernels.h"

/* Of a grid in x only. */
static uint64_t threads_of(const uint32_t *shape)
{
	return (uint64_t)shape[0] * shape[3];
}

/* The elements of @thread, of a kernel over vectors. */
#define each_own(i, thread, threads, count)                               \
	for (uint64_t first = (thread)*KERN_CUDA_VECTOR; first < (count); \
	     first += (threads)*KERN_CUDA_VECTOR)                         \
		for (uint64_t i = first; i < (count) && i < first + KERN_CUDA_VECTOR; i++)

#define VECTOR_KERNEL(name)                                                         \
	static void run_##name(const uint32_t *shape, void *const *parameters)      \
	{                                                                           \
		const struct kern_cuda_##name##_args *args = parameters[0];         \
                                                                                    \
		for (uint64_t thread = 0; thread < threads_of(shape); thread++)     \
			each_own(i, thread, threads_of(shape), args->element_count) \
				kern_cuda_##name##_item(args, i);                   \
	}
VECTOR_KERNEL(widen)
VECTOR_KERNEL(narrow)
VECTOR_KERNEL(reduce)
VECTOR_KERNEL(accumulate)
VECTOR_KERNEL(finish)

/* A vector of a tile for each thread. */
#define OPTIM_KERNEL(name, optimizer, dtype)                                                       \
	static void run_##name(const uint32_t *shape, void *const *parameters)                     \
	{                                                                                          \
		const struct kern_cuda_optim_args *args = parameters[0];                           \
		const uint64_t count = args->tile_count * ZI_TILE_ELEMENTS;                        \
                                                                                                   \
		for (uint64_t thread = 0; thread < threads_of(shape); thread++)                    \
			each_own(i, thread, threads_of(shape), count)                              \
				step_element(args, i, ZI_OPTIMIZER_##optimizer, ZI_DTYPE_##dtype); \
	}

/* @i: counts ZI_TILE_ELEMENTS for each tile. */
static void step_element(const struct kern_cuda_optim_args *args, uint64_t i,
                         enum zi_optimizer optimizer, enum zi_dtype param_dtype)
{
	const struct kern_cuda_tile *tile = kern_cuda_tile_at(args->tiles, i / ZI_TILE_ELEMENTS);
	const uint32_t element = i % ZI_TILE_ELEMENTS;

	if (element < tile->element_count)
		kern_cuda_optim_item(args, tile, element, optimizer, param_dtype);
}

KERN_CUDA_OPTIMS(OPTIM_KERNEL)

static double block_sum(const struct kern_cuda_norm_blocks_args *args,
                        const struct kern_cuda_tile *tile, uint32_t first)
{
	double lanes[KERN_LANES] = { 0 };

	for (uint32_t i = 0; i < ZI_BLOCK_ELEMENTS; i++)
		lanes[i % KERN_LANES] = kern_norm_add(lanes[i % KERN_LANES],
		                                      kern_cuda_norm_value(args, tile, first + i));
	return kern_norm_join_lanes(lanes);
}

/* A team of KERN_LANES threads for each block of the norm. */
static void run_norm_blocks(const uint32_t *shape, void *const *parameters)
{
	const struct kern_cuda_norm_blocks_args *args = parameters[0];
	const uint64_t teams = threads_of(shape) / KERN_LANES;
	const uint32_t tile_blocks = ZI_TILE_ELEMENTS / ZI_BLOCK_ELEMENTS;
	double *block_sums = kern_cuda_at(args->block_sums);

	for (uint64_t team = 0; team < teams; team++)
		for (uint64_t i = team; i < args->tile_count * tile_blocks; i += teams) {
			const struct kern_cuda_tile *tile =
				kern_cuda_tile_at(args->tiles, i / tile_blocks);
			const uint32_t block = i % tile_blocks;

			if (block * ZI_BLOCK_ELEMENTS < tile->element_count)
				block_sums[tile->block_first + block] =
					block_sum(args, tile, block * ZI_BLOCK_ELEMENTS);
		}
}

/* A block of threads for each group of nodes. */
static void run_norm_join(const uint32_t *shape, void *const *parameters)
{
	const struct kern_cuda_norm_join_args *args = parameters[0];
	const double *nodes = kern_cuda_at(args->nodes);
	double *joined = kern_cuda_at(args->joined);
	const uint64_t groups =
		(args->element_count + KERN_CUDA_JOIN_NODES - 1) / KERN_CUDA_JOIN_NODES;

	for (uint64_t block = 0; block < shape[0]; block++)
		for (uint64_t group = block; group < groups; group += shape[0]) {
			const uint64_t first = group * KERN_CUDA_JOIN_NODES;
			const uint64_t count =
				ZI_MIN((uint64_t)KERN_CUDA_JOIN_NODES, args->element_count - first);
			double node[KERN_CUDA_JOIN_NODES];

			for (uint64_t i = 0; i < count; i++)
				node[i] = nodes[first + i];
			joined[group] = kern_norm_join_nodes(node, count);
		}
}

#define ARRAY_ROW(name) \
	{ "kern_cuda_" #name, run_##name, { sizeof(struct kern_cuda_##name##_args) } },
#define OPTIM_ROW(name, optimizer, dtype) \
	{ "kern_cuda_" #name, run_##name, { sizeof(struct kern_cuda_optim_args) } },
const struct fake_kernel fake_state_kernels[] = { KERN_CUDA_ARRAYS(ARRAY_ROW)
	                                                  KERN_CUDA_OPTIMS(OPTIM_ROW) };
const uint32_t fake_state_kernel_count = ZI_COUNT_OF(fake_state_kernels);
