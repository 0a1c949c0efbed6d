/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products on a GPU by cuBLAS, opened at run time. f32 products never go through TF32; bf16
 * products have f32 sums, also where cuBLAS splits a sum. Functions return cuBLAS's status, 0 for
 * success.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/problem.h"
#include "examples/gpt/product_bf16.h"
#include "zinf/zinf.h"

/* target (rows, columns) = left (rows, depth) · right (depth, columns); all row-major. */
struct gpt_gemm {
	uint64_t rows, columns, depth;
	/* Elements between the lines in memory. Transposed: left lies as (depth, rows), right as
	 * (columns, depth). */
	uint64_t left_stride, right_stride, target_stride;
	bool is_left_transposed, is_right_transposed;
	enum zinf_dtype factor_dtype, target_dtype; /* f32, bf16 */
	float scale;
	bool is_adding; /* to what is in target */
};

struct gpt_cublas {
	void *library, *handle;
	int (*create)(void **ret_handle);
	int (*destroy)(void *handle);
	int (*set_stream)(void *handle, void *stream);
	int (*set_math_mode)(void *handle, int mode);
	/* A, B, C by columns: m rows, n columns, k the depth. */
	int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
	            const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
	            const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
	int (*gemm_batched)(void *handle, int op_a, int op_b, int m, int n, int k,
	                    const void *alpha, const void *const *a, int a_type, int lda,
	                    const void *const *b, int b_type, int ldb, const void *beta,
	                    void *const *c, int c_type, int ldc, int count, int compute,
	                    int algorithm);
};

/* @path: NULL: the newest libcublas.so of the system. @stream: of the current context. @cublas:
 * zeroed; close it, also after a failure. Return: 0; -ENODEV there is none; -ELIBBAD; -EIO. */
int gpt_cublas_open(struct gpt_cublas *cublas, const char *path, void *stream,
                    struct gpt_problem *problem);
/* Its code stays in the process, as the driver's. */
void gpt_cublas_close(struct gpt_cublas *cublas);
/* @status: not 0. Return: -ENOMEM, -EIO. */
int gpt_cublas_problem(int status, const char *what, struct gpt_problem *problem);

/* The strides of factors as BLAS takes them. gemm: rows, columns and depth are set. */
void gpt_gemm_factors(struct gpt_gemm *gemm, const struct gpt_factor *left,
                      const struct gpt_factor *right);
int gpt_cublas_gemm(const struct gpt_cublas *cublas, const struct gpt_gemm *gemm, const void *left,
                    const void *right, void *target);
/* @pointers: GPU memory, (3, count): left, right, target of each product. */
int gpt_cublas_gemm_batch(const struct gpt_cublas *cublas, const struct gpt_gemm *gemm,
                          const uint64_t *pointers, uint32_t count);
