/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: a store's free space under claims that a damaged catalog could make, allocations and
 * releases, beside a table of bytes that says for each block who has it.
 */
#include "nvme/nvme.h"
#include "tests/fuzz/fuzz.h"

#define BLOCKS_MAX  512u
#define EXTENTS_MAX 128u

struct model {
	struct nvme_space *space;
	uint64_t block_count, free_count;
	uint8_t is_used[BLOCKS_MAX];
	struct zi_extent extents[EXTENTS_MAX];
	uint32_t extent_count;
};

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	return 0;
}

/* Whether every block of a whole run is free; false for what is no run of this store. */
static int is_free_run(const struct model *model, const struct zi_extent *extent)
{
	uint64_t first = extent->offset_bytes / ZI_STORE_ALIGN_BYTES;
	uint64_t count = extent->bytes / ZI_STORE_ALIGN_BYTES;

	if (extent->offset_bytes % ZI_STORE_ALIGN_BYTES || extent->bytes % ZI_STORE_ALIGN_BYTES ||
	    !count || first >= model->block_count || count > model->block_count - first)
		return 0;
	for (uint64_t i = 0; i < count; i++)
		if (model->is_used[first + i])
			return 0;
	return 1;
}

static void mark(struct model *model, const struct zi_extent *extent, uint8_t is_used)
{
	uint64_t first = extent->offset_bytes / ZI_STORE_ALIGN_BYTES;
	uint64_t count = extent->bytes / ZI_STORE_ALIGN_BYTES;

	memset(model->is_used + first, is_used, count);
	model->free_count += is_used ? -count : count;
}

/* Keeps it to be released some day; what finds no place stays taken. */
static void keep(struct model *model, const struct zi_extent *extent)
{
	mark(model, extent, 1);
	if (model->extent_count < EXTENTS_MAX)
		model->extents[model->extent_count++] = *extent;
}

static void claim(struct model *model, struct fuzz_input *input)
{
	struct zi_extent extent;
	int r;

	if (fuzz_u8(input) % 2) {
		extent.offset_bytes = fuzz_u64(input);
		extent.bytes = fuzz_u64(input);
	} else {
		extent.offset_bytes = (uint64_t)fuzz_u8(input) * 2 * ZI_STORE_ALIGN_BYTES;
		extent.bytes = (uint64_t)(fuzz_u8(input) % 16) * ZI_STORE_ALIGN_BYTES;
	}
	r = nvme_space_claim(model->space, &extent);
	if (!extent.bytes)
		fuzz_check(!r, "nothing was claimed, and refused");
	else
		fuzz_check((r == 0) == is_free_run(model, &extent), "a claim");
	if (!r && extent.bytes)
		keep(model, &extent);
}

static void allocate(struct model *model, struct fuzz_input *input)
{
	uint64_t bytes = (uint64_t)(fuzz_u8(input) % 64) * ZI_STORE_ALIGN_BYTES;
	struct zi_extent extent;
	int r = nvme_space_allocate(model->space, bytes, &extent);

	fuzz_check(r == 0 || r == NVME_E_FULL, "an allocation");
	if (r == NVME_E_FULL) {
		for (uint64_t i = 0; i < model->block_count; i++) {
			extent.offset_bytes = i * ZI_STORE_ALIGN_BYTES;
			extent.bytes = bytes;
			fuzz_check(!is_free_run(model, &extent), "a run was not found");
		}
		return;
	}
	if (!bytes)
		return;
	fuzz_check(extent.bytes == bytes && is_free_run(model, &extent), "a run in use");
	keep(model, &extent);
}

static void release(struct model *model, struct fuzz_input *input)
{
	uint32_t index;

	if (!model->extent_count)
		return;
	index = fuzz_u8(input) % model->extent_count;
	nvme_space_release(model->space, &model->extents[index]);
	mark(model, &model->extents[index], 0);
	model->extents[index] = model->extents[--model->extent_count];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static void (*const actions[])(struct model * model,
	                               struct fuzz_input * input) = { claim, allocate, release };
	struct fuzz_input input = { bytes, byte_count };
	struct model model = { 0 };
	uint64_t store_bytes;

	model.block_count = 1 + (uint64_t)fuzz_u8(&input) * 2;
	/* A last part of a block counts for nothing. */
	store_bytes = model.block_count * ZI_STORE_ALIGN_BYTES + fuzz_u8(&input);
	if (nvme_space_new(store_bytes, &model.space)) {
		fuzz_check(model.block_count == 1, "a space");
		return 0;
	}
	model.is_used[0] = 1; /* The superblock. */
	model.free_count = model.block_count - 1;
	while (input.byte_count) {
		actions[fuzz_u8(&input) % 3](&model, &input);
		fuzz_check(nvme_space_free_bytes(model.space) ==
		                   model.free_count * ZI_STORE_ALIGN_BYTES,
		           "free bytes");
	}
	model.space = nvme_space_free(model.space);
	return 0;
}
