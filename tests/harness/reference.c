/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up training once more, plainly (reference.h). */
#include "tests/harness/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK 4096u

struct training {
	const struct trainer_settings *settings;
	uint64_t padded_count;
	uint64_t offsets[TRAINER_PARAMS_MAX]; /* of each parameter in the global index */
	float *master, *first, *second;       /* (padded_count,): values and moments */
	float *reduced;                       /* (padded_count,) */
	bool *is_still;                       /* (padded_count,) no rank has a gradient of it */
	double *sums;                         /* (padded_count / BLOCK,) */
	uint64_t random[ZINF_WORLD_MAX];
	double beta1_power, beta2_power;
	uint32_t update_count;
	uint32_t world; /* of the step */
};

/* Of fp32 and f64: split at the largest power of two below the count, at every level. Pairs at
 * distance 1, then 2, then 4 … are the same tree. */
#define TREE(values, count)                                                            \
	do {                                                                           \
		for (uint64_t stride = 1; stride < (count); stride *= 2)               \
			for (uint64_t at = 0; at + stride < (count); at += 2 * stride) \
				(values)[at] += (values)[at + stride];                 \
	} while (0)

/* Where the rounding of bf16 training ends: half away from zero, as the master's split does. */
static uint16_t split_high(float master)
{
	uint32_t bits;

	memcpy(&bits, &master, sizeof(bits));
	return (uint16_t)((bits + 0x8000u) >> 16);
}

static enum zinf_dtype param_dtype(const struct training *training)
{
	return training->settings->options.param_dtype;
}

static float round_gradient(const struct training *training, float value)
{
	return reference_round(value, training->settings->options.grad_dtype);
}

/* Leaves of a sum, and the sum. */
static float round_sum(const struct training *training, float value)
{
	const struct zinf_options *options = &training->settings->options;

	return reference_round(value,
	                       options->reduce_dtype ? options->reduce_dtype : options->grad_dtype);
}

/* What a rank sees. */
static float value_of(const struct training *training, uint64_t index)
{
	float master = training->master[index];

	if (param_dtype(training) == ZINF_BF16)
		return reference_from_bf16(split_high(master));
	return reference_round(master, param_dtype(training));
}

static float rank_gradient(const struct training *training, uint32_t seed, uint64_t index,
                           float value, bool is_infinite)
{
	return round_gradient(training,
	                      is_infinite ? INFINITY : trainer_gradient(seed, index, value));
}

static uint32_t world_of(const struct training *training)
{
	return training->world;
}

/* Of the start that made step @step. */
static uint32_t world_at(const struct trainer_settings *settings, uint32_t step)
{
	for (uint32_t i = 0; i < TRAINER_FORMERS && settings->formers[i].step; i++)
		if (step <= settings->formers[i].step)
			return settings->formers[i].world;
	return (uint32_t)settings->options.world_size;
}

static float average_of(const struct training *training)
{
	return training->settings->step.sum ? 1.0f : (float)(1.0 / training->world);
}

/* One element over micro-batches and ranks. @seeds: [micro-batch][rank]; who uses it. */
static float reduce_element(const struct training *training, const uint32_t seeds[][ZINF_WORLD_MAX],
                            const bool uses[][ZINF_WORLD_MAX], uint64_t index, float value,
                            bool is_infinite)
{
	const struct trainer_settings *settings = training->settings;
	uint32_t world = world_of(training);
	float leaves[ZINF_WORLD_MAX] = { 0 }, total = 0;
	bool is_written[ZINF_WORLD_MAX] = { false };

	for (uint32_t micro = 0; micro < settings->accumulate; micro++) {
		for (uint32_t rank = 0; rank < world; rank++) {
			float gradient = rank_gradient(training, seeds[micro][rank], index, value,
			                               is_infinite && rank == world - 1);
			bool is_local = settings->options.grad_reduction == ZINF_REDUCE_PER_STEP;

			if (!uses[micro][rank]) {
				if (!is_local)
					leaves[rank] = 0;
				continue;
			}
			if (is_local && is_written[rank])
				gradient = round_gradient(training, leaves[rank] + gradient);
			leaves[rank] = gradient;
			is_written[rank] = true;
		}
		if (settings->options.grad_reduction == ZINF_REDUCE_PER_STEP)
			continue;
		for (uint32_t rank = 0; rank < world; rank++)
			leaves[rank] = round_sum(training, leaves[rank]);
		TREE(leaves, world);
		total = micro ? total + leaves[0] : leaves[0];
	}
	if (settings->options.grad_reduction == ZINF_REDUCE_PER_STEP) {
		for (uint32_t rank = 0; rank < world; rank++)
			leaves[rank] = round_sum(training, leaves[rank]);
		TREE(leaves, world);
		total = leaves[0];
	}
	return round_sum(training, total * average_of(training));
}

static void reduce_all(struct training *training, uint32_t step)
{
	const struct trainer_settings *settings = training->settings;
	uint32_t param_count = 0;

	for (uint32_t unit = 0; unit < settings->model->unit_count; unit++)
		param_count += settings->model->unit_params[unit];
	for (uint32_t param = 0; param < param_count; param++) {
		uint64_t elements = settings->model->elements[param];
		uint32_t seeds[8][ZINF_WORLD_MAX];
		bool uses[8][ZINF_WORLD_MAX], is_used = false;
		float *reduced = training->reduced + training->offsets[param];

		for (uint32_t micro = 0; micro < settings->accumulate; micro++)
			for (uint32_t rank = 0; rank < world_of(training); rank++) {
				uint64_t random = training->random[rank];

				seeds[micro][rank] = trainer_seed(random, micro, param);
				uses[micro][rank] = trainer_uses(settings, random, micro, param);
				is_used |= uses[micro][rank];
			}
		memset(training->is_still + training->offsets[param], !is_used, elements);
		for (uint64_t i = 0; i < elements; i++)
			reduced[i] =
				reduce_element(training, seeds, uses, i,
			                       value_of(training, training->offsets[param] + i),
			                       step == settings->infinite_step && !param && !i);
	}
}

static double norm_of(struct training *training)
{
	float unscale = (float)training->settings->step.unscale;

	for (uint64_t block = 0; block < training->padded_count / BLOCK; block++) {
		double lanes[16] = { 0 };

		for (uint32_t i = 0; i < BLOCK; i++) {
			float scaled = training->reduced[block * BLOCK + i] * unscale;

			lanes[i % 16] += (double)scaled * (double)scaled;
		}
		for (uint32_t width = 8; width; width /= 2)
			for (uint32_t lane = 0; lane < width; lane++)
				lanes[lane] += lanes[lane + width];
		training->sums[block] = lanes[0];
	}
	TREE(training->sums, training->padded_count / BLOCK);
	return sqrt(training->sums[0]);
}

static void update_adam(struct training *training, float clip)
{
	const struct zinf_step_options *step = &training->settings->step;
	bool is_adamw = training->settings->options.optimizer == ZINF_ADAMW;
	float decay = (float)(1 - step->lr * step->weight_decay);
	float step_size = (float)(step->lr / (1 - training->beta1_power));
	float root = (float)sqrt(1 - training->beta2_power);
	float b1 = (float)step->beta1, rest1 = (float)(1 - step->beta1);
	float b2 = (float)step->beta2, rest2 = (float)(1 - step->beta2);

	for (uint64_t i = 0; i < training->padded_count; i++) {
		float p = training->master[i];
		float g = training->reduced[i] * (float)step->unscale;
		float m, v;

		if (training->is_still[i])
			continue;
		g = g * clip;
		if (is_adamw)
			p = p * decay;
		else
			g = fmaf((float)step->weight_decay, p, g);
		m = fmaf(rest1, g, b1 * training->first[i]);
		v = fmaf(rest2 * g, g, b2 * training->second[i]);
		training->first[i] = m;
		training->second[i] = v;
		training->master[i] = fmaf(-step_size, m / (sqrtf(v) / root + (float)step->eps), p);
	}
}

static void update_sgd(struct training *training, float clip)
{
	const struct zinf_step_options *step = &training->settings->step;
	float momentum = (float)step->beta1, rest = (float)(1 - step->beta2);

	for (uint64_t i = 0; i < training->padded_count; i++) {
		float p = training->master[i];
		float g = training->reduced[i] * (float)step->unscale;
		float m;

		if (training->is_still[i])
			continue;
		g = g * clip;
		g = fmaf((float)step->weight_decay, p, g);
		m = training->update_count ? fmaf(rest, g, momentum * training->first[i]) : g;
		training->first[i] = m;
		training->master[i] =
			fmaf(-(float)step->lr, step->nesterov ? fmaf(momentum, m, g) : m, p);
	}
}

static void update_adagrad(struct training *training, float clip)
{
	const struct zinf_step_options *step = &training->settings->step;

	for (uint64_t i = 0; i < training->padded_count; i++) {
		float p = training->master[i];
		float g = training->reduced[i] * (float)step->unscale;

		if (training->is_still[i])
			continue;
		g = g * clip;
		g = fmaf((float)step->weight_decay, p, g);
		training->first[i] = fmaf(g, g, training->first[i]);
		g = g / (sqrtf(training->first[i]) + (float)step->eps);
		training->master[i] = fmaf(-(float)step->lr, g, p);
	}
}

static void update_lion(struct training *training, float clip)
{
	const struct zinf_step_options *step = &training->settings->step;
	float decay = (float)(1 - step->lr * step->weight_decay);
	float b1 = (float)step->beta1, rest1 = (float)(1 - step->beta1);
	float b2 = (float)step->beta2, rest2 = (float)(1 - step->beta2);

	for (uint64_t i = 0; i < training->padded_count; i++) {
		float m = training->first[i];
		float g = training->reduced[i] * (float)step->unscale;
		float c, sign;

		if (training->is_still[i])
			continue;
		g = g * clip;
		c = fmaf(rest1, g, b1 * m);
		sign = (float)((c > 0) - (c < 0));
		training->first[i] = fmaf(rest2, g, b2 * m);
		training->master[i] = fmaf(training->master[i], decay, -sign * (float)step->lr);
	}
}

static void train_step(struct training *training, uint32_t number, struct reference_step *ret_step)
{
	const struct trainer_settings *settings = training->settings;
	const struct zinf_step_options *step = &settings->step;
	struct reference_step result = { .norm = NAN, .clip = 1 };

	training->world = world_at(settings, number);
	reduce_all(training, number);
	/* Also of ranks that come later. */
	for (uint32_t rank = 0; rank < ZINF_WORLD_MAX; rank++)
		training->random[rank] = trainer_random_next(training->random[rank], rank);
	if (step->max_norm > 0 || step->want_norm || step->skip_nonfinite) {
		double norm = norm_of(training);

		result.is_skipped = step->skip_nonfinite && !isfinite(norm);
		result.norm = norm;
		if (step->max_norm > 0)
			result.clip = fminf(1, (float)(step->max_norm / (norm + 1e-6)));
	}
	*ret_step = result;
	if (result.is_skipped)
		return;
	training->beta1_power *= step->beta1;
	training->beta2_power *= step->beta2;
	if (settings->options.optimizer == ZINF_SGD)
		update_sgd(training, (float)result.clip);
	else if (settings->options.optimizer == ZINF_ADAGRAD)
		update_adagrad(training, (float)result.clip);
	else if (settings->options.optimizer == ZINF_LION)
		update_lion(training, (float)result.clip);
	else
		update_adam(training, (float)result.clip);
	training->update_count++;
}

/* First values, rounded as the ranks write them. */
static void begin(struct training *training)
{
	const struct trainer_model *model = training->settings->model;
	uint64_t offset = 0;
	uint32_t param = 0;

	for (uint32_t unit = 0; unit < model->unit_count; unit++) {
		for (uint32_t end = param + model->unit_params[unit]; param < end; param++) {
			training->offsets[param] = offset;
			for (uint64_t i = 0; i < model->elements[param]; i++) {
				float value = trainer_first_value(param, i);

				training->master[offset + i] =
					reference_round(value, param_dtype(training));
			}
			offset += model->elements[param];
		}
		offset = (offset + BLOCK - 1) / BLOCK * BLOCK;
	}
	for (uint32_t rank = 0; rank < ZINF_WORLD_MAX; rank++)
		training->random[rank] = trainer_random_first(rank);
	training->beta1_power = training->beta2_power = 1;
}

static void put_out(const struct training *training, unsigned char *parameters)
{
	const struct trainer_model *model = training->settings->model;
	bool is_f16 = param_dtype(training) == ZINF_F16;
	uint32_t width = trainer_dtype_bytes(param_dtype(training));
	uint32_t param_count = 0;

	for (uint32_t unit = 0; unit < model->unit_count; unit++)
		param_count += model->unit_params[unit];
	for (uint32_t param = 0; param < param_count; param++)
		for (uint64_t i = 0; i < model->elements[param]; i++) {
			float value = training->master[training->offsets[param] + i];
			uint16_t half = is_f16 ? reference_to_f16(value) : split_high(value);

			if (width == sizeof(half))
				memcpy(parameters, &half, sizeof(half));
			else
				memcpy(parameters, &value, sizeof(value));
			parameters += width;
		}
}

bool reference_train(const struct trainer_settings *settings, unsigned char *parameters,
                     struct reference_step *steps)
{
	uint64_t count = trainer_padded_elements(settings->model);
	float *floats = calloc(4 * count, sizeof(*floats));
	double *sums = calloc(count / BLOCK, sizeof(*sums));
	bool *is_still = calloc(count, sizeof(*is_still));
	struct training training = {
		.settings = settings,
		.padded_count = count,
		.master = floats,
		.first = floats + count,
		.second = floats + 2 * count,
		.reduced = floats + 3 * count,
		.is_still = is_still,
		.sums = sums,
	};
	bool is_good = floats && sums && is_still;

	if (is_good) {
		begin(&training);
		for (uint32_t step = 1; step <= settings->steps; step++) {
			struct reference_step result;

			train_step(&training, step, &result);
			if (steps)
				steps[step] = result;
		}
		put_out(&training, parameters);
	}
	free(is_still);
	free(sums);
	free(floats);
	return is_good;
}

const char *reference_difference(const struct trainer_settings *settings, const unsigned char *dump)
{
	static char words[128];
	uint64_t bytes = trainer_dump_bytes(settings);
	unsigned char *expected = malloc(bytes);
	const char *answer = NULL;
	uint64_t at = 0;

	if (!expected || !reference_train(settings, expected, NULL)) {
		free(expected);
		return "no memory for the reference";
	}
	if (memcmp(expected, dump, bytes)) {
		while (expected[at] == dump[at])
			at++;
		(void)snprintf(words, sizeof(words),
		               "byte %" PRIu64 " of %" PRIu64 " is %02x, the reference has %02x",
		               at, bytes, dump[at], expected[at]);
		answer = words;
	}
	free(expected);
	return answer;
}
