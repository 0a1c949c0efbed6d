/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All kernels of the layers. A kernel NAME takes one struct gpt_NAME_args, whose first field is the
 * number of what it goes over:
 *   elements  gpt_NAME_item(args, i)          one thread each
 *   rows      gpt_NAME_row(args, row)         GPT_LANES threads each (lanes.h)
 *   columns   gpt_NAME_begin(), _term(), _end()  columns.h
 * The image has it as gpt_kernel_NAME.
 */
#pragma once

#include "examples/gpt/element/columns.h"
#include "examples/gpt/element/embedding.h"
#include "examples/gpt/element/gelu.h"
#include "examples/gpt/element/heads.h"
#include "examples/gpt/element/norm.h"
#include "examples/gpt/element/plain.h"
#include "examples/gpt/element/softmax.h"

#define GPT_KERNELS_OF_ELEMENTS(X) \
	X(add)                     \
	X(fill_rows)               \
	X(widen)                   \
	X(narrow)                  \
	X(gelu_forward)            \
	X(gelu_backward)           \
	X(embedding_forward)       \
	X(token_grads)             \
	X(position_grads)          \
	X(loss_grad)               \
	X(head_pointers)
#define GPT_KERNELS_OF_ROWS(X) \
	X(norm_forward)        \
	X(norm_backward)       \
	X(loss)                \
	X(causal_softmax)      \
	X(causal_softmax_backward)
#define GPT_KERNELS_OF_COLUMNS(X) \
	X(column_sums)            \
	X(norm_columns)
#define GPT_KERNELS(X)             \
	GPT_KERNELS_OF_ELEMENTS(X) \
	GPT_KERNELS_OF_ROWS(X)     \
	GPT_KERNELS_OF_COLUMNS(X)

#define GPT_KERNEL_ENUM(name) GPT_KERNEL_##name,
enum gpt_kernel { GPT_KERNELS(GPT_KERNEL_ENUM) _GPT_KERNEL_COUNT };
#undef GPT_KERNEL_ENUM
