/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `step`, part `disk`: what a step of zinf-gpt costs where parameters and state are on NVMe.
 *
 * A rate: 127 M parameters and 32 tokens, so that the disk is the limit. The peer is the update
 * alone: the same units by this process, whose gradients are there at once. Both rates are of the
 * bytes that the step's statistics have, so units that forward and backward load again count as
 * time only.
 *
 * A time: what a step of 2 ranks with 256 tokens takes beyond forward and backward, which are those
 * of a run with all state in memory in the same round. The peer is the time it may take.
 *
 * Turns are reversed in every second round.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/coll_order.h"
#include "bench/gpt_run.h"
#include "bench/step_own.h"
#include "bench/step_suite.h"
#include "tests/harness/harness.h"
#include "zinf/zinf.h"

#define FIRST_STEPS 3u /* they touch memory anew, and have no moments to read */
#define STEPS       9u /* with the first ones */
#define ROUNDS      7u
#define RATE_TARGET 0.85
#define BEYOND_MS   200.0

/* Sums over the lines that count. */
struct run {
	double wall_s, compute_s, bytes;
	unsigned count;
};

static void take_line(void *arg, const json_t *line)
{
	struct run *run = arg;

	if (json_integer_value(json_object_get(line, "step")) <= (json_int_t)FIRST_STEPS)
		return;
	run->wall_s += json_number_value(json_object_get(line, "wall_ms")) / 1e3;
	run->compute_s += json_number_value(json_object_get(line, "compute_ms")) / 1e3;
	run->bytes += json_number_value(json_object_get(line, "read_bytes")) +
	              json_number_value(json_object_get(line, "write_bytes"));
	run->count++;
}

/* @tier: of parameters and state. The means of a step. */
static int run_gpt(const struct step_settings *settings, const char *words, const char *tier,
                   struct run *ret_run)
{
	char all[512];

	*ret_run = (struct run){ 0 };
	(void)snprintf(all, sizeof all,
	               "%s --heads 12 --d-model 768 --batch-size 1 --bf16 --clip 0 --steps %u "
	               "--offload-optimizer %s --offload-param %s --job bench-%s --delete-job",
	               words, STEPS, tier, tier, tier);
	if (gpt_run(settings->program, all, take_line, ret_run))
		return -1;
	if (!ret_run->count) {
		fprintf(stderr, "bench: zinf-gpt has told of no step\n");
		return -1;
	}
	ret_run->wall_s /= ret_run->count;
	ret_run->compute_s /= ret_run->count;
	ret_run->bytes /= ret_run->count;
	return 0;
}

/* ---- the update alone ---- */

/* The units of zinf-gpt with @layers: tables, blocks, head. */
static int add_units(struct zinf *zinf, uint32_t layers)
{
	int r = 0;

	for (uint32_t i = 0; i < layers + 2 && !r; i++) {
		const uint64_t block = 12ull * 768 * 768 + 13 * 768;
		const uint64_t shape[1] = { i == 0            ? 768ull * (256 + 32)
			                    : i == layers + 1 ? 2 * 768
			                                      : block };
		uint32_t unit, param;
		char name[32];

		(void)snprintf(name, sizeof name, "unit.%u", i);
		r = zinf_unit_add(zinf, name, &unit);
		if (!r)
			r = zinf_param_add(zinf, name, 1, shape, &param);
	}
	return r ? r : zinf_materialize(zinf);
}

static int steps_alone(struct zinf *zinf, uint32_t layers, struct run *run)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	int r = add_units(zinf, layers);

	options.lr = 1e-3;
	options.update_early = 1;
	if (!r)
		r = zinf_commit(zinf, NULL, 0);
	for (uint32_t i = 1; i <= STEPS && !r; i++) {
		struct zinf_step_stats stats = { .bytes = sizeof stats };
		uint64_t started_ns = coll_now_ns();

		r = step_own_step(zinf, layers + 2, &options, &stats); /* Gradients are zeros. */
		if (i <= FIRST_STEPS)
			continue;
		run->wall_s += (double)(coll_now_ns() - started_ns) / 1e9;
		run->bytes += (double)(stats.read_bytes + stats.write_bytes);
		run->count++;
	}
	if (!r)
		r = zinf_destroy_job(zinf); /* 0: it has detached as well. */
	if (r) {
		fprintf(stderr, "bench: %s\n", zinf_error_text(zinf));
		zinf_detach(zinf);
	}
	return r;
}

/* The means of a step. */
static int run_alone(uint32_t layers, struct run *ret_run)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *zinf;
	int r;

	*ret_run = (struct run){ 0 };
	options.job = "bench-alone";
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.offload_optimizer = options.offload_param = ZINF_OFFLOAD_NVME;
	if (zinf_attach(&options, &zinf)) {
		fprintf(stderr, "bench: %s\n", zinf_attach_error());
		return -1;
	}
	r = steps_alone(zinf, layers, ret_run);
	if (r)
		return -1;
	ret_run->wall_s /= ret_run->count;
	ret_run->bytes /= ret_run->count;
	return 0;
}

/* ---- rows ---- */

static int measure_rate(const struct step_settings *settings, unsigned rounds, double *own,
                        double *peer)
{
	const uint32_t layers = settings->is_quick ? 2 : 18;
	char words[64];

	(void)snprintf(words, sizeof words, "--layers %u --seq-len 32", layers);
	for (unsigned i = 0; i < rounds; i++) {
		struct run gpt, alone;

		if (i % 2 && run_alone(layers, &alone))
			return -1;
		if (run_gpt(settings, words, "nvme", &gpt) ||
		    (i % 2 == 0 && run_alone(layers, &alone)))
			return -1;
		own[i] = gpt.bytes / gpt.wall_s / 1e9;
		peer[i] = alone.bytes / alone.wall_s / 1e9;
		printf("round %u: a step %.0f MB in %.0f ms, the update alone %.0f MB in %.0f ms, "
		       "ratio %.2f\n",
		       i + 1, gpt.bytes / 1e6, gpt.wall_s * 1e3, alone.bytes / 1e6,
		       alone.wall_s * 1e3, own[i] / peer[i]);
	}
	return 0;
}

static int measure_beyond(const struct step_settings *settings, unsigned rounds, double *own,
                          double *peer)
{
	const char *words = settings->is_quick ? "--ranks 2 --layers 2 --seq-len 256"
	                                       : "--ranks 2 --layers 12 --seq-len 256";

	for (unsigned i = 0; i < rounds; i++) {
		struct run nvme, memory;

		if (i % 2 && run_gpt(settings, words, "cpu", &memory))
			return -1;
		if (run_gpt(settings, words, "nvme", &nvme) ||
		    (i % 2 == 0 && run_gpt(settings, words, "cpu", &memory)))
			return -1;
		own[i] = fmax((nvme.wall_s - memory.compute_s) * 1e3, 1);
		peer[i] = BEYOND_MS;
		printf("round %u: 2 ranks: a step on NVMe %.0f ms (computing %.0f), in memory %.0f "
		       "ms (computing %.0f)\n",
		       i + 1, nvme.wall_s * 1e3, nvme.compute_s * 1e3, memory.wall_s * 1e3,
		       memory.compute_s * 1e3);
	}
	return 0;
}

static int add_rows(struct bench_report *report, const struct step_settings *settings)
{
	static double own[2][BENCH_RUNS_MAX], peer[2][BENCH_RUNS_MAX];
	struct bench_row row = { .runs = settings->is_quick ? 1 : ROUNDS };

	if (measure_rate(settings, row.runs, own[0], peer[0]) ||
	    measure_beyond(settings, row.runs, own[1], peer[1]))
		return -1;
	row.name = "zinf-gpt on NVMe, 127 M parameters, 32 tokens";
	row.unit = "GB/s";
	row.peer_name = "the update alone";
	row.target = RATE_TARGET;
	(void)bench_report_add_turns(report, &row, BENCH_RATE, own[0], peer[0]);
	row.name = "zinf-gpt on NVMe, 2 ranks, 256 tokens, beyond computing";
	row.unit = "ms";
	row.peer_name = "the time it may take";
	row.target = 1;
	(void)bench_report_add_turns(report, &row, BENCH_TIME, own[1], peer[1]);
	return 0;
}

int step_disk_rows(struct bench_report *report, const struct step_settings *settings)
{
	const struct harness_options options = { .cpu_capacity = "6G", .nvme_size = "5G" };
	struct harness harness;
	int r;

	if (harness_start(&harness, &options))
		return -1;
	(void)setenv("ZINF_SOCKET", harness.socket_path, 1);
	r = add_rows(report, settings);
	(void)unsetenv("ZINF_SOCKET");
	if (r) {
		harness_remove(&harness);
		return -1;
	}
	return harness_stop(&harness) ? -1 : 0;
}
