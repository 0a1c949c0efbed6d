/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of zinf-gpt on a fake GPU: loops over the element functions that the GPU's kernels
 * call (examples/gpt/gpu/layers.cu). */
#include "common/base/cleanup.h"
#include "examples/gpt/element/kernels.h"
#include "tests/gpu/kernels.h"

#define ELEMENT_KERNEL(name)                                                   \
	static void run_##name(const uint32_t *shape, void *const *parameters) \
	{                                                                      \
		const struct gpt_##name##_args *args = parameters[0];          \
                                                                               \
		(void)shape;                                                   \
		for (uint64_t i = 0; i < args->count; i++)                     \
			gpt_##name##_item(args, i);                            \
	}
GPT_KERNELS_OF_ELEMENTS(ELEMENT_KERNEL)

#define ROW_KERNEL(name)                                                       \
	static void run_##name(const uint32_t *shape, void *const *parameters) \
	{                                                                      \
		const struct gpt_##name##_args *args = parameters[0];          \
                                                                               \
		(void)shape;                                                   \
		for (uint64_t row = 0; row < args->count; row++)               \
			gpt_##name##_row(args, row);                           \
	}
GPT_KERNELS_OF_ROWS(ROW_KERNEL)

#define COLUMN_KERNEL(name)                                                                    \
	static void run_##name(const uint32_t *shape, void *const *parameters)                 \
	{                                                                                      \
		const struct gpt_##name##_args *args = parameters[0];                          \
                                                                                               \
		(void)shape;                                                                   \
		for (uint64_t column = 0; column < args->count; column++) {                    \
			struct gpt_column sums = gpt_##name##_begin(args, column);             \
                                                                                               \
			for (uint64_t row = 0; row < args->rows; row++) {                      \
				struct gpt_column term = gpt_##name##_term(args, row, column); \
                                                                                               \
				sums.first += term.first;                                      \
				sums.second += term.second;                                    \
			}                                                                      \
			gpt_##name##_end(args, column, sums);                                  \
		}                                                                              \
	}
GPT_KERNELS_OF_COLUMNS(COLUMN_KERNEL)

#define KERNEL(name) { "gpt_kernel_" #name, run_##name, { sizeof(struct gpt_##name##_args) } },
const struct fake_kernel fake_gpt_kernels[] = { GPT_KERNELS(KERNEL) };
const uint32_t fake_gpt_kernel_count = ZI_COUNT_OF(fake_gpt_kernels);
