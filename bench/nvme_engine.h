/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast nvme/engine moves bytes, and at what cost: for suites that put it beside fio. One
 * thread, sequential blocks over a span, as many in flight as depth; buffers in huge pages,
 * registered: as many bytes as are in flight, as with fio.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "nvme/nvme.h"

struct bench_nvme;

struct bench_nvme_options {
	const char *path;     /* of a store: made, or grown, where need be */
	uint64_t span_bytes;  /* of it that is used, from BENCH_NVME_OFFSET_BYTES on */
	const char *backend;  /* NULL: auto */
	uint32_t block_bytes; /* 0: 1 MiB */
	uint32_t depth;       /* 0: 32; the most that bench_nvme_set_depth() may ask for */
};

/* A peer that reads and writes the same file begins here: before it lies the superblock. */
#define BENCH_NVME_OFFSET_BYTES (1ull << 20)

struct bench_nvme_result {
	double gb_per_s;     /* 1e9 bytes */
	double cpu_s_per_gb; /* user and system, of this process */
};

int bench_nvme_new(const struct bench_nvme_options *options, struct zi_text *text,
                   struct bench_nvme **ret_bench);
struct bench_nvme *bench_nvme_free(struct bench_nvme *bench);
/* From the next run on. */
void bench_nvme_set_depth(struct bench_nvme *bench, uint32_t depth);
/* Moves @bytes (whole pieces, at most the span) as requests of @piece_bytes (whole blocks, at most
 * depth of them), all submitted at once. Return: 0, -ENOMEM, or the first error of I/O. */
int bench_nvme_run_pieces(struct bench_nvme *bench, enum nvme_direction direction, uint64_t bytes,
                          uint64_t piece_bytes, struct bench_nvme_result *ret_result);
/* Moves @bytes (whole blocks), round and round the span. Return: 0, or the first error of I/O. */
int bench_nvme_run(struct bench_nvme *bench, enum nvme_direction direction, uint64_t bytes,
                   struct bench_nvme_result *ret_result);
/* "hugetlb", "collapsed" or "4 KiB": what the buffers lie in. fio: --mem=shmhuge for the first, its
 * default (or --mem=mmap with transparent huge pages) beside the others. */
const char *bench_nvme_pages(const struct bench_nvme *bench);
const char *bench_nvme_backend(const struct bench_nvme *bench);
/* Whether all buffers are registered with the kernel. */
bool bench_nvme_is_registered(const struct bench_nvme *bench);
