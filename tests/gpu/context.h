/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts of the fake GPUs, and which one is a thread's current. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_cuda_context {
	int device;
	uint32_t retain_count; /* 0: the context does not exist */
	int sticky_code;       /* what broke it; 0: nothing */
	int exclusive_fd;      /* holds the GPU in exclusive mode; -1 */
};

/* From now on all that needs @context (NULL: the thread's current one, if any) returns @code. Takes
 * the mutex. */
void fake_context_break(struct zi_cuda_context *context, int code);
/* Under the mutex. */
bool fake_device_exists(int device);
