/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `wire`: the round trip of an empty request through a real zinfd.
 *
 *   spinning   one client on two CPUs; against the bound 0.5 us, and against a bare ping-pong of a
 *              shared word between two processes. A virtual machine's two CPUs may lie near or far:
 *              that alone moves the bare word between 0.09 and 0.48 us here, for minutes on end
 *   sleeping   spin budget 0 on both sides; against the better of a bare futex and a bare eventfd
 *              ping-pong, everything pinned to the same two CPUs; within 10 %: ratio 0.91
 *
 * Own figure and peers alternate, one ratio per round; each figure is the median of single round
 * trips of that round.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int main(void)
{
	struct bench_report report;

	bench_report_init(&report, "wire");
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		fprintf(stderr, "bench: skipped: the suite wire needs two CPUs\n");
		return 0;
	}
	if (bench_spinning(&report) || bench_sleeping(&report))
		return 1;
	return bench_report_write(&report, "build/bench") ? 1 : 0;
}
