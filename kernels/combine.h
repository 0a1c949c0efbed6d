/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element of every rank becomes one result, written to any number of places at once: what the
 * collectives compute (docs/ARITHMETIC.md, "Collectives"). Floor 1.
 */
#pragma once

#include "common/base/types.h"

struct kern_combine_run {
	void *const *targets;       /* target_count pointers to (n,) target_dtype; each may be
				       * exactly one of the sources when the dtypes are equal */
	const void *const *sources; /* source_count pointers to (n,) source_dtype, in rank order */
	uint32_t target_count;      /* 1 … ZI_WORLD_MAX */
	uint32_t source_count;      /* 1 … ZI_WORLD_MAX */
	uint64_t element_count;
	enum zi_dtype source_dtype;
	enum zi_dtype target_dtype; /* differs only for floats up to F32, where one is F32 */
	enum zi_reduce_op op;       /* one that is for the dtype */
	double average;    /* ZI_REDUCE_AVG: multiplied after the tree, as float but for F64 */
	bool is_streaming; /* nobody reads the targets soon: they pass by the cache */
};

void kern_combine(const struct kern_combine_run *run);
