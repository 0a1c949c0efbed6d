/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the fused step gives the same bits on every instruction set, for every specialisation and
 * every input, NaN included, and writes nothing beyond its elements.
 * Method: for each optimizer × parameter dtype × gradient dtype × number of ranks × kind of data,
 * three steps on the reference and on the instruction set under test, every plane compared with
 * the guard behind it.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/optim.h"
#include "tests/kernels/data.h"

#define ELEMENTS (16u * 9u) /* an odd number of AVX-512 vectors */
#define STEPS    3u
#define REDUCED  0u /* in place of a number of ranks: one gradient, already reduced */

/* What the loops are specialised on. */
struct shape {
	enum zi_optimizer optimizer;
	bool is_nesterov;
	enum zi_dtype param_dtype, grad_dtype;
	uint32_t ranks; /* or REDUCED */
	enum data_kind kind;
	uint64_t offset; /* elements, off the 64-byte alignment */
};

/* The planes that a step writes; each has a guard. */
struct planes {
	void *param, *param_copy;
	void *remainder; /* nothing of it is used with fp32 */
	float *exp_avg, *exp_avg_sq;
};

/* Masters of f16 as training has them: a remainder of any bits would be one of any size. */
static void fill_masters_f16(struct planes *planes, enum data_kind kind)
{
	uint32_t masters[ELEMENTS];

	data_fill(masters, ELEMENTS, ZI_DTYPE_F32, kind, 1);
	for (unsigned i = 0; i < ELEMENTS; i++)
		kern_split_f16(kern_f32_from_bits(masters[i]), &((uint16_t *)planes->param)[i],
		               &((int32_t *)planes->remainder)[i]);
}

static void planes_init(struct planes *planes, const struct shape *shape)
{
	uint64_t width = zi_dtype_bytes(shape->param_dtype);

	planes->param = data_new(ELEMENTS * width, shape->offset * width);
	planes->param_copy = data_new(ELEMENTS * width, shape->offset * width);
	planes->remainder = data_new(ELEMENTS * 4, shape->offset * 4);
	planes->exp_avg = data_new(ELEMENTS * 4, shape->offset * 4);
	planes->exp_avg_sq = data_new(ELEMENTS * 4, shape->offset * 4);
	data_fill(planes->param, ELEMENTS, shape->param_dtype, shape->kind, 1);
	data_fill(planes->remainder, ELEMENTS, ZI_DTYPE_F32, DATA_WILD, 2);
	data_fill(planes->exp_avg, ELEMENTS, ZI_DTYPE_F32, shape->kind, 3);
	data_fill(planes->exp_avg_sq, ELEMENTS, ZI_DTYPE_F32, shape->kind, 4);
	if (shape->param_dtype == ZI_DTYPE_F16 && shape->kind != DATA_WILD)
		fill_masters_f16(planes, shape->kind);
	for (unsigned i = 0; i < ELEMENTS && shape->kind == DATA_ORDINARY; i++)
		if (planes->exp_avg_sq[i] < 0)
			planes->exp_avg_sq[i] = -planes->exp_avg_sq[i];
}

static void planes_deinit(struct planes *planes, const struct shape *shape)
{
	uint64_t width = zi_dtype_bytes(shape->param_dtype);

	data_free(planes->param, shape->offset * width);
	data_free(planes->param_copy, shape->offset * width);
	data_free(planes->remainder, shape->offset * 4);
	data_free(planes->exp_avg, shape->offset * 4);
	data_free(planes->exp_avg_sq, shape->offset * 4);
}

static void planes_compare(const struct planes *a, const struct planes *b,
                           const struct shape *shape, enum kern_isa isa)
{
	const uint64_t width = zi_dtype_bytes(shape->param_dtype);
	const struct {
		const char *name;
		const void *a, *b;
		uint64_t bytes;
	} pairs[] = {
		{ "param", a->param, b->param, ELEMENTS * width },
		{ "param_copy", a->param_copy, b->param_copy, ELEMENTS * width },
		{ "remainder", a->remainder, b->remainder, ELEMENTS * 4 },
		{ "exp_avg", a->exp_avg, b->exp_avg, ELEMENTS * 4 },
		{ "exp_avg_sq", a->exp_avg_sq, b->exp_avg_sq, ELEMENTS * 4 },
	};

	for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		int64_t at = data_difference(pairs[i].a, pairs[i].b, pairs[i].bytes);

		cr_assert_eq(at, -1,
		             "%s: %s differs at byte %lld (optimizer %d, nesterov %d, param %d, "
		             "grad %d, ranks %u, kind %d)",
		             kern_isa_name(isa), pairs[i].name, (long long)at, shape->optimizer,
		             shape->is_nesterov, shape->param_dtype, shape->grad_dtype,
		             shape->ranks, shape->kind);
		cr_assert(data_guard_holds(pairs[i].a, pairs[i].bytes));
		cr_assert(data_guard_holds(pairs[i].b, pairs[i].bytes));
	}
}

/* STEPS steps; SGD's first is a first one. Every second shape writes no param_copy. */
static void run_steps(const struct shape *shape, struct planes *planes, void **grads)
{
	const uint32_t rank_count = shape->ranks == REDUCED ? 1 : shape->ranks;
	struct kern_hyper hyper = {
		.optimizer = shape->optimizer,
		.is_nesterov = shape->is_nesterov,
		.is_first = true,
		.lr = 1e-2,
		.beta1 = 0.9,
		.beta2 = 0.99,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.beta1_power = 1.0,
		.beta2_power = 1.0,
		.average = (float)(1.0 / rank_count),
		.unscale = 0.3f,
		.clip = 0.9f,
		.lr_decay = 0.1,
	};
	const struct kern_optim_run run = {
		.param = planes->param,
		.param_copy = shape->offset ? planes->param_copy : NULL,
		.remainder = shape->param_dtype == ZI_DTYPE_F32 ? NULL : planes->remainder,
		.exp_avg = planes->exp_avg,
		.exp_avg_sq =
			zi_optimizer_moments(shape->optimizer) == 1 ? NULL : planes->exp_avg_sq,
		.grads = (const void *const *)grads,
		.rank_count = rank_count,
		.is_reduced = shape->ranks == REDUCED,
		.element_count = ELEMENTS,
		.param_dtype = shape->param_dtype,
		.grad_dtype = shape->grad_dtype,
	};

	for (unsigned step = 0; step < STEPS; step++) {
		struct kern_optim_scalars scalars;

		hyper.beta1_power *= hyper.beta1;
		hyper.beta2_power *= hyper.beta2;
		kern_optim_prepare(&scalars, &hyper);
		kern_optim_step(&run, &scalars);
		hyper.is_first = false;
		hyper.update_count++;
	}
}

static void check_shape(const struct shape *shape, enum kern_isa isa)
{
	const uint32_t rank_count = shape->ranks == REDUCED ? 1 : shape->ranks;
	const uint64_t shift = shape->offset * zi_dtype_bytes(shape->grad_dtype);
	void *grads[ZI_WORLD_MAX];
	struct planes expected, planes;

	for (uint32_t rank = 0; rank < rank_count; rank++) {
		grads[rank] = data_new(ELEMENTS * zi_dtype_bytes(shape->grad_dtype), shift);
		data_fill(grads[rank], ELEMENTS, shape->grad_dtype, shape->kind, rank + 10);
	}
	planes_init(&expected, shape);
	planes_init(&planes, shape);
	cr_assert_eq(kern_isa_force(KERN_ISA_REF), 0);
	run_steps(shape, &expected, grads);
	cr_assert_eq(kern_isa_force(isa), 0);
	run_steps(shape, &planes, grads);
	planes_compare(&expected, &planes, shape, isa);
	planes_deinit(&expected, shape);
	planes_deinit(&planes, shape);
	for (uint32_t rank = 0; rank < rank_count; rank++)
		data_free(grads[rank], shift);
}

static void check_optimizer(enum kern_isa isa, enum zi_optimizer optimizer, bool is_nesterov)
{
	static const uint32_t ranks[] = { REDUCED, 1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 64 };
	struct shape shape = { .optimizer = optimizer, .is_nesterov = is_nesterov };

	for (unsigned pair = 0; pair < DATA_DTYPE_PAIRS; pair++)
		for (unsigned i = 0; i < sizeof ranks / sizeof *ranks; i++)
			for (enum data_kind kind = 0; kind < _DATA_COUNT; kind++) {
				shape.param_dtype = data_dtypes[pair].param;
				shape.grad_dtype = data_dtypes[pair].grad;
				shape.ranks = ranks[i];
				shape.kind = kind;
				shape.offset = (i + kind) % 2;
				check_shape(&shape, isa);
			}
}

static void check_isa(enum kern_isa isa)
{
	if (kern_isa_force(isa) < 0)
		cr_skip_test("this CPU has no %s", kern_isa_name(isa));
	check_optimizer(isa, ZI_OPTIMIZER_ADAMW, false);
	check_optimizer(isa, ZI_OPTIMIZER_ADAM, false);
	check_optimizer(isa, ZI_OPTIMIZER_SGD, false);
	check_optimizer(isa, ZI_OPTIMIZER_SGD, true);
	check_optimizer(isa, ZI_OPTIMIZER_ADAGRAD, false);
	check_optimizer(isa, ZI_OPTIMIZER_LION, false);
}

Test(optim_isa, avx2_has_the_bits_of_the_reference)
{
	check_isa(KERN_ISA_AVX2);
}

Test(optim_isa, avx512_has_the_bits_of_the_reference)
{
	check_isa(KERN_ISA_AVX512);
}

Test(optim_isa, wild_data_holds_nans_and_a_nan_is_stored_canonically)
{
	const struct shape shape = {
		.optimizer = ZI_OPTIMIZER_ADAMW,
		.param_dtype = ZI_DTYPE_BF16,
		.grad_dtype = ZI_DTYPE_BF16,
		.ranks = 2,
		.kind = DATA_WILD,
	};
	unsigned nan_count = 0;

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		uint16_t first[ELEMENTS], second[ELEMENTS];
		void *grads[] = { first, second };
		struct planes planes;

		if (kern_isa_force(isa) < 0)
			continue;
		data_fill(first, ELEMENTS, ZI_DTYPE_BF16, DATA_WILD, 10);
		data_fill(second, ELEMENTS, ZI_DTYPE_BF16, DATA_WILD, 11);
		planes_init(&planes, &shape);
		run_steps(&shape, &planes, grads);
		for (unsigned i = 0; i < ELEMENTS; i++) {
			uint16_t param = ((uint16_t *)planes.param)[i];
			int16_t remainder = ((int16_t *)planes.remainder)[i];
			uint32_t moment = kern_f32_bits(planes.exp_avg[i]);

			if ((moment & 0x7fffffffu) > 0x7f800000u)
				cr_assert_eq(moment, 0x7fc00000u);
			if (!isnan(kern_join(param, remainder)))
				continue;
			nan_count++;
			cr_assert_eq(param, 0x7fc0);
			cr_assert_eq(remainder, 0);
		}
		planes_deinit(&planes, &shape);
	}
	cr_assert_gt(nan_count, 20);
}
