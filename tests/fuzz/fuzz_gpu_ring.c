/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the chunk ring of a GPU arena, under any units, arena and sequence of demands,
 * copies, prefetches, ends and work of streams, beside a model that knows what each chunk holds.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/harness/ring_model.h"

#define ACTIONS_MAX 600u

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

static uint32_t draw(void *source, uint32_t below)
{
	return fuzz_u8(source) % below;
}

/* Sizes of any kind: what no arena can have is refused, and makes no ring. */
static void take_sizes(struct fuzz_input *input)
{
	struct zi_gpu_unit list[8];
	struct zi_gpu_units units = { .purpose = "parameters", .list = list };
	struct zi_gpu_need need = { 0 };
	struct zi_gpu_ring *ring = NULL;
	uint32_t chunk_count = fuzz_u32(input);

	units.count = fuzz_u8(input) % 9;
	units.neighbour_count = 1 + fuzz_u8(input) % 9;
	units.chunk_bytes =
		fuzz_u8(input) % 2 ? fuzz_u64(input) : fuzz_u8(input) * ZI_GPU_CHUNK_ALIGN_BYTES;
	for (uint32_t i = 0; i < units.count; i++)
		list[i] = (struct zi_gpu_unit){ .name = "unit",
			                        .bytes = fuzz_u64(input),
			                        .is_apart = fuzz_u8(input) % 4 == 0 };
	if (!zi_gpu_need(&units, NULL, &need))
		fuzz_check(need.apart_count <= need.least_count &&
		                   need.least_count <= need.all_count,
		           "the need");
	if (zi_gpu_ring_new(&units, chunk_count, NULL, &ring))
		return;
	fuzz_check(need.least_count && need.least_count <= chunk_count, "an arena below the need");
	(void)zi_gpu_ring_free(ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };
	struct zi_gpu_unit list[16] = { 0 };
	struct zi_gpu_units units = { .purpose = "parameters",
		                      .list = list,
		                      .chunk_bytes = ZI_GPU_CHUNK_ALIGN_BYTES };
	struct zi_gpu_need need;
	struct ring_model model;
	uint8_t kind = fuzz_u8(&input);

	if (kind % 8 == 7) {
		take_sizes(&input);
		return 0;
	}
	units.count = 1 + fuzz_u8(&input) % 16;
	units.neighbour_count = 1 + fuzz_u8(&input) % 4;
	for (uint32_t i = 0; i < units.count; i++) {
		uint8_t shape = fuzz_u8(&input);

		list[i] = (struct zi_gpu_unit){ .name = "unit",
			                        .bytes = (1 + shape % 4) * units.chunk_bytes,
			                        .is_apart = shape / 4 % 8 == 7 };
	}
	fuzz_check(!zi_gpu_need(&units, NULL, &need), "sizes that are sound");
	fuzz_check(
		!ring_model_init(&model, &units, (uint32_t)need.least_count + fuzz_u8(&input) % 32),
		"an arena that suffices");
	if (kind % 8 == 6)
		ring_model_cycle(&model);
	for (uint32_t i = 0; i < ACTIONS_MAX && input.byte_count; i++) {
		if (kind % 2)
			ring_model_act_grad(&model, draw, &input);
		else
			ring_model_act_param(&model, draw, &input);
		fuzz_check(!model.failure[0], model.failure);
	}
	ring_model_drain(&model);
	fuzz_check(!model.failure[0], model.failure);
	ring_model_deinit(&model);
	return 0;
}
