/* SPDX-License-Identifier: Apache-2.0 */
/* zctl tiers: capacity, use and traffic of each tier of memory. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "zctl/get.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

/* Over all paths of a tier. */
static uint64_t sum(const json_t *members, const char *key)
{
	uint64_t bytes = 0;
	const json_t *member;
	size_t index;

	json_array_foreach(members, index, member) bytes += get_count(member, key);
	return bytes;
}

/* ", 12 % of its drive's life used": of the drive that is worn most; "" where none says. */
static void describe_wear(const json_t *members, char *text, size_t capacity)
{
	const json_t *member;
	json_int_t most_percent = -1;
	size_t index;

	json_array_foreach(members, index, member)
	{
		const json_t *used =
			json_object_get(json_object_get(member, "drive"), "used_percent");

		if (used && json_integer_value(used) > most_percent)
			most_percent = json_integer_value(used);
	}
	text[0] = '\0';
	if (most_percent >= 0)
		(void)snprintf(text, capacity, ", %d %% of its drive's life used",
		               (int)most_percent); /* Fits. */
}

/* A GPU: its name, its node, and what is wrong. */
static void describe_gpu(const json_t *tier, char *text, size_t capacity)
{
	uint64_t lingering_bytes = get_count(tier, "lingering_bytes");
	bool is_up = json_is_true(json_object_get(tier, "is_up"));
	uint64_t ending_pid = get_count(tier, "ending_pid");
	char node[32] = "", lingering[64] = "", ending[96] = "";

	if (json_is_integer(json_object_get(tier, "node")))
		(void)snprintf(node, sizeof(node), "node %d, ",
		               (int)get_signed(tier, "node")); /* Fits. */
	if (lingering_bytes)
		(void)snprintf(lingering, sizeof(lingering), ", %s held by ranks that detached",
		               zi_format_bytes(lingering_bytes).chars); /* Fits. */
	if (ending_pid)
		(void)snprintf(ending, sizeof(ending),
		               ", zinf-gpu (pid %llu) killed %llu s ago has not ended",
		               (unsigned long long)ending_pid,
		               (unsigned long long)get_count(tier, "ending_s")); /* Fits. */
	(void)snprintf(text, capacity, "%s%s, %s%s%s%s%s", node, get_word(tier, "device"),
	               zi_format_bytes(get_count(tier, "memory_bytes")).chars, lingering, ending,
	               is_up ? "" : ", down: ", get_word(tier, "reason"));
}

/* What there is to say about a tier in words. */
static void describe(const json_t *tier, char *text, size_t capacity)
{
	if (!strcmp(get_word(tier, "kind"), "gpu")) {
		describe_gpu(tier, text, capacity);
		return;
	}
	if (!strcmp(get_word(tier, "kind"), "nvme")) {
		uint64_t refused = get_count(tier, "unregistered_bytes");

		const json_t *members = json_object_get(tier, "members");
		size_t count = json_array_size(members);
		char paths[32], wear[64];

		describe_wear(members, wear, sizeof(wear));
		(void)snprintf(paths, sizeof(paths), "%zu paths", count); /* Fits. */
		(void)snprintf(text, capacity, "%s%s%s, %s written in all, %s today%s",
		               count > 1 ? paths : get_word(tier, "path"),
		               json_is_true(json_object_get(tier, "is_direct")) ? "" : ", buffered",
		               refused ? ", some buffers unregistered (memlock)" : "",
		               zi_format_bytes(sum(members, "total_write_bytes")).chars,
		               zi_format_bytes(sum(members, "today_write_bytes")).chars, wear);
		return;
	}
	(void)snprintf(text, capacity, "node %d, %s of huge pages free",
	               (int)get_signed(tier, "node"),
	               zi_format_bytes(get_count(tier, "huge_free_bytes")).chars);
}

/* A dash for a figure that a tier does not have: traffic of memory is not counted, and a share is
 * that of a path. */
static struct zi_bytes_text cell(const json_t *tier, const char *key)
{
	bool is_traffic = !strcmp(key, "read_bytes") || !strcmp(key, "write_bytes");

	if (!strcmp(key, "share") || (is_traffic && strcmp(get_word(tier, "kind"), "nvme") != 0))
		return (struct zi_bytes_text){ "-" };
	return zi_format_bytes(get_count(tier, key));
}

/* What reads met there: "" when nothing. */
static void describe_damage(const json_t *member, char *text, size_t capacity)
{
	unsigned long long count = get_count(member, "damaged_places");

	text[0] = '\0';
	if (count)
		(void)snprintf(text, capacity, ", reads failed at %llu place%s", count,
		               count == 1 ? "" : "s"); /* Fits. */
}

/* A row for each path of a tier that has several, or one in trouble. */
static void add_members(struct table *table, const json_t *tier)
{
	const json_t *members = json_object_get(tier, "members");
	const json_t *member;
	size_t index;

	if (json_array_size(members) == 1 &&
	    !strcmp(get_word(json_array_get(members, 0), "state"), "healthy") &&
	    !get_count(json_array_get(members, 0), "damaged_places"))
		return;
	json_array_foreach(members, index, member)
	{
		const char *reason = get_word(member, "reason");
		char damage[48];

		describe_damage(member, damage, sizeof(damage));

		table_cell(table, "  %s", get_word(member, "name"));
		table_cell(table, "%s", zi_format_bytes(get_count(member, "capacity_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(member, "used_bytes")).chars);
		table_cell(table, "-"); /* peak: of the tier */
		table_cell(table, "%.0f %%",
		           100 * json_real_value(json_object_get(member, "share")));
		table_cell(table, "%s", zi_format_bytes(get_count(member, "read_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(member, "write_bytes")).chars);
		table_cell(table, "%s%s%s%s, %s", get_word(member, "state"), *reason ? ": " : "",
		           reason, damage, get_word(member, "path"));
	}
}

/**
 * zctl_tiers() - capacity and use of each tier, bytes moved since the daemon started
 * @context: socket and output options
 * @argc: words
 * @argv: "tiers"
 *
 * Return: exit code.
 */
int zctl_tiers(const struct zctl_context *context, int argc, char **argv)
{
	static const char *const headings[] = { "tier",  ">capacity", ">used",   ">peak", ">share",
		                                ">read", ">written",  "remarks", NULL };
	static const char *const keys[] = { "capacity_bytes", "used_bytes", "peak_bytes",
		                            "share",          "read_bytes", "write_bytes" };
	struct table *table;
	json_t *tiers, *tier;
	size_t index;
	int code = 0;

	(void)argv;
	if (argc > 1)
		return zctl_usage("tiers");
	tiers = zctl_ask(context, "tiers");
	if (!tiers)
		return 1;
	if (context->is_json) {
		code = zctl_print_json(tiers);
		json_decref(tiers);
		return code;
	}
	table = table_new(headings);
	json_array_foreach(tiers, index, tier)
	{
		char remarks[512];

		describe(tier, remarks, sizeof remarks);
		table_cell(table, "%s", get_word(tier, "name"));
		for (size_t i = 0; i < ZI_COUNT_OF(keys); i++)
			table_cell(table, "%s", cell(tier, keys[i]).chars);
		table_cell(table, "%s", remarks);
		add_members(table, tier);
	}
	table_print(table, context->is_colour);
	(void)table_free(table);
	json_decref(tiers);
	return code;
}
