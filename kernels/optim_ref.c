/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fused step: the definition (docs/ARITHMETIC.md, "Optimizers"), element by element. The step
 * of one element is in element/optim.h. Floor 1.
 */
#include "kernels/element/optim.h"
#include "kernels/optim.h"
#include "kernels/optim_apart.h"
#include "kernels/table.h"

/* What a parameter moves by, for each unit of its direction. */
static double step_size(const struct kern_hyper *hyper)
{
	if (hyper->optimizer == ZI_OPTIMIZER_ADAGRAD)
		return hyper->lr / (1.0 + (double)hyper->update_count * hyper->lr_decay);
	if (kern_optim_is_adam(hyper->optimizer) && !hyper->has_no_bias_correction)
		return hyper->lr / (1.0 - hyper->beta1_power);
	return hyper->lr;
}

/* See optim.c. f64, each value rounded once to f32. */
void kern_optim_prepare_ref(struct kern_optim_scalars *ret_scalars, const struct kern_hyper *hyper)
{
	bool is_corrected = kern_optim_is_adam(hyper->optimizer) && !hyper->has_no_bias_correction;

	*ret_scalars = (struct kern_optim_scalars){
		.optimizer = hyper->optimizer,
		.is_nesterov = hyper->is_nesterov,
		.is_first = hyper->is_first,
		.average = hyper->average,
		.unscale = hyper->unscale,
		.clip = hyper->clip,
		.decay = (float)(1.0 - hyper->lr * hyper->weight_decay),
		.weight_decay = (float)hyper->weight_decay,
		.eps = (float)hyper->eps,
		.b1 = (float)hyper->beta1,
		.one_minus_b1 = (float)(1.0 - hyper->beta1),
		.b2 = (float)hyper->beta2,
		.one_minus_b2 = (float)(1.0 - hyper->beta2),
		.step_size = (float)step_size(hyper),
		.root_bc2 = (float)(is_corrected ? sqrt(1.0 - hyper->beta2_power) : 1.0),
	};
}

static void element_step(const struct kern_optim_run *run, const struct kern_optim_scalars *scalars,
                         uint64_t index)
{
	float g = kern_tree_at(run->grads, run->rank_count, index, run->grad_dtype);
	float p = kern_master_at(run->param, run->remainder, index, run->param_dtype);

	if (!run->is_reduced)
		g = kern_optim_reduced(g, scalars->average, run->grad_dtype);
	p = kern_optim_element(scalars, scalars->optimizer, p, kern_optim_gradient(scalars, g),
	                       &run->exp_avg[index],
	                       run->exp_avg_sq ? &run->exp_avg_sq[index] : NULL);
	kern_master_put(run->param, run->param_copy, run->remainder, index, p, run->param_dtype);
}

/* kern_optim_step() element by element. */
void kern_optim_step_ref(const struct kern_optim_run *run, const struct kern_optim_scalars *scalars)
{
	for (uint64_t i = 0; i < run->element_count; i++)
		element_step(run, scalars, i);
}

/* kern_optim_step_hashed() of this table: one after the other. */
void kern_optim_step_hashed_ref(const struct kern_optim_run *run,
                                const struct kern_optim_scalars *scalars,
                                struct kern_optim_hashes *ret_hashes)
{
	optim_apart(run, scalars, kern_optim_step_ref, kern_hash_ref, ret_hashes);
}
