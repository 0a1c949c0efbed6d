/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl load: what zctl export wrote (docs/CHECKPOINT.md) becomes a snapshot, which a job then
 * begins with (zinf_load()), of whatever world size and offload settings. Files are read with the
 * caller's rights, and every byte is compared with its checksum, where there is one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire/geometry.h"
#include "zctl/get.h"
#include "zctl/load.h"

static int send_subgroup(struct load_source *source, struct load *load, uint32_t unit,
                         uint32_t subgroup)
{
	const struct model *model = &source->model;
	uint64_t total = zi_geometry_subgroup_elements(model->units[unit].padded_count, subgroup);
	const void *planes[_PLANE_COUNT] = { 0 };
	const char *path;
	uint8_t *window;
	uint64_t good;

	if (load_source_get(source, unit, subgroup, planes, &path))
		return 1;
	window = load_window(load);
	if (!window)
		return 1;
	memcpy(window, planes[PLANE_PARAM], model_extent_bytes(model, total, ZI_PLANE_PARAM));
	if (load_put(load, model, unit, subgroup, ZI_PLANE_PARAM))
		return 1;
	if (!source->marks.has_state)
		return 0;
	window = load_window(load);
	if (!window)
		return 1;
	good = fold_state(model, total, planes[PLANE_PARAM], planes[PLANE_MASTER],
	                  planes[PLANE_EXP_AVG], planes[PLANE_EXP_AVG_SQ], window);
	if (good < total) {
		zctl_complain("%s: element %" PRIu64 " of subgroup %u of unit '%s' differs "
		              "from its rounded master; nothing was loaded",
		              path, good, subgroup, model->units[unit].name);
		return 1;
	}
	return load_put(load, model, unit, subgroup, ZI_PLANE_STATE);
}

static int send_all(struct load_source *source, struct load *load)
{
	for (uint32_t unit = 0; unit < source->model.unit_count; unit++)
		for (uint32_t i = 0; i < source->model.units[unit].subgroup_count; i++)
			if (send_subgroup(source, load, unit, i))
				return 1;
	return 0;
}

static int tell(const struct load_source *source, const struct load *load, json_t *answer)
{
	if (load->context->is_json) {
		(void)json_object_set_new(answer, "path", json_string(source->path));
		return zctl_print_json(answer);
	}
	printf("loaded %s as snapshot %s/%s, step %" PRId64 "%s: a job begins with it by "
	       "zinf_load()\n",
	       source->path, get_word(answer, "job"), get_word(answer, "name"),
	       get_signed(answer, "step"),
	       source->marks.has_state ? "" : " (parameters; the optimizer's state is zero)");
	return 0;
}

static int load_source(struct load_source *source, const struct zctl_context *context,
                       const char *target)
{
	json_t *answer = NULL;
	struct load load;
	int code = load_open(&load, context, target, &source->model, &source->marks);

	load.is_progress = isatty(STDERR_FILENO) && !context->is_json;
	if (!code)
		code = send_all(source, &load);
	if (!code)
		code = load_end(&load, &answer);
	if (!code)
		code = tell(source, &load, answer);
	json_decref(answer);
	load_close(&load);
	return code;
}

/**
 * zctl_load() - make a snapshot of exported files
 * @context: socket and output options
 * @argc: words
 * @argv: "load", then as help.c says
 *
 * Return: exit code.
 */
int zctl_load(const struct zctl_context *context, int argc, char **argv)
{
	const char *job = NULL, *name = NULL, *like = NULL;
	struct load_source source = { 0 };
	char target[2 * ZI_NAME_BYTES];
	int code;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--snapshot") && i + 1 < argc)
			name = argv[++i];
		else if (!strcmp(argv[i], "--allow-missing"))
			source.allows_missing = true;
		else if (!strcmp(argv[i], "--like") && i + 1 < argc)
			like = argv[++i];
		else if (argv[i][0] == '-' || job)
			return zctl_usage("load");
		else
			*(source.path ? &job : &source.path) = argv[i];
	}
	if (!job || (name && strchr(job, '/')) ||
	    snprintf(target, sizeof target, "%s%s%s", job, name ? "/" : "", name ? name : "") >=
	            (int)sizeof target)
		return zctl_usage("load");
	zctl_catch_cancel();
	code = load_source_open(&source, context, like);
	if (!code)
		code = load_source(&source, context, target);
	load_source_close(&source);
	return code;
}
