/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what the driver says of a GPU arrives in a plain struct, and a GPU that zinf cannot use is
 * refused with what it lacks. Method: fake GPUs with and without each ability; each call of the
 * description fails once.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/gpu/device.h"
#include "tests/unit/gpu/fixture.h"

static struct zi_gpu_driver driver;

static void open_fake(const char *options)
{
	struct zi_text text = { "" };

	cr_assert_eq(open_gpu(&driver, options, &text), 0, "%s", text.chars);
}

static struct zi_gpu_device describe(uint32_t index)
{
	struct zi_gpu_device device = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(zi_gpu_device_describe(&driver, index, &device, &text), 0, "%s", text.chars);
	return device;
}

Test(gpu_device, has_all_that_the_driver_says)
{
	struct zi_gpu_device device;
	uint32_t count = 0;

	open_fake("gpus=3,bytes=256M");
	cr_assert_eq(zi_gpu_device_count(&driver, &count, NULL), 0);
	cr_assert_eq(count, 3);
	device = describe(2);
	cr_assert_str_eq(device.uuid, "GPU-fa4e0000-0000-0000-0000-000000000002");
	cr_assert_str_eq(device.name, "zinf FAKE GPU 2 (host memory)");
	cr_assert_str_eq(device.pci, "fa4e:a2:00.0", "in lower case, as in /sys");
	cr_assert_eq(device.index, 2);
	cr_assert_eq(device.device, 2);
	cr_assert_eq(device.bytes, 256ull << 20);
	cr_assert_eq(device.granularity_bytes, 2u << 20);
	cr_assert_eq(device.capability, 90);
	cr_assert_eq(device.multiprocessor_count, 4);
	cr_assert_eq(device.copy_engine_count, 3);
	cr_assert_eq(device.compute_mode, ZI_CUDA_MODE_DEFAULT);
	cr_assert_eq(device.host_numa, 0);
	cr_assert(device.has_vmm && device.has_posix_fds && device.has_read_only_register);
	cr_assert(device.has_host_pointers && !device.is_mig && !device.is_integrated);
	cr_assert_eq(zi_gpu_device_check(&device, NULL), 0);
}

Test(gpu_device, is_described_without_a_context)
{
	struct zi_cuda_context *context = (void *)1;

	open_fake("");
	(void)describe(0);
	cr_assert_eq(driver.cuda.cuCtxGetCurrent(&context), 0);
	cr_assert_null(context);
	cr_assert_eq(call_count(&driver, "cuDevicePrimaryCtxRetain"), 0);
}

Test(gpu_device, that_is_an_instance_has_a_uuid_of_its_own)
{
	struct zi_gpu_device device;

	open_fake("mig");
	device = describe(1);
	cr_assert(device.is_mig);
	cr_assert_str_eq(device.uuid, "MIG-fa4e0000-0000-0000-0000-000000000101");
	cr_assert_eq(zi_gpu_device_check(&device, NULL), 0);
}

Test(gpu_device, numa_node_is_unknown_to_older_drivers)
{
	open_fake("cuda=12010");
	cr_assert_eq(describe(0).host_numa, -1);
}

/* Describes GPU 0 of @options, and expects that it is refused for @lack. */
static void expect_refused(const char *options, const char *lack)
{
	struct zi_gpu_device device;
	struct zi_text text = { "" };
	char wanted[256];

	open_fake(options);
	device = describe(0);
	cr_assert_eq(zi_gpu_device_check(&device, NULL), -ENOTSUP);
	cr_assert_eq(zi_gpu_device_check(&device, &text), -ENOTSUP);
	(void)snprintf(wanted, sizeof(wanted),
	               FAKE_GPU_UUID_0 " ('zinf FAKE GPU 0 (host memory)') %s: zinf cannot use it",
	               lack);
	cr_assert_str_eq(text.chars, wanted);
}

Test(gpu_device, without_vmm_is_refused)
{
	expect_refused("no=vmm", "has no virtual memory management (attribute 102 is 0)");
	cr_assert_eq(describe(0).granularity_bytes, 0);
}

Test(gpu_device, without_file_descriptors_is_refused)
{
	expect_refused("no=fds", "cannot export memory as file descriptors (attribute 103 is 0)");
}

Test(gpu_device, that_forbids_contexts_is_refused)
{
	expect_refused("mode=prohibited",
	               "is in compute mode PROHIBITED (nvidia-smi -c DEFAULT changes that)");
}

Test(gpu_device, with_an_odd_granularity_is_refused)
{
	struct zi_gpu_device device;
	struct zi_text text = { "" };

	open_fake("");
	device = describe(0);
	device.granularity_bytes = 3u << 20;
	cr_assert_eq(zi_gpu_device_check(&device, &text), -ENOTSUP);
	cr_assert(
		strstr(text.chars, "has an allocation granularity of 3 MiB, no multiple of 2 MiB"),
		"%s", text.chars);
}

Test(gpu_device, in_exclusive_mode_is_no_reason)
{
	struct zi_gpu_device device;

	open_fake("mode=exclusive,no=read_only");
	device = describe(0);
	cr_assert_eq(device.compute_mode, ZI_CUDA_MODE_EXCLUSIVE);
	cr_assert_not(device.has_read_only_register);
	cr_assert_eq(zi_gpu_device_check(&device, NULL), 0);
}

Test(gpu_device, is_found_by_its_uuid_in_any_case)
{
	struct zi_gpu_device device = { 0 };

	open_fake("");
	cr_assert_eq(zi_gpu_device_find(&driver, FAKE_GPU_UUID_1, &device, NULL), 0);
	cr_assert_eq(device.index, 1);
	cr_assert_eq(zi_gpu_device_find(&driver, "gpu-FA4E0000-0000-0000-0000-000000000000",
	                                &device, NULL),
	             0);
	cr_assert_eq(device.index, 0);
}

Test(gpu_device, that_is_unknown_is_told_beside_those_that_there_are)
{
	struct zi_gpu_device device = { .index = 7 };
	struct zi_text text = { "" };

	open_fake("");
	cr_assert_eq(zi_gpu_device_find(&driver, "GPU-0", &device, &text), -ENODEV);
	cr_assert_str_eq(
		text.chars,
		"no GPU 'GPU-0' among the 2 that this process sees, the first is " FAKE_GPU_UUID_0
		": check CUDA_VISIBLE_DEVICES and nvidia-smi -L");
	cr_assert_eq(device.index, 7, "untouched");
}

Test(gpu_device, that_is_broken_hides_no_other)
{
	struct zi_gpu_device device = { .index = 7 };
	struct zi_text text = { "" };

	open_fake("gpus=3,broken=0:999,stuck=2");
	cr_assert_eq(zi_gpu_device_find(&driver, FAKE_GPU_UUID_1, &device, &text), 0, "%s",
	             text.chars);
	cr_assert_eq(device.index, 1);
	/* It may be the wanted one. */
	cr_assert_eq(zi_gpu_device_find(&driver, FAKE_GPU_UUID_0, &device, &text), -EIO);
	cr_assert(strstr(text.chars, "no GPU '" FAKE_GPU_UUID_0 "' among those that answer: asking "
	                             "GPU 0"),
	          "%s", text.chars);
}

Test(gpu_device, beyond_the_last_one_does_not_exist)
{
	struct zi_gpu_device device = { .index = 7 };
	struct zi_text text = { "" };

	open_fake("");
	cr_assert_eq(zi_gpu_device_describe(&driver, 2, &device, &text), -ENODEV);
	cr_assert(strstr(text.chars, "describing GPU 2: CUDA_ERROR_INVALID_DEVICE (101)"), "%s",
	          text.chars);
	cr_assert_eq(device.index, 7, "untouched");
}

Test(gpu_device, whose_number_cannot_be_counted_is_told)
{
	struct zi_gpu_device device;
	struct zi_text text = { "" };
	uint32_t count = 7;

	open_fake("fail=cuDeviceGetCount:0:999");
	cr_assert_eq(zi_gpu_device_count(&driver, &count, &text), -EIO);
	cr_assert(strstr(text.chars, "counting GPUs: CUDA_ERROR_UNKNOWN (999)"), "%s", text.chars);
	cr_assert_eq(count, 7, "untouched");
	cr_assert_eq(zi_gpu_device_find(&driver, FAKE_GPU_UUID_0, &device, NULL), -EIO);
}

/* How a child ends that describes GPU 0. */
static int fail_one(const char *options)
{
	struct zi_gpu_driver own = { 0 };
	struct zi_gpu_device device = { .index = 7 };
	struct zi_text text = { "" };

	if (open_gpu(&own, options, &text))
		return 2;
	if (zi_gpu_device_describe(&own, 0, &device, &text) != -EIO || device.index != 7)
		return 3;
	return strstr(text.chars, "describing GPU 0: CUDA_ERROR_UNKNOWN (999)") ? 0 : 4;
}

Test(gpu_device, of_which_any_call_fails_is_not_described)
{
	static const char *const places[] = {
		"cuDeviceGet:1",
		"cuDeviceGetUuid:1",
		"cuDeviceGetUuid:2",
		"cuDeviceGetName:1",
		"cuDeviceGetPCIBusId:1",
		"cuDeviceGetAttribute:1",
		"cuDeviceGetAttribute:9",
		"cuDeviceTotalMem:1",
		"cuMemGetAllocationGranularity:1",
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		pid_t child = fork();
		char options[96];
		int status;

		if (!child) {
			(void)snprintf(options, sizeof(options), "fail=%s:999", places[i]);
			_exit(fail_one(options));
		}
		status = wait_child(child);
		cr_assert(WIFEXITED(status));
		cr_assert_eq(WEXITSTATUS(status), 0, "%s: %d", places[i], WEXITSTATUS(status));
	}
}

Test(gpu_device, that_cannot_be_described_cannot_be_found)
{
	struct zi_gpu_device device = { .index = 7 };

	open_fake("fail=cuDeviceGetName:0:999");
	cr_assert_eq(zi_gpu_device_find(&driver, FAKE_GPU_UUID_1, &device, NULL), -EIO);
	cr_assert_eq(device.index, 7, "untouched");
}

Test(gpu_device, uuids_have_one_form)
{
	static const char *const good[] = { FAKE_GPU_UUID_0,
		                            "MIG-fa4e0000-0000-0000-0000-00000000010F",
		                            "gpu-fa4e0000-0000-0000-0000-000000000000" };
	static const char *const bad[] = { "",
		                           "0",
		                           "GPU",
		                           "GPU-",
		                           "GPU-fa4e0000",
		                           "GPU-fa4e0000-0000-0000-0000-00000000000",
		                           "GPU-fa4e0000-0000-0000-0000-0000000000000",
		                           "GPU-fa4e0000-0000-0000-0000-00000000000g",
		                           "GPU-fa4e0000-0000-0000-00000-00000000000",
		                           "CPU-fa4e0000-0000-0000-0000-000000000000" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		cr_assert(zi_gpu_is_uuid(good[i]), "%s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_not(zi_gpu_is_uuid(bad[i]), "%s", bad[i]);
}
