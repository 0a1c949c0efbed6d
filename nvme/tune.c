/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring a store (tune.h). Floor 2, owner thread.
 *
 *   start ──▶ slot: `depth` requests of a block each, every one that is done sends the next
 *              │  time is up: none is sent; the last is back
 *              ▼
 *            its row ──▶ next slot … ──▶ choose ──▶ done
 *
 * The rows are measured twice, the second time backwards, and the better figure counts: what
 * disturbs makes slower, never faster. Writing comes first, so that what is read was written. A
 * slot counts from when every request of its first filling is back: neither the ramp at its start
 * nor the one at its end. The engine sees a store of its own (a copy of the real one, with the same
 * descriptor), so that block size and depth of those who use the store meanwhile stay as they are.
 */
#include "nvme/tune.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/clock.h"
#include "common/base/err.h"

#define TUNE_PASSES_COUNT 2u
#define TUNE_DEPTH_MAX    64u
#define TUNE_BLOCK_MAX    (4u << 20)
/* More in flight is latency for everybody and memory in the device; no drive needs it. */
#define TUNE_INFLIGHT_MAX_BYTES (64u << 20)
/* Among those as fast as the best, within what two runs of the same differ by, the one with the
 * least in flight: whoever comes next waits for less. */
#define TUNE_EQUAL_PERCENT 97u

static const uint32_t tune_blocks[] = { 256u << 10, 1u << 20, TUNE_BLOCK_MAX };
static const uint32_t tune_depths[] = { 8, 16, 32, TUNE_DEPTH_MAX };

static_assert(NVME_TUNE_BUFFER_BYTES % TUNE_BLOCK_MAX == 0, "whole blocks");
static_assert(NVME_TUNE_EXTENT_GRAIN_BYTES % TUNE_BLOCK_MAX == 0, "whole blocks");

/* A request that goes round and round. */
struct tune_lane {
	struct nvme_io io;
	struct nvme_tune *tune;
};

struct nvme_tune {
	struct nvme_tune_options options;
	struct nvme_store view; /* what the engine sees */
	struct nvme_tune_report report;
	uint64_t begin_ns, slot_ns;
	uint64_t moved_bytes; /* by the engine, when this began */
	uint32_t slot_index;  /* of row_count × TUNE_PASSES_COUNT */

	/* Of the slot. */
	struct nvme_tune_row *row;
	uint64_t slot_begin_ns, slot_end_ns;
	uint64_t first_ns, last_ns; /* the window that counts */
	uint64_t first_cpu_ns, last_cpu_ns;
	uint64_t window_bytes, slot_bytes;
	uint64_t next_bytes; /* place in the extent */
	uint32_t done_count, inflight_count;
	bool is_over; /* nothing more is sent */

	struct tune_lane lanes[TUNE_DEPTH_MAX];
};

static uint64_t tune_cpu_ns(void)
{
	struct timespec now;

	/* getrusage() counts in ticks: a slot is a few. Cannot fail with these arguments. */
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * ZI_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t tune_engine_bytes(const struct nvme_tune *tune)
{
	struct nvme_engine_stats stats;

	nvme_engine_stats(tune->options.engine, &stats);
	return stats.read_bytes + stats.write_bytes;
}

/* ---- rows ---- */

static void tune_add_rows(struct nvme_tune_report *report, enum nvme_direction direction)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(tune_blocks); i++)
		for (uint32_t j = 0; j < ZI_COUNT_OF(tune_depths); j++) {
			if ((uint64_t)tune_blocks[i] * tune_depths[j] > TUNE_INFLIGHT_MAX_BYTES)
				continue;
			assert(report->row_count < NVME_TUNE_ROWS_MAX);
			report->rows[report->row_count++] = (struct nvme_tune_row){
				.direction = direction,
				.block_bytes = tune_blocks[i],
				.depth = tune_depths[j],
			};
		}
}

static uint64_t tune_best_bytes_per_s(const struct nvme_tune_report *report,
                                      enum nvme_direction direction)
{
	uint64_t best = 0;

	for (uint32_t i = 0; i < report->row_count; i++)
		if (report->rows[i].direction == direction)
			best = ZI_MAX(best, report->rows[i].bytes_per_s);
	return best;
}

static uint64_t tune_inflight_bytes(const struct nvme_tune_row *row)
{
	return (uint64_t)row->block_bytes * row->depth;
}

static struct nvme_tune_row *tune_choose(struct nvme_tune_report *report,
                                         enum nvme_direction direction)
{
	uint64_t enough = tune_best_bytes_per_s(report, direction) / 100 * TUNE_EQUAL_PERCENT;
	struct nvme_tune_row *chosen = NULL;

	for (uint32_t i = 0; i < report->row_count; i++) {
		struct nvme_tune_row *row = &report->rows[i];

		if (row->direction != direction || row->bytes_per_s < enough || !row->bytes_per_s)
			continue;
		/* With as much in flight, larger blocks (they come later) cost less CPU. */
		if (!chosen || tune_inflight_bytes(row) <= tune_inflight_bytes(chosen))
			chosen = row;
	}
	assert(chosen); /* The first row is never left out. */
	chosen->is_chosen = true;
	return chosen;
}

/* Whether a store as fast as it showed until now turns the row's bytes over in two slots. Rows come
 * with more and more in flight, so a figure that something disturbed is soon set right. */
static bool tune_is_feasible(const struct nvme_tune *tune, const struct nvme_tune_row *row)
{
	uint64_t best = tune_best_bytes_per_s(&tune->report, row->direction);

	return !best ||
	       (double)tune_inflight_bytes(row) <= (double)best * (double)tune->slot_ns / 1e9 * 2;
}

/* ---- slots ---- */

/* A lane's next block. */
static void tune_send(struct tune_lane *lane)
{
	struct nvme_tune *tune = lane->tune;
	const struct nvme_tune_options *options = &tune->options;
	uint32_t block_bytes = tune->row->block_bytes;
	uint64_t index = (uint64_t)(lane - tune->lanes);
	int r;

	assert(tune->next_bytes + block_bytes <=
	       options->extent.bytes); /* Others' data is behind. */
	lane->io = (struct nvme_io){
		.direction = tune->row->direction,
		.store = &tune->view,
		.offset_bytes = options->extent.offset_bytes + tune->next_bytes,
		/* Lanes share: what is in it does not matter. */
		.buffer = (char *)options->buffer + index * block_bytes % NVME_TUNE_BUFFER_BYTES,
		.bytes = block_bytes,
		.done = lane->io.done,
	};
	tune->next_bytes = (tune->next_bytes + block_bytes) % options->extent.bytes;
	tune->inflight_count++;
	r = nvme_engine_submit(options->engine, &lane->io);
	assert(r == 0); /* Inside the store, aligned. */
	(void)r;
}

static void tune_begin_slot(struct nvme_tune *tune, struct nvme_tune_row *row)
{
	const struct nvme_tuning tuning = { .read_block_bytes = row->block_bytes,
		                            .write_block_bytes = row->block_bytes,
		                            .read_depth = row->depth,
		                            .write_depth = row->depth };
	int r;

	r = nvme_engine_tune(tune->options.engine, &tune->view, &tuning);
	assert(r == 0);
	(void)r;
	tune->row = row;
	/* Smaller blocks may have ended where a larger one would reach beyond the extent. */
	tune->next_bytes =
		zi_align_up(tune->next_bytes, row->block_bytes) % tune->options.extent.bytes;
	tune->slot_begin_ns = zi_clock_now_ns();
	tune->slot_end_ns = tune->slot_begin_ns + tune->slot_ns;
	tune->first_ns = tune->last_ns = 0;
	tune->window_bytes = tune->slot_bytes = 0;
	tune->done_count = 0;
	tune->is_over = false;
	for (uint32_t i = 0; i < row->depth; i++)
		tune_send(&tune->lanes[i]);
}

/* The figures of the slot, if they are the row's best. */
static void tune_end_slot(struct nvme_tune *tune, uint64_t now_ns)
{
	struct nvme_tune_row *row = tune->row;
	bool has_window = tune->window_bytes > 0 && tune->last_ns > tune->first_ns;
	/* Too slow for a window: all of it, both ramps included. */
	uint64_t bytes = has_window ? tune->window_bytes : tune->slot_bytes;
	uint64_t ns = has_window ? tune->last_ns - tune->first_ns : now_ns - tune->slot_begin_ns;
	uint64_t bytes_per_s = (uint64_t)((double)bytes * 1e9 / (double)ZI_MAX(ns, 1u));

	tune->report.own_bytes += tune->slot_bytes;
	if (bytes_per_s <= row->bytes_per_s)
		return;
	row->bytes_per_s = bytes_per_s;
	row->cpu_ns_per_gb = has_window
	                             ? (uint64_t)((double)(tune->last_cpu_ns - tune->first_cpu_ns) *
	                                          1e9 / (double)bytes)
	                             : 0;
}

static void tune_finish(struct nvme_tune *tune)
{
	struct nvme_tune_report *report = &tune->report;
	uint64_t moved_bytes = tune_engine_bytes(tune) - tune->moved_bytes;

	nvme_engine_unregister_store(tune->options.engine, &tune->view);
	report->duration_ns = zi_clock_now_ns() - tune->begin_ns;
	report->other_bytes = moved_bytes - ZI_MIN(report->own_bytes, moved_bytes);
	if (!report->result) {
		const struct nvme_tune_row *reads = tune_choose(report, NVME_READ);
		const struct nvme_tune_row *writes = tune_choose(report, NVME_WRITE);

		report->chosen = (struct nvme_tuning){
			.read_block_bytes = reads->block_bytes,
			.write_block_bytes = writes->block_bytes,
			.read_depth = reads->depth,
			.write_depth = writes->depth,
			.read_bytes_per_s = reads->bytes_per_s,
			.write_bytes_per_s = writes->bytes_per_s,
		};
	}
	tune->options.done(tune->options.arg); /* May free it. */
}

/* The next row that is worth it, or the end. */
static void tune_go_on(struct nvme_tune *tune)
{
	struct nvme_tune_report *report = &tune->report;

	while (!report->result && tune->slot_index < report->row_count * TUNE_PASSES_COUNT) {
		uint32_t index = tune->slot_index++;
		uint32_t row_index = index % report->row_count;
		struct nvme_tune_row *row;

		if (index >= report->row_count) /* Backwards. */
			row_index = report->row_count - 1 - row_index;
		row = &report->rows[row_index];
		if (!tune_is_feasible(tune, row))
			continue;
		tune_begin_slot(tune, row);
		return;
	}
	tune_finish(tune);
}

/* Counts a block that moved. */
static void tune_count(struct nvme_tune *tune, uint64_t now_ns)
{
	uint32_t block_bytes = tune->row->block_bytes;

	tune->slot_bytes += block_bytes;
	tune->done_count++;
	if (tune->is_over)
		return;
	if (tune->done_count > tune->row->depth)
		tune->window_bytes += block_bytes;
	if (tune->done_count == tune->row->depth) {
		tune->first_ns = now_ns;
		tune->first_cpu_ns = tune_cpu_ns();
	}
	if (now_ns >= tune->slot_end_ns) {
		tune->is_over = true;
		tune->last_ns = now_ns;
		tune->last_cpu_ns = tune_cpu_ns();
	}
}

static void tune_lane_done(struct nvme_io *io)
{
	struct tune_lane *lane = container_of(io, struct tune_lane, io);
	struct nvme_tune *tune = lane->tune;
	struct nvme_tune_report *report = &tune->report;

	assert(tune->inflight_count > 0);
	tune->inflight_count--;
	if (io->result && !report->result) {
		report->result = io->result;
		zi_text_set(&report->text,
		            "%s of %llu bytes at offset %llu of store '%s' failed: %s",
		            io->direction == NVME_READ ? "read" : "write",
		            (unsigned long long)io->bytes, (unsigned long long)io->offset_bytes,
		            tune->view.path, strerror(-io->result));
	}
	if (io->result)
		tune->is_over = true;
	else
		tune_count(tune, io->finished_ns);
	if (!tune->is_over && !report->result) {
		tune_send(lane);
		return;
	}
	if (tune->inflight_count)
		return;
	tune_end_slot(tune, io->finished_ns);
	tune_go_on(tune);
}

/* ---- public ---- */

/**
 * nvme_tune_start() - begins a measurement
 * @options: copied; what it points to lives until `done` ran
 * @ret_tune: the caller's, nvme_tune_free() when `done` ran
 *
 * Return: 0, and `done` runs once; -ENOSPC (NVME_ENGINE_STORES_MAX), -ENOMEM: it never will.
 * Context: owner thread of the engine.
 */
int nvme_tune_start(const struct nvme_tune_options *options, struct nvme_tune **ret_tune)
{
	struct nvme_tune *tune;
	int r;

	assert(options->extent.bytes > 0);
	assert(options->extent.bytes % NVME_TUNE_EXTENT_GRAIN_BYTES == 0);
	assert(options->done);
	tune = calloc(1, sizeof(*tune));
	if (!tune)
		return err_origin(-ENOMEM);
	tune->options = *options;
	tune->view = *options->store; /* Never closed: the descriptor is the real store's. */
	r = nvme_engine_register_store(options->engine, &tune->view);
	if (r) {
		free(tune);
		return err_trace(r);
	}
	tune_add_rows(&tune->report, NVME_WRITE);
	tune_add_rows(&tune->report, NVME_READ);
	tune->begin_ns = zi_clock_now_ns();
	tune->slot_ns = ZI_MAX(options->duration_ns, NVME_TUNE_NS_MIN) /
	                (tune->report.row_count * TUNE_PASSES_COUNT);
	tune->moved_bytes = tune_engine_bytes(tune);
	for (uint32_t i = 0; i < TUNE_DEPTH_MAX; i++) {
		tune->lanes[i].tune = tune;
		tune->lanes[i].io.done = tune_lane_done;
	}
	*ret_tune = tune;
	tune_go_on(tune);
	nvme_engine_kick(options->engine);
	return 0;
}

/* Twice is once. Context: owner thread of the engine. */
void nvme_tune_cancel(struct nvme_tune *tune)
{
	struct nvme_tune_report *report = &tune->report;

	if (report->result)
		return;
	report->result = -ECANCELED;
	zi_text_set(&report->text, "the measurement of store '%s' was cancelled", tune->view.path);
	for (uint32_t i = 0; i < TUNE_DEPTH_MAX; i++)
		nvme_engine_cancel(tune->options.engine, &tune->lanes[i].io);
}

/* Rows and figures; the caller's as long as @tune. */
const struct nvme_tune_report *nvme_tune_report(const struct nvme_tune *tune)
{
	return &tune->report;
}

/* Asserts that `done` ran, or runs. Return: NULL. */
struct nvme_tune *nvme_tune_free(struct nvme_tune *tune)
{
	if (!tune)
		return NULL;
	assert(tune->inflight_count == 0);
	free(tune);
	return NULL;
}
