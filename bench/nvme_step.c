/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `nvme`, part `step`: an optimizer step with its state on NVMe through a real zinfd, over
 * the time that fio takes for the same bytes.
 *
 * One rank, bf16, 10 B read and 12 B written per parameter; and once more with staging that is kept
 * between steps, as by default, which reads less. fio is given the bytes that the step beside it
 * says it has moved, so that what need not be read counts as no gain. It works on the same file:
 * once the daemon has made its store, the bench lengthens the file by a part of the same span that
 * the daemon does not know of. Own step and fio alternate; a ratio per round. A step is counted
 * from zinf_step_begin() to its commit. CPU is the daemon's, so it contains Adam.
 * BENCH_PARAMS_MI=a,b,… sets the numbers of parameters (Mi).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "bench/fio.h"
#include "bench/nvme_suite.h"
#include "bench/subject.h"
#include "common/base/cleanup.h"

/* User and system time of @pid so far. */
static double process_cpu_s(pid_t pid)
{
	unsigned long long user = 0, system = 0;
	char path[64], line[1024] = "";
	const char *rest;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (!fgets(line, sizeof line, file))
		line[0] = '\0';
	(void)fclose(file);
	rest = strrchr(line, ')'); /* the name may contain anything */
	if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
	                    &user, &system) != 2)
		return 0;
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

struct figures {
	double own[NVME_ROUNDS], peer[NVME_ROUNDS];
	double own_cpu[NVME_ROUNDS], peer_cpu[NVME_ROUNDS];
};

/* What fio has to move beside this step. */
static int take_bytes(const struct zinf_step_stats *stats, uint64_t elements, bool is_kept,
                      struct fio_job *fio)
{
	uint64_t most_bytes = elements * SUBJECT_READ_BYTES;

	fio->read_bytes = stats->read_bytes;
	fio->write_bytes = stats->write_bytes;
	if (stats->write_bytes == elements * SUBJECT_WRITE_BYTES &&
	    (is_kept ? stats->read_bytes < most_bytes : stats->read_bytes == most_bytes))
		return 0;
	fprintf(stderr,
	        "bench: a step moved %" PRIu64 " + %" PRIu64 " bytes, not %s%" PRIu64 " + %" PRIu64
	        "\n",
	        (uint64_t)stats->read_bytes, (uint64_t)stats->write_bytes,
	        is_kept ? "less than " : "", most_bytes, elements * SUBJECT_WRITE_BYTES);
	return -1;
}

static int measure(struct figures *figures, const struct subject *subject, pid_t daemon,
                   struct fio_job *fio, bool is_kept)
{
	uint64_t elements = (uint64_t)subject->unit_count * SUBJECT_UNIT_ELEMENTS;
	struct zinf_step_stats stats = { 0 };

	/* The first steps of a job read nothing (moments are zero) and touch memory anew. */
	for (int i = 0; i < 2; i++)
		if (subject_step_seconds(subject, &stats) < 0)
			return -1;
	for (unsigned i = 0; i < NVME_ROUNDS; i++) {
		double cpu_s = process_cpu_s(daemon);
		struct fio_result peer;
		double gb;

		figures->own[i] = subject_step_seconds(subject, &stats);
		cpu_s = process_cpu_s(daemon) - cpu_s;
		if (figures->own[i] < 0 || take_bytes(&stats, elements, is_kept, fio) ||
		    fio_run_best(fio, &peer))
			return -1;
		gb = (double)(fio->read_bytes + fio->write_bytes) / 1e9;
		figures->own_cpu[i] = cpu_s / gb;
		figures->peer[i] = peer.seconds;
		figures->peer_cpu[i] = peer.cpu_s / gb;
		printf("round %u: %.2f GB read, %.2f written: step %.3f s (computing %.0f ms, "
		       "else reading %.0f, else writing %.0f, commit %.1f), fio %.3f s, ratio "
		       "%.2f\n",
		       i + 1, (double)fio->read_bytes / 1e9, (double)fio->write_bytes / 1e9,
		       figures->own[i], (double)stats.cpu_ns / 1e6, (double)stats.io_read_ns / 1e6,
		       (double)stats.io_write_ns / 1e6, (double)stats.commit_ns / 1e6,
		       figures->peer[i], figures->peer[i] / figures->own[i]);
	}
	return 0;
}

static void report_figures(struct bench_report *report, struct figures *figures, const char *name,
                           double target)
{
	(void)bench_report_add_turns(
		report,
		&(struct bench_row){ .name = name,
	                             .unit = "s",
	                             .peer_name = "fio, the same bytes",
	                             .target = target,
	                             .runs = NVME_ROUNDS,
	                             .cpu_s_per_gb = bench_median(figures->own_cpu, NVME_ROUNDS),
	                             .peer_cpu_s_per_gb =
	                                     bench_median(figures->peer_cpu, NVME_ROUNDS) },
		BENCH_TIME, figures->own, figures->peer);
}

static int measure_with(const struct harness *harness, struct fio_job *fio, uint32_t unit_count,
                        bool is_kept, struct figures *figures)
{
	struct subject subject;
	char path[320];
	int r;

	(void)snprintf(path, sizeof path, "%s/store", harness->directory);
	fio->path = path;
	if (fio_take_span(fio) ||
	    subject_open(&subject, harness, "nvme", ZINF_OFFLOAD_NVME, unit_count))
		return -1;
	r = measure(figures, &subject, harness->pid, fio, is_kept);
	subject_close(&subject);
	return r;
}

/* The store with room for two states, fio's span, and a tenth left to others. */
static bool has_room(uint64_t bytes)
{
	struct statvfs status;

	if (statvfs("/var/tmp", &status))
		return true; /* who cannot be asked will say so when it is written */
	return (double)bytes * 1.1 < (double)status.f_bavail * (double)status.f_frsize;
}

static int step_row(struct bench_report *report, uint32_t params_mi, bool is_kept, char *name,
                    size_t name_bytes)
{
	uint32_t unit_count = params_mi / 4;
	uint64_t elements = (uint64_t)unit_count * SUBJECT_UNIT_ELEMENTS;
	struct fio_job fio = { .span_bytes = elements * SUBJECT_WRITE_BYTES };
	uint64_t store_bytes = 2 * fio.span_bytes + (64u << 20);
	char size[32], capacity[32];
	struct harness_options options = { .nvme_size = size,
		                           .cpu_capacity = capacity,
		                           .extra = is_kept ? NULL : HARNESS_COLD };
	static struct figures figures;
	struct harness harness;

	(void)snprintf(name, name_bytes, "step on NVMe, %u Mi parameters%s", params_mi,
	               is_kept ? ", staging kept" : "");
	if (!has_room(store_bytes + fio.span_bytes)) {
		printf("skipped: %s: needs %.0f GB in /var/tmp\n", name,
		       (double)(store_bytes + fio.span_bytes) / 1e9);
		return 0;
	}
	(void)snprintf(size, sizeof size, "%" PRIu64, store_bytes);
	/* Parameters, gradients, staging. */
	(void)snprintf(capacity, sizeof capacity, "%" PRIu64, elements * 4 + (256u << 20));
	if (harness_start(&harness, &options))
		return -1;
	if (measure_with(&harness, &fio, unit_count, is_kept, &figures)) {
		harness_remove(&harness);
		return -1;
	}
	report_figures(report, &figures, name, params_mi > 256 ? 0.90 : 0.95);
	return harness_stop(&harness);
}

int nvme_step_rows(struct bench_report *report)
{
	static char names[8][2][64];
	const char *wish = getenv("BENCH_PARAMS_MI");
	char *end;
	int r = 0;

	if (!fio_is_there()) {
		printf("skipped: part step needs fio (tools/deps bench)\n");
		return 0;
	}
	if (!wish)
		wish = "64,256,1024";
	for (size_t i = 0; *wish && !r && i < ZI_COUNT_OF(names); i++) {
		unsigned long params_mi = strtoul(wish, &end, 10);

		if (end == wish || (*end && *end != ',') || params_mi < 4 || params_mi > 1u << 16) {
			fprintf(stderr, "bench: BENCH_PARAMS_MI: '%s' is no list of 4 to 65536\n",
			        wish);
			return -1;
		}
		for (int is_kept = 0; is_kept < 2 && !r; is_kept++)
			r = step_row(report, (uint32_t)params_mi, is_kept, names[i][is_kept],
			             sizeof names[i][is_kept]);
		wish = *end ? end + 1 : end;
	}
	return r;
}
