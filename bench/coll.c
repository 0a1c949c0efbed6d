/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `coll`: collectives inside a node, by processes at a real zinfd, over Open MPI (the better
 * of its transports through shared memory), over Gloo (through torch.distributed), over DeepSpeed's
 * all_reduce through shared memory, and over what the memory gives.
 *
 *   two     2 ranks        four   4 ranks
 *   nodes   2 and 4 ranks (nodes-2, nodes-4), half of them on each of two nodes, which are network
 *           namespaces, over Gloo and a plain TCP connection; skipped without root or iproute2
 *
 *   crossover   whether the built-in limits between ways of a collective lie where they should
 *
 * Arguments are the names of parts, and of operations ("barrier" has the latencies); none: all of
 * them. "quick" among them: few small sizes, one round, to see that it runs; "alone": no peers.
 * COLL_MIB_MAX: larger sizes are left out; the processes of all sides together take 42 times the
 * largest size with 4 ranks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/coll_cross.h"
#include "bench/coll_nodes.h"
#include "bench/coll_own.h"
#include "bench/coll_suite.h"
#include "bench/python.h"
#include "bench/words.h"
#include "common/base/cleanup.h"
#include "tests/harness/harness.h"

#define MIB_MAX        256u
#define SAMPLE_SECONDS 0.02
#define DAEMON_BYTES   (512u << 20) /* beside the arenas */

static const uint64_t sizes[] = { 4u << 10, 64u << 10, 1u << 20, 16u << 20, 64u << 20, 256u << 20 };
static const uint64_t quick_sizes[] = { 4u << 10, 1u << 20 };

struct settings {
	bool is_quick, is_alone;
	bool has_operation[_COLL_OPERATION_COUNT];
	uint64_t bytes_max;
	const char *program; /* this one */
	char mpi_program[512];
	char directory[64];
};

/* ---- the sides ---- */

static void start_own(struct coll_match *match, const struct settings *settings,
                      struct coll_nodes *nodes)
{
	char bytes[24];
	const char *argv[] = { settings->program, "rank", bytes, NULL };

	(void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)settings->bytes_max);
	coll_side_start(&match->own,
	                &(struct coll_side_options){ .name = nodes ? "zinf-nodes" : "zinf",
	                                             .argv = argv,
	                                             .process_count = match->world,
	                                             .world = match->world,
	                                             .directory = settings->directory,
	                                             .enter = nodes ? coll_nodes_enter : NULL,
	                                             .enter_arg = nodes });
}

static void start_mpi(struct coll_match *match, const struct settings *settings, unsigned transport)
{
	char bytes[24], world[8];
	/* The second: ucx declines shared memory unless it is told to take anything. */
	const char *vader[] = { "mpirun",
		                "--allow-run-as-root",
		                "--oversubscribe",
		                "-n",
		                world,
		                "--mca",
		                "pml",
		                "ob1",
		                "--mca",
		                "btl",
		                "self,vader",
		                settings->mpi_program,
		                bytes,
		                NULL };
	const char *ucx[] = { "mpirun",
		              "--allow-run-as-root",
		              "--oversubscribe",
		              "-n",
		              world,
		              "--mca",
		              "pml",
		              "ucx",
		              "--mca",
		              "opal_common_ucx_tls",
		              "any",
		              "--mca",
		              "opal_common_ucx_devices",
		              "any",
		              settings->mpi_program,
		              bytes,
		              NULL };
	struct coll_side_options options = { .name = transport ? "Open-MPI-ucx" : "Open-MPI-vader",
		                             .argv = transport ? ucx : vader,
		                             .process_count = 1,
		                             .world = match->world,
		                             .directory = settings->directory };

	(void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)settings->bytes_max);
	(void)snprintf(world, sizeof world, "%u", match->world);
	if (access(settings->mpi_program, X_OK)) {
		if (!transport)
			printf("skipped: Open MPI: no %s (mpicc was not there when it was built: "
			       "tools/deps bench)\n",
			       settings->mpi_program);
		return;
	}
	coll_side_start(&match->mpi[transport], &options);
}

static void start_gloo(struct coll_match *match, const struct settings *settings,
                       struct coll_nodes *nodes)
{
	char bytes[24];
	const char *argv[] = { bench_python(), "bench/peers/coll_gloo.py", bytes, NULL };

	(void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)settings->bytes_max);
	coll_side_start(&match->gloo,
	                &(struct coll_side_options){ .name = nodes ? "Gloo-nodes" : "Gloo",
	                                             .argv = argv,
	                                             .process_count = match->world,
	                                             .world = match->world,
	                                             .directory = settings->directory,
	                                             .enter = nodes ? coll_nodes_enter : NULL,
	                                             .enter_arg = nodes });
}

/* Its all_reduce through shared memory; it has no other collective. */
static void start_deepspeed(struct coll_match *match, const struct settings *settings)
{
	char bytes[24];
	const char *argv[] = { bench_python(), "bench/peers/coll_deepspeed.py", bytes, NULL };

	(void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)settings->bytes_max);
	if (settings->has_operation[COLL_ALL_REDUCE])
		coll_side_start(&match->deepspeed,
		                &(struct coll_side_options){ .name = "DeepSpeed",
		                                             .argv = argv,
		                                             .process_count = match->world,
		                                             .world = match->world,
		                                             .directory = settings->directory });
}

/* ---- parts ---- */

static int measure(struct coll_match *match, const struct settings *settings)
{
	const uint64_t *chosen = settings->is_quick ? quick_sizes : sizes;
	size_t count = settings->is_quick ? ZI_COUNT_OF(quick_sizes) : ZI_COUNT_OF(sizes);
	int r = 0;

	if (settings->has_operation[COLL_BARRIER]) {
		r = coll_match_case(match, COLL_BARRIER, 0);
		if (!r)
			r = coll_match_case(match, COLL_ALL_REDUCE, 8);
	}
	for (int operation = COLL_ALL_REDUCE; operation < _COLL_OPERATION_COUNT; operation++)
		for (size_t i = 0; i < count && !r && settings->has_operation[operation]; i++)
			if (chosen[i] <= settings->bytes_max)
				r = coll_match_case(match, (enum coll_operation)operation,
				                    chosen[i]);
	return r;
}

static void start_peers(struct coll_match *match, const struct settings *settings)
{
	if (settings->is_alone)
		return;
	for (unsigned i = 0; i < COLL_TRANSPORTS; i++)
		start_mpi(match, settings, i);
	start_gloo(match, settings, NULL);
	start_deepspeed(match, settings);
}

static void stop_sides(struct coll_match *match)
{
	coll_side_stop(&match->gloo);
	coll_side_stop(&match->deepspeed);
	for (unsigned i = 0; i < COLL_TRANSPORTS; i++)
		coll_side_stop(&match->mpi[i]);
	coll_side_stop(&match->own);
}

static int run_part(struct bench_report *report, const struct settings *settings, unsigned world)
{
	struct coll_match match = { .world = world,
		                    .rounds = settings->is_quick ? 1 : BENCH_RUNS_MIN,
		                    .sample_seconds = settings->is_quick ? 0 : SAMPLE_SECONDS,
		                    .report = report };
	char capacity[32];
	struct harness_options options = { .cpu_capacity = capacity };
	struct harness harness;
	int r = -1;

	(void)snprintf(capacity, sizeof capacity, "%llu",
	               (unsigned long long)(world * 2 * settings->bytes_max + DAEMON_BYTES));
	if (harness_start(&harness, &options))
		return -1;
	(void)setenv("ZINF_SOCKET", harness.socket_path, 1);
	start_own(&match, settings, NULL);
	if (match.own.is_ready)
		start_peers(&match, settings);
	match.bound = match.own.is_ready ? coll_bound_new(world) : NULL;
	if (match.bound)
		r = measure(&match, settings);
	match.bound = coll_bound_free(match.bound);
	stop_sides(&match);
	return harness_stop(&harness) || r ? -1 : 0;
}

/* As above, over two nodes. */
static int run_nodes(struct bench_report *report, const struct settings *settings, unsigned world)
{
	struct coll_match match = { .world = world,
		                    .rounds = settings->is_quick ? 1 : BENCH_RUNS_MIN,
		                    .sample_seconds = settings->is_quick ? 0 : SAMPLE_SECONDS,
		                    .report = report,
		                    .is_over_nodes = true };
	bool is_skipped;
	struct coll_nodes *nodes = coll_nodes_new(world, settings->bytes_max, &is_skipped);
	int r = -1;

	if (!nodes)
		return is_skipped ? 0 : -1;
	start_own(&match, settings, nodes);
	if (match.own.is_ready) {
		coll_nodes_add_helpers(nodes, &match.own);
		if (!settings->is_alone) {
			start_gloo(&match, settings, nodes);
			match.stream = coll_stream_new(coll_nodes_network(nodes), world);
		}
		r = measure(&match, settings);
	}
	match.stream = coll_stream_free(match.stream);
	stop_sides(&match);
	return coll_nodes_free(nodes) || r ? -1 : 0;
}

/* Two teams of ranks, each of a daemon of its own. */
static int run_cma_crossover(struct bench_report *report, const struct settings *settings,
                             unsigned world, unsigned rounds)
{
	struct coll_match sides[2] = { { .world = world, .rounds = rounds, .report = report },
		                       { .world = world } };
	static const char *const from_bytes[2] = { "1", "0" };
	struct harness_options options = { .cpu_capacity = "1G" };
	struct settings larger = *settings;
	struct harness harness[2];
	unsigned started = 0;
	int r = 0;

	larger.bytes_max = world * COLL_CROSS_CMA_MAX;
	for (; started < 2 && !r; started += !r) {
		r = harness_start(&harness[started], &options);
		if (r)
			break;
		(void)setenv("ZINF_SOCKET", harness[started].socket_path, 1);
		(void)setenv("ZINF_COLL_CMA_BYTES", from_bytes[started], 1);
		start_own(&sides[started], &larger, NULL);
	}
	(void)unsetenv("ZINF_COLL_CMA_BYTES");
	if (!r)
		r = sides[0].own.is_ready && sides[1].own.is_ready
		            ? coll_cross_cma(&sides[0], &sides[1].own)
		            : -1;
	for (unsigned i = 0; i < started; i++) {
		stop_sides(&sides[i]);
		r |= harness_stop(&harness[i]);
	}
	return r ? -1 : 0;
}

static int run_crossover(struct bench_report *report, const struct settings *settings)
{
	unsigned rounds = settings->is_quick ? 1 : BENCH_RUNS_MIN;
	struct settings small = *settings;

	small.bytes_max = 1u << 20;
	for (unsigned world = 2; world <= 4; world += 2) {
		struct coll_match match = { .world = world, .rounds = rounds, .report = report };
		struct harness_options options = { .cpu_capacity = "1G" };
		struct harness harness;
		int r = -1;

		if (harness_start(&harness, &options))
			return -1;
		(void)setenv("ZINF_SOCKET", harness.socket_path, 1);
		start_own(&match, &small, NULL);
		if (match.own.is_ready)
			r = coll_cross_posts(&match);
		stop_sides(&match);
		if (harness_stop(&harness) || r ||
		    run_cma_crossover(report, settings, world, rounds))
			return -1;
	}
	return coll_cross_streaming(report, rounds);
}

/* coll-mpi lies beside this program. */
static int settings_init(struct settings *settings)
{
	static char program[400];
	const char *wish = getenv("COLL_MIB_MAX");
	unsigned long mib = wish ? strtoul(wish, NULL, 10) : MIB_MAX;
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

	if (length < 0)
		return -1;
	program[length] = '\0';
	settings->program = program;
	settings->bytes_max = (uint64_t)(mib ? mib : 1) << 20;
	(void)snprintf(settings->mpi_program, sizeof settings->mpi_program, "%.*s/coll-mpi",
	               (int)(strrchr(program, '/') - program), program);
	(void)snprintf(settings->directory, sizeof settings->directory,
	               "/var/tmp/zinf-bench-XXXXXX");
	return mkdtemp(settings->directory) ? 0 : -1;
}

struct part {
	const char *name, *group; /* either chooses it */
	unsigned world;
	bool is_over_nodes;
};

static const struct part parts[] = {
	{ "two", "", 2, false },
	{ "nodes-2", "nodes", 2, true },
	{ "four", "", 4, false },
	{ "nodes-4", "nodes", 4, true },
};

static bool is_named(const struct part *part, int argc, char **argv)
{
	return bench_has_word(part->name, argc, argv) || bench_has_word(part->group, argc, argv);
}

/* None named: all. */
static void choose_operations(struct settings *settings, int argc, char **argv)
{
	bool is_any = false;

	for (int i = 0; i < _COLL_OPERATION_COUNT; i++) {
		const char *name = coll_operation_name((enum coll_operation)i);

		settings->has_operation[i] = bench_has_word(name, argc, argv);
		is_any |= settings->has_operation[i];
	}
	for (int i = 0; i < _COLL_OPERATION_COUNT && !is_any; i++)
		settings->has_operation[i] = true;
}

static void remove_directory(const char *directory)
{
	char command[128];

	(void)snprintf(command, sizeof command, "rm -rf -- '%s'", directory);
	if (system(command))
		fprintf(stderr, "bench: %s is left behind\n", directory);
}

int main(int argc, char **argv)
{
	const char *directory = argc > 1 ? argv[1] : "build/bench";
	static struct bench_report report;
	struct settings settings = { 0 };
	bool is_failed = false, is_any = false;

	if (argc > 1 && !strcmp(argv[1], "rank"))
		return coll_own_rank(argc, argv);
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (settings_init(&settings)) {
		fprintf(stderr, "bench: a directory in /var/tmp: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	settings.is_quick = bench_has_word("quick", argc, argv);
	if (settings.is_quick)
		settings.bytes_max = quick_sizes[ZI_COUNT_OF(quick_sizes) - 1];
	settings.is_alone = bench_has_word("alone", argc, argv);
	choose_operations(&settings, argc, argv);
	for (size_t i = 0; i < ZI_COUNT_OF(parts); i++)
		is_any |= is_named(&parts[i], argc, argv);
	is_any |= bench_has_word("crossover", argc, argv);
	bench_report_init(&report, "coll");
	for (size_t i = 0; i < ZI_COUNT_OF(parts); i++)
		if ((!is_any || is_named(&parts[i], argc, argv)) &&
		    (parts[i].is_over_nodes ? run_nodes : run_part)(&report, &settings,
		                                                    parts[i].world))
			is_failed = true;
	if ((!is_any || bench_has_word("crossover", argc, argv)) &&
	    run_crossover(&report, &settings))
		is_failed = true;
	remove_directory(settings.directory);
	if (bench_report_write(&report, directory))
		is_failed = true; /* it says so itself */
	return is_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
