/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the kernels of layers.cu, thread by thread, give the bits of loops over the element
 * functions. Method: layers.cu compiled as C++, its threads as threads of the CPU
 * (tests/gpu/threads); each kernel and the fake driver's loop for it run over copies of the same
 * memory, which must be the same afterwards, what lies beside the outputs included.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/element/kernels.h"
#include "tests/gpu/kernels.h"
#include "tests/gpu/threads/fake_threads.h"
#include "tests/unit/gpt/difference.h"

/* Not multiples of anything; ROWS: three tiles of a kernel over columns. */
enum { C = 37, T = 7, B = 3, N = T * B, V = 256, H = 2, ROWS = 300 };
enum { MEMORY_FLOATS = 60000, ELEMENT_GRID = 3, ROW_GRID = 2 };

struct place {
	float *memory;
	uint64_t used_count;
};

static float *take(struct place *place, uint64_t count)
{
	float *taken = place->memory + place->used_count;

	place->used_count += count;
	cr_assert_leq(place->used_count, MEMORY_FLOATS);
	return taken;
}

static uint16_t *take_halves(struct place *place, uint64_t count)
{
	uint16_t *taken = (uint16_t *)take(place, (count + 1) / 2);

	for (uint64_t i = 0; i < count; i++)
		taken[i] = gpt_bf16_round((float)((int)(i % 23) - 11) * 0.37f);
	return taken;
}

static uint8_t *take_tokens(struct place *place, uint64_t count)
{
	uint8_t *taken = (uint8_t *)take(place, (count + 3) / 4);

	for (uint64_t i = 0; i < count; i++)
		taken[i] = (uint8_t)(i * i % 5 * 60);
	return taken;
}

#define MAKE(name) static void make_##name(struct place *p, struct gpt_##name##_args *args)

MAKE(add)
{
	*args = (struct gpt_add_args){ N * C, take(p, N * C), take(p, N * C), take(p, N * C) };
}

MAKE(fill_rows)
{
	*args = (struct gpt_fill_rows_args){ N * C, C, take(p, C), take(p, N * C) };
}

MAKE(widen)
{
	*args = (struct gpt_widen_args){ N * C, take_halves(p, N * C), take(p, N * C) };
}

MAKE(narrow)
{
	*args = (struct gpt_narrow_args){ N * C, take(p, N * C), take_halves(p, N * C), 1, 0 };
}

MAKE(gelu_forward)
{
	*args = (struct gpt_gelu_forward_args){ N * C, take(p, N * C), take(p, N * C) };
}

MAKE(gelu_backward)
{
	*args = (struct gpt_gelu_backward_args){ N * C, take(p, N * C), take(p, N * C),
		                                 take(p, N * C) };
}

MAKE(embedding_forward)
{
	*args = (struct gpt_embedding_forward_args){ .count = N * C,
		                                     .channels = C,
		                                     .sequence = T,
		                                     .tokens = take_tokens(p, N),
		                                     .wte = take_halves(p, V * C),
		                                     .wpe = take_halves(p, T * C),
		                                     .out = take(p, N * C),
		                                     .is_bf16 = 1 };
}

MAKE(token_grads)
{
	*args = (struct gpt_token_grads_args){ .count = V * C,
		                               .channels = C,
		                               .rows = N,
		                               .tokens = take_tokens(p, N),
		                               .dout = take(p, N * C),
		                               .dwte = take(p, V * C),
		                               .is_adding = 1 };
}

MAKE(position_grads)
{
	*args = (struct gpt_position_grads_args){ T * C, B, take(p, N * C), take(p, T * C), 0, 0 };
}

MAKE(loss_grad)
{
	*args = (struct gpt_loss_grad_args){ N * V, V, take_tokens(p, N), take(p, N * V), 0.3f, 0 };
}

MAKE(head_pointers)
{
	*args = (struct gpt_head_pointers_args){
		.count = 4 * GPT_HEAD_MATRICES * B * H,
		.heads = H,
		.sequences = B,
		.matrices = { { 1000, 700, 50, 3 }, { 20000, 11, 1, 0 }, { 300000, 5, 7, 9 } },
		.pointers = (uint64_t *)take(p, 2 * 4 * GPT_HEAD_MATRICES * B * H),
	};
}

MAKE(norm_forward)
{
	*args = (struct gpt_norm_forward_args){
		N, C, take(p, N * C), take(p, C), take(p, C), take(p, 2 * N), take(p, N * C)
	};
}

MAKE(norm_backward)
{
	*args = (struct gpt_norm_backward_args){
		N, C, take(p, N * C), take(p, C), take(p, 2 * N), take(p, N * C), take(p, N * C)
	};
}

MAKE(loss)
{
	*args = (struct gpt_loss_args){ N, V, take_tokens(p, N), take(p, N * V),
		                        (struct gpt_loss_mark *)take(p, 3 * N) };
}

MAKE(causal_softmax)
{
	*args = (struct gpt_causal_softmax_args){ H * C, C, take(p, H * C * C) };
}

MAKE(causal_softmax_backward)
{
	*args = (struct gpt_causal_softmax_backward_args){ H * C, C, take(p, H * C * C),
		                                           take(p, H * C * C) };
}

MAKE(column_sums)
{
	*args = (struct gpt_column_sums_args){ C, ROWS, take(p, ROWS * C), take(p, C), 1, 0 };
}

MAKE(norm_columns)
{
	*args = (struct gpt_norm_columns_args){ .count = C,
		                                .rows = ROWS,
		                                .in = take(p, ROWS * C),
		                                .stats = take(p, 2 * ROWS),
		                                .dout = take(p, ROWS * C),
		                                .dweight = take(p, C),
		                                .dbias = take(p, C) };
}

/* Of layers.cu. */
#define DECLARE(name)                                                \
	void gpt_kernel_##name(const struct gpt_##name##_args args); \
	static void call_##name(const void *args)                    \
	{                                                            \
		const struct gpt_##name##_args *words = args;        \
                                                                     \
		gpt_kernel_##name(*words);                           \
	}
GPT_KERNELS(DECLARE)

static void expect_equal_memory(const struct place *loop, const struct place *kernel,
                                const char *name)
{
	cr_assert_eq(loop->used_count, kernel->used_count);
	for (uint64_t i = 0; i < MEMORY_FLOATS; i++)
		cr_assert_eq(memcmp(&loop->memory[i], &kernel->memory[i], sizeof(float)), 0,
		             "%s, word %llu: %.9g by the loop, %.9g by the kernel", name,
		             (unsigned long long)i, (double)loop->memory[i],
		             (double)kernel->memory[i]);
}

/* Both begin with the same numbers. */
static struct place place_new(void)
{
	struct place place = { malloc(MEMORY_FLOATS * sizeof(float)), 0 };

	cr_assert(place.memory);
	fill_normal(place.memory, MEMORY_FLOATS, 3, 1.0);
	return place;
}

#define CHECK(name, grid, ...)                                                          \
	Test(gpu_kernels, name)                                                         \
	{                                                                               \
		struct place loop = place_new(), kernel = place_new();                  \
		struct gpt_##name##_args of_loop, of_kernel;                            \
		void *const parameters[] = { &of_loop };                                \
                                                                                        \
		make_##name(&loop, &of_loop);                                           \
		make_##name(&kernel, &of_kernel);                                       \
		fake_gpt_kernels[GPT_KERNEL_##name].run(NULL, parameters);              \
		fake_grid_run((grid), (struct fake_dim){ __VA_ARGS__, 1 }, call_##name, \
		              &of_kernel);                                              \
		expect_equal_memory(&loop, &kernel, #name);                             \
		free(loop.memory);                                                      \
		free(kernel.memory);                                                    \
	}
#define CHECK_ELEMENTS(name) CHECK(name, ELEMENT_GRID, 48, 1)
#define CHECK_ROWS(name)     CHECK(name, ROW_GRID, 64, 1)
/* As device.c launches them. */
#define CHECK_COLUMNS(name) CHECK(name, (C + 31) / 32, 32, 16)
GPT_KERNELS_OF_ELEMENTS(CHECK_ELEMENTS)
GPT_KERNELS_OF_ROWS(CHECK_ROWS)
GPT_KERNELS_OF_COLUMNS(CHECK_COLUMNS)
