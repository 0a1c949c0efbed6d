/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts; see context.h. */
#include "tests/gpu/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"

#define STACK_MAX 16u
/* As of real devices. */
#define PRIORITY_LEAST 0
#define PRIORITY_MOST  (-5)

/* Under the mutex. */
static struct zi_cuda_context contexts[FAKE_GPUS_MAX];

static _Thread_local struct {
	struct zi_cuda_context *contexts[STACK_MAX];
	uint32_t count;
} stack;

bool fake_device_exists(int device)
{
	return device >= 0 && (uint32_t)device < fake_options()->gpus;
}

static struct zi_cuda_context *current(void)
{
	return stack.count ? stack.contexts[stack.count - 1] : NULL;
}

void fake_context_break(struct zi_cuda_context *context, int code)
{
	if (!context)
		context = current();
	if (!context)
		return;
	(void)pthread_mutex_lock(&fake_mutex);
	if (!context->sticky_code)
		context->sticky_code = code;
	(void)pthread_mutex_unlock(&fake_mutex);
}

int fake_context_current_get(struct zi_cuda_context **ret_context)
{
	struct zi_cuda_context *context = current();
	int code = ZI_CUDA_INVALID_CONTEXT;

	if (!context)
		return code;
	(void)pthread_mutex_lock(&fake_mutex);
	if (context->retain_count)
		code = context->sticky_code;
	(void)pthread_mutex_unlock(&fake_mutex);
	*ret_context = context;
	return code;
}

/* A name that one process can have at a time, and loses as it ends: of the GPU, for the tests that
 * share a directory. Return: -1: another process has it. */
static int take_exclusively(int device)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *directory = getenv("TMPDIR");
	uint64_t hash = 14695981039346656037ull; /* FNV-1a */
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	for (const char *c = directory ? directory : ""; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
	(void)snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "zinf-FAKE-gpu-%d-%llx",
	               device, (unsigned long long)hash); /* Fits. */
	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		(void)close(fd); /* A socket. */
		return -1;
	}
	return fd;
}

/* Under the mutex. */
static int retain(struct zi_cuda_context *context, int device)
{
	const struct fake_options *options = fake_options();

	if (!context->retain_count) {
		int fd = -1;

		if (options->mode == ZI_CUDA_MODE_PROHIBITED)
			return ZI_CUDA_DEVICE_UNAVAILABLE;
		if (options->mode == ZI_CUDA_MODE_EXCLUSIVE && (fd = take_exclusively(device)) < 0)
			return ZI_CUDA_DEVICE_UNAVAILABLE;
		*context = (struct zi_cuda_context){ .device = device, .exclusive_fd = fd };
	}
	/* A broken context stays until the process ends. */
	if (context->sticky_code)
		return context->sticky_code;
	context->retain_count++;
	return ZI_CUDA_SUCCESS;
}

int cuDevicePrimaryCtxRetain(struct zi_cuda_context **ret_context, int device)
{
	int code;

	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	(void)pthread_mutex_lock(&fake_mutex);
	code = retain(&contexts[device], device);
	(void)pthread_mutex_unlock(&fake_mutex);
	if (!code)
		*ret_context = &contexts[device];
	return code;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	struct zi_cuda_context *context;
	int code = ZI_CUDA_SUCCESS;

	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	context = &contexts[device];
	(void)pthread_mutex_lock(&fake_mutex);
	if (!context->retain_count)
		code = ZI_CUDA_INVALID_CONTEXT;
	else if (!--context->retain_count && context->exclusive_fd >= 0)
		(void)close(context->exclusive_fd); /* A socket. */
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

int cuDevicePrimaryCtxGetState(int device, uint32_t *ret_flags, int *ret_is_active)
{
	FAKE_ENTER();
	if (!fake_device_exists(device))
		return ZI_CUDA_INVALID_DEVICE;
	(void)pthread_mutex_lock(&fake_mutex);
	*ret_flags = 0;
	*ret_is_active = contexts[device].retain_count > 0;
	(void)pthread_mutex_unlock(&fake_mutex);
	return ZI_CUDA_SUCCESS;
}

int cuCtxPushCurrent_v2(struct zi_cuda_context *context)
{
	FAKE_ENTER();
	if (!context || stack.count == STACK_MAX)
		return ZI_CUDA_INVALID_VALUE;
	stack.contexts[stack.count++] = context;
	return ZI_CUDA_SUCCESS;
}

int cuCtxPopCurrent_v2(struct zi_cuda_context **ret_context)
{
	FAKE_ENTER();
	if (!stack.count)
		return ZI_CUDA_INVALID_CONTEXT;
	stack.count--;
	if (ret_context)
		*ret_context = stack.contexts[stack.count];
	return ZI_CUDA_SUCCESS;
}

/* The top of the stack becomes @context; NULL takes it off. */
int cuCtxSetCurrent(struct zi_cuda_context *context)
{
	FAKE_ENTER();
	if (stack.count)
		stack.count--;
	if (context)
		stack.contexts[stack.count++] = context;
	return ZI_CUDA_SUCCESS;
}

int cuCtxGetCurrent(struct zi_cuda_context **ret_context)
{
	FAKE_ENTER();
	*ret_context = current();
	return ZI_CUDA_SUCCESS;
}

int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_most)
{
	struct zi_cuda_context *context;

	FAKE_ENTER_CONTEXT(context);
	*ret_least = PRIORITY_LEAST;
	*ret_most = PRIORITY_MOST;
	return ZI_CUDA_SUCCESS;
}
