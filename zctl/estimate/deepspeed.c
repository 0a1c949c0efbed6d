/* SPDX-License-Identifier: Apache-2.0 */
/* A file of DeepSpeed's, as libzinf reads it; see deepspeed.h. */
#include "zctl/estimate/deepspeed.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "zinf/deepspeed.h"
#include "zinf/zinf.h"

/* Of what "auto" may stand for, what changes no memory is any number that is allowed. */
static struct zinf_deepspeed_facts facts_of(const struct estimate_options *options)
{
	struct zinf_deepspeed_facts facts = ZINF_DEEPSPEED_FACTS_INIT;

	facts.world_size = options->rank_count * options->node_count;
	facts.micro_batch = facts.accumulation_count = 1;
	facts.warmup_count = 1;
	facts.total_count = 2;
	facts.lr = facts.eps = 1e-8;
	facts.beta1 = facts.beta2 = 0.5;
	facts.weight_decay = facts.max_norm = 0;
	facts.dtype = options->dtype ? (enum zinf_dtype)options->dtype : ZINF_BF16;
	facts.hidden_elements = 1;
	return facts;
}

/* Documented in the header. */
int estimate_deepspeed(struct estimate_options *options, struct zi_text *text)
{
	static const char *const strategies[] = { "ddp", "zero1", "zero2", "zero3" };
	const struct zinf_deepspeed_facts facts = facts_of(options);
	struct zinf_deepspeed_config config = { .bytes = sizeof(config) };
	struct zinf_deepspeed *deepspeed = NULL;
	char why[ZI_TEXT_BYTES] = "";
	int r = zinf_deepspeed_open(options->deepspeed, &facts, why, sizeof(why), &deepspeed);

	if (r)
		return zi_text_error(text, err_trace(r), "--deepspeed-config %s", why);
	zinf_deepspeed_get(deepspeed, &config);
	assert(config.zero_stage < ZI_COUNT_OF(strategies));
	options->dtype = config.param_dtype;
	options->grad_dtype = config.grad_dtype;
	options->reduce_dtype = config.reduce_dtype == config.grad_dtype ? 0 : config.reduce_dtype;
	if (config.has_optimizer)
		options->optimizer = config.optimizer;
	options->strategy = strategies[config.zero_stage];
	options->shard_size = config.shard_ranks;
	options->accumulation = config.accumulation_count;
	options->offload_optimizer = config.offload_optimizer;
	options->offload_param = config.offload_param;
	options->param_budget_bytes = config.param_budget_bytes;
	zinf_deepspeed_free(deepspeed);
	return 0;
}
