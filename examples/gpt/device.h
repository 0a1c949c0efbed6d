/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU that a rank computes on: its memory, the stream on which everything runs in order, the
 * kernels (element/kernels.h) and the matrix products (cublas.h). The thread that opened it uses
 * it.
 *
 * Addresses of GPU memory are pointers here, as the layers' arrays are; the host does not follow
 * them. A call that cannot return an error notes the first one: gpt_device_error(). Later calls do
 * nothing then.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "examples/gpt/element/kernels.h"
#include "examples/gpt/problem.h"

struct gpt_device;
struct gpt_gemm;

/* "GPU-8-4-4-4-12" or "MIG-8-4-4-4-12", and a NUL. */
#define GPT_UUID_BYTES 41u

struct gpt_device_options {
	const char *uuid;   /* NULL: by index */
	uint32_t index;     /* of those that the process sees; taken modulo their number */
	const char *driver; /* path of libcuda.so.1; NULL: the system's */
	const char *cublas; /* path of libcublas.so; NULL: the system's */
	const void *image;  /* the kernels; NULL: this build has none */
};

/* @ret_device: close it. Return: 0; -ENOTSUP no kernels; -ENODEV no driver, no such GPU, no
 * cuBLAS; -ELIBBAD; -ENOMEM; -EIO. With the reason. */
int gpt_device_open(const struct gpt_device_options *options, struct gpt_problem *problem,
                    struct gpt_device **ret_device);
/* What the stream was given ends first. NULL is fine. */
void gpt_device_close(struct gpt_device *device);

/* "GPU-…" or "MIG-…"; the device's. */
const char *gpt_device_uuid(const struct gpt_device *device);
void *gpt_device_stream(const struct gpt_device *device); /* a CUstream */

/* Memory of the GPU, and memory of the host that the GPU reads by itself. Return: NULL: there is
 * not so much. */
void *gpt_device_alloc(struct gpt_device *device, uint64_t bytes);
void gpt_device_free(struct gpt_device *device, void *memory);
void *gpt_device_host_alloc(struct gpt_device *device, uint64_t bytes);
void gpt_device_host_free(struct gpt_device *device, void *memory);

/* Queued: @source is the host's, and stays until gpt_device_wait(). */
void gpt_device_store(struct gpt_device *device, void *target, const void *source, uint64_t bytes);
void gpt_device_copy(struct gpt_device *device, void *target, const void *source, uint64_t bytes);
void gpt_device_zero(struct gpt_device *device, void *target, uint64_t bytes);
/* @args: struct gpt_NAME_args of the kernel. */
void gpt_device_launch(struct gpt_device *device, enum gpt_kernel kernel, const void *args);
/* target = scale * left · right, or added to it (cublas.h). */
void gpt_device_gemm(struct gpt_device *device, const struct gpt_gemm *gemm, const void *left,
                     const void *right, void *target);
/* The same for @count products. @pointers: GPU memory, (3, count): left, right, target. */
void gpt_device_gemm_batch(struct gpt_device *device, const struct gpt_gemm *gemm,
                           const uint64_t *pointers, uint32_t count);

/* Until the stream has nothing left. Return: 0; the first error. */
int gpt_device_wait(struct gpt_device *device);
/* Copies to the host and waits. Return: 0; the first error. */
int gpt_device_fetch(struct gpt_device *device, const void *source, uint64_t bytes,
                     void *ret_target);

/* 0: nothing has failed. */
int gpt_device_error(const struct gpt_device *device);
const char *gpt_device_error_text(const struct gpt_device *device);
