/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a driver is opened whatever its age, and each reason against it is one sentence that says
 * what to do. Method: the fake driver, its variants that lack symbols, and libraries that are none.
 * The fake is opened by its path, also where NVIDIA's driver is installed.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/gpu/fixture.h"

static int open_variant(struct zi_gpu_driver *driver, const char *name, struct zi_text *text)
{
	char path[FAKE_GPU_PATH_BYTES];

	return zi_gpu_driver_open(driver, fake_gpu_path(path, sizeof(path), name), text);
}

static void expect_all_functions(const struct zi_gpu_driver *driver)
{
	void *functions[ZI_CUDA_FUNCTIONS];

	memcpy(functions, &driver->cuda, sizeof(functions));
	for (uint32_t i = 0; i < ZI_CUDA_FUNCTIONS; i++)
		cr_assert_not_null(functions[i], "function %u", i);
}

/* A process that has no context yet. */
static void expect_no_context(const struct zi_gpu_driver *driver)
{
	struct zi_cuda_context *context = (void *)1;
	uint32_t flags = 1;
	int is_active = 1;

	cr_assert_eq(driver->cuda.cuCtxGetCurrent(&context), 0);
	cr_assert_null(context);
	cr_assert_eq(driver->cuda.cuDevicePrimaryCtxGetState(0, &flags, &is_active), 0);
	cr_assert_eq(is_active, 0);
}

Test(gpu_driver, is_opened_by_path_and_has_all_functions_and_no_context)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };
	void *symbol;

	cr_assert_eq(open_gpu(&driver, "cuda=13010", &text), 0, "%s", text.chars);
	cr_assert_eq(driver.version, 13010);
	cr_assert(strstr(driver.path, "libcuda.so.1"));
	cr_assert_str_eq(text.chars, "");
	expect_all_functions(&driver);
	expect_no_context(&driver);
	/* The version whose parameters are declared, not the first one. */
	find_fake_symbol(driver.handle, "cuDeviceGetUuid_v2", &symbol);
	cr_assert_eq((void *)driver.cuda.cuDeviceGetUuid, symbol);
	find_fake_symbol(driver.handle, "cuDeviceGetUuid", &symbol);
	cr_assert_eq((void *)driver.cuda.cuDeviceGetUuidGpu, symbol);
	zi_gpu_driver_close(&driver);
	cr_assert_null(driver.handle);
	zi_gpu_driver_close(&driver);
	zi_gpu_driver_close(NULL);
	cr_assert_eq(open_gpu(&driver, "", NULL), 0, "again");
	zi_gpu_driver_close(&driver);
}

Test(gpu_driver, of_before_cuda_12_is_asked_in_the_older_form)
{
	struct zi_gpu_driver driver = { 0 };

	cr_assert_eq(setenv(FAKE_GPU_ENV, "cuda=11080", 1), 0);
	cr_assert_eq(open_variant(&driver, "libcuda-one-finder.so", NULL), 0);
	cr_assert_null(dlsym(driver.handle, "cuGetProcAddress_v2"));
	cr_assert_eq(call_count(&driver, "cuGetProcAddress"), ZI_CUDA_FUNCTIONS);
	expect_all_functions(&driver);
	zi_gpu_driver_close(&driver);
}

Test(gpu_driver, without_a_finder_is_asked_for_symbols)
{
	struct zi_gpu_driver driver = { 0 };

	cr_assert_eq(setenv(FAKE_GPU_ENV, "cuda=11040", 1), 0);
	cr_assert_eq(open_variant(&driver, "libcuda-no-finder.so", NULL), 0);
	cr_assert_eq(call_count(&driver, "cuGetProcAddress"), 0);
	expect_all_functions(&driver);
	zi_gpu_driver_close(&driver);
}

Test(gpu_driver, of_the_oldest_version_is_taken_and_the_one_before_it_is_not)
{
	struct zi_gpu_driver driver = { 0 };

	cr_assert_eq(ZI_GPU_VERSION_MIN, 11040);
	cr_assert_eq(open_gpu(&driver, "cuda=11040", NULL), 0);
	zi_gpu_driver_close(&driver);
}

Test(gpu_driver, that_is_too_old_is_refused_with_both_versions)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, "cuda=11030", &text), -ENOTSUP);
	cr_assert(strstr(text.chars,
	                 "is of CUDA 11.3, and zinf needs CUDA 11.4 (NVIDIA driver 470) "
	                 "or newer: update it"),
	          "%s", text.chars);
	cr_assert_null(driver.handle);
}

Test(gpu_driver, that_lacks_a_function_is_refused_with_its_name)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, "missing=cuMemMap", &text), -ENOTSUP);
	cr_assert(strstr(text.chars, "(CUDA 12.4) lacks 1 of 56 functions, cuMemMap the first: "
	                             "install a whole NVIDIA driver"),
	          "%s", text.chars);
	cr_assert_null(driver.handle);
}

Test(gpu_driver, with_holes_is_refused_with_the_number_and_the_first_name)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(open_variant(&driver, "libcuda-holes.so", &text), -ENOTSUP);
	cr_assert(strstr(text.chars, "lacks 2 of 56 functions, cuMemHostRegister_v2 the first"),
	          "%s", text.chars);
}

Test(gpu_driver, that_does_not_exist_is_told_with_what_to_do)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(zi_gpu_driver_open(&driver, "/nowhere/libcuda.so.1", &text), -ENODEV);
	cr_assert_eq(strncmp(text.chars,
	                     "no NVIDIA driver (install it, or name its libcuda.so.1 in the "
	                     "configuration): /nowhere/libcuda.so.1: ",
	                     100),
	             0, "%s", text.chars);
	cr_assert_eq(zi_gpu_driver_open(&driver, "/nowhere/libcuda.so.1", NULL), -ENODEV);
}

/* The loader takes a library that is open for the one whose name it was given. */
Test(gpu_driver, has_its_usual_name_where_none_is_given)
{
	struct zi_gpu_driver named = { 0 }, unnamed = { 0 }, empty = { 0 };

	cr_assert_eq(open_gpu(&named, "", NULL), 0);
	cr_assert_eq(zi_gpu_driver_open(&unnamed, NULL, NULL), 0);
	cr_assert_eq(zi_gpu_driver_open(&empty, "", NULL), 0);
	cr_assert_eq(unnamed.handle, named.handle);
	cr_assert_eq(empty.handle, named.handle);
	cr_assert_str_eq(unnamed.path, ZI_GPU_DRIVER_NAME);
	zi_gpu_driver_close(&empty);
	zi_gpu_driver_close(&unnamed);
	zi_gpu_driver_close(&named);
}

Test(gpu_driver, that_is_another_library_is_no_driver)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(zi_gpu_driver_open(&driver, "libc.so.6", &text), -ELIBBAD);
	cr_assert_str_eq(text.chars,
	                 "'libc.so.6' is no CUDA driver, as it lacks cuDriverGetVersion: name the "
	                 "NVIDIA driver's libcuda.so.1");
}

Test(gpu_driver, path_may_be_long_and_not_longer)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };
	char path[ZI_GPU_PATH_BYTES + 1];

	memset(path, '/', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	cr_assert_eq(zi_gpu_driver_open(&driver, path, &text), -ENAMETOOLONG);
	cr_assert_str_eq(text.chars, "the path of the driver has 256 bytes, and 255 is the most");
	path[sizeof(path) - 2] = '\0';
	cr_assert_eq(zi_gpu_driver_open(&driver, path, &text), -ENODEV, "a directory");
}

Test(gpu_driver, that_sees_no_gpu_says_so)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, "gpus=0", &text), -ENODEV);
	cr_assert(strstr(text.chars, "CUDA_ERROR_NO_DEVICE (100): the process sees no GPU"), "%s",
	          text.chars);
	cr_assert_null(driver.handle);
}

Test(gpu_driver, whose_start_fails_is_told_with_the_code)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, "fail=cuInit:1:803", &text), -ENODEV);
	cr_assert(strstr(text.chars, "libcuda.so.1': CUDA error 803: kernel module and library"),
	          "%s", text.chars);
	cr_assert_eq(open_gpu(&driver, "", &text), 0, "the second call works");
	zi_gpu_driver_close(&driver);
}

Test(gpu_driver, that_does_not_say_its_version_is_told_with_the_code)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, "fail=cuDriverGetVersion:0:34", &text), -ENODEV);
	cr_assert(strstr(text.chars, "cuDriverGetVersion of '"), "%s", text.chars);
	cr_assert(strstr(text.chars, "CUDA error 34: this is the toolkit's stub"), "%s",
	          text.chars);
}

Test(gpu_driver, whose_finder_fails_lacks_all_functions)
{
	struct zi_gpu_driver driver = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, "fail=cuGetProcAddress:0:999", &text), -ENOTSUP);
	cr_assert(strstr(text.chars, "lacks 56 of 56 functions, cuInit the first"), "%s",
	          text.chars);
}

Test(gpu_driver, cannot_be_used_by_a_child_of_fork)
{
	struct zi_gpu_driver driver = { 0 };
	pid_t child;
	int status;

	cr_assert_eq(open_gpu(&driver, "", NULL), 0);
	child = fork();
	if (!child) {
		struct zi_gpu_driver own = { 0 };
		struct zi_text text = { "" };
		char path[FAKE_GPU_PATH_BYTES];
		int count = 0;
		int r = zi_gpu_driver_open(&own, fake_gpu_path(path, sizeof(path), "libcuda.so.1"),
		                           &text);

		_exit(driver.cuda.cuDeviceGetCount(&count) == ZI_CUDA_NOT_INITIALIZED &&
		                      r == -ESHUTDOWN && strstr(text.chars, "child of fork()")
		              ? 0
		              : 1);
	}
	status = wait_child(child);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0);
	zi_gpu_driver_close(&driver);
}
