/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: one thread, one epoll loop, in which everything arrives: ends of ranks (pidfds),
 * what they print (pipes), signals, the end of the grace, the end of the keeper.
 *
 *              one failed, or a signal           grace is over, or 2nd Ctrl-C
 *    RUNNING ───────────────────────▶ ENDING ───────────────────────▶ KILLING
 *     ▲   │ all have ended              │ all have ended                 │
 *     │   └────────────▶ DRAINING ◀─────┴────────────────────────────────┘
 *     │ again               │ what they printed has been passed on
 *     └─────────────────────┴────────────▶ over
 *
 * Between ENDING and DRAINING whatever the ranks had started and left is killed, so that nobody of
 * one attempt meets the next.
 */
#include "zctl/launch/supervise.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "zctl/launch/rank.h"
#include "zctl/launch/report.h"
#include "zctl/launch/strays.h"

enum phase { PHASE_RUNNING, PHASE_ENDING, PHASE_KILLING, PHASE_DRAINING };

struct supervisor {
	const struct launch_plan *plan;
	struct launch_rank_place place; /* attempt, loop, sinks */
	struct launch_rank *ranks;      /* (rank_count,) */
	uint32_t rank_count, running_count;
	enum phase phase;
	struct zi_timer grace;
	struct zi_source signal_source, keeper_source;
	int signal_fd, keeper_fd;
	int first_signal; /* that all end for; 0: none */
	uint32_t interrupt_count;
	int32_t culprit;     /* rank that failed first; -1: none */
	bool has_failure;    /* of any rank, whyever */
	bool has_survivors;  /* ranks that the culprit left running */
	bool is_keeper_gone; /* nobody is there to be told anything */
	int start_code;      /* a rank could not be started: what we end with; else 0 */
	struct launch_sink out, err;
};

/* A sentence of ours on a line of its own. */
static __attribute__((format(printf, 2, 3))) void say(struct supervisor *supervisor,
                                                      const char *format, ...)
{
	char line[2 * ZI_TEXT_BYTES];
	va_list arguments;
	size_t bytes;

	va_start(arguments, format);
	(void)vsnprintf(line, sizeof(line) - 1, format, arguments); /* Cut: still a sentence. */
	va_end(arguments);
	bytes = strlen(line);
	line[bytes++] = '\n';
	launch_sink_put(&supervisor->err, "zctl: ", 6);
	launch_sink_put(&supervisor->err, line, bytes);
	launch_sink_flush(&supervisor->err);
}

static void signal_all(const struct supervisor *supervisor, int number)
{
	for (uint32_t i = 0; i < supervisor->rank_count; i++)
		launch_rank_signal_all(&supervisor->ranks[i], number);
}

static void kill_all(struct supervisor *supervisor)
{
	supervisor->phase = PHASE_KILLING;
	zi_loop_disarm(&supervisor->grace);
	signal_all(supervisor, SIGKILL);
}

static void grace_is_over(struct zi_timer *timer)
{
	struct supervisor *supervisor = container_of(timer, struct supervisor, grace);

	for (uint32_t i = 0; i < supervisor->rank_count; i++)
		if (supervisor->ranks[i].pid)
			say(supervisor, "rank %u (pid %d) did not end within %g s, and is killed",
			    i, supervisor->ranks[i].pid, supervisor->plan->options->grace_s);
	kill_all(supervisor);
}

/* Asks all to end. One that is stopped must go on for that. */
static void end_all(struct supervisor *supervisor, int number)
{
	signal_all(supervisor, number);
	signal_all(supervisor, SIGCONT);
	if (supervisor->phase != PHASE_RUNNING)
		return;
	supervisor->phase = PHASE_ENDING;
	zi_loop_arm(supervisor->place.loop, &supervisor->grace,
	            zi_clock_deadline_ns(
			    (uint64_t)(supervisor->plan->options->grace_s * (double)ZI_NS_PER_S)),
	            grace_is_over);
}

/* ---- the beginning ---- */

static void rank_ended(struct zi_source *source, uint32_t epoll_events);
static void group_is_over(struct supervisor *supervisor);

static void start_failed(struct supervisor *supervisor, int r, const struct zi_text *text)
{
	say(supervisor, "%s", text->chars);
	supervisor->start_code = r == -ENOENT   ? LAUNCH_EXIT_NOT_FOUND
	                         : r == -EACCES ? LAUNCH_EXIT_NOT_STARTED
	                                        : 1;
	kill_all(supervisor);
	if (!supervisor->running_count)
		group_is_over(supervisor);
}

static void start_group(struct supervisor *supervisor)
{
	struct zi_text text = { "" };
	int r;

	supervisor->phase = PHASE_RUNNING;
	supervisor->culprit = -1;
	supervisor->has_failure = false;
	r = launch_logs_make(&supervisor->plan->logs, supervisor->place.attempt,
	                     supervisor->rank_count, &text);
	for (uint32_t i = 0; i < supervisor->rank_count && !r; i++) {
		r = launch_rank_start(&supervisor->ranks[i], &supervisor->place, &text);
		supervisor->running_count += supervisor->ranks[i].pid != 0;
	}
	if (r)
		start_failed(supervisor, r, &text);
}

/* ---- the end ---- */

static void tell_stray(void *arg, pid_t pid, const char *name)
{
	say(arg, "process %d (%s) was left behind by a rank, and is killed", pid, name);
}

static bool is_drained(const struct supervisor *supervisor)
{
	for (uint32_t i = 0; i < supervisor->rank_count; i++)
		if (!launch_stream_is_over(&supervisor->ranks[i].out) ||
		    !launch_stream_is_over(&supervisor->ranks[i].err))
			return false;
	return true;
}

/* What is worth repeating, below everything that was printed since. */
static void sum_up(struct supervisor *supervisor)
{
	struct zi_text text;

	if (supervisor->culprit < 0 || supervisor->start_code)
		return;
	if (launch_report_error(&supervisor->plan->logs, supervisor->place.attempt,
	                        (uint32_t)supervisor->culprit, &text))
		say(supervisor, "rank %d says: %s", supervisor->culprit, text.chars);
	launch_report_end(&supervisor->ranks[supervisor->culprit], &text);
	if (supervisor->has_survivors)
		say(supervisor, "failed first: %s", text.chars);
}

static bool wants_restart(const struct supervisor *supervisor)
{
	return supervisor->culprit >= 0 && !supervisor->first_signal && !supervisor->start_code &&
	       !supervisor->is_keeper_gone &&
	       supervisor->place.attempt < supervisor->plan->options->restart_max;
}

static void drain(struct supervisor *supervisor)
{
	if (supervisor->phase != PHASE_DRAINING || !is_drained(supervisor))
		return;
	if (wants_restart(supervisor)) {
		supervisor->place.attempt++;
		say(supervisor, "starting all %u ranks again (%u of %u)", supervisor->rank_count,
		    supervisor->place.attempt, supervisor->plan->options->restart_max);
		start_group(supervisor);
	} else if (launch_sink_is_empty(&supervisor->out) &&
	           launch_sink_is_empty(&supervisor->err)) {
		zi_loop_stop(supervisor->place.loop);
	}
}

/* No rank is left. */
static void group_is_over(struct supervisor *supervisor)
{
	assert(!supervisor->running_count);
	zi_loop_disarm(&supervisor->grace);
	/* Where all were asked to end, some are just about to. */
	launch_strays_end(supervisor->phase == PHASE_RUNNING ? tell_stray : NULL, supervisor);
	supervisor->phase = PHASE_DRAINING;
	for (uint32_t i = 0; i < supervisor->rank_count; i++) {
		launch_stream_finish(&supervisor->ranks[i].out);
		launch_stream_finish(&supervisor->ranks[i].err);
	}
	if (supervisor->is_keeper_gone) {
		zi_loop_stop(supervisor->place.loop);
		return;
	}
	if (!wants_restart(supervisor))
		sum_up(supervisor);
	drain(supervisor);
}

static void sink_has_room(struct launch_sink *sink)
{
	struct supervisor *supervisor = sink->arg;

	for (uint32_t i = 0; i < supervisor->rank_count; i++) {
		launch_stream_resume(&supervisor->ranks[i].out);
		launch_stream_resume(&supervisor->ranks[i].err);
	}
	drain(supervisor);
}

/* The first failure, of those that have ended at this moment. */
static void name_culprit(struct supervisor *supervisor, uint32_t culprit)
{
	struct zi_text text;

	supervisor->culprit = (int32_t)culprit;
	supervisor->has_survivors = supervisor->running_count != 0;
	launch_report_end(&supervisor->ranks[culprit], &text);
	say(supervisor, "%s%s", text.chars, supervisor->running_count ? "; ending the others" : "");
	end_all(supervisor, SIGTERM);
}

static void rank_ended(struct zi_source *source, uint32_t epoll_events)
{
	const struct launch_rank *first = container_of(source, struct launch_rank, source);
	struct supervisor *supervisor = container_of(first->ended_place, struct supervisor, place);
	int32_t worst = -1;

	(void)epoll_events;
	for (uint32_t i = 0; i < supervisor->rank_count; i++) {
		struct launch_rank *rank = &supervisor->ranks[i];

		if (!launch_rank_has_ended(rank))
			continue;
		launch_rank_reap(rank);
		supervisor->running_count--;
		if (!rank->status)
			continue;
		supervisor->has_failure = true;
		if (worst < 0 ||
		    launch_report_is_worse(rank->status, supervisor->ranks[worst].status))
			worst = (int32_t)i;
	}
	if (worst >= 0 && supervisor->phase == PHASE_RUNNING)
		name_culprit(supervisor, (uint32_t)worst);
	if (!supervisor->running_count && supervisor->phase != PHASE_DRAINING)
		group_is_over(supervisor);
}

/* ---- signals ---- */

static bool is_ending(const struct launch_options *options, int number)
{
	for (size_t i = 0; options->signals[i]; i++)
		if (options->signals[i] == number)
			return true;
	return false;
}

static void take_signal(struct supervisor *supervisor, int number)
{
	const struct launch_options *options = supervisor->plan->options;

	if (!is_ending(options, number)) {
		/* A program's helpers do not expect what was meant for it, and would die of it. */
		for (uint32_t i = 0; i < supervisor->rank_count; i++)
			launch_rank_signal(&supervisor->ranks[i], number);
		return;
	}
	if (!supervisor->first_signal)
		supervisor->first_signal = number;
	if (supervisor->phase == PHASE_DRAINING) {
		zi_loop_stop(supervisor->place.loop); /* Nobody reads what was printed. */
		return;
	}
	if (number == SIGINT && ++supervisor->interrupt_count > 1) {
		say(supervisor, "SIGINT once more: killing the ranks");
		kill_all(supervisor);
		return;
	}
	say(supervisor, "SIG%s is passed on to the ranks; those that do not end are killed in %g s",
	    sigabbrev_np(number), options->grace_s);
	end_all(supervisor, number);
}

static void signals_came(struct zi_source *source, uint32_t epoll_events)
{
	struct supervisor *supervisor = container_of(source, struct supervisor, signal_source);
	struct signalfd_siginfo info;

	(void)epoll_events;
	while (read(supervisor->signal_fd, &info, sizeof(info)) == sizeof(info))
		take_signal(supervisor, (int)info.ssi_signo);
}

static void keeper_went(struct zi_source *source, uint32_t epoll_events)
{
	struct supervisor *supervisor = container_of(source, struct supervisor, keeper_source);

	(void)epoll_events;
	zi_loop_remove(&supervisor->keeper_source);
	supervisor->is_keeper_gone = true;
	kill_all(supervisor);
	if (!supervisor->running_count)
		zi_loop_stop(supervisor->place.loop);
}

/* See supervise.h. */
void launch_signals(const struct launch_options *options, sigset_t *ret_signals)
{
	static const int passed[] = LAUNCH_SIGNALS_PASSED;

	(void)sigemptyset(ret_signals);
	for (size_t i = 0; options->signals[i]; i++)
		(void)sigaddset(ret_signals, options->signals[i]);
	for (size_t i = 0; i < ZI_COUNT_OF(passed); i++)
		(void)sigaddset(ret_signals, passed[i]);
}

/* ---- all of it ---- */

/* Exit code, when all is over. */
static int final_code(const struct supervisor *supervisor)
{
	if (supervisor->start_code)
		return supervisor->start_code;
	if (supervisor->culprit >= 0)
		return launch_report_code(supervisor->ranks[supervisor->culprit].status);
	/* Asked to end, all ended well: so did we. */
	return supervisor->has_failure ? 128 + supervisor->first_signal : 0;
}

static int watch_others(struct supervisor *supervisor, pid_t keeper)
{
	sigset_t signals;
	int r;

	launch_signals(supervisor->plan->options, &signals);
	supervisor->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
	if (supervisor->signal_fd < 0)
		return err_origin(-errno);
	r = zi_loop_add(supervisor->place.loop, &supervisor->signal_source, supervisor->signal_fd,
	                EPOLLIN, signals_came);
	if (!r)
		r = zi_pidfd_open(keeper, &supervisor->keeper_fd);
	if (!r)
		r = zi_loop_add(supervisor->place.loop, &supervisor->keeper_source,
		                supervisor->keeper_fd, EPOLLIN, keeper_went);
	/* Otherwise its id may be another's by now. */
	return !r && getppid() != keeper ? err_origin(-ESRCH) : err_trace(r);
}

static int run(struct supervisor *supervisor, pid_t keeper)
{
	struct zi_loop *loop = supervisor->place.loop;
	int r;

	launch_sink_init(&supervisor->out, loop, STDOUT_FILENO);
	launch_sink_init(&supervisor->err, loop, STDERR_FILENO);
	supervisor->out.has_room = supervisor->err.has_room = sink_has_room;
	supervisor->out.arg = supervisor->err.arg = supervisor;
	for (uint32_t i = 0; i < supervisor->rank_count; i++) {
		struct launch_rank *rank = &supervisor->ranks[i];

		rank->index = i;
		rank->ended_place = &supervisor->place;
		rank->pidfd = rank->out.fd = rank->err.fd = -1;
		rank->out.log_fd = rank->err.log_fd = -1;
	}
	r = watch_others(supervisor, keeper);
	if (!r) {
		start_group(supervisor);
		r = zi_loop_run(loop);
	}
	return err_trace(r);
}

static void deinit(struct supervisor *supervisor)
{
	signal_all(supervisor, SIGKILL);
	for (uint32_t i = 0; i < supervisor->rank_count; i++) {
		launch_rank_reap(&supervisor->ranks[i]);
		launch_stream_stop(&supervisor->ranks[i].out);
		launch_stream_stop(&supervisor->ranks[i].err);
	}
	launch_strays_end(NULL, NULL);
	launch_sink_deinit(&supervisor->out);
	launch_sink_deinit(&supervisor->err);
	zi_loop_disarm(&supervisor->grace);
	zi_loop_remove(&supervisor->signal_source);
	zi_loop_remove(&supervisor->keeper_source);
	(void)zi_close(supervisor->signal_fd);
	(void)zi_close(supervisor->keeper_fd);
	(void)zi_loop_free(supervisor->place.loop);
	free(supervisor->ranks);
	free(supervisor);
}

/**
 * launch_supervise() - start the ranks, and see to it that none is left
 * @plan: what they are started with
 * @keeper: the parent of this process, with which everything ends
 * @before: the signals that were blocked before launch_signals()
 *
 * Return: exit code: 0; that of the rank that failed first, or 128 + its signal; 126 or 127 when a
 * program could not be started; 128 + a signal that came to us; 1 for failures of our own.
 * Context: a single-threaded process of its own, launch_signals() blocked.
 */
int launch_supervise(const struct launch_plan *plan, pid_t keeper, const sigset_t *before)
{
	struct supervisor *supervisor = calloc(1, sizeof(*supervisor));
	int code = 1;
	int r;

	if (!supervisor)
		return 1;
	*supervisor = (struct supervisor){
		.plan = plan,
		.rank_count = plan->options->rank_count,
		.place = { .plan = plan, .ended = rank_ended, .signals = *before },
		.signal_fd = -1,
		.keeper_fd = -1,
		.culprit = -1,
	};
	supervisor->place.pipe_signal = signal(SIGPIPE, SIG_IGN);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	r = zi_loop_new(&supervisor->place.loop);
	supervisor->place.out = &supervisor->out;
	supervisor->place.err = &supervisor->err;
	supervisor->ranks = calloc(supervisor->rank_count, sizeof(*supervisor->ranks));
	if (!r && !supervisor->ranks)
		r = err_origin(-ENOMEM);
	if (!r)
		r = run(supervisor, keeper);
	if (r)
		fprintf(stderr, "zctl: starting ranks failed: %s\n", strerror(-r));
	else
		code = final_code(supervisor);
	deinit(supervisor);
	return code;
}
