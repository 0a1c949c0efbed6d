/* SPDX-License-Identifier: Apache-2.0 */
/* A directory that export wrote: a manifest, and a file for each plane that it names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "zctl/get.h"
#include "zctl/load.h"

static int refuse(const char *path, const char *what)
{
	zctl_complain("%s %s; nothing was loaded", path, what);
	return 1;
}

/* What it is, if not what is wanted. */
static int check_format(const json_t *manifest, const char *path, const char *format)
{
	const char *found = get_word(manifest, "format");

	if (!strcmp(found, CHECKPOINT_PART) && strcmp(found, format) != 0) {
		zctl_complain("%s holds only the part of node %llu, of %llu nodes: name the "
		              "directory that has all parts; nothing was loaded",
		              path, (unsigned long long)get_count(manifest, "node"),
		              (unsigned long long)get_count(manifest, "node_count"));
		return 1;
	}
	if (strcmp(found, format) != 0)
		return refuse(path, "is not of a zinf checkpoint");
	if (get_count(manifest, "version") != CHECKPOINT_VERSION)
		return refuse(path, "is of another version than 1, the only one that is known");
	if (get_count(manifest, "subgroup_elements") != ZI_SUBGROUP_ELEMENTS)
		return refuse(path, "has subgroups of another length");
	return 0;
}

/* @path: the directory; @name: its manifest, which was not read. */
static void complain_manifest(const char *path, const char *name, const json_error_t *error)
{
	if (error->line >= 0)
		zctl_complain("reading %s, line %d: %s; nothing was loaded", name, error->line,
		              error->text);
	else if (access(name, F_OK))
		zctl_complain("%s has no manifest.json: name a directory that zctl export "
		              "--format zinf wrote; nothing was loaded",
		              path);
	else
		zctl_complain("reading %s: %s; nothing was loaded", name,
		              access(name, R_OK) ? strerror(errno) : error->text);
}

json_t *load_manifest_read(const char *path, const char *format)
{
	_cleanup_(zi_freep) char *name = NULL;
	json_error_t error;
	json_t *manifest;

	if (asprintf(&name, "%s/manifest.json", path) < 0) {
		name = NULL;
		return NULL;
	}
	manifest = json_load_file(name, JSON_REJECT_DUPLICATES, &error);
	if (!manifest) {
		complain_manifest(path, name, &error);
		return NULL;
	}
	if (!check_format(manifest, name, format))
		return manifest;
	json_decref(manifest);
	return NULL;
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

static int open_plane(struct load_file *file, uint32_t plane, const char *path,
                      const json_t *manifest, const struct model *model, struct mover *mover)
{
	const json_t *entry = find_entry(manifest, checkpoint_planes[plane]);
	const char *name = get_word(entry, "name");
	_cleanup_(zi_freep) char *full = NULL;

	/* A manifest names no file but its neighbours. */
	if (!entry || !*name || strchr(name, '/'))
		return refuse(path, "has a manifest that names no file of each plane");
	if (asprintf(&full, "%s/%s", path, name) < 0) {
		full = NULL;
		return 1;
	}
	if (load_file_open(file, full, mover))
		return 1;
	return load_file_match(file, model, plane == PLANE_PARAM ? model->dtype : ZI_DTYPE_F32,
	                       entry);
}

int load_planes_open(struct load_planes *planes, const char *path, const json_t *manifest,
                     const struct model *model, struct mover *mover)
{
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		if (checkpoint_has_plane(model, plane) &&
		    open_plane(&planes->files[plane], plane, path, manifest, model, mover))
			return 1;
	return 0;
}

int load_planes_get(struct load_planes *planes, const struct model *model, uint32_t unit,
                    uint32_t subgroup, const void **ret_planes)
{
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++) {
		ret_planes[plane] = NULL;
		if (planes->files[plane].path &&
		    load_file_get(&planes->files[plane], model, unit, subgroup, &ret_planes[plane]))
			return 1;
	}
	return 0;
}

void load_planes_close(struct load_planes *planes)
{
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++)
		load_file_close(&planes->files[plane]);
}
