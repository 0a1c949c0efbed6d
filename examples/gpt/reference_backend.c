/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend that says what the bits must be: every rank of the job in this one process, one
 * after the other, all state in plain arrays over the flat parameter space (units padded to 4096
 * elements), the arithmetic from reference_math.c. Nothing of zinf but the option structs of its
 * header.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/args.h"
#include "examples/gpt/backend.h"
#include "examples/gpt/f16.h"
#include "examples/gpt/reference_math.h"

struct reference {
	struct gpt_backend base;
	const struct gpt_model *model;
	enum zinf_optimizer optimizer;
	enum zinf_dtype param_dtype, grad_dtype, reduce_dtype;
	/* Each (padded_count,), zero at first; padding of gradients is never written. */
	void *params;       /* of param_dtype */
	int32_t *remainder; /* bf16, f16 */
	float *exp_avg;     /* or the one moment */
	float *exp_avg_sq;
	void *grads[ZINF_WORLD_MAX]; /* of each rank, of grad_dtype */
	float *sum;              /* of the ranks; sharded: of the micro-batches too; then reduced */
	uint8_t *groups;         /* (padded_count,) of parameters */
	double *block_sums;      /* (padded_count / 4096,) */
	uint32_t *reduce_counts; /* (unit_count,) zinf_reduce() calls of all ranks in this step */
	/* The step */
	struct zinf_step_options options;
	struct zinf_step_stats stats;
	bool is_stepping;
	uint32_t joined_count; /* lanes without data: their gradients are zeros */
	int64_t step;          /* committed; -1: nothing yet */
	uint64_t update_count;
	double beta1_power;
	double beta2_power;
	struct zinf_scaler_options scaler;
	struct zinf_scaler scale;
	const char *error_text;
};

static struct reference *reference_of(struct gpt_backend *backend)
{
	return (struct reference *)backend;
}

/* Nothing to wait for: everything is here. */
static int nothing(struct gpt_backend *backend, uint32_t unit)
{
	(void)backend;
	(void)unit;
	return 0;
}

static int no_wait(struct gpt_backend *backend)
{
	(void)backend;
	return 0;
}

static size_t width_of(enum zinf_dtype dtype)
{
	return dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);
}

static void *at(void *plane, uint64_t index, enum zinf_dtype dtype)
{
	return (char *)plane + index * width_of(dtype);
}

static uint64_t flat_index(const struct reference *ref, uint32_t param)
{
	const struct gpt_param *p = &ref->model->params[param];

	return ref->model->units[p->unit].global_index + p->element_index;
}

static const void *reference_param(const struct gpt_backend *backend, uint32_t param)
{
	const struct reference *ref = (const struct reference *)backend;

	return at(ref->params, flat_index(ref, param), ref->param_dtype);
}

static int reference_grad_acquire(struct gpt_backend *backend, uint32_t lane, uint32_t unit)
{
	assert(lane < backend->lane_count);
	(void)backend;
	(void)lane;
	(void)unit;
	return 0;
}

static void *reference_grad(const struct gpt_backend *backend, uint32_t lane, uint32_t param)
{
	const struct reference *ref = (const struct reference *)backend;

	return at(ref->grads[lane], flat_index(ref, param), ref->grad_dtype);
}

/* To the type in which sums are made. */
static float rounded(const struct reference *ref, float x)
{
	if (ref->reduce_dtype == ZINF_F32)
		return x;
	return gpt_half_widen(gpt_half_round(x, ref->reduce_dtype), ref->reduce_dtype);
}

/* tree(ranks) of one element. */
static float sum_of_ranks(const struct reference *ref, uint64_t index)
{
	float values[ZINF_WORLD_MAX];

	for (uint32_t rank = 0; rank < ref->base.lane_count; rank++)
		values[rank] = rounded(
			ref, ref->grad_dtype == ZINF_F32
				     ? ((const float *)ref->grads[rank])[index]
				     : gpt_half_widen(((const uint16_t *)ref->grads[rank])[index],
		                                      ref->grad_dtype));
	return gpt_reference_tree(values, ref->base.lane_count);
}

/* The last rank to hand a unit over forms the sum. ZINF_REDUCE_PER_MICRO_BATCH adds it to the sums
 * of the micro-batches before. */
static int reference_reduce(struct gpt_backend *backend, uint32_t lane, uint32_t unit)
{
	struct reference *ref = reference_of(backend);
	const struct gpt_unit *u = &ref->model->units[unit];
	uint32_t calls = ++ref->reduce_counts[unit];
	uint32_t live_count = backend->lane_count - ref->joined_count;

	assert(lane < live_count);
	(void)lane;
	if (calls % live_count)
		return 0;
	for (uint64_t i = u->global_index; i < u->global_index + u->element_count; i++) {
		float tree = sum_of_ranks(ref, i);

		ref->sum[i] = calls == live_count ? tree : ref->sum[i] + tree;
	}
	return 0;
}

static int reference_commit(struct gpt_backend *backend, const void *blob, size_t blob_bytes)
{
	(void)blob; /* This process is all there is: nobody comes back for it. */
	(void)blob_bytes;
	reference_of(backend)->step = 0;
	return 0;
}

static int64_t reference_lost_step(const struct gpt_backend *backend)
{
	(void)backend;
	return -1;
}

static int64_t reference_committed_step(const struct gpt_backend *backend)
{
	return ((const struct reference *)backend)->step;
}

static int64_t reference_update_count(const struct gpt_backend *backend)
{
	return (int64_t)((const struct reference *)backend)->update_count;
}

static int reference_loss_scale(struct gpt_backend *backend, double *ret_scale)
{
	*ret_scale = reference_of(backend)->scale.scale;
	return 0;
}

static int reference_blob_get(struct gpt_backend *backend, void *blob, size_t blob_bytes,
                              size_t *ret_bytes)
{
	(void)backend;
	(void)blob;
	(void)blob_bytes;
	*ret_bytes = 0;
	return 0;
}

static int reference_step_begin(struct gpt_backend *backend,
                                const struct zinf_step_options *options)
{
	struct reference *ref = reference_of(backend);

	assert(!ref->is_stepping);
	ref->options = *options;
	if (ref->scaler.kind != ZINF_SCALER_NONE) {
		assert(options->unscale == 1.0);
		ref->options.unscale = 1.0 / ref->scale.scale;
		ref->options.skip_nonfinite = true;
	}
	ref->is_stepping = true;
	memset(ref->reduce_counts, 0, ref->model->unit_count * sizeof(*ref->reduce_counts));
	return 0;
}

/* sum → reduced: the average, then one rounding. */
static void average(struct reference *ref)
{
	uint32_t live_count = ref->base.world_count - ref->joined_count;
	float factor = ref->options.sum ? 1.0f : (float)(1.0 / (double)live_count);

	for (uint64_t i = 0; i < ref->model->padded_count; i++) {
		ref->sum[i] = rounded(ref, ref->sum[i] * factor);
	}
}

static double whole_norm(struct reference *ref)
{
	uint64_t block_count = ref->model->padded_count / GPT_UNIT_ALIGN;

	for (uint64_t block = 0; block < block_count; block++)
		ref->block_sums[block] = gpt_reference_block_sum(ref->sum + block * GPT_UNIT_ALIGN,
		                                                 (float)ref->options.unscale);
	return gpt_reference_norm(ref->block_sums, block_count);
}

/* The fp32 parameter that the optimizer works on. */
static float master_at(const struct reference *ref, uint64_t i)
{
	const uint16_t *halves = ref->params;

	if (ref->param_dtype == ZINF_F32)
		return ((const float *)ref->params)[i];
	if (ref->param_dtype == ZINF_F16)
		return gpt_reference_join_f16(halves[i], ref->remainder[i]);
	return gpt_reference_join(halves[i], (int16_t)ref->remainder[i]);
}

static void master_set(struct reference *ref, uint64_t i, float master)
{
	uint16_t *half = (uint16_t *)ref->params + i;
	int16_t narrow;

	if (ref->param_dtype == ZINF_F32) {
		((float *)ref->params)[i] = master;
	} else if (ref->param_dtype == ZINF_F16) {
		gpt_reference_split_f16(master, half, &ref->remainder[i]);
	} else {
		gpt_reference_split(master, half, &narrow);
		ref->remainder[i] = narrow;
	}
}

static bool reference_state(const struct gpt_backend *backend, uint32_t param, enum gpt_state what,
                            float *values)
{
	const struct reference *ref = (const struct reference *)backend;
	uint64_t first = flat_index(ref, param), count = ref->model->params[param].element_count;
	const float *moment = what == GPT_STATE_EXP_AVG ? ref->exp_avg : ref->exp_avg_sq;
	bool has_two = ref->optimizer == ZINF_ADAMW || ref->optimizer == ZINF_ADAM;

	if (what == GPT_STATE_MASTER ? ref->param_dtype == ZINF_F32
	                             : what == GPT_STATE_EXP_AVG_SQ && !has_two)
		return false;
	for (uint64_t i = 0; i < count; i++)
		values[i] =
			what == GPT_STATE_MASTER ? master_at(ref, first + i) : moment[first + i];
	return true;
}

static void update(struct reference *ref, float clip)
{
	struct gpt_reference_scalars scalars[GPT_GROUPS_MAX];

	ref->beta1_power *= ref->options.beta1;
	ref->beta2_power *= ref->options.beta2;
	for (uint32_t group = 0; group < GPT_GROUPS_MAX; group++) {
		struct zinf_step_options options = ref->options;

		if (group < options.group_count) {
			options.lr = options.groups[group].lr;
			options.weight_decay = options.groups[group].weight_decay;
		}
		gpt_reference_scalars_init(&scalars[group], ref->optimizer, &options,
		                           ref->beta1_power, ref->beta2_power, clip,
		                           ref->update_count);
	}
	ref->update_count++;
	for (uint64_t i = 0; i < ref->model->padded_count; i++) {
		struct gpt_reference_state state = {
			.p = master_at(ref, i),
			.m = ref->exp_avg[i],
			.v = ref->exp_avg_sq[i],
		};

		gpt_reference_update(&scalars[ref->groups[i]], ref->optimizer, ref->sum[i], &state);
		ref->exp_avg[i] = state.m;
		ref->exp_avg_sq[i] = state.v;
		master_set(ref, i, state.p);
	}
}

static int reference_step(struct gpt_backend *backend, const void *blob, size_t blob_bytes)
{
	struct reference *ref = reference_of(backend);
	const struct zinf_step_options *options = &ref->options;
	bool is_normed = options->max_norm > 0 || options->want_norm || options->skip_nonfinite;
	double norm = NAN;
	float clip;
	bool is_skipped;

	(void)blob;
	(void)blob_bytes;
	assert(ref->is_stepping);
	for (uint32_t unit = 0; unit < ref->model->unit_count; unit++)
		if (ref->reduce_counts[unit] !=
		    options->micro_batches * (backend->lane_count - ref->joined_count)) {
			ref->error_text = "gradients are missing";
			return -ENODATA;
		}
	average(ref);
	if (is_normed)
		norm = whole_norm(ref);
	is_skipped = options->skip_nonfinite && !isfinite(norm);
	clip = gpt_reference_clip(norm, options->max_norm);
	if (!is_skipped)
		update(ref, clip);
	if (zinf_scaler_update(&ref->scale, &ref->scaler, is_skipped)) {
		ref->error_text = "a gradient is not finite at the least loss scale";
		return -ERANGE;
	}
	ref->is_stepping = false;
	ref->step++;
	ref->stats = (struct zinf_step_stats){
		.bytes = sizeof(ref->stats),
		.is_skipped = is_skipped,
		.step = (uint64_t)ref->step,
		.norm = norm,
		.clip = (double)clip,
		.loss_scale = ref->scale.scale,
		.nonfinite_rank = -1, /* It has no need to know. */
		.nonfinite_unit = -1,
	};
	return 0;
}

/* The last ones first: who has data are the first ones. */
static int reference_join(struct gpt_backend *backend, uint32_t lane)
{
	struct reference *ref = reference_of(backend);

	assert(lane == backend->lane_count - ref->joined_count - 1);
	ref->joined_count++;
	memset(ref->grads[lane], 0, ref->model->padded_count * width_of(ref->grad_dtype));
	return 0;
}

static int reference_wait(struct gpt_backend *backend, struct zinf_step_stats *ret_stats)
{
	*ret_stats = reference_of(backend)->stats;
	return 0;
}

static const char *reference_error_text(const struct gpt_backend *backend)
{
	return ((const struct reference *)backend)->error_text;
}

static void reference_close(struct gpt_backend *backend)
{
	struct reference *ref = reference_of(backend);

	for (uint32_t lane = 0; lane < ZINF_WORLD_MAX; lane++)
		free(ref->grads[lane]);
	free(ref->params);
	free(ref->remainder);
	free(ref->exp_avg);
	free(ref->exp_avg_sq);
	free(ref->sum);
	free(ref->groups);
	free(ref->block_sums);
	free(ref->reduce_counts);
	free(ref);
}

static int reference_destroy(struct gpt_backend *backend)
{
	reference_close(backend);
	return 0;
}

static const struct gpt_backend_ops reference_ops = {
	.unshard = nothing,
	.reshard = nothing,
	.prefetch = nothing,
	.param = reference_param,
	.state = reference_state,
	.grad_acquire = reference_grad_acquire,
	.grad = reference_grad,
	.reduce = reference_reduce,
	.write_begin = nothing,
	.write_end = nothing,
	.commit = reference_commit,
	.committed_step = reference_committed_step,
	.lost_step = reference_lost_step,
	.update_count = reference_update_count,
	.loss_scale = reference_loss_scale,
	.blob_get = reference_blob_get,
	.step_begin = reference_step_begin,
	.step = reference_step,
	.wait = reference_wait,
	.join = reference_join,
	.barrier = no_wait,
	.error_text = reference_error_text,
	.close = reference_close,
	.destroy = reference_destroy,
};

static bool allocate(struct reference *ref)
{
	uint64_t count = ref->model->padded_count;
	bool is_whole = true;

	ref->params = calloc(count, width_of(ref->param_dtype));
	ref->remainder = calloc(count, sizeof(*ref->remainder));
	ref->exp_avg = calloc(count, sizeof(*ref->exp_avg));
	ref->exp_avg_sq = calloc(count, sizeof(*ref->exp_avg_sq));
	ref->sum = calloc(count, sizeof(*ref->sum));
	ref->groups = calloc(count, sizeof(*ref->groups));
	ref->block_sums = calloc(count / GPT_UNIT_ALIGN, sizeof(*ref->block_sums));
	ref->reduce_counts = calloc(ref->model->unit_count, sizeof(*ref->reduce_counts));
	for (uint32_t lane = 0; lane < ref->base.lane_count; lane++) {
		ref->grads[lane] = calloc(count, width_of(ref->grad_dtype));
		is_whole = is_whole && ref->grads[lane];
	}
	return is_whole && ref->params && ref->remainder && ref->exp_avg && ref->exp_avg_sq &&
	       ref->sum && ref->groups && ref->block_sums && ref->reduce_counts;
}

static void mark_groups(struct reference *ref, const struct gpt_args *args)
{
	for (uint32_t p = 0; p < ref->model->param_count; p++) {
		const struct gpt_param *param = &ref->model->params[p];

		memset(ref->groups + flat_index(ref, p), (int)gpt_param_group(args, param),
		       param->element_count);
	}
}

/* @model: must outlive the backend. Return: NULL when memory is short. */
struct gpt_backend *gpt_reference_open(const struct gpt_args *args, const struct gpt_model *model,
                                       struct gpt_problem *problem)
{
	struct reference *ref = calloc(1, sizeof(*ref));

	assert(args->world_count >= 1);
	assert(args->world_count <= ZINF_WORLD_MAX);
	if (ref) {
		ref->base = (struct gpt_backend){ .ops = &reference_ops,
			                          .lane_count = args->world_count,
			                          .world_count = args->world_count };
		ref->model = model;
		ref->optimizer = (enum zinf_optimizer)args->optimizer;
		ref->param_dtype = gpt_param_dtype(args);
		ref->grad_dtype = gpt_grad_dtype(args);
		ref->reduce_dtype = gpt_reduce_dtype(args);
		ref->step = -1;
		ref->scaler = args->scaler;
		zinf_scaler_init(&ref->scale, &ref->scaler);
		ref->error_text = "";
		ref->beta1_power = 1.0;
		ref->beta2_power = 1.0;
		if (allocate(ref)) {
			mark_groups(ref, args);
			return &ref->base;
		}
		reference_close(&ref->base);
	}
	(void)gpt_problem_set(problem, -ENOMEM, "No memory for %u ranks of %llu parameters",
	                      args->world_count, (unsigned long long)model->element_count);
	return NULL;
}
