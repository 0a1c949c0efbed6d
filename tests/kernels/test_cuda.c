/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: names, sizes and grids of the kernels for GPUs, and each refusal of kern_cuda_check(), with
 * its sentence. Method: arguments that are right, and one thing wrong in each.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/text.h"
#include "kernels/cuda.h"

#define PLACE 4096u /* an address that is never looked at */

static const struct kern_cuda_gradient gradient = {
	.sources = PLACE,
	.source_count = 2,
	.dtype = ZI_DTYPE_BF16,
	.average = 0.5f,
};

static void expect_refused(enum kern_cuda_kernel kernel, const void *args, const char *words)
{
	struct zi_text text = { "" };

	cr_assert_eq(kern_cuda_check(kernel, args, &text), -EINVAL);
	cr_assert(strstr(text.chars, words), "\"%s\" has no \"%s\"", text.chars, words);
	cr_assert(strstr(text.chars, kern_cuda_name(kernel)), "%s", text.chars);
	cr_assert_eq(kern_cuda_check(kernel, args, NULL), -EINVAL);
}

static void expect_taken(enum kern_cuda_kernel kernel, const void *args)
{
	struct zi_text text = { "" };

	cr_assert_eq(kern_cuda_check(kernel, args, &text), 0, "%s", text.chars);
}

static struct kern_cuda_optim_args optim_args(void)
{
	return (struct kern_cuda_optim_args){
		.tile_count = 3,
		.tiles = PLACE,
		.groups = { { .optimizer = ZI_OPTIMIZER_ADAMW } },
		.gradient = gradient,
	};
}

static void expect_tile_refused(enum kern_cuda_kernel kernel, const struct kern_cuda_tile *tile,
                                const struct kern_cuda_stretch *stretches, const char *words)
{
	struct zi_text text = { "" };

	cr_assert_eq(kern_cuda_check_tile(kernel, tile, stretches, &text), -EINVAL);
	cr_assert(strstr(text.chars, words), "\"%s\" has no \"%s\"", text.chars, words);
	cr_assert_eq(kern_cuda_check_tile(kernel, tile, stretches, NULL), -EINVAL);
}

static const struct kern_cuda_tile plain_tile = {
	.param = PLACE, .state = PLACE, .gradient_first = 16, .element_count = 4096, .group = 63
};

Test(cuda, kernels_have_names_and_sizes)
{
	cr_assert_str_eq(kern_cuda_name(KERN_CUDA_widen), "kern_cuda_widen");
	cr_assert_str_eq(kern_cuda_name(KERN_CUDA_norm_join), "kern_cuda_norm_join");
	cr_assert_str_eq(kern_cuda_name(KERN_CUDA_lion_bf16), "kern_cuda_lion_bf16");
	cr_assert_eq(kern_cuda_args_bytes(KERN_CUDA_finish), sizeof(struct kern_cuda_finish_args));
	cr_assert_eq(kern_cuda_args_bytes(KERN_CUDA_sgd_f16), sizeof(struct kern_cuda_optim_args));
}

Test(cuda, each_optimizer_has_a_kernel_for_each_dtype)
{
#define EXPECT(name, optimizer, dtype) \
	cr_assert_eq(kern_cuda_optim(ZI_OPTIMIZER_##optimizer, ZI_DTYPE_##dtype), KERN_CUDA_##name);
	KERN_CUDA_OPTIMS(EXPECT)
}

Test(cuda, a_grid_has_a_thread_for_each_vector_up_to_its_limit)
{
	const uint64_t turn = KERN_CUDA_THREADS * KERN_CUDA_VECTOR;
	struct kern_cuda_grid grid = kern_cuda_grid_of(KERN_CUDA_widen, 0, 100);

	cr_assert_eq(grid.block_count, 0);
	grid = kern_cuda_grid_of(KERN_CUDA_widen, 1, 100);
	cr_assert_eq(grid.block_count, 1);
	cr_assert_eq(grid.thread_count, KERN_CUDA_THREADS);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_narrow, turn, 100).block_count, 1);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_narrow, turn + 1, 100).block_count, 2);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_reduce, turn * 3200, 100).block_count, 3200);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_reduce, turn * 3201, 100).block_count, 3200);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_finish, UINT64_MAX, 100).block_count, 3200);
}

Test(cuda, a_grid_over_tiles_has_a_thread_for_each_vector_or_lane_of_them)
{
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_adam_f32, 0, 100).block_count, 0);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_adam_f32, 1, 100).block_count,
	             ZI_TILE_ELEMENTS / KERN_CUDA_VECTOR / KERN_CUDA_THREADS);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_adam_f32, 400, 100).block_count, 3200);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_adam_f32, UINT64_MAX, 100).block_count, 3200);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_norm_blocks, 4, 1).block_count, 1);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_norm_blocks, 5, 1).block_count, 2);
	cr_assert_eq(kern_cuda_grid_of(KERN_CUDA_norm_join, KERN_CUDA_JOIN_NODES, 1).block_count,
	             1);
	cr_assert_eq(
		kern_cuda_grid_of(KERN_CUDA_norm_join, KERN_CUDA_JOIN_NODES + 1, 1).block_count, 2);
}

Test(cuda, casts_are_of_16_bit_types_and_aligned)
{
	struct kern_cuda_widen_args widen = { 7, PLACE, PLACE, ZI_DTYPE_F16, 0 };
	struct kern_cuda_narrow_args narrow = { 7, PLACE, PLACE, ZI_DTYPE_BF16, 0 };

	expect_taken(KERN_CUDA_widen, &widen);
	expect_taken(KERN_CUDA_narrow, &narrow);
	widen.source = PLACE + 8;
	expect_refused(KERN_CUDA_widen, &widen,
	               "the address 0x1008 of the source is no multiple of 16");
	widen.source = PLACE;
	widen.dtype = ZI_DTYPE_F32;
	expect_refused(KERN_CUDA_widen, &widen,
	               "takes no elements of dtype 1, but those of f16 to bf16");
	narrow.target = 0;
	expect_refused(KERN_CUDA_narrow, &narrow, "the address 0 of the target");
	narrow.target = PLACE;
	narrow.dtype = ZI_DTYPE_F64;
	expect_refused(KERN_CUDA_narrow, &narrow, "dtype 8");
}

Test(cuda, sums_are_over_the_gradients_of_1_to_64_ranks)
{
	struct kern_cuda_reduce_args reduce = { 7, PLACE, gradient };
	struct kern_cuda_accumulate_args accumulate = { 7, PLACE, 1, 0, gradient };
	struct kern_cuda_finish_args finish = { 7, PLACE, PLACE, ZI_DTYPE_F32, 1.0f };

	expect_taken(KERN_CUDA_reduce, &reduce);
	expect_taken(KERN_CUDA_accumulate, &accumulate);
	expect_taken(KERN_CUDA_finish, &finish);
	reduce.gradient.source_count = 0;
	expect_refused(KERN_CUDA_reduce, &reduce, "gradients of 0 ranks, but 1 to 64 are taken");
	reduce.gradient.source_count = 65;
	expect_refused(KERN_CUDA_reduce, &reduce, "gradients of 65 ranks");
	reduce.gradient.source_count = 1;
	reduce.gradient.sources = 0;
	expect_refused(KERN_CUDA_reduce, &reduce, "the address 0 of the table of gradients");
	reduce.gradient.is_reduced = 1;
	expect_refused(KERN_CUDA_reduce, &reduce, "not a reduced one");
	reduce.target = PLACE + 2;
	expect_refused(KERN_CUDA_reduce, &reduce, "of the target");
	accumulate.gradient.dtype = ZI_DTYPE_I8;
	expect_refused(KERN_CUDA_accumulate, &accumulate, "dtype 4, but those of f32 to bf16");
	accumulate.accum = 1;
	expect_refused(KERN_CUDA_accumulate, &accumulate, "of the accumulator");
	finish.dtype = 0;
	expect_refused(KERN_CUDA_finish, &finish, "dtype 0");
	finish.accum = 4;
	expect_refused(KERN_CUDA_finish, &finish, "of the source");
}

Test(cuda, a_norm_is_of_tiles_of_whole_blocks)
{
	struct kern_cuda_norm_blocks_args blocks = {
		.tile_count = 2, .tiles = PLACE, .block_sums = PLACE, .gradient = gradient
	};
	struct kern_cuda_norm_join_args join = { 5, PLACE, PLACE };
	struct kern_cuda_tile tile = { .element_count = 8192 };

	expect_taken(KERN_CUDA_norm_blocks, &blocks);
	expect_taken(KERN_CUDA_norm_join, &join);
	blocks.gradient.is_reduced = 1;
	expect_refused(KERN_CUDA_norm_blocks, &blocks,
	               "gradients of 2 ranks, but 1 to 1 are taken");
	blocks.gradient.source_count = 1;
	expect_taken(KERN_CUDA_norm_blocks, &blocks);
	blocks.block_sums = PLACE + 8;
	expect_refused(KERN_CUDA_norm_blocks, &blocks, "of the block sums");
	blocks.tiles = 1;
	expect_refused(KERN_CUDA_norm_blocks, &blocks, "of the tiles");
	join.nodes = 8;
	expect_refused(KERN_CUDA_norm_join, &join, "of the source");
	cr_assert_eq(kern_cuda_check_tile(KERN_CUDA_norm_blocks, &tile, NULL, NULL), 0);
	tile.element_count = 4112;
	expect_tile_refused(KERN_CUDA_norm_blocks, &tile, NULL,
	                    "a tile of 4112 elements, but multiples of 4096 up to 16384 are taken");
}

Test(cuda, a_step_has_the_scalars_of_its_optimizer_in_all_groups)
{
	struct kern_cuda_optim_args args = optim_args();

	expect_taken(KERN_CUDA_adamw_bf16, &args);
	expect_refused(KERN_CUDA_adam_bf16, &args,
	               "the scalars of group 0 are those of optimizer 1, not of 2");
	args.groups[63].optimizer = ZI_OPTIMIZER_LION;
	expect_refused(KERN_CUDA_adamw_bf16, &args, "of group 63 are those of optimizer 5");
	args.groups[0].optimizer = ZI_OPTIMIZER_LION;
	expect_taken(KERN_CUDA_lion_f16, &args);
	args.groups[0].optimizer = 0;
	expect_refused(KERN_CUDA_lion_f16, &args, "of group 0 are those of optimizer 0");
}

Test(cuda, a_step_has_aligned_tables)
{
	struct kern_cuda_optim_args args = optim_args();

	args.tiles = 0;
	expect_refused(KERN_CUDA_adamw_f32, &args, "of the tiles");
	args = optim_args();
	args.stretches = 24;
	expect_refused(KERN_CUDA_adamw_f32, &args, "the address 0x18 of the stretches");
	args = optim_args();
	args.gradient.source_count = 0;
	expect_refused(KERN_CUDA_adamw_f32, &args, "gradients of 0 ranks");
}

Test(cuda, a_tile_of_a_step_is_of_vectors_and_aligned)
{
	struct kern_cuda_tile tile = plain_tile;

	cr_assert_eq(kern_cuda_check_tile(KERN_CUDA_sgd_f16, &tile, NULL, NULL), 0);
	tile.element_count = 16;
	cr_assert_eq(kern_cuda_check_tile(KERN_CUDA_sgd_f16, &tile, NULL, NULL), 0);
	tile.element_count = 24;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL, "24 elements, but multiples of 16");
	tile.element_count = 0;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL, "a tile of 0 elements");
	tile.element_count = ZI_TILE_ELEMENTS + 16;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL, "a tile of 16400 elements");
	tile = plain_tile;
	tile.gradient_first = 4;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL,
	                    "the gradient's element 4 is no multiple of 8");
	tile = plain_tile;
	tile.param += 2;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL, "of the parameters is");
	tile = plain_tile;
	tile.param_copy = 3;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL, "of the parameters' copy");
	tile = plain_tile;
	tile.state = 0;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL, "of the state");
	tile = plain_tile;
	tile.group = 64;
	expect_tile_refused(KERN_CUDA_sgd_f16, &tile, NULL,
	                    "group 64 of a tile, but there are 64 at most");
	tile.group = KERN_CUDA_FROZEN;
	cr_assert_eq(kern_cuda_check_tile(KERN_CUDA_sgd_f16, &tile, NULL, NULL), 0);
}

Test(cuda, the_stretches_of_a_tile_cover_it_in_order)
{
	struct kern_cuda_stretch stretches[] = {
		{ 9, 99 }, { 100, 0 }, { 100, KERN_CUDA_FROZEN }, { 4096, 1 }
	};
	struct kern_cuda_tile tile = plain_tile;

	tile.group = KERN_CUDA_MIXED;
	tile.stretch_first = 1;
	tile.stretch_count = 3;
	cr_assert_eq(kern_cuda_check_tile(KERN_CUDA_adam_f16, &tile, stretches, NULL), 0);
	tile.stretch_count = 2;
	expect_tile_refused(KERN_CUDA_adam_f16, &tile, stretches,
	                    "2 stretches end at element 100 of 4096 of a tile");
	tile.stretch_count = 0;
	expect_tile_refused(KERN_CUDA_adam_f16, &tile, stretches, "0 stretches end at element 0");
	tile.stretch_count = 3;
	stretches[2].end = 99;
	expect_tile_refused(KERN_CUDA_adam_f16, &tile, stretches,
	                    "stretch 1 of a tile ends at element 99, before the former one's end "
	                    "at 100");
	tile.stretch_first = 0;
	expect_tile_refused(KERN_CUDA_adam_f16, &tile, stretches, "group 99 of a tile");
}

Test(cuda, the_gradients_of_ranks_are_aligned)
{
	const uint64_t sources[] = { PLACE, 3 * PLACE, PLACE + 4 };
	struct zi_text text = { "" };

	cr_assert_eq(kern_cuda_check_sources(KERN_CUDA_reduce, sources, 2, &text), 0);
	cr_assert_eq(kern_cuda_check_sources(KERN_CUDA_reduce, sources, 3, &text), -EINVAL);
	cr_assert(strstr(text.chars, "the address 0x1004 of a gradient"), "%s", text.chars);
}
