/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of jobs over nodes, drawn (crew.h). */
#include <stdio.h>
#include <string.h>

#include "tests/far/crew.h"

static const uint32_t layouts[][CREW_NODES] = {
	{ 1, 1 }, { 2, 1 }, { 1, 3 }, { 1, 1, 1 }, { 2, 2 }, { 1, 2, 1 }, { 1, 1, 1, 1 },
};

static const char *word(bool is_so, const char *words)
{
	return is_so ? words : "";
}

static void describe(struct crew_kind *kind)
{
	static const char *const dtypes[] = {
		[ZINF_F32] = "fp32", [ZINF_BF16] = "bf16", [ZINF_F16] = "f16"
	};
	static const char *const strategies[] = { [ZINF_DDP] = "ddp",
		                                  [ZINF_ZERO1] = "zero1",
		                                  [ZINF_ZERO2] = "zero2",
		                                  [ZINF_ZERO3] = "zero3" };
	char ranks[32] = "";

	for (uint32_t i = 0; i < kind->node_count; i++)
		(void)snprintf(ranks + strlen(ranks), sizeof(ranks) - strlen(ranks), "%s%u",
		               i ? "+" : "", kind->counts[i]);
	(void)snprintf(
		kind->words, sizeof(kind->words),
		"%s, %s, ranks %s, state %s, parameters %s, commit_interval %u%s%s%s%s%s%s",
		strategies[kind->strategy], dtypes[kind->dtype], ranks,
		kind->offload == ZINF_OFFLOAD_NVME  ? "nvme"
		: kind->offload == ZINF_OFFLOAD_CPU ? "cpu"
						    : "none",
		kind->offload_param == ZINF_OFFLOAD_NVME ? "nvme" : "none", kind->commit_interval,
		word(kind->grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH, ", per micro-batch"),
		word(kind->accumulate > 1, ", 2 micro-batches"),
		word(kind->max_norm > 0, ", clipped"), word(kind->unscale != 1, ", scaled"),
		word(kind->infinite_step, ", a step that is skipped"),
		word(kind->is_eager, ", eager"));
}

struct crew_kind crew_kind_draw(uint64_t seed, uint32_t index)
{
	static const enum zinf_strategy strategies[] = { ZINF_DDP, ZINF_ZERO1, ZINF_ZERO2,
		                                         ZINF_ZERO3 };
	struct draw random = { seed * 0x9e3779b97f4a7c15ull + index };
	struct crew_kind kind = { .node_count = 0 };
	uint32_t at;

	(void)draw(&random, 2);
	/* Each of four in a row has another strategy; most have state that outlives daemons. */
	kind.strategy = strategies[(index + seed) % 4];
	at = (uint32_t)draw(&random, sizeof(layouts) / sizeof(*layouts));
	for (uint32_t i = 0; i < CREW_NODES; i++) {
		kind.counts[i] = layouts[at][i];
		kind.node_count += layouts[at][i] > 0;
		kind.world += layouts[at][i];
	}
	kind.dtype = (enum zinf_dtype[]){ ZINF_F32, ZINF_BF16, ZINF_F16 }[draw(&random, 3)];
	kind.offload = draw(&random, 4)   ? ZINF_OFFLOAD_NVME
	               : draw(&random, 2) ? ZINF_OFFLOAD_CPU
	                                  : ZINF_OFFLOAD_NONE;
	if (kind.offload == ZINF_OFFLOAD_NVME && draw(&random, 2))
		kind.offload_param = ZINF_OFFLOAD_NVME;
	kind.commit_interval = kind.offload == ZINF_OFFLOAD_NVME && draw(&random, 2) ? 3 : 1;
	kind.grad_reduction = draw(&random, 3) ? ZINF_REDUCE_PER_STEP : ZINF_REDUCE_PER_MICRO_BATCH;
	kind.accumulate = 1 + (draw(&random, 3) == 0);
	kind.max_norm = draw(&random, 2) ? 1 : 0;
	kind.unscale = draw(&random, 3) ? 1 : 0.25;
	if (draw(&random, 3) == 0)
		kind.infinite_step = 2 + (uint32_t)draw(&random, CREW_STEPS - 2);
	kind.is_eager = draw(&random, 3) == 0;
	describe(&kind);
	return kind;
}
