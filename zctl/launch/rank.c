/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one rank's process (rank.h). */
#include "zctl/launch/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"

/* How far a child came before its program, told through a pipe that exec closes. */
enum stage { STAGE_PREPARING, STAGE_BINDING, STAGE_STARTING };
struct failure {
	enum stage stage;
	int error;
};

/* The child's ends of what it reads and writes; -1: none. */
struct ends {
	int in, out, err, failure;
};

/* Not running. */
void launch_rank_init(struct launch_rank *rank, uint32_t index)
{
	rank->index = index;
	rank->pid = 0;
	rank->pidfd = rank->out.fd = rank->err.fd = -1;
	rank->out.log_fd = rank->err.log_fd = -1;
}

static void set_variable(void *arg, const char *name, const char *value)
{
	int *result = arg;

	if (setenv(name, value, 1))
		*result = -errno;
}

/* Where the program will find 0, 1 and 2. */
static int put_streams(const struct ends *ends)
{
	if (dup2(ends->in, STDIN_FILENO) < 0 || dup2(ends->out, STDOUT_FILENO) < 0 ||
	    dup2(ends->err, STDERR_FILENO) < 0)
		return -errno;
	return 0;
}

static _Noreturn void fail(const struct ends *ends, enum stage stage, int error)
{
	const struct failure failure = { .stage = stage, .error = error };

	(void)!write(ends->failure, &failure,
	             sizeof(failure)); /* Read short, it is told as such. */
	_exit(LAUNCH_EXIT_NOT_FOUND);
}

/* In the child. */
static _Noreturn void become_program(const struct launch_rank *rank,
                                     const struct launch_rank_place *place, const struct ends *ends,
                                     pid_t supervisor)
{
	const struct launch_plan *plan = place->plan;
	int r = 0;

	/* The supervisor may have gone between fork() and here. */
	if (setpgid(0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL))
		fail(ends, STAGE_PREPARING, -errno);
	if (getppid() != supervisor)
		_exit(LAUNCH_EXIT_NOT_STARTED);
	if (plan->places)
		r = launch_places_bind(plan->places, rank->index);
	if (r)
		fail(ends, STAGE_BINDING, r);
	launch_plan_variables(plan, rank->index, place->attempt, set_variable, &r);
	if (!r)
		r = put_streams(ends);
	if (r)
		fail(ends, STAGE_PREPARING, r);
	(void)signal(SIGPIPE, place->pipe_signal);
	(void)sigprocmask(SIG_SETMASK, &place->signals, NULL);
	(void)execvp(plan->command[0], plan->command);
	fail(ends, STAGE_STARTING, -errno);
}

static int refuse(const struct launch_rank *rank, const struct launch_rank_place *place,
                  const struct failure *failure, struct zi_text *text)
{
	const char *program = place->plan->command[0];
	struct zi_text nodes;

	if (failure->stage == STAGE_BINDING) {
		launch_places_nodes(place->plan->places, rank->index, &nodes);
		return zi_text_error(text, failure->error,
		                     "binding rank %u to NUMA node %.32s failed: %s; "
		                     "--numa-binding none leaves it unbound",
		                     rank->index, nodes.chars, strerror(-failure->error));
	}
	if (failure->stage == STAGE_PREPARING)
		return zi_text_error(text, failure->error, "preparing rank %u failed: %s",
		                     rank->index, strerror(-failure->error));
	return zi_text_error(text, failure->error, "starting '%.128s' failed: %s%s", program,
	                     strerror(-failure->error),
	                     failure->error == -EACCES || failure->error == -ENOEXEC
	                             ? " (a Python script that does not end in .py: python3 SCRIPT)"
	                             : "");
}

/* Until the program runs, or could not be started. */
static int await_start(const struct launch_rank *rank, const struct launch_rank_place *place,
                       int fd, struct zi_text *text)
{
	struct failure failure;
	ssize_t bytes;

	do
		bytes = read(fd, &failure, sizeof(failure));
	while (bytes < 0 && errno == EINTR);
	if (bytes == 0)
		return 0; /* exec closed it; or it was killed, as its end will tell. */
	if (bytes != sizeof(failure))
		failure = (struct failure){ .stage = STAGE_PREPARING, .error = -EIO };
	return refuse(rank, place, &failure, text);
}

/* @file: of the log directory. -1 when no log is wanted. */
static int open_log(const struct launch_rank *rank, const struct launch_rank_place *place,
                    enum launch_std stds, enum launch_std which, const char *file, int *ret_fd,
                    struct zi_text *text)
{
	char path[PATH_MAX];

	*ret_fd = -1;
	if (!(stds & which))
		return 0;
	(void)launch_logs_path(&place->plan->logs, place->attempt, rank->index, file, path);
	*ret_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
	return *ret_fd < 0 ? zi_text_error(text, -errno, "opening %.200s failed: %s", path,
	                                   strerror(errno))
	                   : 0;
}

/* One stream: a file alone, or a pipe to us. @ret_end: the child's end. */
static int open_stream(struct launch_rank *rank, const struct launch_rank_place *place,
                       enum launch_std which, int *ret_end, struct zi_text *text)
{
	const struct launch_options *options = place->plan->options;
	bool is_out = which == LAUNCH_STD_OUT;
	struct launch_sink *sink = is_out ? place->out : place->err;
	_cleanup_(zi_closep) int log_fd = -1;
	int ends[2];
	int r;

	r = open_log(rank, place, options->tees[rank->index] | options->redirects[rank->index],
	             which, is_out ? "stdout.log" : "stderr.log", &log_fd, text);
	if (r)
		return err_trace(r);
	if (log_fd >= 0 && !(options->tees[rank->index] & which)) {
		*ret_end = zi_steal_fd(log_fd);
		return 0;
	}
	if (pipe2(ends, O_CLOEXEC))
		return zi_text_error(text, -errno, "making a pipe failed: %s", strerror(errno));
	r = zi_fd_set_nonblock(ends[0], true);
	if (!r)
		r = launch_stream_start(is_out ? &rank->out : &rank->err, place->loop, ends[0],
		                        zi_steal_fd(log_fd),
		                        options->is_shown[rank->index] ? sink : NULL, rank->index);
	else
		(void)zi_close(ends[0]);
	*ret_end = ends[1];
	return r ? zi_text_error(text, r, "watching a pipe failed: %s", strerror(-r)) : 0;
}

static int open_ends(struct launch_rank *rank, const struct launch_rank_place *place,
                     struct ends *ends, struct zi_text *text)
{
	const struct launch_options *options = place->plan->options;
	/* A rank is in no terminal's foreground: it would be stopped when it reads there. */
	bool has_input = rank->index == 0 && !options->is_without_stdin && !isatty(STDIN_FILENO);
	int r;

	ends->in = has_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
	if (ends->in < 0) /* Also when ours is closed. */
		ends->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (ends->in < 0)
		return zi_text_error(text, -errno, "opening /dev/null failed: %s", strerror(errno));
	r = open_stream(rank, place, LAUNCH_STD_OUT, &ends->out, text);
	if (!r)
		r = open_stream(rank, place, LAUNCH_STD_ERR, &ends->err, text);
	return err_trace(r);
}

static void close_ends(struct ends *ends)
{
	ends->in = zi_close(ends->in);
	ends->out = zi_close(ends->out);
	ends->err = zi_close(ends->err);
	ends->failure = zi_close(ends->failure);
}

/* A rank whose end nobody would hear of does not live: it is reaped when this fails. */
static int watch(struct launch_rank *rank, const struct launch_rank_place *place,
                 struct zi_text *text)
{
	int r = zi_pidfd_open(rank->pid, &rank->pidfd);

	if (!r)
		r = zi_loop_add(place->loop, &rank->source, rank->pidfd, EPOLLIN, place->ended);
	if (!r)
		return 0;
	(void)kill(rank->pid, SIGKILL);
	launch_rank_reap(rank);
	return zi_text_error(text, r, "watching rank %u failed: %s", rank->index, strerror(-r));
}

/**
 * launch_rank_start() - start one rank's program
 * @rank: not running; its index is set
 * @place: what it is started into
 * @text: why not
 *
 * Return: 0; -errno. Its process, if there is one then, is to be reaped in any case.
 */
int launch_rank_start(struct launch_rank *rank, const struct launch_rank_place *place,
                      struct zi_text *text)
{
	struct ends ends = { .in = -1, .out = -1, .err = -1, .failure = -1 };
	_cleanup_(zi_closep) int failure_fd = -1;
	pid_t supervisor = getpid();
	int pair[2];
	int r;

	assert(!rank->pid);
	rank->arg = place->arg;
	if (pipe2(pair, O_CLOEXEC))
		return zi_text_error(text, -errno, "making a pipe failed: %s", strerror(errno));
	failure_fd = pair[0];
	ends.failure = pair[1];
	r = open_ends(rank, place, &ends, text);
	if (r) {
		close_ends(&ends);
		return err_trace(r);
	}
	rank->started_ns = zi_clock_now_ns();
	rank->pid = fork();
	if (!rank->pid)
		become_program(rank, place, &ends, supervisor);
	if (rank->pid < 0) {
		r = zi_text_error(text, -errno, "starting rank %u failed: %s", rank->index,
		                  strerror(errno));
		rank->pid = 0;
		close_ends(&ends);
		return r;
	}
	rank->last_pid = rank->pid;
	(void)setpgid(rank->pid, rank->pid); /* The child does it too: whoever is first. */
	close_ends(&ends);
	r = watch(rank, place, text);
	return r ? err_trace(r) : err_trace(await_start(rank, place, failure_fd, text));
}

/* See rank.h. */
void launch_rank_signal(const struct launch_rank *rank, int number)
{
	/* It is not reaped: its id is still its own, and so is that of its group. */
	if (rank->pid)
		(void)kill(rank->pid, number);
}

/* See rank.h. */
void launch_rank_signal_all(const struct launch_rank *rank, int number)
{
	/* One that made itself a session has left the group. */
	if (rank->pid && kill(-rank->pid, number))
		(void)kill(rank->pid, number);
}

/* See rank.h. */
bool launch_rank_has_ended(struct launch_rank *rank)
{
	siginfo_t info = { 0 };

	if (!rank->pid || waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
	    info.si_pid != rank->pid)
		return false;
	rank->ended_ns = zi_clock_now_ns();
	rank->status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
	return true;
}

/* Waits for it, if need be. */
void launch_rank_reap(struct launch_rank *rank)
{
	if (!rank->pid)
		return;
	zi_loop_remove(&rank->source);
	while (waitpid(rank->pid, &rank->status, 0) < 0 && errno == EINTR)
		;
	rank->pidfd = zi_close(rank->pidfd);
	rank->pid = 0;
}
