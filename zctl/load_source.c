/* SPDX-License-Identifier: Apache-2.0 */
/* What is loaded: a directory with everything, several nodes' parts of that, or a file with
 * parameters. Nothing in it is believed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"
#include "common/wire/control.h"
#include "zctl/get.h"
#include "zctl/load.h"

static int refuse(const char *path, const char *what)
{
	zctl_complain("%s %s; nothing was loaded", path, what);
	return 1;
}

/* ---- a directory: everything ---- */

/* C hexadecimal floats, bit by bit. */
static int read_power(const json_t *manifest, const char *key, double *ret_power)
{
	const char *word = get_word(manifest, key);
	char *end;

	*ret_power = strtod(word, &end);
	return !*word || *end;
}

/* @manifest: taken over; NULL: it was said why. */
static int take_manifest(struct load_source *source, json_t *manifest)
{
	struct load_marks *marks = &source->marks;
	_cleanup_(zi_freep) char *path = NULL;

	if (!manifest)
		return 1;
	if (asprintf(&path, "%s/manifest.json", source->path) < 0) {
		path = NULL;
		json_decref(manifest);
		return 1;
	}
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

static int open_parts(struct load_source *source)
{
	if (take_manifest(source, load_parts_first(source->path)))
		return 1;
	if (load_parts_open(&source->parts, source->path, &source->model, source->allows_missing,
	                    source->mover))
		return 1;
	source->marks.blobs = source->parts.blobs;
	return 0;
}

static int open_directory(struct load_source *source)
{
	if (load_parts_are(source->path))
		return open_parts(source);
	if (take_manifest(source, load_manifest_read(source->path, CHECKPOINT_WHOLE)))
		return 1;
	return load_planes_open(&source->planes, source->path, source->model.record, &source->model,
	                        source->mover);
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

static int open_file(struct load_source *source, const struct zctl_context *context,
                     const char *like)
{
	struct load_file *file = &source->planes.files[PLANE_PARAM];
	json_t *record;

	if (load_file_open(file, source->path, source->mover))
		return 1;
	record = like ? model_of_job(context, like) : model_of_file(file);
	if (!record)
		return like ? 1
		            : refuse(source->path, "does not list its units: name a job of the "
		                                   "same model with --like");
	if (model_read(&source->model, record, like ? like : source->path))
		return 1;
	source->marks = (struct load_marks){
		.beta1_power = 1.0,
		.beta2_power = 1.0,
		.world_size = 1,
	};
	return load_file_match(file, &source->model, source->model.dtype, NULL);
}

/* ---- either ---- */

int load_source_open(struct load_source *source, const struct zctl_context *context,
                     const char *like)
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

int load_source_get(struct load_source *source, uint32_t unit, uint32_t subgroup,
                    const void **ret_planes, const char **ret_path)
{
	if (source->parts.count)
		return load_parts_get(&source->parts, &source->model, unit, subgroup, ret_planes,
		                      ret_path);
	*ret_path = source->planes.files[PLANE_PARAM].path;
	return load_planes_get(&source->planes, &source->model, unit, subgroup, ret_planes);
}

void load_source_close(struct load_source *source)
{
	load_planes_close(&source->planes);
	load_parts_close(&source->parts);
	source->mover = mover_free(source->mover);
	model_free(&source->model);
}
