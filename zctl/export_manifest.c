/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a directory that export writes: what is not in its planes
 * (docs/CHECKPOINT.md). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "zctl/export.h"
#include "zctl/get.h"

/* Which node's part it is, and what it has: [unit, subgroup] each. */
static void describe_part(const struct export *export, json_t *manifest)
{
	static const char *const keys[] = { "node", "node_count", "nodes", "commit" };
	json_t *subgroups = json_array();

	for (size_t i = 0; i < ZI_COUNT_OF(keys); i++)
		(void)json_object_set(manifest, keys[i],
		                      json_object_get(export->model.record, keys[i]));
	for (uint32_t unit = 0; unit < export->model.unit_count; unit++)
		for (uint32_t i = 0; i < export->model.units[unit].subgroup_count; i++)
			if (export_is_here(export, unit, i))
				(void)json_array_append_new(subgroups,
				                            json_pack("[i,i]", (int)unit, (int)i));
	(void)json_object_set_new(manifest, "subgroups", subgroups);
}

static json_t *make_manifest(const struct export *export, const struct export_file *files)
{
	static const char *const keys[] = {
		"job",         "snapshot",    "step",           "update_count",
		"beta1_power", "beta2_power", "world_size",     "param_dtype",
		"grad_dtype",  "optimizer",   "grad_reduction", "units",
		"params",      "blobs",
	};
	bool is_part = export->written != &export->model;
	json_t *manifest = json_object(), *rows = json_array();

	(void)json_object_set_new(manifest, "format",
	                          json_string(is_part ? CHECKPOINT_PART : CHECKPOINT_WHOLE));
	(void)json_object_set_new(manifest, "version", json_integer(CHECKPOINT_VERSION));
	for (size_t i = 0; i < ZI_COUNT_OF(keys); i++)
		(void)json_object_set(manifest, keys[i],
		                      json_object_get(export->model.record, keys[i]));
	(void)json_object_set_new(manifest, "subgroup_elements",
	                          json_integer(ZI_SUBGROUP_ELEMENTS));
	if (is_part)
		describe_part(export, manifest);
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++) {
		const struct export_file *file = &files[plane];

		if (file->path)
			(void)json_array_append_new(
				rows,
				json_pack("{s:s,s:o,s:I,s:I,s:O}", "plane",
			                  checkpoint_planes[plane], "name",
			                  json_sprintf("%s.safetensors", checkpoint_planes[plane]),
			                  "bytes", (json_int_t)file->bytes, "data_offset",
			                  (json_int_t)file->data_offset, "xxh3", file->hashes));
	}
	(void)json_object_set_new(manifest, "files", rows);
	return manifest;
}

int export_manifest_write(const struct export *export, const struct export_file *files,
                          const char *path)
{
	json_t *manifest = make_manifest(export, files);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	FILE *stream = fd >= 0 ? fdopen(fd, "w") : NULL;
	int r = 1;

	if (stream && !json_dumpf(manifest, stream, JSON_INDENT(1) | JSON_PRESERVE_ORDER) &&
	    fputc('\n', stream) != EOF && !fflush(stream) && !fsync(fd))
		r = 0;
	if (r)
		zctl_complain("writing %s: %s; nothing was exported", path, strerror(errno));
	if (stream)
		(void)fclose(stream); /* Flushed and synced, or given up. */
	else if (fd >= 0)
		(void)close(fd);
	json_decref(manifest);
	return r;
}
