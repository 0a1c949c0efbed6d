/* SPDX-License-Identifier: Apache-2.0 */
/* Opening cuBLAS, and products by rows as products by columns. */
#include "examples/gpt/cublas.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

/* Constants of cublas_api.h and library_types.h. */
enum {
	OP_N = 0,
	OP_T = 1,
	TYPE_F32 = 0,
	TYPE_BF16 = 14,
	COMPUTE_F32 = 68,
	ALGORITHM_DEFAULT = -1,
	STATUS_ALLOC_FAILED = 3,
	/* CUBLAS_DEFAULT_MATH (no TF32) with CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION */
	MATH_F32_SUMS = 16,
};

/* Newest first. */
static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
	                             "libcublas.so" };

static int find(struct gpt_cublas *cublas, struct gpt_problem *problem)
{
	const struct {
		const char *symbol;
		void *field;
	} rows[] = {
		{ "cublasCreate_v2", &cublas->create },
		{ "cublasDestroy_v2", &cublas->destroy },
		{ "cublasSetStream_v2", &cublas->set_stream },
		{ "cublasSetMathMode", &cublas->set_math_mode },
		{ "cublasGemmEx", &cublas->gemm },
		{ "cublasGemmBatchedEx", &cublas->gemm_batched },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *function = dlsym(cublas->library, rows[i].symbol);

		if (!function)
			return gpt_problem_set(problem, -ELIBBAD,
			                       "the cuBLAS that was opened lacks %s: --device gpu "
			                       "needs cuBLAS 11 or newer",
			                       rows[i].symbol);
		memcpy(rows[i].field, &function, sizeof(function));
	}
	return 0;
}

int gpt_cublas_open(struct gpt_cublas *cublas, const char *path, void *stream,
                    struct gpt_problem *problem)
{
	const char *what = "cublasCreate()";
	int r, status;

	if (path)
		cublas->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	for (size_t i = 0; !path && !cublas->library && i < sizeof(names) / sizeof(names[0]); i++)
		cublas->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!cublas->library)
		return gpt_problem_set(problem, -ENODEV,
		                       "--device gpu needs cuBLAS, and it does not open (install "
		                       "libcublas, or give --cublas PATH): %s",
		                       dlerror());
	r = find(cublas, problem);
	if (r)
		return r;
	status = cublas->create(&cublas->handle);
	if (!status) {
		what = "cublasSetStream()";
		status = cublas->set_stream(cublas->handle, stream);
	}
	if (!status) {
		what = "cublasSetMathMode()";
		status = cublas->set_math_mode(cublas->handle, MATH_F32_SUMS);
	}
	return status ? gpt_cublas_problem(status, what, problem) : 0;
}

void gpt_cublas_close(struct gpt_cublas *cublas)
{
	if (cublas->handle)
		(void)cublas->destroy(cublas->handle); /* Nothing is left to do about it. */
	if (cublas->library)
		(void)dlclose(cublas->library);
	*cublas = (struct gpt_cublas){ 0 };
}

int gpt_cublas_problem(int status, const char *what, struct gpt_problem *problem)
{
	static const char *const texts[] = {
		[1] = "NOT_INITIALIZED", [3] = "ALLOC_FAILED",   [7] = "INVALID_VALUE",
		[8] = "ARCH_MISMATCH",   [11] = "MAPPING_ERROR", [13] = "EXECUTION_FAILED",
		[14] = "INTERNAL_ERROR", [15] = "NOT_SUPPORTED", [16] = "LICENSE_ERROR",
	};
	const char *text = NULL;

	if (status > 0 && (size_t)status < sizeof(texts) / sizeof(texts[0]))
		text = texts[status];
	return gpt_problem_set(problem, status == STATUS_ALLOC_FAILED ? -ENOMEM : -EIO,
	                       "cuBLAS: %s failed with status %d (%s)", what, status,
	                       text ? text : "unknown");
}

void gpt_gemm_factors(struct gpt_gemm *gemm, const struct gpt_factor *left,
                      const struct gpt_factor *right)
{
	/* One element a line has strides of 1 both ways: BLAS takes only the wide enough one. */
	gemm->is_left_transposed = left->depth_stride != 1 || left->line_stride < gemm->depth;
	gemm->is_right_transposed = right->line_stride != 1 || right->depth_stride < gemm->columns;
	gemm->left_stride = gemm->is_left_transposed ? left->depth_stride : left->line_stride;
	gemm->right_stride = gemm->is_right_transposed ? right->line_stride : right->depth_stride;
}

static int type_of(enum zinf_dtype dtype)
{
	assert(dtype == ZINF_F32 || dtype == ZINF_BF16);
	return dtype == ZINF_BF16 ? TYPE_BF16 : TYPE_F32;
}

static void assert_fits(const struct gpt_gemm *gemm)
{
	assert(gemm->rows <= INT_MAX);
	assert(gemm->columns <= INT_MAX);
	assert(gemm->depth <= INT_MAX);
	(void)gemm;
}

/* A row-major matrix is the transposed one by columns: targetᵀ = rightᵀ · leftᵀ. */
int gpt_cublas_gemm(const struct gpt_cublas *cublas, const struct gpt_gemm *gemm, const void *left,
                    const void *right, void *target)
{
	const float beta = gemm->is_adding ? 1.0f : 0.0f;
	int type = type_of(gemm->factor_dtype);

	assert_fits(gemm);
	return cublas->gemm(cublas->handle, gemm->is_right_transposed ? OP_T : OP_N,
	                    gemm->is_left_transposed ? OP_T : OP_N, (int)gemm->columns,
	                    (int)gemm->rows, (int)gemm->depth, &gemm->scale, right, type,
	                    (int)gemm->right_stride, left, type, (int)gemm->left_stride, &beta,
	                    target, type_of(gemm->target_dtype), (int)gemm->target_stride,
	                    COMPUTE_F32, ALGORITHM_DEFAULT);
}

int gpt_cublas_gemm_batch(const struct gpt_cublas *cublas, const struct gpt_gemm *gemm,
                          const uint64_t *pointers, uint32_t count)
{
	const float beta = gemm->is_adding ? 1.0f : 0.0f;
	int type = type_of(gemm->factor_dtype);

	assert_fits(gemm);
	return cublas->gemm_batched(
		cublas->handle, gemm->is_right_transposed ? OP_T : OP_N,
		gemm->is_left_transposed ? OP_T : OP_N, (int)gemm->columns, (int)gemm->rows,
		(int)gemm->depth, &gemm->scale, (const void *const *)(pointers + count), type,
		(int)gemm->right_stride, (const void *const *)pointers, type,
		(int)gemm->left_stride, &beta, (void *const *)(pointers + 2 * count),
		type_of(gemm->target_dtype), (int)gemm->target_stride, (int)count, COMPUTE_F32,
		ALGORITHM_DEFAULT);
}
