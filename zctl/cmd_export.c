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

struct target {
	char *shared;         /* the directory that the nodes' parts go into; NULL: it is whole */
	char *path, *partial; /* "NAME", "NAME.tmp"; of a part "NAME/part-N", "NAME/part-N.tmp" */
	bool is_directory;
	bool is_shared_made; /* `shared`, by us */
	bool is_made;        /* `partial`, a directory */
	struct export_file files[_PLANE_COUNT];
	bool is_wanted[_PLANE_COUNT];
	char *manifest; /* path; NULL: not made */
	struct mover *mover;
	float *scratch; /* (ZI_SUBGROUP_ELEMENTS,) of one plane */
};

static int complain(const char *doing, const char *path)
{
	zctl_complain("%s %s: %s; nothing was exported", doing, path, strerror(errno));
	return 1;
}

/* ---- the target ---- */

static bool is_wanted(const struct export *export, const struct target *target, uint32_t plane)
{
	if (plane == PLANE_PARAM)
		return true;
	return target->is_directory && checkpoint_has_plane(&export->model, plane);
}

/* Of a job over several nodes, each of which has its part of it, the planes are of these parts;
 * parameters alone can be had from whoever has all of them. */
static int choose_part(struct target *target, struct export *export)
{
	_cleanup_(zi_freep) char *partial = NULL;

	export->written = &export->model;
	if (export->node_count <= 1)
		return 0;
	if (!target->is_directory) {
		if (export->param_count == export->model.subgroup_count)
			return 0;
		zctl_complain("job '%s': node %u of %u has only %u of %u subgroups: export "
		              "each node's part into one directory (--format zinf), load the "
		              "directory (zctl load), and export that snapshot; nothing was "
		              "exported",
		              export->model.job, export->node, export->node_count,
		              export->param_count, export->model.subgroup_count);
		return 1;
	}
	if (export_part_choose(export))
		return 1;
	target->shared = target->path;
	target->path = NULL;
	if (export_part_make(export, target->shared, &target->is_shared_made, &target->path))
		return 1;
	partial = target->partial;
	target->partial = NULL;
	if (asprintf(&target->partial, "%s.tmp", target->path) < 0) {
		target->partial = NULL;
		return complain("making", target->path);
	}
	return 0;
}

static int target_make(struct target *target, struct export *export)
{
	if (choose_part(target, export))
		return 1;
	if (!export_name_is_free(target->path, target->is_directory)) {
		zctl_complain("%s exists: nothing was overwritten", target->path);
		return 1;
	}
	if (target->is_directory) {
		if (mkdir(target->partial, 0700))
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
		else if (asprintf(&path, "%s/%s.safetensors", target->partial,
		                  checkpoint_planes[plane]) < 0)
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
	if (export_rename(target->partial, target->path, target->is_directory))
		return complain("renaming to", target->path);
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
	if (target->is_shared_made && !is_kept)
		(void)rmdir(target->shared); /* Unless another node has its part there. */
	target->mover = mover_free(target->mover);
	free(target->manifest);
	free(target->scratch);
	free(target->partial);
	free(target->path);
	free(target->shared);
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

/* Into the next place of each file. */
static int put(struct export *export, struct target *target, uint32_t plane, uint32_t unit,
               uint32_t subgroup, const void *bytes)
{
	if (export->written == &export->part) {
		unit = export->part_count; /* Each is by itself there. */
		subgroup = 0;
	}
	return export_file_put(&target->files[plane], export->written, unit, subgroup, bytes);
}

static int put_subgroup(struct export *export, struct target *target, uint32_t unit,
                        uint32_t subgroup)
{
	uint64_t total =
		zi_geometry_subgroup_elements(export->model.units[unit].padded_count, subgroup);
	const uint8_t *param, *state;

	if (export_fetch(export, unit, subgroup, ZI_PLANE_PARAM, &param) ||
	    put(export, target, PLANE_PARAM, unit, subgroup, param))
		return 1;
	if (!target->is_directory)
		return 0;
	if (export_fetch(export, unit, subgroup, ZI_PLANE_STATE, &state))
		return 1;
	for (uint32_t plane = PLANE_MASTER; plane < _PLANE_COUNT; plane++) {
		if (!target->is_wanted[plane])
			continue;
		unfold(export, plane, total, param, state, target->scratch);
		if (put(export, target, plane, unit, subgroup, target->scratch))
			return 1;
	}
	return 0;
}

static int copy_subgroup(struct export *export, struct target *target, uint32_t unit,
                         uint32_t subgroup)
{
	int r;

	if (!export_is_here(export, unit, subgroup))
		return 0;
	r = put_subgroup(export, target, unit, subgroup);
	export->part_count++;
	export_release(export);
	return r;
}

static int copy_all(struct export *export, struct target *target)
{
	uint64_t width = zi_dtype_bytes(export->model.dtype);

	export->has_state = target->is_directory;
	if (export->has_state)
		width += export->model.state_width;
	for (uint32_t unit = 0; unit < export->written->unit_count; unit++)
		export->total_bytes += export->written->units[unit].padded_count * width;
	for (uint32_t unit = 0; unit < export->model.unit_count; unit++)
		for (uint32_t i = 0; i < export->model.units[unit].subgroup_count; i++)
			if (copy_subgroup(export, target, unit, i))
				return 1;
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		if (target->is_wanted[plane] && export_file_end(&target->files[plane]))
			return 1;
	return 0;
}

static int write_manifest(const struct export *export, struct target *target)
{
	if (asprintf(&target->manifest, "%s/manifest.json", target->partial) < 0) {
		target->manifest = NULL;
		return complain("writing", target->partial);
	}
	return export_manifest_write(export, target->files, target->manifest);
}

/* ---- the command ---- */

/* A part is of use when all others are there. */
static void tell_part(const struct export *export, const struct target *target)
{
	uint32_t count = export_part_count(export, target->shared);

	if (count == export->node_count)
		printf("all %u parts are there: zctl load %s JOB\n", count, target->shared);
	else
		printf("%u of %u parts are there: export the others at their nodes\n", count,
		       export->node_count);
}

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
		if (target->shared)
			tell_part(export, target);
		return 0;
	}
	answer = json_pack("{s:s,s:s,s:I,s:s,s:s,s:I}", "job", export->model.job, "snapshot",
	                   get_word(export->model.record, "snapshot"), "step",
	                   (json_int_t)get_signed(export->model.record, "step"), "format",
	                   target->is_directory ? "zinf" : "safetensors", "path", target->path,
	                   "bytes", (json_int_t)bytes);
	if (target->shared)
		(void)json_object_update_new(
			answer, json_pack("{s:i,s:i,s:i}", "node", (int)export->node, "node_count",
		                          (int)export->node_count, "part_count",
		                          (int)export_part_count(export, target->shared)));
	code = zctl_print_json(answer);
	json_decref(answer);
	return code;
}

/**
 * zctl_export() - write a step's parameters, or all of its state, into files
 * @context: socket and output options
 * @argc: words
 * @argv: "export", then as help.c says
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
			return zctl_usage("export");
		else
			*(source ? &path : &source) = argv[i];
	}
	if (!path)
		return zctl_usage("export");
	if (strcmp(format, "zinf") != 0 && strcmp(format, "safetensors") != 0) {
		zctl_complain("unknown format '%s'", format);
		return zctl_usage("export");
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
