/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the GPU that is meant is opened, and what is missing is told in one sentence. Method: a
 * fake driver and a fake cuBLAS, absent, of another kind, or failing at each call of opening.
 */
#include <errno.h>

#include "examples/gpt/args.h"
#include "tests/unit/gpt/gpu.h"

static const struct gpt_device_options whole = { .image = fake_image };

static void expect_refused(const char *words, struct gpt_device_options options, int error,
                           const char *sentence)
{
	struct gpt_problem problem = { "" };
	struct gpt_device *device = NULL;

	cr_expect_eq(try_gpu(words, options, &problem, &device), error, "%s", problem.chars);
	cr_expect_null(device);
	cr_expect(strstr(problem.chars, sentence), "'%s' is not in: %s", sentence, problem.chars);
}

static void expect_uuid(const char *words, struct gpt_device_options options, const char *uuid)
{
	struct gpt_problem problem = { "" };
	struct gpt_device *device = NULL;

	cr_assert_eq(try_gpu(words, options, &problem, &device), 0, "%s", problem.chars);
	cr_expect_str_eq(gpt_device_uuid(device), uuid);
	cr_expect(gpt_device_stream(device));
	cr_expect_eq(gpt_device_error(device), 0);
	gpt_device_close(device);
}

Test(gpu_device, is_the_one_with_the_index)
{
	struct gpt_device_options options = whole;

	expect_uuid("gpus=2", options, FAKE_GPU_UUID_0);
	options.index = 1;
	expect_uuid("gpus=2", options, FAKE_GPU_UUID_1);
	options.index = 2; /* More ranks than GPUs: they share. */
	expect_uuid("gpus=2", options, FAKE_GPU_UUID_0);
}

Test(gpu_device, is_the_one_with_the_uuid_in_any_case_of_letters)
{
	struct gpt_device_options options = whole;

	options.uuid = "GPU-FA4E0000-0000-0000-0000-000000000001";
	expect_uuid("gpus=2", options, FAKE_GPU_UUID_1);
}

Test(gpu_device, an_instance_has_a_uuid_of_its_own)
{
	struct gpt_problem problem = { "" };
	struct gpt_device *device = NULL;

	cr_assert_eq(try_gpu("mig", whole, &problem, &device), 0, "%s", problem.chars);
	cr_expect_eq(strncmp(gpt_device_uuid(device), "MIG-", 4), 0, "%s", gpt_device_uuid(device));
	gpt_device_close(device);
}

Test(gpu_device, that_is_not_there_is_named)
{
	struct gpt_device_options options = whole;

	options.uuid = "GPU-00000000-1111-2222-3333-444444444444";
	expect_refused("gpus=2", options, -ENODEV,
	               "--device GPU-00000000-1111-2222-3333-444444444444: this process sees no "
	               "such GPU among 2, of which the first is " FAKE_GPU_UUID_0);
}

Test(gpu_device, a_build_without_kernels_says_so)
{
	struct gpt_device_options options = { 0 };

	expect_refused("", options, -ENOTSUP, "this build of zinf-gpt has no kernels");
}

Test(gpu_device, without_a_driver_is_told)
{
	struct gpt_device_options options = whole;

	options.driver = "/nonexistent/libcuda.so.1";
	expect_refused("", options, -ENODEV, "--device gpu needs the NVIDIA driver");
}

Test(gpu_device, a_library_that_is_no_driver_is_told)
{
	struct gpt_device_options options = whole;

	options.driver = "libm.so.6";
	expect_refused("", options, -ELIBBAD, "'libm.so.6' lacks cuInit: it is no CUDA driver");
}

Test(gpu_device, no_gpu_at_all_is_told)
{
	expect_refused("gpus=0", whole, -ENODEV, "shows this process no GPU");
}

Test(gpu_device, without_cublas_is_told)
{
	struct gpt_device_options options = whole;

	options.cublas = "/nonexistent/libcublas.so";
	expect_refused("", options, -ENODEV, "--device gpu needs cuBLAS");
}

Test(gpu_device, a_library_that_is_no_cublas_is_told)
{
	struct gpt_device_options options = whole;

	options.cublas = "libm.so.6";
	expect_refused("", options, -ELIBBAD, "lacks cublasCreate_v2");
}

Test(gpu_device, each_status_of_cublas_is_told)
{
	cr_assert_eq(setenv("ZINF_FAKE_CUBLAS", "cublasCreate_v2:1:3", 1), 0);
	expect_refused("", whole, -ENOMEM, "cublasCreate() failed with status 3 (ALLOC_FAILED)");
}

Test(gpu_device, a_stream_that_cublas_does_not_take_is_told)
{
	cr_assert_eq(setenv("ZINF_FAKE_CUBLAS", "cublasSetStream_v2:1:7", 1), 0);
	expect_refused("", whole, -EIO, "cublasSetStream() failed with status 7 (INVALID_VALUE)");
}

Test(gpu_device, a_mode_that_cublas_does_not_know_is_told)
{
	cr_assert_eq(setenv("ZINF_FAKE_CUBLAS", "cublasSetMathMode:1:77", 1), 0);
	expect_refused("", whole, -EIO, "cublasSetMathMode() failed with status 77 (unknown)");
}

/* One process for each rule: the fake reads them once. */
#define FAILS(name, words, error, sentence)                    \
	Test(gpu_device, name)                                 \
	{                                                      \
		expect_refused(words, whole, error, sentence); \
	}
FAILS(cuinit_fails, "fail=cuInit:1:999", -EIO, "cuInit() failed with code 999")
FAILS(cuinit_finds_none, "fail=cuInit:1:100", -ENODEV, "shows this process no GPU")
FAILS(counting_fails, "fail=cuDeviceGetCount:1:3", -EIO, "cuDeviceGetCount() failed with code 3")
FAILS(numbers_fail, "fail=cuDeviceGet:1:101", -EIO, "cuDeviceGet() failed with code 101")
FAILS(uuids_fail, "fail=cuDeviceGetUuid:1:1", -EIO, "cuDeviceGetUuid() failed with code 1")
FAILS(contexts_fail, "fail=cuDevicePrimaryCtxRetain:1:2", -ENOMEM,
      "a context on the GPU failed with code 2")
FAILS(currents_fail, "fail=cuCtxSetCurrent:1:201", -EIO, "cuCtxSetCurrent() failed with code 201")
FAILS(streams_fail, "fail=cuStreamCreateWithPriority:1:2", -ENOMEM,
      "cuStreamCreateWithPriority() failed")
FAILS(modules_fail, "fail=cuModuleLoadData:1:209", -ENOTSUP,
      "no kernels for the GPU's architecture")
FAILS(functions_fail, "fail=cuModuleGetFunction:3:500", -EIO,
      "gpt_kernel_widen failed with code 500")
FAILS(a_gpu_in_use_exclusively, "mode=prohibited", -EIO, "a context on the GPU failed with code")

Test(gpu_device, closing_leaves_no_memory_behind)
{
	struct gpt_device *device = open_gpu("");
	void *memory = gpt_device_alloc(device, 100), *host = gpt_device_host_alloc(device, 100);

	cr_assert(memory);
	cr_assert(host);
	gpt_device_store(device, memory, host, 100);
	gpt_device_free(device, memory);
	gpt_device_host_free(device, host);
	gpt_device_free(device, NULL);
	gpt_device_host_free(device, NULL);
	gpt_device_close(device);
	gpt_device_close(NULL);
}

Test(gpu_device, pinned_memory_that_is_refused_is_told)
{
	struct gpt_device *device = open_gpu("fail=cuMemHostAlloc:1:2");

	cr_expect_null(gpt_device_host_alloc(device, 100));
	cr_expect_eq(gpt_device_error(device), -ENOMEM);
	cr_expect(strstr(gpt_device_error_text(device), "pinned memory of the host"));
	gpt_device_close(device);
}

/* Later calls do nothing, and say what the first one said. */
Test(gpu_device, the_first_error_stays)
{
	struct gpt_device *device = open_gpu("fail=cuMemsetD8Async:1:1,fail=cuMemcpyDtoHAsync:1:2");
	char *memory = gpt_device_alloc(device, 100), copy[4] = "abc";

	gpt_device_zero(device, memory, 100);
	cr_expect_eq(gpt_device_fetch(device, memory, 4, copy), -EIO);
	cr_expect_str_eq(copy, "abc");
	gpt_device_store(device, memory, copy, 4);
	cr_expect_eq(gpu_calls("cuMemcpyHtoDAsync"), 0);
	cr_expect_eq(gpt_device_wait(device), -EIO);
	cr_expect(strstr(gpt_device_error_text(device), "zeroing GPU memory failed with code 1"));
	gpt_device_free(device, memory);
	gpt_device_close(device);
}
