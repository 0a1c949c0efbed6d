/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `step`, part `update`: reduce and AdamW of 2 and of 4 ranks in one node, over what
 * data-parallel training does without zinf: Gloo's all_reduce of the gradients and torch.optim's
 * AdamW in every rank (peers/step_torch.py). The same parameters and the same bytes of gradient,
 * but where Gloo has no sum of bf16 (the peer's name says then that it sums in f32); all state in
 * memory; sides take turns, a ratio for each pair. Ours is from zinf_step_begin() to the commit.
 * The ranks of the first peer update every parameter each, as DDP's do: this is the work that zinf
 * saves. The second peer is sharded as ZeRO-1 is: each of its ranks updates its own part, between
 * reduce_scatter and all_gather. The interpreter is that of python.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/coll_side.h"
#include "bench/python.h"
#include "bench/step_suite.h"
#include "common/base/cleanup.h"
#include "common/base/types.h"
#include "tests/harness/harness.h"

#define ELEMENTS       (64ull << 20)
#define QUICK_ELEMENTS (8ull << 20)
#define TARGET         4.0
#define STEPS          2u /* of each turn */

static const struct update_case {
	unsigned world;
	const char *dtype;
	unsigned element_bytes;
	const char *name;
} cases[] = {
	{ 2, "f32", 4, "reduce + AdamW, 2 ranks, fp32" },
	{ 2, "bf16", 2, "reduce + AdamW, 2 ranks, bf16" },
	{ 4, "f32", 4, "reduce + AdamW, 4 ranks, fp32" },
	{ 4, "bf16", 2, "reduce + AdamW, 4 ranks, bf16" },
};

static void start(struct coll_side *side, const char *name, const char *const *argv,
                  const struct update_case *the_case, const char *directory)
{
	coll_side_start(side, &(struct coll_side_options){ .name = name,
	                                                   .argv = argv,
	                                                   .process_count = the_case->world,
	                                                   .world = the_case->world,
	                                                   .directory = directory });
}

/* Ours, and the peers. */
enum { OWN, REPLICATED, SHARDED, _SIDE_COUNT };

struct sides {
	struct coll_side sides[_SIDE_COUNT];
	double ms[_SIDE_COUNT][BENCH_RUNS_MAX];
};

static int measure(struct sides *sides, unsigned rounds)
{
	const struct coll_order order = { .operation = COLL_STEP, .iterations = STEPS };

	for (unsigned round = 0; round < rounds; round++)
		for (unsigned i = 0; i < _SIDE_COUNT; i++) {
			/* Turns are reversed in every second round. */
			unsigned turn = round % 2 ? _SIDE_COUNT - 1 - i : i;
			struct coll_side *side = &sides->sides[turn];
			double seconds = side->is_ready ? coll_side_seconds(side, &order) : 0;

			if (seconds < 0 || (turn == OWN && seconds == 0)) {
				fprintf(stderr, "bench: a rank of %s died or hangs\n", side->name);
				return -1;
			}
			sides->ms[turn][round] = seconds * 1e3;
		}
	return 0;
}

static uint64_t element_count(const struct step_settings *settings)
{
	return settings->is_quick ? QUICK_ELEMENTS : ELEMENTS;
}

static void add_row(struct bench_report *report, const struct update_case *the_case,
                    const struct step_settings *settings, struct sides *sides, unsigned peer)
{
	static const char *const kinds[] = { [REPLICATED] = "all_reduce", [SHARDED] = "ZeRO-1" };
	const struct coll_side *side = &sides->sides[peer];
	/* As long as the report, that is, as the program. */
	char *name = NULL, *peer_name = NULL;

	if (asprintf(&name, "%s, over %s", the_case->name, kinds[peer]) < 0 ||
	    asprintf(&peer_name, "Gloo %s, %s", kinds[peer], side->words) < 0)
		abort();
	(void)bench_report_add_turns(
		report,
		&(struct bench_row){ .name = name,
	                             .unit = "ms",
	                             .peer_name = side->is_ready ? peer_name : NULL,
	                             .target = peer == REPLICATED ? TARGET : 0,
	                             .runs = settings->rounds },
		BENCH_TIME, sides->ms[OWN], sides->ms[peer]);
}

static int run_sides(struct bench_report *report, const struct update_case *the_case,
                     const struct step_settings *settings, const char *directory)
{
	static const char *const names[] = { [REPLICATED] = "replicated", [SHARDED] = "sharded" };
	struct sides sides = { 0 };
	char bytes[24];
	const char *own_argv[] = { settings->program, "rank", the_case->dtype, bytes, NULL };
	int r = -1;

	(void)snprintf(bytes, sizeof bytes, "%llu",
	               (unsigned long long)(element_count(settings) * the_case->element_bytes));
	start(&sides.sides[OWN], "zinf", own_argv, the_case, directory);
	for (unsigned peer = REPLICATED; peer < _SIDE_COUNT; peer++) {
		const char *argv[] = { bench_python(),  "bench/peers/step_torch.py",
			               the_case->dtype, bytes,
			               names[peer],     NULL };

		if (sides.sides[OWN].is_ready && !settings->is_quick)
			start(&sides.sides[peer], names[peer], argv, the_case, directory);
	}
	if (sides.sides[OWN].is_ready)
		r = measure(&sides, settings->rounds);
	for (unsigned peer = REPLICATED; peer < _SIDE_COUNT && !r; peer++)
		if (peer == REPLICATED || sides.sides[peer].is_ready)
			add_row(report, the_case, settings, &sides, peer);
	for (unsigned side = _SIDE_COUNT; side-- > 0;)
		coll_side_stop(&sides.sides[side]);
	return r;
}

static int run_case(struct bench_report *report, const struct update_case *the_case,
                    const struct step_settings *settings)
{
	/* Parameters, the ranks' gradients, 8 bytes of state or 12, and to spare. */
	uint64_t element_bytes = the_case->element_bytes * (the_case->world + 1ull) + 12;
	struct harness_options options = { 0 };
	struct harness harness;
	char capacity[32];
	int r;

	(void)snprintf(
		capacity, sizeof capacity, "%llu",
		(unsigned long long)(element_count(settings) * element_bytes + (256ull << 20)));
	options.cpu_capacity = capacity;
	if (harness_start(&harness, &options))
		return -1;
	(void)setenv("ZINF_SOCKET", harness.socket_path, 1);
	r = run_sides(report, the_case, settings, harness.directory);
	(void)unsetenv("ZINF_SOCKET");
	harness_remove(&harness); /* The sides' sockets lie there too. */
	return r;
}

int step_update_rows(struct bench_report *report, const struct step_settings *settings)
{
	int r = 0;

	for (size_t i = 0; i < ZI_COUNT_OF(cases) && !r; i++)
		r = run_case(report, &cases[i], settings);
	return r;
}
