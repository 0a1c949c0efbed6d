/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kernels/: a step and its checksums one after the other, of one table's functions. It
 * defines what kern_optim_step_hashed() gives, and is that function wherever no loop does all at
 * once. Floor 1.
 */
#pragma once

#include "kernels/optim_hashed.h"
#include "kernels/table.h"

typedef uint64_t (*optim_hash_fn)(const void *data, uint64_t bytes);
typedef void (*optim_step_fn)(const struct kern_optim_run *run,
                              const struct kern_optim_scalars *scalars);

/* Of the sections of the state in their order: see kern_hash_tile(). */
static inline uint64_t optim_state_join(const struct kern_optim_run *run, uint64_t remainder,
                                        uint64_t exp_avg, uint64_t exp_avg_sq, optim_hash_fn hash)
{
	uint64_t words[KERN_HASH_SECTIONS_MAX];
	uint32_t count = 0;

	if (run->remainder)
		words[count++] = remainder;
	words[count++] = exp_avg;
	if (run->exp_avg_sq)
		words[count++] = exp_avg_sq;
	return count == 1 ? words[0] : hash(words, count * sizeof(words[0]));
}

static inline uint64_t optim_state_hash(const struct kern_optim_run *run, optim_hash_fn hash)
{
	uint64_t remainder_bytes = run->element_count * zi_remainder_bytes(run->param_dtype);
	uint64_t wide_bytes = run->element_count * sizeof(float);

	return optim_state_join(run, run->remainder ? hash(run->remainder, remainder_bytes) : 0,
	                        hash(run->exp_avg, wide_bytes),
	                        run->exp_avg_sq ? hash(run->exp_avg_sq, wide_bytes) : 0, hash);
}

static inline void optim_apart(const struct kern_optim_run *run,
                               const struct kern_optim_scalars *scalars, optim_step_fn step,
                               optim_hash_fn hash, struct kern_optim_hashes *ret_hashes)
{
	ret_hashes->state_before = optim_state_hash(run, hash);
	step(run, scalars);
	ret_hashes->state = optim_state_hash(run, hash);
	ret_hashes->param = hash(run->param, run->element_count * zi_dtype_bytes(run->param_dtype));
}
