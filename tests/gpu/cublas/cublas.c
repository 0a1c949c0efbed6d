/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuBLAS; see fake_cublas.h. A matrix by columns is the transposed one by rows. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/bf16.h"
#include "examples/gpt/product.h"
#include "tests/gpu/cublas/fake_cublas.h"
#include "tests/gpu/fake_gpu.h"

enum { STATUS_NOT_INITIALIZED = 1, STATUS_ALLOC_FAILED = 3, STATUS_INVALID_VALUE = 7 };
enum { STATUS_EXECUTION_FAILED = 13, STATUS_NOT_SUPPORTED = 15 };
enum { OP_N = 0, OP_T = 1, TYPE_F32 = 0, TYPE_BF16 = 14, COMPUTE_F32 = 68, MATH_F32_SUMS = 16 };

struct handle {
	void *module, *function;
	void *stream;
	int mode;
};

/* A product, and of a batch all of them. a, b, c: of a batch arrays of count addresses. */
struct request {
	int op_a, op_b, m, n, k;
	float alpha, beta;
	const void *a, *b;
	void *c;
	int factor_type, target_type;
	int lda, ldb, ldc;
	int count; /* 0: no batch */
};

#pragma GCC visibility push(default)
int cublasCreate_v2(struct handle **ret_handle);
int cublasDestroy_v2(struct handle *handle);
int cublasSetStream_v2(struct handle *handle, void *stream);
int cublasSetMathMode(struct handle *handle, int mode);
int cublasGemmEx(struct handle *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                 const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                 const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
int cublasGemmBatchedEx(struct handle *handle, int op_a, int op_b, int m, int n, int k,
                        const void *alpha, const void *const *a, int a_type, int lda,
                        const void *const *b, int b_type, int ldb, const void *beta, void *const *c,
                        int c_type, int ldc, int count, int compute, int algorithm);
#pragma GCC visibility pop

/* Of the fake driver, which the process has open. */
static struct {
	int (*get_current)(void **ret_context);
	int (*load)(void **ret_module, const void *image);
	int (*unload)(void *module);
	int (*get_function)(void **ret_function, void *module, const char *name);
	int (*launch)(void *function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z,
	              uint32_t block_x, uint32_t block_y, uint32_t block_z, uint32_t shared_bytes,
	              void *stream, void **parameters, void **extra);
} driver;

/* ---- a product, on the host ---- */

/* The source in f32, laid out as it is. @count: elements of its place. Return: freed by the caller;
 * NULL: no memory. */
static float *widened(const uint16_t *source, uint64_t count)
{
	float *target = malloc(count * sizeof(*target));

	for (uint64_t i = 0; target && i < count; i++)
		target[i] = gpt_bf16_widen(source[i]);
	return target;
}

/* In elements: @lines of the length @line, @stride apart. */
static uint64_t place_count(int lines, int line, int stride)
{
	return (uint64_t)(lines - 1) * (uint64_t)stride + (uint64_t)line;
}

static void multiply(const struct request *request, struct gpt_product *product)
{
	uint64_t most = product->depth > product->row_count ? product->depth : product->row_count;
	const struct gpt_product_bounds bounds = {
		.row_count = product->row_count,
		.column_count = product->column_count,
		.depth = product->depth,
		.square_count = most > product->column_count ? most : product->column_count,
		.square_width = most > product->column_count ? most : product->column_count,
	};
	struct gpt_team *team = gpt_team_new(1, gpt_product_shared_bytes(&bounds),
	                                     gpt_product_scratch_bytes(&bounds));
	void *scratch = malloc(gpt_product_scratch_bytes(&bounds));

	if (!team || !scratch)
		abort(); /* A stream has nobody to tell. */
	if (request->count)
		gpt_product_square(product, GPT_WHOLE, scratch);
	else
		gpt_product(team, product);
	(void)gpt_team_free(team);
	free(scratch);
}

static void run_one(const struct request *request, const void *a, const void *b, void *c)
{
	bool is_a_plain = request->op_a == OP_N, is_b_plain = request->op_b == OP_N;
	bool is_bf16 = request->factor_type == TYPE_BF16;
	float *wide_a = NULL, *wide_b = NULL;
	struct gpt_product product;

	if (is_bf16) {
		wide_a = widened(a, is_a_plain ? place_count(request->k, request->m, request->lda)
		                               : place_count(request->m, request->k, request->lda));
		wide_b = widened(b, is_b_plain ? place_count(request->n, request->k, request->ldb)
		                               : place_count(request->k, request->n, request->ldb));
		if (!wide_a || !wide_b)
			abort();
	}
	product = (struct gpt_product){
		.row_count = (uint64_t)request->n,
		.column_count = (uint64_t)request->m,
		.depth = (uint64_t)request->k,
		.left = { wide_b ? wide_b : b, ZINF_F32, is_b_plain ? (uint64_t)request->ldb : 1,
		          is_b_plain ? 1 : (uint64_t)request->ldb },
		.right = { wide_a ? wide_a : a, ZINF_F32, is_a_plain ? 1 : (uint64_t)request->lda,
		           is_a_plain ? (uint64_t)request->lda : 1 },
		.target = { .data = c,
		            .dtype = request->target_type == TYPE_BF16 ? ZINF_BF16 : ZINF_F32,
		            .row_stride = (uint64_t)request->ldc,
		            .is_adding = request->beta == 1.0f,
		            .scale = request->alpha },
		.is_bf16 = is_bf16,
	};
	multiply(request, &product);
	free(wide_a);
	free(wide_b);
}

/* As the operation of a stream. */
static void run(const uint32_t *shape, void *const *parameters)
{
	const struct request *request = parameters[0];

	(void)shape;
	if (!request->count)
		run_one(request, request->a, request->b, request->c);
	for (int i = 0; i < request->count; i++)
		run_one(request, ((const void *const *)request->a)[i],
		        ((const void *const *)request->b)[i], ((void *const *)request->c)[i]);
}

static const struct fake_kernel kernel = { "fake_cublas", run, { sizeof(struct request) } };

/* ---- the library ---- */

/* Return: the status that this call of @name has to return; 0: it goes on. */
static int enter(const char *name)
{
	static char wanted[48];
	static unsigned long long nth, count;
	static int status = -1;
	const char *rule = getenv(FAKE_CUBLAS_ENV);

	if (status < 0 && (!rule || sscanf(rule, "%47[^:]:%llu:%d", wanted, &nth, &status) != 3))
		status = 0;
	return status && !strcmp(wanted, name) && ++count == nth ? status : 0;
}

static int find_driver(void)
{
	static bool is_added;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	fake_kernel_add_fn add = NULL;

	if (!library)
		return STATUS_NOT_INITIALIZED;
	find_fake_symbol(library, "fake_kernel_add", &add);
	find_fake_symbol(library, "cuCtxGetCurrent", &driver.get_current);
	find_fake_symbol(library, "cuModuleLoadData", &driver.load);
	find_fake_symbol(library, "cuModuleUnload", &driver.unload);
	find_fake_symbol(library, "cuModuleGetFunction", &driver.get_function);
	find_fake_symbol(library, "cuLaunchKernel", &driver.launch);
	(void)dlclose(library); /* The program has it open. */
	if (!add || !driver.get_current || !driver.load || !driver.unload || !driver.get_function ||
	    !driver.launch)
		return STATUS_NOT_INITIALIZED; /* Not the fake one. */
	if (!is_added && add(&kernel))
		return STATUS_ALLOC_FAILED;
	is_added = true;
	return 0;
}

int cublasCreate_v2(struct handle **ret_handle)
{
	int status = enter(__func__);
	void *context = NULL;
	struct handle *handle;

	if (!status)
		status = find_driver();
	if (status)
		return status;
	if (driver.get_current(&context) || !context)
		return STATUS_NOT_INITIALIZED;
	handle = calloc(1, sizeof(*handle));
	if (!handle)
		return STATUS_ALLOC_FAILED;
	if (driver.load(&handle->module, ".version 8.0\n") ||
	    driver.get_function(&handle->function, handle->module, kernel.name)) {
		free(handle);
		return STATUS_NOT_INITIALIZED;
	}
	*ret_handle = handle;
	return 0;
}

int cublasDestroy_v2(struct handle *handle)
{
	if (!handle)
		return STATUS_NOT_INITIALIZED;
	(void)driver.unload(handle->module); /* Fails in a broken context. */
	free(handle);
	return 0;
}

int cublasSetStream_v2(struct handle *handle, void *stream)
{
	int status = enter(__func__);

	if (!status)
		handle->stream = stream;
	return status;
}

int cublasSetMathMode(struct handle *handle, int mode)
{
	int status = enter(__func__);

	if (!status)
		handle->mode = mode;
	return status;
}

/* As cuBLAS is strict: the strides hold a line, and the types go together. */
static int check(const struct handle *handle, const struct request *request, int compute)
{
	int line_a = request->op_a == OP_N ? request->m : request->k;
	int line_b = request->op_b == OP_N ? request->k : request->n;

	if (request->m < 1 || request->n < 1 || request->k < 1 || request->lda < line_a ||
	    request->ldb < line_b || request->ldc < request->m)
		return STATUS_INVALID_VALUE;
	if (request->op_a > OP_T || request->op_b > OP_T)
		return STATUS_INVALID_VALUE;
	if (handle->mode != MATH_F32_SUMS || compute != COMPUTE_F32)
		return STATUS_NOT_SUPPORTED; /* TF32, or sums of 16 bits. */
	if (request->factor_type != TYPE_F32 && request->factor_type != TYPE_BF16)
		return STATUS_NOT_SUPPORTED;
	if (request->target_type != TYPE_F32 &&
	    (request->target_type != TYPE_BF16 || request->factor_type != TYPE_BF16))
		return STATUS_NOT_SUPPORTED;
	return request->beta == 0.0f || request->beta == 1.0f ? 0 : STATUS_NOT_SUPPORTED;
}

static int submit(struct handle *handle, struct request *request, int compute)
{
	void *parameters[] = { request };
	int status = check(handle, request, compute);

	if (status)
		return status;
	return driver.launch(handle->function, 1, 1, 1, 1, 1, 1, 0, handle->stream, parameters,
	                     NULL)
	               ? STATUS_EXECUTION_FAILED
	               : 0;
}

int cublasGemmEx(struct handle *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                 const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                 const void *beta, void *c, int c_type, int ldc, int compute, int algorithm)
{
	struct request request = { .op_a = op_a,
		                   .op_b = op_b,
		                   .m = m,
		                   .n = n,
		                   .k = k,
		                   .alpha = *(const float *)alpha,
		                   .beta = *(const float *)beta,
		                   .a = a,
		                   .b = b,
		                   .c = c,
		                   .factor_type = a_type,
		                   .target_type = c_type,
		                   .lda = lda,
		                   .ldb = ldb,
		                   .ldc = ldc };
	int status = enter(__func__);

	(void)algorithm;
	if (!status && a_type != b_type)
		status = STATUS_NOT_SUPPORTED;
	return status ? status : submit(handle, &request, compute);
}

int cublasGemmBatchedEx(struct handle *handle, int op_a, int op_b, int m, int n, int k,
                        const void *alpha, const void *const *a, int a_type, int lda,
                        const void *const *b, int b_type, int ldb, const void *beta, void *const *c,
                        int c_type, int ldc, int count, int compute, int algorithm)
{
	struct request request = { .op_a = op_a,
		                   .op_b = op_b,
		                   .m = m,
		                   .n = n,
		                   .k = k,
		                   .alpha = *(const float *)alpha,
		                   .beta = *(const float *)beta,
		                   .a = a,
		                   .b = b,
		                   .c = (void *)c,
		                   .factor_type = a_type,
		                   .target_type = c_type,
		                   .lda = lda,
		                   .ldb = ldb,
		                   .ldc = ldc,
		                   .count = count };
	int status = enter(__func__);

	(void)algorithm;
	if (!status && (a_type != b_type || c_type != TYPE_F32))
		status = STATUS_NOT_SUPPORTED;
	if (!status && (count < 1 || n > (int)GPT_SQUARE_ROWS))
		status = STATUS_INVALID_VALUE; /* A strip, as the CPU multiplies it. */
	return status ? status : submit(handle, &request, compute);
}
