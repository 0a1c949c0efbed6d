/* SPDX-License-Identifier: Apache-2.0 */
/* fio as the peer of disk figures (fio.h). */
#include "bench/fio.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK "1M"
/* fio 3.33 has no option for transparent huge pages; glibc can ask for them in malloc's stead. */
#define HUGE_PAGES "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "

bool fio_is_there(void)
{
	return system("command -v fio >/dev/null 2>&1") == 0;
}

/* Runs one fio process and returns the milliseconds of its I/O, as fio counts them. */
static double run(const struct fio_job *job, const char *mode, uint64_t bytes, double read_share)
{
	char command[1024];
	json_t *root, *result;
	double read_ms, write_ms;
	FILE *pipe;

	(void)snprintf(
		command, sizeof command,
		HUGE_PAGES
		"fio --name=peer --filename='%s' --offset=%" PRIu64 " --size=%" PRIu64
		" --io_size=%" PRIu64 " --rw=%s --rwmixread=%.0f --bs=" BLOCK
		" --iodepth=%u --ioengine=io_uring --direct=1 --registerfiles=1 --fixedbufs=1 "
		"--mem=malloc --allow_file_create=0 --output-format=json 2>/dev/null",
		job->path, job->offset_bytes, job->span_bytes, bytes, mode, read_share * 100.0,
		job->depth);
	pipe = popen(command, "re");
	if (!pipe)
		return -1;
	root = json_loadf(pipe, JSON_DISABLE_EOF_CHECK, NULL);
	if (pclose(pipe) || !root) {
		fprintf(stderr, "bench: fio failed: %s\n", command);
		json_decref(root);
		return -1;
	}
	result = json_array_get(json_object_get(root, "jobs"), 0);
	read_ms = json_number_value(json_object_get(json_object_get(result, "read"), "runtime"));
	write_ms = json_number_value(json_object_get(json_object_get(result, "write"), "runtime"));
	json_decref(root);
	return read_ms > write_ms ? read_ms : write_ms;
}

double fio_seconds(const struct fio_job *job)
{
	uint64_t bytes = job->read_bytes + job->write_bytes;
	double read_ms = 0, write_ms = 0;

	if (job->is_mixed) {
		read_ms = run(job, "rw", bytes, (double)job->read_bytes / (double)bytes);
	} else {
		if (job->read_bytes)
			read_ms = run(job, "read", job->read_bytes, 1);
		if (job->write_bytes)
			write_ms = run(job, "write", job->write_bytes, 0);
	}
	return read_ms < 0 || write_ms < 0 ? -1 : (read_ms + write_ms) / 1e3;
}

double fio_best_seconds(const struct fio_job *job)
{
	static const uint32_t depths[] = { 16, 32 };
	double best = -1;

	for (int i = 0; i < 4; i++) {
		struct fio_job variant = *job;
		double seconds;

		variant.depth = depths[i % 2];
		variant.is_mixed = i / 2;
		seconds = fio_seconds(&variant);
		if (seconds < 0)
			return -1;
		if (best < 0 || seconds < best)
			best = seconds;
	}
	return best;
}
