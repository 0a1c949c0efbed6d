/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the layers on a GPU share: a fake GPU with a fake cuBLAS, and arrays that lie in
 * both memories. */
#pragma once

#include <cblas.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/device.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/unit/gpt/difference.h"

/* The first bytes of a fatbin: the fake has the kernels. */
static const uint32_t fake_image[] = { 0xba55ed50, 1 };

/* Each test is a process of its own, in which the fakes read their environment once. */
static inline int try_gpu(const char *words, struct gpt_device_options options,
                          struct gpt_problem *problem, struct gpt_device **ret_device)
{
	char driver[FAKE_GPU_PATH_BYTES], cublas[FAKE_GPU_PATH_BYTES];

	cr_assert_eq(setenv(FAKE_GPU_ENV, words, 1), 0);
	openblas_set_num_threads(1); /* As the program does it. */
	if (!options.driver)
		options.driver = fake_gpu_path(driver, sizeof(driver), "libcuda.so.1");
	if (!options.cublas)
		options.cublas = fake_gpu_path(cublas, sizeof(cublas), "libcublas.so.12");
	return gpt_device_open(&options, problem, ret_device);
}

static inline struct gpt_device *open_gpu(const char *words)
{
	const struct gpt_device_options options = { .image = fake_image };
	struct gpt_device *device = NULL;
	struct gpt_problem problem = { "" };

	cr_assert_eq(try_gpu(words, options, &problem, &device), 0, "%s", problem.chars);
	return device;
}

/* How often a place of the driver was called. */
static inline uint64_t gpu_calls(const char *place)
{
	char path[FAKE_GPU_PATH_BYTES];
	void *library = dlopen(fake_gpu_path(path, sizeof(path), "libcuda.so.1"), RTLD_NOW);
	fake_call_count_fn count;

	cr_assert(library);
	find_fake_symbol(library, "fake_call_count", &count);
	return count(place);
}

/* The same numbers in both memories. */
struct array {
	float *cpu, *gpu;
	uint64_t count;
};

static inline struct array array_new(struct gpt_device *device, uint64_t count, uint64_t stream)
{
	struct array array = { malloc(count * sizeof(float)),
		               gpt_device_alloc(device, count * sizeof(float)), count };

	cr_assert(array.cpu);
	cr_assert(array.gpu, "%s", gpt_device_error_text(device));
	fill_normal(array.cpu, count, stream, 1.0);
	gpt_device_store(device, array.gpu, array.cpu, count * sizeof(float));
	cr_assert_eq(gpt_device_wait(device), 0);
	return array;
}

/* Of what was computed in each of them. */
static inline void expect_equal(struct gpt_device *device, const struct array *array,
                                const char *what)
{
	float *copy = malloc(array->count * sizeof(float));

	cr_assert_eq(gpt_device_fetch(device, array->gpu, array->count * sizeof(float), copy), 0,
	             "%s: %s", what, gpt_device_error_text(device));
	for (uint64_t i = 0; i < array->count; i++)
		cr_assert_eq(memcmp(&copy[i], &array->cpu[i], sizeof(float)), 0,
		             "%s[%llu]: %.9g on the GPU, %.9g on the CPU", what,
		             (unsigned long long)i, (double)copy[i], (double)array->cpu[i]);
	free(copy);
}

static inline void array_free(struct gpt_device *device, struct array *array)
{
	free(array->cpu);
	gpt_device_free(device, array->gpu);
}
