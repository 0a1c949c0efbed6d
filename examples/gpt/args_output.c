/* SPDX-License-Identifier: Apache-2.0 */
/* Options of what is told, and those for tests. */
#include "examples/gpt/args_option.h"
#include "zinf/zinf.h"

/* Limits: what the code's integers hold, and what nobody means. */
static const struct gpt_option output[] = {
	GPT_NUMBER("log-every", GPT_OPTION_U64, log_every, 1, 1e15,
	           "N       steps between progress lines (10)"),
	GPT_NUMBER("eval-every", GPT_OPTION_U64, eval_every, 0, 1e15,
	           "N       steps between evaluations; 0: none (0)"),
	GPT_NUMBER("eval-batches", GPT_OPTION_U32, eval_batch_count, 1, 65536,
	           "N       batches of an evaluation, per rank (4)"),
	GPT_TEXT("dump", dump,
	         "FILE    write the last step and all parameters there; with {rank} in the name "
	         "each rank writes its own"),
	GPT_TEXT("dump-state", dump_state,
	         "FILE    with --reference: write masters and moments of the last step"),
	GPT_FLAG("json", is_json, "        print a line of JSON per step and rank instead"),
	GPT_FLAG("quiet", is_quiet, "        no progress lines"),
	GPT_FLAG("help", is_help, "        print this text"),
	GPT_FLAG("version", is_version, "        print the version of libzinf"),
};
const struct gpt_option_table gpt_options_output = GPT_OPTION_TABLE("Output", output);

static const struct gpt_option tests[] = {
	GPT_TEXT("watch", watch, "FILE    rank 0 writes the number of each committed step there"),
	GPT_NUMBER("exit-after-step", GPT_OPTION_U64, exit_after_step, 1, 1e15,
	           "N       a rank kills itself (SIGKILL) when this step is committed"),
	GPT_NUMBER("exit-rank", GPT_OPTION_U32, exit_rank, 0, ZINF_WORLD_MAX - 1,
	           "N       number of that rank (0)"),
};
const struct gpt_option_table gpt_options_tests = GPT_OPTION_TABLE("For tests", tests);
