/* SPDX-License-Identifier: Apache-2.0 */
/* zctl bench nvme: has the daemon measure its stores, while jobs go on, and shows what it chose. */
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "zctl/get.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

/* What the daemon takes when nothing is said. */
#define BENCH_SECONDS 3u

static void print_row(struct table *table, const json_t *row)
{
	table_cell(table, "%s", get_word(row, "direction"));
	table_cell(table, "%s", zi_format_bytes(get_count(row, "block_bytes")).chars);
	table_cell(table, "%u", (unsigned)get_count(row, "depth"));
	if (json_is_null(json_object_get(row, "bytes_per_s"))) {
		table_cell(table, "-");
		table_cell(table, "-");
		table_cell(table, "left out: too much in flight for this store");
		return;
	}
	table_cell(table, "%.2f", (double)get_count(row, "bytes_per_s") / 1e9);
	table_cell(table, "%.4f", (double)get_count(row, "cpu_ns_per_gb") / 1e9);
	table_cell(table, "%s", json_is_true(json_object_get(row, "is_chosen")) ? "chosen" : "");
}

/* "1 MiB, 16 at once" of what is used, and whether the configuration has its way. */
static void print_use(const json_t *answer, const char *direction)
{
	const json_t *chosen = json_object_get(answer, "chosen");
	const json_t *used = json_object_get(answer, "used");
	char block[32], depth[32];

	(void)snprintf(block, sizeof block, "%s_block_bytes", direction); /* Fits. */
	(void)snprintf(depth, sizeof depth, "%s_depth", direction);
	printf("%s: blocks of %s, %u at once%s\n", direction,
	       zi_format_bytes(get_count(used, block)).chars, (unsigned)get_count(used, depth),
	       get_count(used, block) != get_count(chosen, block) ||
	                       get_count(used, depth) != get_count(chosen, depth)
	               ? " (the configuration says so)"
	               : "");
}

static void print_answer(const struct zctl_context *context, const json_t *answer)
{
	static const char *const headings[] = { "",          ">block", ">depth", ">GB/s",
		                                ">CPU s/GB", "",       NULL };
	struct table *table = table_new(headings);
	const json_t *row;
	size_t index;

	json_array_foreach(json_object_get(answer, "rows"), index, row) print_row(table, row);
	printf("store %s\n\n", get_word(answer, "store"));
	table_print(table, context->is_colour);
	(void)table_free(table);
	putchar('\n');
	print_use(answer, "read");
	print_use(answer, "write");
	if (!json_is_true(json_object_get(answer, "is_kept")))
		printf("This could not be kept for the next start: see zinfd's log.\n");
	if (get_count(answer, "other_bytes"))
		printf("Jobs moved %s meanwhile, which makes the figures lower.\n",
		       zi_format_bytes(get_count(answer, "other_bytes")).chars);
}

/* Return: the answer for one store, the caller's; NULL after saying why not. */
static json_t *measure(const struct zctl_context *context, const char *store)
{
	unsigned seconds = context->seconds ? context->seconds : BENCH_SECONDS;
	char command[128];

	(void)snprintf(command, sizeof command, "bench nvme %.63s %u", store, seconds); /* Fits. */
	if (!context->is_json && context->is_colour)
		fprintf(stderr, "measuring store %s for about %u s\n", store, seconds);
	/* A slow store takes longer: each combination must turn over once. */
	return zctl_ask_long(context, command, 4 * seconds);
}

/* Measures one, adds the answer to @answers or prints it. Return: exit code. */
static int bench_one(const struct zctl_context *context, const char *store, json_t *answers)
{
	json_t *answer = measure(context, store);

	if (!answer)
		return 1;
	if (!context->is_json)
		print_answer(context, answer);
	/* Takes the reference over, also when it fails. */
	return json_array_append_new(answers, answer) ? 1 : 0;
}

/* The stores of a tier that are there. Return: exit code. */
static int bench_tier(const struct zctl_context *context, const json_t *tier, json_t *answers)
{
	const json_t *members = json_object_get(tier, "members");
	const json_t *member;
	size_t index;
	int code = 0;

	if (!members) /* An older daemon: the tier is its store. */
		return bench_one(context, get_word(tier, "name") + strlen("nvme:"), answers);
	json_array_foreach(members, index,
	                   member) if (!code && strcmp(get_word(member, "state"), "missing") != 0)
		code = bench_one(context, get_word(member, "name"), answers);
	return code;
}

/* Every NVMe store the daemon has. Return: exit code. */
static int bench_all(const struct zctl_context *context, json_t *answers)
{
	json_t *tiers = zctl_ask(context, "tiers");
	const json_t *tier;
	size_t index;
	int code = tiers ? 0 : 1;

	json_array_foreach(tiers, index, tier)
	{
		if (!code && !strcmp(get_word(tier, "kind"), "nvme"))
			code = bench_tier(context, tier, answers);
	}
	if (!code && !json_array_size(answers)) {
		zctl_complain("this zinfd has no NVMe store");
		code = 1;
	}
	json_decref(tiers);
	return code;
}

/**
 * zctl_bench() - measure stores, and use what was found from then on
 * @context: socket, output options, --seconds
 * @argc: words
 * @argv: "bench", "nvme", and a store's name or nothing: all of them
 *
 * Return: exit code.
 */
int zctl_bench(const struct zctl_context *context, int argc, char **argv)
{
	json_t *answers;
	int code;

	if (argc < 2 || argc > 3 || strcmp(argv[1], "nvme") != 0)
		return zctl_usage("bench");
	answers = json_array();
	if (!answers) {
		zctl_complain("out of memory");
		return 1;
	}
	code = argc == 3 ? bench_one(context, argv[2], answers) : bench_all(context, answers);
	if (!code && context->is_json)
		code = zctl_print_json(answers);
	json_decref(answers);
	return code;
}
