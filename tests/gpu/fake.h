/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the fake driver share: one mutex around all of its objects, and what every
 * function does first. An operation of a stream runs without the mutex.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/gpu/cuda.h"
#include "tests/gpu/options.h"

#define FAKE_GRANULARITY_BYTES (2ull << 20)

extern pthread_mutex_t fake_mutex;
/* Something was queued, or has ended. */
extern pthread_cond_t fake_changed;

/* Counts a call of @name, without the version at its end, and lets go wrong what the rules say.
 * Return: the code that the function has to return; ZI_CUDA_SUCCESS: it goes on. */
int fake_enter(const char *name);
/* As above, for a function that answers without a GPU and before cuInit(). */
int fake_enter_always(const char *name);
/* As above, of an operation that is about to run: "copy" or "kernel". @ret_hangs: it never ends. */
int fake_enter_operation(const char *place, bool *ret_hangs);

/* Never returns. */
_Noreturn void fake_hang(void);

/* The first statement of a function. */
#define FAKE_ENTER()                                 \
	do {                                         \
		int entered_ = fake_enter(__func__); \
		if (entered_ != ZI_CUDA_SUCCESS)     \
			return entered_;             \
	} while (0)
/* As above, for a function that needs a context. @context: the thread's current one. */
#define FAKE_ENTER_CONTEXT(context)                                      \
	do {                                                             \
		int entered_ = fake_enter(__func__);                     \
		if (entered_ == ZI_CUDA_SUCCESS)                         \
			entered_ = fake_context_current_get(&(context)); \
		if (entered_ != ZI_CUDA_SUCCESS)                         \
			return entered_;                                 \
	} while (0)

/* The thread's current context. Return: ZI_CUDA_INVALID_CONTEXT there is none; the code by which it
 * is broken. */
int fake_context_current_get(struct zi_cuda_context **ret_context);
