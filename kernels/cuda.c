/* SPDX-License-Identifier: Apache-2.0 */
/* Names, checks and grids of the kernels for GPUs; see cuda.h. Floor 1, any thread. */
#include "kernels/cuda.h"

#include <errno.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/text.h"
#include "kernels/element/norm.h"

/* Blocks of a grid for each multiprocessor: several times what runs at once, so that the last ones
 * end together; each goes over the rest in turns. */
#define BLOCKS_OF_A_MULTIPROCESSOR 32u
/* Blocks whose threads have one vector each, or one team of the norm for each of its blocks. */
#define BLOCKS_OF_A_TILE (ZI_TILE_ELEMENTS / (KERN_CUDA_THREADS * KERN_CUDA_VECTOR))
#define TILES_OF_A_BLOCK (KERN_CUDA_THREADS / KERN_LANES / (ZI_TILE_ELEMENTS / ZI_BLOCK_ELEMENTS))

struct row {
	const char *name;
	uint32_t args_bytes;
};

#define ARRAY_ROW(name) { "kern_cuda_" #name, sizeof(struct kern_cuda_##name##_args) },
#define OPTIM_ROW(name, optimizer, dtype) \
	{ "kern_cuda_" #name, sizeof(struct kern_cuda_optim_args) },
static const struct row rows[] = { KERN_CUDA_ARRAYS(ARRAY_ROW) KERN_CUDA_OPTIMS(OPTIM_ROW) };
static_assert(ZI_COUNT_OF(rows) == _KERN_CUDA_COUNT, "one row for each kernel");

static bool is_optim(enum kern_cuda_kernel kernel)
{
	return kernel >= KERN_CUDA_adamw_f32;
}

const char *kern_cuda_name(enum kern_cuda_kernel kernel)
{
	assert(kernel < _KERN_CUDA_COUNT);
	return rows[kernel].name;
}

uint32_t kern_cuda_args_bytes(enum kern_cuda_kernel kernel)
{
	assert(kernel < _KERN_CUDA_COUNT);
	return rows[kernel].args_bytes;
}

enum kern_cuda_kernel kern_cuda_optim(enum zi_optimizer optimizer, enum zi_dtype param_dtype)
{
	const uint32_t first = KERN_CUDA_adamw_f32, dtype_count = ZI_DTYPE_BF16;

	static_assert(ZI_DTYPE_F32 == 1 && ZI_DTYPE_F16 == 2 && ZI_DTYPE_BF16 == 3, "the order");
	assert(optimizer >= ZI_OPTIMIZER_ADAMW);
	assert(optimizer < _ZI_OPTIMIZER_COUNT);
	assert(param_dtype >= ZI_DTYPE_F32);
	assert(param_dtype <= ZI_DTYPE_BF16);
	return (enum kern_cuda_kernel)(first + (optimizer - ZI_OPTIMIZER_ADAMW) * dtype_count +
	                               (param_dtype - ZI_DTYPE_F32));
}

/* Of a block in one turn: elements, nodes or tiles. */
static uint32_t turn_of(enum kern_cuda_kernel kernel)
{
	const uint32_t elements = KERN_CUDA_THREADS * KERN_CUDA_VECTOR;

	if (kernel == KERN_CUDA_norm_join)
		return KERN_CUDA_JOIN_NODES;
	return elements;
}

struct kern_cuda_grid kern_cuda_grid_of(enum kern_cuda_kernel kernel, uint64_t count,
                                        uint32_t multiprocessor_count)
{
	const uint64_t blocks_max = (uint64_t)multiprocessor_count * BLOCKS_OF_A_MULTIPROCESSOR;
	uint64_t blocks;

	assert(multiprocessor_count > 0);
	assert(kernel < _KERN_CUDA_COUNT);
	if (is_optim(kernel))
		blocks = count > blocks_max ? blocks_max : count * BLOCKS_OF_A_TILE;
	else if (kernel == KERN_CUDA_norm_blocks)
		blocks = count / TILES_OF_A_BLOCK + (count % TILES_OF_A_BLOCK != 0);
	else
		blocks = count / turn_of(kernel) + (count % turn_of(kernel) != 0);
	return (struct kern_cuda_grid){
		.block_count = (uint32_t)ZI_MIN(blocks, blocks_max),
		.thread_count = KERN_CUDA_THREADS,
	};
}

/* ---- checks ---- */

struct check {
	enum kern_cuda_kernel kernel;
	struct zi_text *text;
};

static int check_address(const struct check *check, const char *what, uint64_t address)
{
	if (address && address % KERN_CUDA_ALIGN_BYTES == 0)
		return 0;
	return err_origin(zi_text_error(check->text, -EINVAL,
	                                "%s: the address %#llx of %s is no multiple of %u above 0",
	                                kern_cuda_name(check->kernel), (unsigned long long)address,
	                                what, KERN_CUDA_ALIGN_BYTES));
}

static int check_dtype(const struct check *check, uint32_t dtype, uint32_t first)
{
	if (dtype >= first && dtype <= ZI_DTYPE_BF16)
		return 0;
	return err_origin(zi_text_error(
		check->text, -EINVAL, "%s takes no elements of dtype %u, but those of %s to %s",
		kern_cuda_name(check->kernel), dtype, zi_dtype_name((enum zi_dtype)first),
		zi_dtype_name(ZI_DTYPE_BF16)));
}

static int check_gradient(const struct check *check, const struct kern_cuda_gradient *gradient,
                          bool may_be_reduced)
{
	const uint32_t count_max = gradient->is_reduced ? 1 : ZI_WORLD_MAX;
	int r = check_dtype(check, gradient->dtype, ZI_DTYPE_F32);

	if (r)
		return err_trace(r);
	if (gradient->is_reduced && !may_be_reduced)
		return err_origin(zi_text_error(check->text, -EINVAL,
		                                "%s takes gradients of ranks, not a reduced one",
		                                kern_cuda_name(check->kernel)));
	if (gradient->source_count < 1 || gradient->source_count > count_max)
		return err_origin(zi_text_error(
			check->text, -EINVAL, "%s: gradients of %u ranks, but 1 to %u are taken",
			kern_cuda_name(check->kernel), gradient->source_count, count_max));
	return err_trace(check_address(check, "the table of gradients", gradient->sources));
}

static uint32_t optimizer_of(enum kern_cuda_kernel kernel)
{
	return ZI_OPTIMIZER_ADAMW + (kernel - KERN_CUDA_adamw_f32) / ZI_DTYPE_BF16;
}

/* Groups that no tile names may be zero. */
static int check_groups(const struct check *check, const struct kern_cuda_optim_args *args)
{
	const uint32_t optimizer = optimizer_of(check->kernel);

	for (uint32_t i = 0; i < KERN_CUDA_GROUPS_MAX; i++)
		if (args->groups[i].optimizer != optimizer && (!i || args->groups[i].optimizer))
			return err_origin(zi_text_error(
				check->text, -EINVAL,
				"%s: the scalars of group %u are those of optimizer %u, not of %u",
				kern_cuda_name(check->kernel), i, args->groups[i].optimizer,
				optimizer));
	return 0;
}

static int check_tables(const struct check *check, uint64_t tiles, uint64_t stretches)
{
	int r = check_address(check, "the tiles", tiles);

	if (!r && stretches)
		r = check_address(check, "the stretches", stretches);
	return err_trace(r);
}

static int check_optim(const struct check *check, const struct kern_cuda_optim_args *args)
{
	int r = check_groups(check, args);

	r = r ? r : check_tables(check, args->tiles, args->stretches);
	return r ? r : check_gradient(check, &args->gradient, true);
}

static int check_pair(const struct check *check, uint64_t target, uint64_t source)
{
	int r = check_address(check, "the target", target);

	return r ? r : check_address(check, "the source", source);
}

int kern_cuda_check(enum kern_cuda_kernel kernel, const void *args, struct zi_text *text)
{
	const struct check check = { kernel, text };
	const struct kern_cuda_widen_args *widen = args;
	const struct kern_cuda_narrow_args *narrow = args;
	const struct kern_cuda_reduce_args *reduce = args;
	const struct kern_cuda_accumulate_args *accumulate = args;
	const struct kern_cuda_finish_args *finish = args;
	const struct kern_cuda_norm_blocks_args *blocks = args;
	const struct kern_cuda_norm_join_args *join = args;
	int r;

	assert(kernel < _KERN_CUDA_COUNT);
	switch (kernel) {
	case KERN_CUDA_widen:
		r = check_pair(&check, widen->target, widen->source);
		return r ? r : check_dtype(&check, widen->dtype, ZI_DTYPE_F16);
	case KERN_CUDA_narrow:
		r = check_pair(&check, narrow->target, narrow->source);
		return r ? r : check_dtype(&check, narrow->dtype, ZI_DTYPE_F16);
	case KERN_CUDA_reduce:
		r = check_address(&check, "the target", reduce->target);
		return r ? r : check_gradient(&check, &reduce->gradient, false);
	case KERN_CUDA_accumulate:
		r = check_address(&check, "the accumulator", accumulate->accum);
		return r ? r : check_gradient(&check, &accumulate->gradient, false);
	case KERN_CUDA_finish:
		r = check_pair(&check, finish->target, finish->accum);
		return r ? r : check_dtype(&check, finish->dtype, ZI_DTYPE_F32);
	case KERN_CUDA_norm_blocks:
		r = check_tables(&check, blocks->tiles, blocks->stretches);
		r = r ? r : check_address(&check, "the block sums", blocks->block_sums);
		return r ? r : check_gradient(&check, &blocks->gradient, true);
	case KERN_CUDA_norm_join:
		return check_pair(&check, join->joined, join->nodes);
	default:
		return check_optim(&check, args);
	}
}

static int check_group(const struct check *check, uint32_t group)
{
	if (group < KERN_CUDA_GROUPS_MAX || group == KERN_CUDA_FROZEN)
		return 0;
	return err_origin(zi_text_error(
		check->text, -EINVAL, "%s: group %u of a tile, but there are %u at most",
		kern_cuda_name(check->kernel), group, KERN_CUDA_GROUPS_MAX));
}

static int check_stretches(const struct check *check, const struct kern_cuda_tile *tile,
                           const struct kern_cuda_stretch *stretches)
{
	uint32_t end = 0;

	if (tile->group != KERN_CUDA_MIXED)
		return err_trace(check_group(check, tile->group));
	for (uint32_t i = 0; i < tile->stretch_count; i++) {
		const struct kern_cuda_stretch *stretch = &stretches[tile->stretch_first + i];
		int r = check_group(check, stretch->group);

		if (r)
			return err_trace(r);
		if (stretch->end < end)
			return err_origin(zi_text_error(
				check->text, -EINVAL,
				"%s: stretch %u of a tile ends at element %u, before the former "
				"one's end at %u",
				kern_cuda_name(check->kernel), i, stretch->end, end));
		end = stretch->end;
	}
	if (end < tile->element_count)
		return err_origin(zi_text_error(
			check->text, -EINVAL, "%s: %u stretches end at element %u of %u of a tile",
			kern_cuda_name(check->kernel), tile->stretch_count, end,
			tile->element_count));
	return 0;
}

int kern_cuda_check_tile(enum kern_cuda_kernel kernel, const struct kern_cuda_tile *tile,
                         const struct kern_cuda_stretch *stretches, struct zi_text *text)
{
	const struct check check = { kernel, text };
	const uint32_t multiple = is_optim(kernel) ? KERN_LANES : ZI_BLOCK_ELEMENTS;
	int r = check_stretches(&check, tile, stretches);

	assert(is_optim(kernel) || kernel == KERN_CUDA_norm_blocks);
	if (r)
		return err_trace(r);
	if (!tile->element_count || tile->element_count % multiple ||
	    tile->element_count > ZI_TILE_ELEMENTS)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"%s: a tile of %u elements, but multiples of %u up to %u are "
			"taken",
			kern_cuda_name(kernel), tile->element_count, multiple, ZI_TILE_ELEMENTS));
	if (tile->gradient_first % KERN_CUDA_VECTOR)
		return err_origin(zi_text_error(
			text, -EINVAL, "%s: the gradient's element %llu is no multiple of %u",
			kern_cuda_name(kernel), (unsigned long long)tile->gradient_first,
			KERN_CUDA_VECTOR));
	if (!is_optim(kernel))
		return 0;
	r = check_address(&check, "the parameters", tile->param);
	if (!r && tile->param_copy)
		r = check_address(&check, "the parameters' copy", tile->param_copy);
	return r ? r : check_address(&check, "the state", tile->state);
}

int kern_cuda_check_sources(enum kern_cuda_kernel kernel, const uint64_t *sources,
                            uint32_t source_count, struct zi_text *text)
{
	const struct check check = { kernel, text };
	int r = 0;

	assert(source_count <= ZI_WORLD_MAX);
	for (uint32_t i = 0; i < source_count && !r; i++)
		r = check_address(&check, "a gradient", sources[i]);
	return err_trace(r);
}
