/* SPDX-License-Identifier: Apache-2.0 */
/* zctl jobs: a line per job; with a name, all there is to know about one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "zctl/get.h"
#include "zctl/jobs.h"
#include "zctl/table.h"
#include "zctl/zctl.h"

static const char *const planes[] = { "param", "grad", "accum", "state", "staging", "collectives" };

/* Sum of one key over the planes a job holds. */
static uint64_t held_bytes(const json_t *job, const char *key)
{
	const json_t *held = json_object_get(job, "held");
	uint64_t bytes = 0;

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++)
		bytes += get_count(json_object_get(held, planes[i]), key);
	return bytes;
}

/* A plane of the table of strategies, as one rank has it. */
static uint64_t logical_of(const json_t *rank, const char *plane)
{
	uint64_t bytes = get_count(rank, plane);

	if (!strcmp(plane, "param"))
		bytes += get_count(rank, "param_live");
	else if (!strcmp(plane, "grad"))
		bytes += get_count(rank, "grad_buckets");
	return bytes;
}

/* Of the rank that has most of @plane; @ret_sum: of all ranks. */
static uint64_t logical_bytes(const json_t *job, const char *plane, uint64_t *ret_sum)
{
	uint64_t most = 0;
	size_t index;
	json_t *rank;

	*ret_sum = 0;
	json_array_foreach(json_object_get(job, "logical"), index, rank)
	{
		most = ZI_MAX(most, logical_of(rank, plane));
		*ret_sum += logical_of(rank, plane);
	}
	return most;
}

/* Of all planes and ranks. */
static uint64_t logical_sum(const json_t *job)
{
	uint64_t sum = 0, bytes;

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		(void)logical_bytes(job, planes[i], &bytes); /* What it gives is the most. */
		sum += bytes;
	}
	return sum;
}

/* "12", or where steps are in force that are not committed, "12 (15)". */
static struct zi_text step_of(const json_t *job)
{
	int64_t committed = get_signed(job, "committed_step");
	int64_t current = get_signed(job, "current_step");
	struct zi_text text;

	if (current > committed)
		zi_text_set(&text, "%" PRId64 " (%" PRId64 ")", committed, current);
	else
		zi_text_set(&text, "%" PRId64, committed);
	return text;
}

static uint32_t attached_count(const json_t *job)
{
	uint32_t count = 0;
	size_t index;
	json_t *rank;

	json_array_foreach(json_object_get(job, "ranks"), index, rank) count +=
		json_is_true(json_object_get(rank, "is_attached"));
	return count;
}

/* durability = power: the disk that its commit waits for. @is_late_alone: beyond deadline_s. */
static void print_flush(const json_t *job, bool is_late_alone)
{
	const json_t *flush = json_object_get(job, "flush");
	bool is_late = json_is_true(json_object_get(flush, "is_late"));

	if (!json_is_object(flush) || (is_late_alone && !is_late))
		return;
	printf("job %s waits for the flush of %s for %.1f s%s\n", get_word(job, "name"),
	       get_word(flush, "path"), (double)get_count(flush, "waiting_ns") / 1e9,
	       is_late ? ", LONGER than deadline_s" : "");
}

static void print_table(const struct zctl_context *context, const json_t *jobs)
{
	static const char *const headings[] = { "job",    ">uid",  "phase",   "strategy",
		                                ">ranks", ">step", ">params", ">logical",
		                                ">cpu",   ">nvme", ">read",   ">written",
		                                NULL };
	struct table *table = table_new(headings);
	size_t index;
	json_t *job;

	json_array_foreach(jobs, index, job)
	{
		table_cell(table, "%s", get_word(job, "name"));
		table_cell(table, "%" PRIu64, get_count(job, "uid"));
		table_cell(table, "%s", get_word(job, "phase"));
		table_cell(table, "%s", get_word(job, "strategy"));
		table_cell(table, "%u/%" PRIu64, attached_count(job), get_count(job, "world_size"));
		table_cell(table, "%s", step_of(job).chars);
		table_cell(table, "%.2f M", (double)get_count(job, "elements") / 1e6);
		table_cell(table, "%s", zi_format_bytes(logical_sum(job)).chars);
		table_cell(table, "%s", zi_format_bytes(held_bytes(job, "cpu_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(held_bytes(job, "nvme_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(job, "read_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(job, "write_bytes")).chars);
	}
	table_print(table, context->is_colour);
	(void)table_free(table);
	json_array_foreach(jobs, index, job) print_flush(job, true);
}

/* What each rank would hold by itself, as its strategy says, and beside it what this node really
 * holds for all of them. */
static void print_bytes(const struct zctl_context *context, const json_t *job)
{
	static const char *const headings[] = { "plane", ">of a rank", ">of all ranks",
		                                ">cpu",  ">nvme",      NULL };
	const json_t *held = json_object_get(job, "held");
	struct table *table = table_new(headings);

	for (size_t i = 0; i < ZI_COUNT_OF(planes); i++) {
		const json_t *plane = json_object_get(held, planes[i]);
		uint64_t sum, most = logical_bytes(job, planes[i], &sum);

		table_cell(table, "%s", planes[i]);
		table_cell(table, "%s", zi_format_bytes(most).chars);
		table_cell(table, "%s", zi_format_bytes(sum).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(plane, "cpu_bytes")).chars);
		table_cell(table, "%s", zi_format_bytes(get_count(plane, "nvme_bytes")).chars);
	}
	table_print(table, context->is_colour);
	(void)table_free(table);
}

static double ms(const json_t *stats, const char *key)
{
	return (double)get_count(stats, key) / 1e6;
}

/* Padding is moved as well, so it counts. */
static double per_element(const json_t *job, uint64_t bytes)
{
	uint64_t elements = get_count(job, "padded_elements");

	return elements ? (double)bytes / (double)elements : 0;
}

/* Only where there is something to say: an older daemon has no words for it. */
static void print_scale(const json_t *stats)
{
	const json_t *scale = json_object_get(stats, "loss_scale");
	const json_t *culprit = json_object_get(stats, "culprit");

	if (json_is_true(json_object_get(stats, "is_skipped")))
		printf("          skipped: a gradient is not finite");
	else if (!json_is_number(scale) || json_number_value(scale) == 1)
		return;
	else
		printf("         ");
	if (json_is_integer(culprit))
		printf(" (rank %" PRIu64 "'s)", get_count(stats, "culprit"));
	if (json_is_number(scale) && json_number_value(scale) != 1)
		printf(" loss scale %g", json_number_value(scale));
	printf("\n");
}

static void print_last_step(const json_t *job)
{
	const json_t *stats = json_object_get(job, "last_step");
	double seconds = (double)get_count(stats, "step_ns") / 1e9;
	double moved = (double)(get_count(stats, "read_bytes") + get_count(stats, "write_bytes"));

	if (!get_count(stats, "step"))
		return;
	printf("last step %" PRIu64 ": %.1f ms (waiting for gradients %.1f, norm %.1f, reads %.1f, "
	       "writes %.1f, computing %.1f, commit %.1f)\n",
	       get_count(stats, "step"), ms(stats, "step_ns"), ms(stats, "grad_wait_ns"),
	       ms(stats, "norm_wait_ns"), ms(stats, "io_read_ns"), ms(stats, "io_write_ns"),
	       ms(stats, "cpu_ns"), ms(stats, "commit_ns"));
	printf("          read %s (%.2f B per element), written %s (%.2f B), %.2f GB/s\n",
	       zi_format_bytes(get_count(stats, "read_bytes")).chars,
	       per_element(job, get_count(stats, "read_bytes")),
	       zi_format_bytes(get_count(stats, "write_bytes")).chars,
	       per_element(job, get_count(stats, "write_bytes")),
	       seconds > 0 ? moved / seconds / 1e9 : 0.0);
	print_scale(stats);
}

static void print_pool(const json_t *job)
{
	const json_t *pool = json_object_get(job, "param_pool");

	if (!json_is_object(pool))
		return;
	printf("pool of parameters: %s of %s in use; unshards that found their unit %" PRIu64
	       ", on its way %" PRIu64 ", not there %" PRIu64 "; read %s, %" PRIu64 " evictions\n",
	       zi_format_bytes(get_count(pool, "resident_bytes")).chars,
	       zi_format_bytes(get_count(pool, "budget_bytes")).chars, get_count(pool, "hits"),
	       get_count(pool, "late"), get_count(pool, "misses"),
	       zi_format_bytes(get_count(pool, "read_bytes")).chars, get_count(pool, "evictions"));
}

static void print_tensors(const json_t *job)
{
	const json_t *tensors = json_object_get(job, "tensors");

	if (!json_is_object(tensors))
		return;
	printf("tensors: %" PRIu64 " of %s; %s of %s in memory, %s stored; read %s, written %s\n",
	       get_count(tensors, "count"), zi_format_bytes(get_count(tensors, "bytes")).chars,
	       zi_format_bytes(get_count(tensors, "resident_bytes")).chars,
	       zi_format_bytes(get_count(tensors, "budget_bytes")).chars,
	       zi_format_bytes(get_count(tensors, "stored_bytes")).chars,
	       zi_format_bytes(get_count(tensors, "read_bytes")).chars,
	       zi_format_bytes(get_count(tensors, "write_bytes")).chars);
}

static void print_ranks(const json_t *job)
{
	size_t index;
	json_t *rank;

	json_array_foreach(json_object_get(job, "ranks"), index, rank)
	{
		if (!json_is_true(json_object_get(rank, "is_attached")))
			printf("rank %" PRIu64 ": not attached\n", get_count(rank, "rank"));
		else
			printf("rank %" PRIu64 ": pid %" PRIu64
			       ", last asked for %s, %.1f ms ago\n",
			       get_count(rank, "rank"), get_count(rank, "pid"),
			       get_word(rank, "doing"), ms(rank, "doing_ns"));
	}
}

/* What the daemon keeps by itself, and whether it can. */
static void print_snapshots(const json_t *job)
{
	const json_t *config = json_object_get(job, "config");
	uint64_t keep_count = get_count(config, "snapshot_keep");

	if (!get_count(config, "snapshot_interval"))
		return;
	printf("snapshots: every %" PRIu64 " steps, ", get_count(config, "snapshot_interval"));
	if (keep_count)
		printf("the newest %" PRIu64 " stay\n", keep_count);
	else
		printf("all stay\n");
	if (get_count(job, "snapshots_failed"))
		printf("snapshots that FAILED since one was kept: %" PRIu64 ", the last one: %s\n",
		       get_count(job, "snapshots_failed"), get_word(job, "snapshot_failure"));
}

/* "on nvme", or in memory for what no tier was asked for. */
static const char *place_of(const json_t *config, const char *key)
{
	const char *word = get_word(config, key);

	return !strcmp(word, "nvme")  ? "on NVMe"
	       : !strcmp(word, "cpu") ? "in CPU memory"
	                              : "in memory";
}

static void print_config(const json_t *job)
{
	const json_t *config = json_object_get(job, "config");

	printf("config: param %s, grad %s, %s, schedule %s, optimizer state %s, parameters %s, "
	       "durability %s, I/O weight %" PRIu64 "\n",
	       get_word(config, "param_dtype"), get_word(config, "grad_dtype"),
	       get_word(config, "optimizer"), get_word(config, "schedule"),
	       place_of(config, "offload_optimizer"), place_of(config, "offload_param"),
	       get_word(config, "durability"), get_count(config, "io_weight"));
	if (*get_word(job, "strategy"))
		printf("        strategy %s", get_word(job, "strategy"));
	if (get_count(job, "shard_size"))
		printf(", shared by %" PRIu64 " ranks each", get_count(job, "shard_size"));
	if (*get_word(job, "strategy"))
		printf("\n");
	if (json_is_false(json_object_get(job, "has_state")))
		printf("        forward only: neither gradients nor optimizer state\n");
	else if (json_is_true(json_object_get(job, "is_forward_only")))
		printf("        last used forward only, as it stands\n");
	if (get_count(config, "resident_bytes"))
		printf("        up to %s of the state stay in memory\n",
		       zi_format_bytes(get_count(config, "resident_bytes")).chars);
	if (get_count(config, "commit_interval") > 1)
		printf("        committed every %" PRIu64 " steps\n",
		       get_count(config, "commit_interval"));
}

static void print_model(const json_t *job)
{
	printf("model: %" PRIu64 " parameters (%" PRIu64 " elements, %" PRIu64
	       " padded) in %" PRIu64 " units, %" PRIu64 " subgroups\n",
	       get_count(job, "params"), get_count(job, "elements"),
	       get_count(job, "padded_elements"), get_count(job, "units"),
	       get_count(job, "subgroups"));
	print_config(job);
}

static void print_detail(const struct zctl_context *context, const json_t *job)
{
	printf("job %s of uid %" PRIu64 ": %s at step %s, incarnation %" PRIu64 " '%s'\n",
	       get_word(job, "name"), get_count(job, "uid"), get_word(job, "phase"),
	       step_of(job).chars, get_count(job, "incarnation_number"),
	       get_word(job, "incarnation"));
	if (*get_word(job, "refusal"))
		printf("refused: %s\n", get_word(job, "refusal"));
	if (!get_count(job, "params"))
		printf("model: none yet (collectives need none: zctl jobs %s --collectives)\n",
		       get_word(job, "name"));
	else
		print_model(job);
	print_flush(job, false);
	print_snapshots(job);
	print_pool(job);
	print_tensors(job);
	print_ranks(job);
	print_bytes(context, job);
	printf("reserved on NVMe: %s; since the daemon started: read %s, written %s\n",
	       zi_format_bytes(get_count(job, "reserved_nvme_bytes")).chars,
	       zi_format_bytes(get_count(job, "read_bytes")).chars,
	       zi_format_bytes(get_count(job, "write_bytes")).chars);
	printf("in all its life: read %s, written %s, today (UTC) %s%s\n",
	       zi_format_bytes(get_count(job, "total_read_bytes")).chars,
	       zi_format_bytes(get_count(job, "total_write_bytes")).chars,
	       zi_format_bytes(get_count(job, "today_write_bytes")).chars,
	       json_is_true(json_object_get(job, "is_paced"))
	               ? "; waiting, as a write budget is used up"
	               : "");
	print_last_step(job);
}

/**
 * zctl_jobs() - jobs, their steps and what they hold
 * @context: socket and output options
 * @argc: words
 * @argv: "jobs", and optionally the name of one, with "--collectives" for its groups of ranks
 *
 * Return: exit code.
 */
int zctl_jobs(const struct zctl_context *context, int argc, char **argv)
{
	const char *name = NULL;
	char command[ZI_NAME_BYTES + 24];
	bool wants_collectives = false;
	bool is_wrong = false;
	json_t *jobs;
	int code = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--collectives"))
			wants_collectives = true;
		else if (name || zi_check_name(argv[i], ZI_NAME_BYTES))
			is_wrong = true;
		else
			name = argv[i];
	}
	if (is_wrong || (wants_collectives && !name)) {
		fprintf(stderr, "usage: zctl jobs [JOB [--collectives]]\n");
		return 2;
	}
	(void)snprintf(command, sizeof command, "jobs%s%s%s", name ? " " : "", name ? name : "",
	               wants_collectives ? " collectives" : "");
	jobs = zctl_ask(context, command);
	if (!jobs)
		return 1;
	if (context->is_json)
		code = zctl_print_json(jobs);
	else if (wants_collectives && json_array_size(jobs))
		zctl_print_collectives(context, json_array_get(jobs, 0));
	else if (name && json_array_size(jobs))
		print_detail(context, json_array_get(jobs, 0));
	else
		print_table(context, jobs);
	json_decref(jobs);
	return code;
}
