/* SPDX-License-Identifier: Apache-2.0 */
/* All there is to know about one job, for people; see jobs.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "zctl/get.h"
#include "zctl/jobs.h"

/* Documented in the header, as are all that are not static. */
struct zi_text jobs_step(const json_t *job)
{
	int64_t committed = get_signed(job, "committed_step");
	int64_t current = get_signed(job, "current_step");
	const json_t *lost = json_object_get(job, "lost_step");
	struct zi_text text;

	if (json_is_integer(lost))
		zi_text_set(&text, "%" PRId64 " lost", (int64_t)json_integer_value(lost));
	else if (current > committed)
		zi_text_set(&text, "%" PRId64 " (%" PRId64 ")", committed, current);
	else
		zi_text_set(&text, "%" PRId64, committed);
	return text;
}

const char *jobs_strategy(const json_t *job)
{
	const char *strategy = get_word(job, "strategy");
	uint64_t shard_size = get_count(job, "shard_size");
	bool is_hybrid = shard_size && shard_size < get_count(job, "world_size");

	return is_hybrid && !strcmp(strategy, "zero3") ? "hybrid" : strategy;
}

void jobs_print_flush(const json_t *job, bool is_late_alone)
{
	const json_t *flush = json_object_get(job, "flush");
	bool is_late = json_is_true(json_object_get(flush, "is_late"));

	if (!json_is_object(flush) || (is_late_alone && !is_late))
		return;
	printf("job %s waits for the flush of %s for %.1f s%s\n", get_word(job, "name"),
	       get_word(flush, "path"), (double)get_count(flush, "waiting_ns") / 1e9,
	       is_late ? ", LONGER than deadline_s" : "");
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
	const json_t *rank = json_object_get(stats, "nonfinite_rank");

	if (json_is_true(json_object_get(stats, "is_skipped")))
		printf("          skipped: a gradient is not finite");
	else if (!json_is_number(scale) || json_number_value(scale) == 1)
		return;
	else
		printf("         ");
	if (json_is_integer(rank))
		printf(" (rank %" PRIu64 "'s)", get_count(stats, "nonfinite_rank"));
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

static void print_gpu(const json_t *job)
{
	uint64_t bytes = get_count(job, "gpu_bytes");

	if (bytes)
		printf("GPU memory: %s, until the processes that have it end\n",
		       zi_format_bytes(bytes).chars);
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

/* What it does is known there. */
static bool is_elsewhere(const json_t *job, const json_t *rank)
{
	return get_count(job, "nodes") > 1 && get_count(rank, "node") != get_count(job, "node");
}

static void print_ranks(const json_t *job)
{
	size_t index;
	json_t *rank;

	json_array_foreach(json_object_get(job, "ranks"), index, rank)
	{
		if (is_elsewhere(job, rank))
			printf("rank %" PRIu64 ": of node %" PRIu64 "%s%s\n",
			       get_count(rank, "rank"), get_count(rank, "node"),
			       *get_word(rank, "host") ? ", " : "", get_word(rank, "host"));
		else if (!json_is_true(json_object_get(rank, "is_attached")))
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

	printf("config: param %s, grad %s, %s, grad_reduction %s, optimizer state %s, parameters "
	       "%s, durability %s, I/O weight %" PRIu64 "\n",
	       get_word(config, "param_dtype"), get_word(config, "grad_dtype"),
	       get_word(config, "optimizer"), get_word(config, "grad_reduction"),
	       place_of(config, "offload_optimizer"), place_of(config, "offload_param"),
	       get_word(config, "durability"), get_count(config, "io_weight"));
	if (*get_word(job, "strategy"))
		printf("        strategy %s", jobs_strategy(job));
	if (get_count(job, "shard_size"))
		printf(", shards over %" PRIu64 " ranks", get_count(job, "shard_size"));
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

void jobs_print_detail(const struct zctl_context *context, const json_t *job)
{
	printf("job %s of uid %" PRIu64 ": %s at step %s, incarnation %" PRIu64 " '%s'\n",
	       get_word(job, "name"), get_count(job, "uid"), get_word(job, "phase"),
	       jobs_step(job).chars, get_count(job, "incarnation_number"),
	       get_word(job, "incarnation"));
	if (*get_word(job, "refusal"))
		printf("refused: %s\n", get_word(job, "refusal"));
	if (get_count(job, "nodes") > 1)
		printf("nodes: %" PRIu64 ", of which this one is number %" PRIu64 "\n",
		       get_count(job, "nodes"), get_count(job, "node"));
	if (!get_count(job, "params"))
		printf("model: none yet (collectives need none: zctl jobs %s --collectives)\n",
		       get_word(job, "name"));
	else
		print_model(job);
	jobs_print_flush(job, false);
	print_snapshots(job);
	print_pool(job);
	print_gpu(job);
	print_tensors(job);
	print_ranks(job);
	jobs_print_bytes(context, job);
	printf("reserved on NVMe: %s; since the daemon started: read %s, written %s\n",
	       zi_format_bytes(get_count(job, "reserved_nvme_bytes")).chars,
	       zi_format_bytes(get_count(job, "read_bytes")).chars,
	       zi_format_bytes(get_count(job, "write_bytes")).chars);
	printf("since the job was made: read %s, written %s, of that today (UTC) %s%s\n",
	       zi_format_bytes(get_count(job, "total_read_bytes")).chars,
	       zi_format_bytes(get_count(job, "total_write_bytes")).chars,
	       zi_format_bytes(get_count(job, "today_write_bytes")).chars,
	       json_is_true(json_object_get(job, "is_paced"))
	               ? "; waiting, as a write budget is used up"
	               : "");
	print_last_step(job);
}
