/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about chunks and registration; see facts.h. */
#include "tests/gpu/device/facts.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "tests/gpu/device/maker.h"
#include "tests/gpu/device/trial.h"

#define ZERO_ROUNDS 4u /* half of them in this process, half in one of their own */
#define DIRT        0xa5

/* ---- bytes that are known ---- */

static uint32_t word_of(uint64_t index, uint32_t round)
{
	return (uint32_t)index * 2654435761u + round * 40503u + 1u;
}

static void fill(void *memory, uint64_t bytes, uint32_t round)
{
	uint32_t *words = memory;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = word_of(i, round);
}

static uint64_t count_wrong(const void *memory, uint64_t bytes, uint32_t round)
{
	const uint32_t *words = memory;
	uint64_t wrong_count = 0;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		wrong_count += words[i] != word_of(i, round);
	return wrong_count;
}

/* Two buffers of the host that the driver has pinned. */
struct buffers {
	void *up, *down;
	uint64_t bytes;
};

static void buffers_make(struct trial *trial, uint64_t bytes, struct buffers *ret_buffers)
{
	struct buffers buffers = { .bytes = bytes };

	TRIAL_DO(trial, cuMemHostAlloc(&buffers.up, bytes, 0));
	TRIAL_DO(trial, cuMemHostAlloc(&buffers.down, bytes, 0));
	*ret_buffers = buffers;
}

static void buffers_drop(struct trial *trial, struct buffers *buffers)
{
	if (buffers->up)
		(void)trial->driver.cuda.cuMemFreeHost(buffers->up);
	if (buffers->down)
		(void)trial->driver.cuda.cuMemFreeHost(buffers->down);
	*buffers = (struct buffers){ 0 };
}

/* Known words to @target on one stream, and from @source back on the other one. Return: how many
 * are wrong there. */
static uint64_t round_trip(struct trial *trial, const struct buffers *buffers,
                           struct zi_cuda_event *event, uint64_t target, uint64_t source,
                           uint32_t round)
{
	fill(buffers->up, buffers->bytes, round);
	TRIAL_DO(trial, cuMemcpyHtoDAsync(target, buffers->up, buffers->bytes, trial->stream));
	TRIAL_DO(trial, cuEventRecord(event, trial->stream));
	TRIAL_DO(trial, cuStreamWaitEvent(trial->other_stream, event, 0));
	TRIAL_DO(trial,
	         cuMemcpyDtoHAsync(buffers->down, source, buffers->bytes, trial->other_stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->other_stream));
	return trial->code ? 1 : count_wrong(buffers->down, buffers->bytes, round);
}

/* Whether all calls went well and no word was wrong; then @found stays. */
static bool conclude(const struct trial *trial, uint64_t wrong_count, struct zi_text *found)
{
	if (trial->code)
		(void)trial_call_error(trial, found); /* The words count. */
	else if (wrong_count)
		zi_text_set(found, "%llu words are wrong", (unsigned long long)wrong_count);
	return !trial->code && !wrong_count;
}

static void close_all(int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		fds[i] = zi_close(fds[i]);
}

/* ---- facts ---- */

/* The maker lives while its chunks are used. */
static bool share(struct trial *trial, const struct peer *maker, struct zi_text *found)
{
	const uint64_t bytes = trial->sizes.chunk_bytes;
	const uint32_t rounds = 2 * trial->sizes.rounds;
	struct trial_span span = { 0 }, alias = { 0 };
	struct zi_cuda_event *event = NULL;
	struct buffers buffers = { 0 };
	uint64_t wrong_count = 0;
	int fd = -1;
	bool is_right;

	if (maker_make(maker, bytes, 1, found, &fd))
		return false;
	trial_begin(trial);
	trial_import(trial, fd, bytes, &span);
	trial_map(trial, span.handle, bytes, &alias);
	alias.handle = 0; /* The first span's. */
	buffers_make(trial, bytes, &buffers);
	TRIAL_DO(trial, cuEventCreate(&event, ZI_CUDA_EVENT_NO_TIMING));
	for (uint32_t round = 0; round < rounds && !trial->code; round++)
		wrong_count +=
			round_trip(trial, &buffers, event, round % 2 ? alias.address : span.address,
		                   round % 2 ? span.address : alias.address, round);
	zi_text_set(found, "%s, written and read by two maps on two streams %u times",
	            zi_format_bytes(bytes).chars, rounds);
	is_right = conclude(trial, wrong_count, found);
	buffers_drop(trial, &buffers);
	trial_drop(trial, &alias);
	trial_drop(trial, &span);
	(void)zi_close(fd);
	return is_right;
}

bool fact_chunks_are_shared(struct trial *trial, struct zi_text *found)
{
	struct peer maker;
	bool is_right;

	if (maker_start(trial, &maker, found))
		return false;
	is_right = share(trial, &maker, found);
	(void)peer_kill(&maker); /* It has nothing to tell. */
	return is_right;
}

static bool register_read_only(struct trial *trial, int fd, uint64_t bytes, struct zi_text *found)
{
	void *writable = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *readable = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	struct buffers buffers = { 0 };
	struct trial_span span = { 0 };
	uint64_t wrong_count = 0;
	bool is_right;

	trial_begin(trial);
	if (writable == MAP_FAILED || readable == MAP_FAILED) {
		zi_text_set(found, "mmap of %s: %s", zi_format_bytes(bytes).chars, strerror(errno));
		return false;
	}
	fill(writable, bytes, 7);
	trial_make(trial, bytes, &span);
	buffers_make(trial, bytes, &buffers);
	TRIAL_DO(trial, cuMemHostRegister(readable, bytes,
	                                  ZI_CUDA_REGISTER_PORTABLE | ZI_CUDA_REGISTER_READ_ONLY));
	TRIAL_DO(trial, cuMemcpyHtoDAsync(span.address, readable, bytes, trial->stream));
	TRIAL_DO(trial, cuMemcpyDtoHAsync(buffers.down, span.address, bytes, trial->stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	TRIAL_DO(trial, cuMemHostUnregister(readable));
	if (!trial->code)
		wrong_count = count_wrong(buffers.down, bytes, 7);
	zi_text_set(found, "%s of a memfd, mapped PROT_READ, registered and copied to the GPU",
	            zi_format_bytes(bytes).chars);
	is_right = conclude(trial, wrong_count, found);
	buffers_drop(trial, &buffers);
	trial_drop(trial, &span);
	(void)munmap(writable, bytes); /* Mapped above, as is the next. */
	(void)munmap(readable, bytes);
	return is_right;
}

bool fact_read_only_memory_registers(struct trial *trial, struct zi_text *found)
{
	const uint64_t bytes = trial->sizes.chunk_bytes;
	int fd = memfd_create("gpu-trials", MFD_CLOEXEC);
	bool is_right;

	if (!trial->device.has_read_only_register) {
		zi_text_set(found, "the device does not say that it can (attribute 113 is 0)");
		(void)zi_close(fd);
		return false;
	}
	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		zi_text_set(found, "a memfd of %s: %s", zi_format_bytes(bytes).chars,
		            strerror(errno));
		(void)zi_close(fd);
		return false;
	}
	is_right = register_read_only(trial, fd, bytes, found);
	(void)zi_close(fd);
	return is_right;
}

bool fact_chunks_outlive_their_maker(struct trial *trial, struct zi_text *found)
{
	const uint64_t bytes = trial->sizes.chunk_bytes;
	struct trial_span mapped = { 0 }, late = { 0 };
	struct zi_cuda_event *event = NULL;
	struct buffers buffers = { 0 };
	uint64_t wrong_count = 0;
	int fds[2] = { -1, -1 };
	struct peer maker;
	bool is_right;

	if (maker_start(trial, &maker, found))
		return false;
	if (maker_make(&maker, bytes, 2, found, fds)) {
		(void)peer_kill(&maker); /* The first error says more. */
		return false;
	}
	trial_begin(trial);
	trial_import(trial, fds[0], bytes, &mapped);
	buffers_make(trial, bytes, &buffers);
	TRIAL_DO(trial, cuEventCreate(&event, ZI_CUDA_EVENT_NO_TIMING));
	wrong_count = round_trip(trial, &buffers, event, mapped.address, mapped.address, 1);
	(void)peer_kill(&maker); /* Nothing is left of it. */
	TRIAL_DO(trial,
	         cuMemcpyDtoHAsync(buffers.down, mapped.address, bytes, trial->other_stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->other_stream));
	if (!trial->code)
		wrong_count += count_wrong(buffers.down, bytes, 1);
	trial_import(trial, fds[1], bytes, &late);
	wrong_count += round_trip(trial, &buffers, event, late.address, late.address, 2);
	zi_text_set(found, "after SIGKILL a mapped chunk kept its bytes, and a descriptor that "
	                   "was not imported yet gave its memory");
	is_right = conclude(trial, wrong_count, found);
	buffers_drop(trial, &buffers);
	trial_drop(trial, &mapped);
	trial_drop(trial, &late);
	close_all(fds, 2);
	return is_right;
}

/* ---- memory that is made anew ---- */

/* Bytes of 8 that are not zero. */
static uint64_t count_dirty(struct trial *trial, const struct buffers *buffers,
                            const struct trial_span *span)
{
	const uint64_t *words = buffers->down;
	uint64_t dirty_count = 0;

	for (uint64_t first = 0; first < span->bytes && !trial->code; first += buffers->bytes) {
		const uint64_t bytes = ZI_MIN(buffers->bytes, span->bytes - first);

		TRIAL_DO(trial, cuMemcpyDtoHAsync(buffers->down, span->address + first, bytes,
		                                  trial->stream));
		TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
		for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
			dirty_count += words[i] != 0;
	}
	return dirty_count;
}

/* Memory is looked at, made dirty and released. Return: how many words were not zero. */
static uint64_t soil(struct trial *trial, const struct buffers *buffers, struct trial_span *span)
{
	uint64_t dirty_count = trial->code ? 0 : count_dirty(trial, buffers, span);

	TRIAL_DO(trial, cuMemsetD8Async(span->address, DIRT, span->bytes, trial->stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	trial_drop(trial, span);
	return dirty_count;
}

static bool soil_others(struct trial *trial, const struct buffers *buffers, uint64_t bytes,
                        struct zi_text *found, uint64_t *dirty_count)
{
	struct trial_span span = { 0 };
	struct peer maker;
	int fd = -1;
	int r = maker_start(trial, &maker, found);

	if (r)
		return false;
	r = maker_make(&maker, bytes, 1, found, &fd);
	if (!r) {
		trial_import(trial, fd, bytes, &span);
		*dirty_count += soil(trial, buffers, &span);
	}
	(void)zi_close(fd);
	(void)peer_kill(&maker); /* Its memory goes with it. */
	return !r;
}

bool fact_new_chunks_are_zero(struct trial *trial, struct zi_text *found)
{
	const uint64_t half_bytes = trial_free_bytes(trial) / 2;
	const uint64_t grain_bytes = trial->sizes.chunk_bytes;
	const uint64_t bytes =
		ZI_MIN(trial->sizes.memory_bytes, half_bytes) / grain_bytes * grain_bytes;
	struct buffers buffers = { 0 };
	struct trial_span span = { 0 };
	uint64_t dirty_count = 0;
	bool is_right = true;

	trial_begin(trial);
	buffers_make(trial, grain_bytes, &buffers);
	for (uint32_t round = 0; round < ZERO_ROUNDS && is_right && !trial->code; round++) {
		if (round % 2) {
			trial_make(trial, bytes, &span);
			dirty_count += soil(trial, &buffers, &span);
		} else {
			is_right = soil_others(trial, &buffers, bytes, found, &dirty_count);
		}
	}
	if (is_right) {
		zi_text_set(found,
		            "%s made, written and released %u times, in two processes in turns: "
		            "zero each time",
		            zi_format_bytes(bytes).chars, ZERO_ROUNDS);
		is_right = conclude(trial, dirty_count, found);
	}
	buffers_drop(trial, &buffers);
	return is_right;
}
