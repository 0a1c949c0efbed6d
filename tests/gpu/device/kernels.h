/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels in the present context (kernels.cu). On the fake driver both are its fake_mix, and what
 * goes wrong is told to the fake in words ($ZINF_FAKE_GPU).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zi_cuda;
struct zi_cuda_function;
struct zi_cuda_stream;

struct kernels {
	const struct zi_cuda *cuda;
	struct zi_cuda_function *mix, *spin; /* NULL: there are none */
	uint32_t block_count;                /* of a launch that fills the GPU */
};

/* What a run without kernels says. */
#define KERNELS_MISSING "built without nvcc, so it has no kernels"

bool kernels_exist(bool is_fake);
/* The context is current. Return: 0; a code of the driver. */
int kernels_load(const struct zi_cuda *cuda, uint32_t multiprocessor_count, bool is_fake,
                 struct kernels *ret_kernels);
/* target[i] = @rounds of a generator on source[i], of @count words. Return: 0; a code. */
int kernels_mix(const struct kernels *kernels, uint64_t target, uint64_t source, uint64_t count,
                uint32_t rounds, struct zi_cuda_stream *stream);
/* Never ends, on all multiprocessors; on the fake only with its word "hang=kernel:N". @source: GPU
 * memory whose first word is not 1. Return: 0; a code. */
int kernels_spin(const struct kernels *kernels, uint64_t source, struct zi_cuda_stream *stream);
