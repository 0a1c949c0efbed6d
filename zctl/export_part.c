/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node's part of a job over several nodes: each writes what it has into a directory that all
 * see, under a name of its own, so that none waits for another. Nothing is whole before all parts
 * are there, and whoever loads them looks (load_parts.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "zctl/export.h"
#include "zctl/get.h"

static int complain(const char *doing, const char *path)
{
	zctl_complain("%s %s: %s; nothing was exported", doing, path, strerror(errno));
	return 1;
}

int export_part_choose(struct export *export)
{
	struct checkpoint_subgroup *here = calloc(export->here_count + 1ul, sizeof *here);
	uint32_t count = 0;
	int r = 1;

	/* Parameters of what another node holds are of its part. */
	for (uint32_t i = 0; i < export->model.subgroup_count; i++)
		if (export->places[i].state == EXPORT_ABSENT)
			export->places[i].param = EXPORT_ABSENT;
	for (uint32_t unit = 0; here && unit < export->model.unit_count; unit++)
		for (uint32_t i = 0; i < export->model.units[unit].subgroup_count; i++)
			if (export_is_here(export, unit, i))
				here[count++] = (struct checkpoint_subgroup){ unit, i };
	if (here)
		r = checkpoint_part(&export->model, here, count, &export->part);
	free(here);
	if (r)
		zctl_complain("no memory for a part of job '%s'; nothing was exported",
		              export->model.job);
	export->written = &export->part;
	return r;
}

/* NULL: there is none. The caller's. */
static json_t *read_manifest(const char *path, const char *directory)
{
	_cleanup_(zi_freep) char *name = NULL;
	json_error_t error;

	if (asprintf(&name, "%s%s/manifest.json", path, directory) < 0) {
		name = NULL;
		return NULL;
	}
	return json_load_file(name, 0, &error);
}

/* The part of node @node, if it is there. */
static json_t *read_part(const char *path, uint32_t node)
{
	char directory[24];

	(void)snprintf(directory, sizeof directory, "/part-%u", node);
	return read_manifest(path, directory);
}

/* Parts of different commits never become one step. */
static int check_others(const struct export *export, const char *path)
{
	const json_t *record = export->model.record;
	json_t *other = read_manifest(path, "");
	int r = 0;

	if (other) {
		json_decref(other);
		zctl_complain("%s is a whole export: nothing was overwritten", path);
		return 1;
	}
	for (uint32_t i = 0; i < export->node_count && !r; i++) {
		other = i == export->node ? NULL : read_part(path, i);
		if (other && (strcmp(get_word(other, "commit"), get_word(record, "commit")) != 0 ||
		              get_signed(other, "step") != get_signed(record, "step"))) {
			zctl_complain(
				"%s/part-%u is of step %lld (commit %s), but this node's of step "
				"%lld (commit %s): export a snapshot that all nodes have, or the "
				"job when it is at rest on all; nothing was exported",
				path, i, (long long)get_signed(other, "step"),
				get_word(other, "commit"), (long long)get_signed(record, "step"),
				get_word(record, "commit"));
			r = 1;
		}
		json_decref(other);
	}
	return r;
}

int export_part_make(const struct export *export, const char *path, bool *ret_is_made,
                     char **ret_part)
{
	struct stat status;
	char *part = NULL;

	if (!mkdir(path, 0700))
		*ret_is_made = true;
	else if (errno != EEXIST)
		return complain("making", path);
	else if (stat(path, &status) || !S_ISDIR(status.st_mode))
		return complain("making", path);
	if (check_others(export, path))
		return 1;
	if (asprintf(&part, "%s/part-%u", path, export->node) < 0)
		return complain("making", path);
	*ret_part = part;
	return 0;
}

uint32_t export_part_count(const struct export *export, const char *path)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < export->node_count; i++) {
		json_t *part = read_part(path, i);

		count += part != NULL;
		json_decref(part);
	}
	return count;
}
