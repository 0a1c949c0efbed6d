/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `torch`: training of a PyTorch model in bf16 with 2 ranks, by zinf and by its peers. All
 * sides compute the same matrix products. A side is a process with its ranks, and with a daemon for
 * zinf (peers/train_side.py). The sides of a group live together and take turns; the order of turns
 * is reversed in every second round. All sides together do not fit into memory, so each group has
 * zinf with everything on NVMe, forward and backward alone, and its own members.
 *
 *   gpt2, llama            a GPT-2 of 124 M and a Llama of 297 M parameters, 256 tokens per rank
 *   gpt2-long, llama-long  with 1024 tokens: shown, not judged
 *   restart                kill -9 of all ranks to the end of the next step, beyond the imports
 *   all_reduce             torch.distributed over zinf and over Gloo, in the same two processes
 *
 * Arguments are the names of parts; none: all of them. "quick" among them: a tiny model, one round.
 *
 * Memory is anonymous and shared, its peak over a step, of all processes of a side, beyond what its
 * ranks had after importing torch and transformers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/peer.h"
#include "bench/python.h"
#include "bench/report.h"
#include "bench/words.h"
#include "common/base/cleanup.h"

#define ROUNDS             5u
#define LONG_ROUNDS        2u
#define RESTARTS           3u
#define RESTART_S          5.0
#define REDUCE_ROUNDS      9u
#define REDUCE_TARGET      4.0
#define REDUCE_BATCH_BYTES (256u << 20) /* of a turn; at most 1000 calls */
#define STEPS              2u /* measured in each turn, after a first step that does not count */
#define SIDES_MAX          7u
#define RANKS              2u
#define TEXTS_MAX          400u

enum side_id {
	ALONE,
	NVME,
	CPU,
	NONE,
	DDP,
	FSDP2,
	DS_CPU,
	DS_NVME,
	DS_TUNED,
	REDUCE,
	SIDE_COUNT,
};

static const struct {
	const char *key, *name;
} sides[SIDE_COUNT] = {
	[ALONE] = { "alone", "forward and backward alone" },
	[NVME] = { "zinf-nvme", "zinf, all on NVMe" },
	[CPU] = { "zinf-cpu", "zinf, all in the daemon's memory" },
	[NONE] = { "zinf-none", "zinf, in memory" },
	[DDP] = { "ddp", "DDP" },
	[FSDP2] = { "fsdp2", "FSDP2" },
	[DS_CPU] = { "deepspeed-cpu", "DeepSpeed ZeRO-3, CPU" },
	[DS_NVME] = { "deepspeed-nvme", "DeepSpeed ZeRO-3, NVMe" },
	[DS_TUNED] = { "deepspeed-tuned", "DeepSpeed ZeRO-3, NVMe, tuned" },
	[REDUCE] = { "zinf-reduce", "torch.distributed over zinf" },
};

/* A ratio of two sides of one group. */
struct comparison {
	enum side_id own, peer;
	double rate_target, memory_target; /* 0: shown only */
};

struct group {
	enum side_id members[SIDES_MAX - 2]; /* beside ALONE and NVME */
	unsigned count;
	struct comparison comparisons[6];
	unsigned comparison_count;
};

#define OVER_DEEPSPEED(side, target)                                    \
	{                                                               \
		.members = { side }, .count = 1, .comparison_count = 1, \
		.comparisons = { { NVME, side, target, 4 } },           \
	}

/* The sides of a small model that take little memory share a group. */
static const struct group groups_small[] = {
	{ .members = { NONE, DDP, CPU, FSDP2 },
	  .count = 4,
	  .comparisons = { { NVME, ALONE, 1 / 1.15, 0 },
	                   { NONE, DDP, 1 / 1.03, 0 },
	                   { NVME, DDP, 0, 0 },
	                   { NVME, FSDP2, 0, 0 },
	                   { CPU, FSDP2, 0, 0 } },
	  .comparison_count = 5 },
	OVER_DEEPSPEED(DS_CPU, 1.5),
	OVER_DEEPSPEED(DS_NVME, 2.5),
	OVER_DEEPSPEED(DS_TUNED, 2.5),
};

static const struct group groups_large[] = {
	{ .members = { NONE, DDP },
	  .count = 2,
	  .comparisons = { { NVME, ALONE, 1 / 1.15, 0 },
	                   { NONE, DDP, 1 / 1.03, 0 },
	                   { NVME, DDP, 0, 0 } },
	  .comparison_count = 3 },
	{ .members = { CPU, FSDP2 },
	  .count = 2,
	  .comparisons = { { NVME, FSDP2, 0, 0 }, { CPU, FSDP2, 0, 0 } },
	  .comparison_count = 2 },
	OVER_DEEPSPEED(DS_CPU, 1.5),
	OVER_DEEPSPEED(DS_NVME, 2.5),
	OVER_DEEPSPEED(DS_TUNED, 2.5),
};

struct part {
	const char *name, *model, *row_name;
	unsigned tokens, rounds;
	const struct group *groups;
	unsigned group_count;
	bool is_judged;
};

static const struct part parts[] = {
	{ "gpt2", "gpt2", "GPT-2 124 M, 256 tokens", 256, ROUNDS, groups_small,
	  ZI_COUNT_OF(groups_small), true },
	{ "llama", "llama", "Llama 297 M, 256 tokens", 256, ROUNDS, groups_large,
	  ZI_COUNT_OF(groups_large), true },
	{ "gpt2-long", "gpt2", "GPT-2 124 M, 1024 tokens", 1024, LONG_ROUNDS, groups_small,
	  ZI_COUNT_OF(groups_small), false },
	{ "llama-long", "llama", "Llama 297 M, 1024 tokens", 1024, LONG_ROUNDS, groups_large,
	  ZI_COUNT_OF(groups_large), false },
};

static const struct part quick = { "quick", "tiny", "tiny", 64, 1, groups_small, 1, false };

struct side {
	enum side_id id;
	struct bench_peer peer;
	char directory[32];
	double rate[BENCH_RUNS_MAX]; /* tokens/s */
	double cpu[BENCH_RUNS_MAX];  /* s of a step, all processes */
	double memory_mb;
};

/* The report keeps the texts of its rows. */
static const char *text_of(const char *first, const char *second, const char *third)
{
	static char texts[TEXTS_MAX][160];
	static unsigned count;
	char *text = texts[count < TEXTS_MAX - 1 ? count++ : count];

	(void)snprintf(text, sizeof texts[0], "%s, %s%s", first, second, third);
	return text;
}

/* ---- sides ---- */

static void side_stop(struct side *side)
{
	char command[64];

	bench_peer_stop(&side->peer);
	(void)snprintf(command, sizeof command, "rm -rf -- '%s'", side->directory);
	if (side->directory[0] && system(command))
		fprintf(stderr, "bench: %s is left behind\n", side->directory);
	side->directory[0] = '\0';
}

/* @build: the folder with lib/ and bin/. Return: false after saying why not. */
static bool side_start(struct side *side, enum side_id id, const struct part *part,
                       const char *build)
{
	char tokens[16], ranks[16];

	*side = (struct side){ .id = id, .directory = "/var/tmp/zinf-bench-XXXXXX" };
	(void)snprintf(tokens, sizeof tokens, "%u", part->tokens);
	(void)snprintf(ranks, sizeof ranks, "%u", RANKS);
	if (!mkdtemp(side->directory)) {
		fprintf(stderr, "bench: a directory in /var/tmp: %s\n", strerror(errno));
		side->directory[0] = '\0';
		return false;
	}
	if (!bench_peer_start(&side->peer,
	                      (const char *const[]){ bench_python(), "bench/peers/train_side.py",
	                                             sides[id].key, part->model, tokens, ranks,
	                                             side->directory, build, NULL }) &&
	    bench_peer_is_ready(&side->peer, sides[id].name))
		return true;
	side_stop(side);
	return false;
}

static int side_measure(struct side *side, const struct part *part, unsigned round)
{
	char command[32];
	json_t *answer;
	double seconds;

	(void)snprintf(command, sizeof command, "steps %u", STEPS);
	answer = bench_peer_ask(&side->peer, command);
	seconds = json_number_value(json_object_get(answer, "seconds"));
	side->rate[round] = seconds > 0 ? RANKS * part->tokens / seconds : 0;
	side->cpu[round] = json_number_value(json_object_get(answer, "cpu_s"));
	if (answer)
		printf("round %u: %s: a step %.3f s, %.2f s of CPU time, loss %.3f\n", round + 1,
		       sides[side->id].name, seconds, side->cpu[round],
		       json_number_value(json_object_get(answer, "loss")));
	json_decref(answer);
	return seconds > 0 ? 0 : -1;
}

static int side_measure_memory(struct side *side)
{
	json_t *answer = bench_peer_ask(&side->peer, "memory 1");
	double anonymous = json_number_value(json_object_get(answer, "anonymous")) / 1e6;
	double shared = json_number_value(json_object_get(answer, "shared")) / 1e6;
	double pinned = json_number_value(json_object_get(answer, "pinned")) / 1e6;
	double base = json_number_value(json_object_get(answer, "base")) / 1e6;

	side->memory_mb = json_number_value(json_object_get(answer, "sum")) / 1e6;
	if (answer)
		printf("memory: %s: %.0f MB beyond the imports (%.0f): anonymous %.0f, shared "
		       "%.0f; pinned of these %.0f\n",
		       sides[side->id].name, side->memory_mb, base, anonymous, shared, pinned);
	json_decref(answer);
	return side->memory_mb > 0 ? 0 : -1;
}

/* ---- a group ---- */

struct team {
	const struct part *part;
	struct side sides[SIDES_MAX];
	unsigned count;
};

static struct side *team_find(struct team *team, enum side_id id)
{
	for (unsigned i = 0; i < team->count; i++)
		if (team->sides[i].id == id)
			return &team->sides[i];
	return NULL;
}

static int team_measure(struct team *team)
{
	const struct part *part = team->part;

	for (unsigned round = 0; round < part->rounds; round++)
		for (unsigned i = 0; i < team->count; i++) {
			unsigned turn = round % 2 ? team->count - 1 - i : i;

			if (side_measure(&team->sides[turn], part, round))
				return -1;
		}
	for (unsigned i = 0; i < team->count; i++)
		if (side_measure_memory(&team->sides[i]))
			return -1;
	return 0;
}

static void report_comparison(struct bench_report *report, struct team *team,
                              const struct comparison *comparison)
{
	const struct part *part = team->part;
	struct side *own = team_find(team, comparison->own);
	struct side *peer = team_find(team, comparison->peer);
	struct bench_row row = { .runs = part->rounds, .peer_name = sides[comparison->peer].name };
	char pair[96];

	if (!own || !peer)
		return;
	(void)snprintf(pair, sizeof pair, "%s, over %s", sides[own->id].name, sides[peer->id].name);
	row.name = text_of(part->row_name, pair, "");
	row.unit = "tokens/s";
	row.target = part->is_judged ? comparison->rate_target : 0;
	(void)bench_report_add_turns(report, &row, BENCH_RATE, own->rate, peer->rate);
	row.name = text_of(part->row_name, pair, ", CPU time of a step");
	row.unit = "s";
	row.target = 0;
	(void)bench_report_add_turns(report, &row, BENCH_TIME, own->cpu, peer->cpu);
	row.name = text_of(part->row_name, pair, ", memory");
	row.unit = "MB";
	row.target = part->is_judged ? comparison->memory_target : 0;
	row.runs = 1;
	(void)bench_report_add_turns(report, &row, BENCH_TIME, &own->memory_mb, &peer->memory_mb);
}

static int run_group(struct bench_report *report, struct team *team, const struct group *group,
                     const char *build)
{
	int r;

	for (unsigned i = 0; i < group->count; i++)
		if (side_start(&team->sides[team->count], group->members[i], team->part, build))
			team->count++;
	r = team_measure(team);
	for (unsigned i = 0; i < group->comparison_count && !r; i++)
		report_comparison(report, team, &group->comparisons[i]);
	while (team->count > 2)
		side_stop(&team->sides[--team->count]);
	return r;
}

static int run_part(struct bench_report *report, const struct part *part, const char *build)
{
	static struct team team;
	int r = 0;

	team = (struct team){ .part = part };
	for (enum side_id id = ALONE; id <= NVME && !r; id++) {
		r = side_start(&team.sides[team.count], id, part, build) ? 0 : -1;
		if (!r)
			team.count++;
	}
	for (unsigned i = 0; i < part->group_count && !r; i++)
		r = run_group(report, &team, &part->groups[i], build);
	while (team.count)
		side_stop(&team.sides[--team.count]);
	return r;
}

/* ---- part `restart` ---- */

static int run_restart(struct bench_report *report, const struct part *part, const char *build)
{
	double own[RESTARTS], peer[RESTARTS];
	struct bench_row row = { .unit = "s",
		                 .peer_name = "the time it may take",
		                 .target = part->is_judged ? 1 : 0,
		                 .runs = RESTARTS };
	struct side side;
	int r = 0;

	if (!side_start(&side, NVME, part, build))
		return -1;
	for (unsigned i = 0; i < RESTARTS && !r; i++) {
		json_t *answer = bench_peer_ask(&side.peer, "restart 1");

		own[i] = json_number_value(json_object_get(answer, "seconds"));
		peer[i] = RESTART_S;
		r = own[i] > 0 ? 0 : -1;
		if (!r)
			printf("restart %u: %.2f s beyond the imports\n", i + 1, own[i]);
		json_decref(answer);
	}
	side_stop(&side);
	row.name = text_of(part->row_name, sides[NVME].name, ", kill -9 to the next step");
	if (!r)
		(void)bench_report_add_turns(report, &row, BENCH_TIME, own, peer);
	return r;
}

/* ---- part `all_reduce` ---- */

static int reduce_measure(struct bench_peer *peer, unsigned bytes, double *ret_own,
                          double *ret_peer)
{
	unsigned calls = bytes >= REDUCE_BATCH_BYTES / 1000 ? REDUCE_BATCH_BYTES / bytes : 1000;
	char command[64];
	json_t *answer;

	(void)snprintf(command, sizeof command, "reduce %u %u", bytes, calls);
	answer = bench_peer_ask(peer, command);
	*ret_own = 1e6 * json_number_value(json_object_get(answer, "zinf"));
	*ret_peer = 1e6 * json_number_value(json_object_get(answer, "gloo"));
	json_decref(answer);
	return *ret_own > 0 && *ret_peer > 0 ? 0 : -1;
}

static int run_all_reduce(struct bench_report *report, const struct part *part, const char *build)
{
	double own[REDUCE_ROUNDS], peer[REDUCE_ROUNDS];
	struct bench_row row = { .unit = "us",
		                 .peer_name = "Gloo",
		                 .target = part->is_judged ? REDUCE_TARGET : 0,
		                 .runs = part->is_judged ? REDUCE_ROUNDS : 1 };
	struct side side;
	int r = 0;

	if (!side_start(&side, REDUCE, part, build))
		return -1;
	for (unsigned bytes = 1u << 10; bytes <= 16u << 20 && !r; bytes *= 4) {
		char size[16];

		(void)snprintf(size, sizeof size, bytes < 1u << 20 ? "%u KiB" : "%u MiB",
		               bytes < 1u << 20 ? bytes >> 10 : bytes >> 20);
		for (unsigned round = 0; round < row.runs && !r; round++)
			r = reduce_measure(&side.peer, bytes, &own[round], &peer[round]);
		row.name = text_of("all_reduce", size, ", f32, 2 ranks");
		if (!r)
			(void)bench_report_add_turns(report, &row, BENCH_TIME, own, peer);
	}
	side_stop(&side);
	return r;
}

/* ---- the suite ---- */

static bool has_failed(const char *name, int r)
{
	if (r)
		fprintf(stderr, "bench torch: part '%s' failed\n", name);
	return r;
}

int main(int argc, char **argv)
{
	const char *directory = argc > 1 ? argv[1] : "build/bench";
	static struct bench_report report;
	char build[400];
	ssize_t length = readlink("/proc/self/exe", build, sizeof build - 16);
	bool is_quick = bench_has_word("quick", argc, argv);
	bool is_all = argc - is_quick <= 2;
	bool is_failed = false;

	if (length < 0)
		return EXIT_FAILURE;
	build[length] = '\0';
	(void)memcpy(strrchr(build, '/'), "/..", sizeof "/.."); /* It lies in BUILD/bench. */
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	bench_report_init(&report, "torch");
	if (is_quick)
		is_failed |= has_failed("quick", run_part(&report, &quick, build));
	for (size_t i = 0; i < ZI_COUNT_OF(parts) && !is_quick; i++)
		if (is_all || bench_has_word(parts[i].name, argc, argv))
			is_failed |= has_failed(parts[i].name, run_part(&report, &parts[i], build));
	if (is_all || bench_has_word("restart", argc, argv))
		is_failed |= has_failed("restart",
		                        run_restart(&report, is_quick ? &quick : &parts[0], build));
	if (is_all || bench_has_word("all_reduce", argc, argv))
		is_failed |=
			has_failed("all_reduce",
		                   run_all_reduce(&report, is_quick ? &quick : &parts[0], build));
	if (bench_report_write(&report, directory))
		is_failed = true; /* it says so itself */
	return is_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
