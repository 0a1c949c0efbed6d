/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dump: the committed step as 8 bytes, then every parameter in order, in its own type, without
 * padding. Of the reference also what lies beside them: masters of 16-bit parameters, then moments,
 * in f32. Two runs gave the same bits when `cmp` says so.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/outfile.h"
#include "examples/gpt/train.h"

/* Of an open unit. */
static int write_param(struct gpt_backend *backend, uint32_t param, size_t bytes,
                       struct gpt_outfile *out, struct gpt_problem *problem)
{
	void *copy = NULL;
	int r = 0;

	if (backend->device) {
		copy = malloc(bytes);
		if (!copy)
			return gpt_problem_set(problem, -ENOMEM,
			                       "no memory to write --%s %s: %zu bytes", out->option,
			                       out->path, bytes);
		r = gpt_device_fetch(backend->device, gpt_backend_param(backend, param), bytes,
		                     copy);
	}
	if (r)
		r = gpt_backend_problem(backend, r, problem);
	else if (fwrite(copy ? copy : backend->ops->param(backend, param), bytes, 1, out->file) !=
	         1)
		r = gpt_outfile_problem(out, -errno, problem);
	free(copy);
	return r;
}

static int write_units(const struct gpt_model *model, struct gpt_backend *backend, uint64_t step,
                       enum zinf_dtype dtype, struct gpt_outfile *out, struct gpt_problem *problem)
{
	size_t element_bytes = dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);
	int r;

	if (fwrite(&step, sizeof(step), 1, out->file) != 1)
		return gpt_outfile_problem(out, -errno, problem);
	for (uint32_t u = 0; u < model->unit_count; u++) {
		const struct gpt_unit *unit = &model->units[u];

		r = backend->ops->unshard(backend, u);
		if (r)
			return gpt_backend_problem(backend, r, problem);
		for (uint32_t p = unit->param_index; p < unit->param_index + unit->param_count;
		     p++) {
			r = write_param(backend, p, element_bytes * model->params[p].element_count,
			                out, problem);
			if (r)
				return r;
		}
		r = backend->ops->reshard(backend, u);
		if (r)
			return gpt_backend_problem(backend, r, problem);
	}
	return 0;
}

/* Plane by plane, as the files of an export lie. */
static int write_state(const struct gpt_model *model, const struct gpt_backend *backend,
                       struct gpt_outfile *out, struct gpt_problem *problem)
{
	float *values = NULL;
	uint64_t most = 0;
	int r = 0;

	for (uint32_t p = 0; p < model->param_count; p++)
		most = model->params[p].element_count > most ? model->params[p].element_count
		                                             : most;
	values = malloc(most * sizeof(*values));
	if (!values)
		return gpt_problem_set(problem, -ENOMEM, "no memory to write --%s %s", out->option,
		                       out->path);
	for (uint32_t i = 0; i < _GPT_STATE_COUNT * model->param_count && !r; i++) {
		uint32_t p = i % model->param_count;
		size_t count = model->params[p].element_count;

		if (backend->ops->state(backend, p, (enum gpt_state)(i / model->param_count),
		                        values) &&
		    fwrite(values, sizeof(*values), count, out->file) != count)
			r = gpt_outfile_problem(out, -errno, problem);
	}
	free(values);
	return r;
}

/* The first of these in a path is the rank's number. */
#define RANK_PLACE "{rank}"

/* See train.h. */
int gpt_dump(const struct gpt_model *model, struct gpt_backend *backend, uint64_t step,
             enum zinf_dtype dtype, const char *path, struct gpt_problem *problem)
{
	const char *place = strstr(path, RANK_PLACE);
	char own[GPT_OUTFILE_PATH_BYTES];
	struct gpt_outfile out;
	int r;

	if (!place && backend->rank_first != 0)
		return 0;
	if (place &&
	    snprintf(own, sizeof(own), "%.*s%d%s", (int)(place - path), path,
	             (int)backend->rank_first, place + strlen(RANK_PLACE)) >= (int)sizeof(own))
		return gpt_problem_set(problem, -ENAMETOOLONG, "--dump: the path is too long");
	r = gpt_outfile_open(&out, "dump", place ? own : path, problem);
	if (r)
		return r;
	r = write_units(model, backend, step, dtype, &out, problem);
	return gpt_outfile_close(&out, r, problem);
}

/* See train.h. */
int gpt_dump_state(const struct gpt_model *model, const struct gpt_backend *backend,
                   const char *path, struct gpt_problem *problem)
{
	struct gpt_outfile out;
	int r = gpt_outfile_open(&out, "dump-state", path, problem);

	if (r)
		return r;
	r = write_state(model, backend, &out, problem);
	return gpt_outfile_close(&out, r, problem);
}
