/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever ranks call together, on whatever buffers, in whatever groups, waiting or not, each
 * has what a plain model of it has, bit for bit.
 * Method: cases drawn from a seed (draw.c): operations, types, sizes around every border, groups,
 * roots, placements of each rank, in place or not; the model (plain.c) knows the arithmetic from
 * its description alone. Ranks are threads over the engine of libzinf, or processes over zinf.h and
 * a real zinfd, or over four of them that are nodes to it. Guards around every buffer, sources
 * that must stay. A case that fails is made smaller, and printed as words that repeat it.
 * Usage: check_coll [--over zinfd | --over nodes] [--seed N] [--rounds N] [--round N] [--ranks N] …
 *        check_coll [--over zinfd | --over nodes] ranks=… arena=… group=… call=…
 *   --round      this one alone
 *   --verdicts   a group of each case is declared broken at some moment (over threads)
 *   --absences   a rank of each case stops to come to a group's calls (over threads)
 *   --lie N      rank 0 is wrong (rank.h): this must be found
 *   --past N     as after N calls of each group, or a few less (not over nodes)
 *   --simple     in arenas, even, waited for: needs neither staging nor messages nor a queue
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/coll/runner.h"

/* Cases begin so many calls earlier, in turns. */
#define PAST_CALLS 16u

struct settings {
	const char *over;
	uint64_t seed, round_first, round_count;
	uint32_t ranks;
	bool is_simple;
	enum rank_lie lie;
	bool has_verdict, has_absence;
	bool has_past;
	uint32_t past;
};

static void print_failure(const struct runner *runner, const struct script *script)
{
	for (uint32_t i = 0; i < script->ranks; i++) {
		const struct rank_report *report = &runner->reports[i];

		if (report->call == INT32_MAX)
			printf("check-coll:   rank %u: %s\n", i, report->words);
		else if (report->call >= 0)
			printf("check-coll:   rank %u, call %d: %s\n", i, report->call,
			       report->words);
	}
}

static int run_words(struct runner *runner, char **words)
{
	struct script script = { 0 };

	for (; *words; words++) {
		if (script_read_word(&script, *words) == 0)
			continue;
		fprintf(stderr, "check-coll: not a word of a case: %s\n", *words);
		return 2;
	}
	if (!script_is_sound(&script)) {
		fprintf(stderr, "check-coll: this is no whole case\n");
		return 2;
	}
	if (runner->run(runner, &script) == 0) {
		printf("check-coll: over %s: %u calls of %u ranks are right\n", runner->name,
		       script.call_count, script.ranks);
		return 0;
	}
	printf("check-coll: over %s: wrong\n", runner->name);
	print_failure(runner, &script);
	return 1;
}

static int run_rounds(struct runner *runner, const struct settings *settings, const char *program)
{
	uint64_t begin_ns = zi_clock_now_ns(), call_count = 0;

	for (uint64_t i = 0; i < settings->round_count; i++) {
		uint64_t round = settings->round_first + i;
		struct script script;

		script_draw(&script, settings->seed, round, settings->ranks);
		if (settings->is_simple)
			script_simplify(&script);
		if (runner->harness_count > 1)
			script_spread(&script, script_mix(settings->seed) + round);
		if (settings->has_verdict || settings->has_absence) /* some of it gets lost */
			script.arena_bytes *= 3;
		if (settings->has_past) /* not 0, which is none */
			runner->past = (settings->past - round % PAST_CALLS) | 1;
		call_count += script.call_count;
		if (runner->run(runner, &script) == 0)
			continue;
		printf("check-coll: over %s: --seed %llu --round %llu is wrong\n", runner->name,
		       (unsigned long long)settings->seed, (unsigned long long)round);
		print_failure(runner, &script);
		runner_shrink(runner, &script);
		printf("check-coll: as small as it goes:\n  %s --over %s ", program, runner->name);
		script_print(&script, stdout);
		(void)runner->run(runner, &script);
		print_failure(runner, &script);
		return 1;
	}
	printf("check-coll: over %s: %llu calls in %llu cases are right, bit for bit (seed %llu, "
	       "%.1f s)\n",
	       runner->name, (unsigned long long)call_count,
	       (unsigned long long)settings->round_count, (unsigned long long)settings->seed,
	       (double)(zi_clock_now_ns() - begin_ns) / ZI_NS_PER_S);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "over", required_argument, NULL, 'o' },
		{ "seed", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'n' },
		{ "round", required_argument, NULL, 'r' },
		{ "ranks", required_argument, NULL, 'k' },
		{ "lie", required_argument, NULL, 'l' },
		{ "simple", no_argument, NULL, 'i' },
		{ "verdicts", no_argument, NULL, 'v' },
		{ "absences", no_argument, NULL, 'a' },
		{ "past", required_argument, NULL, 'p' },
		{ NULL, 0, NULL, 0 },
	};
	struct settings settings = { .over = "threads", .seed = 1, .round_count = 40 };
	struct runner runner;
	bool is_threads, is_nodes;
	int option, r;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 'o':
			settings.over = optarg;
			break;
		case 's':
			settings.seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			settings.round_count = strtoull(optarg, NULL, 0);
			break;
		case 'r':
			settings.round_first = strtoull(optarg, NULL, 0);
			settings.round_count = 1;
			break;
		case 'k':
			settings.ranks = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'l':
			settings.lie = (enum rank_lie)strtoul(optarg, NULL, 0);
			break;
		case 'v':
			settings.has_verdict = true;
			break;
		case 'a':
			settings.has_absence = true;
			break;
		case 'p':
			settings.has_past = true;
			settings.past = (uint32_t)strtoull(optarg, NULL, 0);
			break;
		case 'i':
			settings.is_simple = true;
			break;
		default:
			return 2;
		}
	}
	is_threads = strcmp(settings.over, "threads") == 0;
	is_nodes = strcmp(settings.over, "nodes") == 0;
	if ((!is_threads && !is_nodes && strcmp(settings.over, "zinfd") != 0) ||
	    settings.ranks > SCRIPT_RANKS_MAX || (is_nodes && settings.has_past)) {
		fprintf(stderr,
		        "check-coll: --over threads, zinfd or nodes (without --past); "
		        "--ranks 1 … %u\n",
		        SCRIPT_RANKS_MAX);
		return 2;
	}
	if (is_threads)
		runner_init_threads(&runner);
	else if (runner_init_processes(&runner, is_nodes ? SCRIPT_NODES_MAX : 1))
		return 1;
	runner.lie = settings.lie;
	runner.has_verdict = settings.has_verdict;
	runner.has_absence = settings.has_absence;
	runner.past = settings.past;
	r = argv[optind] ? run_words(&runner, &argv[optind])
	                 : run_rounds(&runner, &settings, argv[0]);
	return runner_deinit(&runner) || r;
}
