/* SPDX-License-Identifier: Apache-2.0 */
/* Loading and launching the kernels; see kernels.h. */
#include "tests/gpu/device/kernels.h"

#include <stddef.h>

#include "common/gpu/cuda.h"
#include "tests/gpu/device/image.h"

/* Blocks of this size, so many on a multiprocessor, fill every GPU since compute capability 8. */
#define BLOCK_THREADS 512u
#define BLOCKS_EACH   4u

/* A module of the fake has the fake's kernels, whatever its text is. */
static const void *image_of(bool is_fake)
{
	return is_fake ? ".version 7.0\n" : trial_image();
}

bool kernels_exist(bool is_fake)
{
	return image_of(is_fake);
}

int kernels_load(const struct zi_cuda *cuda, uint32_t multiprocessor_count, bool is_fake,
                 struct kernels *ret_kernels)
{
	struct kernels kernels = { .cuda = cuda,
		                   .block_count = BLOCKS_EACH * multiprocessor_count };
	struct zi_cuda_module *module = NULL;
	int code;

	if (!kernels_exist(is_fake))
		return ZI_CUDA_NOT_FOUND;
	code = cuda->cuModuleLoadData(&module, image_of(is_fake));
	if (!code)
		code = cuda->cuModuleGetFunction(&kernels.mix, module,
		                                 is_fake ? "fake_mix" : "trial_mix");
	if (!code)
		code = cuda->cuModuleGetFunction(&kernels.spin, module,
		                                 is_fake ? "fake_mix" : "trial_spin");
	if (!code)
		*ret_kernels = kernels;
	return code;
}

int kernels_mix(const struct kernels *kernels, uint64_t target, uint64_t source, uint64_t count,
                uint32_t rounds, struct zi_cuda_stream *stream)
{
	void *parameters[] = { &target, &source, &count, &rounds };

	return kernels->cuda->cuLaunchKernel(kernels->mix, kernels->block_count, 1, 1,
	                                     BLOCK_THREADS, 1, 1, 0, stream, parameters, NULL);
}

int kernels_spin(const struct kernels *kernels, uint64_t source, struct zi_cuda_stream *stream)
{
	uint64_t target = source, count = 1;
	uint32_t rounds = 1;
	void *parameters[] = { &target, &source, &count, &rounds };

	return kernels->cuda->cuLaunchKernel(kernels->spin, kernels->block_count, 1, 1,
	                                     BLOCK_THREADS, 1, 1, 0, stream, parameters, NULL);
}
