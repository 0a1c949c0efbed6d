/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring nvme/engine; see the header. The machine's settings are left as they are: hugetlb pages
 * are used when the administrator has set some aside, collapsed ones otherwise. */
#include "bench/nvme_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; glibc 2.36 does not name it yet */
#endif

#define BENCH_BLOCK_DEFAULT (1u << 20)
#define BENCH_DEPTH_DEFAULT 32u

/* A place in flight: its buffer, and the request that uses it over and over. */
struct bench_lane {
	struct nvme_io io; /* first */
	struct bench_nvme *bench;
};

struct bench_nvme {
	struct nvme_store *store;
	struct nvme_engine *engine;
	unsigned char *buffer; /* MAP_FAILED: none */
	uint64_t buffer_bytes;
	const char *pages;
	uint32_t block_bytes;
	uint32_t depth, depth_max;
	uint64_t span_bytes;
	/* of a run */
	uint64_t left_bytes; /* not yet submitted */
	uint64_t next_bytes; /* place in the span */
	int result;
	struct bench_lane lanes[];
};

/* ---- memory ---- */

/* A shared mapping of its own memfd, as the daemon's segments are. MAP_FAILED when refused. */
static void *bench_map(uint64_t bytes, unsigned memfd_flags)
{
	_cleanup_(zi_closep) int fd = memfd_create("bench", MFD_CLOEXEC | memfd_flags);
	unsigned char *place;
	unsigned char *aligned;

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		return MAP_FAILED;
	/* Collapsing needs 2 MiB alignment: cut from a larger reservation. */
	place = mmap(NULL, bytes + ZI_HUGE_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	             0);
	if (place == MAP_FAILED)
		return MAP_FAILED;
	aligned = (unsigned char *)zi_align_up((uintptr_t)place, ZI_HUGE_PAGE_BYTES);
	if (aligned > place)
		(void)munmap(place, (size_t)(aligned - place));
	(void)munmap(aligned + bytes, (size_t)(place + ZI_HUGE_PAGE_BYTES - aligned));
	place = mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (place == MAP_FAILED)
		(void)munmap(aligned, bytes);
	return place;
}

static int bench_allocate(struct bench_nvme *bench)
{
	bench->buffer_bytes =
		zi_align_up((uint64_t)bench->depth_max * bench->block_bytes, ZI_HUGE_PAGE_BYTES);
	bench->pages = "hugetlb";
	bench->buffer = bench_map(bench->buffer_bytes, MFD_HUGETLB);
	if (bench->buffer == MAP_FAILED) {
		bench->buffer = bench_map(bench->buffer_bytes, 0);
		if (bench->buffer == MAP_FAILED)
			return err_origin(-ENOMEM);
		memset(bench->buffer, 0x5a, bench->buffer_bytes);
		bench->pages = madvise(bench->buffer, bench->buffer_bytes, MADV_COLLAPSE)
		                       ? "4 KiB"
		                       : "collapsed";
	}
	/* Not zero: what is written looks like data to whatever lies below. */
	for (uint64_t i = 0; i < bench->buffer_bytes; i++)
		bench->buffer[i] = (unsigned char)(i * 167 + (i >> 8));
	return 0;
}

/* ---- life ---- */

struct bench_nvme *bench_nvme_free(struct bench_nvme *bench)
{
	if (!bench)
		return NULL;
	bench->engine = nvme_engine_free(bench->engine);
	bench->store = nvme_store_close(bench->store);
	if (bench->buffer != MAP_FAILED)
		(void)munmap(bench->buffer, bench->buffer_bytes);
	free(bench);
	return NULL;
}
ZI_DEFINE_CLEANUP(struct bench_nvme *, bench_nvme_free)

static int bench_open(struct bench_nvme *bench, const struct bench_nvme_options *options,
                      struct zi_text *text)
{
	struct nvme_store_options store_options = { .name = "bench",
		                                    .path = options->path,
		                                    .bytes = BENCH_NVME_OFFSET_BYTES +
		                                             options->span_bytes };
	struct nvme_engine_options engine_options = { .backend = options->backend,
		                                      .depth = bench->depth,
		                                      .read_block_bytes = bench->block_bytes,
		                                      .write_block_bytes = bench->block_bytes };
	int r;

	r = nvme_store_open(&store_options, text, &bench->store);
	if (r)
		return err_trace(r);
	r = nvme_engine_new(&engine_options, text, &bench->engine);
	if (!r)
		r = nvme_engine_register_store(bench->engine, bench->store);
	if (!r)
		r = nvme_engine_register_buffer(bench->engine, bench->buffer, bench->buffer_bytes);
	return err_trace(r);
}

/* Everything that a run needs, so that runs can alternate with a peer's. */
int bench_nvme_new(const struct bench_nvme_options *options, struct zi_text *text,
                   struct bench_nvme **ret_bench)
{
	_cleanup_(bench_nvme_freep) struct bench_nvme *bench = NULL;
	uint32_t depth = options->depth ? options->depth : BENCH_DEPTH_DEFAULT;
	uint32_t block_bytes = options->block_bytes ? options->block_bytes : BENCH_BLOCK_DEFAULT;
	int r;

	if (!options->span_bytes || options->span_bytes % block_bytes)
		return err_origin(zi_text_error(text, -EINVAL, "the span is not whole blocks of %u",
		                                block_bytes));
	bench = calloc(1, sizeof(*bench) + depth * sizeof(bench->lanes[0]));
	if (!bench)
		return err_origin(-ENOMEM);
	bench->buffer = MAP_FAILED;
	bench->depth = bench->depth_max = depth;
	bench->block_bytes = block_bytes;
	bench->span_bytes = options->span_bytes;
	r = bench_allocate(bench);
	if (r)
		return err_trace(zi_text_error(text, r, "no memory for %u blocks of %u bytes",
		                               depth, block_bytes));
	r = bench_open(bench, options, text);
	if (r)
		return err_trace(r);
	*ret_bench = zi_steal(bench);
	return 0;
}

const char *bench_nvme_pages(const struct bench_nvme *bench)
{
	return bench->pages;
}

const char *bench_nvme_backend(const struct bench_nvme *bench)
{
	return nvme_engine_backend(bench->engine);
}

bool bench_nvme_is_registered(const struct bench_nvme *bench)
{
	struct nvme_engine_stats stats;

	nvme_engine_stats(bench->engine, &stats);
	return stats.registered_bytes == bench->buffer_bytes;
}

void bench_nvme_set_depth(struct bench_nvme *bench, uint32_t depth)
{
	const struct nvme_tuning tuning = { .read_depth = depth, .write_depth = depth };
	int r;

	assert(depth <= bench->depth_max);
	r = nvme_engine_tune(bench->engine, bench->store, &tuning);
	assert(r == 0);
	(void)r;
	bench->depth = depth;
}

/* ---- a run ---- */

/* A run from its beginning to its end. */
struct bench_watch {
	uint64_t begin_ns;
	double cpu_s;
};

static double bench_cpu_s(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage); /* Cannot fail with these arguments. */
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Sends a lane on its way to the next block, unless all went out. */
static void bench_go(struct bench_lane *lane)
{
	struct bench_nvme *bench = lane->bench;
	int r;

	if (!bench->left_bytes || bench->result)
		return;
	lane->io.offset_bytes = BENCH_NVME_OFFSET_BYTES + bench->next_bytes;
	bench->next_bytes = (bench->next_bytes + bench->block_bytes) % bench->span_bytes;
	bench->left_bytes -= bench->block_bytes;
	r = nvme_engine_submit(bench->engine, &lane->io);
	assert(r == 0);
	(void)r;
}

static void bench_done(struct nvme_io *io)
{
	struct bench_lane *lane = container_of(io, struct bench_lane, io);

	if (io->result && !lane->bench->result)
		lane->bench->result = io->result;
	bench_go(lane);
}

static struct bench_watch bench_begin(struct bench_nvme *bench)
{
	bench->result = 0;
	return (struct bench_watch){ .begin_ns = zi_clock_now_ns(), .cpu_s = bench_cpu_s() };
}

static int bench_end(const struct bench_nvme *bench, const struct bench_watch *watch,
                     uint64_t bytes, struct bench_nvme_result *ret_result)
{
	double seconds = (double)(zi_clock_now_ns() - watch->begin_ns) / 1e9;
	double gigabytes = (double)bytes / 1e9;

	if (bench->result)
		return err_origin(bench->result);
	ret_result->gb_per_s = gigabytes / seconds;
	ret_result->cpu_s_per_gb = (bench_cpu_s() - watch->cpu_s) / gigabytes;
	return 0;
}

int bench_nvme_run(struct bench_nvme *bench, enum nvme_direction direction, uint64_t bytes,
                   struct bench_nvme_result *ret_result)
{
	struct bench_watch watch = bench_begin(bench);

	assert(bytes);
	assert(bytes % bench->block_bytes == 0);
	bench->left_bytes = bytes;
	bench->next_bytes = 0;
	for (uint32_t i = 0; i < bench->depth; i++) {
		bench->lanes[i] = (struct bench_lane){
			.bench = bench,
			.io = { .direction = direction,
			        .store = bench->store,
			        .buffer = bench->buffer + (uint64_t)i * bench->block_bytes,
			        .bytes = bench->block_bytes,
			        .done = bench_done },
		};
		bench_go(&bench->lanes[i]);
	}
	nvme_engine_drain(bench->engine);
	return err_trace(bench_end(bench, &watch, bytes, ret_result));
}

int bench_nvme_run_pieces(struct bench_nvme *bench, enum nvme_direction direction, uint64_t bytes,
                          uint64_t piece_bytes, struct bench_nvme_result *ret_result)
{
	uint64_t pieces_count = bytes / piece_bytes;
	uint64_t places_count = (uint64_t)bench->depth * bench->block_bytes / piece_bytes;
	_cleanup_(zi_freep) struct bench_lane *lanes = calloc(pieces_count, sizeof(*lanes));
	struct bench_watch watch = bench_begin(bench);

	assert(places_count);
	assert(bytes % piece_bytes == 0);
	assert(bytes <= bench->span_bytes);
	if (!lanes)
		return err_origin(-ENOMEM);
	bench->left_bytes = 0; /* No lane goes twice. */
	for (uint64_t i = 0; i < pieces_count; i++) {
		int r;

		lanes[i] = (struct bench_lane){
			.bench = bench,
			.io = { .direction = direction,
			        .store = bench->store,
			        .offset_bytes = BENCH_NVME_OFFSET_BYTES + i * piece_bytes,
			        .buffer = bench->buffer + i % places_count * piece_bytes,
			        .bytes = piece_bytes,
			        .done = bench_done },
		};
		r = nvme_engine_submit(bench->engine, &lanes[i].io);
		assert(r == 0);
		(void)r;
	}
	nvme_engine_drain(bench->engine);
	return err_trace(bench_end(bench, &watch, bytes, ret_result));
}
