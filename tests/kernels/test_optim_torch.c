/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: steps are those of torch's optimizers, but for roundings.
 * Method: twenty steps over the same bytes, here and in torch (torch_optim.py, by Debian's Python),
 * with each optimizer that torch has. torch rounds where a formula here is fused, and its
 * quotients in another order: so an element may be off by a few roundings of the way that it went.
 * Lion is not in torch: test_optim_lion.c.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/optim.h"
#include "tests/guard/guard.h"
#include "tests/kernels/data.h"
#include "tests/kernels/single_run.h"

#define ELEMENTS 4096u
#define STEPS    20u
#define PYTHON   "/usr/bin/python3" /* the one in PATH may be another without torch */
#define ULPS_MAX 4.0

struct torch_case {
	const char *name;
	enum zi_optimizer optimizer;
	double lr, beta1, beta2, eps, weight_decay, lr_decay;
	bool is_nesterov;
};

static const struct torch_case cases[] = {
	{ "adamw", ZI_OPTIMIZER_ADAMW, 1e-3, 0.9, 0.999, 1e-8, 0.01, 0, false },
	{ "adam", ZI_OPTIMIZER_ADAM, 1e-3, 0.9, 0.999, 1e-8, 0, 0, false },
	{ "sgd", ZI_OPTIMIZER_SGD, 1e-2, 0.9, 0.1, 0, 0.01, 0, false },
	{ "sgd", ZI_OPTIMIZER_SGD, 1e-2, 0.9, 0, 0, 0.01, 0, true },
	{ "adagrad", ZI_OPTIMIZER_ADAGRAD, 1e-2, 0, 0, 1e-10, 0, 0, false },
	{ "adagrad", ZI_OPTIMIZER_ADAGRAD, 1e-1, 0, 0, 1e-8, 0, 1e-2, false },
	{ "adagrad", ZI_OPTIMIZER_ADAGRAD, 1e-2, 0, 0, 1e-10, 0.01, 0, false },
};
#define CASE_COUNT (sizeof(cases) / sizeof(cases[0]))

static float first[ELEMENTS], grads[STEPS][ELEMENTS];
static float param[ELEMENTS], exp_avg[ELEMENTS], exp_avg_sq[ELEMENTS], torchs[ELEMENTS];
static double ways[ELEMENTS]; /* how far each has gone, and where from */

static void write_file(const char *directory, const char *name, const void *bytes, size_t count)
{
	char path[300];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/%s", directory, name);
	file = fopen(path, "we");
	cr_assert_not_null(file);
	cr_assert_eq(fwrite(bytes, 1, count, file), count);
	cr_assert_eq(fclose(file), 0);
}

/* And removes it. */
static void read_result(const char *directory, unsigned number)
{
	char path[300];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/%u", directory, number);
	file = fopen(path, "re");
	cr_assert_not_null(file, "torch has written no %s", path);
	cr_assert_eq(fread(torchs, 1, sizeof torchs, file), sizeof torchs);
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(unlink(path), 0);
}

static void run_torch(const char *directory)
{
	char command[2000];
	int used = snprintf(command, sizeof command, PYTHON " tests/kernels/torch_optim.py %s",
	                    directory);

	for (unsigned i = 0; i < CASE_COUNT; i++)
		used += snprintf(command + used, sizeof command - (size_t)used,
		                 " %s:%.17g:%.17g:%.17g:%.17g:%.17g:%.17g:%d", cases[i].name,
		                 cases[i].lr, cases[i].beta1, cases[i].beta2, cases[i].eps,
		                 cases[i].weight_decay, cases[i].lr_decay, cases[i].is_nesterov);
	cr_assert_lt((size_t)used, sizeof command);
	cr_assert_eq(system(command), 0);
}

static void run_zinf(const struct torch_case *torch)
{
	struct kern_hyper hyper = {
		.optimizer = torch->optimizer,
		.lr = torch->lr,
		.beta1 = torch->beta1,
		.beta2 = torch->beta2,
		.eps = torch->eps,
		.weight_decay = torch->weight_decay,
		.is_nesterov = torch->is_nesterov,
		.beta1_power = 1.0,
		.beta2_power = 1.0,
		.average = 1.0f,
		.unscale = 1.0f,
		.clip = 1.0f,
		.lr_decay = torch->lr_decay,
	};

	memcpy(param, first, sizeof param);
	memset(exp_avg, 0, sizeof exp_avg);
	memset(exp_avg_sq, 0, sizeof exp_avg_sq);
	for (unsigned i = 0; i < ELEMENTS; i++)
		ways[i] = fabs((double)first[i]);
	for (unsigned step = 0; step < STEPS; step++) {
		const void *const sources[] = { grads[step] };
		const struct kern_optim_run run =
			single_run(param, exp_avg,
		                   zi_optimizer_moments(torch->optimizer) == 2 ? exp_avg_sq : NULL,
		                   sources, ELEMENTS);
		struct kern_optim_scalars scalars;
		float old[ELEMENTS];

		memcpy(old, param, sizeof old);
		hyper.beta1_power *= hyper.beta1;
		hyper.beta2_power *= hyper.beta2;
		hyper.is_first = step == 0;
		hyper.update_count = step;
		kern_optim_prepare(&scalars, &hyper);
		kern_optim_step(&run, &scalars);
		for (unsigned i = 0; i < ELEMENTS; i++)
			ways[i] += fabs((double)param[i] - (double)old[i]);
	}
}

/* Return: the largest difference, in roundings of an element's way. */
static double largest_ulps(void)
{
	double largest = 0;

	for (unsigned i = 0; i < ELEMENTS; i++) {
		double ulps = fabs((double)param[i] - (double)torchs[i]) / (ways[i] * 0x1p-23);

		cr_assert(isfinite(ulps));
		largest = fmax(largest, ulps);
	}
	return largest;
}

Test(optim_torch, twenty_steps_are_torchs_but_for_roundings)
{
	char directory[256], path[300];

	if (system(PYTHON " -c 'import numpy, torch' >/dev/null 2>&1"))
		cr_skip_test(PYTHON " has no torch (Debian: python3-torch)");
	cr_assert_not_null(mkdtemp(guard_path(directory, sizeof directory, "torch")));
	data_fill(first, ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 1);
	data_fill(grads, STEPS * ELEMENTS, ZI_DTYPE_F32, DATA_ORDINARY, 2);
	write_file(directory, "param", first, sizeof first);
	write_file(directory, "grads", grads, sizeof grads);
	run_torch(directory);
	for (unsigned i = 0; i < CASE_COUNT; i++) {
		double ulps;

		run_zinf(&cases[i]);
		read_result(directory, i);
		ulps = largest_ulps();
		fprintf(stderr, "%s: %.2f ulp at most\n", cases[i].name, ulps);
		cr_expect_leq(ulps, ULPS_MAX, "%s (case %u): %g ulp", cases[i].name, i, ulps);
	}
	(void)snprintf(path, sizeof path, "%s/param", directory);
	cr_assert_eq(unlink(path), 0);
	(void)snprintf(path, sizeof path, "%s/grads", directory);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(rmdir(directory), 0);
}
