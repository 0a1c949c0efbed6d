/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `bench`: the swap path of libzinf beside plain copies of the driver, copies beside compute, and
 * the host's time. Both sides of a row run in turns in one process; a ratio is one of a pair, and
 * medians are printed. The fake driver is refused, since no benchmark uses it; --rehearse goes
 * through every part there with small sizes, and prints no figure.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report.h"
#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "tests/gpu/device/commands.h"
#include "tests/gpu/device/daemon.h"
#include "tests/gpu/device/passes.h"
#include "tests/harness/harness.h"

#define RUNS          BENCH_RUNS_MIN
#define COPIES_RATIO  0.95
#define OVERLAP_RATIO 0.9
#define HOST_US       50.0
#define FORWARDS      8u /* of one measurement, so that the pipeline's ends do not count */
#define PROBE_ROUNDS  256u
#define ROUNDS_LIMIT  1e9
/* Units of 64 MiB, which take 14 bytes of CPU memory for each bf16 parameter, and plain memory. */
#define UNIT_COUNT    16u
#define HOST_ELEMENTS (1ull << 20) /* where nothing is copied, a unit's size does not count */
#define UNIT_ELEMENTS (32ull << 20)
#define CPU_CAPACITY  "12G"
#define NEEDED_KIB    (16ull << 20)

#define WHAT_OVERLAP "max(copies alone, compute alone) / both, memory for three units"
#define WHAT_HOST    "host time of zinf_unshard() and zinf_reshard() for each unit"

struct bench {
	struct trial *trial;
	struct harness harness;
	struct rank rank;
	struct passes passes;
	struct bench_report report;
	uint32_t runs;
	int error; /* the first one, whose words are the rank's */
};

/* Notes an error. Return: there is none yet. */
static bool did(struct bench *bench, int r)
{
	if (r && !bench->error)
		bench->error = r;
	return !bench->error;
}

static double rate(const struct passes_time *time)
{
	return (double)time->bytes * 1e-9 / time->seconds;
}

/* A row of the run, from one of the report; in a rehearsal without its figures. */
static void add_row(struct bench *bench, const char *what, double must, const struct bench_row *row)
{
	struct trial *trial = bench->trial;
	char bound[TRIAL_MUST_BYTES];

	(void)snprintf(bound, sizeof(bound), "%.2f", must);
	if (trial->options.is_rehearsal)
		trial_row(trial, TRIAL_ANSWERED, what, bound, "rehearsed");
	else
		trial_row(trial, row->ratio >= must ? TRIAL_PASSED : TRIAL_FAILED, what, bound,
		          "%.3f [%.3f %.3f] (%.3f of %.3f %s, %u pairs)", row->ratio,
		          row->ratio_low, row->ratio_high, row->value, row->peer, row->unit,
		          row->runs);
}

static void add_error(struct bench *bench, const char *what, const char *must)
{
	trial_row(bench->trial, TRIAL_FAILED, what, must, "%d: %s", bench->error,
	          bench->rank.text.chars);
}

/* ---- opening ---- */

/* KiB of CPU memory that are free. */
static uint64_t available_kib(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file) &&
	       sscanf(line, "MemAvailable: %llu", &kib) != 1)
		continue;
	if (file)
		(void)fclose(file); /* It was read. */
	return kib;
}

static struct rank_settings settings_of(const struct bench *bench, const char *job, bool is_small)
{
	struct rank_settings settings =
		rank_settings_of(bench->trial, bench->harness.socket_path, job);

	settings.is_bf16 = true;
	settings.timeout_ms = 120000;
	if (!bench->trial->options.is_rehearsal) {
		settings.unit_count = UNIT_COUNT;
		/* CPU memory of the first job is charged until this process ends. */
		settings.elements = is_small ? UNIT_ELEMENTS : HOST_ELEMENTS;
	}
	if (is_small)
		settings.param_budget_bytes = rank_three_units_bytes(&settings);
	return settings;
}

/* A rank whose copies do not go through buffers any more. */
static void open_rank(struct bench *bench, const char *job, bool is_small)
{
	const struct rank_settings settings = settings_of(bench, job, is_small);

	if (bench->error || !did(bench, rank_open(&bench->rank, &settings)))
		return;
	rank_await_pins(&bench->rank);
	did(bench, passes_init(&bench->passes, &bench->rank));
}

static void close_rank(struct bench *bench)
{
	if (bench->passes.rank)
		passes_deinit(&bench->passes);
	rank_close(&bench->rank, true);
}

/* ---- copies ---- */

/* A pass moves all units but those of which a copy was under way, or lay there. Otherwise its rate
 * is that of something else. */
static int check_bytes(struct bench *bench, enum passes_way way, const struct passes_time *time)
{
	const struct rank_settings *settings = &bench->rank.settings;
	const uint64_t units = settings->unit_count * (way == PASSES_BOTH ? 2 : 1);
	const uint64_t least_bytes = (units - 3) * rank_unit_bytes(settings);
	const uint64_t most_bytes = (units + 3) * rank_unit_bytes(settings);

	if (time->bytes >= least_bytes && time->bytes <= most_bytes)
		return 0;
	return zi_text_error(&bench->rank.text, -EBADMSG, "a pass over %llu units of %s moved %s",
	                     (unsigned long long)units,
	                     zi_format_bytes(rank_unit_bytes(settings)).chars,
	                     zi_format_bytes(time->bytes).chars);
}

static void bench_way(struct bench *bench, enum passes_way way, const char *what)
{
	double own[BENCH_RUNS_MAX], plain[BENCH_RUNS_MAX];
	struct passes_time time = { 0 };
	const struct bench_row *row;

	/* The first one of each warms up; libzinf learns the order of units. */
	did(bench, bench->error ? 0 : passes_zinf(&bench->passes, way, &time));
	did(bench, bench->error ? 0 : passes_plain(&bench->passes, way, &time));
	for (uint32_t run = 0; run < bench->runs && !bench->error; run++) {
		if (did(bench, passes_zinf(&bench->passes, way, &time)) &&
		    did(bench, check_bytes(bench, way, &time)))
			own[run] = rate(&time);
		if (!bench->error && did(bench, passes_plain(&bench->passes, way, &time)))
			plain[run] = rate(&time);
	}
	if (bench->error) {
		add_error(bench, what, "0.95");
		return;
	}
	row = bench_report_add_turns(&bench->report,
	                             &(struct bench_row){ .name = what,
	                                                  .unit = "GB/s",
	                                                  .peer_name = "plain copies",
	                                                  .target = COPIES_RATIO,
	                                                  .runs = bench->runs },
	                             BENCH_RATE, own, plain);
	add_row(bench, what, COPIES_RATIO, row);
}

/* ---- beside compute ---- */

static double forward_s(struct bench *bench, int parts)
{
	struct passes_time time = { .seconds = 1 };

	did(bench, bench->error ? 0 : passes_forward(&bench->passes, parts, FORWARDS, &time));
	return time.seconds;
}

/* So many rounds that the kernels take as long as the copies. */
static void balance(struct bench *bench)
{
	double copies_s, compute_s;

	bench->passes.rounds = PROBE_ROUNDS;
	(void)forward_s(bench, PASSES_COPIES | PASSES_COMPUTE); /* It warms up. */
	copies_s = forward_s(bench, PASSES_COPIES);
	compute_s = forward_s(bench, PASSES_COMPUTE);
	if (bench->trial->is_fake)
		bench->passes.rounds = 1;
	else
		bench->passes.rounds =
			(uint32_t)ZI_MIN(PROBE_ROUNDS * copies_s / compute_s + 1, ROUNDS_LIMIT);
}

static void bench_overlap(struct bench *bench)
{
	double longest[BENCH_RUNS_MAX], both[BENCH_RUNS_MAX];
	const struct bench_row *row;

	if (!bench->rank.kernels.mix) {
		trial_row(bench->trial, TRIAL_NOT_RUN, WHAT_OVERLAP, "0.9", KERNELS_MISSING);
		return;
	}
	balance(bench);
	for (uint32_t run = 0; run < bench->runs && !bench->error; run++) {
		const double copies_s = forward_s(bench, PASSES_COPIES);
		const double compute_s = forward_s(bench, PASSES_COMPUTE);

		longest[run] = ZI_MAX(copies_s, compute_s) * 1e3;
		both[run] = forward_s(bench, PASSES_COPIES | PASSES_COMPUTE) * 1e3;
	}
	if (bench->error) {
		add_error(bench, WHAT_OVERLAP, "0.9");
		return;
	}
	row = bench_report_add_turns(&bench->report,
	                             &(struct bench_row){ .name = WHAT_OVERLAP,
	                                                  .unit = "ms",
	                                                  .peer_name = "the longer one alone",
	                                                  .target = OVERLAP_RATIO,
	                                                  .runs = bench->runs },
	                             BENCH_TIME, both, longest);
	add_row(bench, WHAT_OVERLAP, OVERLAP_RATIO, row);
}

/* ---- the host ---- */

/* The median over the units of forwards with copies. */
static void bench_host(struct bench *bench, bool is_small)
{
	struct trial *trial = bench->trial;
	char what[TRIAL_WHAT_BYTES];
	double median_us;

	(void)snprintf(what, sizeof(what), WHAT_HOST ", %s", is_small ? "with a copy" : "without");
	(void)forward_s(bench, PASSES_COPIES); /* Without room for all, each unit is copied. */
	bench->passes.call_count = 0;
	for (uint32_t run = 0; run < bench->runs; run++)
		(void)forward_s(bench, PASSES_COPIES);
	if (bench->error) {
		add_error(bench, what, "50 us");
		return;
	}
	median_us = bench_median(bench->passes.call_s, bench->passes.call_count) * 1e6;
	bench_report_add(&bench->report, &(struct bench_row){ .name = is_small ? "host, with a copy"
	                                                                       : "host, without",
	                                                      .value = median_us,
	                                                      .unit = "us",
	                                                      .runs = bench->runs });
	if (trial->options.is_rehearsal)
		trial_row(trial, TRIAL_ANSWERED, what, "50 us", "rehearsed");
	else
		trial_row(trial, median_us <= HOST_US ? TRIAL_PASSED : TRIAL_FAILED, what, "50 us",
		          "%.1f us, median of %u units", median_us, bench->passes.call_count);
}

/* ---- the command ---- */

/* What belongs to the table of docs/GPU.md and is not measured here. */
static void add_missing(struct trial *trial)
{
	trial_row(trial, TRIAL_NOT_RUN,
	          "a model of four times the GPU memory over FSDP2 and DeepSpeed", "1.5, 1.5, 2",
	          "PyTorch on the GPU is not built yet");
	trial_row(trial, TRIAL_NOT_RUN, "optimizer on the GPU, NCCL, PyTorch on the GPU", "",
	          "not built yet");
}

static void bench_over_daemon(struct bench *bench)
{
	static const char *const ways[_PASSES_WAY_COUNT] = {
		"copies up over plain copies of the driver",
		"copies down over plain copies of the driver",
		"copies both ways at once over plain copies of the driver",
	};

	open_rank(bench, "three", true);
	for (int way = 0; way < _PASSES_WAY_COUNT; way++)
		bench_way(bench, (enum passes_way)way, ways[way]);
	bench_overlap(bench);
	bench_host(bench, true);
	close_rank(bench);
	open_rank(bench, "all", false);
	bench_host(bench, false);
	close_rank(bench);
}

void bench_run(struct trial *trial)
{
	const char *output = trial->options.output ? trial->options.output : getenv("TMPDIR");
	const bool is_small = trial->options.is_rehearsal;
	struct bench bench = { .trial = trial, .runs = is_small ? 1 : RUNS };
	int r;

	if (!is_small && available_kib() < NEEDED_KIB) {
		trial_row(trial, TRIAL_NOT_RUN, "all of the bench", "",
		          "%s of CPU memory are free, "
		          "and it needs %s",
		          zi_format_bytes(available_kib() << 10).chars,
		          zi_format_bytes(NEEDED_KIB << 10).chars);
		return;
	}
	r = daemon_start(trial, is_small ? "256M" : CPU_CAPACITY, is_small ? "64M" : "1G",
	                 &bench.harness);
	if (r) {
		trial_row(trial, TRIAL_FAILED, "a private zinfd", "starts", "%s", strerror(-r));
		return;
	}
	bench_report_init(&bench.report, "gpu");
	bench_over_daemon(&bench);
	if (harness_stop(&bench.harness))
		trial_row(trial, TRIAL_FAILED, "a private zinfd", "ends with 0", "see above");
	if (!is_small && output && bench_report_write(&bench.report, output))
		trial_row(trial, TRIAL_FAILED, "gpu.json", "", "writing to %s failed", output);
	add_missing(trial);
}
