/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the GPU folder: its GPU, its rows and its end; see trial.h. */
#include "tests/gpu/device/trial.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "tests/gpu/device/kernels.h"
#include "tests/gpu/device/machine.h"

static const struct trial_sizes real_sizes = {
	.chunk_bytes = 64ull << 20,
	.memory_bytes = 8ull << 30,
	.copy_bytes = 1ull << 30,
	.rounds = 9,
	.unit_count = 8,
	.elements = 4ull << 20,
	.timeout_ms = 5000,
};

static const struct trial_sizes fake_sizes = {
	.chunk_bytes = 2ull << 20,
	.memory_bytes = 8ull << 20,
	.copy_bytes = 4ull << 20,
	.rounds = 2,
	.unit_count = 6,
	.elements = 3000,
	.timeout_ms = 500,
};

/* ---- the GPU ---- */

/* A symbol that no driver of NVIDIA has. */
static bool is_fake_driver(const struct zi_gpu_driver *driver)
{
	return dlsym(driver->handle, "fake_call_count");
}

static int find_device(struct trial *trial, struct zi_text *text)
{
	uint32_t count = 0;
	int r;

	if (trial->options.device)
		return zi_gpu_device_find(&trial->driver, trial->options.device, &trial->device,
		                          text);
	r = zi_gpu_device_count(&trial->driver, &count, text);
	if (!r && !count)
		r = zi_text_error(text, -ENODEV, "the driver shows no GPU");
	return r ? r : zi_gpu_device_describe(&trial->driver, 0, &trial->device, text);
}

/* A GPU in a mode of one process, or without VMM, is no GPU for zinf. */
static int find_usable_device(struct trial *trial, struct zi_text *text)
{
	int r = find_device(trial, text);

	if (!r)
		r = zi_gpu_device_check(&trial->device, text);
	if (!r && trial->device.compute_mode == ZI_CUDA_MODE_EXCLUSIVE)
		r = zi_text_error(text, -EBUSY,
		                  "%s is in compute mode EXCLUSIVE, and the run has several "
		                  "processes (nvidia-smi -c DEFAULT changes that)",
		                  trial->device.uuid);
	return r;
}

static int find_gpu(struct trial *trial, const struct trial_options *options, struct zi_text *text)
{
	int r;

	*trial = (struct trial){ .options = *options };
	r = zi_gpu_driver_open(&trial->driver, options->driver, text);
	if (!r)
		r = find_usable_device(trial, text);
	if (r)
		return r;
	trial->is_fake = is_fake_driver(&trial->driver);
	trial->sizes = trial->is_fake ? fake_sizes : real_sizes;
	return 0;
}

static int make_context(struct trial *trial, struct zi_text *text)
{
	trial_begin(trial);
	TRIAL_DO(trial, cuDevicePrimaryCtxRetain(&trial->context, trial->device.device));
	TRIAL_DO(trial, cuCtxSetCurrent(trial->context));
	TRIAL_DO(trial, cuStreamCreateWithPriority(&trial->stream, ZI_CUDA_STREAM_NON_BLOCKING, 0));
	TRIAL_DO(trial,
	         cuStreamCreateWithPriority(&trial->other_stream, ZI_CUDA_STREAM_NON_BLOCKING, 0));
	return trial_call_error(trial, text);
}

int trial_join(struct trial *trial, const struct trial_options *options, struct zi_text *text)
{
	int r = find_gpu(trial, options, text);

	return r ? r : make_context(trial, text);
}

int trial_open(struct trial *trial, const struct trial_options *options)
{
	struct zi_text text = { "" };
	int r = find_gpu(trial, options, &text);

	if (r) {
		printf("%s: skipped: no GPU: %s\n", options->command, text.chars);
		return TRIAL_EXIT_NO_GPU;
	}
	r = make_context(trial, &text);
	if (r) {
		printf("%s: a context on %s (%s): %s\n", options->command, trial->device.uuid,
		       trial->device.name, text.chars);
		return TRIAL_EXIT_FAILED;
	}
	printf("%s on %s, %s%s\n", options->command, trial->device.uuid, trial->device.name,
	       trial->is_fake ? "\nFAKE: the driver is the double of the tests. Sizes are small, "
	                        "and no time is printed"
	                      : "");
	return 0;
}

int trial_call_error(const struct trial *trial, struct zi_text *text)
{
	/* The name of the function is enough. */
	const int length = (int)strcspn(trial->failed_call, "(");

	return trial->code ? zi_gpu_error(&trial->driver.cuda, trial->code, text, "%.*s", length,
	                                  trial->failed_call)
	                   : 0;
}

/* ---- rows ---- */

static const char *const end_words[] = { "ok     ", "FAILED ", "answer ", "not run" };

void trial_row(struct trial *trial, enum trial_end end, const char *what, const char *must,
               const char *format, ...)
{
	struct trial_row *row;
	va_list args;

	assert(trial->row_count < TRIAL_ROWS_MAX);
	row = &trial->rows[trial->row_count++];
	*row = (struct trial_row){ .end = end };
	(void)snprintf(row->what, sizeof(row->what), "%s", what);
	(void)snprintf(row->must, sizeof(row->must), "%s", must ? must : "");
	va_start(args, format);
	(void)vsnprintf(row->found, sizeof(row->found), format, args);
	va_end(args);
	for (char *c = row->found; *c; c++)
		*c = *c == '\n' ? ' ' : *c; /* A row is a line. */
	printf("%s%s  %s: %s", trial->is_fake ? "FAKE " : "", end_words[end], row->what,
	       row->found);
	printf(row->must[0] ? " (must: %s)\n" : "\n", row->must);
	(void)fflush(stdout); /* A row is seen while the next one runs. */
}

void trial_row_of_call(struct trial *trial, const char *what, const char *must)
{
	struct zi_text text = { "" };

	assert(trial->code);
	(void)trial_call_error(trial, &text); /* It is the row's. */
	trial_row(trial, TRIAL_FAILED, what, must, "%s", text.chars);
}

void trial_say(const struct trial *trial, const char *format, ...)
{
	va_list args;

	printf("%s         ", trial->is_fake ? "FAKE " : "");
	va_start(args, format);
	(void)vprintf(format, args);
	va_end(args);
	(void)putchar('\n');
}

struct trial_figure trial_figure(const struct trial *trial, int digits, double value)
{
	struct trial_figure figure = { "-" };

	if (!trial->is_fake)
		(void)snprintf(figure.chars, sizeof(figure.chars), "%.*f", digits, value);
	return figure;
}

/* ---- the end ---- */

static uint32_t count_rows(const struct trial *trial, enum trial_end end)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < trial->row_count; i++)
		count += trial->rows[i].end == end;
	return count;
}

static void print_lines(const struct trial *trial, const struct machine *machine)
{
	printf("\nlines for docs/GPU.md:\n");
	for (uint32_t i = 0; i < trial->row_count; i++) {
		const struct trial_row *row = &trial->rows[i];

		if (row->end == TRIAL_NOT_RUN)
			printf("| %s | %s | not run: %s |\n", row->what, row->must, row->found);
		else
			printf("| %s | %s | %s%s. %s, %s, %s, %s, %s |\n", row->what, row->must,
			       row->end == TRIAL_FAILED ? "MISSED: " : "", row->found,
			       machine->device, machine->driver, machine->link, machine->kernel,
			       machine->date);
	}
}

int trial_close(struct trial *trial)
{
	uint32_t failed_count = count_rows(trial, TRIAL_FAILED);
	struct machine machine;

	machine_read(&trial->driver, &trial->device, &machine);
	printf("\nmachine: %s, %s, %s, %s, %s\n", machine.device, machine.driver, machine.link,
	       machine.kernel, machine.date);
	if (trial->is_fake)
		printf("FAKE: this run has no line for docs/GPU.md\n");
	else if (!trial->options.is_rehearsal)
		print_lines(trial, &machine);
	printf("\n%s%s: %u passed, %u failed, %u answered, %u not run\n",
	       trial->is_fake ? "FAKE " : "", trial->options.command,
	       count_rows(trial, TRIAL_PASSED), failed_count, count_rows(trial, TRIAL_ANSWERED),
	       count_rows(trial, TRIAL_NOT_RUN));
	return failed_count ? TRIAL_EXIT_FAILED : TRIAL_EXIT_RIGHT;
}

/* ---- memory ---- */

void trial_map(struct trial *trial, uint64_t handle, uint64_t bytes, struct trial_span *ret_span)
{
	const struct zi_cuda_access access =
		zi_gpu_access(trial->device.device, ZI_CUDA_ACCESS_READ_WRITE);
	struct trial_span span = { .bytes = bytes, .handle = handle };

	TRIAL_DO(trial, cuMemAddressReserve(&span.address, bytes, 0, 0, 0));
	TRIAL_DO(trial, cuMemMap(span.address, bytes, 0, handle, 0));
	TRIAL_DO(trial, cuMemSetAccess(span.address, bytes, &access, 1));
	*ret_span = span;
}

bool trial_load_kernels(struct trial *trial, struct kernels *ret_kernels)
{
	if (!trial->code)
		trial_did(trial,
		          kernels_load(&trial->driver.cuda, trial->device.multiprocessor_count,
		                       trial->is_fake, ret_kernels),
		          "loading the kernels");
	return !trial->code;
}

void trial_make(struct trial *trial, uint64_t bytes, struct trial_span *ret_span)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(trial->device.device);
	uint64_t handle = 0;

	TRIAL_DO(trial, cuMemCreate(&handle, bytes, &chunk, 0));
	trial_map(trial, handle, bytes, ret_span);
}

void trial_import(struct trial *trial, int fd, uint64_t bytes, struct trial_span *ret_span)
{
	uint64_t handle = 0;

	TRIAL_DO(trial, cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)(unsigned)fd,
	                                               ZI_CUDA_HANDLE_POSIX_FD));
	trial_map(trial, handle, bytes, ret_span);
}

void trial_drop(struct trial *trial, struct trial_span *span)
{
	const struct zi_cuda *cuda = &trial->driver.cuda;

	if (span->address) {
		/* After a failed call the span may not be mapped: the driver refuses then. */
		(void)cuda->cuMemUnmap(span->address, span->bytes);
		(void)cuda->cuMemAddressFree(span->address, span->bytes);
	}
	if (span->handle)
		(void)cuda->cuMemRelease(span->handle);
	*span = (struct trial_span){ 0 };
}

uint64_t trial_free_bytes(const struct trial *trial)
{
	size_t free_bytes = 0, total_bytes = 0;

	return trial->driver.cuda.cuMemGetInfo(&free_bytes, &total_bytes) ? 0 : free_bytes;
}

double trial_now_s(void)
{
	return (double)zi_clock_now_ns() / (double)ZI_NS_PER_S;
}
