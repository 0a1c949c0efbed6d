/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `step`, part `compute`: forward and backward of zinf-gpt over torch's, of GPT-2 small's
 * shape (peers/compute_torch.py), in bf16 and f32. 1 or 2 ranks share the CPUs, and state lies in
 * memory. The time is what zinf-gpt prints as computed, without waits, over the micro-batches of a
 * step; the daemon updates beside the last one only. Each round starts zinf-gpt anew, and torch's
 * ranks sleep meanwhile. Turns are reversed in every second round.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/coll_side.h"
#include "bench/gpt_run.h"
#include "bench/python.h"
#include "bench/step_suite.h"
#include "common/base/cleanup.h"
#include "common/base/types.h"
#include "tests/harness/harness.h"

/* torch's time over ours; the inverse of "within 1.3 times". */
#define TARGET      (1 / 1.3)
#define ROUNDS      7u
#define STEPS       3u /* of a run of zinf-gpt; the first touches memory anew */
#define MICRO_COUNT 4u

static const struct compute_case {
	unsigned world;
	const char *dtype, *flag, *name;
} cases[] = {
	{ 1, "bf16", "--bf16", "forward and backward, GPT-2 small, 1 rank, bf16" },
	{ 1, "f32", "", "forward and backward, GPT-2 small, 1 rank, f32" },
	{ 2, "bf16", "--bf16", "forward and backward, GPT-2 small, 2 ranks, bf16" },
	{ 2, "f32", "", "forward and backward, GPT-2 small, 2 ranks, f32" },
};

/* What zinf-gpt told: over ranks and steps. */
struct told {
	double ms;
	unsigned count;
};

static void take_line(void *arg, const json_t *line)
{
	double ms = json_number_value(json_object_get(line, "compute_ms"));
	struct told *told = arg;

	if (json_integer_value(json_object_get(line, "step")) < 2 || ms <= 0)
		return;
	told->ms += ms;
	told->count++;
}

/* Milliseconds of a forward and a backward, a mean over ranks and steps; negative after saying
 * why. */
static double run_gpt(const char *program, const struct compute_case *the_case)
{
	struct told told = { 0 };
	char words[512];

	(void)snprintf(words, sizeof words,
	               "--ranks %u %s --layers 12 --heads 12 --d-model 768 --seq-len 256 "
	               "--batch-size 1 --grad-accum %u --clip 0 --steps %u --offload-optimizer cpu "
	               "--job bench-compute --delete-job",
	               the_case->world, the_case->flag, MICRO_COUNT, STEPS);
	if (gpt_run(program, words, take_line, &told))
		return -1;
	if (!told.count) {
		fprintf(stderr, "bench: zinf-gpt has told of no step\n");
		return -1;
	}
	return told.ms / told.count / MICRO_COUNT;
}

static double run_torch(struct coll_side *peer)
{
	const struct coll_order order = { .operation = COLL_STEP, .iterations = MICRO_COUNT };

	return peer->is_ready ? coll_side_seconds(peer, &order) * 1e3 : 0;
}

static int measure(const struct compute_case *the_case, const struct step_settings *settings,
                   struct coll_side *peer, unsigned rounds, double *own, double *others)
{
	for (unsigned i = 0; i < rounds; i++) {
		if (i % 2)
			others[i] = run_torch(peer);
		own[i] = run_gpt(settings->program, the_case);
		if (i % 2 == 0)
			others[i] = run_torch(peer);
		if (own[i] < 0 || others[i] < 0)
			return -1;
		printf("round %u: %s: %.0f ms, torch %.0f ms\n", i + 1, the_case->name, own[i],
		       others[i]);
	}
	return 0;
}

static int run_case(struct bench_report *report, const struct compute_case *the_case,
                    const struct step_settings *settings)
{
	static double own[ZI_COUNT_OF(cases)][BENCH_RUNS_MAX];
	static double others[ZI_COUNT_OF(cases)][BENCH_RUNS_MAX];
	const char *argv[] = { bench_python(), "bench/peers/compute_torch.py", the_case->dtype,
		               NULL };
	struct harness_options options = { .cpu_capacity = "3G" };
	unsigned rounds = settings->is_quick ? 1 : ROUNDS;
	size_t index = (size_t)(the_case - cases);
	struct coll_side peer = { 0 };
	struct harness harness;
	char *peer_name = NULL;
	int r;

	if (harness_start(&harness, &options))
		return -1;
	(void)setenv("ZINF_SOCKET", harness.socket_path, 1);
	if (!settings->is_quick)
		coll_side_start(&peer,
		                &(struct coll_side_options){ .name = "torch",
		                                             .argv = argv,
		                                             .process_count = the_case->world,
		                                             .world = the_case->world,
		                                             .directory = harness.directory });
	r = measure(the_case, settings, &peer, rounds, own[index], others[index]);
	if (peer.is_ready && asprintf(&peer_name, "%s", peer.words) < 0)
		abort();
	if (!r)
		(void)bench_report_add_turns(report,
		                             &(struct bench_row){ .name = the_case->name,
		                                                  .unit = "ms",
		                                                  .peer_name = peer_name,
		                                                  .target = TARGET,
		                                                  .runs = rounds },
		                             BENCH_TIME, own[index], others[index]);
	coll_side_stop(&peer);
	(void)unsetenv("ZINF_SOCKET");
	harness_remove(&harness); /* The peer's sockets lie there too. */
	return r;
}

int step_compute_rows(struct bench_report *report, const struct step_settings *settings)
{
	int r = 0;

	/* Quick: one is enough. */
	for (size_t i = 0; i < (settings->is_quick ? 1 : ZI_COUNT_OF(cases)) && !r; i++)
		r = run_case(report, &cases[i], settings);
	return r;
}
