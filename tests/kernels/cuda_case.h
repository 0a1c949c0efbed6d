/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A case of a kernel of kernels/cuda.h: data of all kinds in one piece of memory, the arguments of
 * a launch over it, and what the CPU's kernels make of the same memory. All of it but tables of
 * addresses is compared, the gaps between the arrays included.
 */
#pragma once

#include "kernels/cuda.h"
#include "tests/kernels/data.h"

#define CASE_BYTES (2u << 20) /* the largest case has 1.9 MB */

struct cuda_case {
	enum kern_cuda_kernel kernel;
	enum zi_dtype dtype; /* of casts and of finish */
	enum zi_dtype grad_dtype;
	uint32_t rank_count;
	bool is_reduced;
	bool is_in_place; /* the target is a source */
	bool is_first;    /* step of SGD, micro-batch */
	bool is_nesterov;
	bool has_copy;
	bool has_stretches;
	enum data_kind kind;
	uint64_t element_count;
	uint64_t seed;
};

union cuda_args {
	struct kern_cuda_widen_args widen;
	struct kern_cuda_narrow_args narrow;
	struct kern_cuda_reduce_args reduce;
	struct kern_cuda_accumulate_args accumulate;
	struct kern_cuda_finish_args finish;
	struct kern_cuda_norm_blocks_args norm_blocks;
	struct kern_cuda_norm_join_args norm_join;
	struct kern_cuda_optim_args optim;
};

/* A case of @kernel whose other fields are drawn. */
struct cuda_case case_draw(enum kern_cuda_kernel kernel, uint64_t seed);
/* CASE_BYTES for a case. */
char *case_memory_new(void);
/* Fills @memory, CASE_BYTES that the kernel finds at @base, and the arguments. */
void case_fill(const struct cuda_case *c, char *memory, uint64_t base, union cuda_args *args);
/* What the CPU's kernels make of memory that is at its own address. */
void case_expect(const struct cuda_case *c, const union cuda_args *args);
/* Fails the test unless both memories are alike. */
void case_compare(const struct cuda_case *c, const char *expected, const char *found);
