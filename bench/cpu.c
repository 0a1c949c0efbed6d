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

#include "bench/adam.h"
#include "bench/report.h"
#include "bench/team.h"
#include "bench/triad.h"
#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/types.h"

#define ELEMENTS   ADAM_ELEMENTS /* triad 0.75 GiB */
#define PAIRS      15u
#define TARGET_ALL 0.85

static_assert(PAIRS >= BENCH_RUNS_MIN, "a median of enough runs");

static const struct {
	const char *name;
	struct adam_case kind;
} cases[] = {
	{ "AdamW bf16, 2 ranks' gradients", { ZI_DTYPE_BF16, 2, false, false } },
	{ "AdamW bf16, reduced gradient", { ZI_DTYPE_BF16, 1, true, false } },
	{ "AdamW fp32, 1 rank's gradient", { ZI_DTYPE_F32, 1, false, false } },
	{ "AdamW bf16, 2 ranks, param copy", { ZI_DTYPE_BF16, 2, false, true } },
};

/* Views into one mapping: planes one after the other. */
struct bench_memory {
	char *adam;
	float *triad; /* three arrays of ELEMENTS */
};

struct triad_work {
	triad_fn function;
	float *a, *b, *c;
};

static void triad_member(void *arg, unsigned member, unsigned member_count)
{
	const struct triad_work *work = arg;
	uint64_t begin = adam_share(ADAM_TILES, member, member_count) * ZI_TILE_ELEMENTS;
	uint64_t end = adam_share(ADAM_TILES, member + 1, member_count) * ZI_TILE_ELEMENTS;

	work->function(work->a + begin, work->b + begin, work->c + begin, 3.0f, end - begin);
}

static void triad_fill_member(void *arg, unsigned member, unsigned member_count)
{
	const struct triad_work *work = arg;

	for (uint64_t i = adam_share(ELEMENTS, member, member_count);
	     i < adam_share(ELEMENTS, member + 1, member_count); i++) {
		work->a[i] = 0.0f;
		work->b[i] = 1.0f;
		work->c[i] = 2.0f;
	}
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
	double own[PAIRS], peer[PAIRS];
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
		own[i] = rate(ELEMENTS * adam_element_bytes(kind),
		              team_run(team, adam_member, &adam, member_count));
	}
	(void)bench_report_add_turns(
		report,
		&(struct bench_row){
			.name = row_name,
			.unit = "GB/s",
			.peer_name = "STREAM triad, the better of plain and non-temporal",
			.target = member_count == team_member_count(team) ? TARGET_ALL : 0.0,
			.runs = PAIRS,
		},
		BENCH_RATE, own, peer);
}

int main(int argc, char **argv)
{
	const char *directory = argc > 1 ? argv[1] : "build/bench";
	struct bench_memory memory = {
		.adam = adam_map_huge(ADAM_BYTES),
		.triad = adam_map_huge(ELEMENTS * TRIAD_ELEMENT_BYTES),
	};
	static char row_names[2 * ZI_COUNT_OF(cases)][64];
	struct triad_work triad;
	struct bench_report report;
	struct team *team = team_new();
	unsigned all, row = 0;
	int r;

	if (!memory.adam || !memory.triad || !team) {
		fprintf(stderr, "bench cpu: %llu MiB of memory or threads are missing: %s\n",
		        (ADAM_BYTES + ELEMENTS * TRIAD_ELEMENT_BYTES) >> 20, strerror(errno));
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
		measure(&report, team, &memory, &cases[i].kind, all, row_names[row]);
		row++;
		if (all == 1)
			continue;
		snprintf(row_names[row], sizeof row_names[row], "%s, 1 CPU", cases[i].name);
		measure(&report, team, &memory, &cases[i].kind, 1, row_names[row]);
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
