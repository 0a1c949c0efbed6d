/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of jobs, drawn (kind.h). */
#include "tests/crash/kind.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/trainer.h"

uint64_t draw(struct draw *draw, uint64_t below)
{
	uint64_t z = draw->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % below;
}

static bool toss(struct draw *random, uint32_t one_in)
{
	return draw(random, one_in) == 0;
}

/* What goes together: an early update wants neither norm nor finite check. */
static void draw_step(struct draw *random, struct kind *kind)
{
	kind->update_early |= toss(random, 3);
	kind->is_eager = toss(random, 3);
	kind->accumulate = 1 + toss(random, 3);
	kind->grad_reduction = toss(random, 2) ? ZINF_REDUCE_PER_MICRO_BATCH : ZINF_REDUCE_PER_STEP;
	if (kind->update_early)
		return;
	kind->max_norm = toss(random, 2) ? 1 : 0;
	kind->want_norm = true;
	if (toss(random, 3))
		kind->infinite_step = 2 + (uint32_t)draw(random, KIND_STEPS - 2);
}

/* State on NVMe has ways that state in memory has not. */
static void draw_storage(struct draw *random, struct kind *kind)
{
	uint64_t largest_bytes = 272ull << 10; /* elements of the largest unit, and to spare */

	if (kind->offload_param == ZINF_OFFLOAD_NVME || toss(random, 4)) {
		kind->offload_param = ZINF_OFFLOAD_NVME;
		/* Several ranks may hold different units at once. */
		if (kind->world == 1)
			kind->param_budget_bytes = largest_bytes * trainer_dtype_bytes(kind->dtype);
	}
	if (!kind->commit_interval && toss(random, 3))
		kind->commit_interval = 2 + (uint32_t)draw(random, 3);
	if (!kind->resident_bytes && toss(random, 3))
		kind->resident_bytes = (1 + draw(random, 3)) << 20;
	if (!kind->path_count)
		kind->path_count = 1 + toss(random, 3);
}

/* An early update needs the options when the step begins, and cannot be discarded. */
static void draw_end(struct draw *random, struct kind *kind)
{
	if (kind->update_early)
		return;
	kind->is_deferred = toss(random, 2);
	kind->discard_count = toss(random, 3);
}

static const char *word(bool is_so, const char *words)
{
	return is_so ? words : "";
}

static void describe(struct kind *kind)
{
	char interval[32] = "";

	if (kind->commit_interval > 1)
		(void)snprintf(interval, sizeof(interval), ", commit_interval %u",
		               kind->commit_interval);
	(void)snprintf(
		kind->words, sizeof(kind->words),
		"%s, world %u, state in %s%s%s%s%s%s%s%s%s%s%s%s%s%s%s",
		kind->dtype == ZINF_BF16 ? "bf16" : "fp32", kind->world,
		kind->offload != ZINF_OFFLOAD_NVME ? "memory"
		: kind->is_ring                    ? "NVMe by io_uring"
						   : "NVMe by threads",
		word(kind->path_count > 1, ", two paths"),
		word(kind->durability == ZINF_DURABILITY_POWER, ", durability power"),
		word(kind->offload_param == ZINF_OFFLOAD_NVME, ", pool"),
		word(kind->param_budget_bytes, " of one unit"), interval,
		word(kind->resident_bytes, ", partly resident"),
		word(kind->update_early, ", update_early"), word(kind->max_norm > 0, ", clipped"),
		word(kind->grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH, ", per micro-batch"),
		word(kind->accumulate > 1, ", 2 micro-batches"), word(kind->is_eager, ", eager"),
		word(kind->infinite_step, ", a step that is skipped"),
		word(kind->is_deferred, ", deferred options"),
		word(kind->discard_count, ", discarded steps"));
	if (kind->has_snapshots)
		(void)strncat(kind->words, ", snapshots",
		              sizeof(kind->words) - strlen(kind->words) - 1);
}

struct kind kind_draw(uint64_t seed, uint32_t index)
{
	struct draw random = { seed * 0x9e3779b97f4a7c15ull + index };
	uint32_t turn = index % KIND_CYCLE;
	struct kind kind;

	(void)draw(&random, 2);
	kind = (struct kind){
		.world = 1 + (uint32_t)draw(&random, KIND_WORLD_MAX),
		.dtype = toss(&random, 2) ? ZINF_F32 : ZINF_BF16,
		.offload = turn == 4 ? ZINF_OFFLOAD_CPU : ZINF_OFFLOAD_NVME,
		.offload_param = turn == 1 ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_NONE,
		.durability = turn == 2 || toss(&random, 3) ? ZINF_DURABILITY_POWER
		                                            : ZINF_DURABILITY_PROCESS,
		.is_ring = turn == 3 || toss(&random, 2),
		.path_count = turn == 0 ? 2 : 0,
		.commit_interval = turn == 1 ? 2 + (uint32_t)draw(&random, 3) : 0,
		.resident_bytes = turn == 3 ? (1 + draw(&random, 3)) << 20 : 0,
		.update_early = turn == 0,
		.has_snapshots = turn == 2 || toss(&random, 4),
	};
	draw_step(&random, &kind);
	if (kind.offload == ZINF_OFFLOAD_NVME)
		draw_storage(&random, &kind);
	if (!kind.path_count)
		kind.path_count = 1;
	draw_end(&random, &kind);
	describe(&kind);
	return kind;
}
