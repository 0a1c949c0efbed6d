/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the chunk ring share: units by their chunks, and drawn numbers. */
#pragma once

#include <criterion/criterion.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "tests/harness/ring_model.h"

#define CHUNK ZI_GPU_CHUNK_ALIGN_BYTES

/* The units of a model, each of whole chunks. Letters name them. */
struct scene {
	struct zi_gpu_unit list[RING_MODEL_UNITS_MAX];
	char names[RING_MODEL_UNITS_MAX][4];
	struct zi_gpu_units units;
};

static inline struct zi_gpu_units *scene_init(struct scene *scene, const uint32_t *chunks,
                                              uint32_t count)
{
	*scene = (struct scene){ .units = { .purpose = "parameters",
		                            .list = scene->list,
		                            .count = count,
		                            .neighbour_count = 1,
		                            .chunk_bytes = CHUNK } };
	for (uint32_t i = 0; i < count; i++) {
		scene->names[i][0] = (char)('a' + i);
		scene->list[i] =
			(struct zi_gpu_unit){ .name = scene->names[i], .bytes = chunks[i] * CHUNK };
	}
	return &scene->units;
}

/* A ring that must be made. */
static inline struct zi_gpu_ring *ring_of(const struct zi_gpu_units *units, uint32_t chunk_count)
{
	struct zi_gpu_ring *ring = NULL;
	struct zi_text text = { 0 };

	cr_assert_eq(zi_gpu_ring_new(units, chunk_count, &text, &ring), 0, "%s", text.chars);
	return ring;
}

/* For ring_model_act_param() and others: @source is the state. */
static inline uint32_t draw_number(void *source, uint32_t below)
{
	uint64_t *state = source;

	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33) % below;
}

/* Another sequence for each seed. */
static inline uint64_t draw_begin(uint64_t seed)
{
	return seed * 0x9e3779b97f4a7c15ull + 1;
}
