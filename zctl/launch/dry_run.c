/* SPDX-License-Identifier: Apache-2.0 */
/* --dry-run: command, environment and place of each rank. */
#include "zctl/launch/dry_run.h"

#include <jansson.h>
#include <stdio.h>

#include "zctl/zctl.h"

static void print_variable(void *arg, const char *name, const char *value)
{
	(void)arg;
	printf("  %s=%s\n", name, value);
}

static void print_rank(const struct launch_plan *plan, uint32_t rank)
{
	struct zi_text cpus, nodes;

	if (plan->places) {
		launch_places_cpus(plan->places, rank, &cpus);
		launch_places_nodes(plan->places, rank, &nodes);
		printf("rank %u: on CPUs %s, memory of NUMA node %s\n", rank, cpus.chars,
		       nodes.chars);
	} else {
		printf("rank %u: on any CPU, memory of any NUMA node\n", rank);
	}
	launch_plan_variables(plan, rank, 0, print_variable, NULL);
}

static void put_variable(void *arg, const char *name, const char *value)
{
	(void)json_object_set_new(arg, name, json_string(value)); /* Short of memory: left out. */
}

static json_t *rank_json(const struct launch_plan *plan, uint32_t rank)
{
	json_t *environment = json_object();
	struct zi_text cpus, nodes;

	launch_plan_variables(plan, rank, 0, put_variable, environment);
	if (!plan->places)
		return json_pack("{s:i, s:n, s:n, s:o}", "rank", (int)rank, "cpus", "nodes",
		                 "environment", environment);
	launch_places_cpus(plan->places, rank, &cpus);
	launch_places_nodes(plan->places, rank, &nodes);
	return json_pack("{s:i, s:s, s:s, s:o}", "rank", (int)rank, "cpus", cpus.chars, "nodes",
	                 nodes.chars, "environment", environment);
}

static int print_json(const struct launch_plan *plan)
{
	json_t *command = json_array(), *ranks = json_array();
	json_t *all = json_pack("{s:o, s:o}", "command", command, "ranks", ranks);
	int code;

	for (char **word = plan->command; *word; word++)
		(void)json_array_append_new(command, json_string(*word));
	for (uint32_t rank = 0; rank < plan->options->rank_count; rank++)
		(void)json_array_append_new(ranks, rank_json(plan, rank));
	code = zctl_print_json(all);
	json_decref(all);
	return code;
}

/* See dry_run.h. */
int launch_dry_run(const struct launch_plan *plan, bool is_json)
{
	if (is_json)
		return print_json(plan);
	for (char **word = plan->command; *word; word++)
		printf("%s%c", *word, word[1] ? ' ' : '\n');
	for (uint32_t rank = 0; rank < plan->options->rank_count; rank++)
		print_rank(plan, rank);
	return 0;
}
