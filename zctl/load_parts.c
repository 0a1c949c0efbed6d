/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that the nodes of a job wrote (export_part.c), read as one: of the same commit, and
 * with every subgroup in one of them at least. Where several have it, as with ddp, they must have
 * the same of it. All that is looked at before anything is sent.
 */
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

static char *part_path(const char *path, uint32_t node)
{
	char *name;

	return asprintf(&name, "%s/part-%u", path, node) < 0 ? NULL : name;
}

/* The lowest node whose part is there; ZI_WORLD_MAX: none. */
static uint32_t first_node(const char *path)
{
	uint32_t node = 0;

	for (; node < ZI_WORLD_MAX; node++) {
		_cleanup_(zi_freep) char *name = part_path(path, node);

		if (name && !access(name, F_OK))
			break;
	}
	return node;
}

bool load_parts_are(const char *path)
{
	return first_node(path) < ZI_WORLD_MAX;
}

json_t *load_parts_first(const char *path)
{
	_cleanup_(zi_freep) char *name = part_path(path, first_node(path));

	return name ? load_manifest_read(name, CHECKPOINT_PART) : NULL;
}

/* ---- one part ---- */

/* What is of the commit is the same in all parts. */
static int match(const struct load_part *part, const struct load_part *first)
{
	static const char *const keys[] = {
		"job",         "update_count", "beta1_power", "beta2_power",    "world_size",
		"param_dtype", "grad_dtype",   "optimizer",   "grad_reduction", "units",
		"params",      "node_count",   "nodes",
	};
	const json_t *mine = part->manifest, *others = first->manifest;

	if (strcmp(get_word(mine, "commit"), get_word(others, "commit")) != 0 ||
	    get_signed(mine, "step") != get_signed(others, "step")) {
		zctl_complain("%s is of step %lld (commit %s), but %s of step %lld (commit %s): "
		              "export a snapshot that all nodes have; nothing was loaded",
		              part->path, (long long)get_signed(mine, "step"),
		              get_word(mine, "commit"), first->path,
		              (long long)get_signed(others, "step"), get_word(others, "commit"));
		return 1;
	}
	for (size_t i = 0; i < ZI_COUNT_OF(keys); i++) {
		if (json_equal(json_object_get(mine, keys[i]), json_object_get(others, keys[i])))
			continue;
		zctl_complain("%s and %s differ in '%s': they are not of one job; nothing was "
		              "loaded",
		              part->path, first->path, keys[i]);
		return 1;
	}
	return 0;
}

/* The subgroups that it says it has. */
static int read_subgroups(struct load_part *part, const struct model *model)
{
	const json_t *rows = json_object_get(part->manifest, "subgroups");
	uint32_t count = (uint32_t)json_array_size(rows);
	struct checkpoint_subgroup *here = calloc(count + 1ul, sizeof *here);
	int64_t former = -1;
	int r = here == NULL;

	for (uint32_t i = 0; i < count && !r; i++) {
		const json_t *row = json_array_get(rows, i);
		json_int_t unit = json_integer_value(json_array_get(row, 0));
		json_int_t subgroup = json_integer_value(json_array_get(row, 1));
		bool is_one = unit >= 0 && unit < model->unit_count && subgroup >= 0 &&
		              subgroup < model->units[unit].subgroup_count;
		int64_t number = is_one ? model->units[unit].subgroup_first + subgroup : -1;

		if (number <= former) {
			r = refuse(part->path,
			           "has a manifest that names a subgroup that does not exist, "
			           "or not in order");
			break;
		}
		former = number;
		here[i] = (struct checkpoint_subgroup){ (uint32_t)unit, (uint32_t)subgroup };
	}
	if (!r)
		r = checkpoint_part(model, here, count, &part->model);
	free(here);
	return r;
}

static int open_part(struct load_parts *parts, uint32_t node, const struct load_part *first,
                     const struct model *model, struct mover *mover)
{
	struct load_part *part = &parts->parts[node];

	part->manifest = load_manifest_read(part->path, CHECKPOINT_PART);
	if (!part->manifest)
		return 1;
	if (first && match(part, first))
		return 1;
	if (get_count(part->manifest, "node") != node ||
	    !json_is_integer(json_object_get(part->manifest, "node"))) {
		zctl_complain("%s has the part of node %llu: two parts of one node, or renamed; "
		              "nothing was loaded",
		              part->path, (unsigned long long)get_count(part->manifest, "node"));
		return 1;
	}
	if (read_subgroups(part, model))
		return 1;
	return load_planes_open(&part->planes, part->path, part->manifest, &part->model, mover);
}

/* ---- all of them ---- */

/* Where two nodes have the same subgroup. */
static int compare(const struct load_part *mine, uint32_t index, const struct load_part *other,
                   uint32_t other_index)
{
	for (uint32_t plane = 0; plane < _PLANE_COUNT; plane++) {
		const struct load_file *file = &mine->planes.files[plane];

		if (!file->path ||
		    json_equal(json_array_get(file->hashes, index),
		               json_array_get(other->planes.files[plane].hashes, other_index)))
			continue;
		zctl_complain("%s and %s have different bytes of unit '%s', subgroup %u; nothing "
		              "was loaded",
		              file->path, other->planes.files[plane].path,
		              mine->model.units[index].name,
		              mine->model.units[index].subgroup_base);
		return 1;
	}
	return 0;
}

/* Number of a part's subgroup in the whole model, from where @unit is. Units of a part come in the
 * model's order. */
static uint32_t number_of(const struct model *model, const struct model_unit *here, uint32_t *unit)
{
	while (model->units[*unit].name != here->name)
		(*unit)++;
	return model->units[*unit].subgroup_first + here->subgroup_base;
}

static int place_all(struct load_parts *parts, const struct model *model)
{
	parts->places = calloc(model->subgroup_count + 1ul, sizeof *parts->places);
	if (!parts->places)
		return 1;
	for (uint32_t i = 0; i < model->subgroup_count; i++)
		parts->places[i].node = parts->count;
	for (uint32_t node = 0; node < parts->count; node++) {
		const struct load_part *part = &parts->parts[node];
		uint32_t unit = 0;

		for (uint32_t i = 0; i < part->model.unit_count; i++) {
			uint32_t number = number_of(model, &part->model.units[i], &unit);
			struct load_place *place = &parts->places[number];

			if (place->node < parts->count &&
			    compare(part, i, &parts->parts[place->node], place->index))
				return 1;
			if (place->node == parts->count)
				*place = (struct load_place){ .node = node, .index = i };
		}
	}
	return 0;
}

/* Ranks of a node, for people. */
static void list_ranks(const json_t *nodes, uint32_t node, char *text, size_t text_bytes)
{
	size_t used = 0, rank;
	json_t *row;

	text[0] = '\0';
	json_array_foreach(nodes, rank, row)
	{
		if (json_integer_value(row) != node || used + 8 >= text_bytes)
			continue;
		used += (size_t)snprintf(text + used, text_bytes - used, "%s%zu", used ? ", " : "",
		                         rank);
	}
}

/* What @rank gave, as that part has it; NULL: it has it not. */
static json_t *blob_of(const struct load_part *part, uint64_t rank)
{
	size_t index;
	json_t *blob;

	json_array_foreach(json_object_get(part->manifest, "blobs"), index, blob)
	{
		if (get_count(blob, "rank") == rank)
			return blob;
	}
	return NULL;
}

/* The part of its node has it; else whichever does: nodes keep those of all ranks. */
static json_t *find_blob(const struct load_parts *parts, uint64_t rank, uint32_t home)
{
	json_t *found = home < parts->count ? blob_of(&parts->parts[home], rank) : NULL;

	for (uint32_t node = 0; node < parts->count && !found; node++)
		found = blob_of(&parts->parts[node], rank);
	return found;
}

/* Of the ranks of @node, of which nothing is there, others have what they gave; or they gave none.
 */
static bool has_blobs_of(const struct load_parts *parts, const json_t *nodes, uint32_t node)
{
	size_t rank;
	json_t *row;

	json_array_foreach(nodes, rank, row)
	{
		if (json_integer_value(row) == node && find_blob(parts, rank, node))
			return true;
	}
	return false;
}

/* What nobody who is there has; then whose part is not there. */
static int check_cover(const struct load_parts *parts, const char *path, const struct model *model,
                       bool allows_missing)
{
	const json_t *nodes = json_object_get(parts->parts[first_node(path)].manifest, "nodes");
	uint32_t missing = 0, first_unit = 0, first_subgroup = 0, node = 0;
	char ranks[4 * ZI_WORLD_MAX];

	for (uint32_t unit = model->unit_count; unit-- > 0;) {
		for (uint32_t i = model->units[unit].subgroup_count; i-- > 0;) {
			if (parts->places[model->units[unit].subgroup_first + i].node <
			    parts->count)
				continue;
			missing++;
			first_unit = unit;
			first_subgroup = i;
		}
	}
	while (node < parts->count && parts->parts[node].manifest)
		node++;
	if (node < parts->count)
		list_ranks(nodes, node, ranks, sizeof ranks);
	if (missing && node < parts->count) {
		zctl_complain("%s is missing, of ranks %s: unit '%s', subgroup %u, and %u more are "
		              "in no other part; nothing was loaded",
		              parts->parts[node].path, ranks, model->units[first_unit].name,
		              first_subgroup, missing - 1);
		return 1;
	}
	if (missing) {
		zctl_complain("%s: unit '%s', subgroup %u, and %u more are in no part; nothing "
		              "was loaded",
		              path, model->units[first_unit].name, first_subgroup, missing - 1);
		return 1;
	}
	while (node < parts->count &&
	       (parts->parts[node].manifest || has_blobs_of(parts, nodes, node)))
		node++;
	if (node == parts->count || allows_missing)
		return 0;
	list_ranks(nodes, node, ranks, sizeof ranks);
	zctl_complain("%s is missing: the other parts have all units, but not the blobs of "
	              "ranks %s (--allow-missing loads without them); nothing was loaded",
	              parts->parts[node].path, ranks);
	return 1;
}

static int gather_blobs(struct load_parts *parts, const char *path)
{
	const json_t *nodes = json_object_get(parts->parts[first_node(path)].manifest, "nodes");
	size_t rank;
	json_t *row;

	parts->blobs = json_array();
	json_array_foreach(nodes, rank, row)
	{
		int64_t home = json_integer_value(row);
		json_t *blob = home < 0 || home >= parts->count
		                       ? NULL
		                       : find_blob(parts, rank, (uint32_t)home);

		if (blob)
			(void)json_array_append(parts->blobs, blob);
	}
	return parts->blobs == NULL;
}

int load_parts_open(struct load_parts *parts, const char *path, const struct model *model,
                    bool allows_missing, struct mover *mover)
{
	uint32_t first = first_node(path);
	uint64_t count = get_count(model->record, "node_count");

	if (count < 2 || count > ZI_WORLD_MAX || first >= count ||
	    json_array_size(json_object_get(model->record, "nodes")) !=
	            get_count(model->record, "world_size"))
		return refuse(path, "has a part whose manifest names its nodes wrongly");
	parts->parts = calloc(count, sizeof *parts->parts);
	if (!parts->parts)
		return refuse(path, "has more parts than there is memory for");
	parts->count = (uint32_t)count;
	for (uint32_t node = 0; node < parts->count; node++) {
		struct load_part *part = &parts->parts[node];

		part->path = part_path(path, node);
		if (!part->path)
			return refuse(path, "has more parts than there is memory for");
		if (access(part->path, F_OK) != 0)
			continue;
		if (open_part(parts, node, node == first ? NULL : &parts->parts[first], model,
		              mover))
			return 1;
	}
	if (place_all(parts, model) || check_cover(parts, path, model, allows_missing))
		return 1;
	return gather_blobs(parts, path);
}

int load_parts_get(struct load_parts *parts, const struct model *model, uint32_t unit,
                   uint32_t subgroup, const void **ret_planes, const char **ret_path)
{
	const struct load_place *place =
		&parts->places[model->units[unit].subgroup_first + subgroup];
	struct load_part *part = &parts->parts[place->node];

	*ret_path = part->planes.files[PLANE_PARAM].path;
	return load_planes_get(&part->planes, &part->model, place->index, 0, ret_planes);
}

void load_parts_close(struct load_parts *parts)
{
	for (uint32_t node = 0; node < parts->count; node++) {
		struct load_part *part = &parts->parts[node];

		load_planes_close(&part->planes);
		model_free(&part->model);
		json_decref(part->manifest);
		free(part->path);
	}
	json_decref(parts->blobs);
	free(parts->places);
	free(parts->parts);
	*parts = (struct load_parts){ .count = 0 };
}
