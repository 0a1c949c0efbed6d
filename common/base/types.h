/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain types that every floor speaks of: element types, optimizers, identifiers, extents, and the
 * geometry of the flat parameter space. Floor 0. No behaviour beyond tables of names and widths.
 *
 * The geometry constants are the arithmetic's (docs/ARITHMETIC.md): changing one changes the
 * layout on disk and the bits of the norm, hence the store's version.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A norm is summed, and a shard or subgroup begins and ends, on multiples of this many elements. */
#define ZI_BLOCK_ELEMENTS 4096u
/* Optimizer state is laid out, hashed and computed in tiles of this many elements: one tile of
 * bf16 training is 160 KiB of state, so that it stays in a core's L2 while it is read, updated and
 * hashed. The last tile of an extent may be short (a multiple of ZI_BLOCK_ELEMENTS). */
#define ZI_TILE_ELEMENTS 16384u
/* A subgroup (unit of optimizer work and I/O) holds at most this many elements: 2.5 MiB of state in
 * bf16, several io_uring blocks, and small enough that a handful of staging slots keep disk and
 * cores busy. */
#define ZI_SUBGROUP_ELEMENTS 262144u
/* Alignment of every offset and length on a store: the largest logical block in common use. */
#define ZI_STORE_ALIGN_BYTES 4096u
#define ZI_HUGE_PAGE_BYTES   (2ull << 20)

#define ZI_NAME_BYTES       64u /* job, incarnation, tier names: NUL included */
#define ZI_PARAM_NAME_BYTES 96u /* unit and parameter names: NUL included */
#define ZI_PARAM_DIMS_MAX   8u
#define ZI_WORLD_MAX        64u /* ranks of one job on this node; bitmaps of ranks are uint64_t */

/* Parameters and gradients are the first three; collectives carry all of them. */
enum zi_dtype {
	ZI_DTYPE_F32 = 1,
	ZI_DTYPE_F16 = 2,
	ZI_DTYPE_BF16 = 3,
	_ZI_DTYPE_FLOAT_COUNT, /* of those that are trained */
	ZI_DTYPE_I8 = 4,
	ZI_DTYPE_U8 = 5,
	ZI_DTYPE_I32 = 6,
	ZI_DTYPE_I64 = 7,
	ZI_DTYPE_F64 = 8,
	_ZI_DTYPE_COUNT,
};

/* How collectives join the ranks' elements (docs/ARITHMETIC.md). */
enum zi_reduce_op {
	ZI_REDUCE_SUM = 1,
	ZI_REDUCE_AVG = 2, /* floats only */
	ZI_REDUCE_PROD = 3,
	ZI_REDUCE_MIN = 4,
	ZI_REDUCE_MAX = 5,
	ZI_REDUCE_BAND = 6, /* integers only, as are the next two */
	ZI_REDUCE_BOR = 7,
	ZI_REDUCE_BXOR = 8,
	_ZI_REDUCE_COUNT,
};

enum zi_optimizer {
	ZI_OPTIMIZER_ADAMW = 1, /* decoupled weight decay */
	ZI_OPTIMIZER_ADAM = 2,  /* weight decay added to the gradient (L2) */
	ZI_OPTIMIZER_SGD = 3,   /* with momentum */
	ZI_OPTIMIZER_ADAGRAD = 4,
	ZI_OPTIMIZER_LION = 5, /* decoupled weight decay */
	_ZI_OPTIMIZER_COUNT,
};

/* How gradients of several micro-batches are accumulated (docs/ARITHMETIC.md). */
enum zi_schedule {
	ZI_SCHEDULE_LOCAL = 1,   /* each rank in its own buffer, one reduction */
	ZI_SCHEDULE_SHARDED = 2, /* one reduction per micro-batch into an fp32 accumulator */
	_ZI_SCHEDULE_COUNT,
};

/* Where a plane lives. */
enum zi_offload {
	ZI_OFFLOAD_NONE = 0, /* on the device that computes; here the CPU tier */
	ZI_OFFLOAD_CPU = 1,
	ZI_OFFLOAD_NVME = 2,
	_ZI_OFFLOAD_COUNT,
};

enum zi_durability {
	ZI_DURABILITY_PROCESS = 0, /* a commit survives the death of any process */
	ZI_DURABILITY_POWER = 1,   /* a commit is flushed to the device */
	_ZI_DURABILITY_COUNT,
};

/* Planes over the flat parameter space. STATE is the tiled optimizer state of a subgroup
 * ([remainder | exp_avg | exp_avg_sq]); PARAM has extents of its own. */
enum zi_plane {
	ZI_PLANE_PARAM = 0,
	ZI_PLANE_STATE = 1,
	ZI_PLANE_GRAD = 2,
	ZI_PLANE_ACCUM = 3, /* fp32 accumulator of the sharded schedule */
	_ZI_PLANE_COUNT,
};

/* An aligned run of bytes in a store, written once. bytes == 0: no extent ("all zero"). */
struct zi_extent {
	uint64_t offset_bytes;
	uint64_t bytes;
};

uint32_t zi_dtype_bytes(enum zi_dtype dtype);
const char *zi_dtype_name(enum zi_dtype dtype);
bool zi_dtype_is_float(enum zi_dtype dtype);
/* In which sums and other joins of @dtype are computed, and partial ones are kept: f32 for f32, f16
 * and bf16, else @dtype. */
enum zi_dtype zi_dtype_joined(enum zi_dtype dtype);
/* Whether a job can be trained in these: floats, and gradients of the parameters' type or f32. */
bool zi_dtype_is_trained(uint32_t param_dtype, uint32_t grad_dtype);
const char *zi_reduce_op_name(enum zi_reduce_op op);
bool zi_reduce_op_is_for(enum zi_reduce_op op, enum zi_dtype dtype);
const char *zi_optimizer_name(enum zi_optimizer optimizer);
const char *zi_schedule_name(enum zi_schedule schedule);
const char *zi_offload_name(enum zi_offload offload);
const char *zi_plane_name(enum zi_plane plane);
/* fp32 moments of each element: Adam and AdamW two, SGD, Adagrad and Lion one. */
uint32_t zi_optimizer_moments(enum zi_optimizer optimizer);
/* Bytes of optimizer state per element: bf16 6, f16 8, fp32 4; with two moments 10, 12, 8. */
uint32_t zi_state_element_bytes(enum zi_optimizer optimizer, enum zi_dtype param_dtype);
/* Of them what a parameter lacks of its fp32 master (docs/ARITHMETIC.md, "Element types"): bf16 2,
 * f16 4, fp32, which is the master, 0. */
uint32_t zi_remainder_bytes(enum zi_dtype param_dtype);
