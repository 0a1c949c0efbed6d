/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zctl export: a committed step, or a snapshot, into files that other tools read
 * (docs/CHECKPOINT.md). Written under NAME.tmp with the caller's rights, synced, and renamed when
 * everything is there; on any failure nothing is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "common/base/text.h"
#include "common/wire/geometry.h"
#include "kernels/cast.h"
#include "zctl/export.h"
#include "zctl/get.h"

#define CHECKPOINT_VERSION 1

/* Planes of the directory: files of float32 beside the parameters. */
enum export_plane { PLANE_PARAM, PLANE_MASTER, PLANE_EXP_AVG, PLANE_EXP_AVG_SQ, _PLANE_COUNT };

static const char *const plane_names[_PLANE_COUNT] = { "param", "master", "exp_avg", "exp_avg_sq" };

struct target {
	char *path, *partial; /* "NAME", "NAME.tmp" */
	bool is_directory;
	bool is_made; /* `partial`, a directory */
	struct export_file files[_PLANE_COUNT];
	bool is_wanted[_PLANE_COUNT];
	char *manifest; /* path; NULL: not made */
	struct mover *mover;
	float *scratch; /* (ZI_SUBGROUP_ELEMENTS,) of one plane */
};

static int usage(void)
{
	fprintf(stderr, "usage: zctl export JOB[/SNAPSHOT] TARGET [--format safetensors|zinf]\n"
	                "  safetensors  the parameters, one file (the default)\n"
	                "  zinf         everything, a directory (docs/CHECKPOINT.md)\n");
	return 2;
}

static int complain(const char *doing, const char *path)
{
	zctl_complain("%s %s: %s; nothing was exported", doing, path, strerror(errno));
	return 1;
}

/* ---- the target ---- */

static bool is_wanted(const struct export *export, const struct target *target, uint32_t plane)
{
	switch (plane) {
	case PLANE_PARAM:
		return true;
	case PLANE_MASTER:
		return target->is_directory && zi_remainder_bytes(export->model.dtype) != 0;
	case PLANE_EXP_AVG:
		return target->is_directory;
	default:
		return target->is_directory && zi_optimizer_moments(export->model.optimizer) == 2;
	}
}

static int target_make(struct target *target, const struct export *export)
{
	struct stat status;

	if (!lstat(target->path, &status)) {
		zctl_complain("%s exists: nothing was overwritten", target->path);
		return 1;
	}
	if (target->is_directory) {
		if (mkdir(target->partial, 0777))
			return complain("making", target->partial);
		target->is_made = true;
	}
	target->scratch = calloc(ZI_SUBGROUP_ELEMENTS, sizeof *target->scratch);
	target->mover = mover_new();
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++) {
		char *path = NULL;
		int r;

		target->is_wanted[plane] = is_wanted(export, target, plane);
		if (!target->is_wanted[plane])
			continue;
		if (!target->is_directory)
			path = strdup(target->partial);
		else if (asprintf(&path, "%s/%s.safetensors", target->partial, plane_names[plane]) <
		         0)
			path = NULL;
		if (!path || !target->scratch || !target->mover)
			return complain("making", target->partial);
		r = export_file_make(&target->files[plane], path, target->mover, export,
		                     plane == PLANE_PARAM ? export->model.dtype : ZI_DTYPE_F32,
		                     target->is_directory);
		free(path);
		if (r)
			return 1;
	}
	return 0;
}

static int sync_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -1;
	r = fsync(fd);
	(void)close(fd); /* Only read. */
	return r;
}

/* Under its name at last. */
static int target_end(struct target *target)
{
	_cleanup_(zi_freep) char *copy = strdup(target->path);

	if (target->is_directory && sync_directory(target->partial))
		return complain("syncing", target->partial);
	if (renameat2(AT_FDCWD, target->partial, AT_FDCWD, target->path, RENAME_NOREPLACE)) {
		/* Some file systems do not know the flag. */
		if (errno != EINVAL || !access(target->path, F_OK) ||
		    rename(target->partial, target->path))
			return complain("renaming to", target->path);
	}
	if (!copy || sync_directory(dirname(copy)))
		zctl_complain("%s is written, but its directory could not be synced: %s",
		              target->path, strerror(errno));
	return 0;
}

static void target_drop(struct target *target, bool is_kept)
{
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		if (target->is_wanted[plane])
			export_file_drop(&target->files[plane], is_kept);
	if (target->manifest && !is_kept)
		(void)unlink(target->manifest); /* Made by us. */
	if (target->is_made && !is_kept)
		(void)rmdir(target->partial); /* Empty, and made by us. */
	target->mover = mover_free(target->mover);
	free(target->manifest);
	free(target->scratch);
	free(target->partial);
	free(target->path);
}

/* ---- the planes ---- */

/* fp32 master from the bf16 or f16 parameter and its remainder (docs/ARITHMETIC.md, "Element
 * types"), both of any alignment. */
static float join(enum zi_dtype dtype, const uint8_t *param, const uint8_t *remainder)
{
	uint16_t half;
	int16_t narrow;
	int32_t wide;

	memcpy(&half, param, sizeof half);
	if (dtype == ZI_DTYPE_F16) {
		memcpy(&wide, remainder, sizeof wide);
		return kern_join_f16(half, wide);
	}
	memcpy(&narrow, remainder, sizeof narrow);
	return kern_join(half, narrow);
}

/* One plane of a subgroup out of its tiles, [remainder | exp_avg | exp_avg_sq] each. */
static void unfold(const struct export *export, uint32_t plane, uint64_t total,
                   const uint8_t *param, const uint8_t *state, float *values)
{
	const enum zi_dtype dtype = export->model.dtype;
	const uint32_t split = zi_remainder_bytes(dtype);

	for (uint64_t first = 0; first < total; first += ZI_TILE_ELEMENTS) {
		uint64_t count = ZI_MIN((uint64_t)ZI_TILE_ELEMENTS, total - first);
		const uint8_t *tile = state + first * export->model.state_width;

		if (plane != PLANE_MASTER) {
			uint64_t skip = split * count + (plane == PLANE_EXP_AVG_SQ ? 4 * count : 0);

			memcpy(values + first, tile + skip, count * sizeof *values);
			continue;
		}
		for (uint64_t i = 0; i < count; i++)
			values[first + i] = join(dtype, param + 2 * (first + i), tile + split * i);
	}
}

static int put_subgroup(struct export *export, struct target *target, uint32_t unit,
                        uint32_t subgroup)
{
	uint64_t total =
		zi_geometry_subgroup_elements(export->model.units[unit].padded_count, subgroup);
	const uint8_t *param, *state;

	if (export_fetch(export, unit, subgroup, ZI_PLANE_PARAM, &param) ||
	    export_file_put(&target->files[PLANE_PARAM], export, unit, subgroup, param))
		return 1;
	if (!target->is_directory)
		return 0;
	if (export_fetch(export, unit, subgroup, ZI_PLANE_STATE, &state))
		return 1;
	for (uint32_t plane = PLANE_MASTER; plane < _PLANE_COUNT; plane++) {
		if (!target->is_wanted[plane])
			continue;
		unfold(export, plane, total, param, state, target->scratch);
		if (export_file_put(&target->files[plane], export, unit, subgroup, target->scratch))
			return 1;
	}
	return 0;
}

static int copy_subgroup(struct export *export, struct target *target, uint32_t unit,
                         uint32_t subgroup)
{
	int r = put_subgroup(export, target, unit, subgroup);

	export_release(export);
	return r;
}

static int copy_all(struct export *export, struct target *target)
{
	uint64_t width = zi_dtype_bytes(export->model.dtype);

	export->has_state = target->is_directory;
	if (export->has_state)
		width += export->model.state_width;
	for (uint32_t unit = 0; unit < export->model.unit_count; unit++)
		export->total_bytes += export->model.units[unit].padded_count * width;
	for (uint32_t unit = 0; unit < export->model.unit_count; unit++)
		for (uint32_t i = 0; i < export->model.units[unit].subgroup_count; i++)
			if (copy_subgroup(export, target, unit, i))
				return 1;
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		if (target->is_wanted[plane] && export_file_end(&target->files[plane]))
			return 1;
	return 0;
}

/* ---- the manifest ---- */

static json_t *make_manifest(const struct export *export, const struct target *target)
{
	static const char *const keys[] = {
		"job",         "snapshot",   "step",        "update_count", "beta1_power",
		"beta2_power", "world_size", "param_dtype", "grad_dtype",   "optimizer",
		"schedule",    "units",      "params",      "blobs",
	};
	json_t *manifest = json_object(), *files = json_array();

	(void)json_object_set_new(manifest, "format", json_string("zinf-checkpoint"));
	(void)json_object_set_new(manifest, "version", json_integer(CHECKPOINT_VERSION));
	for (size_t i = 0; i < ZI_COUNT_OF(keys); i++)
		(void)json_object_set(manifest, keys[i],
		                      json_object_get(export->model.record, keys[i]));
	(void)json_object_set_new(manifest, "subgroup_elements",
	                          json_integer(ZI_SUBGROUP_ELEMENTS));
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++) {
		const struct export_file *file = &target->files[plane];

		if (target->is_wanted[plane])
			(void)json_array_append_new(
				files,
				json_pack("{s:s,s:o,s:I,s:I,s:O}", "plane", plane_names[plane],
			                  "name",
			                  json_sprintf("%s.safetensors", plane_names[plane]),
			                  "bytes", (json_int_t)file->bytes, "data_offset",
			                  (json_int_t)file->data_offset, "xxh3", file->hashes));
	}
	(void)json_object_set_new(manifest, "files", files);
	return manifest;
}

static int write_manifest(const struct export *export, struct target *target)
{
	json_t *manifest = make_manifest(export, target);
	FILE *stream = NULL;
	int fd, r = 1;

	if (asprintf(&target->manifest, "%s/manifest.json", target->partial) < 0)
		target->manifest = NULL;
	fd = target->manifest
	             ? open(target->manifest, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
	             : -1;
	if (fd >= 0)
		stream = fdopen(fd, "w");
	if (stream && !json_dumpf(manifest, stream, JSON_INDENT(1) | JSON_PRESERVE_ORDER) &&
	    fputc('\n', stream) != EOF && !fflush(stream) && !fsync(fd))
		r = 0;
	if (r)
		(void)complain("writing", target->manifest ? target->manifest : "manifest.json");
	if (stream)
		(void)fclose(stream); /* Flushed and synced, or given up. */
	else if (fd >= 0)
		(void)close(fd);
	json_decref(manifest);
	return r;
}

/* ---- the command ---- */

static int tell(const struct export *export, const struct target *target)
{
	uint64_t bytes = 0;
	json_t *answer;
	int code;

	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		bytes += target->files[plane].bytes;
	if (!export->context->is_json) {
		printf("exported %s, step %" PRId64 ", to %s (%s)\n", export->model.job,
		       get_signed(export->model.record, "step"), target->path,
		       zi_format_bytes(bytes).chars);
		return 0;
	}
	answer = json_pack("{s:s,s:s,s:I,s:s,s:s,s:I}", "job", export->model.job, "snapshot",
	                   get_word(export->model.record, "snapshot"), "step",
	                   (json_int_t)get_signed(export->model.record, "step"), "format",
	                   target->is_directory ? "zinf" : "safetensors", "path", target->path,
	                   "bytes", (json_int_t)bytes);
	code = zctl_print_json(answer);
	json_decref(answer);
	return code;
}

/**
 * zctl_export() - write a step's parameters, or all of its state, into files
 * @context: socket and output options
 * @argc: words
 * @argv: "export", then as usage() says
 *
 * Return: exit code.
 */
int zctl_export(const struct zctl_context *context, int argc, char **argv)
{
	const char *format = "safetensors", *source = NULL, *path = NULL;
	struct target target = { 0 };
	struct export export;
	int code;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--format") && i + 1 < argc)
			format = argv[++i];
		else if (argv[i][0] == '-' || path)
			return usage();
		else
			*(source ? &path : &source) = argv[i];
	}
	if (!path)
		return usage();
	if (strcmp(format, "zinf") != 0 && strcmp(format, "safetensors") != 0) {
		zctl_complain("unknown format '%s'", format);
		return usage();
	}
	target.is_directory = !strcmp(format, "zinf");
	target.path = strdup(path);
	if (!target.path || asprintf(&target.partial, "%s.tmp", path) < 0)
		return 1;
	code = export_open(&export, context, source);
	export.is_progress = isatty(STDERR_FILENO) && !context->is_json;
	if (!code)
		code = target_make(&target, &export);
	if (!code)
		code = copy_all(&export, &target);
	if (!code && target.is_directory)
		code = write_manifest(&export, &target);
	if (!code)
		code = target_end(&target);
	if (!code)
		code = tell(&export, &target);
	target_drop(&target, !code);
	export_close(&export);
	return code;
}
