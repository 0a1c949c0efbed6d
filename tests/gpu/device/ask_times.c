/* SPDX-License-Identifier: Apache-2.0 */
/* Question 4: times of calls on memory, by size: GPU memory, and registration by kind of page. */
#include "bench/report.h"
#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "tests/gpu/device/ask.h"
#include "tests/gpu/device/pages.h"
#include "tests/gpu/device/trial.h"

#define ROUNDS_MAX 9u

/* ---- GPU memory ---- */

enum step { CREATE, EXPORT, IMPORT, RESERVE, MAP, ACCESS, UNMAP, RELEASE, STEP_COUNT };

static const char *const step_names[STEP_COUNT] = { "create", "export", "import", "reserve",
	                                            "map",    "access", "unmap",  "release" };

/* Seconds of each call, once. */
static void walk(struct trial *trial, uint64_t bytes, double *ret_seconds)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(trial->device.device);
	const struct zi_cuda_access access =
		zi_gpu_access(trial->device.device, ZI_CUDA_ACCESS_READ_WRITE);
	uint64_t handle = 0, imported = 0, address = 0;
	double times[STEP_COUNT + 1];
	int fd = -1;

	times[CREATE] = trial_now_s();
	TRIAL_DO(trial, cuMemCreate(&handle, bytes, &chunk, 0));
	times[EXPORT] = trial_now_s();
	TRIAL_DO(trial, cuMemExportToShareableHandle(&fd, handle, ZI_CUDA_HANDLE_POSIX_FD, 0));
	times[IMPORT] = trial_now_s();
	TRIAL_DO(trial, cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)(unsigned)fd,
	                                               ZI_CUDA_HANDLE_POSIX_FD));
	times[RESERVE] = trial_now_s();
	TRIAL_DO(trial, cuMemAddressReserve(&address, bytes, 0, 0, 0));
	times[MAP] = trial_now_s();
	TRIAL_DO(trial, cuMemMap(address, bytes, 0, imported, 0));
	times[ACCESS] = trial_now_s();
	TRIAL_DO(trial, cuMemSetAccess(address, bytes, &access, 1));
	times[UNMAP] = trial_now_s();
	TRIAL_DO(trial, cuMemUnmap(address, bytes));
	times[RELEASE] = trial_now_s();
	(void)zi_close(fd);
	TRIAL_DO(trial, cuMemRelease(imported));
	TRIAL_DO(trial, cuMemRelease(handle));
	times[STEP_COUNT] = trial_now_s();
	TRIAL_DO(trial, cuMemAddressFree(address, bytes));
	for (uint32_t step = 0; step < STEP_COUNT; step++)
		ret_seconds[step] = times[step + 1] - times[step];
}

/* Medians, as a line. */
static void time_size(struct trial *trial, uint64_t bytes)
{
	double seconds[ROUNDS_MAX][STEP_COUNT], column[ROUNDS_MAX];
	const uint32_t rounds = ZI_MIN(trial->sizes.rounds, ROUNDS_MAX);
	struct zi_text line;

	for (uint32_t round = 0; round < rounds && !trial->code; round++)
		walk(trial, bytes, seconds[round]);
	if (trial->code)
		return;
	zi_text_set(&line, "%9s", zi_format_bytes(bytes).chars);
	for (uint32_t step = 0; step < STEP_COUNT; step++) {
		for (uint32_t round = 0; round < rounds; round++)
			column[round] = seconds[round][step];
		zi_text_append(&line, "  %s %s", step_names[step],
		               trial_figure(trial, 1, bench_median(column, rounds) * 1e6).chars);
	}
	trial_say(trial, "%s", line.chars);
}

void ask_memory_times(struct trial *trial)
{
	static const char question[] = "4. times of create, export, import, map, access, release";
	const uint64_t most_bytes = ZI_MIN(trial->sizes.memory_bytes, trial_free_bytes(trial) / 2);

	trial_begin(trial);
	for (uint64_t bytes = 2ull << 20; bytes <= most_bytes && !trial->code; bytes *= 4)
		time_size(trial, bytes);
	if (trial->code)
		trial_row_of_call(trial, question, NULL);
	else
		trial_row(trial, TRIAL_ANSWERED, question, NULL,
		          "the lines above, in microseconds, medians of %u", trial->sizes.rounds);
}

/* ---- registration ---- */

/* Milliseconds for each GiB. */
static void time_kind(struct trial *trial, enum pages_kind kind, uint64_t bytes, bool is_read_only)
{
	const double gib = (double)bytes / (double)(1ull << 30);
	struct pages pages = pages_map(kind, bytes, is_read_only);
	double begin_s, middle_s, end_s;

	if (!pages.base) {
		trial_say(trial, "%s, %s: not to be had here: %s", pages_names[kind],
		          zi_format_bytes(bytes).chars, pages.lack);
		return;
	}
	begin_s = trial_now_s();
	TRIAL_DO(trial, cuMemHostRegister(pages.base, bytes,
	                                  ZI_CUDA_REGISTER_PORTABLE |
	                                          (is_read_only ? ZI_CUDA_REGISTER_READ_ONLY : 0)));
	middle_s = trial_now_s();
	TRIAL_DO(trial, cuMemHostUnregister(pages.base));
	end_s = trial_now_s();
	if (!trial->code)
		trial_say(trial, "%s%s, %s: register %s, unregister %s ms for each GiB",
		          pages_names[kind], is_read_only ? ", read-only" : "",
		          zi_format_bytes(bytes).chars,
		          trial_figure(trial, 1, (middle_s - begin_s) * 1e3 / gib).chars,
		          trial_figure(trial, 1, (end_s - middle_s) * 1e3 / gib).chars);
	pages_unmap(&pages);
}

void ask_register_times(struct trial *trial)
{
	static const char question[] = "4. times of registration, by kind of page";

	trial_begin(trial);
	for (int kind = 0; kind < _PAGES_COUNT; kind++)
		for (uint64_t bytes = trial->sizes.chunk_bytes;
		     bytes <= trial->sizes.copy_bytes && !trial->code; bytes *= 4) {
			time_kind(trial, (enum pages_kind)kind, bytes, false);
			time_kind(trial, (enum pages_kind)kind, bytes,
			          trial->device.has_read_only_register);
		}
	if (trial->code)
		trial_row_of_call(trial, question, NULL);
	else
		trial_row(trial, TRIAL_ANSWERED, question, NULL, "the lines above");
}
