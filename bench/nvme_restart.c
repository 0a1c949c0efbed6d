/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a daemon that was killed takes to be ready again, with a job of 10^5 extents in its
 * catalog: from fork() to READY=1, every row read and verified, every extent claimed. The job is a
 * real one, committed by a step: many small units, as the number of rows counts, not their bytes.
 */
#include <stdio.h>
#include <string.h>

#include "bench/nvme_suite.h"
#include "common/base/clock.h"
#include "tests/harness/harness.h"
#include "zinf/zinf.h"

#define UNITS     50000u /* an extent of parameters and one of state each */
#define ELEMENTS  4096u
#define TARGET_MS 2000.0

static int fail(const struct zinf *zinf, const char *what)
{
	fprintf(stderr, "bench nvme restart: %s: %s\n", what,
	        zinf ? zinf_error_text(zinf) : zinf_attach_error());
	return -1;
}

static int lay_out(struct zinf *zinf)
{
	const uint64_t shape[1] = { ELEMENTS };

	for (uint32_t i = 0; i < UNITS; i++) {
		char name[32];
		uint32_t unit, param;

		(void)snprintf(name, sizeof name, "unit.%u", i);
		if (zinf_unit_add(zinf, name, &unit) ||
		    zinf_param_add(zinf, name, 1, shape, &param))
			return fail(zinf, "layout");
	}
	return zinf_materialize(zinf) || zinf_commit(zinf, NULL, 0) ? fail(zinf, "materialize") : 0;
}

static int step(struct zinf *zinf)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf_step_stats stats = { .bytes = sizeof stats };
	zinf_ticket ticket;

	if (zinf_step_begin(zinf, &options))
		return fail(zinf, "step_begin");
	for (uint32_t i = 0; i < UNITS; i++)
		if (zinf_grad_acquire(zinf, i) || zinf_reduce(zinf, i))
			return fail(zinf, "reduce");
	if (zinf_step(zinf, NULL, 0, &ticket) || zinf_wait(zinf, ticket, &stats))
		return fail(zinf, "step");
	return 0;
}

static int make_job(const struct harness *harness)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf *zinf;
	int r;

	options.socket_path = harness->socket_path;
	options.job = "large";
	options.rank = 0;
	options.world_size = 1;
	options.param_dtype = options.grad_dtype = ZINF_BF16;
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	if (zinf_attach(&options, &zinf))
		return fail(NULL, "attach");
	r = lay_out(zinf);
	if (!r)
		r = step(zinf);
	zinf_detach(zinf);
	return r;
}

/* The job is there, whole. */
static int check_job(struct harness *harness)
{
	json_t *jobs = harness_admin(harness, "jobs");
	const json_t *job = json_array_get(jobs, 0);
	bool is_whole = json_integer_value(json_object_get(job, "committed_step")) == 1 &&
	                json_is_null(json_object_get(job, "refusal"));

	if (!is_whole)
		fprintf(stderr, "bench nvme restart: the job does not stand at step 1\n");
	json_decref(jobs);
	return is_whole ? 0 : -1;
}

static int measure(struct harness *harness, double *milliseconds)
{
	for (unsigned i = 0; i < NVME_ROUNDS; i++) {
		uint64_t started_ns;

		harness_kill(harness);
		started_ns = zi_clock_now_ns();
		if (harness_restart(harness))
			return -1;
		milliseconds[i] = (double)(zi_clock_now_ns() - started_ns) / 1e6;
		if (check_job(harness))
			return -1;
	}
	return 0;
}

int nvme_restart_rows(struct bench_report *report)
{
	struct harness_options options = { .cpu_capacity = "2G",
		                           .nvme_size = "6G",
		                           .extra = "[limits]\nunits = 65536\n" };
	double milliseconds[NVME_ROUNDS];
	double bounds[NVME_ROUNDS];
	struct harness harness;
	int r;

	printf("restart: a job of %u extents, %u kills\n", 2 * UNITS, NVME_ROUNDS);
	if (harness_start(&harness, &options))
		return -1;
	r = make_job(&harness);
	if (!r)
		r = measure(&harness, milliseconds);
	harness_remove(&harness);
	if (r)
		return r;
	for (unsigned i = 0; i < NVME_ROUNDS; i++)
		bounds[i] = TARGET_MS;
	(void)bench_report_add_turns(
		report,
		&(struct bench_row){ .name = "restart after a kill, 1e5 extents",
	                             .unit = "ms",
	                             .peer_name = "bound",
	                             .target = 1.0,
	                             .runs = NVME_ROUNDS },
		BENCH_TIME, milliseconds, bounds);
	return 0;
}
