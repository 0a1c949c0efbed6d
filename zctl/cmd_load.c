/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl load: what zctl export wrote (docs/CHECKPOINT.md) becomes a snapshot, which a job then
 * begins with (zinf_load()), of whatever world size and offload settings. Files are read with the
 * caller's rights, and every byte is compared with its checksum, where there is one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/wire/control.h"
#include "common/wire/geometry.h"
#include "zctl/get.h"
#include "zctl/load.h"

#define CHECKPOINT_VERSION 1

enum load_plane { PLANE_PARAM, PLANE_MASTER, PLANE_EXP_AVG, PLANE_EXP_AVG_SQ, _PLANE_COUNT };

static const char *const plane_names[_PLANE_COUNT] = { "param", "master", "exp_avg", "exp_avg_sq" };

struct source {
	const char *path;
	struct model model;
	struct load_marks marks;
	struct load_file files[_PLANE_COUNT]; /* path NULL: not there */
	struct mover *mover;                  /* reads them */
};

static int usage(void)
{
	fprintf(stderr, "usage: zctl load TARGET JOB[/NAME] [--snapshot NAME] [--like JOB[/NAME]]\n"
	                "  TARGET  a directory (everything) or safetensors file (parameters) that\n"
	                "          zctl export wrote\n"
	                "  --like  the model of a job that is here, for parameters from elsewhere\n"
	                "The job begins with it when its trainer asks for snapshot JOB/NAME\n"
	                "(zinf_load(); NAME is step-N unless given).\n");
	return 2;
}

static int refuse(const char *path, const char *what)
{
	zctl_complain("%s %s; nothing was loaded", path, what);
	return 1;
}

/* ---- a directory: everything ---- */

static bool is_wanted(const struct model *model, uint32_t plane)
{
	if (plane == PLANE_MASTER)
		return zi_remainder_bytes(model->dtype) != 0;
	return plane != PLANE_EXP_AVG_SQ || zi_optimizer_moments(model->optimizer) == 2;
}

/* C hexadecimal floats, bit by bit. */
static int read_power(const json_t *manifest, const char *key, double *ret_power)
{
	const char *word = get_word(manifest, key);
	char *end;

	*ret_power = strtod(word, &end);
	return !*word || *end;
}

static int read_manifest(struct source *source)
{
	_cleanup_(zi_freep) char *path = NULL;
	struct load_marks *marks = &source->marks;
	json_error_t error;
	json_t *manifest;

	if (asprintf(&path, "%s/manifest.json", source->path) < 0)
		return 1;
	manifest = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	if (!manifest) {
		zctl_complain("reading %s, line %d: %s; nothing was loaded", path, error.line,
		              error.text);
		return 1;
	}
	source->model.record = manifest; /* Owned from here on. */
	if (strcmp(get_word(manifest, "format"), "zinf-checkpoint") != 0)
		return refuse(path, "is not of a zinf checkpoint");
	if (get_count(manifest, "version") != CHECKPOINT_VERSION)
		return refuse(path, "is of another version than 1, the only one that is known");
	if (get_count(manifest, "subgroup_elements") != ZI_SUBGROUP_ELEMENTS)
		return refuse(path, "has subgroups of another length");
	if (model_read(&source->model, manifest, path))
		return 1;
	marks->step = get_signed(manifest, "step");
	marks->update_count = get_count(manifest, "update_count");
	marks->world_size = (uint32_t)get_count(manifest, "world_size");
	marks->blobs = json_object_get(manifest, "blobs");
	marks->has_state = true;
	if (read_power(manifest, "beta1_power", &marks->beta1_power) ||
	    read_power(manifest, "beta2_power", &marks->beta2_power))
		return refuse(path, "has a power that is no number");
	return 0;
}

static const json_t *find_entry(const json_t *manifest, const char *plane)
{
	size_t index;
	json_t *entry;

	json_array_foreach(json_object_get(manifest, "files"), index, entry)
	{
		if (!strcmp(get_word(entry, "plane"), plane))
			return entry;
	}
	return NULL;
}

static int open_plane(struct source *source, uint32_t plane)
{
	const json_t *entry = find_entry(source->model.record, plane_names[plane]);
	const char *name = get_word(entry, "name");
	_cleanup_(zi_freep) char *path = NULL;

	/* A manifest names no file but its neighbours. */
	if (!entry || !*name || strchr(name, '/'))
		return refuse(source->path, "has a manifest that names no file of each plane");
	if (asprintf(&path, "%s/%s", source->path, name) < 0)
		return 1;
	if (load_file_open(&source->files[plane], path, source->mover))
		return 1;
	return load_file_match(&source->files[plane], &source->model,
	                       plane == PLANE_PARAM ? source->model.dtype : ZI_DTYPE_F32, entry);
}

static int open_directory(struct source *source)
{
	if (read_manifest(source))
		return 1;
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		if (is_wanted(&source->model, plane) && open_plane(source, plane))
			return 1;
	return 0;
}

/* ---- a file: parameters ---- */

static json_t *model_of_file(const struct load_file *file)
{
	const json_t *metadata = json_object_get(file->header, "__metadata__");
	json_error_t error;

	return json_loads(get_word(metadata, "zinf_model"), 0, &error);
}

static json_t *model_of_job(const struct zctl_context *context, const char *job)
{
	char command[ZI_ADMIN_COMMAND_BYTES];

	if (snprintf(command, sizeof command, "export open %s", job) >= (int)sizeof command)
		return NULL;
	return zctl_ask_long(context, command, 600);
}

static int open_file(struct source *source, const struct zctl_context *context, const char *like)
{
	struct load_file *file = &source->files[PLANE_PARAM];
	json_t *record;

	if (load_file_open(file, source->path, source->mover))
		return 1;
	record = like ? model_of_job(context, like) : model_of_file(file);
	if (!record)
		return like ? 1
		            : refuse(source->path, "does not say how its tensors make units: name "
		                                   "a job of the same model with --like");
	if (model_read(&source->model, record, like ? like : source->path))
		return 1;
	source->marks = (struct load_marks){
		.beta1_power = 1.0,
		.beta2_power = 1.0,
		.world_size = 1,
	};
	return load_file_match(file, &source->model, source->model.dtype, NULL);
}

/* ---- sending it ---- */

static int source_open(struct source *source, const struct zctl_context *context, const char *like)
{
	struct stat status;

	source->mover = mover_new();
	if (!source->mover)
		return refuse(source->path, "needs more memory or threads than there are");
	if (stat(source->path, &status)) {
		zctl_complain("%s: %s; nothing was loaded", source->path, strerror(errno));
		return 1;
	}
	return S_ISDIR(status.st_mode) ? open_directory(source) : open_file(source, context, like);
}

static void source_close(struct source *source)
{
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		load_file_close(&source->files[plane]);
	source->mover = mover_free(source->mover);
	model_free(&source->model);
}

static int send_subgroup(struct source *source, struct load *load, uint32_t unit, uint32_t subgroup)
{
	const struct model *model = &source->model;
	uint64_t total = zi_geometry_subgroup_elements(model->units[unit].padded_count, subgroup);
	const void *planes[_PLANE_COUNT] = { 0 };
	uint8_t *window;
	uint64_t good;

	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		if (source->files[plane].path &&
		    load_file_get(&source->files[plane], model, unit, subgroup, &planes[plane]))
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
		zctl_complain("%s: element %" PRIu64 " of subgroup %u of unit '%s' is not what its "
		              "master rounds to; nothing was loaded",
		              source->files[PLANE_PARAM].path, good, subgroup,
		              model->units[unit].name);
		return 1;
	}
	return load_put(load, model, unit, subgroup, ZI_PLANE_STATE);
}

static int send_all(struct source *source, struct load *load)
{
	for (uint32_t unit = 0; unit < source->model.unit_count; unit++)
		for (uint32_t i = 0; i < source->model.units[unit].subgroup_count; i++)
			if (send_subgroup(source, load, unit, i))
				return 1;
	return 0;
}

static int tell(const struct source *source, const struct load *load, json_t *answer)
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

static int load_source(struct source *source, const struct zctl_context *context,
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
 * @argv: "load", then as usage() says
 *
 * Return: exit code.
 */
int zctl_load(const struct zctl_context *context, int argc, char **argv)
{
	const char *job = NULL, *name = NULL, *like = NULL;
	struct source source = { 0 };
	char target[2 * ZI_NAME_BYTES];
	int code;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--snapshot") && i + 1 < argc)
			name = argv[++i];
		else if (!strcmp(argv[i], "--like") && i + 1 < argc)
			like = argv[++i];
		else if (argv[i][0] == '-' || job)
			return usage();
		else
			*(source.path ? &job : &source.path) = argv[i];
	}
	if (!job || (name && strchr(job, '/')) ||
	    snprintf(target, sizeof target, "%s%s%s", job, name ? "/" : "", name ? name : "") >=
	            (int)sizeof target)
		return usage();
	zctl_catch_cancel();
	code = source_open(&source, context, like);
	if (!code)
		code = load_source(&source, context, target);
	source_close(&source);
	return code;
}
