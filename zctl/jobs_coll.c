/* SPDX-License-Identifier: Apache-2.0 */
/* zctl jobs JOB --collectives: who waits for whom. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "zctl/get.h"
#include "zctl/jobs.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

/* "0-3, 7"; "-" for none. Cut where the text ends. */
static struct zi_text ranks_text(const json_t *ranks)
{
	size_t count = json_array_size(ranks);
	struct zi_text text = { "-" };
	size_t used = 0;

	for (size_t i = 0; i < count && used < sizeof(text.chars) - 32; i++) {
		json_int_t first = json_integer_value(json_array_get(ranks, i));
		json_int_t last = first;

		for (;
		     i + 1 < count && json_integer_value(json_array_get(ranks, i + 1)) == last + 1;
		     i++)
			last++;
		used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used,
		                         "%s%" JSON_INTEGER_FORMAT, used ? ", " : "", first);
		if (last > first)
			used += (size_t)snprintf(text.chars + used, sizeof(text.chars) - used,
			                         "%s%" JSON_INTEGER_FORMAT,
			                         last > first + 1 ? "-" : ", ", last);
	}
	return text;
}

static struct zi_text ranks_of(const json_t *group, const char *key)
{
	return ranks_text(json_object_get(group, key));
}

/* Ranks whose arenas lie on @tier. The caller's. */
static json_t *ranks_on(const json_t *tiers, const char *tier)
{
	json_t *ranks = json_array(), *other;
	size_t rank;

	json_array_foreach(tiers, rank, other)
	{
		if (json_is_string(other) && !strcmp(json_string_value(other), tier))
			(void)json_array_append_new(ranks, json_integer((json_int_t)rank));
	}
	return ranks;
}

/* Which arenas lie on which NUMA node, where that is not one for all. */
static void print_places(const json_t *collectives)
{
	const json_t *tiers = json_object_get(collectives, "arena_tiers");
	size_t here_count = 0, rank;
	json_t *tier;

	json_array_foreach(tiers, rank, tier) here_count += json_is_string(tier);
	json_array_foreach(tiers, rank, tier)
	{
		json_t *ranks =
			json_is_string(tier) ? ranks_on(tiers, json_string_value(tier)) : NULL;

		/* With the first rank of each. */
		if (ranks && json_array_size(ranks) < here_count &&
		    json_integer_value(json_array_get(ranks, 0)) == (json_int_t)rank)
			printf("arenas of ranks %s lie on %s\n", ranks_text(ranks).chars,
			       json_string_value(tier));
		json_decref(ranks);
	}
}

static void add_row(struct table *table, const json_t *group)
{
	bool is_broken = *get_word(group, "error");
	bool is_awaited = json_array_size(json_object_get(group, "is_awaited")) > 0;

	table_cell(table, "%" PRIu64, get_count(group, "group"));
	table_cell(table, "%s", ranks_of(group, "ranks").chars);
	table_cell(table, "%.4g s", (double)get_count(group, "timeout_ms") / 1e3);
	table_cell(table, "%s", is_broken ? get_word(group, "error") : "-");
	table_cell(table, "%" PRIu64, get_count(group, "sequence"));
	table_cell(table, "%s", *get_word(group, "call") ? get_word(group, "call") : "-");
	table_cell(table, "%s", ranks_of(group, "has_come").chars);
	table_cell(table, "%s", ranks_of(group, "is_awaited").chars);
	if (is_awaited)
		table_cell(table, "%.1f s", (double)get_count(group, "waiting_ns") / 1e9);
	else
		table_cell(table, "-");
}

/* Who waits for whom in sends and receives: a line each. */
static void print_messages(const json_t *group)
{
	const json_t *messages = json_object_get(group, "messages");
	uint64_t count = get_count(group, "message_count");
	size_t index;
	json_t *message;

	json_array_foreach(messages, index, message)
	{
		printf("group %" PRIu64 ": rank %" PRIu64 " waits in %s\n",
		       get_count(group, "group"), get_count(message, "rank"),
		       get_word(message, "call"));
	}
	if (count > json_array_size(messages))
		printf("group %" PRIu64 ": and %" PRIu64 " messages more\n",
		       get_count(group, "group"), count - json_array_size(messages));
}

/* How what lies in ranks' private memory goes to the others, where that has been tried. */
static void print_private(const json_t *group)
{
	uint64_t number = get_count(group, "group");

	if (json_array_size(json_object_get(group, "is_read")))
		printf("group %" PRIu64 ": private memory of ranks %s is read by the others\n",
		       number, ranks_of(group, "is_read").chars);
	if (json_array_size(json_object_get(group, "is_unread")))
		printf("group %" PRIu64 ": private memory of ranks %s is staged: not all others "
		       "can read it\n",
		       number, ranks_of(group, "is_unread").chars);
}

/* See jobs.h. */
void zctl_print_collectives(const struct zctl_context *context, const json_t *job)
{
	static const char *const headings[] = { ">group", "ranks",    ">timeout",  "broken", ">#",
		                                "call",   "has come", "waits for", ">for",   NULL };
	const json_t *collectives = json_object_get(job, "collectives");
	const json_t *groups = json_object_get(collectives, "groups");
	struct table *table;
	size_t index;
	json_t *group;

	if (!json_is_object(collectives)) {
		printf("job %s has not opened collectives\n", get_word(job, "name"));
		return;
	}
	printf("job %s: arenas of %s for each of %" PRIu64 " ranks, %zu groups\n",
	       get_word(job, "name"), zi_format_bytes(get_count(collectives, "arena_bytes")).chars,
	       get_count(job, "world_size"), json_array_size(groups));
	print_places(collectives);
	table = table_new(headings);
	json_array_foreach(groups, index, group) add_row(table, group);
	table_print(table, context->is_colour);
	(void)table_free(table);
	json_array_foreach(groups, index, group)
	{
		print_messages(group);
		print_private(group);
		if (*get_word(group, "error"))
			printf("group %" PRIu64 " is broken: %s\n", get_count(group, "group"),
			       get_word(group, "reason"));
	}
}
