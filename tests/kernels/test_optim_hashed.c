/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the step that hashes makes the same step as the plain one, and gives the checksums that
 * tiles have, on every instruction set, for every specialisation, length and input.
 * Method: beside kern_optim_step() on a copy; checksums by the library, compiled plainly in this
 * file, from each section before and after.
 */
#include <criterion/criterion.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/hash.h"
#include "kernels/optim_hashed.h"
#include "tests/kernels/data.h"

#define REDUCED 0u /* in place of a number of ranks: one gradient, already reduced */

struct shape {
	enum kern_isa isa;
	enum zi_optimizer optimizer;
	enum zi_dtype param_dtype, grad_dtype;
	uint32_t ranks; /* or REDUCED */
	enum data_kind kind;
	uint64_t count;
	uint64_t offset; /* words of fp32, off the 64-byte alignment */
};

/* A tile: its state in one piece, as it lies on a store. */
struct tile {
	void *param;
	char *state;
	uint64_t param_bytes, state_bytes;
};

static struct tile tile_new(const struct shape *shape)
{
	struct tile tile = {
		.param_bytes = shape->count * zi_dtype_bytes(shape->param_dtype),
		.state_bytes =
			shape->count * zi_state_element_bytes(shape->optimizer, shape->param_dtype),
	};

	tile.param = data_new(tile.param_bytes, shape->offset * sizeof(float));
	tile.state = data_new(tile.state_bytes, shape->offset * sizeof(float));
	data_fill(tile.param, shape->count, shape->param_dtype, shape->kind, 1);
	data_fill(tile.state, tile.state_bytes / 2, ZI_DTYPE_BF16, shape->kind, 2);
	return tile;
}

static void tile_free(struct tile *tile, const struct shape *shape)
{
	data_free(tile->param, shape->offset * sizeof(float));
	data_free(tile->state, shape->offset * sizeof(float));
}

static struct kern_optim_run run_of(const struct tile *tile, const struct shape *shape,
                                    void **grads)
{
	char *moments = tile->state + shape->count * zi_remainder_bytes(shape->param_dtype);

	return (struct kern_optim_run){
		.param = tile->param,
		.remainder = shape->param_dtype == ZI_DTYPE_F32 ? NULL : tile->state,
		.exp_avg = (float *)(void *)moments,
		.exp_avg_sq = zi_optimizer_moments(shape->optimizer) == 1
		                      ? NULL
		                      : (float *)(void *)moments + shape->count,
		.grads = (const void *const *)grads,
		.rank_count = shape->ranks == REDUCED ? 1 : shape->ranks,
		.is_reduced = shape->ranks == REDUCED,
		.element_count = shape->count,
		.param_dtype = shape->param_dtype,
		.grad_dtype = shape->grad_dtype,
	};
}

/* Section by section, as docs/PROTOCOL.md has it. */
static uint64_t state_hash(const struct tile *tile, const struct shape *shape)
{
	uint64_t remainder_bytes = shape->count * zi_remainder_bytes(shape->param_dtype);
	const char *section = tile->state;
	uint64_t words[3];
	uint32_t count = 0;

	if (remainder_bytes) {
		words[count++] = XXH3_64bits(section, remainder_bytes);
		section += remainder_bytes;
	}
	words[count++] = XXH3_64bits(section, shape->count * 4);
	section += shape->count * 4;
	if (zi_optimizer_moments(shape->optimizer) == 2)
		words[count++] = XXH3_64bits(section, shape->count * 4);
	return count == 1 ? words[0] : XXH3_64bits(words, count * sizeof(words[0]));
}

static struct kern_optim_scalars scalars_of(const struct shape *shape)
{
	struct kern_hyper hyper = {
		.optimizer = shape->optimizer,
		.lr = 1e-2,
		.beta1 = 0.9,
		.beta2 = 0.99,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.beta1_power = 0.9,
		.beta2_power = 0.99,
		.average = 0.5f,
		.unscale = 0.3f,
		.clip = 0.9f,
	};
	struct kern_optim_scalars scalars;

	kern_optim_prepare(&scalars, &hyper);
	return scalars;
}

static void check_bytes(const struct shape *shape, const char *what, const void *a, const void *b,
                        uint64_t bytes)
{
	cr_assert_eq(data_difference(a, b, bytes), -1,
	             "%s: %s differ at byte %lld of %llu (optimizer %d, param %d, grad %d, ranks "
	             "%u, kind %d, %llu elements)",
	             kern_isa_name(shape->isa), what, (long long)data_difference(a, b, bytes),
	             (unsigned long long)bytes, shape->optimizer, shape->param_dtype,
	             shape->grad_dtype, shape->ranks, shape->kind,
	             (unsigned long long)shape->count);
	cr_assert(data_guard_holds(a, bytes));
	cr_assert(data_guard_holds(b, bytes));
}

static void check_shape(const struct shape *shape)
{
	const uint64_t shift = shape->offset * sizeof(float);
	const uint32_t rank_count = shape->ranks == REDUCED ? 1 : shape->ranks;
	const struct kern_optim_scalars scalars = scalars_of(shape);
	struct tile plain = tile_new(shape);
	struct tile hashed = tile_new(shape);
	struct kern_optim_hashes hashes = { 0 };
	struct kern_optim_run run;
	void *grads[ZI_WORLD_MAX];
	uint64_t before;

	for (uint32_t rank = 0; rank < rank_count; rank++) {
		grads[rank] = data_new(shape->count * zi_dtype_bytes(shape->grad_dtype), shift);
		data_fill(grads[rank], shape->count, shape->grad_dtype, shape->kind, rank + 10);
	}
	before = state_hash(&plain, shape);
	run = run_of(&plain, shape, grads);
	kern_optim_step(&run, &scalars);
	run = run_of(&hashed, shape, grads);
	kern_optim_step_hashed(&run, &scalars, &hashes);
	check_bytes(shape, "parameters", plain.param, hashed.param, plain.param_bytes);
	check_bytes(shape, "states", plain.state, hashed.state, plain.state_bytes);
	cr_assert_eq(hashes.state_before, before, "%llu elements",
	             (unsigned long long)shape->count);
	cr_assert_eq(hashes.state, state_hash(&plain, shape), "%llu elements",
	             (unsigned long long)shape->count);
	cr_assert_eq(hashes.param, XXH3_64bits(plain.param, plain.param_bytes), "%llu elements",
	             (unsigned long long)shape->count);
	cr_assert_eq(hashes.state,
	             kern_hash_tile(hashed.state, hashed.state_bytes,
	                            zi_state_element_bytes(shape->optimizer, shape->param_dtype)));
	tile_free(&plain, shape);
	tile_free(&hashed, shape);
	for (uint32_t rank = 0; rank < rank_count; rank++)
		data_free(grads[rank], shift);
}

static void check_isa(struct shape shape)
{
	if (kern_isa_force(shape.isa) < 0)
		return;
	for (unsigned optimizer = 1; optimizer < _ZI_OPTIMIZER_COUNT; optimizer++)
		for (unsigned pair = 0; pair < DATA_DTYPE_PAIRS; pair++) {
			shape.optimizer = (enum zi_optimizer)optimizer;
			shape.param_dtype = data_dtypes[pair].param;
			shape.grad_dtype = data_dtypes[pair].grad;
			check_shape(&shape);
		}
}

Test(optim_hashed, every_specialisation_is_the_plain_step_with_checksums)
{
	static const uint32_t ranks[] = { REDUCED, 1, 2, 3, 4, 9 };

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		for (unsigned i = 0; i < sizeof ranks / sizeof *ranks; i++)
			for (enum data_kind kind = 0; kind < _DATA_COUNT; kind++)
				check_isa((struct shape){ .isa = isa,
				                          .ranks = ranks[i],
				                          .kind = kind,
				                          .count = 4096,
				                          .offset = (i + kind) % 2 });
}

/* From one vector to past what one loop computes, and around the borders of every block: 512
 * elements of 16 bits, 256 of 32. */
Test(optim_hashed, every_length_of_a_tile_has_its_checksums)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		for (uint64_t count = 16; count <= 2704; count += 16)
			check_isa((struct shape){
				.isa = isa, .ranks = 2, .count = count, .offset = count / 16 % 2 });
}

Test(optim_hashed, whole_tiles_and_nearly_whole_ones)
{
	static const uint64_t counts[] = { ZI_TILE_ELEMENTS, ZI_TILE_ELEMENTS - 16, 12288, 8208 };

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
			check_isa((struct shape){ .isa = isa, .ranks = 2, .count = counts[i] });
}

/* Whoever compares must hear of every bit, wherever it lies. */
static void check_flips(const struct shape *shape)
{
	const struct kern_optim_scalars scalars = scalars_of(shape);
	uint64_t grad_bytes = shape->count * zi_dtype_bytes(shape->grad_dtype);
	void *grad = data_new(grad_bytes, 0);
	struct tile whole = tile_new(shape);
	uint64_t sound = state_hash(&whole, shape);

	data_fill(grad, shape->count, shape->grad_dtype, DATA_ORDINARY, 3);
	for (uint64_t byte = 0; byte < whole.state_bytes; byte++) {
		struct tile tile = tile_new(shape);
		struct kern_optim_run run = run_of(&tile, shape, &grad);
		struct kern_optim_hashes hashes;

		tile.state[byte] ^= (char)(1u << byte % 8);
		kern_optim_step_hashed(&run, &scalars, &hashes);
		cr_assert_neq(hashes.state_before, sound, "byte %llu", (unsigned long long)byte);
		tile_free(&tile, shape);
	}
	tile_free(&whole, shape);
	data_free(grad, 0);
}

Test(optim_hashed, every_flipped_bit_of_a_state_is_in_the_checksum_of_before)
{
	static const enum zi_dtype dtypes[] = { ZI_DTYPE_BF16, ZI_DTYPE_F16 };

	for (unsigned i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
		check_flips(&(struct shape){ .optimizer = ZI_OPTIMIZER_ADAMW,
		                             .param_dtype = dtypes[i],
		                             .grad_dtype = dtypes[i],
		                             .ranks = 1,
		                             .count = 1616 });
}
