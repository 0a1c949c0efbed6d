/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `step`, part `update`: reduce and AdamW of 2 and of 4 ranks in one node, over what
 * data-parallel training does without zinf: Gloo's all_reduce of the gradients and torch.optim's
 * AdamW in every rank (peers/step_torch.py). The same parameters and the same bytes of gradient,
 * but where Gloo has no sum of bf16 (the peer's name says then that it sums in f32); all state in
 * memory; sides take turns, a ratio for each pair. Ours is from zinf_step_begin() to the commit.
 * The peer's ranks update every parameter each, as DDP's do: what they do more than we
 * is the point. BENCH_TORCH_PYTHON names the interpreter that has torch.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/coll_side.h"
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

static int measure(struct coll_side *own, struct coll_side *peer, unsigned rounds, double *own_ms,
                   double *peer_ms)
{
	const struct coll_order order = { .operation = COLL_STEP, .iterations = STEPS };

	for (unsigned i = 0; i < rounds; i++) {
		double own_s = coll_side_seconds(own, &order);
		double peer_s = peer->is_ready ? coll_side_seconds(peer, &order) : 0;

		if (own_s <= 0 || peer_s < 0) {
			fprintf(stderr, "bench: a rank of %s died or hangs\n",
			        own_s <= 0 ? own->name : peer->name);
			return -1;
		}
		own_ms[i] = own_s * 1e3;
		peer_ms[i] = peer_s * 1e3;
	}
	return 0;
}

static uint64_t element_count(const struct step_settings *settings)
{
	return settings->is_quick ? QUICK_ELEMENTS : ELEMENTS;
}

static int run_sides(struct bench_report *report, const struct update_case *the_case,
                     const struct step_settings *settings, const char *directory)
{
	const char *wish = getenv("BENCH_TORCH_PYTHON");
	struct coll_side own = { 0 }, peer = { 0 };
	double own_ms[BENCH_RUNS_MAX], peer_ms[BENCH_RUNS_MAX];
	static char peer_names[ZI_COUNT_OF(cases)][COLL_PACKET_BYTES + 32];
	char *peer_name = peer_names[the_case - cases];
	char bytes[24];
	const char *own_argv[] = { settings->program, "rank", the_case->dtype, bytes, NULL };
	const char *peer_argv[] = { wish ? wish : "/usr/bin/python3", "bench/peers/step_torch.py",
		                    the_case->dtype, bytes, NULL };
	int r = -1;

	(void)snprintf(bytes, sizeof bytes, "%llu",
	               (unsigned long long)(element_count(settings) * the_case->element_bytes));
	start(&own, "zinf", own_argv, the_case, directory);
	if (own.is_ready) {
		if (!settings->is_quick)
			start(&peer, "Gloo-torch", peer_argv, the_case, directory);
		(void)snprintf(peer_name, sizeof(peer_names[0]), "Gloo all_reduce, %s", peer.words);
		r = measure(&own, &peer, settings->rounds, own_ms, peer_ms);
	}
	if (!r)
		(void)bench_report_add_turns(
			report,
			&(struct bench_row){ .name = the_case->name,
		                             .unit = "ms",
		                             .peer_name = peer.is_ready ? peer_name : NULL,
		                             .target = TARGET,
		                             .runs = settings->rounds },
			BENCH_TIME, own_ms, peer_ms);
	coll_side_stop(&peer);
	coll_side_stop(&own);
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
