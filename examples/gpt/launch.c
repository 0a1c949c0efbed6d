/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --ranks N: this process becomes the parent of N ranks. When one fails, its name and its end are
 * reported, the others are ended, and with --restarts all are started again under a new
 * incarnation: the daemon then knows that the former ones are over, and the job goes on at its
 * last commit. A rank that has not ended --grace seconds after SIGTERM is killed.
 *
 * The parent blocks the signals that end the run and reads them from a descriptor, beside the ends
 * of the ranks (pidfds). SIGCHLD would not do: a thread of a library that does not block it takes
 * it away.
 */
#include "examples/gpt/launch.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/gpt/args_strategy.h"
#include "examples/gpt/clock.h"
#include "examples/gpt/complaint.h"
#include "examples/gpt/interrupt.h"
#include "examples/gpt/replicas.h"
#include "examples/gpt/use.h"

/* The parent looks after the ranks at least so often. */
#define PAUSE_MS 1000

struct launch {
	const struct gpt_args *args;
	struct gpt_board *board;
	uint32_t process_count;     /* one for each rank; with --strategy dp one for all */
	pid_t pids[ZINF_WORLD_MAX]; /* 0: not running */
	int pidfds[ZINF_WORLD_MAX]; /* -1: not running */
	char incarnation[ZINF_NAME_BYTES];
	uint64_t start_ticks; /* of the parent: with its pid, a name that never comes again */
	uint32_t running_count;
	int32_t culprit; /* the rank that failed first; -1: none */
	int culprit_status;
	bool has_told[ZINF_WORLD_MAX]; /* the complaint of this rank was printed, or is none */
	sigset_t former_mask;          /* the ranks' */
	int signal_fd;                 /* of the parent */
	int end_signal;                /* that ended the run; 0: none */
	bool is_ending;                /* the ranks were told to end, */
	uint64_t kill_ns;              /* and are killed then; 0: they were */
};

/* Signals that end the run, unless they were ignored when it was started (nohup). */
static const int end_signals[] = { SIGINT, SIGTERM, SIGHUP };

/* Before the first rank is started: a signal stays pending until it is read. Return: 0, -errno. */
static int block_signals(struct launch *launch)
{
	struct sigaction former;
	sigset_t awaited;

	(void)signal(SIGCHLD, SIG_DFL); /* If it was ignored, no rank could be waited for. */
	(void)sigemptyset(&awaited);
	for (size_t i = 0; i < sizeof(end_signals) / sizeof(end_signals[0]); i++)
		if (!sigaction(end_signals[i], NULL, &former) && former.sa_handler != SIG_IGN)
			(void)sigaddset(&awaited, end_signals[i]);
	launch->signal_fd = signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK);
	if (launch->signal_fd < 0)
		return -errno;
	(void)sigprocmask(SIG_BLOCK, &awaited, &launch->former_mask);
	return 0;
}

static void unblock_signals(struct launch *launch)
{
	(void)close(launch->signal_fd);
	(void)sigprocmask(SIG_SETMASK, &launch->former_mask, NULL);
}

/* Field 22 of /proc/self/stat, counted after the name, which may hold anything. 0 when
 * unreadable. */
static uint64_t own_start_ticks(void)
{
	char text[1024] = "";
	unsigned long long ticks = 0;
	const char *field;
	FILE *file = fopen("/proc/self/stat", "re");
	size_t count;

	if (!file)
		return 0;
	count = fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	text[count] = '\0';
	field = strrchr(text, ')');
	for (unsigned i = 2; field && i < 22; i++) {
		field = strchr(field, ' ');
		field = field ? field + 1 : NULL;
	}
	if (!field || sscanf(field, "%llu", &ticks) != 1)
		return 0;
	return ticks;
}

/* In the child: what the parent waits for is not the rank's, nor a program's that it starts. */
static void close_inherited(const struct launch *launch)
{
	(void)close(launch->signal_fd);
	for (uint32_t rank = 0; rank < launch->process_count; rank++)
		if (launch->pidfds[rank] >= 0)
			(void)close(launch->pidfds[rank]);
}

/* In the child: the variables a launcher sets, then the rank's life. */
static int child_main(const struct launch *launch, uint32_t rank, uint32_t restart, pid_t parent,
                      gpt_rank_fn rank_main, void *arg)
{
	struct gpt_args args = *launch->args;
	char text[32];

	close_inherited(launch);
	(void)sigprocmask(SIG_SETMASK, &launch->former_mask, NULL);
	/* Ranks do not outlive their parent; it may have gone between fork() and here. */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
		return GPT_EXIT_ERROR;
	/* For what is called from here; short of memory, nothing works. */
	(void)snprintf(text, sizeof(text), "%u", rank);
	(void)setenv("RANK", text, 1);
	(void)setenv("LOCAL_RANK", text, 1);
	(void)snprintf(text, sizeof(text), "%u", args.world_count);
	(void)setenv("WORLD_SIZE", text, 1);
	(void)setenv("LOCAL_WORLD_SIZE", text, 1);
	args.rank = (int32_t)rank;
	args.restart_index = restart;
	args.restart_max = 0; /* Starting again is the parent's business. */
	/* A name of its own would be a new start, which ends the one that is training. Without it
	 * this one is refused while that lives. */
	if ((!args.incarnation || restart) && !gpt_is_using(&args))
		args.incarnation = launch->incarnation;
	args.is_waiting_for_daemon |= restart > 0; /* It may be what went away. */
	if (launch->process_count < args.world_count)
		return gpt_replicas_main(&args, launch->board, rank_main, arg);
	return rank_main(&args, launch->board, arg);
}

static int start_all(struct launch *launch, uint32_t restart, gpt_rank_fn rank_main, void *arg)
{
	const char *base = launch->args->incarnation;
	pid_t parent = getpid();

	if (base)
		(void)snprintf(launch->incarnation, sizeof(launch->incarnation), "%.40s.%u", base,
		               restart);
	else
		(void)snprintf(launch->incarnation, sizeof(launch->incarnation), "%d-%llu.%u",
		               (int)parent, (unsigned long long)launch->start_ticks, restart);
	launch->culprit = -1;
	launch->is_ending = false;
	memset(launch->has_told, 0, sizeof(launch->has_told));
	gpt_complaints_clear(launch->board);
	(void)fflush(NULL); /* Or children would print what is buffered once more. */
	for (uint32_t rank = 0; rank < launch->process_count; rank++) {
		pid_t pid = fork();

		if (pid < 0)
			return -errno;
		if (pid == 0) {
			int code = child_main(launch, rank, restart, parent, rank_main, arg);

			(void)fflush(NULL);
			_exit(code); /* The parent's atexit handlers are not ours. */
		}
		launch->pids[rank] = pid;
		launch->running_count++;
		/* Where the kernel or a sandbox has none, pause_ms() sees the rank's end later. */
		launch->pidfds[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
	}
	return 0;
}

static void signal_all(const struct launch *launch, int number)
{
	for (uint32_t rank = 0; rank < launch->process_count; rank++)
		if (launch->pids[rank])
			(void)kill(launch->pids[rank], number); /* Ours and not reaped: exists. */
}

/* A rank that is stopped finds its SIGTERM when SIGCONT lets it go on. */
static void end_all(struct launch *launch)
{
	launch->is_ending = true;
	launch->kill_ns = gpt_now_ns() + (uint64_t)(launch->args->grace_s * 1e9) + 1;
	signal_all(launch, SIGTERM);
	signal_all(launch, SIGCONT);
}

static void kill_all(struct launch *launch)
{
	launch->kill_ns = 0;
	signal_all(launch, SIGKILL);
}

static bool is_survivor(int status)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == GPT_EXIT_AGAIN;
}

/* A child has ended. Of those that failed, the one that did not only suffer from another is
 * named. */
static void take_status(struct launch *launch, pid_t pid, int status)
{
	for (uint32_t rank = 0; rank < launch->process_count; rank++) {
		if (launch->pids[rank] != pid)
			continue;
		launch->pids[rank] = 0;
		if (launch->pidfds[rank] >= 0)
			(void)close(launch->pidfds[rank]);
		launch->pidfds[rank] = -1;
		launch->running_count--;
		if (status == 0 || launch->is_ending)
			return;
		if (launch->culprit < 0 ||
		    (is_survivor(launch->culprit_status) && !is_survivor(status))) {
			launch->culprit = (int32_t)rank;
			launch->culprit_status = status;
		}
		return;
	}
}

/* Prints the sentences of ranks that have ended: a running rank may still write its own. */
static void tell_complaints(struct launch *launch)
{
	bool is_one = launch->process_count < launch->args->world_count;
	bool has_ended[ZINF_WORLD_MAX];

	for (uint32_t rank = 0; rank < launch->args->world_count; rank++)
		has_ended[rank] = !launch->pids[is_one ? 0 : rank];
	gpt_complaints_tell(launch->board, launch->args->world_count, has_ended, launch->has_told,
	                    stderr);
}

static void report_culprit(const struct launch *launch)
{
	int status = launch->culprit_status;
	bool is_closed = WIFEXITED(status) && WEXITSTATUS(status) == GPT_EXIT_CLOSED;
	bool is_all = launch->process_count < launch->args->world_count;
	const char *end = is_all || !launch->running_count ? "" : "; ending the others";
	char who[32];

	if (is_closed)
		return; /* The user sees what is there. */
	(void)snprintf(who, sizeof(who), is_all ? "the process of all" : "rank %d",
	               launch->culprit);
	if (WIFSIGNALED(status))
		(void)fprintf(stderr, "zinf-gpt: %s was killed by signal %d (%s)%s\n", who,
		              WTERMSIG(status), strsignal(WTERMSIG(status)), end);
	else
		(void)fprintf(stderr, "zinf-gpt: %s ended with code %d%s\n", who,
		              WEXITSTATUS(status), end);
}

/* Until the next look at the ranks. One without a pidfd is seen then. */
static int pause_ms(const struct launch *launch)
{
	uint64_t now_ns = gpt_now_ns(), rest_ms;

	if (!launch->is_ending || !launch->kill_ns)
		return PAUSE_MS;
	rest_ms = launch->kill_ns > now_ns ? (launch->kill_ns - now_ns) / 1000000 + 1 : 0;
	return rest_ms < PAUSE_MS ? (int)rest_ms : PAUSE_MS;
}

/* Waits for a signal or the end of a rank. Return: the signal; 0: none came. */
static int next_signal(const struct launch *launch)
{
	struct pollfd waits[ZINF_WORLD_MAX + 1];
	struct signalfd_siginfo info;

	for (uint32_t rank = 0; rank < launch->process_count; rank++)
		waits[rank] = (struct pollfd){ .fd = launch->pidfds[rank], .events = POLLIN };
	waits[launch->process_count] = (struct pollfd){ .fd = launch->signal_fd, .events = POLLIN };
	(void)poll(waits, launch->process_count + 1, pause_ms(launch));
	return read(launch->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)
	               ? (int)info.ssi_signo
	               : 0;
}

/* A signal that ends the run; the second one ends it at once. */
static void take_end_signal(struct launch *launch, int number)
{
	if (launch->end_signal) {
		kill_all(launch);
		return;
	}
	launch->end_signal = number;
	end_all(launch);
}

static void reap(struct launch *launch)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		take_status(launch, pid, status);
}

/* Until all have ended. Return: 0 when all ended well; otherwise launch->culprit failed first, or a
 * signal ended the run. */
static int wait_all(struct launch *launch)
{
	while (launch->running_count) {
		int number = next_signal(launch);

		if (number)
			take_end_signal(launch, number);
		reap(launch);
		if (launch->culprit >= 0 && !launch->is_ending) {
			tell_complaints(launch);
			report_culprit(launch);
			end_all(launch);
		}
		if (launch->is_ending && launch->kill_ns && launch->kill_ns <= gpt_now_ns())
			kill_all(launch);
	}
	if (!launch->end_signal)
		tell_complaints(launch);
	return launch->is_ending ? -ECHILD : 0;
}

/* A signal, or a group that broke: worth another try. An error would only come again. */
static bool is_worth_restarting(const struct launch *launch)
{
	return launch->culprit >= 0 &&
	       (WIFSIGNALED(launch->culprit_status) || is_survivor(launch->culprit_status));
}

/*
 * Starts args->world_count ranks and waits for them.
 * @rank_main: called in each child, with args->rank set. Return: exit code of the program.
 */
int gpt_launch(const struct gpt_args *args, gpt_rank_fn rank_main, void *arg)
{
	bool is_one = strcmp(gpt_strategy_name(args), "dp") == 0;
	struct launch launch = { .args = args,
		                 .process_count = is_one ? 1 : args->world_count,
		                 .start_ticks = own_start_ticks() };
	int r;

	assert(args->rank < 0);
	launch.board = mmap(NULL, sizeof(*launch.board), PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (launch.board == MAP_FAILED) {
		(void)fprintf(stderr, "zinf-gpt: mapping a page failed: %s\n", strerror(errno));
		return GPT_EXIT_ERROR;
	}
	memset(launch.pidfds, -1, sizeof(launch.pidfds));
	r = block_signals(&launch);
	if (r) {
		(void)fprintf(stderr, "zinf-gpt: a descriptor for signals failed: %s\n",
		              strerror(-r));
		return GPT_EXIT_ERROR;
	}
	for (uint32_t restart = 0;; restart++) {
		r = start_all(&launch, restart, rank_main, arg);
		if (r) {
			(void)fprintf(stderr, "zinf-gpt: starting a rank failed: %s\n",
			              strerror(-r));
			end_all(&launch);
		}
		r = wait_all(&launch) || r;
		if (!r || launch.end_signal || !is_worth_restarting(&launch) ||
		    restart == args->restart_max)
			break;
		(void)fprintf(stderr, "zinf-gpt: starting all %u ranks again (%u of %u)\n",
		              args->world_count, restart + 1, args->restart_max);
	}
	if (launch.end_signal) {
		gpt_interrupt_tell(args, launch.board, stderr);
		gpt_interrupt_end(launch.end_signal);
	}
	(void)munmap(launch.board, sizeof(*launch.board));
	unblock_signals(&launch);
	if (!r)
		return GPT_EXIT_DONE;
	if (launch.culprit >= 0 && WIFEXITED(launch.culprit_status))
		return WEXITSTATUS(launch.culprit_status);
	return GPT_EXIT_ERROR;
}
