/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the kernels of kernels/cuda, thread by thread, give the bits of kern_*, and write nothing
 * beside their outputs: vectors, ends of arrays, tiles, parameter ranges of several groups, teams
 * of the norm.
 * Method: kernels.cu compiled as C++, its threads as threads of the CPU (tests/gpu/threads); drawn
 * cases of each kernel, in grids that leave each thread several turns.
 */
#include <criterion/criterion.h>

#include "tests/gpu/threads/fake_threads.h"
#include "tests/kernels/cuda_case.h"

#define CASES 6u /* of each kernel */

/* Of kernels.cu. */
#define DECLARE(name, type)                            \
	void kern_cuda_##name(const struct type args); \
	static void call_##name(const void *args)      \
	{                                              \
		const struct type *words = args;       \
                                                       \
		kern_cuda_##name(*words);              \
	}
#define DECLARE_ARRAY(name)                   DECLARE(name, kern_cuda_##name##_args)
#define DECLARE_OPTIM(name, optimizer, dtype) DECLARE(name, kern_cuda_optim_args)
KERN_CUDA_ARRAYS(DECLARE_ARRAY)
KERN_CUDA_OPTIMS(DECLARE_OPTIM)

static void check_kernel(enum kern_cuda_kernel kernel, void (*call)(const void *args))
{
	char *expected = case_memory_new(), *found = case_memory_new();

	for (uint32_t i = 0; i < CASES; i++) {
		const struct cuda_case c = case_draw(kernel, 100 * (uint64_t)kernel + i);
		union cuda_args args;

		case_fill(&c, expected, (uintptr_t)expected, &args);
		case_expect(&c, &args);
		case_fill(&c, found, (uintptr_t)found, &args);
		fake_grid_run(1 + i % 3, (struct fake_dim){ i % 2 ? 64 : 96, 1, 1 }, call, &args);
		case_compare(&c, expected, found);
	}
	free(expected);
	free(found);
}

#define CHECK_ARRAY(name)                                    \
	Test(cuda_threads, name)                             \
	{                                                    \
		check_kernel(KERN_CUDA_##name, call_##name); \
	}
#define CHECK_OPTIM(name, optimizer, dtype) CHECK_ARRAY(name)
KERN_CUDA_ARRAYS(CHECK_ARRAY)
KERN_CUDA_OPTIMS(CHECK_OPTIM)
