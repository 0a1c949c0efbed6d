/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: DeepSpeed's configuration. What follows a NUL says what the trainer knows; the rest
 * is the file. A refusal has words; what is accepted holds what the rest of libzinf relies upon.
 */
#include <errno.h>
#include <math.h>
#include <zinf/deepspeed.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

static struct zinf_deepspeed_facts facts_of(uint8_t choice)
{
	struct zinf_deepspeed_facts facts = ZINF_DEEPSPEED_FACTS_INIT;

	facts.world_size = 1 + choice % 8;
	if (choice & 8)
		return facts;
	facts.micro_batch = 2;
	facts.accumulation_count = 3;
	facts.warmup_count = 10;
	facts.total_count = choice & 16 ? 5 : 100;
	facts.lr = 1e-3;
	facts.beta1 = 0.9;
	facts.beta2 = 0.99;
	facts.eps = 1e-8;
	facts.weight_decay = 0.1;
	facts.max_norm = 1;
	facts.dtype = choice & 32 ? ZINF_BF16 : ZINF_F32;
	facts.hidden_elements = choice & 64 ? UINT64_MAX : 4096;
	return facts;
}

static void check_config(const struct zinf_deepspeed_config *config, uint32_t world_size)
{
	struct zinf_lr_value value;

	fuzz_check(config->train_batch && (uint64_t)config->micro_batch *
	                                                  config->accumulation_count * world_size ==
	                                          config->train_batch,
	           "batches that do not agree");
	fuzz_check(config->zero_stage <= 3, "no such stage");
	fuzz_check((config->param_dtype == ZINF_F16) == (config->scaler.kind != ZINF_SCALER_NONE),
	           "f16 without a loss scale, or one without f16");
	fuzz_check(config->step.max_norm >= 0, "a norm below 0");
	if (config->has_optimizer)
		fuzz_check(config->step.lr >= 0 && config->step.beta1 >= 0 &&
		                   config->step.beta1 < 1,
		           "numbers of no optimizer");
	if (!config->has_lr)
		return;
	fuzz_check(!zinf_lr_check(&config->lr, NULL, 0), "a schedule that is none");
	for (uint64_t updates = 0; updates < 20; updates++)
		fuzz_check(!zinf_lr_at(&config->lr, updates, &value) && !isnan(value.lr),
		           "a schedule without a value");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	const uint8_t *end = byte_count ? memchr(bytes, 0, byte_count) : NULL;
	size_t file_bytes = end ? (size_t)(end - bytes) : byte_count;
	struct zinf_deepspeed_facts facts =
		facts_of(end && file_bytes + 1 < byte_count ? end[1] : 1);
	struct zinf_deepspeed_config config = { .bytes = sizeof(config) };
	struct zinf_deepspeed *deepspeed = NULL;
	struct zinf_deepspeed_note note;
	char text[256] = "";
	int r = zinf_deepspeed_read((const char *)bytes, file_bytes, &facts, text, sizeof(text),
	                            &deepspeed);

	fuzz_check(!r == (deepspeed != NULL), "a result beside a refusal");
	if (r) {
		fuzz_check(text[0] != '\0', "a refusal without words");
		fuzz_check(r == -EINVAL || r == -EOPNOTSUPP, "a refusal of another kind");
		return 0;
	}
	zinf_deepspeed_get(deepspeed, &config);
	check_config(&config, facts.world_size);
	for (uint32_t i = 0; zinf_deepspeed_get_note(deepspeed, i, &note); i++)
		fuzz_check(note.key[0] && note.value && note.reason[0], "a note without words");
	zinf_deepspeed_free(deepspeed);
	return 0;
}
