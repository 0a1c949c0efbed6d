/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the products of attention find their matrices. A product is cut into strips of rows, and
 * cuBLAS multiplies a strip of all heads of all sequences in one call. It takes the addresses of
 * the matrices from arrays in GPU memory, which this kernel writes.
 */
#pragma once

#include <stdint.h>

#include "examples/gpt/element/element.h"

/* One of the matrices of a product: its address for the first head, and the ways to the others. */
struct gpt_head_matrix {
	uint64_t address;
	uint64_t sequence_bytes, head_bytes, strip_bytes;
};

#define GPT_HEAD_MATRICES 3u /* left, right, target */

struct gpt_head_pointers_args {
	uint64_t count; /* strips * GPT_HEAD_MATRICES * sequences * heads */
	uint64_t heads, sequences;
	struct gpt_head_matrix matrices[GPT_HEAD_MATRICES];
	uint64_t *pointers; /* (strips, GPT_HEAD_MATRICES, sequences, heads) */
};

GPT_ELEMENT void gpt_head_pointers_item(const struct gpt_head_pointers_args *args, uint64_t i)
{
	uint64_t head = i % args->heads, rest = i / args->heads;
	uint64_t sequence = rest % args->sequences;
	const struct gpt_head_matrix *matrix;

	rest /= args->sequences;
	matrix = &args->matrices[rest % GPT_HEAD_MATRICES];
	args->pointers[i] = matrix->address + sequence * matrix->sequence_bytes +
	                    head * matrix->head_bytes +
	                    rest / GPT_HEAD_MATRICES * matrix->strip_bytes;
}
