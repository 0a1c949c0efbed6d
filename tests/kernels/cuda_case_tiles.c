/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels over tiles: the fused step, and the norm; see cuda_case.h. */
#include <criterion/criterion.h>

#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "tests/kernels/cuda_case_private.h"

#define CASE_GROUPS    3u
#define CASE_STRETCHES 8u /* of a mixed tile */
#define CASE_TILES_MAX 8u

/* ---- tiles ---- */

/* The tiles of a case: one whole, then ones of any size with other memory between them. */
struct case_tiles {
	uint32_t count;
	uint32_t element_counts[CASE_TILES_MAX];
	uint64_t gradient_count; /* elements of a rank's gradient */
	uint64_t block_count;
};

/* Sizes are multiples of @multiple. */
static struct case_tiles case_tiles(const struct cuda_case *c, uint32_t multiple)
{
	struct case_tiles tiles = { 0 };
	uint64_t state = c->seed * 0x9e3779b97f4a7c15ull + 3, rest = c->element_count;

	while (rest && tiles.count < CASE_TILES_MAX) {
		uint64_t count = 1 + data_random(&state) % ZI_TILE_ELEMENTS;

		if (count > rest)
			count = rest;
		rest -= count;
		count = (count + multiple - 1) / multiple * multiple;
		if (c->seed % 3 == 0 && !tiles.count)
			count = ZI_TILE_ELEMENTS;
		tiles.element_counts[tiles.count++] = (uint32_t)count;
		tiles.gradient_count += count + 8;
		tiles.block_count += count / ZI_BLOCK_ELEMENTS;
	}
	return tiles;
}

/* Of a mixed tile: ends anywhere, some parts frozen. */
static void case_fill_stretches(struct kern_cuda_stretch *stretches, uint32_t element_count,
                                uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 7;
	uint32_t end = 0;

	for (uint32_t i = 0; i < CASE_STRETCHES; i++) {
		uint32_t rest = element_count - end;

		end += (uint32_t)(data_random(&state) % (i % 2 ? rest / 2 + 1 : rest / 16 + 1));
		if (i == CASE_STRETCHES - 1)
			end = element_count;
		stretches[i] = (struct kern_cuda_stretch){
			.end = end,
			.group = i % 4 == 3 ? KERN_CUDA_FROZEN : i % 4,
		};
	}
}

/* A table of tiles that have no planes yet. @ret_stretches: 0: no tile is mixed. */
static struct kern_cuda_tile *case_take_tiles(const struct cuda_case *c,
                                              const struct case_tiles *tiles,
                                              struct case_place *place, uint64_t *ret_address,
                                              uint64_t *ret_stretches)
{
	struct kern_cuda_tile *table =
		case_take_table(place, tiles->count * sizeof(*table), ret_address);
	struct kern_cuda_stretch *stretches = case_take_table(
		place, CASE_TILES_MAX * CASE_STRETCHES * sizeof(*stretches), ret_stretches);
	uint64_t gradient = 8, block = 0;

	for (uint32_t i = 0; i < tiles->count; i++) {
		table[i] = (struct kern_cuda_tile){
			.gradient_first = gradient,
			.block_first = block,
			.element_count = tiles->element_counts[i],
		};
		gradient += tiles->element_counts[i] + 8;
		block += tiles->element_counts[i] / ZI_BLOCK_ELEMENTS;
		if (!c->has_stretches)
			continue;
		table[i].group = i % 3 == 2 ? KERN_CUDA_FROZEN : i % 3 ? 1 : KERN_CUDA_MIXED;
		table[i].stretch_first = i * CASE_STRETCHES;
		table[i].stretch_count = CASE_STRETCHES;
		case_fill_stretches(&stretches[i * CASE_STRETCHES], tiles->element_counts[i],
		                    c->seed + i);
	}
	if (!c->has_stretches)
		*ret_stretches = 0;
	return table;
}

/* ---- the fused step ---- */

/* Of group @group, in a step that is not the same for all cases. */
static struct kern_optim_scalars case_scalars(const struct cuda_case *c, uint32_t group)
{
	struct kern_hyper hyper = {
		.optimizer = case_optimizer(c),
		.is_nesterov = c->is_nesterov,
		.is_first = c->is_first,
		.lr = 1e-2 * (group + 1),
		.beta1 = 0.9 - 0.1 * group,
		.beta2 = 0.99 - 0.1 * group,
		.eps = 1e-8,
		.weight_decay = group == 1 ? 0.0 : 0.1,
		.beta1_power = 0.9 / (double)(1 + c->seed % 7),
		.beta2_power = 0.99 / (double)(1 + c->seed % 5),
		.average = 77.0f, /* not looked at */
		.unscale = c->seed % 3 ? 0.3f : 1.0f,
		.clip = c->seed % 4 ? 0.9f : 1.0f,
		.lr_decay = 0.1,
		.update_count = c->seed % 9,
		.has_no_bias_correction = c->seed % 6 == 0,
	};
	struct kern_optim_scalars scalars;

	kern_optim_prepare(&scalars, &hyper);
	return scalars;
}

/* The parts of a state, as docs/ARITHMETIC.md lays them out. */
struct case_state {
	char *remainder; /* NULL: none */
	char *exp_avg, *exp_avg_sq;
};

static struct case_state case_state(const struct cuda_case *c, char *state, uint64_t count)
{
	const uint32_t remainder_bytes = zi_remainder_bytes(case_param_dtype(c));
	char *moments = state + count * remainder_bytes;
	bool has_second = zi_optimizer_moments(case_optimizer(c)) == 2;

	return (struct case_state){
		.remainder = remainder_bytes ? state : NULL,
		.exp_avg = moments,
		.exp_avg_sq = has_second ? moments + count * 4 : NULL,
	};
}

/* Masters of f16 as training has them: a remainder of any bits would be one of any size. */
static void case_fill_planes(const struct cuda_case *c, char *param, const struct case_state *state,
                             uint32_t count, uint64_t seed)
{
	static uint32_t masters[ZI_TILE_ELEMENTS];
	float *square = (float *)(void *)state->exp_avg_sq;

	if (state->remainder)
		data_fill(state->remainder, count,
		          case_param_dtype(c) == ZI_DTYPE_F16 ? ZI_DTYPE_F32 : ZI_DTYPE_BF16,
		          DATA_WILD, seed);
	if (case_param_dtype(c) == ZI_DTYPE_F16 && c->kind != DATA_WILD) {
		data_fill(masters, count, ZI_DTYPE_F32, c->kind, seed + 1);
		for (uint32_t i = 0; i < count; i++)
			kern_split_f16(kern_f32_from_bits(masters[i]),
			               &((uint16_t *)(void *)param)[i],
			               &((int32_t *)(void *)state->remainder)[i]);
	}
	data_fill(state->exp_avg, count, ZI_DTYPE_F32, c->kind, seed + 2);
	if (square)
		data_fill(square, count, ZI_DTYPE_F32, c->kind, seed + 3);
	for (uint32_t i = 0; square && i < count && c->kind == DATA_ORDINARY; i++)
		if (square[i] < 0)
			square[i] = -square[i];
}

void case_fill_optim(const struct cuda_case *c, struct case_place *place,
                     struct kern_cuda_optim_args *args)
{
	const uint64_t state_bytes = zi_state_element_bytes(case_optimizer(c), case_param_dtype(c));
	const struct case_tiles tiles = case_tiles(c, 16);
	struct kern_cuda_tile *table;

	args->tile_count = tiles.count;
	(void)case_take_gradient(c, tiles.gradient_count + 8, place, &args->gradient);
	table = case_take_tiles(c, &tiles, place, &args->tiles, &args->stretches);
	for (uint32_t i = 0; i < tiles.count; i++) {
		const uint32_t count = tiles.element_counts[i];
		char *param = case_take_array(place, count, case_param_dtype(c), c->kind,
		                              &table[i].param);
		char *bytes = case_take(place, count * state_bytes, &table[i].state);
		struct case_state state = case_state(c, bytes, count);

		if (c->has_copy)
			(void)case_take_array(place, count, case_param_dtype(c), c->kind,
			                      &table[i].param_copy);
		case_fill_planes(c, param, &state, count, place->seed += 4);
	}
	for (uint32_t group = 0; group < (c->has_stretches ? CASE_GROUPS : 1); group++)
		args->groups[group] = case_scalars(c, group);
}

/* A tile with the scalars of one group, by the CPU's kernel. */
static void case_step(const struct cuda_case *c, const struct kern_cuda_optim_args *args,
                      const struct kern_cuda_tile *tile, uint32_t group)
{
	const uint64_t *sources = (void *)(uintptr_t)args->gradient.sources;
	const struct case_state state =
		case_state(c, (char *)(uintptr_t)tile->state, tile->element_count);
	struct kern_optim_scalars scalars = args->groups[group];
	const void *grads[CASE_RANKS_MAX];
	const struct kern_optim_run run = {
		.param = (void *)(uintptr_t)tile->param,
		.param_copy = (void *)(uintptr_t)tile->param_copy,
		.remainder = state.remainder,
		.exp_avg = (float *)(void *)state.exp_avg,
		.exp_avg_sq = (float *)(void *)state.exp_avg_sq,
		.grads = grads,
		.rank_count = c->rank_count,
		.is_reduced = c->is_reduced,
		.element_count = tile->element_count,
		.param_dtype = case_param_dtype(c),
		.grad_dtype = c->grad_dtype,
	};

	scalars.average = args->gradient.average;
	for (uint32_t rank = 0; rank < c->rank_count; rank++)
		grads[rank] = (char *)(uintptr_t)sources[rank] +
		              tile->gradient_first * zi_dtype_bytes(c->grad_dtype);
	kern_optim_step(&run, &scalars);
}

static void case_move(char *target, const char *source, uint64_t first, uint64_t end,
                      uint32_t bytes)
{
	if (target && source)
		memcpy(target + first * bytes, source + first * bytes, (end - first) * bytes);
}

/* The elements from @first to @end, in all planes. */
static void case_move_elements(const struct cuda_case *c, const struct kern_cuda_tile *target,
                               const struct kern_cuda_tile *source, uint64_t first, uint64_t end)
{
	const uint32_t param_bytes = zi_dtype_bytes(case_param_dtype(c));
	const struct case_state to =
		case_state(c, (char *)(uintptr_t)target->state, target->element_count);
	const struct case_state from =
		case_state(c, (char *)(uintptr_t)source->state, source->element_count);

	case_move((char *)(uintptr_t)target->param, (char *)(uintptr_t)source->param, first, end,
	          param_bytes);
	case_move((char *)(uintptr_t)target->param_copy, (char *)(uintptr_t)source->param_copy,
	          first, end, param_bytes);
	case_move(to.remainder, from.remainder, first, end,
	          zi_remainder_bytes(case_param_dtype(c)));
	case_move(to.exp_avg, from.exp_avg, first, end, 4);
	case_move(to.exp_avg_sq, from.exp_avg_sq, first, end, 4);
}

/* A mixed tile: each group in memory of its own, from which its elements are taken. */
static void case_expect_mixed(const struct cuda_case *c, const struct kern_cuda_optim_args *args,
                              uint32_t number)
{
	const struct kern_cuda_tile *tile =
		(struct kern_cuda_tile *)(uintptr_t)args->tiles + number;
	const struct kern_cuda_stretch *stretches =
		(struct kern_cuda_stretch *)(uintptr_t)args->stretches + tile->stretch_first;
	char *memory = case_memory_new();

	for (uint32_t group = 0; group < CASE_GROUPS; group++) {
		const struct kern_cuda_tile *own_tile;
		union cuda_args own;
		uint32_t first = 0;

		case_fill(c, memory, (uintptr_t)memory, &own);
		own_tile = (struct kern_cuda_tile *)(uintptr_t)own.optim.tiles + number;
		case_step(c, &own.optim, own_tile, group);
		for (uint32_t i = 0; i < tile->stretch_count; i++) {
			if (stretches[i].group == group)
				case_move_elements(c, tile, own_tile, first, stretches[i].end);
			first = stretches[i].end;
		}
	}
	free(memory);
}

void case_expect_optim(const struct cuda_case *c, const struct kern_cuda_optim_args *args)
{
	const struct kern_cuda_tile *tiles = (void *)(uintptr_t)args->tiles;

	for (uint32_t i = 0; i < args->tile_count; i++)
		if (tiles[i].group == KERN_CUDA_MIXED)
			case_expect_mixed(c, args, i);
		else if (tiles[i].group != KERN_CUDA_FROZEN)
			case_step(c, args, &tiles[i], tiles[i].group);
}

/* ---- the norm ---- */

void case_fill_norm(const struct cuda_case *c, struct case_place *place,
                    struct kern_cuda_norm_blocks_args *args)
{
	const struct case_tiles tiles = case_tiles(c, ZI_BLOCK_ELEMENTS);

	args->tile_count = tiles.count;
	args->unscale = 0.7f;
	(void)case_take_gradient(c, tiles.gradient_count + 8, place, &args->gradient);
	(void)case_take_tiles(c, &tiles, place, &args->tiles, &args->stretches);
	(void)case_take(place, tiles.block_count * sizeof(double), &args->block_sums);
}

/* Frozen elements are +0. */
static void case_clear_frozen(const struct kern_cuda_norm_blocks_args *args,
                              const struct kern_cuda_tile *tile, char *values, uint32_t bytes)
{
	const struct kern_cuda_stretch *stretches =
		(struct kern_cuda_stretch *)(uintptr_t)args->stretches + tile->stretch_first;
	uint32_t first = 0;

	if (tile->group == KERN_CUDA_FROZEN)
		memset(values, 0, (uint64_t)tile->element_count * bytes);
	if (tile->group != KERN_CUDA_MIXED)
		return;
	for (uint32_t i = 0; i < tile->stretch_count; i++) {
		if (stretches[i].group == KERN_CUDA_FROZEN)
			memset(values + (uint64_t)first * bytes, 0,
			       (uint64_t)(stretches[i].end - first) * bytes);
		first = stretches[i].end;
	}
}

void case_expect_norm(const struct cuda_case *c, const struct kern_cuda_norm_blocks_args *args)
{
	const struct kern_reduce_options options = { c->grad_dtype, args->gradient.average };
	const struct kern_cuda_tile *tiles = (void *)(uintptr_t)args->tiles;
	const uint64_t *sources = (void *)(uintptr_t)args->gradient.sources;
	const uint32_t bytes = zi_dtype_bytes(c->grad_dtype);
	static float reduced[ZI_TILE_ELEMENTS];

	for (uint32_t i = 0; i < args->tile_count; i++) {
		const uint64_t count = tiles[i].element_count;
		const void *grads[CASE_RANKS_MAX];

		for (uint32_t rank = 0; rank < c->rank_count; rank++)
			grads[rank] =
				(char *)(uintptr_t)sources[rank] + tiles[i].gradient_first * bytes;
		if (c->is_reduced)
			memcpy(reduced, grads[0], count * bytes);
		else
			kern_reduce(reduced, grads, c->rank_count, count, &options);
		case_clear_frozen(args, &tiles[i], (char *)(void *)reduced, bytes);
		kern_norm_blocks((double *)(uintptr_t)args->block_sums + tiles[i].block_first,
		                 reduced, count, args->unscale, c->grad_dtype);
	}
}
