/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dump: the committed step as 8 bytes, then every parameter in order, in its own type, without
 * padding. Two runs gave the same bits when `cmp` says so.
 */
#include <errno.h>
#include <stdio.h>
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

/* @step: the committed one. Replaces @path as a whole, or leaves it. */
int gpt_dump(const struct gpt_model *model, struct gpt_backend *backend, uint64_t step,
             enum zinf_dtype dtype, const char *path, struct gpt_problem *problem)
{
	char part[4096];
	FILE *file;
	int r;

	if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
		return gpt_problem_set(problem, -ENAMETOOLONG, "--dump: the path is too long");
	file = fopen(part, "wbe");
	if (!file)
		return gpt_problem_set(problem, -errno, "--dump %s: %s", path, strerror(errno));
	r = write_units(model, backend, step, dtype, path, file, problem);
	if (fclose(file) && !r)
		r = gpt_problem_set(problem, -errno, "Writing %s failed: %s", path,
		                    strerror(errno));
	if (!r && rename(part, path))
		r = gpt_problem_set(problem, -errno, "--dump %s: %s", path, strerror(errno));
	if (r)
		(void)remove(part); /* It may not be there. */
	return r;
}
