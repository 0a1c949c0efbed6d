/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused step: the public functions (docs/ARITHMETIC.md, "Optimizers"). Floor 1.
 */
#include "kernels/optim.h"
#include "common/base/assert.h"
#include "kernels/optim_hashed.h"
#include "kernels/table.h"

/**
 * kern_optim_prepare() - round the scalars of one step, once
 * @ret_scalars: written; the same for every run of the step
 * @hyper: the trainer's hyperparameters, f64; its powers are those of *this* step
 *
 * SGD takes momentum from beta1 and dampening from beta2, and finds momentum in b1, 1 − dampening
 * in one_minus_b2. Context: any thread.
 */
void kern_optim_prepare(struct kern_optim_scalars *ret_scalars, const struct kern_hyper *hyper)
{
	kern_env saved;

	assert(hyper->optimizer >= ZI_OPTIMIZER_ADAMW);
	assert(hyper->optimizer < _ZI_OPTIMIZER_COUNT);

	kern_env_enter(&saved);
	kern_optim_prepare_ref(ret_scalars, hyper);
	kern_env_leave(&saved);
}

static void run_check(const struct kern_optim_run *run, const struct kern_optim_scalars *scalars)
{
	(void)run; /* with NDEBUG nothing is left of this */
	(void)scalars;
	assert(run->element_count % KERN_LANES == 0);
	assert(run->rank_count > 0);
	assert(run->rank_count <= ZI_WORLD_MAX);
	if (run->is_reduced)
		assert(run->rank_count == 1);
	assert(run->param_dtype > 0);
	assert(run->param_dtype < _ZI_DTYPE_FLOAT_COUNT);
	if (run->grad_dtype == ZI_DTYPE_F16)
		assert(run->param_dtype == ZI_DTYPE_F16);
	else
		assert(run->grad_dtype == ZI_DTYPE_F32 || run->grad_dtype == ZI_DTYPE_BF16);
	if (run->param_dtype == ZI_DTYPE_F16)
		assert(run->grad_dtype != ZI_DTYPE_BF16);
	assert((run->param_dtype == ZI_DTYPE_F32) == (run->remainder == NULL));
	assert((zi_optimizer_moments(scalars->optimizer) == 1) == (run->exp_avg_sq == NULL));
}

/**
 * kern_optim_step() - N gradients → tree sum → average → optimizer → new parameter, one pass
 * @run: where the elements lie; see struct kern_optim_run
 * @scalars: of this step, from kern_optim_prepare()
 *
 * No two arrays of @run overlap. A NaN comes out as the positive quiet one (bf16: param 0x7fc0,
 * f16 0x7e00, remainder 0). A master that is too large for f16 makes param infinite, and comes back
 * when it is smaller again. Element by element independent: how a plane is cut into runs changes no
 * bit.
 * Source: AdamW arXiv:1711.05101 alg. 2, Adam arXiv:1412.6980 alg. 1, SGD torch.optim.SGD, Adagrad
 * JMLR 12 (2011) 2121 and torch.optim.Adagrad, Lion arXiv:2302.06675 alg. 2; a step is within a few
 * fp32 roundings of the same formula in long double (tests/kernels/test_optim*.c).
 * Context: any thread.
 */
void kern_optim_step(const struct kern_optim_run *run, const struct kern_optim_scalars *scalars)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	run_check(run, scalars);

	kern_env_enter(&saved);
	table->optim_step(run, scalars);
	kern_env_leave(&saved);
}

/**
 * kern_optim_step_hashed() - kern_optim_step(), and the checksums of both its sides
 * @run: a whole tile, or the last one of a subgroup: what its checksums are kept of; no param_copy
 * @scalars: of this step
 * @ret_hashes: written; each is what kern_hash_tile() gives
 *
 * The step is made whatever the state was: the caller compares state_before with what it was told,
 * and throws away all that the run points to when it differs. Context: any thread.
 */
void kern_optim_step_hashed(const struct kern_optim_run *run,
                            const struct kern_optim_scalars *scalars,
                            struct kern_optim_hashes *ret_hashes)
{
	const struct kern_table *table = kern_table();
	kern_env saved;

	run_check(run, scalars);
	assert(!run->param_copy);

	kern_env_enter(&saved);
	table->optim_step_hashed(run, scalars, ret_hashes);
	kern_env_leave(&saved);
}
