/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a run begins: a new job gets its first values from rank 0, a former one goes on where its
 * blobs say that it stood.
 */
#include "examples/gpt/begin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/args_lr.h"
#include "examples/gpt/f16.h"

/* Rank 0 writes first values through the parameters' own addresses. @values: scratch. */
static void fill_unit(const struct gpt_run *run, struct gpt_backend *backend, uint32_t unit,
                      float *values)
{
	const struct gpt_unit *u = &run->model->units[unit];
	enum zinf_dtype dtype = gpt_param_dtype(run->args);

	for (uint32_t p = u->param_index; p < u->param_index + u->param_count; p++) {
		/* Writable between write_begin and write_end: that is what they are for. */
		void *target = (void *)backend->ops->param(backend, p);
		uint64_t count = run->model->params[p].element_count;

		gpt_model_first_values(run->model, p, run->args->seed, values);
		if (dtype != ZINF_F32)
			for (uint64_t i = 0; i < count; i++)
				((uint16_t *)target)[i] = gpt_half_round(values[i], dtype);
		else
			memcpy(target, values, count * sizeof(*values));
	}
}

static int write_first_values(const struct gpt_run *run, struct gpt_backend *backend,
                              const struct gpt_blob *blob, struct gpt_problem *problem)
{
	float *values = calloc(run->model->element_count, sizeof(*values));
	int r = 0;

	if (!values)
		return gpt_problem_set(problem, -ENOMEM, "No memory for first values");
	for (uint32_t unit = 0; !r && unit < run->model->unit_count; unit++) {
		if (backend->rank_first == 0) {
			r = backend->ops->write_begin(backend, unit);
			if (!r)
				fill_unit(run, backend, unit, values);
		}
		if (!r)
			r = backend->ops->write_end(backend, unit);
	}
	free(values);
	if (!r)
		r = backend->ops->commit(backend, blob, sizeof(*blob));
	return r ? gpt_backend_problem(backend, r, problem) : 0;
}

/* The job's learning rate changes when its schedule ends elsewhere. 0: not known, or no end. */
static void note_total(const struct gpt_report *report, uint64_t former, uint64_t total)
{
	char text[160];

	if (!former || !total || former == total)
		return;
	(void)snprintf(text, sizeof(text),
	               "the learning-rate schedule ended at update %" PRIu64 " and ends at %" PRIu64
	               " now; --lr-total %" PRIu64 " keeps it",
	               former, total, former);
	gpt_report_note(report, text);
}

/* Where the former life of this job stood. */
static int resume(const struct gpt_run *run, struct gpt_backend *backend,
                  const struct gpt_report *report, uint64_t step, struct gpt_blob *ret_blob,
                  struct gpt_problem *problem)
{
	struct gpt_blob blob = { 0 };
	size_t bytes = 0;
	int r;

	r = backend->ops->blob_get(backend, &blob, sizeof(blob), &bytes);
	if (r && r != -ENOBUFS)
		return gpt_backend_problem(backend, r, problem);
	/* A snapshot of fewer ranks, or of parameters alone, or a rank that is new to the job: the
	 * step names the batches. Whether the job is this program's rank 0 knows, which is never
	 * new. */
	if (!r && !bytes && (run->args->load || run->args->resumes_step || backend->rank_first > 0))
		blob = (struct gpt_blob){ .magic = GPT_BLOB_MAGIC,
			                  .step = step,
			                  .seed = run->args->seed,
			                  .fingerprint = run->corpus->fingerprint };
	else if (r || (bytes != sizeof(blob) && bytes != GPT_BLOB_BYTES_FIRST))
		blob.magic = 0;
	/* Who had no data in the last step (--once) gave none of that one; rank 0 has some. */
	if (blob.magic != GPT_BLOB_MAGIC || blob.step > step ||
	    step - blob.step > (backend->rank_first > 0))
		return gpt_problem_set(problem, -EINVAL,
		                       "the job is at step %" PRIu64 ", but it was not trained by "
		                       "this program; give another --job",
		                       step);
	/* The blob of a step is given before it is known whether the step was skipped. */
	if (step && run->args->lr_kind != ZINF_LR_CONSTANT && run->args->is_skipping_nonfinite &&
	    backend->ops->update_count(backend) < 0)
		return gpt_problem_set(problem, -EINVAL,
		                       "the job is at step %" PRIu64
		                       ", and --skip-nonfinite may have skipped some steps; this "
		                       "zinfd does not count updates, which the learning rate "
		                       "needs: use a newer zinfd, or --lr-schedule constant",
		                       step);
	if (blob.seed != run->args->seed)
		gpt_report_note(report, "the job was started with another --seed");
	if (blob.fingerprint != run->corpus->fingerprint)
		gpt_report_note(report, "the job was started with other --data");
	note_total(report, blob.lr_total, gpt_lr_total(run->args));
	blob.seed = run->args->seed;
	blob.fingerprint = run->corpus->fingerprint;
	blob.lr_total = gpt_lr_total(run->args);
	*ret_blob = blob;
	gpt_report_resumed(report, step, blob.token_count);
	return 0;
}

/* First values, or where the job stood. @ret_blob: what the next step goes on from. @ret_step: the
 * committed one. Return: 0; -EINVAL the job is another program's; what the backend answered. */
int gpt_begin(const struct gpt_run *run, struct gpt_backend *backend,
              const struct gpt_report *report, struct gpt_blob *ret_blob, uint64_t *ret_step,
              struct gpt_problem *problem)
{
	int64_t step = backend->ops->committed_step(backend);
	struct gpt_blob blob = {
		.magic = GPT_BLOB_MAGIC,
		.seed = run->args->seed,
		.fingerprint = run->corpus->fingerprint,
		.lr_total = gpt_lr_total(run->args),
	};
	int r;

	if (step < backend->ops->lost_step(backend))
		gpt_report_lost(report, backend->ops->lost_step(backend),
		                step < 0 ? 0 : (uint64_t)step);
	r = step < 0 ? write_first_values(run, backend, &blob, problem)
	             : resume(run, backend, report, (uint64_t)step, &blob, problem);
	if (r)
		return r;
	*ret_blob = blob;
	*ret_step = step < 0 ? 0 : (uint64_t)step;
	return 0;
}
