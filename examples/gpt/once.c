/* SPDX-License-Identifier: Apache-2.0 */
/* See once.h. */
#include "examples/gpt/once.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "examples/gpt/args_lr.h"
#include "examples/gpt/use.h"

/* Sequences of a rank's step. */
static uint64_t batch_windows(const struct gpt_args *args)
{
	return (uint64_t)args->model.batch_count * args->grad_accum_count;
}

/* Of all ranks together; what is less than one is left out. A target is a byte further on. */
static uint64_t batch_total(const struct gpt_args *args, const struct gpt_corpus *corpus)
{
	assert(corpus->train_count > 0);
	return (corpus->train_count - 1) / args->model.sequence_count / batch_windows(args);
}

int gpt_once_check(struct gpt_args *args, struct gpt_problem *problem)
{
	const char *other = NULL;

	if (!args->is_once)
		return 0;
	if (gpt_args_is_given(args, "steps"))
		other = "--steps: the text gives the number of steps";
	else if (args->eval_every)
		other = "--eval-every: ranks end at different steps; --eval is a run of its own";
	else if (gpt_is_using(args))
		other = "--eval and --generate, which do not train: leave --once out";
	else if (args->lr_options.kind)
		other = "a file's scheduler: how many steps there are is known when the text is "
			"read; use --lr-schedule";
	if (other)
		return gpt_problem_set(problem, -EINVAL, "--once beside %s", other);
	args->step_count = 0; /* Not known yet. */
	return 0;
}

int gpt_once_plan(struct gpt_args *args, const struct gpt_corpus *corpus,
                  struct gpt_problem *problem)
{
	uint64_t total = batch_total(args, corpus);

	if (!total)
		return gpt_problem_set(
			problem, -EINVAL,
			"--once: the text has %llu bytes to train on, less than one batch of %llu "
			"sequences of %u",
			(unsigned long long)corpus->train_count,
			(unsigned long long)batch_windows(args), args->model.sequence_count);
	args->step_count = (total + args->world_count - 1) / args->world_count;
	return gpt_lr_check(args, problem);
}

uint32_t gpt_once_live(const struct gpt_args *args, const struct gpt_corpus *corpus, uint64_t step)
{
	uint64_t before = (step - 1) * args->world_count, total;

	assert(step > 0);
	if (!args->is_once)
		return args->world_count;
	total = batch_total(args, corpus);
	if (total <= before)
		return 0;
	return total - before < args->world_count ? (uint32_t)(total - before) : args->world_count;
}

void gpt_once_batch(const struct gpt_args *args, const struct gpt_corpus *corpus,
                    const struct gpt_batch_name *name, uint8_t *ret_inputs, uint8_t *ret_targets)
{
	uint64_t sequence = args->model.sequence_count, count = args->model.batch_count;
	uint64_t batch = (name->step - 1) * args->world_count + name->rank;
	uint64_t first = batch * batch_windows(args) + name->micro_index * count;

	assert(!name->is_eval);
	assert((first + count) * sequence < corpus->train_count);
	memcpy(ret_inputs, corpus->bytes + first * sequence, count * sequence);
	memcpy(ret_targets, corpus->bytes + first * sequence + 1, count * sequence);
}
