/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: training in f16 is that in fp32 with each parameter rounded once for who reads it: nothing
 * that f16 cannot hold reaches the master, nor the sum of gradients.
 * Method: beside fp32 steps over the same gradients, bit by bit (which test_optim*.c hold against
 * long double); and the values at the borders of f16, on every instruction set.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/optim.h"
#include "kernels/reduce.h"
#include "tests/kernels/data.h"

#define ELEMENTS  512u
#define RANKS     3u
#define F16_MAX   65504.0f
#define F16_LIMIT 65520.0f /* from here on infinity is nearer, or as near and even */

/* What is trained; @remainder is of the f16 one alone. */
struct model {
	union {
		uint16_t half[ELEMENTS];
		float wide[ELEMENTS];
	} param;
	int32_t remainder[ELEMENTS];
	float exp_avg[ELEMENTS], exp_avg_sq[ELEMENTS];
};

static struct model half, wide;
static uint16_t copy[ELEMENTS], grads[RANKS][ELEMENTS], reduced[ELEMENTS];
static float grad[ELEMENTS];

static struct kern_hyper hyper_of(enum zi_optimizer optimizer)
{
	return (struct kern_hyper){
		.optimizer = optimizer,
		.lr = 0.01,
		.beta1 = 0.9,
		.beta2 = 0.99,
		.eps = 1e-8,
		.weight_decay = 0.01,
		.beta1_power = 1.0,
		.beta2_power = 1.0,
		.average = 1.0f / RANKS,
		.unscale = 0x1p-10f,
		.clip = 0.9f,
	};
}

static struct kern_optim_run run_of(struct model *model, bool is_half, enum zi_optimizer optimizer)
{
	return (struct kern_optim_run){
		.param = &model->param,
		.param_copy = is_half ? copy : NULL,
		.remainder = is_half ? model->remainder : NULL,
		.exp_avg = model->exp_avg,
		.exp_avg_sq = zi_optimizer_moments(optimizer) == 2 ? model->exp_avg_sq : NULL,
		.rank_count = 1,
		.element_count = ELEMENTS,
		.param_dtype = is_half ? ZI_DTYPE_F16 : ZI_DTYPE_F32,
		.grad_dtype = ZI_DTYPE_F32,
	};
}

/* Masters from the same numbers, moments of zero. */
static void models_begin(enum data_kind kind)
{
	uint32_t masters[ELEMENTS];

	memset(&half, 0, sizeof half);
	memset(&wide, 0, sizeof wide);
	data_fill(masters, ELEMENTS, ZI_DTYPE_F32, kind, 1);
	memcpy(wide.param.wide, masters, sizeof masters);
	for (unsigned i = 0; i < ELEMENTS; i++)
		kern_split_f16(wide.param.wide[i], &half.param.half[i], &half.remainder[i]);
}

static void models_compare(void)
{
	for (unsigned i = 0; i < ELEMENTS; i++) {
		float master = kern_join_f16(half.param.half[i], half.remainder[i]);

		cr_assert_eq(kern_f32_bits(master), kern_f32_bits(wide.param.wide[i]), "%u", i);
		cr_assert_eq(half.param.half[i], kern_f32_to_f16(master), "%u", i);
	}
	cr_assert_eq(memcmp(copy, half.param.half, sizeof copy), 0);
	cr_assert_eq(memcmp(half.exp_avg, wide.exp_avg, sizeof wide.exp_avg), 0);
	cr_assert_eq(memcmp(half.exp_avg_sq, wide.exp_avg_sq, sizeof wide.exp_avg_sq), 0);
}

/* Ten steps, whose gradients are summed and rounded to f16 apart for the fp32 model. */
static void train_beside(enum zi_optimizer optimizer)
{
	const struct kern_reduce_options mean = { ZI_DTYPE_F16, 1.0f / RANKS };
	const void *const sources[] = { grads[0], grads[1], grads[2] };
	const void *const widened[] = { grad };
	struct kern_optim_run half_run = run_of(&half, true, optimizer);
	struct kern_optim_run wide_run = run_of(&wide, false, optimizer);
	struct kern_hyper hyper = hyper_of(optimizer);
	struct kern_optim_scalars scalars;

	half_run.grads = sources;
	half_run.rank_count = RANKS;
	half_run.grad_dtype = ZI_DTYPE_F16;
	wide_run.grads = widened;
	wide_run.is_reduced = true;
	models_begin(DATA_ORDINARY);
	for (unsigned step = 0; step < 10; step++) {
		for (unsigned rank = 0; rank < RANKS; rank++)
			data_fill(grads[rank], ELEMENTS, ZI_DTYPE_F16, DATA_ORDINARY,
			          100 * step + rank);
		hyper.beta1_power *= hyper.beta1;
		hyper.beta2_power *= hyper.beta2;
		hyper.is_first = step == 0;
		kern_optim_prepare(&scalars, &hyper);
		kern_optim_step(&half_run, &scalars);
		kern_reduce(reduced, sources, RANKS, ELEMENTS, &mean);
		kern_widen(grad, reduced, ELEMENTS, ZI_DTYPE_F16);
		kern_optim_step(&wide_run, &scalars);
		models_compare();
	}
}

Test(optim_f16, masters_and_moments_are_those_of_fp32_training_with_every_optimizer)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		for (unsigned kind = 1; kind < _ZI_OPTIMIZER_COUNT; kind++)
			if (kern_isa_force(isa) == 0)
				train_beside((enum zi_optimizer)kind);
}

/* One step of SGD with lr 1, of which element i has the fp32 gradient @gradient. */
static void descend(float gradient)
{
	const void *const sources[] = { grad };
	struct kern_optim_run run = run_of(&half, true, ZI_OPTIMIZER_SGD);
	struct kern_hyper hyper = { .optimizer = ZI_OPTIMIZER_SGD,
		                    .lr = 1.0,
		                    .is_first = true,
		                    .average = 1.0f,
		                    .unscale = 1.0f,
		                    .clip = 1.0f };
	struct kern_optim_scalars scalars;

	for (unsigned i = 0; i < ELEMENTS; i++)
		grad[i] = gradient;
	run.grads = sources;
	kern_optim_prepare(&scalars, &hyper);
	kern_optim_step(&run, &scalars);
}

static void begin_at(float master)
{
	memset(&half, 0, sizeof half);
	for (unsigned i = 0; i < ELEMENTS; i++)
		kern_split_f16(master, &half.param.half[i], &half.remainder[i]);
}

static void expect_all(uint16_t param, float master)
{
	for (unsigned i = 0; i < ELEMENTS; i++) {
		float joined = kern_join_f16(half.param.half[i], half.remainder[i]);

		cr_assert_eq(half.param.half[i], param, "%#x", half.param.half[i]);
		cr_assert_eq(copy[i], param);
		cr_assert_eq(joined, master, "%a", (double)joined);
	}
}

Test(optim_f16, a_master_beyond_f16_stays_finite_and_comes_back)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		begin_at(F16_MAX);
		descend(-15.99609375f); /* as far as the last fp32 below F16_LIMIT is */
		expect_all(0x7bff, nextafterf(F16_LIMIT, 0.0f));
		descend(-0x1p-8f);
		expect_all(0x7c00, F16_LIMIT);
		descend(-1e6f);
		expect_all(0x7c00, F16_LIMIT + 1e6f);
		descend(1e6f + 16.0f);
		expect_all(0x7bff, F16_MAX);
		descend(2 * F16_MAX);
		expect_all(0xfbff, -F16_MAX);
		descend(16.0f);
		expect_all(0xfc00, -F16_LIMIT);
	}
}

Test(optim_f16, what_is_too_small_for_f16_is_kept_in_the_master)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		begin_at(0.0f);
		descend(-0x1p-25f);
		expect_all(0, 0x1p-25f); /* half of the least denormal, to even */
		descend(-0x1p-40f);
		expect_all(1, 0x1p-25f + 0x1p-40f);
		descend(0x1p-25f);
		expect_all(0, 0x1p-40f);
		begin_at(1.0f);
		descend(-0x1p-11f);
		expect_all(0x3c00, 1.0f + 0x1p-11f); /* a tie again */
		descend(-0x1p-20f);
		expect_all(0x3c01, 1.0f + 0x1p-11f + 0x1p-20f);
	}
}

/* Two ranks with gradients of @first and @second. Return: what SGD moved a parameter of zero by. */
static float reduced_of(float first, float second, float average)
{
	const void *const sources[] = { grads[0], grads[1] };
	struct kern_optim_run run = run_of(&half, true, ZI_OPTIMIZER_SGD);
	struct kern_hyper hyper = { .optimizer = ZI_OPTIMIZER_SGD,
		                    .lr = 1.0,
		                    .is_first = true,
		                    .average = average,
		                    .unscale = 1.0f,
		                    .clip = 1.0f };
	struct kern_optim_scalars scalars;

	for (unsigned i = 0; i < ELEMENTS; i++) {
		grads[0][i] = kern_f32_to_f16(first);
		grads[1][i] = kern_f32_to_f16(second);
	}
	begin_at(0.0f);
	run.grads = sources;
	run.rank_count = 2;
	run.grad_dtype = ZI_DTYPE_F16;
	kern_optim_prepare(&scalars, &hyper);
	kern_optim_step(&run, &scalars);
	return -half.exp_avg[ELEMENTS - 1];
}

Test(optim_f16, gradients_are_averaged_before_they_are_rounded)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		cr_assert_eq(reduced_of(F16_MAX, F16_MAX, 0.5f), -F16_MAX);
		cr_assert_eq(reduced_of(F16_MAX, 15.0f, 1.0f), -F16_MAX);
		cr_assert_eq(reduced_of(F16_MAX, 16.0f, 1.0f), -INFINITY);
		cr_assert_eq(reduced_of(-F16_MAX, -F16_MAX, 1.0f), INFINITY);
		cr_assert_eq(reduced_of(0x1p-24f, 0.0f, 0.5f), -0.0f, "a tie, to even");
		cr_assert_eq(reduced_of(0x1p-24f, 0x1p-23f, 0.5f), -0x1p-23f, "as well");
	}
}

Test(optim_f16, a_gradient_that_is_no_number_makes_one_canonical_nan)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		begin_at(1.0f);
		descend(-NAN);
		for (unsigned i = 0; i < ELEMENTS; i++) {
			cr_assert_eq(half.param.half[i], 0x7e00);
			cr_assert_eq(half.remainder[i], 0);
			cr_assert_eq(kern_f32_bits(half.exp_avg[i]), 0x7fc00000u);
		}
	}
}
