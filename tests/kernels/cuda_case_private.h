/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of cuda_case.h share: the memory of a case, and the kernels over tiles. */
#pragma once

#include "tests/kernels/cuda_case.h"

#define CASE_RANKS_MAX 9u

struct case_place {
	char *memory;
	uint64_t base; /* its address for the kernel */
	uint64_t table_bytes, used_bytes;
	uint64_t seed;
};

bool case_is_optim(const struct cuda_case *c);
/* Of a step. */
enum zi_optimizer case_optimizer(const struct cuda_case *c);
enum zi_dtype case_param_dtype(const struct cuda_case *c);

/* Return: where it lies in memory; @ret_address: for the kernel. */
void *case_take(struct case_place *place, uint64_t bytes, uint64_t *ret_address);
/* The same for a table, which may name addresses. */
void *case_take_table(struct case_place *place, uint64_t bytes, uint64_t *ret_address);
/* (count,) of @dtype. */
void *case_take_array(struct case_place *place, uint64_t count, enum zi_dtype dtype,
                      enum data_kind kind, uint64_t *ret_address);
/* (count,) for each rank. Return: the table of sources. */
uint64_t *case_take_gradient(const struct cuda_case *c, uint64_t count, struct case_place *place,
                             struct kern_cuda_gradient *ret_gradient);

void case_fill_optim(const struct cuda_case *c, struct case_place *place,
                     struct kern_cuda_optim_args *args);
void case_expect_optim(const struct cuda_case *c, const struct kern_cuda_optim_args *args);
void case_fill_norm(const struct cuda_case *c, struct case_place *place,
                    struct kern_cuda_norm_blocks_args *args);
void case_expect_norm(const struct cuda_case *c, const struct kern_cuda_norm_blocks_args *args);
