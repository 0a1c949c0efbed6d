/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake cuBLAS for tests: a libcublas.so.12 for the fake driver (fake_gpu.h). It has the functions
 * that zinf-gpt calls. A product is an operation of the handle's stream, and is multiplied as
 * zinf-gpt multiplies on the CPU (examples/gpt/product.h): a plain one in the pieces of
 * gpt_product(), each one of a batch as a strip of gpt_product_square(). So the sums have the same
 * order, and the same bits. bf16 factors are multiplied in bf16 where the CPU's run does it.
 *
 * $ZINF_FAKE_CUBLAS=NAME:N:STATUS: the N-th call of the function NAME in this process returns
 * STATUS.
 */
#pragma once

#define FAKE_CUBLAS_ENV "ZINF_FAKE_CUBLAS"
