/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scaling (common/base/scaler.h): where ranks ask for it, gradients come multiplied by the
 * scale, the step divides by it, skips what is not finite, and moves the machine once. Floor 5,
 * shard thread.
 *
 * The new state is the step's until that is in force, as are the powers of beta (step_end.c): a
 * crash before the commit takes it back, and a skipped step commits it with nothing else. Whoever
 * resumes goes on in the same curve, whatever the trainer has kept.
 */
#include "daemon/zero/step/scale.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/training.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/step/step.h"

/* See scale.h. */
bool scale_is_on(const struct zero_job *job)
{
	return job->training.scaler_kind != ZI_SCALER_NONE;
}

/* See scale.h. */
double scale_of(const struct zero_job *job)
{
	return scale_is_on(job) ? job->scale.state.scale : 1.0;
}

/* The quotient in f64, rounded once, as torch does. */
float scale_unscale(const struct zero_job *job)
{
	return (float)(scale_is_on(job) ? 1.0 / scale_of(job) : job->step.options.unscale);
}

/* See scale.h. */
int scale_options_check(const struct zero_job *job, const struct zi_step_options *options,
                        struct zi_text *text)
{
	if (!scale_is_on(job) || options->unscale == 1.0)
		return 0;
	return err_origin(zi_text_error(
		text, -EINVAL,
		"unscale is %.17g, but the job has a %s loss scale, by which gradients are divided "
		"already: leave it 1",
		options->unscale, zi_scaler_name(job->training.scaler_kind)));
}

/* Another kind has other words: it begins anew. */
void scale_resume(struct zero_job *job)
{
	const struct zi_scaler_options options = zi_training_scaler(&job->training);

	if (!scale_is_on(job)) {
		job->scale = (struct zero_scale){ .kind = ZI_SCALER_NONE };
		return;
	}
	if (job->committed.scale.kind == options.kind) {
		job->scale = job->committed.scale;
		zi_scaler_resume(&job->scale.state, &options);
		return;
	}
	job->scale = (struct zero_scale){ .kind = options.kind };
	zi_scaler_init(&job->scale.state, &options);
}

/* See scale.h. */
void scale_advance(struct zero_job *job, bool is_finite)
{
	const struct zi_scaler_options options = zi_training_scaler(&job->training);
	struct zero_step *step = &job->step;

	assert(step->phase == ZERO_STEP_STEPPING);
	step->next_scale = job->scale;
	if (!scale_is_on(job))
		return;
	assert(job->scale.kind == options.kind);
	/* Nowhere to go from here: the step is skipped, and after it the run ends. */
	step->scale_error = zi_scaler_update(&step->next_scale.state, &options, !is_finite);
}

/* See scale.h. */
void scale_put(const struct zero_scale *scale, struct catalog_job *record)
{
	static_assert(sizeof(*scale) <= CATALOG_SCALER_BYTES, "it has room");
	record->scaler_bytes = scale->kind == ZI_SCALER_NONE ? 0 : sizeof(*scale);
	memcpy(record->scaler, scale, record->scaler_bytes);
}

/* See scale.h. */
int scale_get(const struct catalog_job *record, struct zero_scale *ret_scale)
{
	struct zero_scale scale = { .kind = ZI_SCALER_NONE };

	if (record->scaler_bytes && record->scaler_bytes != sizeof(scale))
		return err_origin(-EUCLEAN);
	memcpy(&scale, record->scaler, record->scaler_bytes);
	if (record->scaler_bytes &&
	    (scale.kind == ZI_SCALER_NONE || scale.kind >= _ZI_SCALER_COUNT ||
	     !zi_scaler_is_sound(&scale.state)))
		return err_origin(-EUCLEAN);
	*ret_scale = scale;
	return 0;
}
