/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much GPU memory a rank takes, and in chunks of which size. Floor 2, pure, any thread.
 *
 * Chunks are as small as 1024 of them allow, since each unit wastes half of one on average.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_gpu_units;
struct zi_text;

struct zi_gpu_wish {
	uint64_t param_budget_bytes; /* 0: as much as all units need, or what there is room for */
	uint64_t grad_budget_bytes;  /* 0: two of the largest unit; with is_adding all of them */
	uint64_t granularity_bytes;  /* of chunks, a multiple of ZI_GPU_CHUNK_ALIGN_BYTES */
	uint64_t free_bytes;         /* that the rank may get */
	uint32_t micro_batches;      /* whose gradients the rank adds up before a reduction */
	const char *device;          /* for messages */
};

struct zi_gpu_budget {
	uint64_t chunk_bytes;
	uint32_t param_count, grad_count; /* chunks */
};

/*
 * @params, @grads: chunk_bytes is set here, to what was chosen. @grads: NULL: the rank has no
 * gradients.
 * Return: 0; -ENOSPC a budget, or the room, is below the least, with figures in @text; -EINVAL as
 * zi_gpu_need().
 */
int zi_gpu_budget_choose(const struct zi_gpu_wish *wish, struct zi_gpu_units *params,
                         struct zi_gpu_units *grads, struct zi_text *text,
                         struct zi_gpu_budget *ret_budget);
