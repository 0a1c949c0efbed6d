/* SPDX-License-Identifier: Apache-2.0 */
/* Options of what lies between forward and backward (checkpoint.h). */
#include "examples/gpt/args_activations.h"

#include <errno.h>

#include "examples/gpt/args_option.h"

static const struct gpt_choice kinds[] = { { "keep", GPT_ACTIVATIONS_KEEP },
	                                   { "recompute", GPT_ACTIVATIONS_RECOMPUTE },
	                                   { "cpu", GPT_ACTIVATIONS_CPU },
	                                   { "nvme", GPT_ACTIVATIONS_NVME },
	                                   { NULL, 0 } };

static const struct gpt_option activations[] = {
	GPT_CHOICE("activations", activations, kinds,
	           "NAME    keep in memory, recompute, or move to zinfd's cpu or nvme (keep)"),
	GPT_NUMBER("checkpoint-every", GPT_OPTION_U32, checkpoint_every, 1, 1024,
	           "K       keep only the input of every K-th block, and compute the rest again "
	           "(recompute: 1; cpu, nvme: everything is kept)"),
};
const struct gpt_option_table gpt_options_activations =
	GPT_OPTION_TABLE("Activations, between forward and backward", activations);

int gpt_activations_check(struct gpt_args *args, struct gpt_problem *problem)
{
	if (args->activations == GPT_ACTIVATIONS_KEEP && args->checkpoint_every)
		return gpt_problem_set(problem, -EINVAL,
		                       "--checkpoint-every %u has no effect with --activations "
		                       "keep; give --activations recompute, cpu or nvme",
		                       args->checkpoint_every);
	if (args->activations >= GPT_ACTIVATIONS_CPU && args->is_reference)
		return gpt_problem_set(problem, -EINVAL,
		                       "--activations %s needs zinfd, and --reference has "
		                       "none: use keep or recompute",
		                       kinds[args->activations].name);
	if (args->activations == GPT_ACTIVATIONS_RECOMPUTE && !args->checkpoint_every)
		args->checkpoint_every = 1;
	return 0;
}
