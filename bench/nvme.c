/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `nvme`: an optimizer step with its state on NVMe through a real zinfd, over what the disk
 * and the cores allow: max(fio's time for the same bytes, the same step with its state in memory).
 *
 * One rank, bf16, 10 B read and 12 B written per parameter. fio works on the same file: once the
 * daemon has made its store, the bench lengthens the file by a part of the same span that the
 * daemon does not know of. Own step, fio and in-memory step alternate; a ratio per round. A step is
 * counted from zinf_step_begin() to its commit. BENCH_PARAMS_MI=n sets the number of parameters
 * (Mi).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/fio.h"
#include "bench/pingpong.h"
#include "bench/report.h"
#include "common/base/checked.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/harness/harness.h"
#include "zinf/zinf.h"

#define ROUNDS              9
#define UNIT_ROWS           2048u
#define UNIT_COLUMNS        2048u /* 4 Mi elements: a matrix of a real model */
#define READ_ELEMENT_BYTES  10u
#define WRITE_ELEMENT_BYTES 12u

struct subject {
	struct zinf *zinf;
	uint32_t unit_count;
};

static int fail(const struct zinf *zinf, const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what,
	        zinf ? zinf_error_text(zinf) : zinf_attach_error());
	return -1;
}

static int open_subject(struct subject *subject, const struct harness *harness, const char *job,
                        enum zinf_offload offload, uint32_t unit_count)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	uint64_t shape[2] = { UNIT_ROWS, UNIT_COLUMNS };
	struct zinf *zinf;

	options.socket_path = harness->socket_path;
	options.job = job;
	options.rank = 0;
	options.world_size = 1;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.offload_optimizer = offload;
	if (zinf_attach(&options, &zinf))
		return fail(NULL, "attach");
	*subject = (struct subject){ .zinf = zinf, .unit_count = unit_count };
	for (uint32_t i = 0; i < unit_count; i++) {
		char name[32];
		uint32_t unit, param;

		(void)snprintf(name, sizeof name, "unit.%u", i);
		if (zinf_unit_add(zinf, name, &unit) ||
		    zinf_param_add(zinf, name, 2, shape, &param))
			return fail(zinf, "layout");
	}
	if (zinf_materialize(zinf) || zinf_commit(zinf, NULL, 0))
		return fail(zinf, "materialize");
	for (uint32_t i = 0; i < unit_count; i++)
		memset(zinf_grad_data(zinf, i), 0x3c, (size_t)UNIT_ROWS * UNIT_COLUMNS * 2);
	return 0;
}

/* Seconds from step_begin to the commit; the gradients are there already. */
static double step_seconds(const struct subject *subject, struct zinf_step_stats *stats)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	uint64_t start_ns = zi_clock_now_ns();
	zinf_ticket ticket;

	stats->bytes = sizeof *stats;
	if (zinf_step_begin(subject->zinf, &options))
		return fail(subject->zinf, "step_begin");
	for (uint32_t i = 0; i < subject->unit_count; i++)
		if (zinf_grad_acquire(subject->zinf, i) || zinf_reduce(subject->zinf, i))
			return fail(subject->zinf, "reduce");
	if (zinf_step(subject->zinf, NULL, 0, &ticket) || zinf_wait(subject->zinf, ticket, stats))
		return fail(subject->zinf, "step");
	return (double)(zi_clock_now_ns() - start_ns) / 1e9;
}

/* Lengthens the store's file by the span that fio works on, written once like the store itself. */
static int lengthen(struct fio_job *fio)
{
	enum { BLOCK_BYTES = 16 << 20 };
	struct stat status;
	void *block = NULL;
	int fd = open(fio->path, O_WRONLY | O_DIRECT | O_CLOEXEC);
	int r = fd < 0 || fstat(fd, &status) ? -errno : 0;

	if (!r && posix_memalign(&block, 4096, BLOCK_BYTES))
		r = -ENOMEM;
	if (!r) {
		memset(block, 0x5a, BLOCK_BYTES);
		fio->offset_bytes = zi_align_up((uint64_t)status.st_size, BLOCK_BYTES);
	}
	for (uint64_t done = 0; !r && done < fio->span_bytes; done += BLOCK_BYTES)
		r = zi_pwrite_all(fd, block, BLOCK_BYTES, fio->offset_bytes + done);
	free(block);
	(void)zi_close(fd);
	if (r)
		fprintf(stderr, "bench: lengthening %s failed: %s\n", fio->path, strerror(-r));
	return r;
}

struct figures {
	double own[ROUNDS], disk[ROUNDS], memory[ROUNDS], ratios[ROUNDS];
};

static int measure(struct figures *figures, const struct subject *nvme,
                   const struct subject *memory, const struct fio_job *fio)
{
	struct zinf_step_stats stats = { 0 };

	/* The first steps of a job read nothing (moments are zero) and touch memory anew. */
	for (int i = 0; i < 2; i++)
		if (step_seconds(nvme, &stats) < 0 || step_seconds(memory, &stats) < 0)
			return -1;
	for (int i = 0; i < ROUNDS; i++) {
		double bound;

		figures->own[i] = step_seconds(nvme, &stats);
		if (figures->own[i] < 0)
			return -1;
		if (stats.read_bytes != fio->read_bytes || stats.write_bytes != fio->write_bytes) {
			fprintf(stderr,
			        "bench: a step moved %" PRIu64 " + %" PRIu64 " bytes, not %" PRIu64
			        " + %" PRIu64 "\n",
			        (uint64_t)stats.read_bytes, (uint64_t)stats.write_bytes,
			        fio->read_bytes, fio->write_bytes);
			return -1;
		}
		figures->disk[i] = fio_best_seconds(fio);
		figures->memory[i] = step_seconds(memory, &stats);
		if (figures->disk[i] < 0 || figures->memory[i] < 0)
			return -1;
		bound = figures->disk[i] > figures->memory[i] ? figures->disk[i]
		                                              : figures->memory[i];
		figures->ratios[i] = bound / figures->own[i];
		printf("round %d: step %.3f s, fio %.3f s, in memory %.3f s, ratio %.2f\n", i + 1,
		       figures->own[i], figures->disk[i], figures->memory[i], figures->ratios[i]);
	}
	return 0;
}

static void report(struct figures *figures, const char *name)
{
	struct bench_report report;
	struct bench_summary ratio, own, disk, memory;

	bench_summarize(&ratio, figures->ratios, ROUNDS);
	bench_summarize(&own, figures->own, ROUNDS);
	bench_summarize(&disk, figures->disk, ROUNDS);
	bench_summarize(&memory, figures->memory, ROUNDS);
	bench_report_init(&report, "nvme");
	bench_report_add(&report,
	                 &(struct bench_row){ .name = name,
	                                      .value = own.median,
	                                      .unit = "s",
	                                      .peer = disk.median > memory.median ? disk.median
	                                                                          : memory.median,
	                                      .peer_name = "max(fio, step in memory)",
	                                      .ratio = ratio.median,
	                                      .ratio_low = ratio.low,
	                                      .ratio_high = ratio.high,
	                                      .target = 0.80,
	                                      .runs = ROUNDS });
	bench_report_add(&report, &(struct bench_row){ .name = "same step, state in memory",
	                                               .value = memory.median,
	                                               .unit = "s",
	                                               .runs = ROUNDS });
	(void)bench_report_write(&report, "build/bench"); /* it says so itself */
}

int main(void)
{
	const char *wish = getenv("BENCH_PARAMS_MI");
	uint32_t unit_count = (uint32_t)(wish ? atoi(wish) : 64) / 4;
	uint64_t elements = (uint64_t)unit_count * UNIT_ROWS * UNIT_COLUMNS;
	uint64_t own_bytes = 2 * elements * WRITE_ELEMENT_BYTES;
	struct fio_job fio = { .offset_bytes = own_bytes + (64u << 20),
		               .span_bytes = elements * WRITE_ELEMENT_BYTES,
		               .read_bytes = elements * READ_ELEMENT_BYTES,
		               .write_bytes = elements * WRITE_ELEMENT_BYTES };
	char size[32], capacity[32], path[320], name[64];
	struct harness_options options = { .nvme_size = size, .cpu_capacity = capacity };
	struct subject nvme, memory;
	static struct figures figures;
	struct harness harness;

	if (!unit_count || !fio_is_there()) {
		fprintf(stderr, "bench: skipped: the suite nvme needs fio (tools/deps bench)\n");
		return 0;
	}
	(void)snprintf(name, sizeof name, "step on NVMe, %u Mi parameters", unit_count * 4);
	(void)snprintf(size, sizeof size, "%" PRIu64, 2 * fio.span_bytes + (64u << 20));
	/* Two jobs: parameters and gradients of both, the state of one, staging. */
	(void)snprintf(capacity, sizeof capacity, "%" PRIu64, elements * 18 + (256u << 20));
	if (harness_start(&harness, &options))
		return 1;
	(void)snprintf(path, sizeof path, "%s/store", harness.directory);
	fio.path = path;
	if (lengthen(&fio) ||
	    open_subject(&nvme, &harness, "nvme", ZINF_OFFLOAD_NVME, unit_count) ||
	    open_subject(&memory, &harness, "memory", ZINF_OFFLOAD_CPU, unit_count) ||
	    measure(&figures, &nvme, &memory, &fio)) {
		harness_remove(&harness);
		return 1;
	}
	zinf_detach(nvme.zinf);
	zinf_detach(memory.zinf);
	report(&figures, name);
	return harness_stop(&harness);
}
