/* SPDX-License-Identifier: Apache-2.0 */
/* zctl topo: NUMA nodes, and what hangs on each of them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "zctl/get.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

/* Whether @object hangs on @node; NULL: on none that is known. */
static bool hangs_on(const json_t *object, const json_t *node)
{
	const json_t *its = json_object_get(object, "node");

	if (!node)
		return !json_is_integer(its);
	return json_is_integer(its) && get_count(object, "node") == get_count(node, "node");
}

static void add_row(struct table *table, const char *kind, const char *name, const char *remarks)
{
	table_cell(table, "  %s", kind);
	table_cell(table, "%s", name);
	table_cell(table, "%s", remarks);
}

static void add_gpus(struct table *table, const json_t *topo, const json_t *node)
{
	size_t index;
	json_t *gpu;

	json_array_foreach(json_object_get(topo, "gpus"), index, gpu)
	{
		bool is_ours = json_is_string(json_object_get(gpu, "uuid"));
		char remarks[192];

		if (!hangs_on(gpu, node))
			continue;
		(void)snprintf(remarks, sizeof(remarks), "%s%sPCI %s", get_word(gpu, "device"),
		               is_ours ? ", " : "", get_word(gpu, "pci")); /* May be cut. */
		add_row(table, "gpu", is_ours ? get_word(gpu, "uuid") : "not zinfd's", remarks);
	}
}

static void add_disks(struct table *table, const json_t *topo, const json_t *node)
{
	size_t index;
	json_t *disk;

	json_array_foreach(json_object_get(topo, "disks"), index, disk) if (hangs_on(disk, node))
		add_row(table, "disk", get_word(disk, "name"), "");
}

static void add_tiers(struct table *table, const json_t *topo, const json_t *node)
{
	size_t index;
	json_t *tier;

	json_array_foreach(json_object_get(topo, "tiers"), index, tier) if (hangs_on(tier, node))
		add_row(table, "tier", get_word(tier, "name"),
	                zi_format_bytes(get_count(tier, "capacity_bytes")).chars);
}

/* @node: NULL: what hangs on none, or on all alike. */
static void add_node(struct table *table, const json_t *topo, const json_t *node)
{
	add_gpus(table, topo, node);
	add_disks(table, topo, node);
	add_tiers(table, topo, node);
}

static bool has_others(const json_t *topo)
{
	static const char *const keys[] = { "gpus", "disks", "tiers" };
	size_t index;
	json_t *object;

	for (size_t i = 0; i < ZI_COUNT_OF(keys); i++)
		json_array_foreach(json_object_get(topo, keys[i]), index,
		                   object) if (hangs_on(object, NULL)) return true;
	return false;
}

static void print_topo(const struct zctl_context *context, const json_t *topo)
{
	static const char *const headings[] = { "place", "name", "remarks", NULL };
	struct table *table = table_new(headings);
	size_t index;
	json_t *node;

	json_array_foreach(json_object_get(topo, "nodes"), index, node)
	{
		table_cell(table, "node %" PRIu64, get_count(node, "node"));
		table_cell(table, "NUMA %" PRIu64, get_count(node, "os_index"));
		table_cell(table, "%" PRIu64 " CPUs, %s", get_count(node, "cpus"),
		           zi_format_bytes(get_count(node, "memory_bytes")).chars);
		add_node(table, topo, node);
	}
	if (has_others(topo)) {
		table_cell(table, "no node");
		table_cell(table, "-");
		table_cell(table, "as near to all nodes, or not known");
		add_node(table, topo, NULL);
	}
	table_print(table, context->is_colour);
	(void)table_free(table);
}

/**
 * zctl_topo() - NUMA nodes, GPUs, disks and tiers
 * @context: socket and output options
 * @argc: words
 * @argv: "topo"
 *
 * Return: exit code.
 */
int zctl_topo(const struct zctl_context *context, int argc, char **argv)
{
	json_t *topo;
	int code = 0;

	(void)argv;
	if (argc > 1)
		return zctl_usage("topo");
	topo = zctl_ask(context, "topo");
	if (!topo)
		return 1;
	if (context->is_json)
		code = zctl_print_json(topo);
	else
		print_topo(context, topo);
	json_decref(topo);
	return code;
}
