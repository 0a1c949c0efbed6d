/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU in use; see device.h. */
#include "examples/gpt/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "examples/gpt/cublas.h"
#include "examples/gpt/cuda.h"

#define UUID_RAW_BYTES 16u
#define NON_BLOCKING   1u /* CU_STREAM_NON_BLOCKING: no order towards the default stream */

/* Threads of a block; at most so many blocks, which go over the rest in turns. */
#define BLOCK_THREADS 256u
#define BLOCKS_MAX    (1u << 20)
/* As in gpu/layers.cu. */
#define COLUMNS     32u
#define COLUMN_ROWS 16u

#define ONE(name)       +1
#define ELEMENT_KERNELS (0 GPT_KERNELS_OF_ELEMENTS(ONE))
#define ROW_KERNELS     (0 GPT_KERNELS_OF_ROWS(ONE))

#define NAME(name) "gpt_kernel_" #name,
static const char *const kernel_names[] = { GPT_KERNELS(NAME) };

struct gpt_device {
	struct gpt_cuda cuda;
	int number; /* the driver's */
	void *context, *stream, *module;
	void *functions[_GPT_KERNEL_COUNT];
	struct gpt_cublas cublas;
	char uuid[GPT_UUID_BYTES];
	int error;
	struct gpt_problem problem;
};

/* ---- errors ---- */

/* Notes the first error. Return: whether the call worked. */
static bool check(struct gpt_device *device, int code, const char *what)
{
	if (code && !device->error)
		device->error = gpt_cuda_problem(&device->cuda, code, what, &device->problem);
	return code == 0;
}

int gpt_device_error(const struct gpt_device *device)
{
	return device->error;
}

const char *gpt_device_error_text(const struct gpt_device *device)
{
	return device->problem.chars;
}

/* ---- opening ---- */

/* The UUID of an instance of MIG differs from that of the GPU it lies on. */
static bool read_uuid(struct gpt_device *device, int number, char *text)
{
	uint8_t bytes[UUID_RAW_BYTES], whole[UUID_RAW_BYTES];
	int used;

	if (!check(device, device->cuda.cuDeviceGetUuid(bytes, number), "cuDeviceGetUuid()") ||
	    !check(device, device->cuda.cuDeviceGetUuidGpu(whole, number), "cuDeviceGetUuid()"))
		return false;
	used = snprintf(text, GPT_UUID_BYTES, "%s-",
	                memcmp(bytes, whole, sizeof(bytes)) ? "MIG" : "GPU");
	for (uint32_t i = 0; i < UUID_RAW_BYTES; i++)
		used += snprintf(text + used, GPT_UUID_BYTES - (size_t)used, "%s%02x",
		                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
	return true;
}

/* The GPU that @options name. Return: 0, or the error. */
static int find(struct gpt_device *device, const struct gpt_device_options *options)
{
	char first[GPT_UUID_BYTES] = "";
	int count = 0;

	if (!check(device, device->cuda.cuDeviceGetCount(&count), "cuDeviceGetCount()"))
		return device->error;
	for (int i = 0; i < count; i++) {
		bool is_wanted;

		if (!check(device, device->cuda.cuDeviceGet(&device->number, i), "cuDeviceGet()") ||
		    !read_uuid(device, device->number, device->uuid))
			return device->error;
		is_wanted = options->uuid ? !strcasecmp(options->uuid, device->uuid)
		                          : (uint32_t)i == options->index % (uint32_t)count;
		if (is_wanted)
			return 0;
		if (i == 0)
			memcpy(first, device->uuid, sizeof(first));
	}
	if (!count)
		return gpt_problem_set(&device->problem, -ENODEV,
		                       "the NVIDIA driver shows this process no GPU: look at "
		                       "nvidia-smi and CUDA_VISIBLE_DEVICES");
	return gpt_problem_set(&device->problem, -ENODEV,
	                       "--device %s: this process sees no such GPU among %d, of which the "
	                       "first is %s; nvidia-smi -L lists them",
	                       options->uuid, count, first);
}

static int load(struct gpt_device *device, const void *image)
{
	struct gpt_cuda *cuda = &device->cuda;

	if (!check(device, cuda->cuDevicePrimaryCtxRetain(&device->context, device->number),
	           "a context on the GPU"))
		return device->error;
	if (!check(device, cuda->cuCtxSetCurrent(device->context), "cuCtxSetCurrent()") ||
	    !check(device, cuda->cuStreamCreateWithPriority(&device->stream, NON_BLOCKING, 0),
	           "cuStreamCreateWithPriority()") ||
	    !check(device, cuda->cuModuleLoadData(&device->module, image), "loading the kernels"))
		return device->error;
	for (uint32_t i = 0; i < _GPT_KERNEL_COUNT; i++)
		if (!check(device,
		           cuda->cuModuleGetFunction(&device->functions[i], device->module,
		                                     kernel_names[i]),
		           kernel_names[i]))
			return device->error;
	return 0;
}

static int open_parts(struct gpt_device *device, const struct gpt_device_options *options)
{
	int r;

	if (!options->image)
		return gpt_problem_set(
			&device->problem, -ENOTSUP,
			"--device gpu: this build of zinf-gpt has no kernels, because "
			"nvcc was not found; build it with make NVCC=/path/to/nvcc");
	r = gpt_cuda_open(&device->cuda, options->driver, &device->problem);
	if (!r)
		r = find(device, options);
	if (!r)
		r = load(device, options->image);
	return r ? r
	         : gpt_cublas_open(&device->cublas, options->cublas, device->stream,
	                           &device->problem);
}

int gpt_device_open(const struct gpt_device_options *options, struct gpt_problem *problem,
                    struct gpt_device **ret_device)
{
	struct gpt_device *device = calloc(1, sizeof(*device));
	int r;

	if (!device)
		return gpt_problem_set(problem, -ENOMEM, "No memory for a GPU's handles");
	r = open_parts(device, options);
	if (r) {
		*problem = device->problem;
		gpt_device_close(device);
		return r;
	}
	*ret_device = device;
	return 0;
}

/* What fails here is over anyway. */
void gpt_device_close(struct gpt_device *device)
{
	struct gpt_cuda *cuda;

	if (!device)
		return;
	cuda = &device->cuda;
	if (device->stream)
		(void)cuda->cuStreamSynchronize(device->stream);
	gpt_cublas_close(&device->cublas);
	if (device->module)
		(void)cuda->cuModuleUnload(device->module);
	if (device->stream)
		(void)cuda->cuStreamDestroy(device->stream);
	if (device->context) {
		(void)cuda->cuCtxSetCurrent(NULL);
		(void)cuda->cuDevicePrimaryCtxRelease(device->number);
	}
	gpt_cuda_close(cuda);
	free(device);
}

const char *gpt_device_uuid(const struct gpt_device *device)
{
	return device->uuid;
}

/* A CUstream. */
void *gpt_device_stream(const struct gpt_device *device)
{
	return device->stream;
}

/* ---- memory ---- */

void *gpt_device_alloc(struct gpt_device *device, uint64_t bytes)
{
	uint64_t address = 0;

	return check(device, device->cuda.cuMemAlloc(&address, bytes ? bytes : 1),
	             "memory of the GPU")
	               ? (void *)address
	               : NULL;
}

void gpt_device_free(struct gpt_device *device, void *memory)
{
	if (memory)
		(void)device->cuda.cuMemFree((uint64_t)memory); /* Waits for what uses it. */
}

void *gpt_device_host_alloc(struct gpt_device *device, uint64_t bytes)
{
	void *memory = NULL;

	return check(device, device->cuda.cuMemHostAlloc(&memory, bytes ? bytes : 1, 0),
	             "pinned memory of the host")
	               ? memory
	               : NULL;
}

void gpt_device_host_free(struct gpt_device *device, void *memory)
{
	if (memory)
		(void)device->cuda.cuMemFreeHost(memory);
}

/* ---- the stream ---- */

void gpt_device_store(struct gpt_device *device, void *target, const void *source, uint64_t bytes)
{
	if (!device->error)
		(void)check(device,
		            device->cuda.cuMemcpyHtoDAsync((uint64_t)target, source, bytes,
		                                           device->stream),
		            "a copy to the GPU");
}

void gpt_device_copy(struct gpt_device *device, void *target, const void *source, uint64_t bytes)
{
	if (!device->error)
		(void)check(device,
		            device->cuda.cuMemcpyDtoDAsync((uint64_t)target, (uint64_t)source,
		                                           bytes, device->stream),
		            "a copy in GPU memory");
}

void gpt_device_zero(struct gpt_device *device, void *target, uint64_t bytes)
{
	if (!device->error)
		(void)check(
			device,
			device->cuda.cuMemsetD8Async((uint64_t)target, 0, bytes, device->stream),
			"zeroing GPU memory");
}

static uint32_t blocks_of(uint64_t count, uint64_t each)
{
	uint64_t blocks = (count + each - 1) / each;

	return blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
}

void gpt_device_launch(struct gpt_device *device, enum gpt_kernel kernel, const void *args)
{
	void *parameters[] = { (void *)args }; /* The driver reads it only. */
	const int number = (int)kernel;
	uint32_t threads_x = BLOCK_THREADS, threads_y = 1, blocks;
	uint64_t count;

	memcpy(&count, args, sizeof(count)); /* the first field of each */
	if (device->error || !count)
		return;
	if (number < ELEMENT_KERNELS) {
		blocks = blocks_of(count, BLOCK_THREADS);
	} else if (number < ELEMENT_KERNELS + ROW_KERNELS) {
		blocks = blocks_of(count, BLOCK_THREADS / GPT_LANES);
	} else {
		blocks = (uint32_t)((count + COLUMNS - 1) / COLUMNS);
		threads_x = COLUMNS;
		threads_y = COLUMN_ROWS;
	}
	(void)check(device,
	            device->cuda.cuLaunchKernel(device->functions[kernel], blocks, 1, 1, threads_x,
	                                        threads_y, 1, 0, device->stream, parameters, NULL),
	            kernel_names[kernel]);
}

static void check_product(struct gpt_device *device, int status)
{
	if (status && !device->error)
		device->error = gpt_cublas_problem(status, "a matrix product", &device->problem);
}

void gpt_device_gemm(struct gpt_device *device, const struct gpt_gemm *gemm, const void *left,
                     const void *right, void *target)
{
	if (!device->error)
		check_product(device, gpt_cublas_gemm(&device->cublas, gemm, left, right, target));
}

void gpt_device_gemm_batch(struct gpt_device *device, const struct gpt_gemm *gemm,
                           const uint64_t *pointers, uint32_t count)
{
	if (!device->error)
		check_product(device,
		              gpt_cublas_gemm_batch(&device->cublas, gemm, pointers, count));
}

int gpt_device_wait(struct gpt_device *device)
{
	if (!device->error)
		(void)check(device, device->cuda.cuStreamSynchronize(device->stream),
		            "the work on the GPU");
	return device->error;
}

int gpt_device_fetch(struct gpt_device *device, const void *source, uint64_t bytes,
                     void *ret_target)
{
	if (!device->error)
		(void)check(device,
		            device->cuda.cuMemcpyDtoHAsync(ret_target, (uint64_t)source, bytes,
		                                           device->stream),
		            "a copy from the GPU");
	return gpt_device_wait(device);
}
