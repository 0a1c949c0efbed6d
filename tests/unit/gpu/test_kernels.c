/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: kernels are found by name and run with the parameters of their launch; wrong images, names
 * and shapes are refused. Method: a kernel of the test's own that writes what it was given. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/gpu/fixture.h"

struct options {
	float scale;
	uint16_t more;
};

static struct {
	uint32_t shape[6];
	uint64_t pointer;
	struct options options;
	uint8_t byte;
} seen;

/* see(pointer, options, byte) */
static void run_see(const uint32_t *shape, void *const *parameters)
{
	memcpy(seen.shape, shape, sizeof(seen.shape));
	seen.pointer = *(const uint64_t *)parameters[0];
	seen.options = *(const struct options *)parameters[1];
	seen.byte = *(const uint8_t *)parameters[2];
}

static const struct fake_kernel see_kernel = { "see", run_see, { 8, sizeof(struct options), 1 } };
static const struct fake_kernel huge_kernel = { "huge", run_see, { 4000, 4000 } };

static struct zi_gpu_driver driver;
static struct zi_cuda_module *module;

static struct zi_cuda_function *load(const struct zi_cuda *cuda, const struct fake_kernel *kernel)
{
	struct zi_cuda_function *function = NULL;
	fake_kernel_add_fn add;

	find_fake_symbol(driver.handle, "fake_kernel_add", &add);
	cr_assert_eq(add(kernel), 0);
	cr_assert_eq(cuda->cuModuleLoadData(&module, ".version 7.0\n"), 0);
	cr_assert_eq(cuda->cuModuleGetFunction(&function, module, kernel->name), 0);
	return function;
}

Test(gpu_kernels, run_with_the_parameters_of_their_launch)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "order=late");
	struct zi_cuda_function *function = load(cuda, &see_kernel);
	struct options options = { 1.5f, 7 };
	uint64_t pointer = 0x123456789abc;
	uint8_t byte = 9;
	void *parameters[] = { &pointer, &options, &byte };
	const uint32_t shape[] = { 2, 3, 4, 32, 2, 1 };

	cr_assert_eq(cuda->cuLaunchKernel(function, 2, 3, 4, 32, 2, 1, 64, NULL, parameters, NULL),
	             0);
	/* They were read by the call. */
	pointer = 0;
	options.scale = 0;
	byte = 0;
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
	cr_assert_arr_eq(seen.shape, shape, sizeof(shape));
	cr_assert_eq(seen.pointer, 0x123456789abc);
	cr_assert_eq(seen.options.scale, 1.5f);
	cr_assert_eq(seen.options.more, 7);
	cr_assert_eq(seen.byte, 9);
}

Test(gpu_kernels, are_found_by_name_in_their_module)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	struct zi_cuda_function *function = load(cuda, &see_kernel), *again = NULL;
	void *parameters[3] = { &seen, &seen, &seen };

	cr_assert_eq(cuda->cuModuleGetFunction(&again, module, "see"), 0);
	cr_assert_eq(again, function);
	cr_assert_eq(cuda->cuModuleGetFunction(&again, module, "none"), ZI_CUDA_NOT_FOUND);
	cr_assert_eq(cuda->cuModuleGetFunction(&again, (void *)&driver, "see"),
	             ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuModuleUnload(module), 0);
	cr_assert_eq(cuda->cuModuleUnload(module), ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL),
	             ZI_CUDA_INVALID_HANDLE);
}

Test(gpu_kernels, come_in_images_of_four_forms)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	static const uint32_t fatbin[] = { 0xba55ed50, 1 };
	const void *const images[] = { fatbin, "\177ELF\2\1", ".version 8.0\n",
		                       "//\n// Generated" };

	for (uint32_t i = 0; i < 4; i++) {
		cr_assert_eq(cuda->cuModuleLoadData(&module, images[i]), 0, "%u", i);
		cr_assert_eq(cuda->cuModuleUnload(module), 0);
	}
	cr_assert_eq(cuda->cuModuleLoadData(&module, "text"), ZI_CUDA_INVALID_IMAGE);
	cr_assert_eq(cuda->cuModuleLoadData(&module, NULL), ZI_CUDA_INVALID_VALUE);
}

Test(gpu_kernels, have_a_shape_within_the_limits)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	struct zi_cuda_function *function = load(cuda, &see_kernel);
	struct options options = { 0 };
	uint64_t pointer = 0;
	uint8_t byte = 0;
	void *parameters[] = { &pointer, &options, &byte }, *extra[1];

	cr_assert_eq(cuda->cuLaunchKernel(function, 1, 1, 1, 32, 32, 1, 0, NULL, parameters, NULL),
	             0);
	cr_assert_eq(cuda->cuLaunchKernel(function, 1, 1, 1, 32, 32, 2, 0, NULL, parameters, NULL),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra),
	             ZI_CUDA_INVALID_VALUE);
	cr_assert_eq(cuda->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (void *)&driver,
	                                  parameters, NULL),
	             ZI_CUDA_INVALID_HANDLE);
	cr_assert_eq(cuda->cuStreamSynchronize(NULL), 0);
}

Test(gpu_kernels, with_too_many_bytes_of_parameters_are_refused)
{
	const struct zi_cuda *cuda = start_gpu(&driver, "");
	struct zi_cuda_function *function = load(cuda, &huge_kernel);
	static char bytes[4000];
	void *parameters[] = { bytes, bytes };

	cr_assert_eq(cuda->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL),
	             ZI_CUDA_INVALID_VALUE);
}
