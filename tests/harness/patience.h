/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time limits of tests follow the machine: a second of an idle one is five beside eight busy
 * programs on two CPUs, and more under a sanitizer.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Sanitizers make programs slower by about this. */
#ifdef ZI_SANITIZED
#define PATIENCE_SANITIZED 3u
#else
#define PATIENCE_SANITIZED 1u
#endif

/* How many times longer to wait, measured once in a process: programs that want a CPU, of the last
 * minute or of this moment, for each CPU. $ZINF_TEST_PATIENCE is another answer. */
static inline uint64_t patience(void)
{
	static uint64_t factor;
	const char *wanted = getenv("ZINF_TEST_PATIENCE");
	double load = 0;
	unsigned running = 0;
	FILE *file;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (factor)
		return factor;
	if (wanted && atoi(wanted) > 0)
		return factor = (uint64_t)atoi(wanted);
	file = fopen("/proc/loadavg", "re");
	if (file && fscanf(file, "%lf %*f %*f %u/", &load, &running) == 2 && running > load)
		load = running;
	if (file)
		(void)fclose(file);
	return factor = PATIENCE_SANITIZED * (1 + (uint64_t)(load / (double)(cpus > 0 ? cpus : 1)));
}

static inline uint64_t patient_ns(uint64_t limit_ns)
{
	return limit_ns * patience();
}
