/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what zctl estimate reads of a model. The first byte chooses what else is known; the
 * rest is a file, or a count. A refusal has words; of what is accepted the units are the whole, and
 * it is planned as any job is.
 */
#include <errno.h>

#include "tests/fuzz/fuzz.h"
#include "zctl/estimate/model.h"
#include "zctl/estimate/options.h"

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

static void check_units(const struct estimate_model *model)
{
	uint64_t count = 0, padded = 0;

	for (uint32_t i = 0; i < model->unit_count; i++) {
		fuzz_check(model->units[i].element_count > 0, "a unit of nothing");
		fuzz_check(model->unit_padded[i] >= model->units[i].element_count, "padding");
		count += model->units[i].element_count;
		padded += model->unit_padded[i];
	}
	fuzz_check(count == model->element_count && padded == model->padded_count, "sums");
	fuzz_check(count && count <= ESTIMATE_ELEMENTS_MAX, "no model");
	fuzz_check(model->kind.chars[0] != '\0', "a model of no kind");
}

static void check_plan(const struct estimate_model *model, uint8_t choice)
{
	struct estimate_options options = { .rank_count = 1 + choice % 4, .node_count = 1 };
	struct zi_plan_model plan_model = estimate_model_plan(model);
	struct zi_plan_options wish;
	struct zi_plan plan;
	struct zi_text text = { "" };
	int r;

	options.offload_optimizer = choice & 4 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_NONE;
	options.offload_param = choice & 8 ? ZI_OFFLOAD_NVME : ZI_OFFLOAD_NONE;
	options.staging_bytes = choice & 16 ? 4096 : 0;
	wish = estimate_options_plan(&options, model);
	r = zi_plan_make(&plan_model, &wish, &plan, &text);
	fuzz_check(!r || text.chars[0] != '\0', "a refusal without words");
	if (r)
		return;
	fuzz_check(plan.cpu_bytes >= plan.param_cpu_bytes + plan.grad_cpu_bytes, "sum of planes");
	r = zi_plan_fit(&plan_model, &wish, plan.cpu_bytes / 2, UINT64_MAX, &wish.config, &text);
	if (!r)
		r = zi_plan_make(&plan_model, &wish, &plan, NULL);
	fuzz_check(!r || text.chars[0] != '\0', "a refusal without words");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct estimate_model model = { 0 };
	struct zi_text text = { "" };
	uint8_t choice = byte_count ? bytes[0] : 0;
	char word[32] = "";
	int r;

	if (byte_count)
		byte_count--, bytes++;
	if (choice & 128) {
		memcpy(word, bytes, byte_count < sizeof(word) ? byte_count : sizeof(word) - 1);
		if (!estimate_is_count(word))
			return 0;
		r = estimate_read(&model, word, choice & 64 ? 7 : 0, &text);
	} else {
		r = estimate_read_bytes(&model, bytes, byte_count, NULL, &text);
	}
	if (r) {
		fuzz_check(text.chars[0] != '\0', "a refusal without words");
		fuzz_check(r == -EINVAL, "a refusal of another kind");
	} else {
		check_units(&model);
		check_plan(&model, choice);
	}
	estimate_model_free(&model);
	return 0;
}
