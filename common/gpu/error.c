/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's codes mean. Numbers, names and meanings: CUDA Driver API, "Data types used by
 * CUDA driver", enum CUresult. A code is sticky where the manual says that the process must be
 * started anew. Floor 1, any thread: no state.
 */
#include "common/gpu/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/gpu/cuda.h"

#define ADVICE_LOST   "the GPU context of this process is lost: start the process anew"
#define ADVICE_DRIVER "update the NVIDIA driver"

struct meaning {
	int code;
	int error;          /* negative errno */
	const char *advice; /* may be NULL */
	bool is_sticky;
};

/* In the order of codes. Codes that are not here are -EIO. */
static const struct meaning meanings[] = {
	{ ZI_CUDA_INVALID_VALUE, -EINVAL, NULL, false },
	{ ZI_CUDA_OUT_OF_MEMORY, -ENOMEM,
	  "memory is used up: ask for less, or see with nvidia-smi which process holds it", false },
	{ ZI_CUDA_NOT_INITIALIZED, -ESHUTDOWN,
	  "a child of fork() cannot use its parent's driver: start it as a new program", false },
	{ ZI_CUDA_DEINITIALIZED, -ESHUTDOWN, "the process is ending", false },
	{ ZI_CUDA_STUB_LIBRARY, -ENODEV,
	  "this is the toolkit's stub: use the libcuda.so.1 of the NVIDIA driver", false },
	{ 36 /* CALL_REQUIRES_NEWER_DRIVER */, -ENOTSUP, ADVICE_DRIVER, false },
	{ ZI_CUDA_DEVICE_UNAVAILABLE, -EBUSY,
	  "another process holds the GPU, or its compute mode forbids contexts: see "
	  "nvidia-smi -q -d COMPUTE",
	  false },
	{ ZI_CUDA_NO_DEVICE, -ENODEV,
	  "the process sees no GPU: see nvidia-smi -L and CUDA_VISIBLE_DEVICES", false },
	{ ZI_CUDA_INVALID_DEVICE, -ENODEV, NULL, false },
	{ 102 /* DEVICE_NOT_LICENSED */, -EACCES, NULL, false },
	{ ZI_CUDA_INVALID_IMAGE, -ENOEXEC, NULL, false },
	{ ZI_CUDA_INVALID_CONTEXT, -EINVAL, NULL, false },
	{ 208 /* ALREADY_MAPPED */, -EEXIST, NULL, false },
	{ 209 /* NO_BINARY_FOR_GPU */, -ENOEXEC, "the kernels were not built for this GPU", false },
	{ 211 /* NOT_MAPPED */, -EFAULT, NULL, false },
	{ 214 /* ECC_UNCORRECTABLE */, -EIO, ADVICE_LOST, true },
	{ 216 /* CONTEXT_ALREADY_IN_USE */, -EBUSY, NULL, false },
	{ 218 /* INVALID_PTX */, -ENOEXEC, NULL, false },
	{ 220 /* NVLINK_UNCORRECTABLE */, -EIO, ADVICE_LOST, true },
	{ 222 /* UNSUPPORTED_PTX_VERSION */, -ENOTSUP, ADVICE_DRIVER, false },
	{ 226 /* CONTAINED */, -EIO, ADVICE_LOST, true },
	{ 301 /* FILE_NOT_FOUND */, -ENOENT, NULL, false },
	{ ZI_CUDA_INVALID_HANDLE, -EBADF, NULL, false },
	{ 401 /* ILLEGAL_STATE */, -EINVAL, NULL, false },
	{ ZI_CUDA_NOT_FOUND, -ENOENT, NULL, false },
	{ ZI_CUDA_NOT_READY, -EAGAIN, NULL, false },
	{ ZI_CUDA_ILLEGAL_ADDRESS, -EFAULT, ADVICE_LOST, true },
	{ 701 /* LAUNCH_OUT_OF_RESOURCES */, -E2BIG, NULL, false },
	{ ZI_CUDA_LAUNCH_TIMEOUT, -ETIMEDOUT, ADVICE_LOST, true },
	{ 709 /* CONTEXT_IS_DESTROYED */, -ESHUTDOWN, NULL, false },
	{ 710 /* ASSERT */, -EIO, ADVICE_LOST, true },
	{ ZI_CUDA_HOST_REGISTERED, -EEXIST, NULL, false },
	{ ZI_CUDA_HOST_NOT_REGISTERED, -ENOENT, NULL, false },
	{ 714 /* HARDWARE_STACK_ERROR */, -EIO, ADVICE_LOST, true },
	{ 715 /* ILLEGAL_INSTRUCTION */, -EIO, ADVICE_LOST, true },
	{ 716 /* MISALIGNED_ADDRESS */, -EFAULT, ADVICE_LOST, true },
	{ 717 /* INVALID_ADDRESS_SPACE */, -EFAULT, ADVICE_LOST, true },
	{ 718 /* INVALID_PC */, -EIO, ADVICE_LOST, true },
	{ ZI_CUDA_LAUNCH_FAILED, -EIO, ADVICE_LOST, true },
	{ 721 /* TENSOR_MEMORY_LEAK */, -EIO, ADVICE_LOST, true },
	{ ZI_CUDA_NOT_PERMITTED, -EPERM, NULL, false },
	{ ZI_CUDA_NOT_SUPPORTED, -ENOTSUP, NULL, false },
	{ 802 /* SYSTEM_NOT_READY */, -ENODEV, "start nvidia-fabricmanager and nvidia-persistenced",
	  false },
	{ 803 /* SYSTEM_DRIVER_MISMATCH */, -ENODEV,
	  "kernel module and library of the driver differ: load the module anew, or reboot",
	  false },
	{ 804 /* COMPAT_NOT_SUPPORTED_ON_DEVICE */, -ENOTSUP, ADVICE_DRIVER, false },
	{ 805 /* MPS_CONNECTION_FAILED */, -ECONNREFUSED, "start the MPS daemon, or do without",
	  false },
	{ 909 /* TIMEOUT */, -ETIMEDOUT, NULL, false },
};

/* NULL: the table does not have the code. */
static const struct meaning *find(int code)
{
	for (size_t i = 0; i < ZI_COUNT_OF(meanings); i++)
		if (meanings[i].code == code)
			return &meanings[i];
	return NULL;
}

/* See error.h. */
int zi_gpu_errno(int code)
{
	const struct meaning *meaning;

	if (code == ZI_CUDA_SUCCESS)
		return 0;
	meaning = find(code);
	assert(!meaning || meaning->error < 0);
	return meaning ? meaning->error : -EIO;
}

/* See error.h. */
bool zi_gpu_is_sticky(int code)
{
	const struct meaning *meaning = find(code);

	return meaning && meaning->is_sticky;
}

/* See error.h. */
int zi_gpu_error(const struct zi_cuda *cuda, int code, struct zi_text *text, const char *format,
                 ...)
{
	const struct meaning *meaning = find(code);
	const char *name = NULL, *words = NULL;
	va_list args;

	assert(code != ZI_CUDA_SUCCESS);
	assert(format);
	if (!text)
		return zi_gpu_errno(code);
	/* A code that is unknown to this driver leaves both as they are, or makes them NULL. */
	if (cuda && cuda->cuGetErrorName && cuda->cuGetErrorName(code, &name))
		name = NULL;
	if (cuda && cuda->cuGetErrorString && cuda->cuGetErrorString(code, &words))
		words = NULL;
	va_start(args, format);
	zi_text_set_args(text, format, args);
	va_end(args);
	if (name)
		zi_text_append(text, ": %s (%d)", name, code);
	else
		zi_text_append(text, ": CUDA error %d", code);
	/* zinf's words say what to do, the driver's what it is: one of them is enough. */
	if (meaning && meaning->advice)
		zi_text_append(text, ": %s", meaning->advice);
	else if (words)
		zi_text_append(text, ": %s", words);
	return zi_gpu_errno(code);
}
