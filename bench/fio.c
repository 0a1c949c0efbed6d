/* SPDX-License-Identifier: Apache-2.0 */
/* fio as the peer of disk figures (fio.h). */
#include "bench/fio.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/checked.h"
#include "common/base/fd.h"

#define BLOCK_DEFAULT (1u << 20)
/* fio 3.33 has no option for transparent huge pages; glibc can ask for them in malloc's stead. */
#define HUGE_PAGES "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "

bool fio_is_there(void)
{
	return system("command -v fio >/dev/null 2>&1") == 0;
}

int fio_take_span(struct fio_job *job)
{
	enum { BLOCK_BYTES = 16 << 20 };
	struct stat status;
	void *block = NULL;
	int fd = open(job->path, O_WRONLY | O_DIRECT | O_CLOEXEC);
	int r = fd < 0 || fstat(fd, &status) ? -errno : 0;

	if (!r && posix_memalign(&block, 4096, BLOCK_BYTES))
		r = -ENOMEM;
	if (!r) {
		memset(block, 0x5a, BLOCK_BYTES);
		job->offset_bytes = zi_align_up((uint64_t)status.st_size, BLOCK_BYTES);
	}
	for (uint64_t done = 0; !r && done < job->span_bytes; done += BLOCK_BYTES)
		r = zi_pwrite_all(fd, block, BLOCK_BYTES, job->offset_bytes + done);
	free(block);
	(void)zi_close(fd);
	if (r)
		fprintf(stderr, "bench: lengthening %s failed: %s\n", job->path, strerror(-r));
	return r;
}

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* Adds what one fio process reports to @result. */
static int run(const struct fio_job *job, const char *mode, uint64_t bytes, double read_share,
               struct fio_result *result)
{
	char command[1024];
	json_t *root, *fio;
	double read_ms, write_ms;
	FILE *pipe;

	(void)snprintf(
		command, sizeof command,
		HUGE_PAGES
		"fio --name=peer --filename='%s' --offset=%" PRIu64 " --size=%" PRIu64
		" --io_size=%" PRIu64 " --rw=%s --rwmixread=%.0f --bs=%" PRIu32
		" --iodepth=%u --ioengine=io_uring --direct=1 --registerfiles=1 --fixedbufs=1 "
		"--mem=malloc --scramble_buffers=0 --allow_file_create=0 --output-format=json "
		"2>/dev/null",
		job->path, job->offset_bytes, job->span_bytes, bytes, mode, read_share * 100.0,
		job->block_bytes ? job->block_bytes : BLOCK_DEFAULT, job->depth);
	pipe = popen(command, "re");
	if (!pipe)
		return -1;
	root = json_loadf(pipe, JSON_DISABLE_EOF_CHECK, NULL);
	if (pclose(pipe) || !root) {
		fprintf(stderr, "bench: fio failed: %s\n", command);
		json_decref(root);
		return -1;
	}
	fio = json_array_get(json_object_get(root, "jobs"), 0);
	read_ms = number(json_object_get(fio, "read"), "runtime");
	write_ms = number(json_object_get(fio, "write"), "runtime");
	/* Percent of the job's run time, which holds no more than its I/O. */
	result->cpu_s += (number(fio, "usr_cpu") + number(fio, "sys_cpu")) / 100.0 *
	                 number(fio, "job_runtime") / 1e3;
	json_decref(root);
	result->seconds += (read_ms > write_ms ? read_ms : write_ms) / 1e3;
	return 0;
}

int fio_run(const struct fio_job *job, struct fio_result *ret_result)
{
	uint64_t bytes = job->read_bytes + job->write_bytes;
	int r = 0;

	*ret_result = (struct fio_result){ 0 };
	if (job->is_mixed)
		return run(job, "rw", bytes, (double)job->read_bytes / (double)bytes, ret_result);
	if (job->read_bytes)
		r = run(job, "read", job->read_bytes, 1, ret_result);
	if (!r && job->write_bytes)
		r = run(job, "write", job->write_bytes, 0, ret_result);
	return r;
}

int fio_run_best(const struct fio_job *job, struct fio_result *ret_result)
{
	static const uint32_t depths[] = { 16, 32 };

	for (int i = 0; i < 4; i++) {
		struct fio_job variant = *job;
		struct fio_result result;

		variant.depth = depths[i % 2];
		variant.is_mixed = i / 2;
		if (fio_run(&variant, &result))
			return -1;
		if (i == 0 || result.seconds < ret_result->seconds)
			*ret_result = result;
	}
	return 0;
}
