/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `nvme`, part `deepspeed`: the step with its state on NVMe over DeepSpeed's own, by the
 * package where it is installed (deepspeed_step.py says what of it runs): its default settings, and
 * its best, which are the pipelined swapper with memory in huge pages. Peer and zinf take turns.
 * The interpreter is that of python.h.
 *
 * Beside each, in the same rounds, the time that fio takes for the step's bytes: no step that moves
 * them can be faster, so peer over fio bounds what the ratio can be on this disk.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/fio.h"
#include "bench/nvme_suite.h"
#include "bench/peer.h"
#include "bench/python.h"
#include "bench/subject.h"
#include "common/base/cleanup.h"

#define PARAMS_MI  128u
#define UNIT_COUNT (PARAMS_MI / (SUBJECT_UNIT_ELEMENTS >> 20))

static const struct setting {
	const char *name;
	const char *row_name, *peer_name;
	const char *bound_name; /* of the row of fio's time */
	bool has_huge_pages;
	double target;
} settings[] = {
	{ "best", "step on NVMe, 128 Mi, over DeepSpeed's best", "pipelined, huge pages",
	  "fio with zinf's bytes over DeepSpeed's best", true, 1.5 },
	{ "default", "step on NVMe, 128 Mi, over DeepSpeed's default", "as it comes",
	  "fio with zinf's bytes over DeepSpeed's default", false, 2.5 },
};

static int start_peer(struct bench_peer *peer, const struct setting *setting, const char *directory)
{
	const char *python = bench_python(); /* by argv[0] it finds its packages */
	char params[32];

	(void)snprintf(params, sizeof params, "%" PRIu64, (uint64_t)PARAMS_MI << 20);
	return bench_peer_start(
		peer, (const char *const[]){ "env",
	                                     setting->has_huge_pages
	                                             ? "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
	                                             : "--",
	                                     python, "bench/deepspeed_step.py", directory, params,
	                                     setting->name, NULL });
}

static double peer_step_seconds(struct bench_peer *peer)
{
	json_t *answer = bench_peer_ask(peer, "step");
	double seconds = answer ? json_number_value(json_object_get(answer, "seconds")) : -1;

	json_decref(answer);
	return seconds;
}

struct figures {
	double own[NVME_ROUNDS], peer[NVME_ROUNDS];
};

static void report_figures(struct bench_report *report, const struct figures *figures,
                           const char *name, const char *peer_name, double target)
{
	(void)bench_report_add_turns(report,
	                             &(struct bench_row){ .name = name,
	                                                  .unit = "s",
	                                                  .peer_name = peer_name,
	                                                  .target = target,
	                                                  .runs = NVME_ROUNDS },
	                             BENCH_TIME, figures->own, figures->peer);
}

/* fio's time for what the last step moved; 0 without fio. */
static double bound_seconds(struct fio_job *fio, const struct zinf_step_stats *stats)
{
	struct fio_result result;

	if (!fio->span_bytes)
		return 0;
	fio->read_bytes = stats->read_bytes;
	fio->write_bytes = stats->write_bytes;
	return fio_run_best(fio, &result) ? -1 : result.seconds;
}

static int measure(struct bench_report *report, const struct subject *subject,
                   struct bench_peer *peer, const struct setting *setting, struct fio_job *fio)
{
	struct figures figures, bounds;
	struct zinf_step_stats stats = { 0 };

	for (unsigned i = 0; i < NVME_ROUNDS; i++) {
		if (i % 2) /* Turns are reversed in every second round. */
			figures.peer[i] = peer_step_seconds(peer);
		figures.own[i] = subject_step_seconds(subject, &stats);
		if (i % 2 == 0)
			figures.peer[i] = peer_step_seconds(peer);
		bounds.own[i] = bound_seconds(fio, &stats);
		if (figures.own[i] < 0 || figures.peer[i] < 0 || bounds.own[i] < 0) {
			fprintf(stderr, "bench: a step failed\n");
			return -1;
		}
		bounds.peer[i] = figures.peer[i];
		printf("round %u: step %.3f s, DeepSpeed %.3f s, fio with the step's bytes %.3f s, "
		       "ratio %.2f\n",
		       i + 1, figures.own[i], figures.peer[i], bounds.own[i],
		       figures.peer[i] / figures.own[i]);
	}
	report_figures(report, &figures, setting->row_name, setting->peer_name, setting->target);
	if (fio->span_bytes)
		report_figures(report, &bounds, setting->bound_name, setting->peer_name, 0);
	return 0;
}

static void remove_directory(const char *directory)
{
	char command[128];

	(void)snprintf(command, sizeof command, "rm -rf -- '%s'", directory);
	if (system(command))
		fprintf(stderr, "bench: %s is left behind\n", directory);
}

static int measure_setting(struct bench_report *report, const struct subject *subject,
                           const struct setting *setting, struct fio_job *fio)
{
	char directory[] = "/var/tmp/zinf-bench-XXXXXX";
	struct bench_peer peer = { 0 };
	char name[64];
	int r = -1;

	if (!mkdtemp(directory)) {
		fprintf(stderr, "bench: a directory in /var/tmp: %s\n", strerror(errno));
		return -1;
	}
	(void)snprintf(name, sizeof name, "DeepSpeed, %s", setting->peer_name);
	if (!start_peer(&peer, setting, directory))
		r = bench_peer_is_ready(&peer, name) ? measure(report, subject, &peer, setting, fio)
		                                     : 0;
	bench_peer_stop(&peer);
	remove_directory(directory);
	return r;
}

int nvme_deepspeed_rows(struct bench_report *report)
{
	uint64_t elements = (uint64_t)PARAMS_MI << 20;
	struct zinf_step_stats stats = { 0 };
	char size[32], capacity[32];
	struct harness_options options = { .nvme_size = size, .cpu_capacity = capacity };
	struct fio_job fio = { 0 };
	struct subject subject;
	struct harness harness;
	char path[320];
	int r = 0;

	(void)snprintf(size, sizeof size, "%" PRIu64,
	               2 * elements * SUBJECT_WRITE_BYTES + (64u << 20));
	(void)snprintf(capacity, sizeof capacity, "%" PRIu64, elements * 4 + (256u << 20));
	if (harness_start(&harness, &options))
		return -1;
	(void)snprintf(path, sizeof path, "%s/store", harness.directory);
	if (fio_is_there()) {
		fio.path = path;
		fio.span_bytes = elements * SUBJECT_WRITE_BYTES;
		r = fio_take_span(&fio);
	} else {
		printf("skipped: the bound beside DeepSpeed needs fio (tools/deps bench)\n");
	}
	if (r || subject_open(&subject, &harness, "nvme", ZINF_OFFLOAD_NVME, UNIT_COUNT)) {
		harness_remove(&harness);
		return -1;
	}
	/* The first steps of a job read nothing and touch memory anew. */
	for (int i = 0; i < 2 && !r; i++)
		r = subject_step_seconds(&subject, &stats) < 0 ? -1 : 0;
	for (size_t i = 0; i < ZI_COUNT_OF(settings) && !r; i++)
		r = measure_setting(report, &subject, &settings[i], &fio);
	subject_close(&subject);
	return harness_stop(&harness) || r ? -1 : 0;
}
