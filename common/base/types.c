/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of names and widths for the plain types. Floor 0, any thread. An unknown value is a
 * programmer's error for the widths; for the names it is "?", so that a log line never crashes.
 */
#include "common/base/types.h"

#include "common/base/assert.h"
#include "common/base/cleanup.h"

#define ZI_NAME_UNKNOWN "?"

static_assert(ZI_TILE_ELEMENTS % ZI_BLOCK_ELEMENTS == 0, "a tile is whole blocks");
static_assert(ZI_SUBGROUP_ELEMENTS % ZI_TILE_ELEMENTS == 0, "a full subgroup is whole tiles");
static_assert(ZI_WORLD_MAX <= 64, "ranks are bits of a uint64_t");

static const uint8_t dtype_bytes[_ZI_DTYPE_COUNT] = {
	[ZI_DTYPE_F32] = 4, [ZI_DTYPE_F16] = 2, [ZI_DTYPE_BF16] = 2, [ZI_DTYPE_I8] = 1,
	[ZI_DTYPE_U8] = 1,  [ZI_DTYPE_I32] = 4, [ZI_DTYPE_I64] = 8,  [ZI_DTYPE_F64] = 8,
};

static const char *const dtype_names[_ZI_DTYPE_COUNT] = {
	[ZI_DTYPE_F32] = "f32", [ZI_DTYPE_F16] = "f16", [ZI_DTYPE_BF16] = "bf16",
	[ZI_DTYPE_I8] = "i8",   [ZI_DTYPE_U8] = "u8",   [ZI_DTYPE_I32] = "i32",
	[ZI_DTYPE_I64] = "i64", [ZI_DTYPE_F64] = "f64",
};

static const char *const reduce_names[_ZI_REDUCE_COUNT] = {
	[ZI_REDUCE_SUM] = "sum", [ZI_REDUCE_AVG] = "avg",   [ZI_REDUCE_PROD] = "prod",
	[ZI_REDUCE_MIN] = "min", [ZI_REDUCE_MAX] = "max",   [ZI_REDUCE_BAND] = "band",
	[ZI_REDUCE_BOR] = "bor", [ZI_REDUCE_BXOR] = "bxor",
};

static const char *const optimizer_names[_ZI_OPTIMIZER_COUNT] = {
	[ZI_OPTIMIZER_ADAMW] = "adamw", [ZI_OPTIMIZER_ADAM] = "adam",
	[ZI_OPTIMIZER_SGD] = "sgd",     [ZI_OPTIMIZER_ADAGRAD] = "adagrad",
	[ZI_OPTIMIZER_LION] = "lion",
};

static const char *const schedule_names[_ZI_SCHEDULE_COUNT] = {
	[ZI_SCHEDULE_LOCAL] = "per_step",
	[ZI_SCHEDULE_SHARDED] = "per_micro_batch",
};

static const char *const offload_names[_ZI_OFFLOAD_COUNT] = {
	[ZI_OFFLOAD_NONE] = "none",
	[ZI_OFFLOAD_CPU] = "cpu",
	[ZI_OFFLOAD_NVME] = "nvme",
};

static const char *const plane_names[_ZI_PLANE_COUNT] = {
	[ZI_PLANE_PARAM] = "param",
	[ZI_PLANE_STATE] = "state",
	[ZI_PLANE_GRAD] = "grad",
	[ZI_PLANE_ACCUM] = "reduced_grad",
};

static const char *name_of(const char *const *names, size_t names_count, unsigned value)
{
	if (value >= names_count || !names[value])
		return ZI_NAME_UNKNOWN;
	return names[value];
}

/* Return: bytes of one element of @dtype, which must be valid. */
uint32_t zi_dtype_bytes(enum zi_dtype dtype)
{
	assert(dtype > 0);
	assert(dtype < _ZI_DTYPE_COUNT);
	return dtype_bytes[dtype];
}

/* Return: the word for @dtype in configuration, tables and logs; "?" when it is none. */
const char *zi_dtype_name(enum zi_dtype dtype)
{
	return name_of(dtype_names, ZI_COUNT_OF(dtype_names), dtype);
}

/* Return: whether @dtype, which must be valid, is a floating-point type. */
bool zi_dtype_is_float(enum zi_dtype dtype)
{
	assert(dtype > 0);
	assert(dtype < _ZI_DTYPE_COUNT);
	return dtype < _ZI_DTYPE_FLOAT_COUNT || dtype == ZI_DTYPE_F64;
}

/* Return: see types.h. @dtype must be valid. */
enum zi_dtype zi_dtype_joined(enum zi_dtype dtype)
{
	assert(dtype > 0);
	assert(dtype < _ZI_DTYPE_COUNT);
	return dtype < _ZI_DTYPE_FLOAT_COUNT ? ZI_DTYPE_F32 : dtype;
}

/* Return: the word for @op; "?" when it is none. */
const char *zi_reduce_op_name(enum zi_reduce_op op)
{
	return name_of(reduce_names, ZI_COUNT_OF(reduce_names), op);
}

/* Return: whether @op can join elements of @dtype: no mean of integers, no bits of floats. */
bool zi_reduce_op_is_for(enum zi_reduce_op op, enum zi_dtype dtype)
{
	if (op < ZI_REDUCE_SUM || op >= _ZI_REDUCE_COUNT)
		return false;
	if (op == ZI_REDUCE_AVG)
		return zi_dtype_is_float(dtype);
	return op < ZI_REDUCE_BAND || !zi_dtype_is_float(dtype);
}

/* Return: the word for @optimizer; "?" when it is none. */
const char *zi_optimizer_name(enum zi_optimizer optimizer)
{
	return name_of(optimizer_names, ZI_COUNT_OF(optimizer_names), optimizer);
}

/* Return: the word for @schedule; "?" when it is none. */
const char *zi_schedule_name(enum zi_schedule schedule)
{
	return name_of(schedule_names, ZI_COUNT_OF(schedule_names), schedule);
}

/* Return: the word for @offload; "?" when it is none. */
const char *zi_offload_name(enum zi_offload offload)
{
	return name_of(offload_names, ZI_COUNT_OF(offload_names), offload);
}

/* Return: the word for @plane; "?" when it is none. */
const char *zi_plane_name(enum zi_plane plane)
{
	return name_of(plane_names, ZI_COUNT_OF(plane_names), plane);
}

/* Return: fp32 moments that @optimizer, which must be valid, keeps of each element: momentum (SGD,
 * Lion), the sum of squares (Adagrad), or Adam's two. */
uint32_t zi_optimizer_moments(enum zi_optimizer optimizer)
{
	assert(optimizer > 0);
	assert(optimizer < _ZI_OPTIMIZER_COUNT);
	return optimizer == ZI_OPTIMIZER_ADAMW || optimizer == ZI_OPTIMIZER_ADAM ? 2 : 1;
}

/* As in the header; any values. */
bool zi_dtype_is_trained(uint32_t param_dtype, uint32_t grad_dtype)
{
	if (param_dtype == 0 || param_dtype >= _ZI_DTYPE_FLOAT_COUNT)
		return false;
	return grad_dtype == param_dtype || grad_dtype == ZI_DTYPE_F32;
}

/* Return: bytes of what a parameter of @param_dtype, a float, lacks of its fp32 master. */
uint32_t zi_remainder_bytes(enum zi_dtype param_dtype)
{
	static const uint8_t bytes[_ZI_DTYPE_FLOAT_COUNT] = {
		[ZI_DTYPE_F32] = 0,
		[ZI_DTYPE_F16] = 4,
		[ZI_DTYPE_BF16] = 2,
	};

	assert(param_dtype > 0);
	assert(param_dtype < _ZI_DTYPE_FLOAT_COUNT);
	return bytes[param_dtype];
}

/*
 * What the optimizer keeps beside the parameter itself, in bytes per element: what is missing to
 * the fp32 master, and its fp32 moments.
 */
uint32_t zi_state_element_bytes(enum zi_optimizer optimizer, enum zi_dtype param_dtype)
{
	return zi_remainder_bytes(param_dtype) +
	       zi_optimizer_moments(optimizer) * (uint32_t)sizeof(float);
}
