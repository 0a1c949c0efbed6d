/* SPDX-License-Identifier: Apache-2.0 */
/* How many chunks of GPU memory a model needs. Floor 1, pure, any thread. */
#include "common/gpu/need.h"

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/text.h"

uint64_t zi_gpu_unit_chunks(const struct zi_gpu_units *units, uint32_t unit)
{
	uint64_t bytes;

	assert(unit < units->count);
	bytes = units->list[unit].bytes;
	return bytes / units->chunk_bytes + (bytes % units->chunk_bytes != 0);
}

static int check_chunk_bytes(const struct zi_gpu_units *units, struct zi_text *text)
{
	uint64_t bytes = units->chunk_bytes;

	if (bytes && bytes % ZI_GPU_CHUNK_ALIGN_BYTES == 0 && bytes <= ZI_GPU_CHUNK_BYTES_MAX)
		return 0;
	return zi_text_error(text, err_origin(-EINVAL),
	                     "GPU memory for %s: a chunk has %llu bytes, but must be a multiple of "
	                     "%s, at most %s",
	                     units->purpose, (unsigned long long)bytes,
	                     zi_format_bytes(ZI_GPU_CHUNK_ALIGN_BYTES).chars,
	                     zi_format_bytes(ZI_GPU_CHUNK_BYTES_MAX).chars);
}

static int check_units(const struct zi_gpu_units *units, struct zi_text *text)
{
	if (!units->count || units->count > ZI_GPU_UNITS_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "GPU memory for %s: the model has %u units, but must have 1 "
		                     "to %u",
		                     units->purpose, units->count, ZI_GPU_UNITS_MAX);
	for (uint32_t i = 0; i < units->count; i++) {
		const struct zi_gpu_unit *unit = &units->list[i];

		if (!unit->bytes || unit->bytes > ZI_GPU_UNIT_BYTES_MAX)
			return zi_text_error(text, err_origin(-EINVAL),
			                     "GPU memory for %s: unit '%s' has %llu bytes, but "
			                     "must have 1 to %llu",
			                     units->purpose, unit->name,
			                     (unsigned long long)unit->bytes,
			                     (unsigned long long)ZI_GPU_UNIT_BYTES_MAX);
	}
	return 0;
}

/* Of all runs of `neighbour_count` units that follow one another, the one with most chunks. Units
 * apart are left out. Return: its chunks. */
static uint64_t most_of_neighbours(const struct zi_gpu_units *units, uint32_t *ret_unit)
{
	uint64_t sum = 0, most = 0;
	uint32_t first = 0, count = 0;

	*ret_unit = 0;
	for (uint32_t i = 0; i < units->count; i++) {
		if (units->list[i].is_apart)
			continue;
		sum += zi_gpu_unit_chunks(units, i);
		count++;
		for (; count > units->neighbour_count || units->list[first].is_apart; first++) {
			if (units->list[first].is_apart)
				continue;
			sum -= zi_gpu_unit_chunks(units, first);
			count--;
		}
		if (sum <= most)
			continue;
		most = sum;
		*ret_unit = first;
	}
	return most;
}

int zi_gpu_need(const struct zi_gpu_units *units, struct zi_text *text,
                struct zi_gpu_need *ret_need)
{
	struct zi_gpu_need need = { 0 };
	int r;

	assert(units->neighbour_count);
	r = check_chunk_bytes(units, text);
	if (!r)
		r = check_units(units, text);
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < units->count; i++) {
		uint64_t count = zi_gpu_unit_chunks(units, i);

		need.all_count += count;
		need.apart_count += units->list[i].is_apart ? count : 0;
	}
	need.least_count = need.apart_count + most_of_neighbours(units, &need.unit);
	assert(need.least_count && need.least_count <= need.all_count);
	*ret_need = need;
	return 0;
}

static int refuse(const struct zi_gpu_units *units, const struct zi_gpu_need *need,
                  uint32_t chunk_count, struct zi_text *text)
{
	uint64_t most_count = need->least_count - need->apart_count;

	if (!text)
		return err_origin(-ENOSPC);
	zi_text_set(text,
	            "GPU memory for %s: raise the budget from %s (%u chunks) to at least %s (%llu "
	            "chunks)",
	            units->purpose, zi_format_bytes(chunk_count * units->chunk_bytes).chars,
	            chunk_count, zi_format_bytes(need->least_count * units->chunk_bytes).chars,
	            (unsigned long long)need->least_count);
	if (most_count && units->neighbour_count == 1)
		zi_text_append(text, ", %llu for unit '%s'", (unsigned long long)most_count,
		               units->list[need->unit].name);
	else if (most_count)
		zi_text_append(text, ", %llu for the %u units from '%s' on",
		               (unsigned long long)most_count, units->neighbour_count,
		               units->list[need->unit].name);
	if (need->apart_count)
		zi_text_append(text, ", %llu for units in use beside others",
		               (unsigned long long)need->apart_count);
	return err_origin(-ENOSPC);
}

int zi_gpu_need_check(const struct zi_gpu_units *units, const struct zi_gpu_need *need,
                      uint32_t chunk_count, struct zi_text *text)
{
	if (!chunk_count || chunk_count > ZI_GPU_CHUNKS_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "GPU memory for %s: the arena has %u chunks, but must have 1 "
		                     "to %u",
		                     units->purpose, chunk_count, ZI_GPU_CHUNKS_MAX);
	if (chunk_count < need->least_count)
		return err_trace(refuse(units, need, chunk_count, text));
	return 0;
}
