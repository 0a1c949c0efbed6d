/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of CPU memory; see pin.h. The thread writes its counts of pieces and nothing else;
 * the rank's thread reads them. Floor 2. */
#include "libclient/gpu/pin.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/gpu/cuda.h"
#include "common/wire/layout.h"
#include "common/wire/region.h"

/* pins->lines. */
enum { LINE_STOP, LINE_PIECES };

int zi_gpu_pins_add(struct zi_gpu_pins *pins, int fd, void *base, uint64_t bytes, bool is_read_only,
                    uint32_t *ret_index)
{
	struct zi_gpu_pin *pin = &pins->list[pins->count];
	int r = fd < 0 ? 0 : zi_region_map(fd, bytes, !is_read_only, &base);

	assert(pins->count < ZI_GPU_PINS_MAX);
	assert(!pins->lines);
	if (r)
		return err_trace(r);
	*pin = (struct zi_gpu_pin){
		.base = base,
		.bytes = bytes,
		.is_read_only = is_read_only,
		.is_own = fd >= 0,
	};
	*ret_index = pins->count++;
	return 0;
}

/* ---- the thread ---- */

static uint64_t piece_bytes(const struct zi_gpu_pins *pins, const struct zi_gpu_pin *pin,
                            uint32_t piece)
{
	uint64_t first_bytes = piece * pins->piece_bytes;

	return first_bytes < pin->bytes ? ZI_MIN(pins->piece_bytes, pin->bytes - first_bytes) : 0;
}

/* Return: false: nothing more of this memory. */
static bool pin_piece(const struct zi_gpu_pins *pins, const struct zi_gpu_pin *pin, uint32_t piece)
{
	uint64_t bytes = piece_bytes(pins, pin, piece);
	uint32_t flags =
		ZI_CUDA_REGISTER_PORTABLE | (pin->is_read_only ? ZI_CUDA_REGISTER_READ_ONLY : 0);

	if (!bytes || zi_line_load(pin->piece_count) != piece)
		return false;
	/* Copies go through other memory then: slower, and no failure. */
	if (pins->cuda->cuMemHostRegister(pin->base + piece * pins->piece_bytes, bytes, flags))
		return false;
	zi_line_store(pin->piece_count, piece + 1); /* pairs with zi_gpu_pins_reach() */
	return true;
}

/* A piece of each memory in turn: the first units of all, then the next. */
static int pin_main(void *arg)
{
	struct zi_gpu_pins *pins = arg;
	bool goes_on = true;

	if (pins->cuda->cuCtxSetCurrent(pins->context))
		return 0; /* Nothing is registered. */
	for (uint32_t piece = 0; goes_on; piece++) {
		goes_on = false;
		for (uint32_t i = 0; i < pins->count; i++) {
			if (zi_line_load(&pins->lines[LINE_STOP]))
				return 0;
			goes_on |= pin_piece(pins, &pins->list[i], piece);
		}
	}
	return 0;
}

/* ---- the rank's thread ---- */

int zi_gpu_pins_start(struct zi_gpu_pins *pins, const struct zi_cuda *cuda,
                      struct zi_cuda_context *context)
{
	size_t bytes = (LINE_PIECES + ZI_GPU_PINS_MAX) * sizeof(*pins->lines);

	assert(!pins->lines);
	pins->lines = aligned_alloc(ZI_LINE_BYTES, bytes);
	if (!pins->lines)
		return err_origin(-ENOMEM);
	memset(pins->lines, 0, bytes);
	pins->cuda = cuda;
	pins->context = context;
	if (!pins->piece_bytes)
		pins->piece_bytes = ZI_GPU_PIECE_BYTES;
	for (uint32_t i = 0; i < pins->count; i++)
		pins->list[i].piece_count = &pins->lines[LINE_PIECES + i];
	return err_trace(zi_thread_start(&pins->thread, "zinf-pin", pin_main, pins));
}

static uint64_t pinned_bytes(const struct zi_gpu_pins *pins, const struct zi_gpu_pin *pin)
{
	if (!pin->piece_count)
		return 0;
	/* pairs with pin_piece() */
	return ZI_MIN(zi_line_load(pin->piece_count) * pins->piece_bytes, pin->bytes);
}

uint64_t zi_gpu_pins_reach(const struct zi_gpu_pins *pins, const void *address, uint64_t bytes,
                           bool *ret_is_pinned)
{
	const struct zi_gpu_pin *pin = pins->list;
	uint64_t offset_bytes, done_bytes;

	while ((const char *)address < pin->base ||
	       (const char *)address >= pin->base + pin->bytes) {
		pin++;
		assert(pin < pins->list + pins->count);
	}
	offset_bytes = (uint64_t)((const char *)address - pin->base);
	assert(bytes <= pin->bytes - offset_bytes);
	done_bytes = pinned_bytes(pins, pin);
	*ret_is_pinned = offset_bytes < done_bytes;
	if (!*ret_is_pinned)
		return bytes;
	return ZI_MIN(bytes, pins->piece_bytes - offset_bytes % pins->piece_bytes);
}

uint64_t zi_gpu_pins_bytes(const struct zi_gpu_pins *pins)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < pins->count; i++)
		bytes += pinned_bytes(pins, &pins->list[i]);
	return bytes;
}

void zi_gpu_pins_stop(struct zi_gpu_pins *pins)
{
	if (pins->lines)
		zi_line_store(&pins->lines[LINE_STOP], 1); /* pairs with pin_main() */
	(void)zi_thread_join(&pins->thread);               /* It returns 0. */
	for (uint32_t i = 0; i < pins->count; i++) {
		struct zi_gpu_pin *pin = &pins->list[i];
		uint32_t count = pin->piece_count ? zi_line_load(pin->piece_count) : 0;

		/* What the driver does not give back goes with the process. */
		while (count--)
			(void)pins->cuda->cuMemHostUnregister(pin->base +
			                                      count * pins->piece_bytes);
		if (pin->is_own)
			(void)zi_region_unmap(pin->base, pin->bytes); /* Asserts inside. */
	}
	free(pins->lines);
	*pins = (struct zi_gpu_pins){ 0 };
}
