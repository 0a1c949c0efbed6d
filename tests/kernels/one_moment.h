/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the optimizers with one moment: fp32 planes of ELEMENTS elements, one gradient that
 * is already reduced, and steps over them.
 */
#pragma once

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "kernels/optim.h"
#include "tests/kernels/data.h"
#include "tests/kernels/single_run.h"

#define ELEMENTS 1024u
#define HALF_ULP 0x1p-24L /* relative error of one fp32 rounding */

static float param[ELEMENTS], moment[ELEMENTS], grad[ELEMENTS];
static float param_old[ELEMENTS], moment_old[ELEMENTS];

static inline struct kern_hyper hyper_of(enum zi_optimizer optimizer)
{
	return (struct kern_hyper){
		.optimizer = optimizer,
		.lr = 0.1,
		.beta1 = 0.9,
		.beta2 = 0.99,
		.eps = 1e-8,
		.weight_decay = 0.01,
		.beta1_power = 0.9,
		.beta2_power = 0.99,
		.average = 1.0f,
		.unscale = 1.0f,
		.clip = 1.0f,
	};
}

/* What was before is in param_old and moment_old. */
static inline struct kern_optim_scalars make_step(const struct kern_hyper *hyper)
{
	const void *const grads[] = { grad };
	struct kern_optim_run run = single_run(param, moment, NULL, grads, ELEMENTS);
	struct kern_optim_scalars scalars;

	run.is_reduced = true;
	memcpy(param_old, param, sizeof param);
	memcpy(moment_old, moment, sizeof moment);
	kern_optim_prepare(&scalars, hyper);
	kern_optim_step(&run, &scalars);
	return scalars;
}

/* Every element of a plane gets @value. */
static inline void fill(float *plane, float value)
{
	for (unsigned i = 0; i < ELEMENTS; i++)
		plane[i] = value;
}

/* On each instruction set three steps with the gradients 0.5, −0.25, 0.125 from parameter 1. */
static inline void check_golden(struct kern_hyper hyper, const double *params, double last_moment)
{
	static const float steps[3] = { 0.5f, -0.25f, 0.125f };

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++) {
		if (kern_isa_force(isa) < 0)
			continue;
		fill(param, 1.0f);
		fill(moment, 0.0f);
		for (unsigned step = 0; step < 3; step++) {
			fill(grad, steps[step]);
			hyper.update_count = step;
			(void)make_step(&hyper);
			for (unsigned i = 0; i < ELEMENTS; i++)
				cr_assert_float_eq(param[i], params[step], 3e-7,
				                   "%s, step %u: %.9g", kern_isa_name(isa), step,
				                   param[i]);
		}
		for (unsigned i = 0; i < ELEMENTS; i++)
			cr_assert_float_eq(moment[i], last_moment, 1e-7);
	}
}
