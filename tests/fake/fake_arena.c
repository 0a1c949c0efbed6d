/* SPDX-License-Identifier: Apache-2.0 */
/* The test double of zinfd: GPU memory, which the fake driver (tests/gpu/) takes for its own by the
 * name of the memfd; and steps, so that values change. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/wire/gpu.h"
#include "tests/fake/fake_private.h"

#define GRANULARITY_BYTES (2ull << 20)
/* Of an arena, in replies of as many descriptors as a message has, or fewer. */
#define CHUNKS_A_REPLY 5u

void fake_gpu_open(struct fake_daemon *fake)
{
	const struct zi_gpu_open *request = (struct zi_gpu_open *)fake->message;
	struct zi_gpu_opened told[2] = { { .granularity_bytes = GRANULARITY_BYTES,
		                           .capacity_bytes = 1ull << 40,
		                           .free_bytes = fake->options.gpu_bytes,
		                           .chunk_bytes = request->chunk_bytes,
		                           .param_chunk_count = request->param_chunk_count,
		                           .grad_chunk_count = request->grad_chunk_count } };
	uint64_t count = (uint64_t)request->param_chunk_count + request->grad_chunk_count;

	if (!fake->options.gpu_bytes) {
		fake_reply_error(fake, -ENODEV, "zinfd has no such GPU");
		return;
	}
	if (count * request->chunk_bytes > fake->options.gpu_bytes) {
		fake_reply_error(fake, -ENOSPC, "the GPU has no room");
		return;
	}
	if (request->chunk_bytes) {
		must(!fake->arena.chunk_bytes);
		fake->arena = *told;
	}
	if (fake->options.lie == FAKE_LIE_GPU_FIGURES)
		told->granularity_bytes = 4096;
	if (fake->options.lie == FAKE_LIE_GPU_COUNTS && request->chunk_bytes)
		told->param_chunk_count++;
	fake_reply(fake, told, ZI_MESSAGE_GPU_OPENED, sizeof(*told), NULL, 0);
}

static int make_chunk(uint64_t bytes)
{
	int fd = memfd_create("zinf-FAKE-gpu-0", MFD_CLOEXEC);

	must(fd >= 0);
	must(ftruncate(fd, (off_t)bytes) == 0);
	return fd;
}

void fake_gpu_chunks(struct fake_daemon *fake)
{
	const struct zi_gpu_chunks *request = (struct zi_gpu_chunks *)fake->message;
	uint32_t all_count = fake->arena.param_chunk_count + fake->arena.grad_chunk_count;
	uint32_t count = ZI_MIN(all_count - request->first, CHUNKS_A_REPLY);
	struct zi_gpu_chunks told[2] = { { .first = request->first, .count = count } };
	int fds[ZI_MESSAGE_FDS_MAX] = { 0 };

	must(request->first < all_count);
	if (fake->options.lie == FAKE_LIE_GPU_ORDER && request->first)
		told->first--;
	if (fake->options.lie == FAKE_LIE_GPU_MORE && count < CHUNKS_A_REPLY)
		told->count = ++count;
	for (uint32_t i = 0; i < count; i++)
		fds[i] = make_chunk(fake->arena.chunk_bytes);
	fake_reply(fake, told, ZI_MESSAGE_GPU_CHUNKS, sizeof(*told), fds, count);
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

/* ---- steps ---- */

static float *values_of(const struct fake_daemon *fake, uint32_t unit)
{
	return fake->values + fake_plane_offset(fake, unit) / sizeof(float);
}

void fake_steps_init(struct fake_daemon *fake, uint64_t bytes)
{
	free(fake->values);
	free(fake->sums);
	fake->values = malloc(bytes);
	fake->sums = calloc(1, bytes);
	must(fake->values && fake->sums);
	for (uint64_t i = 0; i < bytes / sizeof(float); i++)
		fake->values[i] = fake_value(i);
	if (!fake_is_pooled(fake))
		memcpy(fake->param.base, fake->values, bytes);
}

void fake_steps_deinit(struct fake_daemon *fake)
{
	free(fake->values);
	free(fake->sums);
	fake->values = fake->sums = NULL;
}

/* A half of the pool that no unit has, with the values of @unit. */
uint64_t fake_steps_place(struct fake_daemon *fake, uint32_t unit)
{
	uint64_t half_bytes = fake->param.bytes / 2;
	uint32_t half = fake->is_half_taken[0];

	must(!fake->is_half_taken[half]); /* or the rank holds a third unit */
	fake->is_half_taken[half] = true;
	fake->half_units[half] = unit;
	memcpy((char *)fake->param.base + half * half_bytes, values_of(fake, unit),
	       fake_unit_bytes(fake, unit));
	return half * half_bytes;
}

/* RESHARD: what lies there is another's. */
void fake_steps_free(struct fake_daemon *fake, uint32_t unit)
{
	for (uint32_t half = 0; half < 2; half++) {
		if (!fake->is_half_taken[half] || fake->half_units[half] != unit)
			continue;
		fake->is_half_taken[half] = false;
		memset((char *)fake->param.base + half * (fake->param.bytes / 2), 0xff,
		       fake_unit_bytes(fake, unit));
	}
}

/* REDUCE: the gradient as it is now. */
void fake_steps_add(struct fake_daemon *fake, uint32_t unit)
{
	uint64_t offset_bytes =
		fake->options.has_buckets ? fake->buckets[unit] : fake_plane_offset(fake, unit);
	float *grads = (float *)((char *)fake->grad.base + offset_bytes);
	float *sums = fake->sums + fake_plane_offset(fake, unit) / sizeof(float);

	for (uint64_t i = 0; i < fake->unit_elements[unit]; i++) {
		sums[i] += grads[i];
		grads[i] = 1e30f; /* The buffer is the daemon's. */
	}
}

/* STEP: parameters less their gradients. */
void fake_steps_apply(struct fake_daemon *fake)
{
	uint64_t count = fake_plane_offset(fake, fake->unit_count) / sizeof(float);

	for (uint64_t i = 0; i < count; i++) {
		fake->values[i] -= fake->sums[i];
		fake->sums[i] = 0;
	}
	if (!fake_is_pooled(fake))
		memcpy(fake->param.base, fake->values, count * sizeof(float));
}

const float *fake_daemon_values(const struct fake_daemon *fake, uint32_t unit)
{
	return values_of(fake, unit);
}
