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
#include "zctl/launch/group.h"
#include "zctl/launch/report.h"
#include "zctl/launch/signals.h"
#include "zctl/launch/strays.h"
#include "zctl/launch/tell.h"
#include "zctl/launch/voice.h"

enum phase { PHASE_RUNNING, PHASE_ENDING, PHASE_KILLING, PHASE_DRAINING };

struct supervisor {
	const struct launch_plan *plan;
	struct zi_loop *loop;
	struct launch_group group;
	enum phase phase;
	struct zi_timer grace;
	struct zi_source signal_source, keeper_source;
	int signal_fd, keeper_fd;
	int first_signal; /* that all end for; 0: none */
	uint32_t interrupt_count;
	int32_t culprit;     /* rank that failed first; -1: none */
	bool has_survivors;  /* ranks that it left running */
	bool is_summed_up;   /* the last words have been said */
	bool is_paused;      /* Ctrl-Z */
	bool is_cut;         /* what was printed was not read to its end */
	bool is_keeper_gone; /* nobody is there to be told anything */
	int start_code;      /* a rank could not be started: what we end with; else 0 */
	struct launch_voice voice;
};

static void kill_all(struct supervisor *supervisor)
{
	supervisor->phase = PHASE_KILLING;
	zi_loop_disarm(&supervisor->grace);
	launch_group_signal(&supervisor->group, SIGKILL);
}

static void grace_is_over(struct zi_timer *timer)
{
	struct supervisor *supervisor = container_of(timer, struct supervisor, grace);

	for (uint32_t i = 0; i < supervisor->group.rank_count; i++)
		if (supervisor->group.ranks[i].pid)
			launch_voice_say(&supervisor->voice,
			                 "rank %u (pid %d) did not end within %g s, and is killed",
			                 i, supervisor->group.ranks[i].pid,
			                 supervisor->plan->options->grace_s);
	kill_all(supervisor);
}

/* Asks all to end. One that is stopped must go on for that. */
static void end_all(struct supervisor *supervisor, int number)
{
	launch_group_signal(&supervisor->group, number);
	launch_group_signal(&supervisor->group, SIGCONT);
	if (supervisor->phase != PHASE_RUNNING)
		return;
	supervisor->phase = PHASE_ENDING;
	zi_loop_arm(supervisor->loop, &supervisor->grace,
	            zi_clock_deadline_ns(
			    (uint64_t)(supervisor->plan->options->grace_s * (double)ZI_NS_PER_S)),
	            grace_is_over);
}

/* ---- the beginning ---- */

static void group_is_over(struct supervisor *supervisor);

static void start_failed(struct supervisor *supervisor, int r, const struct zi_text *text)
{
	launch_voice_say(&supervisor->voice, "%s", text->chars);
	supervisor->start_code = r == -ENOENT   ? LAUNCH_EXIT_NOT_FOUND
	                         : r == -EACCES ? LAUNCH_EXIT_NOT_STARTED
	                                        : 1;
	kill_all(supervisor);
	if (!supervisor->group.running_count)
		group_is_over(supervisor);
}

static void start_group(struct supervisor *supervisor)
{
	struct zi_text text = { "" };
	int r;

	supervisor->phase = PHASE_RUNNING;
	supervisor->culprit = -1;
	r = launch_group_start(&supervisor->group, &text);
	if (r)
		start_failed(supervisor, r, &text);
	else if (supervisor->is_paused)
		launch_group_signal(&supervisor->group, SIGSTOP);
}

/* ---- the end ---- */

static void end_strays(struct supervisor *supervisor)
{
	const struct launch_strays strays = {
		.wait_ns = LAUNCH_STRAYS_WAIT_NS,
		.told = launch_tell_stray,
		.arg = &supervisor->voice,
		/* Where all were asked to end, some are just about to. */
		.is_quiet = supervisor->phase != PHASE_RUNNING,
	};

	launch_strays_end(&strays);
}

/* What is worth repeating, below everything that was printed since. */
static void sum_up(struct supervisor *supervisor)
{
	bool is_again = supervisor->is_summed_up;

	supervisor->is_summed_up = true;
	if (!is_again && supervisor->culprit >= 0 && !supervisor->start_code)
		launch_tell_first(&supervisor->voice, &supervisor->group,
		                  (uint32_t)supervisor->culprit, supervisor->has_survivors);
}

static bool wants_restart(const struct supervisor *supervisor)
{
	return supervisor->culprit >= 0 && !supervisor->first_signal && !supervisor->start_code &&
	       !supervisor->is_keeper_gone &&
	       supervisor->group.place.attempt < supervisor->plan->options->restart_max;
}

static void drain(struct supervisor *supervisor)
{
	if (supervisor->phase != PHASE_DRAINING || !launch_group_is_drained(&supervisor->group))
		return;
	if (!supervisor->is_summed_up)
		launch_tell_lost_logs(&supervisor->voice, &supervisor->group);
	if (wants_restart(supervisor)) {
		supervisor->group.place.attempt++;
		launch_voice_say(&supervisor->voice, "starting all %u ranks again (%u of %u)",
		                 supervisor->group.rank_count, supervisor->group.place.attempt,
		                 supervisor->plan->options->restart_max);
		start_group(supervisor);
		return;
	}
	sum_up(supervisor);
	if (launch_voice_is_empty(&supervisor->voice))
		zi_loop_stop(supervisor->loop);
}

/* No rank is left. */
static void group_is_over(struct supervisor *supervisor)
{
	assert(!supervisor->group.running_count);
	zi_loop_disarm(&supervisor->grace);
	end_strays(supervisor);
	supervisor->phase = PHASE_DRAINING;
	launch_group_finish(&supervisor->group);
	if (supervisor->is_keeper_gone)
		zi_loop_stop(supervisor->loop);
	else
		drain(supervisor);
}

static void sink_has_room(struct launch_sink *sink)
{
	struct supervisor *supervisor = sink->arg;

	launch_group_resume(&supervisor->group);
	drain(supervisor);
}

/* The first failure, of those that have ended at this moment. */
static void name_culprit(struct supervisor *supervisor, uint32_t culprit)
{
	supervisor->culprit = (int32_t)culprit;
	supervisor->has_survivors = supervisor->group.running_count != 0;
	launch_tell_failure(&supervisor->voice, &supervisor->group, culprit);
	end_all(supervisor, SIGTERM);
}

static void rank_ended(struct zi_source *source, uint32_t epoll_events)
{
	struct supervisor *supervisor = container_of(source, struct launch_rank, source)->arg;
	int32_t worst = launch_group_reap(&supervisor->group);

	(void)epoll_events;
	if (worst >= 0 && supervisor->phase == PHASE_RUNNING)
		name_culprit(supervisor, (uint32_t)worst);
	if (!supervisor->group.running_count && supervisor->phase != PHASE_DRAINING)
		group_is_over(supervisor);
}

/* ---- signals ---- */

/* Also what the ranks started, as a terminal would. */
static void pause_all(struct supervisor *supervisor, bool is_paused)
{
	supervisor->is_paused = is_paused;
	launch_group_signal(&supervisor->group, is_paused ? SIGSTOP : SIGCONT);
}

static void take_signal(struct supervisor *supervisor, int number)
{
	const struct launch_options *options = supervisor->plan->options;

	if (launch_signal_is_pause(options, number)) {
		pause_all(supervisor, number == SIGTSTP);
		return;
	}
	if (!launch_signal_is_ending(options, number)) {
		/* A program's helpers do not expect what was meant for it, and would die of it. */
		launch_group_signal_leaders(&supervisor->group, number);
		return;
	}
	if (!supervisor->first_signal)
		supervisor->first_signal = number;
	if (supervisor->phase == PHASE_DRAINING) {
		supervisor->is_cut = true;
		zi_loop_stop(supervisor->loop);
		return;
	}
	if (number == SIGINT && ++supervisor->interrupt_count > 1) {
		launch_voice_say(&supervisor->voice, "SIGINT once more: killing the ranks");
		kill_all(supervisor);
		return;
	}
	launch_voice_say(
		&supervisor->voice,
		"SIG%s is passed on to the ranks; those that do not end are killed in %g s",
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
	if (!supervisor->group.running_count)
		zi_loop_stop(supervisor->loop);
}

/* ---- all of it ---- */

/* Exit code, when all is over. */
static int final_code(const struct supervisor *supervisor)
{
	if (supervisor->start_code)
		return supervisor->start_code;
	if (supervisor->culprit >= 0)
		return launch_report_code(supervisor->group.ranks[supervisor->culprit].status);
	/* Asked to end, all ended well: so did we. */
	return supervisor->group.failure_count || supervisor->is_cut
	               ? 128 + supervisor->first_signal
	               : 0;
}

static int watch_others(struct supervisor *supervisor, pid_t keeper)
{
	sigset_t signals;
	int r;

	launch_signals_taken(supervisor->plan->options, &signals);
	supervisor->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
	if (supervisor->signal_fd < 0)
		return err_origin(-errno);
	r = zi_loop_add(supervisor->loop, &supervisor->signal_source, supervisor->signal_fd,
	                EPOLLIN, signals_came);
	if (!r)
		r = zi_pidfd_open(keeper, &supervisor->keeper_fd);
	if (!r)
		r = zi_loop_add(supervisor->loop, &supervisor->keeper_source, supervisor->keeper_fd,
		                EPOLLIN, keeper_went);
	/* Otherwise its id may be another's by now. */
	return !r && getppid() != keeper ? err_origin(-ESRCH) : err_trace(r);
}

/* @place: sinks are ours, the rest is given. */
static int run(struct supervisor *supervisor, struct launch_rank_place *place, pid_t keeper)
{
	int r;

	r = zi_loop_new(&supervisor->loop);
	if (r)
		return err_trace(r);
	launch_voice_init(&supervisor->voice, supervisor->loop, sink_has_room, supervisor);
	place->loop = supervisor->loop;
	place->out = &supervisor->voice.out;
	place->err = supervisor->voice.words;
	place->ended = rank_ended;
	place->arg = supervisor;
	r = launch_group_init(&supervisor->group, place);
	if (!r)
		r = watch_others(supervisor, keeper);
	if (r)
		return err_trace(r);
	start_group(supervisor);
	return err_trace(zi_loop_run(supervisor->loop));
}

static void deinit(struct supervisor *supervisor)
{
	launch_group_deinit(&supervisor->group);
	if (supervisor->phase != PHASE_DRAINING) /* Then those who are left were told of. */
		end_strays(supervisor);
	launch_voice_deinit(&supervisor->voice);
	zi_loop_disarm(&supervisor->grace);
	zi_loop_remove(&supervisor->signal_source);
	zi_loop_remove(&supervisor->keeper_source);
	(void)zi_close(supervisor->signal_fd);
	(void)zi_close(supervisor->keeper_fd);
	(void)zi_loop_free(supervisor->loop);
	free(supervisor);
}

/**
 * launch_supervise() - start the ranks, and see to it that none is left
 * @plan: what they are started with
 * @keeper: the parent of this process, with which everything ends
 * @before: the signals that were blocked before launch_signals_taken()
 *
 * Return: exit code: 0; that of the rank that failed first, or 128 + its signal; 126 or 127 when a
 * program could not be started; 128 + a signal that came to us; 1 for failures of our own.
 * Context: a single-threaded process of its own, launch_signals_taken() blocked.
 */
int launch_supervise(const struct launch_plan *plan, pid_t keeper, const sigset_t *before)
{
	struct supervisor *supervisor = calloc(1, sizeof(*supervisor));
	struct launch_rank_place place = { .plan = plan, .signals = *before };
	int code = 1;
	int r;

	if (!supervisor)
		return 1;
	*supervisor = (struct supervisor){
		.plan = plan,
		.signal_fd = -1,
		.keeper_fd = -1,
		.culprit = -1,
	};
	place.pipe_signal = signal(SIGPIPE, SIG_IGN);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	r = run(supervisor, &place, keeper);
	if (r)
		fprintf(stderr, "zctl: starting ranks failed: %s\n", strerror(-r));
	else
		code = final_code(supervisor);
	deinit(supervisor);
	return code;
}
