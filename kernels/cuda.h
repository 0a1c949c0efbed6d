/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels for training state in GPU memory, for a process that launches them: their names,
 * arguments, checks and grids. This header calls no driver; cuda/image.h has the compiled kernels.
 * They give the bits of the CPU's kernels (docs/ARITHMETIC.md), because both call the functions of
 * element/. Floor 1, any thread.
 *
 * A kernel takes one struct, by value. Addresses are the GPU's and multiples of
 * KERN_CUDA_ALIGN_BYTES; tables that a struct names by their address lie in GPU memory. Arrays do
 * not overlap where a comment does not allow it. Counts are elements. Reserved fields are zero.
 * Structs only grow: a change of their sizes is a change of KERN_CUDA_VERSION.
 *
 * One launch makes the step, or the norm, of all tiles of a job on a GPU, whatever units they are
 * of. What is not here: padding of gradients counts as +0, so the launcher clears it
 * (cuMemsetD8Async()); a conversion between two arrays of one dtype is a copy; with a reduce_dtype
 * of its own each gradient goes through narrow and widen first.
 */
#pragma once

#include <assert.h>
#include <stddef.h>

#include "common/base/types.h"
#include "kernels/optim.h"

struct zi_text;

#define KERN_CUDA_VERSION     1u
#define KERN_CUDA_ALIGN_BYTES 16u
#define KERN_CUDA_GROUPS_MAX  64u /* as ZI_PARAM_GROUPS_MAX of common/wire */
/* Elements of one thread at a time: 16 bytes of a 16-bit type. */
#define KERN_CUDA_VECTOR 8u
/* Nodes of a tree that norm_join makes one of. */
#define KERN_CUDA_JOIN_NODES 1024u
/* Threads of a block, of all kernels. */
#define KERN_CUDA_THREADS 256u

/* A kernel's name in the image is "kern_cuda_" and this. */
#define KERN_CUDA_ARRAYS(X) \
	X(widen)            \
	X(narrow)           \
	X(reduce)           \
	X(accumulate)       \
	X(finish)           \
	X(norm_blocks)      \
	X(norm_join)
/* X(name, optimizer, dtype of parameters), in the order of both enums. */
#define KERN_CUDA_OPTIMS(X)            \
	X(adamw_f32, ADAMW, F32)       \
	X(adamw_f16, ADAMW, F16)       \
	X(adamw_bf16, ADAMW, BF16)     \
	X(adam_f32, ADAM, F32)         \
	X(adam_f16, ADAM, F16)         \
	X(adam_bf16, ADAM, BF16)       \
	X(sgd_f32, SGD, F32)           \
	X(sgd_f16, SGD, F16)           \
	X(sgd_bf16, SGD, BF16)         \
	X(adagrad_f32, ADAGRAD, F32)   \
	X(adagrad_f16, ADAGRAD, F16)   \
	X(adagrad_bf16, ADAGRAD, BF16) \
	X(lion_f32, LION, F32)         \
	X(lion_f16, LION, F16)         \
	X(lion_bf16, LION, BF16)

#define KERN_CUDA_ARRAY_ENUM(name)                   KERN_CUDA_##name,
#define KERN_CUDA_OPTIM_ENUM(name, optimizer, dtype) KERN_CUDA_##name,
enum kern_cuda_kernel {
	KERN_CUDA_ARRAYS(KERN_CUDA_ARRAY_ENUM) KERN_CUDA_OPTIMS(KERN_CUDA_OPTIM_ENUM)
		_KERN_CUDA_COUNT
};
#undef KERN_CUDA_ARRAY_ENUM
#undef KERN_CUDA_OPTIM_ENUM

/* Gradients of ranks. */
struct kern_cuda_gradient {
	uint64_t sources;      /* (source_count,) addresses, in rank order, of (n,) of dtype */
	uint32_t source_count; /* 1 to ZI_WORLD_MAX; 1 with is_reduced */
	uint32_t dtype;        /* enum zi_dtype: F32, F16, BF16 */
	uint32_t is_reduced;   /* the source is the reduced gradient: no average */
	float average;
};

/* target: (n,) f32. source: (n,) of dtype. As kern_widen(). */
struct kern_cuda_widen_args {
	uint64_t element_count;
	uint64_t target, source;
	uint32_t dtype; /* F16, BF16 */
	uint32_t reserved;
};

/* target: (n,) of dtype. source: (n,) f32. As kern_narrow(). */
struct kern_cuda_narrow_args {
	uint64_t element_count;
	uint64_t target, source;
	uint32_t dtype; /* F16, BF16 */
	uint32_t reserved;
};

/* target: (n,) of the gradients' dtype; may be one of the sources. As kern_reduce(). */
struct kern_cuda_reduce_args {
	uint64_t element_count;
	uint64_t target;
	struct kern_cuda_gradient gradient; /* not is_reduced */
};

/* accum: (n,) f32; the gradients' average does not count. As kern_reduce_accumulate(). */
struct kern_cuda_accumulate_args {
	uint64_t element_count;
	uint64_t accum;
	uint32_t is_first;
	uint32_t reserved;
	struct kern_cuda_gradient gradient; /* not is_reduced */
};

/* target: (n,) of dtype; may be accum where that is F32. accum: (n,) f32. As
 * kern_reduce_finish(). */
struct kern_cuda_finish_args {
	uint64_t element_count;
	uint64_t target, accum;
	uint32_t dtype;
	float average;
};

/* Groups of tiles. */
#define KERN_CUDA_FROZEN UINT32_MAX       /* no gradient, and nothing of it changes */
#define KERN_CUDA_MIXED  (UINT32_MAX - 1) /* of several groups: its stretches */

/*
 * A tile, as in an extent of state. state: [remainder | exp_avg | exp_avg_sq] of element_count
 * elements each; no remainder with F32, no exp_avg_sq with one moment.
 */
struct kern_cuda_tile {
	uint64_t param;          /* (element_count,), updated in place */
	uint64_t param_copy;     /* a second place of the new parameter; 0: none */
	uint64_t state;          /* updated in place */
	uint64_t gradient_first; /* its first element in each source, a multiple of 8 */
	uint64_t block_first;    /* place of its first block in the norm's sums */
	uint32_t element_count;  /* up to ZI_TILE_ELEMENTS: whole blocks for the norm, for the
	                          * step a multiple of 16 */
	uint32_t group;          /* below KERN_CUDA_GROUPS_MAX, or as above */
	uint32_t stretch_first, stretch_count; /* of a mixed one, in `stretches` */
};

/* A parameter range of a mixed tile that is of one group. */
struct kern_cuda_stretch {
	uint32_t end;   /* the element of the tile behind it; it begins where the former one ends;
	                 * the last one's is element_count or above */
	uint32_t group; /* or KERN_CUDA_FROZEN */
};

/*
 * block_sums: f64, that of each block of each tile is written. Without is_reduced: of the gradient
 * as kern_reduce() would write it. As kern_norm_blocks(), with +0 for what is frozen.
 */
struct kern_cuda_norm_blocks_args {
	uint64_t tile_count;
	uint64_t tiles;     /* (tile_count,) struct kern_cuda_tile; its addresses do not count */
	uint64_t stretches; /* struct kern_cuda_stretch; 0: no mixed tile has frozen elements */
	uint64_t block_sums;
	float unscale;
	uint32_t reserved;
	struct kern_cuda_gradient gradient;
};

/*
 * nodes: (element_count,) f64, from a node on whose global index is a multiple of
 * KERN_CUDA_JOIN_NODES. joined: one for each KERN_CUDA_JOIN_NODES of them, the last one for the
 * rest: nodes of the same tree, which kern_norm_join() or this kernel joins further.
 */
struct kern_cuda_norm_join_args {
	uint64_t element_count; /* nodes */
	uint64_t joined, nodes;
};

/* The fused step, as kern_optim_step(). */
struct kern_cuda_optim_args {
	uint64_t tile_count;
	uint64_t tiles;     /* (tile_count,) struct kern_cuda_tile */
	uint64_t stretches; /* struct kern_cuda_stretch; 0: no tile is mixed */
	struct kern_cuda_gradient gradient;
	/* All of one optimizer. Their average does not count, but that of the gradients. */
	struct kern_optim_scalars groups[KERN_CUDA_GROUPS_MAX];
};

static_assert(sizeof(struct kern_optim_scalars) == 56, "as the image reads it");
static_assert(sizeof(struct kern_cuda_gradient) == 24, "as the image reads it");
static_assert(sizeof(struct kern_cuda_tile) == 56, "as the image reads it");
static_assert(sizeof(struct kern_cuda_stretch) == 8, "as the image reads it");
static_assert(sizeof(struct kern_cuda_widen_args) == 32, "as the image reads it");
static_assert(sizeof(struct kern_cuda_narrow_args) == 32, "as the image reads it");
static_assert(sizeof(struct kern_cuda_reduce_args) == 40, "as the image reads it");
static_assert(sizeof(struct kern_cuda_accumulate_args) == 48, "as the image reads it");
static_assert(sizeof(struct kern_cuda_finish_args) == 32, "as the image reads it");
static_assert(sizeof(struct kern_cuda_norm_blocks_args) == 64, "as the image reads it");
static_assert(sizeof(struct kern_cuda_norm_join_args) == 24, "as the image reads it");
static_assert(sizeof(struct kern_cuda_optim_args) == 3632, "as the image reads it");
static_assert(sizeof(struct kern_cuda_optim_args) <= 4096, "what a launch takes on any GPU");

struct kern_cuda_grid {
	uint32_t block_count; /* 0: there is nothing to launch */
	uint32_t thread_count;
};

#ifdef __cplusplus
extern "C" {
#endif

/* "kern_cuda_widen", for cuModuleGetFunction(). */
const char *kern_cuda_name(enum kern_cuda_kernel kernel);
/* Of the struct that @kernel takes. */
uint32_t kern_cuda_args_bytes(enum kern_cuda_kernel kernel);
/* The kernel of a fused step. @param_dtype: F32, F16, BF16. */
enum kern_cuda_kernel kern_cuda_optim(enum zi_optimizer optimizer, enum zi_dtype param_dtype);
/* A launch of @kernel over @count elements, nodes (norm_join), or tiles (norm_blocks, steps) on a
 * GPU of @multiprocessor_count multiprocessors. All kernels work with any grid of
 * KERN_CUDA_THREADS. */
struct kern_cuda_grid kern_cuda_grid_of(enum kern_cuda_kernel kernel, uint64_t count,
                                        uint32_t multiprocessor_count);
/* Before a launch. @args: the struct of @kernel. Return: 0; -EINVAL, with a sentence in @text: an
 * address that is 0 or not aligned, a count or a dtype that @kernel does not take. */
int kern_cuda_check(enum kern_cuda_kernel kernel, const void *args, struct zi_text *text);
/* Before tables go to the GPU: the tile, its stretches, and the addresses of the gradients, as
 * @kernel takes them. @stretches: all of the table. Return: 0; -EINVAL, as above. */
int kern_cuda_check_tile(enum kern_cuda_kernel kernel, const struct kern_cuda_tile *tile,
                         const struct kern_cuda_stretch *stretches, struct zi_text *text);
int kern_cuda_check_sources(enum kern_cuda_kernel kernel, const uint64_t *sources,
                            uint32_t source_count, struct zi_text *text);

#ifdef __cplusplus
}
#endif
