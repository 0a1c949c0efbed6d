/* SPDX-License-Identifier: Apache-2.0 */
/* --eval and --generate: a run that uses the parameters of a job as it stands, and changes nothing
 * of it. It attaches forward only: no gradients' memory is taken, and no optimizer state read. */
#pragma once

#include <stdbool.h>

#include "examples/gpt/train.h"

/* Whether the flags ask for one. */
static inline _Bool gpt_is_using(const struct gpt_args *args)
{
	return args->eval || args->generate_count;
}

/* Of -ENODATA: there is no such job, or no step of it is committed. */
#define GPT_USE_UNTRAINED                                                              \
	"the job has no parameters yet: train it first, name another --job, or begin " \
	"with a snapshot (--load JOB/NAME)"

/* What a run that trains nothing need not be told: the stored job knows it. */
bool gpt_use_guess(const struct gpt_args *given, uint32_t index, struct gpt_args *ret_args);

/* Return: 0; -ENODATA the job has no parameters yet; -EINVAL more ranks than one generate, or the
 * text is too short; -ERANGE; what the backend answered; GPT_CONSOLE_E_CLOSED: nobody reads it. */
int gpt_use(const struct gpt_run *run, struct gpt_backend *backend, struct gpt_problem *problem);
