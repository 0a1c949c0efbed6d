/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the fused step computes the formulas of AdamW, Adam and SGD, is nothing but its parts in
 * one pass, and gives the same bits on every instruction set.
 * Method: hand-computed steps (torch's formulas, 40 decimal digits); long double within a stated
 * bound; the fused pass against reduce, split and join one after the other. test_optim_isa.c
 * compares the instruction sets.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "kernels/optim.h"
#include "kernels/reduce.h"
#include "tests/kernels/data.h"
#include "tests/kernels/single_run.h"

#define ELEMENTS 1024u
#define HALF_ULP 0x1p-24L /* relative error of one fp32 rounding */

static struct kern_hyper hyper_of(enum zi_optimizer optimizer)
{
	bool is_sgd = optimizer == ZI_OPTIMIZER_SGD;

	return (struct kern_hyper){
		.optimizer = optimizer,
		.lr = 0.1,
		.beta1 = 0.9,
		.beta2 = is_sgd ? 0.1 : 0.999,
		.eps = 1e-8,
		.weight_decay = 0.01,
		.beta1_power = 1.0,
		.beta2_power = 1.0,
		.is_first = true,
		.average = 1.0f,
		.unscale = 1.0f,
		.clip = 1.0f,
	};
}

static void hyper_advance(struct kern_hyper *hyper)
{
	hyper->beta1_power *= hyper->beta1;
	hyper->beta2_power *= hyper->beta2;
}

/* Three fp32 steps with the gradients 0.5, −0.25, 0.125 from parameter 1, in every lane. */
static void check_golden(struct kern_hyper hyper, const double *params, double momentum,
                         double square)
{
	static const float steps[3] = { 0.5f, -0.25f, 0.125f };
	float param[16], exp_avg[16] = { 0 }, exp_avg_sq[16] = { 0 }, grad[16];
	const void *const grads[] = { grad };
	struct kern_optim_run run = single_run(
		param, exp_avg, hyper.optimizer == ZI_OPTIMIZER_SGD ? NULL : exp_avg_sq, grads, 16);

	for (unsigned i = 0; i < 16; i++)
		param[i] = 1.0f;
	for (unsigned step = 0; step < 3; step++) {
		struct kern_optim_scalars scalars;

		for (unsigned i = 0; i < 16; i++)
			grad[i] = steps[step];
		hyper_advance(&hyper);
		hyper.is_first = step == 0;
		kern_optim_prepare(&scalars, &hyper);
		kern_optim_step(&run, &scalars);
		for (unsigned i = 0; i < 16; i++)
			cr_assert_float_eq(param[i], params[step], 3e-7, "step %u: %.9g", step,
			                   param[i]);
	}
	cr_assert_float_eq(exp_avg[15], momentum, 1e-7);
	if (run.exp_avg_sq)
		cr_assert_float_eq(exp_avg_sq[15], square, 1e-10);
}

static void check_golden_all(struct kern_hyper hyper, const double *params, double momentum,
                             double square)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		if (kern_isa_force(isa) == 0)
			check_golden(hyper, params, momentum, square);
}

Test(optim, adamw_is_torchs_formula)
{
	const double params[] = { 0.899000001999999960, 0.871467298705846163,
		                  0.836552917615948123 };

	check_golden_all(hyper_of(ZI_OPTIMIZER_ADAMW), params, 0.0305, 0.00032756275);
}

Test(optim, adamw_without_bias_correction_is_deepspeeds_formula)
{
	const double params[] = { 0.682772433983035576, 0.568907358605398731,
		                  0.399818104082234429 };
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAMW);

	hyper.has_no_bias_correction = true;
	check_golden_all(hyper, params, 0.0305, 0.00032756275);
}

Test(optim, adam_adds_weight_decay_to_the_gradient)
{
	const double params[] = { 0.900000001960784275, 0.871229347623173988,
		                  0.834843034056842281 };

	check_golden_all(hyper_of(ZI_OPTIMIZER_ADAM), params, 0.0329912293493878799,
	                 0.000335481956517232396);
}

Test(optim, sgd_has_momentum_and_dampening)
{
	const double params[] = { 0.949, 0.9247459, 0.89083493869 };

	check_golden_all(hyper_of(ZI_OPTIMIZER_SGD), params, 0.3391096131, 0);
}

Test(optim, sgd_nesterov_looks_ahead)
{
	const double params[] = { 0.9031, 0.90757411, 0.864439208191 };
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_SGD);

	hyper.beta2 = 0.0;
	hyper.is_nesterov = true;
	check_golden_all(hyper, params, 0.3303036411, 0);
}

Test(optim, the_first_step_of_sgd_ignores_dampening_and_what_the_buffer_holds)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_SGD);
	struct kern_optim_scalars scalars;
	float param[16] = { 0 }, momentum[16], grad[16];
	const void *const grads[] = { grad };
	const struct kern_optim_run run = single_run(param, momentum, NULL, grads, 16);

	for (unsigned i = 0; i < 16; i++) {
		grad[i] = (float)i;
		momentum[i] = NAN;
	}
	kern_optim_prepare(&scalars, &hyper);
	kern_optim_step(&run, &scalars);
	for (unsigned i = 0; i < 16; i++)
		cr_assert_eq(momentum[i], (float)i);
}

Test(optim, scalars_are_rounded_once_from_f64)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAMW);
	struct kern_optim_scalars s;
	volatile double decay = 0.1 * 0.01;

	hyper.beta1_power = 0.9 * 0.9;
	hyper.beta2_power = 0.999 * 0.999;
	hyper.average = 0.25f;
	hyper.unscale = 0x1p-16f;
	hyper.clip = 0.5f;
	kern_optim_prepare(&s, &hyper);
	cr_assert_eq(s.decay, (float)(1.0 - decay));
	cr_assert_eq(s.one_minus_b1, (float)(1.0 - 0.9));
	cr_assert_neq(s.one_minus_b1, 1.0f - 0.9f, "otherwise the line above proves nothing");
	cr_assert_eq(s.one_minus_b2, (float)(1.0 - 0.999));
	cr_assert_eq(s.b1, 0.9f);
	cr_assert_eq(s.b2, 0.999f);
	cr_assert_eq(s.step_size, (float)(0.1 / (1.0 - 0.9 * 0.9)));
	cr_assert_eq(s.root_bc2, (float)sqrt(1.0 - 0.999 * 0.999));
	cr_assert_eq(s.eps, 1e-8f);
	cr_assert_eq(s.weight_decay, 0.01f);
	cr_assert_eq(s.average, 0.25f);
	cr_assert_eq(s.unscale, 0x1p-16f);
	cr_assert_eq(s.clip, 0.5f);
}

Test(optim, without_bias_correction_the_rate_is_taken_as_it_is)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAM);
	struct kern_optim_scalars s;

	hyper_advance(&hyper);
	hyper.has_no_bias_correction = true;
	kern_optim_prepare(&s, &hyper);
	cr_assert_eq(s.step_size, 0.1f);
	cr_assert_eq(s.root_bc2, 1.0f);
	hyper.has_no_bias_correction = false;
	kern_optim_prepare(&s, &hyper);
	cr_assert_neq(s.step_size, 0.1f);
	cr_assert_neq(s.root_bc2, 1.0f);
}

static float param[ELEMENTS], exp_avg[ELEMENTS], exp_avg_sq[ELEMENTS], grad[ELEMENTS];
static float param_old[ELEMENTS], exp_avg_old[ELEMENTS], exp_avg_sq_old[ELEMENTS];

/* One AdamW or Adam element in long double, from the rounded scalars; the bounds count roundings:
 * g 2 (Adam 3), m g + 3, v 2g + 3, d half of v + 3. */
static void check_element(const struct kern_optim_scalars *s, unsigned i)
{
	bool is_adamw = s->optimizer == ZI_OPTIMIZER_ADAMW;
	long double p = param_old[i], m, v, d, g, g_size, m_error, p_error;

	g = (long double)grad[i] * s->unscale * s->clip;
	g_size = fabsl(g);
	if (is_adamw) {
		p *= s->decay;
	} else {
		g += s->weight_decay * p;
		g_size += fabsl(s->weight_decay * p);
	}
	m = s->b1 * (long double)exp_avg_old[i] + s->one_minus_b1 * g;
	v = s->b2 * (long double)exp_avg_sq_old[i] + s->one_minus_b2 * g * g;
	m_error = (6 * s->one_minus_b1 * g_size + 3 * fabsl(s->b1 * exp_avg_old[i])) * HALF_ULP;
	cr_assert_leq(fabsl(exp_avg[i] - m), m_error + FLT_TRUE_MIN, "m of %u", i);
	cr_assert_leq(fabsl(exp_avg_sq[i] - v),
	              (3 * v + 9 * s->one_minus_b2 * g_size * g_size) * HALF_ULP + FLT_TRUE_MIN,
	              "v of %u", i);
	d = sqrtl(v) / s->root_bc2 + s->eps;
	p_error = 2 * HALF_ULP * (fabsl(p) + fabsl(s->step_size * m / d)) +
	          s->step_size * (m_error + 16 * HALF_ULP * fabsl(m)) / d;
	p -= s->step_size * m / d;
	cr_assert_leq(fabsl(param[i] - p), p_error, "p of %u: %.9g, not %.12Lg", i, param[i], p);
}

static void check_against_long_double(enum zi_optimizer optimizer)
{
	struct kern_hyper hyper = hyper_of(optimizer);
	struct kern_optim_scalars scalars;
	const void *const grads[] = { grad };
	struct kern_optim_run run = single_run(param, exp_avg, exp_avg_sq, grads, ELEMENTS);

	run.is_reduced = true;
	hyper.lr = 1e-3;
	hyper.unscale = 1.0f / 3.0f;
	hyper.clip = 0.7f;
	for (unsigned step = 0; step < 20; step++) {
		data_fill(grad, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, step + 10);
		hyper_advance(&hyper);
		kern_optim_prepare(&scalars, &hyper);
		memcpy(param_old, param, sizeof param);
		memcpy(exp_avg_old, exp_avg, sizeof exp_avg);
		memcpy(exp_avg_sq_old, exp_avg_sq, sizeof exp_avg_sq);
		kern_optim_step(&run, &scalars);
		for (unsigned i = 0; i < ELEMENTS; i++)
			check_element(&scalars, i);
	}
}

Test(optim, adamw_is_within_its_bound_of_long_double)
{
	data_fill(param, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 1);
	check_against_long_double(ZI_OPTIMIZER_ADAMW);
}

Test(optim, adam_is_within_its_bound_of_long_double)
{
	data_fill(param, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 2);
	check_against_long_double(ZI_OPTIMIZER_ADAM);
}

/* A step over bf16 ranks, fused; and the same in single passes over fp32. */
Test(optim, fusing_changes_no_bit)
{
	enum { RANKS = 3 };
	const struct kern_reduce_options mean = { ZI_DTYPE_BF16, 1.0f / 3.0f };
	static uint16_t grads16[RANKS][ELEMENTS], reduced[ELEMENTS], high[ELEMENTS], copy[ELEMENTS];
	static int16_t remainder[ELEMENTS];
	static float m[ELEMENTS], v[ELEMENTS];
	const void *const sources[] = { grads16[0], grads16[1], grads16[2] };
	const void *const wide[] = { grad };
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAMW);
	struct kern_optim_scalars scalars;
	const struct kern_optim_run fused = {
		.param = high,
		.param_copy = copy,
		.remainder = remainder,
		.exp_avg = m,
		.exp_avg_sq = v,
		.grads = sources,
		.rank_count = RANKS,
		.element_count = ELEMENTS,
		.param_dtype = ZI_DTYPE_BF16,
		.grad_dtype = ZI_DTYPE_BF16,
	};
	struct kern_optim_run single = single_run(param, exp_avg, exp_avg_sq, wide, ELEMENTS);

	single.is_reduced = true;
	data_fill(param, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 1);
	for (unsigned i = 0; i < ELEMENTS; i++)
		kern_split(param[i], &high[i], &remainder[i]);
	hyper.average = mean.average;
	hyper.clip = 0.9f;
	for (unsigned step = 0; step < 10; step++) {
		for (unsigned rank = 0; rank < RANKS; rank++)
			data_fill(grads16[rank], ELEMENTS, ZI_DTYPE_BF16, DATA_ORDINARY,
			          100 * step + rank);
		hyper_advance(&hyper);
		kern_optim_prepare(&scalars, &hyper);
		kern_optim_step(&fused, &scalars);
		kern_reduce(reduced, sources, RANKS, ELEMENTS, &mean);
		kern_widen(grad, reduced, ELEMENTS, ZI_DTYPE_BF16);
		kern_optim_step(&single, &scalars);
		for (unsigned i = 0; i < ELEMENTS; i++)
			cr_assert_eq(kern_join(high[i], remainder[i]), param[i], "%u", i);
		cr_assert_eq(memcmp(m, exp_avg, sizeof m), 0);
		cr_assert_eq(memcmp(v, exp_avg_sq, sizeof v), 0);
		cr_assert_eq(memcmp(copy, high, sizeof copy), 0);
	}
}

Test(optim, how_a_plane_is_cut_into_runs_changes_no_bit)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAMW);
	struct kern_optim_scalars scalars;

	hyper_advance(&hyper);
	kern_optim_prepare(&scalars, &hyper);
	data_fill(grad, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 3);
	for (unsigned pass = 0; pass < 2; pass++) {
		const unsigned cut = pass ? 16 : ELEMENTS;

		data_fill(param, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 4);
		memset(exp_avg, 0, sizeof exp_avg);
		memset(exp_avg_sq, 0, sizeof exp_avg_sq);
		for (unsigned i = 0; i < ELEMENTS; i += cut) {
			const void *const grads[] = { grad + i };
			const struct kern_optim_run run =
				single_run(param + i, exp_avg + i, exp_avg_sq + i, grads, cut);

			kern_optim_step(&run, &scalars);
		}
		if (pass == 0)
			memcpy(param_old, param, sizeof param);
	}
	cr_assert_eq(memcmp(param_old, param, sizeof param), 0);
}

Test(optim, padding_stays_zero)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAMW);
	struct kern_optim_scalars scalars;
	const void *const grads[] = { grad };
	const struct kern_optim_run run = single_run(param, exp_avg, exp_avg_sq, grads, ELEMENTS);

	for (unsigned step = 0; step < 5; step++) {
		hyper_advance(&hyper);
		kern_optim_prepare(&scalars, &hyper);
		kern_optim_step(&run, &scalars);
	}
	for (unsigned i = 0; i < ELEMENTS; i++)
		cr_assert_eq(param[i], 0.0f);
}
