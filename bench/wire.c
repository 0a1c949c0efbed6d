/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `wire`: the round trip of an empty request through a real zinfd, and a job's step beside
 * clients that flood the daemon with questions.
 *
 *   spinning   one client on two CPUs; against the bound 0.5 us, and against a bare ping-pong of a
 *              shared word between two processes. A virtual machine's two CPUs may lie near or far:
 *              that alone moves the bare word between 0.09 and 0.48 us here, for minutes on end
 *   sleeping   spin budget 0 on both sides; against the better of a bare futex and a bare eventfd
 *              ping-pong, everything pinned to the same two CPUs; within 10 %: ratio 0.91
 *
 *   flood      a step of a small job beside clients that ask without a pause, against the same step
 *              beside as many busy loops: at most 1.5 times as long, ratio 0.67
 *
 * Own figure and peers alternate, one ratio per round; each figure is the median of single round
 * trips of that round.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/flood.h"
#include "bench/pingpong.h"
#include "bench/report.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/harness/harness.h"
#include "zinf/zinf.h"

#define ROUNDS        21
#define SPIN_TRIPS    50000u
#define SLEEP_TRIPS   4000u
#define SPIN_BOUND_NS 500.0
#define CPU_CLIENT    0
#define CPU_DAEMON    1
#define FLOOD_ROUNDS  9
#define FLOOD_STEPS   200u
/* Of the job beside a flood: small units, so that a step is many requests. */
#define FLOOD_UNITS 8u
#define FLOOD_ROWS  128u

/* Pins the daemon's shard thread; its other threads sleep in this bench. */
static int pin_shard(pid_t pid)
{
	char path[64], name[32];
	struct dirent *entry;
	DIR *tasks;
	int r = -1;

	(void)snprintf(path, sizeof path, "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		(void)snprintf(path, sizeof path, "/proc/%d/task/%.16s/comm", pid, entry->d_name);
		if (!zi_read_text(path, name, sizeof name) && !strncmp(name, "shard-0", 7))
			r = pingpong_pin(atoi(entry->d_name), CPU_DAEMON);
	}
	if (tasks)
		closedir(tasks);
	return r;
}

/* Median round trip of @trips empty requests in nanoseconds; negative on failure. */
static double measure_ping(struct zinf *zinf, uint32_t trips)
{
	double *times = calloc(trips, sizeof *times);
	double median = -1;

	for (uint32_t i = 0; times && i < trips; i++) {
		uint64_t start_ns = zi_clock_now_ns();

		if (zinf_ping(zinf)) {
			fprintf(stderr, "bench: %s\n", zinf_error_text(zinf));
			free(times);
			return -1;
		}
		times[i] = (double)(zi_clock_now_ns() - start_ns);
	}
	if (times)
		median = bench_median(times, trips);
	free(times);
	return median;
}

static int attach(const struct harness *harness, struct zinf **ret_zinf)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;

	options.socket_path = harness->socket_path;
	options.job = "bench-wire";
	options.rank = 0;
	options.world_size = 1;
	if (!zinf_attach(&options, ret_zinf))
		return 0;
	fprintf(stderr, "bench: %s\n", zinf_attach_error());
	return -1;
}

/* A daemon and one attached client, both pinned. */
static int start(struct harness *harness, const char *daemon_extra, struct zinf **ret_zinf)
{
	struct harness_options options = { .daemon_extra = daemon_extra, .cpu_capacity = "64M" };

	if (harness_start(harness, &options))
		return -1;
	if (pingpong_pin(0, CPU_CLIENT) || pin_shard(harness->pid) || attach(harness, ret_zinf)) {
		harness_remove(harness);
		return -1;
	}
	return 0;
}

static int bench_spinning(struct bench_report *report)
{
	double own[ROUNDS], bare[ROUNDS], bounds[ROUNDS];
	struct harness harness;
	struct zinf *zinf = NULL;

	if (start(&harness, "spin_us = 1000\n", &zinf))
		return -1;
	for (int i = 0; i < ROUNDS; i++) {
		own[i] = measure_ping(zinf, SPIN_TRIPS);
		bare[i] = (double)pingpong_run(PINGPONG_SPIN, SPIN_TRIPS, CPU_CLIENT, CPU_DAEMON);
		if (own[i] <= 0 || bare[i] <= 0)
			return -1;
		bounds[i] = SPIN_BOUND_NS;
	}
	zinf_detach(zinf);
	(void)bench_report_add_turns(report,
	                             &(struct bench_row){ .name = "empty request, spinning",
	                                                  .unit = "ns",
	                                                  .peer_name = "bound 0.5 us",
	                                                  .target = 1.0,
	                                                  .runs = ROUNDS },
	                             BENCH_TIME, own, bounds);
	(void)bench_report_add_turns(
		report,
		&(struct bench_row){ .name = "the same over a bare shared word",
	                             .unit = "ns",
	                             .peer_name = "ping-pong of a shared word",
	                             .runs = ROUNDS },
		BENCH_TIME, own, bare);
	return harness_stop(&harness);
}

static int bench_sleeping(struct bench_report *report)
{
	double own[ROUNDS], peer[ROUNDS];
	struct harness harness;
	struct zinf *zinf = NULL;

	if (start(&harness, "spin_us = 0\n", &zinf))
		return -1;
	for (int i = 0; i < ROUNDS; i++) {
		double futex_ns, eventfd_ns;

		own[i] = measure_ping(zinf, SLEEP_TRIPS) / 1e3;
		futex_ns =
			(double)pingpong_run(PINGPONG_FUTEX, SLEEP_TRIPS, CPU_CLIENT, CPU_DAEMON);
		eventfd_ns =
			(double)pingpong_run(PINGPONG_EVENTFD, SLEEP_TRIPS, CPU_CLIENT, CPU_DAEMON);
		if (own[i] <= 0 || futex_ns <= 0 || eventfd_ns <= 0)
			return -1;
		peer[i] = (futex_ns < eventfd_ns ? futex_ns : eventfd_ns) / 1e3;
	}
	zinf_detach(zinf);
	(void)bench_report_add_turns(report,
	                             &(struct bench_row){ .name = "empty request, sleeping",
	                                                  .unit = "us",
	                                                  .peer_name = "futex or eventfd ping-pong",
	                                                  .target = 0.91,
	                                                  .runs = ROUNDS },
	                             BENCH_TIME, own, peer);
	return harness_stop(&harness);
}

/* ---- beside a flood ---- */

/* The rows above have pinned this process. */
static int unpin(void)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof all);
	return sched_setaffinity(0, sizeof all, &all);
}

/* A job of one rank; each unit has @param_count parameters of (@rows, @rows). */
static int open_job(const struct harness *harness, const char *job, uint32_t unit_count,
                    uint32_t param_count, uint64_t rows, enum zinf_offload offload,
                    struct zinf **ret_zinf)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	const uint64_t shape[2] = { rows, rows };
	uint32_t index;
	int r = 0;

	options.socket_path = harness->socket_path;
	options.job = job;
	options.rank = 0;
	options.world_size = 1;
	options.offload_optimizer = offload;
	if (zinf_attach(&options, ret_zinf)) {
		fprintf(stderr, "bench: %s\n", zinf_attach_error());
		return -1;
	}
	for (uint32_t i = 0; !r && i < unit_count; i++) {
		char name[32];

		(void)snprintf(name, sizeof name, "unit.%u", i);
		r = zinf_unit_add(*ret_zinf, name, &index);
		for (uint32_t k = 0; !r && k < param_count; k++) {
			(void)snprintf(name, sizeof name, "param.%u.%u", i, k);
			r = zinf_param_add(*ret_zinf, name, 2, shape, &index);
		}
	}
	if (r || zinf_materialize(*ret_zinf) || zinf_commit(*ret_zinf, NULL, 0)) {
		fprintf(stderr, "bench: %s\n", zinf_error_text(*ret_zinf));
		return -1;
	}
	return 0;
}

/* Milliseconds; negative after saying why. */
static double measure_step(struct zinf *zinf)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf_step_stats stats = { .bytes = sizeof stats };
	uint64_t start_ns = zi_clock_now_ns();
	zinf_ticket ticket;
	int r;

	r = zinf_step_begin(zinf, &options);
	for (uint32_t i = 0; !r && i < FLOOD_UNITS; i++) {
		r = zinf_grad_acquire(zinf, i);
		if (!r)
			r = zinf_reduce(zinf, i);
	}
	if (!r)
		r = zinf_step(zinf, NULL, 0, &ticket);
	if (!r)
		r = zinf_wait(zinf, ticket, &stats);
	if (!r)
		return (double)(zi_clock_now_ns() - start_ns) / 1e6;
	fprintf(stderr, "bench: %s\n", zinf_error_text(zinf));
	return -1;
}

/* Milliseconds of a step beside a flood, all steps counted: one that stalls is not hidden by the
 * others. Negative after saying why. */
static double measure_beside(const struct harness *harness, struct zinf *zinf, enum flood_kind kind)
{
	struct flood flood;
	double sum_ms = 0;

	if (flood_start(&flood, kind, harness->socket_path))
		return -1;
	for (uint32_t i = 0; i < FLOOD_STEPS; i++) {
		double ms = measure_step(zinf);

		if (ms < 0) {
			flood_stop(&flood);
			return -1;
		}
		sum_ms += ms;
	}
	flood_stop(&flood);
	return sum_ms / FLOOD_STEPS;
}

static int bench_flood(struct bench_report *report, const struct harness *harness,
                       struct zinf *zinf, enum flood_kind kind, const char *name)
{
	double own[FLOOD_ROUNDS], peer[FLOOD_ROUNDS];

	for (int i = 0; i < FLOOD_ROUNDS; i++) {
		own[i] = measure_beside(harness, zinf, kind);
		peer[i] = measure_beside(harness, zinf, FLOOD_BUSY);
		if (own[i] <= 0 || peer[i] <= 0)
			return -1;
	}
	(void)bench_report_add_turns(report,
	                             &(struct bench_row){ .name = name,
	                                                  .unit = "ms",
	                                                  .peer_name = "6 busy loops",
	                                                  .target = 0.67,
	                                                  .runs = FLOOD_ROUNDS },
	                             BENCH_TIME, own, peer);
	return 0;
}

static int bench_floods(struct bench_report *report)
{
	static const struct {
		enum flood_kind kind;
		const char *name;
	} kinds[] = {
		{ FLOOD_SHOW, "a step beside 6 clients: status, jobs, limits" },
		{ FLOOD_EXPORT, "a step beside 6 clients: export open" },
		{ FLOOD_LOAD, "a step beside 6 clients: load open, describe" },
		{ FLOOD_HUGE, "a step beside 6 clients: load of 32 MiB" },
	};
	const struct harness_options options = { .cpu_capacity = "1G", .nvme_size = "256M" };
	struct zinf *exported = NULL, *zinf = NULL;
	struct harness harness;
	int r = 0;

	if (harness_start(&harness, &options))
		return -1;
	if (open_job(&harness, FLOOD_JOB, 1, FLOOD_PARAMS, 1, ZINF_OFFLOAD_NVME, &exported) ||
	    open_job(&harness, "bench-step", FLOOD_UNITS, 1, FLOOD_ROWS, ZINF_OFFLOAD_NONE,
	             &zinf)) {
		harness_remove(&harness);
		return -1;
	}
	for (size_t i = 0; !r && i < sizeof kinds / sizeof *kinds; i++)
		r = bench_flood(report, &harness, zinf, kinds[i].kind, kinds[i].name);
	zinf_detach(zinf);
	zinf_detach(exported);
	return harness_stop(&harness) || r;
}

/* wire [DIRECTORY [flood]]: with the word, the rows beside floods only. */
int main(int argc, char **argv)
{
	struct bench_report report;

	bench_report_init(&report, "wire");
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		fprintf(stderr, "bench: skipped: the suite wire needs two CPUs\n");
		return 0;
	}
	if (argc < 3 && (bench_spinning(&report) || bench_sleeping(&report) || unpin()))
		return 1;
	if (bench_floods(&report))
		return 1;
	return bench_report_write(&report, argc > 1 ? argv[1] : "build/bench") ? 1 : 0;
}
