/* SPDX-License-Identifier: Apache-2.0 */
/* A tiny model on the reference backend, for the tests of what is computed over one. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "examples/gpt/activations.h"
#include "examples/gpt/args.h"
#include "examples/gpt/bf16.h"
#include "examples/gpt/staged.h"
#include "tests/unit/gpt/difference.h"

/* Tokens of a micro-batch: batch_count * sequence_count of every config. */
enum { TOKENS = 18 };

struct fixture {
	struct gpt_args args;
	struct gpt_model model;
	struct gpt_backend *backend;
	struct gpt_units units;
	struct gpt_activations acts;
	uint8_t inputs[2][TOKENS], targets[2][TOKENS]; /* two micro-batches */
};

/* Values are larger than a real beginning's, so that no gradient drowns in rounding. */
/* @device: computes; NULL: the CPU does. */
static inline void set_up_on(struct fixture *f, struct gpt_device *device,
                             const struct gpt_config *config, const char *first_flag,
                             const char *second_flag)
{
	const char *argv[] = { "zinf-gpt", first_flag, second_flag };
	struct gpt_problem problem;
	struct gpt_rng rng = gpt_rng_init(5, GPT_RNG_TRAIN, 0, 0, 0);

	memset(f, 0, sizeof(*f));
	cr_assert_eq(gpt_args_parse(&f->args, first_flag ? second_flag ? 3 : 2 : 1, argv, &problem),
	             0);
	f->args.world_count = 1;
	cr_assert_eq(gpt_model_init(&f->model, config, &problem), 0);
	f->backend = gpt_reference_open(&f->args, &f->model, &problem);
	cr_assert(f->backend);
	if (device)
		cr_assert_eq(gpt_staged_wrap(f->backend, &f->args, &f->model, device, &problem), 0,
		             "%s", problem.chars);
	cr_assert_eq(gpt_units_init(&f->units, &f->args, &f->model, f->backend), 0);
	cr_assert_eq(gpt_activations_init(&f->acts, &f->args, &f->model, f->backend, &problem), 0);
	for (uint32_t p = 0; p < f->model.param_count; p++) {
		uint64_t count = f->model.params[p].element_count;
		float *values = calloc(count, sizeof(*values));
		void *target = (void *)f->backend->ops->param(f->backend, p);

		fill_normal(values, count, p, 0.3);
		for (uint64_t i = 0; i < count; i++) {
			if (f->args.is_bf16)
				((uint16_t *)target)[i] = gpt_bf16_round(values[i]);
			else
				((float *)target)[i] = values[i];
		}
		free(values);
	}
	for (unsigned i = 0; i < 2 * TOKENS; i++) {
		f->inputs[i / TOKENS][i % TOKENS] = (uint8_t)gpt_rng_below(&rng, 12);
		f->targets[i / TOKENS][i % TOKENS] = (uint8_t)gpt_rng_below(&rng, 256);
	}
}

static inline void set_up(struct fixture *f, const struct gpt_config *config,
                          const char *first_flag, const char *second_flag)
{
	set_up_on(f, NULL, config, first_flag, second_flag);
}

static inline void tear_down(struct fixture *f)
{
	gpt_activations_deinit(&f->acts);
	gpt_units_deinit(&f->units);
	f->backend->ops->close(f->backend);
	gpt_model_deinit(&f->model);
}
