/* SPDX-License-Identifier: Apache-2.0 */
/* Which planes a rank owns a share of, by our names or FSDP's. libzinf knows them. */
#include "examples/gpt/args_strategy.h"

#include <assert.h>
#include <errno.h>

static int resolve(const struct gpt_args *args, struct zinf_options *options)
{
	int r = args->strategy ? zinf_strategy_by_name(args->strategy, options) : 0;

	if (!r && args->shard_size)
		options->shard_size = args->shard_size;
	return r;
}

int gpt_strategy_check(const struct gpt_args *args, struct gpt_problem *problem)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	int r = resolve(args, &options);

	if (r)
		return gpt_problem_set(problem, r, "--strategy: %s", zinf_attach_error());
	if (args->shard_size && (options.strategy < ZINF_ZERO1 || options.strategy > ZINF_ZERO3))
		return gpt_problem_set(problem, -EINVAL,
		                       "--shard-size %u has no effect with --strategy %s, "
		                       "which shards nothing; give zero1, zero2 or zero3",
		                       args->shard_size, gpt_strategy_name(args));
	return 0;
}

void gpt_strategy_set(const struct gpt_args *args, struct zinf_options *options)
{
	int r = resolve(args, options);

	assert(!r);
	(void)r;
	/* Each rank adds them up in its own gradients, which have to be there as a whole. */
	if (args->grad_reduction == ZINF_REDUCE_PER_STEP)
		options->accumulation = args->grad_accum_count;
}

const char *gpt_strategy_name(const struct gpt_args *args)
{
	static const char *const names[] = { "ddp", "dp", "ddp", "zero1", "zero2", "zero3" };
	struct zinf_options options = ZINF_OPTIONS_INIT;

	gpt_strategy_set(args, &options);
	assert(options.strategy < sizeof(names) / sizeof(names[0]));
	if (options.strategy == ZINF_ZERO3 && options.shard_size)
		return "hybrid_shard";
	return names[options.strategy];
}
