/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon running: threads, signals, readiness, watchdog, and the graceful stop. Floor 7,
 * control (main) thread unless said otherwise.
 *
 * Stopping, each step when the one before it is done:
 *   signal ──▶ control accepts nobody ──▶ shard: zero_quiesce (steps that update come to their
 * commit)
 *   ──▶ every session is told -ESTALE and ended ──▶ they have come back ──▶ loops stop, threads
 * join A second signal, or stop_timeout_s, skips the waiting: sessions are told at once and the
 * process leaves without taking itself down. That loses what a crash would lose: nothing that was
 * committed.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "daemon/daemon.h"
#include "daemon/zero/zero.h"

/* How long the sessions have to hear the news when nothing else is waited for. */
#define RUN_HURRY_NS (200 * ZI_NS_PER_MS)

static const char run_stop_reason[] = "zinfd is stopping";

/* ---- threads ---- */

static int shard_main(void *arg)
{
	struct daemon_shard *shard = arg;
	int r;

	/* Rings, jobs' tables and the engine's memory are touched from one node. */
	if (shard->topo->node_count > 1) {
		r = topo_bind_thread(shard->topo, 0);
		if (r)
			(void)log_warning_errno(r, "Binding shard-0 to its node failed, ignoring");
	}
	r = zi_loop_run(shard->loop);
	if (r) { /* Nothing would ever answer again: die, and be restarted at the last commits. */
		(void)log_error_errno(r, "The loop of shard-0 failed");
		_exit(1);
	}
	return 0;
}

/* Paths that the configuration drains. Context: shard thread. */
static void shard_started(struct zi_post *post)
{
	zero_evacuate(container_of(post, struct daemon, start_post)->shard.zero);
}

/* ---- watchdog ---- */

/* Context: control. */
static void pulse_back(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, pulse);

	daemon->is_pulse_out = false;
}

/* Context: shard thread. */
static void pulse_at_shard(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, pulse);

	zi_loop_post(daemon->loop, &daemon->pulse, pulse_back);
}

/* The manager hears of us while both loops turn: this one calls, the shard answered the last pulse.
 * */
static void watchdog_due(struct zi_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, watchdog_timer);

	if (!daemon->is_pulse_out) {
		notify_send(&daemon->notify, "WATCHDOG=1");
		daemon->is_pulse_out = true;
		zi_loop_post(daemon->shard.loop, &daemon->pulse, pulse_at_shard);
	}
	zi_loop_arm(daemon->loop, &daemon->watchdog_timer,
	            zi_clock_deadline_ns(daemon->notify.watchdog_ns / 3), watchdog_due);
}

/* ---- stopping ---- */

/* Trainers that hear the news may all have left before the last read of a discarded step came back:
 * both are waited for. */
static void stop_when_still(struct daemon *daemon)
{
	if (daemon->is_quiesced && daemon->is_empty)
		zi_loop_stop(daemon->loop);
}

static void control_quiesced(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, stop_post);

	daemon->is_quiesced = true;
	stop_when_still(daemon);
}

/* Context: shard thread. */
static void shard_quiesced(void *arg)
{
	struct daemon *daemon = arg;

	sess_shard_stop(daemon->shard.sessions, run_stop_reason);
	zi_loop_post(daemon->loop, &daemon->stop_post, control_quiesced);
}

/* Context: shard thread. */
static void shard_stop(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, stop_post);

	daemon_cancel_bench(daemon);
	zero_quiesce(daemon->shard.zero, shard_quiesced, daemon);
}

static void all_stopped(void *arg)
{
	struct daemon *daemon = arg;

	daemon->is_empty = true;
	stop_when_still(daemon);
}

static void hurry_due(struct zi_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, stop_timer);

	zi_loop_stop(daemon->loop);
}

/* Context: shard thread. */
static void shard_hurry(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, hurry_post);

	sess_shard_stop(daemon->shard.sessions, run_stop_reason);
}

static void hurry(struct daemon *daemon)
{
	daemon->is_hurried = true;
	zi_loop_post(daemon->shard.loop, &daemon->hurry_post, shard_hurry);
	zi_loop_arm(daemon->loop, &daemon->stop_timer, zi_clock_deadline_ns(RUN_HURRY_NS),
	            hurry_due);
}

static void stop_due(struct zi_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, stop_timer);

	log_error("Not stopped after %llu s (daemon.stop_timeout_s): steps in progress are "
	          "discarded",
	          (unsigned long long)daemon->config->stop_timeout_s);
	daemon->is_late = true;
	hurry(daemon);
}

static void stop(struct daemon *daemon, uint32_t signal_number)
{
	if (daemon->is_hurried)
		return;
	if (daemon->is_stopping) {
		log_warning("SIG%s again: steps in progress are discarded",
		            sigabbrev_np((int)signal_number));
		hurry(daemon);
		return;
	}
	daemon->is_stopping = true;
	log_info("SIG%s: stopping, %u sessions", sigabbrev_np((int)signal_number),
	         sess_control_session_count(daemon->control));
	notify_send(&daemon->notify, "STOPPING=1\nSTATUS=Waiting for steps to be committed");
	zi_loop_arm(daemon->loop, &daemon->stop_timer,
	            zi_clock_deadline_ns(daemon->config->stop_timeout_s * ZI_NS_PER_S), stop_due);
	zi_loop_post(daemon->shard.loop, &daemon->stop_post, shard_stop);
	sess_control_stop(daemon->control, all_stopped, daemon);
}

static void signal_ready(struct zi_source *source, uint32_t epoll_events)
{
	struct daemon *daemon = container_of(source, struct daemon, signal_source);
	struct signalfd_siginfo info;

	(void)epoll_events; /* It has one event. */
	while (read(daemon->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		stop(daemon, info.ssi_signo);
}

/* ---- running ---- */

/* See daemon.h. Context: main thread, before there are others: they inherit what is blocked. */
int daemon_take_signals(struct daemon *daemon)
{
	sigset_t signals;

	(void)sigemptyset(&signals); /* None of these can fail with these arguments. */
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)sigprocmask(SIG_BLOCK, &signals, NULL);
	daemon->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (daemon->signal_fd < 0)
		return err_origin(-errno);
	return 0;
}

/* See daemon.h. The signal stays there for whoever reads it. */
bool daemon_is_told_to_stop(const struct daemon *daemon, int wait_ms)
{
	struct pollfd ready = { .fd = daemon->signal_fd, .events = POLLIN };

	return poll(&ready, 1, wait_ms) > 0;
}

/* Context: shard thread. */
static void shard_end(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, end_post);

	zi_loop_stop(daemon->shard.loop);
}

static void unwatch(struct daemon *daemon)
{
	zi_loop_disarm(&daemon->stop_timer);
	zi_loop_disarm(&daemon->watchdog_timer);
	zi_loop_remove(&daemon->signal_source);
}

/**
 * daemon_run() - from readiness to the end
 * @daemon: made
 * @ready_fd: gets "ready" and is closed; -1: nobody waits there
 *
 * Return: 0 stopped, daemon_free() comes next; 1 stopped in a hurry after stop_timeout_s;
 * -ECANCELED stopped in a hurry because somebody said so. In a hurry threads may still be working:
 * the process can only leave. An errno when threads or signals could not be set up.
 */
int daemon_run(struct daemon *daemon, int ready_fd)
{
	int r;

	r = zi_loop_add(daemon->loop, &daemon->signal_source, daemon->signal_fd, EPOLLIN,
	                signal_ready);
	if (!r)
		r = zi_thread_start(&daemon->shard.thread, "shard-0", shard_main, &daemon->shard);
	if (r) {
		unwatch(daemon);
		return err_trace(r);
	}
	zi_loop_post(daemon->shard.loop, &daemon->start_post, shard_started);
	if (daemon->notify.watchdog_ns)
		watchdog_due(&daemon->watchdog_timer);
	notify_send(&daemon->notify, "READY=1\nSTATUS=Listening at %s", daemon->socket_path);
	if (ready_fd >= 0) {
		/* Whoever waits there sees the end of the file in any case. */
		ssize_t written = write(ready_fd, "ready\n", 6);

		(void)written;
		(void)zi_close(ready_fd); /* Always -1. */
	}
	log_info("zinfd " ZINF_VERSION " listens at %s", daemon->socket_path);
	r = zi_loop_run(daemon->loop);
	if (r) {
		(void)log_error_errno(r, "The control loop failed");
		_exit(1);
	}
	if (daemon->is_hurried)
		return daemon->is_late ? 1 : -ECANCELED;
	/* Behind what connections that ended just now have given back to it. */
	zi_loop_post(daemon->shard.loop, &daemon->end_post, shard_end);
	r = zi_thread_join(&daemon->shard.thread);
	unwatch(daemon);
	return err_trace(r);
}
