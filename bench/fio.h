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
	uint32_t depth;
	bool is_mixed; /* both at once; else all reads, then all writes */
};

bool fio_is_there(void);
/* Seconds that fio's I/O took; negative after saying why. */
double fio_seconds(const struct fio_job *job);
/* The best of read-then-write and mixed at depths 16 and 32. */
double fio_best_seconds(const struct fio_job *job);
