/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `nvme`, part `engine`: bytes that the engine moves per second over what fio moves, reading
 * and writing, whole and in pieces (1 GiB as tensors of 1, 4 and 16 MiB, a request each).
 *
 * Same file and span, same block, registered files and buffers, huge pages and O_DIRECT on both
 * sides. The peer of a row in pieces is fio's sequential figure: pieces ought to cost nothing. In
 * each round both sides run at every depth, alternating, and each side's best counts; a ratio per
 * round. BENCH_SPAN_MI=n makes the span smaller (Mi; a multiple of 16).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/fio.h"
#include "bench/nvme_engine.h"
#include "bench/nvme_suite.h"
#include "common/base/cleanup.h"

#define SPAN_MI_DEFAULT 1024u
#define BLOCK_BYTES     (1u << 20)

static const uint32_t depths[] = { 16, 32 };
#define DEPTHS_COUNT 2u
#define DEPTH_MAX    32u

/* A row of the table. */
struct pieces_row {
	const char *name;
	enum nvme_direction direction;
	uint64_t piece_bytes; /* 0: blocks, as many as are in flight */
	double target;
};

static const struct pieces_row rows[] = {
	{ "engine, read", NVME_READ, 0, 0.97 },
	{ "engine, write", NVME_WRITE, 0, 0.95 },
	{ "engine, read in pieces of 1 MiB", NVME_READ, 1u << 20, 0.90 },
	{ "engine, read in pieces of 4 MiB", NVME_READ, 4u << 20, 0.90 },
	{ "engine, read in pieces of 16 MiB", NVME_READ, 16u << 20, 0.90 },
	{ "engine, write in pieces of 1 MiB", NVME_WRITE, 1u << 20, 0.90 },
	{ "engine, write in pieces of 4 MiB", NVME_WRITE, 4u << 20, 0.90 },
	{ "engine, write in pieces of 16 MiB", NVME_WRITE, 16u << 20, 0.90 },
};

struct pieces {
	struct bench_nvme *bench;
	const char *path;
	uint64_t span_bytes;
};

static int run_own(const struct pieces *pieces, const struct pieces_row *row, uint32_t depth,
                   struct bench_nvme_result *ret_result)
{
	int r;

	bench_nvme_set_depth(pieces->bench, depth);
	if (row->piece_bytes)
		r = bench_nvme_run_pieces(pieces->bench, row->direction, pieces->span_bytes,
		                          row->piece_bytes, ret_result);
	else
		r = bench_nvme_run(pieces->bench, row->direction, pieces->span_bytes, ret_result);
	if (r)
		fprintf(stderr, "bench: %s: %s\n", row->name, strerror(-r));
	return r;
}

static int run_peer(const struct pieces *pieces, const struct pieces_row *row, uint32_t depth,
                    struct bench_nvme_result *ret_result)
{
	bool is_read = row->direction == NVME_READ;
	const struct fio_job job = {
		.path = pieces->path,
		.offset_bytes = BENCH_NVME_OFFSET_BYTES,
		.span_bytes = pieces->span_bytes,
		.read_bytes = is_read ? pieces->span_bytes : 0,
		.write_bytes = is_read ? 0 : pieces->span_bytes,
		.block_bytes = BLOCK_BYTES,
		.depth = depth,
	};
	double gigabytes = (double)pieces->span_bytes / 1e9;
	struct fio_result result;

	if (fio_run(&job, &result))
		return -EIO;
	ret_result->gb_per_s = gigabytes / result.seconds;
	ret_result->cpu_s_per_gb = result.cpu_s / gigabytes;
	return 0;
}

static void keep_best(struct bench_nvme_result *best, const struct bench_nvme_result *result)
{
	if (result->gb_per_s > best->gb_per_s)
		*best = *result;
}

/* One round: own and peer at each depth, who is first taking turns. */
static int run_round(const struct pieces *pieces, const struct pieces_row *row, uint32_t round,
                     struct bench_nvme_result *ret_own, struct bench_nvme_result *ret_peer)
{
	*ret_own = *ret_peer = (struct bench_nvme_result){ 0 };
	for (uint32_t i = 0; i < 2 * DEPTHS_COUNT; i++) {
		uint32_t depth = depths[i / 2];
		struct bench_nvme_result result;
		bool is_own = (i + round) % 2 == 0;
		int r = is_own ? run_own(pieces, row, depth, &result)
		               : run_peer(pieces, row, depth, &result);

		if (r)
			return r;
		keep_best(is_own ? ret_own : ret_peer, &result);
	}
	return 0;
}

static int measure(const struct pieces *pieces, const struct pieces_row *row,
                   struct bench_report *report)
{
	double own[NVME_ROUNDS], peer[NVME_ROUNDS];
	double own_cpu[NVME_ROUNDS], peer_cpu[NVME_ROUNDS];

	for (uint32_t i = 0; i < NVME_ROUNDS; i++) {
		struct bench_nvme_result one, other;
		int r = run_round(pieces, row, i, &one, &other);

		if (r)
			return r;
		own[i] = one.gb_per_s;
		peer[i] = other.gb_per_s;
		own_cpu[i] = one.cpu_s_per_gb;
		peer_cpu[i] = other.cpu_s_per_gb;
		printf("%s, round %u: %.2f GB/s (%.4f CPU s/GB), fio %.2f (%.4f)\n", row->name,
		       i + 1, own[i], own_cpu[i], peer[i], peer_cpu[i]);
	}
	(void)bench_report_add_turns(
		report,
		&(struct bench_row){ .name = row->name,
	                             .unit = "GB/s",
	                             .peer_name = "fio",
	                             .target = row->target,
	                             .runs = NVME_ROUNDS,
	                             .cpu_s_per_gb = bench_median(own_cpu, NVME_ROUNDS),
	                             .peer_cpu_s_per_gb = bench_median(peer_cpu, NVME_ROUNDS) },
		BENCH_RATE, own, peer);
	return 0;
}

/* The store is made in @directory, and goes with it. */
static int run_in(const char *directory, uint64_t span_bytes, struct bench_report *report)
{
	char path[300];
	struct pieces pieces = { .path = path, .span_bytes = span_bytes };
	struct zi_text text = { "" };
	int r;

	(void)snprintf(path, sizeof(path), "%s/store", directory); /* Fits. */
	r = bench_nvme_new(&(struct bench_nvme_options){ .path = path,
	                                                 .span_bytes = span_bytes,
	                                                 .block_bytes = BLOCK_BYTES,
	                                                 .depth = DEPTH_MAX },
	                   &text, &pieces.bench);
	if (r) {
		fprintf(stderr, "bench: engine: %s\n", text.chars[0] ? text.chars : strerror(-r));
		(void)unlink(path); /* It may not be there. */
		return r;
	}
	printf("engine: %s, buffers in pages that are %s, %s\n", bench_nvme_backend(pieces.bench),
	       bench_nvme_pages(pieces.bench),
	       bench_nvme_is_registered(pieces.bench) ? "registered" : "not registered");
	for (size_t i = 0; !r && i < ZI_COUNT_OF(rows); i++)
		r = measure(&pieces, &rows[i], report);
	pieces.bench = bench_nvme_free(pieces.bench);
	(void)unlink(path);
	return r;
}

/* Rows of the engine over fio. Skipped with a word where there is no fio. */
int nvme_engine_rows(struct bench_report *report)
{
	const char *wish = getenv("BENCH_SPAN_MI");
	uint64_t span_mi = wish ? strtoull(wish, NULL, 10) : SPAN_MI_DEFAULT;
	const char *parent = getenv("TMPDIR");
	char directory[256];
	int r;

	if (!fio_is_there()) {
		printf("engine: skipped: there is no fio (tools/deps bench)\n");
		return 0;
	}
	if (!span_mi || span_mi % 16) {
		fprintf(stderr, "bench: BENCH_SPAN_MI=%s is not a multiple of 16\n", wish);
		return -1;
	}
	(void)snprintf(directory, sizeof(directory), "%s/zinf-bench.XXXXXX",
	               parent ? parent : "/var/tmp"); /* Cut: mkdtemp() refuses. */
	if (!mkdtemp(directory)) {
		fprintf(stderr, "bench: no directory like '%s': %s\n", directory, strerror(errno));
		return -1;
	}
	r = run_in(directory, span_mi << 20, report);
	(void)rmdir(directory);
	return r ? -1 : 0;
}
