/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each code of the driver is an errno, and a sentence that says what failed, the code and
 * what to do. Method: codes that are known and unknown, with and without a driver that names
 * them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/text.h"
#include "common/gpu/cuda.h"
#include "common/gpu/error.h"

static int name_of(int code, const char **ret_name)
{
	*ret_name = code == ZI_CUDA_UNKNOWN ? NULL : "NAME";
	return code == ZI_CUDA_UNKNOWN ? ZI_CUDA_INVALID_VALUE : ZI_CUDA_SUCCESS;
}

static int words_of(int code, const char **ret_words)
{
	*ret_words = code == ZI_CUDA_UNKNOWN ? NULL : "words of the driver";
	return code == ZI_CUDA_UNKNOWN ? ZI_CUDA_INVALID_VALUE : ZI_CUDA_SUCCESS;
}

static const struct zi_cuda named = { .cuGetErrorName = name_of, .cuGetErrorString = words_of };

Test(gpu_error, success_is_zero_and_each_other_code_is_negative)
{
	cr_assert_eq(zi_gpu_errno(ZI_CUDA_SUCCESS), 0);
	for (int code = 1; code < 1100; code++) {
		cr_assert_lt(zi_gpu_errno(code), 0, "%d", code);
		cr_assert_gt(zi_gpu_errno(code), -134, "%d is an errno", code);
	}
}

Test(gpu_error, codes_that_callers_tell_apart_have_their_errno)
{
	static const struct {
		int code, error;
	} rows[] = {
		{ ZI_CUDA_INVALID_VALUE, -EINVAL },
		{ ZI_CUDA_OUT_OF_MEMORY, -ENOMEM },
		{ ZI_CUDA_NOT_INITIALIZED, -ESHUTDOWN },
		{ ZI_CUDA_DEVICE_UNAVAILABLE, -EBUSY },
		{ ZI_CUDA_NO_DEVICE, -ENODEV },
		{ ZI_CUDA_NOT_READY, -EAGAIN },
		{ ZI_CUDA_ILLEGAL_ADDRESS, -EFAULT },
		{ ZI_CUDA_LAUNCH_TIMEOUT, -ETIMEDOUT },
		{ ZI_CUDA_NOT_SUPPORTED, -ENOTSUP },
		{ ZI_CUDA_UNKNOWN, -EIO },
		{ 12345, -EIO },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_assert_eq(zi_gpu_errno(rows[i].code), rows[i].error, "%d", rows[i].code);
}

Test(gpu_error, errors_of_kernels_and_of_the_device_are_sticky_and_those_of_arguments_are_not)
{
	static const int sticky[] = { 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719 };
	static const int passing[] = { 0, 1, 2, 46, 100, 201, 400, 600, 701, 712, 801, 999, 12345 };

	for (size_t i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++)
		cr_assert(zi_gpu_is_sticky(sticky[i]), "%d", sticky[i]);
	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
		cr_assert_not(zi_gpu_is_sticky(passing[i]), "%d", passing[i]);
}

Test(gpu_error, the_sentence_has_what_failed_name_number_and_what_to_do)
{
	struct zi_text text = { "" };

	cr_assert_eq(zi_gpu_error(&named, ZI_CUDA_OUT_OF_MEMORY, &text, "a chunk of %d MiB", 64),
	             -ENOMEM);
	cr_assert_str_eq(text.chars,
	                 "a chunk of 64 MiB: NAME (2): memory is used up: ask for less, "
	                 "or see with nvidia-smi which process holds it");
	cr_assert_eq(zi_gpu_error(&named, ZI_CUDA_ILLEGAL_ADDRESS, &text, "copy"), -EFAULT);
	cr_assert_str_eq(text.chars, "copy: NAME (700): the GPU context of this process is lost: "
	                             "start the process anew");
}

Test(gpu_error, where_there_is_no_advice_the_words_of_the_driver_stand)
{
	struct zi_text text = { "" };

	cr_assert_eq(zi_gpu_error(&named, ZI_CUDA_INVALID_VALUE, &text, "mapping"), -EINVAL);
	cr_assert_str_eq(text.chars, "mapping: NAME (1): words of the driver");
}

Test(gpu_error, a_code_that_nobody_names_is_told_by_its_number)
{
	static const struct zi_cuda empty = { 0 };
	struct zi_text text = { "" };

	cr_assert_eq(zi_gpu_error(&named, ZI_CUDA_UNKNOWN, &text, "mapping"), -EIO);
	cr_assert_str_eq(text.chars, "mapping: CUDA error 999");
	cr_assert_eq(zi_gpu_error(&empty, ZI_CUDA_INVALID_VALUE, &text, "mapping"), -EINVAL);
	cr_assert_str_eq(text.chars, "mapping: CUDA error 1");
	cr_assert_eq(zi_gpu_error(NULL, ZI_CUDA_NO_DEVICE, &text, "mapping"), -ENODEV);
	cr_assert_str_eq(text.chars, "mapping: CUDA error 100: the process sees no GPU: see "
	                             "nvidia-smi -L and CUDA_VISIBLE_DEVICES");
	cr_assert_eq(zi_gpu_error(&named, ZI_CUDA_NO_DEVICE, NULL, "mapping"), -ENODEV);
}

Test(gpu_error, what_failed_may_be_as_long_as_a_path)
{
	char path[200];
	struct zi_text text = { "" };

	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	cr_assert_eq(zi_gpu_error(&named, ZI_CUDA_NO_DEVICE, &text, "cuInit of '%s'", path),
	             -ENODEV);
	cr_assert_lt(strlen(text.chars), ZI_TEXT_BYTES);
	cr_assert(strstr(text.chars, "NAME (100)"));
}
