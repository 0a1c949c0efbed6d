/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hyperparameters of a step: checked against the job, and compared between ranks; those of a
 * deferred step come after its gradients (zinf_step_with()). Floor 5, shard thread.
 */
#include "daemon/zero/step/options.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/step/discard.h"
#include "daemon/zero/step/step.h"

/* What a deferred step has from its begin on: its gradients are summed by these. */
#define OPTIONS_BEGUN (ZI_STEP_SUM | ZI_STEP_SKIP_NONFINITE)

static int compare_flags(uint32_t mine, uint32_t rank, uint32_t model, uint32_t model_rank,
                         struct zi_text *text)
{
	static const struct {
		uint32_t flag;
		const char *name;
	} flags[] = {
		{ ZI_STEP_NESTEROV, "nesterov" },
		{ ZI_STEP_SUM, "sum" },
		{ ZI_STEP_SKIP_NONFINITE, "skip_nonfinite" },
		{ ZI_STEP_WANT_NORM, "want_norm" },
		{ ZI_STEP_UPDATE_EARLY, "update_early" },
		{ ZI_STEP_NO_BIAS_CORRECTION, "no_bias_correction" },
		{ ZI_STEP_DEFERRED, "is_deferred" },
		{ ZI_STEP_BETAS, "group_betas" },
	};
	bool is_set;

	if (mine == model)
		return 0;
	for (size_t i = 0; i < ZI_COUNT_OF(flags); i++) {
		if (!((mine ^ model) & flags[i].flag))
			continue;
		is_set = mine & flags[i].flag;
		return zi_text_error(text, -EINVAL, "%s is %s in rank %u, but %s in rank %u",
		                     flags[i].name, is_set ? "set" : "not set", rank,
		                     is_set ? "not set" : "set", model_rank);
	}
	return zi_text_error(text, -EINVAL, "flags are 0x%x in rank %u, but 0x%x in rank %u", mine,
	                     rank, model, model_rank);
}

/* Documented in step.h. What differs in a bit may differ in the result. */
int step_options_compare(const struct zi_step_options *mine, uint32_t rank,
                         const struct zi_step_options *model, uint32_t model_rank,
                         struct zi_text *text)
{
	const struct {
		const char *name;
		double mine, model;
	} reals[] = {
		{ "lr", mine->lr, model->lr },
		{ "beta1", mine->beta1, model->beta1 },
		{ "beta2", mine->beta2, model->beta2 },
		{ "eps", mine->eps, model->eps },
		{ "weight_decay", mine->weight_decay, model->weight_decay },
		{ "max_norm", mine->max_norm, model->max_norm },
		{ "unscale", mine->unscale, model->unscale },
		{ "lr_decay", mine->lr_decay, model->lr_decay },
	};

	for (size_t i = 0; i < ZI_COUNT_OF(reals); i++) {
		struct zi_reals_text said = zi_format_reals(reals[i].mine, reals[i].model);

		if (memcmp(&reals[i].mine, &reals[i].model, sizeof(double)) != 0)
			return zi_text_error(text, -EINVAL,
			                     "%s is %s in rank %u, but %s in rank %u",
			                     reals[i].name, said.one, rank, said.other, model_rank);
	}
	if (mine->micro_batches != model->micro_batches)
		return zi_text_error(text, -EINVAL,
		                     "micro_batches is %u in rank %u, but %u in rank %u",
		                     mine->micro_batches, rank, model->micro_batches, model_rank);
	if (mine->group_count != model->group_count)
		return zi_text_error(text, -EINVAL,
		                     "group_count of the step is %u in rank %u, but %u in rank %u",
		                     mine->group_count, rank, model->group_count, model_rank);
	return err_trace(compare_flags(mine->flags, rank, model->flags, model_rank, text));
}

static int compare_betas(const struct zero_job *job, struct zero_op *op, uint32_t model_rank)
{
	for (uint32_t i = 0; i < op->options.group_count; i++) {
		const struct zi_step_betas *mine = &op->rank->step_betas[i];
		const struct zi_step_betas *model = &job->step.betas[i];
		struct zi_reals_text beta1, beta2, eps;

		if (memcmp(mine, model, sizeof(*mine)) == 0)
			continue;
		beta1 = zi_format_reals(mine->beta1, model->beta1);
		beta2 = zi_format_reals(mine->beta2, model->beta2);
		eps = zi_format_reals(mine->eps, model->eps);
		return zi_text_error(&op->text, -EINVAL,
		                     "group %u has beta1 %s, beta2 %s and eps %s in rank %u, but "
		                     "%s, %s and %s in rank %u",
		                     i, beta1.one, beta2.one, eps.one, op->rank->number,
		                     beta1.other, beta2.other, eps.other, model_rank);
	}
	return 0;
}

/* Documented in the header, as are all that are not static, but for the handler. */
int options_compare_groups(const struct zero_job *job, struct zero_op *op, uint32_t model_rank)
{
	const struct zero_rank *rank = op->rank;

	for (uint32_t i = 0; i < op->options.group_count; i++) {
		const struct zi_step_group *mine = &rank->step_groups[i];
		const struct zi_step_group *model = &job->step.groups[i];
		struct zi_reals_text lr, decay;

		if (memcmp(mine, model, sizeof(*mine)) == 0)
			continue;
		lr = zi_format_reals(mine->lr, model->lr);
		decay = zi_format_reals(mine->weight_decay, model->weight_decay);
		return zi_text_error(&op->text, -EINVAL,
		                     "group %u has lr %s and weight_decay %s in rank %u, but "
		                     "%s and %s in rank %u",
		                     i, lr.one, decay.one, rank->number, lr.other, decay.other,
		                     model_rank);
	}
	return op->options.flags & ZI_STEP_BETAS ? err_trace(compare_betas(job, op, model_rank))
	                                         : 0;
}

void options_keep_groups(struct zero_op *op)
{
	struct zero_rank *rank = op->rank;
	uint32_t count = op->options.group_count;

	if (!count)
		return;
	memcpy(rank->step_groups, op->groups, count * sizeof(rank->step_groups[0]));
	if (op->options.flags & ZI_STEP_BETAS)
		memcpy(rank->step_betas, op->betas, count * sizeof(rank->step_betas[0]));
}

/* A step without groups has one lr and weight_decay for all of them. */
int options_check_groups(const struct zero_job *job, const struct zi_step_options *options,
                         struct zi_text *text)
{
	uint32_t count = stretches_group_count(job);

	if (!options->group_count || options->group_count == count)
		return 0;
	return zi_text_error(text, -EINVAL,
	                     "group_count of the step is %u, but the job has %u groups of "
	                     "parameters: give all of them, or none",
	                     options->group_count, count);
}

/* What one optimizer alone has is nobody else's: it would do nothing, in silence. */
int options_check_optimizer(const struct zero_job *job, const struct zi_step_options *options,
                            struct zi_text *text)
{
	enum zi_optimizer optimizer = (enum zi_optimizer)job->config.optimizer;
	bool is_adam = optimizer == ZI_OPTIMIZER_ADAM || optimizer == ZI_OPTIMIZER_ADAMW;

	if (options->lr_decay != 0 && optimizer != ZI_OPTIMIZER_ADAGRAD)
		return zi_text_error(text, -EINVAL,
		                     "lr_decay is %g: adagrad has one, the job's optimizer is %s",
		                     options->lr_decay, zi_optimizer_name(optimizer));
	if ((options->flags & ZI_STEP_NO_BIAS_CORRECTION) && !is_adam)
		return zi_text_error(text, -EINVAL,
		                     "no_bias_correction is set: adam and adamw have one, the "
		                     "job's optimizer is %s",
		                     zi_optimizer_name(optimizer));
	return 0;
}

/* ---- of a deferred step ---- */

bool options_are_deferred(const struct zero_job *job)
{
	return job->step.options.flags & ZI_STEP_DEFERRED;
}

/* What was summed by one value is not updated by another. */
static int check_begun(const struct zero_job *job, const struct zi_step_options *options,
                       struct zi_text *text)
{
	const struct zi_step_options *begun = &job->step.options;
	struct zi_reals_text unscale = zi_format_reals(options->unscale, begun->unscale);

	if (options->flags & (ZI_STEP_DEFERRED | ZI_STEP_JOINED | ZI_STEP_UPDATE_EARLY))
		return zi_text_error(text, -EINVAL,
		                     "is_deferred and update_early are for zinf_step_begin() only");
	if (options->micro_batches != begun->micro_batches)
		return zi_text_error(text, -EINVAL,
		                     "micro_batches is %u in zinf_step_with(), but %u in "
		                     "zinf_step_begin()",
		                     options->micro_batches, begun->micro_batches);
	if (memcmp(&options->unscale, &begun->unscale, sizeof(double)) != 0)
		return zi_text_error(text, -EINVAL,
		                     "unscale is %s in zinf_step_with(), but %s in "
		                     "zinf_step_begin()",
		                     unscale.one, unscale.other);
	if ((options->flags ^ begun->flags) & OPTIONS_BEGUN)
		return zi_text_error(text, -EINVAL,
		                     "sum (2) and skip_nonfinite (4) are %u in zinf_step_with(), "
		                     "but %u in zinf_step_begin()",
		                     options->flags & OPTIONS_BEGUN, begun->flags & OPTIONS_BEGUN);
	return 0;
}

static int check_call(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	uint64_t bit = 1ull << rank->number;
	int r;

	if (job->step.phase != ZERO_STEP_STEPPING || !(job->step.begun_mask & bit))
		return zi_text_error(&op->text, -EINVAL, "step_with before step_begin");
	if (!options_are_deferred(job))
		return zi_text_error(&op->text, -EINVAL,
		                     "the step was begun with its hyperparameters: zinf_step() "
		                     "ends it, or begin it with is_deferred");
	if (job->group.gather_masks[ZERO_GATHER_STEP] & bit)
		return zi_text_error(&op->text, -EALREADY,
		                     "step_with was called before and has "
		                     "not ended yet");
	if (discard_is_wanted(job))
		return discard_refuse(op);
	r = check_begun(job, &op->options, &op->text);
	if (!r)
		r = options_check_optimizer(job, &op->options, &op->text);
	return r ? r : err_trace(options_check_groups(job, &op->options, &op->text));
}

/* The first rank's are the model. */
static void take(struct zero_job *job, const struct zero_op *op)
{
	const struct zero_rank *rank = op->rank;
	uint32_t count = op->options.group_count;

	job->step.with = op->options;
	memcpy(job->step.groups, rank->step_groups, count * sizeof(rank->step_groups[0]));
	memcpy(job->step.betas, rank->step_betas, count * sizeof(rank->step_betas[0]));
}

/**
 * zero_step_options() - the hyperparameters of a step that was begun without them
 * @op: options; completes at once
 *
 * They are compared between ranks as those of zero_step_begin(), of which zero_step() may follow. A
 * rank that comes again gives other ones. -EINVAL names what differs. Context: shard thread.
 */
void zero_step_options(struct zero_rank *rank, struct zero_op *op)
{
	struct zero_job *job = rank->job;
	struct zero *zero = job->zero;
	uint64_t bit = 1ull << rank->number;
	uint32_t model_rank;
	int r;

	if (!op_begin(rank, op, ZI_OP_STEP_OPTIONS)) {
		zero_drain(zero);
		return;
	}
	r = check_call(rank, op);
	if (!r) {
		job->step.with_mask &= ~bit;
		options_keep_groups(op);
	}
	if (!r && job->step.with_mask) {
		model_rank = (uint32_t)__builtin_ctzll(job->step.with_mask);
		r = step_options_compare(&op->options, rank->number, &job->step.with, model_rank,
		                         &op->text);
		if (!r)
			r = options_compare_groups(job, op, model_rank);
	} else if (!r) {
		take(job, op);
	}
	if (!r)
		job->step.with_mask |= bit;
	op_complete(op, r);
	zero_drain(zero);
}

void options_settle(struct zero_job *job)
{
	struct zero_step *step = &job->step;

	if (!options_are_deferred(job))
		return;
	assert(step->with_mask);
	step->options = step->with;
	step->options.flags |= ZI_STEP_DEFERRED;
	step_prepare(job);
}
