/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Question 5: copies up, down and both at once from registered shared memory in pages of each kind,
 * in turns with memory of cuMemHostAlloc(); and beside a kernel on all multiprocessors. Figures are
 * medians.
 */
#include "bench/report.h"
#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "tests/gpu/device/ask.h"
#include "tests/gpu/device/kernels.h"
#include "tests/gpu/device/pages.h"
#include "tests/gpu/device/trial.h"

#define ROUNDS_MAX  9u
#define PIECE_BYTES (64ull << 20)

/* Which way. */
enum way { UP, DOWN, BOTH, WAY_COUNT };

static const char *const way_names[WAY_COUNT] = { "up", "down", "both" };

/* Where copies begin and end. */
struct ends {
	char *up, *down;
	uint64_t target, source; /* GPU memory */
	uint64_t bytes;
};

static void queue(struct trial *trial, const struct ends *ends, enum way way)
{
	for (uint64_t first = 0; first < ends->bytes; first += PIECE_BYTES) {
		const uint64_t bytes = ZI_MIN(PIECE_BYTES, ends->bytes - first);

		if (way != DOWN)
			TRIAL_DO(trial, cuMemcpyHtoDAsync(ends->target + first, ends->up + first,
			                                  bytes, trial->stream));
		if (way != UP)
			TRIAL_DO(trial, cuMemcpyDtoHAsync(ends->down + first, ends->source + first,
			                                  bytes, trial->other_stream));
	}
}

/* GB/s each way. */
static double rate(struct trial *trial, const struct ends *ends, enum way way)
{
	double begin_s = trial_now_s();

	queue(trial, ends, way);
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->other_stream));
	return (double)ends->bytes * 1e-9 / (trial_now_s() - begin_s);
}

/* A line of rates of one kind of memory, and their ratios to the plain ones. */
static void compare(struct trial *trial, const char *name, const struct ends *plain,
                    const struct ends *other)
{
	const uint32_t rounds = ZI_MIN(trial->sizes.rounds, ROUNDS_MAX);
	double plain_rates[ROUNDS_MAX], other_rates[ROUNDS_MAX], ratios[ROUNDS_MAX];
	struct zi_text line;

	zi_text_set(&line, "%s:", name);
	for (int way = 0; way < WAY_COUNT; way++) {
		(void)rate(trial, other, (enum way)way); /* The first one warms up. */
		for (uint32_t round = 0; round < rounds; round++) {
			plain_rates[round] = rate(trial, plain, (enum way)way);
			other_rates[round] = rate(trial, other, (enum way)way);
			ratios[round] = other_rates[round] / plain_rates[round];
		}
		zi_text_append(&line, " %s %s of %s GB/s (%s)", way_names[way],
		               trial_figure(trial, 1, bench_median(other_rates, rounds)).chars,
		               trial_figure(trial, 1, bench_median(plain_rates, rounds)).chars,
		               trial_figure(trial, 3, bench_median(ratios, rounds)).chars);
	}
	if (!trial->code)
		trial_say(trial, "%s", line.chars);
}

/* @is_read_only: of the memory that copies up begin at. */
static void compare_pages(struct trial *trial, enum pages_kind kind, bool is_read_only,
                          const struct ends *plain)
{
	const uint32_t up_flags = is_read_only ? ZI_CUDA_REGISTER_READ_ONLY : 0;
	struct pages up = pages_map(kind, plain->bytes, is_read_only);
	struct pages down = pages_map(kind, plain->bytes, false);
	struct ends ends = *plain;
	struct zi_text name;

	zi_text_set(&name, "%s%s", pages_names[kind], is_read_only ? ", up read-only" : "");
	if (!up.base || !down.base) {
		trial_say(trial, "%s: not to be had here: %s", name.chars,
		          up.base ? down.lack : up.lack);
	} else {
		ends.up = up.base;
		ends.down = down.base;
		TRIAL_DO(trial, cuMemHostRegister(up.base, up.bytes,
		                                  ZI_CUDA_REGISTER_PORTABLE | up_flags));
		TRIAL_DO(trial,
		         cuMemHostRegister(down.base, down.bytes, ZI_CUDA_REGISTER_PORTABLE));
		if (!trial->code)
			compare(trial, name.chars, plain, &ends);
		TRIAL_DO(trial, cuMemHostUnregister(up.base));
		TRIAL_DO(trial, cuMemHostUnregister(down.base));
	}
	pages_unmap(&up);
	pages_unmap(&down);
}

/* ---- beside a kernel ---- */

/* So many rounds of the kernel that it runs about this long. */
#define KERNEL_S     0.2
#define PROBE_ROUNDS 2000u
#define ROUNDS_LIMIT 1e9

/* On the default stream, beside which the run's streams go on. Return: rounds of @count words. */
static uint32_t find_rounds(struct trial *trial, const struct kernels *kernels, uint64_t memory,
                            uint64_t count)
{
	double seconds[2] = { 1, 1 };

	if (trial->is_fake)
		return 1;
	for (int i = 0; i < 2 && !trial->code; i++) {
		double begin_s = trial_now_s();

		trial_did(trial, kernels_mix(kernels, memory, memory, count, PROBE_ROUNDS, NULL),
		          "launching a kernel");
		TRIAL_DO(trial, cuStreamSynchronize(NULL));
		seconds[i] = trial_now_s() - begin_s;
	}
	return trial->code ? 1
	                   : (uint32_t)ZI_MIN(PROBE_ROUNDS * KERNEL_S / seconds[1], ROUNDS_LIMIT);
}

static void compare_beside_kernel(struct trial *trial, const struct ends *plain)
{
	struct trial_span span = { 0 };
	struct kernels kernels = { 0 };
	uint64_t count = trial->sizes.chunk_bytes / sizeof(uint32_t);
	double alone, beside;
	bool was_running;
	uint32_t rounds;

	if (!kernels_exist(trial->is_fake)) {
		trial_say(trial, "beside a kernel: not run: " KERNELS_MISSING);
		return;
	}
	trial_make(trial, trial->sizes.chunk_bytes, &span);
	if (!trial_load_kernels(trial, &kernels))
		return;
	rounds = find_rounds(trial, &kernels, span.address, count);
	alone = rate(trial, plain, BOTH);
	for (int i = 0; i < 4; i++) /* Long enough for all of the copies. */
		trial_did(trial,
		          kernels_mix(&kernels, span.address, span.address, count, rounds, NULL),
		          "launching a kernel");
	beside = rate(trial, plain, BOTH);
	was_running = trial->driver.cuda.cuStreamQuery(NULL) == ZI_CUDA_NOT_READY;
	TRIAL_DO(trial, cuStreamSynchronize(NULL));
	if (!trial->code)
		trial_say(trial, "both, beside a kernel on all multiprocessors%s: %s of %s GB/s",
		          was_running || trial->is_fake ? "" : " (which ended before the copies)",
		          trial_figure(trial, 1, beside).chars,
		          trial_figure(trial, 1, alone).chars);
	trial_drop(trial, &span);
}

void ask_copies(struct trial *trial)
{
	static const char question[] = "5. copies from memfds over cuMemHostAlloc, each way";
	const uint64_t bytes = trial->sizes.copy_bytes;
	struct ends plain = { .bytes = bytes };
	struct trial_span span = { 0 };
	void *up = NULL, *down = NULL;

	trial_begin(trial);
	trial_make(trial, 2 * bytes, &span);
	plain.target = span.address;
	plain.source = span.address + bytes;
	TRIAL_DO(trial, cuMemHostAlloc(&up, bytes, 0));
	TRIAL_DO(trial, cuMemHostAlloc(&down, bytes, 0));
	plain.up = up;
	plain.down = down;
	for (int kind = 0; kind < _PAGES_COUNT && !trial->code; kind++) {
		compare_pages(trial, (enum pages_kind)kind, false, &plain);
		if (trial->device.has_read_only_register)
			compare_pages(trial, (enum pages_kind)kind, true, &plain);
	}
	if (!trial->code)
		compare_beside_kernel(trial, &plain);
	if (trial->code)
		trial_row_of_call(trial, question, NULL);
	else
		trial_row(trial, TRIAL_ANSWERED, question, NULL,
		          "the lines above, %s each way, in turns, medians of %u",
		          zi_format_bytes(bytes).chars, trial->sizes.rounds);
	if (up)
		(void)trial->driver.cuda.cuMemFreeHost(up);
	if (down)
		(void)trial->driver.cuda.cuMemFreeHost(down);
	trial_drop(trial, &span);
}
