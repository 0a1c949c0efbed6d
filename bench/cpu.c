/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `cpu`: the fused AdamW step in bytes/s over the STREAM triad measured beside it.
 *
 * Method: memory far beyond any cache (huge pages, touched by the threads that use it), laid out as
 * the daemon's: planar parameters and gradients, state in tiles. Each pair runs the triad with
 * ordinary stores, the triad with non-temporal ones and the step, one after the other; the better
 * triad is the peer of that pair. Bytes are those that the program reads and writes. Reported is
 * the median of the ratios, with all CPUs and with one.
 *
 * What it must reach: 0.85 with all CPUs. Little less than 1 is the bound: the step has nothing to
 * compute that does not hide behind its loads, but more streams to fetch than the triad has.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/report.h"
#include "bench/team.h"
#include "bench/triad.h"
#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/types.h"
#include "kernels/cast.h"
#include "kernels/optim.h"

#define ELEMENTS   (64ull << 20) /* 1 GiB of training state; triad 0.75 GiB */
#define PAIRS      15u
#define TARGET_ALL 0.85
#define RANKS_MAX  2u

static_assert(PAIRS >= BENCH_RUNS_MIN, "a median of enough runs");
static_assert(ELEMENTS % ZI_TILE_ELEMENTS == 0, "whole tiles");

struct adam_case {
	const char *name;
	enum zi_dtype dtype; /* of parameters and gradients */
	uint32_t rank_count;
	bool is_reduced;
	bool has_copy;
};

static const struct adam_case cases[] = {
	{ "AdamW bf16, 2 ranks' gradients", ZI_DTYPE_BF16, 2, false, false },
	{ "AdamW bf16, reduced gradient", ZI_DTYPE_BF16, 1, true, false },
	{ "AdamW fp32, 1 rank's gradient", ZI_DTYPE_F32, 1, false, false },
	{ "AdamW bf16, 2 ranks, param copy", ZI_DTYPE_BF16, 2, false, true },
};

/* Views into one mapping: planes one after the other. */
struct bench_memory {
	char *adam;   /* 16 bytes an element, and 2 for a copy of bf16 */
	float *triad; /* three arrays of ELEMENTS */
};

struct adam_work {
	const struct adam_case *kind;
	struct kern_optim_scalars scalars;
	char *param;
	char *copy;
	char *grads[RANKS_MAX];
	char *state; /* tiles */
};

struct triad_work {
	triad_fn function;
	float *a, *b, *c;
};

static uint64_t share(uint64_t total, unsigned member, unsigned member_count)
{
	return total * member / member_count;
}

static uint64_t element_bytes(const struct adam_case *kind)
{
	uint64_t width = zi_dtype_bytes(kind->dtype);
	uint64_t state = zi_state_element_bytes(ZI_OPTIMIZER_ADAMW, kind->dtype);
	uint64_t copy = kind->has_copy ? width : 0;

	return 2 * (width + state) + kind->rank_count * width + copy;
}

/* One tile, as the daemon runs it. */
static void adam_tile(const struct adam_work *work, uint64_t tile)
{
	bool is_bf16 = work->kind->dtype == ZI_DTYPE_BF16;
	uint64_t width = zi_dtype_bytes(work->kind->dtype);
	uint64_t offset = tile * ZI_TILE_ELEMENTS * width;
	uint64_t remainder_bytes = is_bf16 ? ZI_TILE_ELEMENTS * sizeof(int16_t) : 0;
	char *state = work->state + tile * (remainder_bytes + 2 * ZI_TILE_ELEMENTS * sizeof(float));
	const void *grads[RANKS_MAX] = { work->grads[0] + offset, work->grads[1] + offset };
	struct kern_optim_run run = {
		.param = work->param + offset,
		.param_copy = work->kind->has_copy ? work->copy + offset : NULL,
		.remainder = is_bf16 ? (int16_t *)state : NULL,
		.exp_avg = (float *)(state + remainder_bytes),
		.exp_avg_sq = (float *)(state + remainder_bytes) + ZI_TILE_ELEMENTS,
		.grads = grads,
		.rank_count = work->kind->rank_count,
		.is_reduced = work->kind->is_reduced,
		.element_count = ZI_TILE_ELEMENTS,
		.param_dtype = work->kind->dtype,
		.grad_dtype = work->kind->dtype,
	};

	kern_optim_step(&run, &work->scalars);
}

static void adam_member(void *arg, unsigned member, unsigned member_count)
{
	const uint64_t tiles = ELEMENTS / ZI_TILE_ELEMENTS;

	for (uint64_t tile = share(tiles, member, member_count);
	     tile < share(tiles, member + 1, member_count); tile++)
		adam_tile(arg, tile);
}

/* Ordinary numbers everywhere: denormals and infinities would time something else. */
static void adam_fill_tile(const struct adam_work *work, uint64_t tile)
{
	bool is_bf16 = work->kind->dtype == ZI_DTYPE_BF16;
	uint64_t offset = tile * ZI_TILE_ELEMENTS * zi_dtype_bytes(work->kind->dtype);
	uint64_t remainder_bytes = is_bf16 ? ZI_TILE_ELEMENTS * sizeof(int16_t) : 0;
	char *state = work->state + tile * (remainder_bytes + 2 * ZI_TILE_ELEMENTS * sizeof(float));
	float *exp_avg = (float *)(state + remainder_bytes);
	float values[ZI_TILE_ELEMENTS];
	uint32_t random = (uint32_t)tile * 2654435761u + 1u;

	for (uint32_t i = 0; i < ZI_TILE_ELEMENTS; i++) {
		random = random * 1664525u + 1013904223u; /* Numerical Recipes' generator */
		values[i] = (float)(int32_t)random * 0x1p-35f;
		exp_avg[i] = values[i] * 0.125f;
		exp_avg[ZI_TILE_ELEMENTS + i] = values[i] * values[i] + 1e-6f;
		if (is_bf16)
			((int16_t *)state)[i] = (int16_t)(random >> 20);
	}
	kern_narrow(work->param + offset, values, ZI_TILE_ELEMENTS, work->kind->dtype);
	if (work->kind->has_copy)
		memcpy(work->copy + offset, work->param + offset,
		       ZI_TILE_ELEMENTS * zi_dtype_bytes(work->kind->dtype));
	for (uint32_t rank = 0; rank < work->kind->rank_count; rank++)
		kern_narrow(work->grads[rank] + offset, values, ZI_TILE_ELEMENTS,
		            work->kind->dtype);
}

static void adam_fill_member(void *arg, unsigned member, unsigned member_count)
{
	const uint64_t tiles = ELEMENTS / ZI_TILE_ELEMENTS;

	for (uint64_t tile = share(tiles, member, member_count);
	     tile < share(tiles, member + 1, member_count); tile++)
		adam_fill_tile(arg, tile);
}

static void triad_member(void *arg, unsigned member, unsigned member_count)
{
	const struct triad_work *work = arg;
	const uint64_t tiles = ELEMENTS / ZI_TILE_ELEMENTS;
	uint64_t begin = share(tiles, member, member_count) * ZI_TILE_ELEMENTS;
	uint64_t end = share(tiles, member + 1, member_count) * ZI_TILE_ELEMENTS;

	work->function(work->a + begin, work->b + begin, work->c + begin, 3.0f, end - begin);
}

static void triad_fill_member(void *arg, unsigned member, unsigned member_count)
{
	const struct triad_work *work = arg;

	for (uint64_t i = share(ELEMENTS, member, member_count);
	     i < share(ELEMENTS, member + 1, member_count); i++) {
		work->a[i] = 0.0f;
		work->b[i] = 1.0f;
		work->c[i] = 2.0f;
	}
}

static void adam_work_init(struct adam_work *ret_work, const struct adam_case *kind, char *memory)
{
	struct kern_hyper hyper = {
		.optimizer = ZI_OPTIMIZER_ADAMW,
		.lr = 1e-4,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.weight_decay = 0.01,
		.beta1_power = 0.9 * 0.9,
		.beta2_power = 0.999 * 0.999,
		.average = kind->is_reduced ? 1.0f : 1.0f / (float)kind->rank_count,
		.unscale = 1.0f,
		.clip = 1.0f,
	};
	uint64_t plane_bytes = ELEMENTS * zi_dtype_bytes(kind->dtype);

	*ret_work = (struct adam_work){
		.kind = kind,
		.param = memory,
		.grads = { memory + plane_bytes, memory + plane_bytes },
		.state = memory + (1 + kind->rank_count) * plane_bytes,
	};
	if (kind->rank_count == 2)
		ret_work->grads[1] = memory + 2 * plane_bytes;
	ret_work->copy = ret_work->state +
	                 ELEMENTS * zi_state_element_bytes(ZI_OPTIMIZER_ADAMW, kind->dtype);
	kern_optim_prepare(&ret_work->scalars, &hyper);
}

/* GB/s: bytes per nanosecond. */
static double rate(uint64_t bytes, uint64_t ns)
{
	return (double)bytes / (double)ns;
}

static void measure(struct bench_report *report, struct team *team,
                    const struct bench_memory *memory, const struct adam_case *kind,
                    unsigned member_count, const char *row_name)
{
	double own[PAIRS], peer[PAIRS], ratio[PAIRS];
	struct bench_summary own_summary, peer_summary, ratio_summary;
	struct adam_work adam;
	struct triad_work triad = {
		.a = memory->triad,
		.b = memory->triad + ELEMENTS,
		.c = memory->triad + 2 * ELEMENTS,
	};

	adam_work_init(&adam, kind, memory->adam);
	(void)team_run(team, adam_fill_member, &adam, team_member_count(team));
	(void)team_run(team, adam_member, &adam, member_count); /* warm: page tables, clocks */
	for (unsigned i = 0; i < PAIRS; i++) {
		double plain, stream;

		triad.function = triad_plain(kern_isa_best());
		plain = rate(ELEMENTS * TRIAD_ELEMENT_BYTES,
		             team_run(team, triad_member, &triad, member_count));
		triad.function = triad_stream(kern_isa_best());
		stream = rate(ELEMENTS * TRIAD_ELEMENT_BYTES,
		              team_run(team, triad_member, &triad, member_count));
		peer[i] = ZI_MAX(plain, stream);
		own[i] = rate(ELEMENTS * element_bytes(kind),
		              team_run(team, adam_member, &adam, member_count));
		ratio[i] = own[i] / peer[i];
	}
	bench_summarize(&own_summary, own, PAIRS);
	bench_summarize(&peer_summary, peer, PAIRS);
	bench_summarize(&ratio_summary, ratio, PAIRS);
	bench_report_add(
		report,
		&(struct bench_row){
			.name = row_name,
			.value = own_summary.median,
			.unit = "GB/s",
			.peer = peer_summary.median,
			.peer_name = "STREAM triad, the better of plain and non-temporal",
			.ratio = ratio_summary.median,
			.ratio_low = ratio_summary.low,
			.ratio_high = ratio_summary.high,
			.target = member_count == team_member_count(team) ? TARGET_ALL : 0.0,
			.runs = PAIRS,
		});
}

static void *map_huge(uint64_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	(void)madvise(memory, bytes, MADV_HUGEPAGE); /* without: slower, and both alike */
	return memory;
}

int main(int argc, char **argv)
{
	const char *directory = argc > 1 ? argv[1] : "build/bench";
	struct bench_memory memory = {
		.adam = map_huge(ELEMENTS * 18),
		.triad = map_huge(ELEMENTS * TRIAD_ELEMENT_BYTES),
	};
	static char row_names[2 * ZI_COUNT_OF(cases)][64];
	struct triad_work triad;
	struct bench_report report;
	struct team *team = team_new();
	unsigned all, row = 0;
	int r;

	if (!memory.adam || !memory.triad || !team) {
		fprintf(stderr, "bench cpu: %llu MiB of memory or threads are missing: %s\n",
		        ELEMENTS * (18 + TRIAD_ELEMENT_BYTES) >> 20, strerror(errno));
		return EXIT_FAILURE;
	}
	all = team_member_count(team);
	triad = (struct triad_work){ .a = memory.triad,
		                     .b = memory.triad + ELEMENTS,
		                     .c = memory.triad + 2 * ELEMENTS };
	(void)team_run(team, triad_fill_member, &triad, all);
	bench_report_init(&report, "cpu");
	printf("bench cpu: %u threads, %s, %llu Mi elements\n", all, kern_isa_name(kern_isa_best()),
	       ELEMENTS >> 20);
	for (unsigned i = 0; i < ZI_COUNT_OF(cases); i++) {
		snprintf(row_names[row], sizeof row_names[row], "%s, all CPUs", cases[i].name);
		measure(&report, team, &memory, &cases[i], all, row_names[row]);
		row++;
		if (all == 1)
			continue;
		snprintf(row_names[row], sizeof row_names[row], "%s, 1 CPU", cases[i].name);
		measure(&report, team, &memory, &cases[i], 1, row_names[row]);
		row++;
	}
	team = team_free(team);
	r = bench_report_write(&report, directory);
	if (r) {
		fprintf(stderr, "bench cpu: cannot write %s/cpu.json: %s\n", directory,
		        strerror(-r));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
