/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suite `step`, part `gpt`: zinf-gpt with all of its state on NVMe, parameters as well, over what
 * its computing and the disk allow. Each round runs it with its state in memory, with its state on
 * NVMe, and fio with the bytes that a step of the latter has moved, on the store's own file. No run
 * can be faster than the slower of computing and disk: that is the bound of the round. Its bytes
 * are those of the update alone, as the step's statistics have them; a second bound counts all that
 * the daemon has moved, so also the units that forward and backward had loaded into the pool.
 * Without a norm, so that units are updated while others are still computed. Tokens/s are of the
 * steps after the first ones, which touch memory anew and have no moments to read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/fio.h"
#include "bench/gpt_run.h"
#include "bench/step_suite.h"
#include "common/base/cleanup.h"
#include "common/base/types.h"
#include "tests/harness/harness.h"

#define TARGET      0.9
#define FIRST_STEPS 3u
#define STEPS       9u /* with the first ones */

/* Both ways of the bound. */
static const struct gpt_case {
	const char *name, *moved_name, *in_memory_name, *words;
	uint64_t store_bytes, span_bytes;
} cases[] = {
	{ "zinf-gpt on NVMe, 11 M parameters, tokens/s",
	  "zinf-gpt on NVMe, 11 M parameters, all bytes",
	  "zinf-gpt on NVMe, 11 M parameters, over memory",
	  "--layers 6 --heads 6 --d-model 384 --batch-size 4", 320ull << 20, 128ull << 20 },
	{ "zinf-gpt on NVMe, 43 M parameters, few tokens",
	  "zinf-gpt on NVMe, 43 M, few tokens, all bytes",
	  "zinf-gpt on NVMe, 43 M, few tokens, over memory",
	  "--layers 6 --heads 12 --d-model 768 --batch-size 1 --seq-len 32", 1280ull << 20,
	  512ull << 20 },
	{ "zinf-gpt on NVMe, 43 M, staging of 256 MB", "zinf-gpt on NVMe, 43 M, so, all bytes",
	  "zinf-gpt on NVMe, 43 M, so, over memory",
	  "--layers 6 --heads 12 --d-model 768 --batch-size 1 --seq-len 32 --staging 256M",
	  1280ull << 20, 512ull << 20 },
};

/* By the disk. */
struct moved {
	uint64_t read_bytes, write_bytes;
};

struct run {
	pid_t daemon;
	double step_s;                    /* mean */
	double tokens;                    /* of a step */
	uint64_t read_bytes, write_bytes; /* mean, whole blocks */
	struct moved moved;               /* likewise */
	unsigned count;
};

/* Of a process, so far. */
static struct moved moved_by(pid_t pid)
{
	struct moved moved = { 0 };
	char path[64], line[128];
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file)) {
		(void)sscanf(line, "read_bytes: %" SCNu64, &moved.read_bytes);
		(void)sscanf(line, "write_bytes: %" SCNu64, &moved.write_bytes);
	}
	if (file)
		(void)fclose(file);
	return moved;
}

/* Adds a line of zinf-gpt's. */
static void take_line(void *arg, const json_t *line)
{
	json_int_t step = json_integer_value(json_object_get(line, "step"));
	struct run *run = arg;
	struct moved moved;

	if (step == FIRST_STEPS)
		run->moved = moved_by(run->daemon);
	if (step == STEPS) {
		moved = moved_by(run->daemon);
		run->moved.read_bytes = moved.read_bytes - run->moved.read_bytes;
		run->moved.write_bytes = moved.write_bytes - run->moved.write_bytes;
	}
	if (step > FIRST_STEPS) {
		run->count++;
		run->step_s += json_number_value(json_object_get(line, "wall_ms")) / 1e3;
		run->tokens = json_number_value(json_object_get(line, "tokens"));
		run->read_bytes +=
			(uint64_t)json_integer_value(json_object_get(line, "read_bytes"));
		run->write_bytes +=
			(uint64_t)json_integer_value(json_object_get(line, "write_bytes"));
	}
}

static uint64_t mean_blocks(uint64_t bytes, unsigned count)
{
	return bytes / count & ~(uint64_t)4095;
}

static int run_gpt(const char *program, const struct gpt_case *the_case, bool is_nvme, pid_t daemon,
                   struct run *ret_run)
{
	const char *tier = is_nvme ? "nvme" : "cpu";
	char words[512];

	*ret_run = (struct run){ .daemon = daemon };
	(void)snprintf(words, sizeof words,
	               "%s --bf16 --clip 0 --steps %u --offload-optimizer %s --offload-param %s "
	               "--job bench-%s --delete-job",
	               the_case->words, STEPS, tier, tier, tier);
	if (gpt_run(program, words, take_line, ret_run))
		return -1;
	if (ret_run->count != STEPS - FIRST_STEPS) {
		fprintf(stderr, "bench: zinf-gpt has told of %u steps, not of %u\n", ret_run->count,
		        STEPS - FIRST_STEPS);
		return -1;
	}
	ret_run->step_s /= ret_run->count;
	ret_run->read_bytes = mean_blocks(ret_run->read_bytes, ret_run->count);
	ret_run->write_bytes = mean_blocks(ret_run->write_bytes, ret_run->count);
	ret_run->moved.read_bytes = mean_blocks(ret_run->moved.read_bytes, ret_run->count);
	ret_run->moved.write_bytes = mean_blocks(ret_run->moved.write_bytes, ret_run->count);
	return 0;
}

struct figures {
	/* tokens/s */
	double own[BENCH_RUNS_MAX], bound[BENCH_RUNS_MAX], moved_bound[BENCH_RUNS_MAX];
	double in_memory[BENCH_RUNS_MAX];
};

static double larger(double one, double other)
{
	return one > other ? one : other;
}

/* fio with the bytes of a step, and with all that was moved. */
static int measure_disk(struct fio_job *fio, const struct run *own, struct fio_result *ret_told,
                        struct fio_result *ret_moved)
{
	fio->read_bytes = own->read_bytes;
	fio->write_bytes = own->write_bytes;
	if (fio_run_best(fio, ret_told))
		return -1;
	fio->read_bytes = own->moved.read_bytes;
	fio->write_bytes = own->moved.write_bytes;
	return fio_run_best(fio, ret_moved);
}

static int measure(struct figures *figures, const struct gpt_case *the_case,
                   const struct step_settings *settings, pid_t daemon, struct fio_job *fio)
{
	for (unsigned i = 0; i < settings->rounds; i++) {
		struct run in_memory, own;
		struct fio_result disk, all;
		double bound_s, moved_s;

		if (run_gpt(settings->program, the_case, false, daemon, &in_memory) ||
		    run_gpt(settings->program, the_case, true, daemon, &own) ||
		    measure_disk(fio, &own, &disk, &all))
			return -1;
		bound_s = larger(disk.seconds, in_memory.step_s);
		moved_s = larger(all.seconds, in_memory.step_s);
		figures->own[i] = own.tokens / own.step_s;
		figures->bound[i] = own.tokens / bound_s;
		figures->moved_bound[i] = own.tokens / moved_s;
		figures->in_memory[i] = own.tokens / in_memory.step_s;
		printf("round %u: a step in memory %.0f ms, on NVMe %.0f ms (%.0f MB read, %.0f "
		       "written; fio %.0f ms), ratio %.2f; in all %.0f MB read, %.0f written, fio "
		       "%.0f ms, ratio %.2f\n",
		       i + 1, in_memory.step_s * 1e3, own.step_s * 1e3,
		       (double)own.read_bytes / 1e6, (double)own.write_bytes / 1e6,
		       disk.seconds * 1e3, bound_s / own.step_s, (double)own.moved.read_bytes / 1e6,
		       (double)own.moved.write_bytes / 1e6, all.seconds * 1e3,
		       moved_s / own.step_s);
	}
	return 0;
}

static void report_figures(struct bench_report *report, const struct gpt_case *the_case,
                           const struct figures *figures, unsigned rounds)
{
	struct bench_row row = { .name = the_case->name,
		                 .unit = "tokens/s",
		                 .peer_name = "the slower of memory and fio",
		                 .target = TARGET,
		                 .runs = rounds };

	(void)bench_report_add_turns(report, &row, BENCH_RATE, figures->own, figures->bound);
	row.name = the_case->moved_name;
	row.peer_name = "the slower of memory and fio, all bytes";
	(void)bench_report_add_turns(report, &row, BENCH_RATE, figures->own, figures->moved_bound);
	row.name = the_case->in_memory_name;
	row.peer_name = "the same in memory";
	row.target = 0;
	(void)bench_report_add_turns(report, &row, BENCH_RATE, figures->own, figures->in_memory);
}

static int run_case(struct bench_report *report, const struct gpt_case *the_case,
                    const struct step_settings *settings)
{
	struct fio_job fio = { .span_bytes = the_case->span_bytes };
	char size[32], path[320];
	struct harness_options options = { .cpu_capacity = "2G", .nvme_size = size };
	static struct figures figures;
	struct harness harness;
	int r;

	(void)snprintf(size, sizeof size, "%llu", (unsigned long long)the_case->store_bytes);
	if (harness_start(&harness, &options))
		return -1;
	(void)setenv("ZINF_SOCKET", harness.socket_path, 1);
	(void)snprintf(path, sizeof path, "%s/store", harness.directory);
	fio.path = path;
	r = fio_take_span(&fio);
	if (!r)
		r = measure(&figures, the_case, settings, harness.pid, &fio);
	(void)unsetenv("ZINF_SOCKET");
	if (r) {
		harness_remove(&harness);
		return -1;
	}
	report_figures(report, the_case, &figures, settings->rounds);
	return harness_stop(&harness) ? -1 : 0;
}

int step_gpt_rows(struct bench_report *report, const struct step_settings *settings)
{
	int r = 0;

	if (!fio_is_there()) {
		printf("skipped: part gpt needs fio (tools/deps bench)\n");
		return 0;
	}
	/* Quick: the first is small. */
	for (size_t i = 0; i < (settings->is_quick ? 1 : ZI_COUNT_OF(cases)) && !r; i++)
		r = run_case(report, &cases[i], settings);
	return r;
}
