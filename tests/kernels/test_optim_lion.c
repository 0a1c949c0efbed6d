/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the fused step with Lion computes the paper's algorithm, also where its direction is zero,
 * infinite or no number.
 * Method: three steps of a computation apart (40 decimal digits); long double within a bound that
 * counts the roundings, where the sign is beyond doubt; the values that are special, on every
 * instruction set. test_optim_isa.c compares these with each other.
 */
#include "tests/kernels/one_moment.h"

#define DOUBT_MAX (20u * ELEMENTS / 100u) /* 1 % of what is compared */

Test(lion, is_the_papers_algorithm)
{
	const double params[] = { 0.899, 0.998101, 0.897102899 };

	check_golden(hyper_of(ZI_OPTIMIZER_LION), params, 0.0036755);
}

Test(lion, the_rate_is_taken_as_it_is)
{
	const struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_LION);
	struct kern_optim_scalars s;
	volatile double decay = 0.1 * 0.01;

	kern_optim_prepare(&s, &hyper);
	cr_assert_eq(s.step_size, 0.1f);
	cr_assert_eq(s.root_bc2, 1.0f);
	cr_assert_eq(s.decay, (float)(1.0 - decay));
}

/* Roundings: the gradient 2, each product 1, each sum 1. Return: the sign was in no doubt. */
static bool check_element(const struct kern_optim_scalars *s, unsigned i)
{
	long double g = (long double)grad[i] * s->unscale * s->clip, old = moment_old[i];
	long double c = s->b1 * old + s->one_minus_b1 * g;
	long double m = s->b2 * old + s->one_minus_b2 * g;
	long double c_error = (4 * s->one_minus_b1 * fabsl(g) + 2 * fabsl(s->b1 * old)) * HALF_ULP;
	long double m_error = (4 * s->one_minus_b2 * fabsl(g) + 2 * fabsl(s->b2 * old)) * HALF_ULP;
	long double p;

	cr_assert_leq(fabsl(moment[i] - m), m_error + FLT_TRUE_MIN, "m of %u", i);
	if (fabsl(c) <= c_error)
		return false;
	p = (long double)param_old[i] * s->decay + (c > 0 ? -s->step_size : s->step_size);
	cr_assert_leq(fabsl(param[i] - p), HALF_ULP * fabsl(p) + FLT_TRUE_MIN,
	              "p of %u: %.9g, not %.12Lg", i, param[i], p);
	return true;
}

Test(lion, is_within_its_bound_of_long_double)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_LION);
	unsigned doubt_count = 0;

	hyper.lr = 1e-2;
	hyper.unscale = 1.0f / 3.0f;
	hyper.clip = 0.7f;
	data_fill(param, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 1);
	for (unsigned step = 0; step < 20; step++) {
		struct kern_optim_scalars scalars;

		data_fill(grad, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, step + 10);
		scalars = make_step(&hyper);
		for (unsigned i = 0; i < ELEMENTS; i++)
			doubt_count += !check_element(&scalars, i);
	}
	cr_assert_lt(doubt_count, DOUBT_MAX, "%u were left out", doubt_count);
}

/* One step from parameter 1 and moment 0 without decay, of which element 5 has @value. */
static void step_with(float value)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_LION);

	hyper.weight_decay = 0.0;
	fill(param, 1.0f);
	fill(moment, 0.0f);
	fill(grad, 0.25f);
	grad[5] = value;
	(void)make_step(&hyper);
	cr_assert_eq(param[4], 1.0f - 0.1f);
	cr_assert_eq(param[6], 1.0f - 0.1f);
}

/* The paper's sign(0) is 0. DeepSpeed's host code goes by the zero's sign, its GPU code up. */
Test(lion, a_direction_of_zero_of_either_sign_moves_nothing)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		step_with(0.0f);
		cr_assert_eq(param[5], 1.0f);
		step_with(-0.0f);
		cr_assert_eq(param[5], 1.0f);
		step_with(FLT_TRUE_MIN); /* c is rounded to zero */
		cr_assert_eq(param[5], 1.0f);
		step_with(-FLT_MIN);
		cr_assert_eq(param[5], 1.0f + 0.1f);
	}
}

Test(lion, an_infinite_direction_moves_by_the_rate_and_stays_in_the_moment)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		step_with(-INFINITY);
		cr_assert_eq(param[5], 1.0f + 0.1f);
		cr_assert_eq(moment[5], -INFINITY);
	}
}

Test(lion, a_direction_that_is_no_number_gives_none)
{
	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		step_with(NAN);
		cr_assert_eq(kern_f32_bits(param[5]), 0x7fc00000u);
		cr_assert_eq(kern_f32_bits(moment[5]), 0x7fc00000u);
	}
}

Test(lion, decay_alone_moves_what_has_no_gradient)
{
	struct kern_hyper hyper = hyper_of(ZI_OPTIMIZER_LION);

	fill(param, 2.0f);
	(void)make_step(&hyper);
	for (unsigned i = 0; i < ELEMENTS; i++)
		cr_assert_eq(param[i], 2.0f * (float)(1.0 - 0.1 * 0.01));
}
