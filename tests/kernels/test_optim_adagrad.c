/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the fused step with Adagrad computes torch's formula.
 * Method: three steps of a computation apart (40 decimal digits); long double within a bound that
 * counts the roundings; the values that are special. test_optim_isa.c compares the instruction
 * sets, test_optim_torch.c has torch itself.
 */
#include "tests/kernels/one_moment.h"

Test(adagrad, is_torchs_formula)
{
	const double params[] = { 0.900000001960784275, 0.942724789685044082,
		                  0.919542567422525073 };

	check_golden(hyper_of(ZI_OPTIMIZER_ADAGRAD), params, 0.336251684967670301);
}

Test(adagrad, the_rate_falls_with_the_updates_made_before)
{
	const double params[] = { 0.900000001960784275, 0.92848319377695748, 0.916903703639606525 };
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAGRAD);

	hyper.lr_decay = 0.5;
	check_golden(hyper, params, 0.336213416079104039);
}

Test(adagrad, the_rate_is_rounded_once_and_nothing_of_adam_is_in_it)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAGRAD);
	struct kern_optim_scalars s;

	hyper.lr_decay = 1e-3;
	hyper.update_count = 0x100000001ull; /* more than 32 bits of them */
	kern_optim_prepare(&s, &hyper);
	cr_assert_eq(s.step_size, (float)(0.1 / (1.0 + 0x100000001p0 * 1e-3)));
	cr_assert_eq(s.root_bc2, 1.0f);
	hyper.update_count = 0;
	kern_optim_prepare(&s, &hyper);
	cr_assert_eq(s.step_size, 0.1f);
}

/* Bounds count roundings: g 3, v 2g + 1, d half of v + 2, and the quotient. */
static void check_element(const struct kern_optim_scalars *s, unsigned i)
{
	long double p = param_old[i], g, v, d, g_size, v_error, move_error;

	g = (long double)grad[i] * s->unscale * s->clip;
	g_size = fabsl(g) + fabsl(s->weight_decay * p);
	g += s->weight_decay * p;
	v = moment_old[i] + g * g;
	v_error = (2 * v + 8 * g_size * g_size) * HALF_ULP + FLT_TRUE_MIN;
	cr_assert_leq(fabsl(moment[i] - v), v_error, "v of %u", i);
	d = sqrtl(v) + s->eps;
	move_error = s->step_size *
	             (4 * HALF_ULP * g_size + fabsl(g) * v_error / v + 5 * HALF_ULP * fabsl(g)) / d;
	p -= s->step_size * g / d;
	cr_assert_leq(fabsl(param[i] - p), 2 * HALF_ULP * fabsl(p) + move_error,
	              "p of %u: %.9g, not %.12Lg", i, param[i], p);
}

Test(adagrad, is_within_its_bound_of_long_double)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAGRAD);

	hyper.lr = 1e-2;
	hyper.lr_decay = 1e-2;
	hyper.unscale = 1.0f / 3.0f;
	hyper.clip = 0.7f;
	data_fill(param, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 1);
	for (unsigned step = 0; step < 20; step++) {
		struct kern_optim_scalars scalars;

		data_fill(grad, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, step + 10);
		hyper.update_count = step;
		scalars = make_step(&hyper);
		for (unsigned i = 0; i < ELEMENTS; i++)
			check_element(&scalars, i);
	}
}

Test(adagrad, without_eps_what_never_had_a_gradient_is_nan_as_in_torch)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAGRAD);

	hyper.weight_decay = 0.0;
	fill(param, 1.0f);
	(void)make_step(&hyper);
	for (unsigned i = 0; i < ELEMENTS; i++)
		cr_assert_eq(param[i], 1.0f, "with eps nothing moves");
	hyper.eps = 0.0;
	(void)make_step(&hyper);
	for (unsigned i = 0; i < ELEMENTS; i++)
		cr_assert(isnan(param[i]));
}

Test(adagrad, a_gradient_that_is_no_number_spoils_its_own_element_alone)
{
	const struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_ADAGRAD);

	fill(param, 1.0f);
	fill(grad, 0.5f);
	grad[7] = NAN;
	grad[8] = INFINITY; /* ∞ / ∞ */
	(void)make_step(&hyper);
	for (unsigned i = 0; i < ELEMENTS; i++)
		cr_assert_eq(isnan(param[i]), i == 7 || i == 8, "%u", i);
	cr_assert(isnan(moment[7]) && isinf(moment[8]));
}
