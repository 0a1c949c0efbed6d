/* SPDX-License-Identifier: Apache-2.0 */
/* Options of runs that train nothing (use.h). */
#include "examples/gpt/args_use.h"

#include <errno.h>

#include "examples/gpt/args_option.h"

static const struct gpt_option use[] = {
	GPT_TEXT("eval", eval, "PATH    print the loss on this text, in whole sequences"),
	GPT_NUMBER("generate", GPT_OPTION_U64, generate_count, 1, 1e9,
	           "N       print N bytes of text"),
	GPT_TEXT("prompt", prompt, "TEXT    the generated text continues this one (an empty line)"),
	GPT_NUMBER("temperature", GPT_OPTION_F64, temperature, 0, 1e6,
	           "X       0: always the likeliest byte; 1: the model's probabilities (1)"),
	GPT_NUMBER("top-k", GPT_OPTION_U32, top_k, 0, GPT_VOCAB,
	           "N       draw from the likeliest N bytes; 0: from all (0)"),
};
const struct gpt_option_table gpt_options_use =
	GPT_OPTION_TABLE("Using what was trained, without training", use);

int gpt_use_check(struct gpt_args *args, struct gpt_problem *problem)
{
	static const char *const of_generate[] = { "prompt", "temperature", "top-k" };

	for (unsigned i = 0; i < sizeof(of_generate) / sizeof(of_generate[0]); i++)
		if (!args->generate_count && gpt_args_is_given(args, of_generate[i]))
			return gpt_problem_set(problem, -EINVAL,
			                       "--%s has no effect without --generate",
			                       of_generate[i]);
	if (!args->generate_count && !args->eval)
		return 0;
	if (args->generate_count && args->eval)
		return gpt_problem_set(problem, -EINVAL,
		                       "--eval and --generate exclude each "
		                       "other: make two runs");
	if (args->is_reference)
		return gpt_problem_set(problem, -EINVAL,
		                       "--%s uses a job of zinfd, and --reference has none",
		                       args->eval ? "eval" : "generate");
	if (args->eval)
		return 0;
	if (args->rank_count > 1)
		return gpt_problem_set(
			problem, -EINVAL,
			"--generate runs on one rank, not --ranks %u, whatever number trained "
			"the model; export and load a job over several nodes first",
			args->rank_count);
	if (!*args->prompt)
		return gpt_problem_set(problem, -EINVAL, "--prompt needs a byte at least");
	args->model.batch_count = 1;
	return 0;
}
