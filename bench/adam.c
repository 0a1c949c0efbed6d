/* SPDX-License-Identifier: Apache-2.0 */
/* Training state that suites run steps on; see adam.h. */
#include "bench/adam.h"

#include <string.h>
#include <sys/mman.h>

#include "kernels/cast.h"

uint64_t adam_element_bytes(const struct adam_case *kind)
{
	uint64_t width = zi_dtype_bytes(kind->dtype);
	uint64_t state = zi_state_element_bytes(ZI_OPTIMIZER_ADAMW, kind->dtype);
	uint64_t copy = kind->has_copy ? width : 0;

	return 2 * (width + state) + kind->rank_count * width + copy;
}

uint64_t adam_state_tile_bytes(const struct adam_case *kind)
{
	return ZI_TILE_ELEMENTS * (uint64_t)zi_state_element_bytes(ZI_OPTIMIZER_ADAMW, kind->dtype);
}

void adam_tile(const struct adam_work *work, uint64_t tile, struct kern_optim_hashes *ret_hashes)
{
	uint64_t offset = adam_plane_offset(work, tile);
	uint64_t remainder_bytes = ZI_TILE_ELEMENTS * zi_remainder_bytes(work->kind->dtype);
	char *state = adam_state_tile(work, tile);
	const void *grads[ADAM_RANKS_MAX] = { work->grads[0] + offset, work->grads[1] + offset };
	struct kern_optim_run run = {
		.param = work->param + offset,
		.param_copy = work->kind->has_copy ? work->copy + offset : NULL,
		.remainder = remainder_bytes ? state : NULL,
		.exp_avg = (float *)(state + remainder_bytes),
		.exp_avg_sq = (float *)(state + remainder_bytes) + ZI_TILE_ELEMENTS,
		.grads = grads,
		.rank_count = work->kind->rank_count,
		.is_reduced = work->kind->is_reduced,
		.element_count = ZI_TILE_ELEMENTS,
		.param_dtype = work->kind->dtype,
		.grad_dtype = work->kind->dtype,
	};

	if (ret_hashes)
		kern_optim_step_hashed(&run, &work->scalars, ret_hashes);
	else
		kern_optim_step(&run, &work->scalars);
}

void adam_member(void *arg, unsigned member, unsigned member_count)
{
	for (uint64_t tile = adam_share(ADAM_TILES, member, member_count);
	     tile < adam_share(ADAM_TILES, member + 1, member_count); tile++)
		adam_tile(arg, tile, NULL);
}

/* Ordinary numbers everywhere: denormals and infinities would time something else. */
static void adam_fill_tile(const struct adam_work *work, uint64_t tile)
{
	bool is_bf16 = work->kind->dtype == ZI_DTYPE_BF16;
	uint64_t offset = adam_plane_offset(work, tile);
	uint64_t remainder_bytes = is_bf16 ? ZI_TILE_ELEMENTS * sizeof(int16_t) : 0;
	char *state = adam_state_tile(work, tile);
	float *exp_avg = (float *)(state + remainder_bytes);
	float values[ZI_TILE_ELEMENTS];
	uint32_t random = (uint32_t)tile * 2654435761u + 1u;

	for (uint32_t i = 0; i < ZI_TILE_ELEMENTS; i++) {
		random = random * 1664525u + 1013904223u; /* Numerical Recipes' generator */
		values[i] = (float)(int32_t)random * 0x1p-35f;
		exp_avg[i] = values[i] * 0.125f;
		exp_avg[ZI_TILE_ELEMENTS + i] = values[i] * values[i] + 1e-6f;
		if (is_bf16)
			((int16_t *)state)[i] = (int16_t)(random >> 20);
	}
	kern_narrow(work->param + offset, values, ZI_TILE_ELEMENTS, work->kind->dtype);
	if (work->kind->has_copy)
		memcpy(work->copy + offset, work->param + offset,
		       ZI_TILE_ELEMENTS * zi_dtype_bytes(work->kind->dtype));
	for (uint32_t rank = 0; rank < work->kind->rank_count; rank++)
		kern_narrow(work->grads[rank] + offset, values, ZI_TILE_ELEMENTS,
		            work->kind->dtype);
}

void adam_fill_member(void *arg, unsigned member, unsigned member_count)
{
	for (uint64_t tile = adam_share(ADAM_TILES, member, member_count);
	     tile < adam_share(ADAM_TILES, member + 1, member_count); tile++)
		adam_fill_tile(arg, tile);
}

void adam_work_init(struct adam_work *ret_work, const struct adam_case *kind, char *memory)
{
	struct kern_hyper hyper = {
		.optimizer = ZI_OPTIMIZER_ADAMW,
		.lr = 1e-4,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.weight_decay = 0.01,
		.beta1_power = 0.9 * 0.9,
		.beta2_power = 0.999 * 0.999,
		.average = kind->is_reduced ? 1.0f : 1.0f / (float)kind->rank_count,
		.unscale = 1.0f,
		.clip = 1.0f,
	};
	uint64_t plane_bytes = ADAM_ELEMENTS * zi_dtype_bytes(kind->dtype);

	*ret_work = (struct adam_work){
		.kind = kind,
		.param = memory,
		.grads = { memory + plane_bytes, memory + plane_bytes },
		.state = memory + (1 + kind->rank_count) * plane_bytes,
	};
	if (kind->rank_count == 2)
		ret_work->grads[1] = memory + 2 * plane_bytes;
	ret_work->copy = ret_work->state +
	                 ADAM_ELEMENTS * zi_state_element_bytes(ZI_OPTIMIZER_ADAMW, kind->dtype);
	kern_optim_prepare(&ret_work->scalars, &hyper);
}

void *adam_map_huge(uint64_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	(void)madvise(memory, bytes, MADV_HUGEPAGE); /* without: slower, and both alike */
	return memory;
}
