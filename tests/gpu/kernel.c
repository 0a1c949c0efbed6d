/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, functions and launches. A module of the fake has every kernel; of its image only the
 * form is looked at. */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/entry.h"
#include "tests/gpu/fake.h"
#include "tests/gpu/kernels.h"
#include "tests/gpu/stream.h"

#define ADDED_MAX         64u
#define BLOCK_THREADS_MAX 1024u
/* First bytes of a fatbin (fatBinaryCtl.h), of a cubin (ELF) and of PTX. */
#define FATBIN_MAGIC 0xba55ed50u

struct zi_cuda_function {
	struct zi_cuda_function *next;
	struct zi_cuda_module *module;
	const struct fake_kernel *kernel;
};

struct zi_cuda_module {
	struct zi_cuda_module *next;
};

/* All under the mutex. */
static struct zi_cuda_module *modules;
static struct zi_cuda_function *functions;
static const struct fake_kernel *added[ADDED_MAX];
static uint32_t added_count;

/* See fake_gpu.h. */
int fake_kernel_add(const struct fake_kernel *kernel)
{
	int code = ZI_CUDA_OUT_OF_MEMORY;

	(void)pthread_mutex_lock(&fake_mutex);
	if (added_count < ADDED_MAX) {
		added[added_count++] = kernel;
		code = ZI_CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

static const struct fake_kernel *find_in(const struct fake_kernel *kernels, uint32_t count,
                                         const char *name)
{
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(kernels[i].name, name))
			return &kernels[i];
	return NULL;
}

static const struct fake_kernel *find_kernel(const char *name)
{
	const struct fake_kernel *kernel;

	for (uint32_t i = 0; i < added_count; i++)
		if (!strcmp(added[i]->name, name))
			return added[i];
	kernel = find_in(fake_kernels, fake_kernel_count, name);
	if (!kernel)
		kernel = find_in(fake_gpt_kernels, fake_gpt_kernel_count, name);
	if (!kernel)
		kernel = find_in(fake_state_kernels, fake_state_kernel_count, name);
	return kernel;
}

static bool is_image(const void *image)
{
	uint32_t magic;

	memcpy(&magic, image, sizeof(magic));
	return magic == FATBIN_MAGIC || !memcmp(image, "\177ELF", 4) || !memcmp(image, ".ver", 4) ||
	       !memcmp(image, "//\n/", 4);
}

int cuModuleLoadData(struct zi_cuda_module **ret_module, const void *image)
{
	struct zi_cuda_context *context;
	struct zi_cuda_module *module;

	FAKE_ENTER_CONTEXT(context);
	if (!image)
		return ZI_CUDA_INVALID_VALUE;
	if (!is_image(image))
		return ZI_CUDA_INVALID_IMAGE;
	module = calloc(1, sizeof(*module));
	if (!module)
		return ZI_CUDA_OUT_OF_MEMORY;
	(void)pthread_mutex_lock(&fake_mutex);
	module->next = modules;
	modules = module;
	(void)pthread_mutex_unlock(&fake_mutex);
	*ret_module = module;
	return ZI_CUDA_SUCCESS;
}

/* Under the mutex. */
static struct zi_cuda_module **link_of(const struct zi_cuda_module *module)
{
	struct zi_cuda_module **link = &modules;

	while (*link && *link != module)
		link = &(*link)->next;
	return link;
}

int cuModuleUnload(struct zi_cuda_module *module)
{
	struct zi_cuda_function **link = &functions;
	struct zi_cuda_module **module_link;
	struct zi_cuda_context *context;
	int code = ZI_CUDA_INVALID_HANDLE;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	module_link = link_of(module);
	if (*module_link) {
		while (*link) {
			struct zi_cuda_function *function = *link;

			if (function->module == module) {
				*link = function->next;
				free(function);
			} else {
				link = &function->next;
			}
		}
		*module_link = module->next;
		free(module);
		code = ZI_CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

/* Under the mutex. Return: a code. */
static int get_function(struct zi_cuda_module *module, const char *name,
                        struct zi_cuda_function **ret_function)
{
	const struct fake_kernel *kernel = find_kernel(name);
	struct zi_cuda_function *function = functions;

	if (!*link_of(module))
		return ZI_CUDA_INVALID_HANDLE;
	if (!kernel)
		return ZI_CUDA_NOT_FOUND;
	while (function && (function->module != module || function->kernel != kernel))
		function = function->next;
	if (!function) {
		function = calloc(1, sizeof(*function));
		if (!function)
			return ZI_CUDA_OUT_OF_MEMORY;
		*function = (struct zi_cuda_function){ functions, module, kernel };
		functions = function;
	}
	*ret_function = function;
	return ZI_CUDA_SUCCESS;
}

int cuModuleGetFunction(struct zi_cuda_function **ret_function, struct zi_cuda_module *module,
                        const char *name)
{
	struct zi_cuda_context *context;
	int code;

	FAKE_ENTER_CONTEXT(context);
	(void)pthread_mutex_lock(&fake_mutex);
	code = get_function(module, name, ret_function);
	(void)pthread_mutex_unlock(&fake_mutex);
	return code;
}

/* Copies the parameters, each at a multiple of 16 bytes. Return: a code. */
static int take_parameters(struct fake_op *op, void *const *parameters)
{
	uint64_t used_bytes = 0;

	for (uint32_t i = 0; i < FAKE_PARAMETERS_MAX && op->kernel->parameter_bytes[i]; i++) {
		const uint32_t bytes = op->kernel->parameter_bytes[i];

		if (used_bytes + bytes > FAKE_PARAMETERS_BYTES)
			return ZI_CUDA_INVALID_VALUE;
		op->parameters[i] = op->parameter_bytes + used_bytes;
		memcpy(op->parameters[i], parameters[i], bytes);
		used_bytes += (bytes + 15) / 16 * 16;
	}
	return ZI_CUDA_SUCCESS;
}

int cuLaunchKernel(struct zi_cuda_function *function, uint32_t grid_x, uint32_t grid_y,
                   uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
                   uint32_t shared_bytes, struct zi_cuda_stream *stream, void **parameters,
                   void **extra)
{
	const uint32_t shape[] = { grid_x, grid_y, grid_z, block_x, block_y, block_z };
	struct zi_cuda_context *context;
	const struct zi_cuda_function *known;
	struct fake_op *op;
	int code;

	FAKE_ENTER_CONTEXT(context);
	(void)shared_bytes; /* A host version has no need of it. */
	for (uint32_t i = 0; i < 6; i++)
		if (!shape[i])
			return ZI_CUDA_INVALID_VALUE;
	if ((uint64_t)block_x * block_y * block_z > BLOCK_THREADS_MAX || extra)
		return ZI_CUDA_INVALID_VALUE;
	(void)pthread_mutex_lock(&fake_mutex);
	known = functions;
	while (known && known != function)
		known = known->next;
	(void)pthread_mutex_unlock(&fake_mutex);
	if (!known)
		return ZI_CUDA_INVALID_HANDLE;
	op = fake_op_new(FAKE_LAUNCH);
	if (!op)
		return ZI_CUDA_OUT_OF_MEMORY;
	op->kernel = known->kernel;
	memcpy(op->shape, shape, sizeof(shape));
	code = take_parameters(op, parameters);
	if (code) {
		free(op);
		return code;
	}
	return fake_submit(context, stream, op);
}
