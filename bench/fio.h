/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fio as the peer of disk figures: one process, io_uring with registered buffers and files,
 * O_DIRECT, anonymous memory in transparent huge pages (the daemon's buffers are collapsed or
 * hugetlb).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fio_job {
	const char *path;
	uint64_t offset_bytes, span_bytes; /* part of the file */
	uint64_t read_bytes, write_bytes;  /* moved; over the span as often as it takes */
	uint32_t block_bytes;              /* 0: 1 MiB */
	uint32_t depth;
	bool is_mixed; /* both at once; else all reads, then all writes */
};

struct fio_result {
	double seconds; /* of the I/O, as fio counts them */
	double cpu_s;   /* user and system */
};

bool fio_is_there(void);
/*
 * Lengthens the file by @job->span_bytes (16 MiB multiples), written once as a store is, for fio to
 * work on beside the file's owner, who does not know of it; sets offset_bytes.
 */
int fio_take_span(struct fio_job *job);
/* Return: 0; -1 after saying why. */
int fio_run(const struct fio_job *job, struct fio_result *ret_result);
/* The fastest of read-then-write and mixed at depths 16 and 32. */
int fio_run_best(const struct fio_job *job, struct fio_result *ret_result);
