/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the ranks' elements: the public function (docs/ARITHMETIC.md, "Collectives"). Floor 1. */
#include "kernels/combine.h"
#include "common/base/assert.h"
#include "kernels/table.h"

/**
 * kern_combine() - join along the tree, average, round once, write everywhere
 * @run: see combine.h
 *
 * A NaN that comes out is the positive quiet one without payload; the minimum and the maximum of a
 * NaN and anything are NaN. Integers wrap. Context: any thread.
 */
void kern_combine(const struct kern_combine_run *run)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	assert(run->source_count > 0);
	assert(run->source_count <= ZI_WORLD_MAX);
	assert(run->target_count > 0);
	assert(run->target_count <= ZI_WORLD_MAX);
	assert(zi_reduce_op_is_for(run->op, run->source_dtype));
	assert(run->source_dtype == run->target_dtype ||
	       zi_dtype_joined(run->source_dtype) == zi_dtype_joined(run->target_dtype));

	kern_env_enter(&saved);
	table->combine(run);
	kern_env_leave(&saved);
}
