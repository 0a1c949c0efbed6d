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

#include "examples/gpt/train.h"

static int write_units(const struct gpt_model *model, struct gpt_backend *backend, uint64_t step,
                       enum zinf_dtype dtype, const char *path, FILE *file,
                       struct gpt_problem *problem)
{
	size_t element_bytes = dtype == ZINF_F32 ? sizeof(float) : sizeof(uint16_t);
	int r;

	if (fwrite(&step, sizeof(step), 1, file) != 1)
		return gpt_problem_set(problem, -errno, "Writing %s failed: %s", path,
		                       strerror(errno));
	for (uint32_t u = 0; u < model->unit_count; u++) {
		const struct gpt_unit *unit = &model->units[u];

		r = backend->ops->unshard(backend, u);
		if (r)
			return gpt_backend_problem(backend, r, problem);
		for (uint32_t p = unit->param_index; p < unit->param_index + unit->param_count;
		     p++) {
			size_t count = model->params[p].element_count;

			if (fwrite(backend->ops->param(backend, p), element_bytes, count, file) !=
			    count)
				return gpt_problem_set(problem, -errno, "Writing %s failed: %s",
				                       path, strerror(errno));
		}
		r = backend->ops->reshard(backend, u);
		if (r)
			return gpt_backend_problem(backend, r, problem);
	}
	return 0;
}

/* Plane by plane, as the files of an export lie. */
static int write_state(const struct gpt_model *model, const struct gpt_backend *backend,
                       const char *path, FILE *file, struct gpt_problem *problem)
{
	float *values = NULL;
	uint64_t most = 0;
	int r = 0;

	for (uint32_t p = 0; p < model->param_count; p++)
		most = model->params[p].element_count > most ? model->params[p].element_count
		                                             : most;
	values = malloc(most * sizeof(*values));
	if (!values)
		return gpt_problem_set(problem, -ENOMEM, "No memory to write %s", path);
	for (uint32_t i = 0; i < _GPT_STATE_COUNT * model->param_count && !r; i++) {
		uint32_t p = i % model->param_count;
		size_t count = model->params[p].element_count;

		if (backend->ops->state(backend, p, (enum gpt_state)(i / model->param_count),
		                        values) &&
		    fwrite(values, sizeof(*values), count, file) != count)
			r = gpt_problem_set(problem, -errno, "Writing %s failed: %s", path,
			                    strerror(errno));
	}
	free(values);
	return r;
}

/* A file beside @path takes its place when all is there. */
struct part {
	char path[4096];
	FILE *file;
};

static int part_open(struct part *part, const char *path, struct gpt_problem *problem)
{
	if (snprintf(part->path, sizeof(part->path), "%s.part", path) >= (int)sizeof(part->path))
		return gpt_problem_set(problem, -ENAMETOOLONG, "--dump: the path is too long");
	part->file = fopen(part->path, "wbe");
	if (!part->file)
		return gpt_problem_set(problem, -errno, "--dump %s: %s", path, strerror(errno));
	return 0;
}

/* @r: of what was written. Return: it, or what went wrong after it. */
static int part_close(struct part *part, int r, const char *path, struct gpt_problem *problem)
{
	if (fclose(part->file) && !r)
		r = gpt_problem_set(problem, -errno, "Writing %s failed: %s", path,
		                    strerror(errno));
	if (!r && rename(part->path, path))
		r = gpt_problem_set(problem, -errno, "--dump %s: %s", path, strerror(errno));
	if (r)
		(void)remove(part->path); /* It may not be there. */
	return r;
}

/* The first of these in a path is the rank's number. */
#define RANK_PLACE "{rank}"

/* See train.h. */
int gpt_dump(const struct gpt_model *model, struct gpt_backend *backend, uint64_t step,
             enum zinf_dtype dtype, const char *path, struct gpt_problem *problem)
{
	const char *place = strstr(path, RANK_PLACE);
	char own[sizeof(((struct part *)NULL)->path)];
	struct part part;
	int r;

	if (!place && backend->rank_first != 0)
		return 0;
	if (place &&
	    snprintf(own, sizeof(own), "%.*s%d%s", (int)(place - path), path,
	             (int)backend->rank_first, place + strlen(RANK_PLACE)) >= (int)sizeof(own))
		return gpt_problem_set(problem, -ENAMETOOLONG, "--dump: the path is too long");
	path = place ? own : path;
	r = part_open(&part, path, problem);
	if (r)
		return r;
	r = write_units(model, backend, step, dtype, path, part.file, problem);
	return part_close(&part, r, path, problem);
}

/* See train.h. */
int gpt_dump_state(const struct gpt_model *model, const struct gpt_backend *backend,
                   const char *path, struct gpt_problem *problem)
{
	struct part part;
	int r = part_open(&part, path, problem);

	if (r)
		return r;
	r = write_state(model, backend, path, part.file, problem);
	return part_close(&part, r, path, problem);
}
