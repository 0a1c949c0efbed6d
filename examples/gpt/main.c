/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-gpt: trains a GPT on text, its state kept by zinfd (or, with --reference, without it).
 *
 * One process becomes one rank (started by zctl launch, torchrun, srun, mpirun),
 * the parent of --ranks N, or the reference.
 */
#include <assert.h>
#include <cblas.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "examples/gpt/args_deepspeed.h"
#include "examples/gpt/args_device.h"
#include "examples/gpt/clock.h"
#include "examples/gpt/complaint.h"
#include "examples/gpt/console.h"
#include "examples/gpt/interrupt.h"
#include "examples/gpt/launch.h"
#include "examples/gpt/once.h"
#include "examples/gpt/staged.h"
#include "examples/gpt/train.h"
#include "examples/gpt/use.h"
#include "zinf/zinf.h"

/* Between two looks whether the other ranks have left: of a group that broke, or of a job that is
 * to be deleted. */
#define LEAVE_PAUSE_NS 20000000

struct program {
	const struct gpt_model *model;
	const struct gpt_corpus *corpus;
};

/*
 * OpenBLAS reads its environment when it is loaded, so what it must know is set for a second start
 * of this program. One thread: the rank's team calls OpenBLAS for each part of a product (team.h).
 * Core type: OpenBLAS 0.3.21 takes the AVX2 kernels on CPUs newer than itself;
 * with AVX-512 the SkylakeX ones are twice as fast. Whoever set the variable keeps it.
 */
static void start_with_blas_environment(char **argv)
{
	bool is_changed = false;

	if (getenv("ZINF_GPT_STARTED"))
		return;
	if (!getenv("OPENBLAS_NUM_THREADS"))
		is_changed |= setenv("OPENBLAS_NUM_THREADS", "1", 0) == 0;
#ifdef __x86_64__
	__builtin_cpu_init();
	if (!getenv("OPENBLAS_CORETYPE") && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		is_changed |= setenv("OPENBLAS_CORETYPE", "SkylakeX", 0) == 0;
#endif
	if (is_changed && setenv("ZINF_GPT_STARTED", "1", 1) == 0)
		(void)execv("/proc/self/exe", argv); /* If that fails: slower, but right. */
}

/* Until args->timeout_s have passed since @begin_ns. Return: whether there is time for another
 * try. */
static bool pause_for_others(const struct gpt_args *args, uint64_t begin_ns)
{
	const struct timespec pause = { .tv_nsec = LEAVE_PAUSE_NS };

	if (gpt_now_ns() - begin_ns > args->timeout_s * 1000000000ull)
		return false;
	(void)nanosleep(&pause, NULL); /* Cut short by a signal is fine. */
	return true;
}

/* Whether this is the first rank of its node, as launchers say: each node's daemon has a part of
 * the job, and is asked to delete it. Ranks of one process (dp) are on one node, and its variables
 * are those of rank 0. */
static bool is_first_of_node(const struct gpt_backend *backend)
{
	static const char *const names[][2] = {
		{ "RANK", "LOCAL_RANK" },
		{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK" },
		{ "SLURM_PROCID", "SLURM_LOCALID" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *rank = getenv(names[i][0]), *local = getenv(names[i][1]);

		if (rank && local && atoi(rank) == backend->rank_first)
			return atoi(local) == 0;
	}
	return backend->rank_first == 0;
}

/* When it is alone on its node. */
static int delete_job(const struct gpt_args *args, struct gpt_board *shared,
                      struct gpt_backend *backend)
{
	uint64_t begin_ns = gpt_now_ns();
	struct gpt_problem problem;
	int r;

	do {
		r = backend->ops->destroy(backend);
	} while (r == -EBUSY && pause_for_others(args, begin_ns));
	if (r) {
		(void)gpt_problem_set(&problem, r, "deleting the job failed: %s",
		                      backend->ops->error_text(backend));
		gpt_complain(args, shared, &problem);
		backend->ops->close(backend);
	}
	return r;
}

static int train_with(const struct gpt_args *args, struct gpt_board *board, bool is_board_shared,
                      const struct program *program, struct gpt_backend *backend)
{
	struct gpt_run run = { .args = args,
		               .model = program->model,
		               .corpus = program->corpus,
		               .board = board,
		               .is_board_shared = is_board_shared };
	struct gpt_problem problem = { "" };
	int r, deleted;

	r = gpt_is_using(args) ? gpt_use(&run, backend, &problem)
	                       : gpt_train(&run, backend, &problem);
	if (r < 0)
		gpt_complain(args, is_board_shared ? board : NULL, &problem);
	if (r < 0 || !args->is_deleting_job || !is_first_of_node(backend)) {
		backend->ops->close(backend);
		return r;
	}
	deleted = delete_job(args, is_board_shared ? board : NULL, backend);
	return r ? r : deleted;
}

/* Attaches and trains once. @is_rejoin: wait for the other ranks of the broken group to leave. */
static int train_once(struct gpt_args *args, struct gpt_board *board, bool is_board_shared,
                      const struct program *program, bool is_rejoin)
{
	uint64_t begin_ns = gpt_now_ns();
	struct gpt_backend *backend = NULL;
	struct gpt_device *device = NULL;
	struct gpt_problem problem = { "" };
	int r = gpt_device_of(args, &problem, &device);

	if (!r) {
		do {
			r = gpt_zinf_open(args, program->model, device, &problem, &backend);
		} while (r == -EBUSY && is_rejoin && pause_for_others(args, begin_ns));
	}
	if (r)
		gpt_complain(args, is_board_shared ? board : NULL, &problem);
	else
		r = train_with(args, board, is_board_shared, program, backend);
	gpt_device_close(device);
	return r;
}

/* A new start is worth a try after a broken group, and after a wait that timed out: then another
 * rank hangs. */
static int exit_code(int error)
{
	if (error == GPT_CONSOLE_E_CLOSED)
		return GPT_EXIT_CLOSED;
	return error == -ESTALE || error == -EPIPE || error == -ETIMEDOUT ? GPT_EXIT_AGAIN
	                                                                  : GPT_EXIT_ERROR;
}

/* The life of one rank; with --restarts it rejoins under the same incarnation, which forms anew. */
static int rank_main(const struct gpt_args *given, struct gpt_board *board, void *arg)
{
	const struct program *program = arg;
	struct gpt_args args = *given;
	static struct gpt_board own_board; /* Started by a launcher: nobody shares one. */
	int r;

	assert(args.rank >= 0);
	if (!board && args.rank == 0 && gpt_interrupt_watch(given, &own_board))
		(void)fprintf(stderr, "zinf-gpt: no thread to wait for Ctrl-C, ignoring\n");
	for (;;) {
		r = train_once(&args, board ? board : &own_board, board != NULL, program,
		               args.restart_index > 0);
		if ((r != -ESTALE && r != -EPIPE) || args.restart_index >= args.restart_max)
			break;
		args.restart_index++;
		args.is_waiting_for_daemon = true;
		(void)fprintf(stderr, "zinf-gpt: rank %d: attaching again (%u of %u)\n", args.rank,
		              args.restart_index, args.restart_max);
	}
	return r ? exit_code(r) : GPT_EXIT_DONE;
}

static int reference_main(const struct gpt_args *args, const struct program *program)
{
	static struct gpt_board board;
	struct gpt_problem problem = { "" };
	struct gpt_backend *backend = NULL;
	struct gpt_device *device = NULL;
	int r = gpt_device_of(args, &problem, &device);

	if (!r) {
		backend = gpt_reference_open(args, program->model, &problem);
		r = backend ? 0 : -ENOMEM;
	}
	if (!r && device)
		r = gpt_staged_wrap(backend, args, program->model, device, &problem);
	if (r) {
		gpt_complain(args, NULL, &problem);
		if (backend)
			backend->ops->close(backend);
	} else {
		r = train_with(args, &board, true, program, backend);
	}
	gpt_device_close(device);
	return r ? GPT_EXIT_ERROR : GPT_EXIT_DONE;
}

static int load_text(const struct gpt_args *args, struct gpt_corpus *corpus,
                     struct gpt_problem *problem)
{
	if (args->generate_count)
		return 0; /* It makes its own. */
	if (args->eval)
		return gpt_corpus_read(corpus, "--eval", args->eval, problem);
	return gpt_corpus_load(corpus, args->data, args->model.sequence_count, problem);
}

static int run(struct gpt_args *args)
{
	struct gpt_problem problem = { "" };
	struct gpt_corpus corpus = { 0 };
	struct gpt_model model = { 0 };
	struct program program = { .model = &model, .corpus = &corpus };
	int code = GPT_EXIT_ERROR;

	if (gpt_model_init(&model, &args->model, &problem) || load_text(args, &corpus, &problem) ||
	    (args->is_once && gpt_once_plan(args, &corpus, &problem)))
		gpt_complain(args, NULL, &problem);
	else if (args->is_reference)
		code = reference_main(args, &program);
	else if (args->rank >= 0)
		code = rank_main(args, NULL, &program);
	else
		code = gpt_launch(args, rank_main, &program);
	gpt_corpus_unload(&corpus);
	gpt_model_deinit(&model);
	return code;
}

static int show_text(const struct gpt_args *args)
{
	struct gpt_problem problem = { "" };
	int r;

	if (args->is_help)
		gpt_args_help(stdout);
	else
		(void)printf("zinf-gpt %s\n", zinf_version());
	r = gpt_console_flush(&problem);
	if (r < 0)
		(void)fprintf(stderr, "zinf-gpt: %s\n", problem.chars);
	return r ? exit_code(r) : GPT_EXIT_DONE;
}

int main(int argc, char **argv)
{
	struct gpt_problem problem = { "" };
	struct gpt_args args;

	gpt_console_open();
	if (gpt_args_parse(&args, argc, (const char *const *)argv, &problem) ||
	    (!args.is_help && gpt_args_environment(&args, &problem))) {
		(void)fprintf(stderr, "zinf-gpt: %s\n", problem.chars);
		return GPT_EXIT_USAGE;
	}
	if (args.is_help || args.is_version)
		return show_text(&args);
	start_with_blas_environment(argv);
	/* Told once: by rank 0, or by the parent of ranks that are not started yet. */
	if (gpt_deepspeed_apply(&args, args.rank <= 0 && !args.restart_index ? stderr : NULL,
	                        &problem)) {
		(void)fprintf(stderr, "zinf-gpt: %s\n", problem.chars);
		return GPT_EXIT_USAGE;
	}
	openblas_set_num_threads(1);
	(void)signal(SIGPIPE, SIG_IGN); /* A reader that goes away ends a line, not the training. */
	(void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	return run(&args);
}
