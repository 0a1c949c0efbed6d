/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake CUDA driver for tests: a libcuda.so.1 whose GPUs are host memory. An allocation is a
 * memfd, a mapped range is a mapping of it, a stream is a queue that a thread works off, a kernel
 * is a C function. Programs open it by its path (zi_gpu_driver_open()); NVIDIA's own libraries do
 * not run on it. Every name that a user may see says FAKE, and nothing is measured on it.
 *
 * $ZINF_FAKE_GPU describes it, in words with commas between them. The fake reads it once in a
 * process, at the first call:
 *
 *   gpus=2               how many there are; 0: none
 *   bytes=1G             memory of each one
 *   used=256M            of it what other processes hold
 *   mode=exclusive       compute mode: default, exclusive (one process has a context), prohibited
 *   cuda=12040           the version that the driver says; cuGetProcAddress() answers up to it
 *   no=vmm               a device without it: vmm, fds, read_only (registration)
 *   missing=cuMemMap     cuGetProcAddress() does not find it
 *   mig                  GPUs are MIG instances
 *   broken=1:46          cuDeviceGet() of GPU 1 returns code 46
 *   stuck=1              cuDeviceTotalMem() of GPU 1 never returns
 *   register=16M         the most that one cuMemHostRegister() takes
 *   order=late           how streams run, below
 *   trace=PATH           a line for each call of a place, below, is appended to that file
 *   KIND=PLACE:N:VALUE   what goes wrong, below; up to 16 of these
 *
 * Orders. A GPU may run work in each of them, so a program must compute the same bits in all:
 *   eager        a thread for each stream runs what is queued, as soon as it may
 *   late         nothing runs before somebody waits for it, and then only what the wait needs
 *   shuffled:7   at each call, and at each wait, some operations of streams drawn from the seed 7
 * A query brings forward what it asks about, so that a program that polls comes to an end.
 *
 * What goes wrong. PLACE is a function by its name without a version (cuMemCreate), `copy` (a copy
 * or memset as it runs) or `kernel`. N counts the calls of that place in this process from 1; 0 is
 * each one. VALUE is a code of CUDA, or milliseconds.
 *   fail=P:N:CODE     a function returns CODE once. An operation breaks its context, as sticky does
 *   sticky=P:N:CODE   the context is broken: from now on all that needs it returns CODE
 *   delay=P:N:MS      it takes MS longer
 *   hang=P:N          it never ends
 *   kill=P:N          SIGKILL to this process
 *   vanish=P:N        the GPU is gone: from now on all functions return 999
 */
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_GPU_ENV "ZINF_FAKE_GPU"
/* First bytes of the fake GPUs' UUIDs: GPU-fa4e0000-0000-0000-0000-0000000000NN. */
#define FAKE_GPU_UUID_0 "GPU-fa4e0000-0000-0000-0000-000000000000"
#define FAKE_GPU_UUID_1 "GPU-fa4e0000-0000-0000-0000-000000000001"

#define FAKE_PARAMETERS_MAX 16u
/* For fake_gpu_path(). */
#define FAKE_GPU_PATH_BYTES 320u

/* What a kernel computes, on the host. */
struct fake_kernel {
	const char *name; /* as cuModuleGetFunction() is asked */
	/* @shape: (6,) grid x, y, z, block x, y, z. @parameters: addresses of their copies. */
	void (*run)(const uint32_t *shape, void *const *parameters);
	uint32_t parameter_bytes[FAKE_PARAMETERS_MAX]; /* of each one; 0 ends */
};

/* Symbols of the library, for dlsym(): a kernel of the test's own, whose struct stays; how often a
 * place was called in this process. */
typedef int (*fake_kernel_add_fn)(const struct fake_kernel *kernel);
typedef uint64_t (*fake_call_count_fn)(const char *place);

/* @ret_function: the address of a function pointer. */
static inline void find_fake_symbol(void *library, const char *name, void *ret_function)
{
	void *address = dlsym(library, name);

	memcpy(ret_function, &address, sizeof(address));
}

/* A library of the build that this program belongs to. @name: "libcuda.so.1", or one of its
 * variants (gpu.mk). Return: @path; a path that is cut is not found. */
static inline const char *fake_gpu_path(char *path, size_t capacity, const char *name)
{
	const char *build = getenv("ZINF_BUILD");
	char program[256] = "build/release/tests/";
	char *tests;

	if (!build) {
		ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);

		if (bytes > 0)
			program[bytes] = '\0';
		tests = strstr(program, "/tests/");
		if (tests)
			*tests = '\0';
		build = program;
	}
	(void)snprintf(path, capacity, "%s/tests/gpu/%s", build, name);
	return path;
}
