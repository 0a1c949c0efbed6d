/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon running: threads, signals, readiness, watchdog, and the graceful stop. Floor 7, control
 * (main) thread unless said otherwise.
 *
 * Stopping, each step when the one before it is done:
 *   signal ──▶ control accepts nobody ──▶ shard: zero_quiesce (steps that update come to their commit)
 *   ──▶ every session is told -ESTALE and ended ──▶ they have come back ──▶ loops stop, threads join
 * A second signal, or stop_timeout_s, skips the waiting: sessions are told at once and the process
 * leaves without taking itself down. That loses what a crash would lose: nothing that was committed.
 */
#include <errno.h>
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
	if (r) /* Nothing would ever answer again: die, and be restarted at the last commits. */
		_exit(log_error_errno(r, "The loop of shard-0 failed") ? 1 : 1);
	return 0;
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

/* The manager hears of us while both loops turn: this one calls, the shard answered the last pulse. */
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

/* Context: shard thread. */
static void shard_quiesced(void *arg)
{
	struct daemon *daemon = arg;

	sess_shard_stop(daemon->shard.sessions, run_stop_reason);
}

/* Context: shard thread. */
static void shard_stop(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, stop_post);

	zero_quiesce(daemon->shard.zero, shard_quiesced, daemon);
}

static void all_stopped(void *arg)
{
	struct daemon *daemon = arg;

	zi_loop_stop(daemon->loop);
}

static void hurry(struct daemon *daemon);

static void hurry_due(struct zi_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, stop_timer);

	zi_loop_stop(daemon->loop);
}

static void stop_due(struct zi_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, stop_timer);

	log_error("Not stopped after %llu s (daemon.stop_timeout_s): what is under way is discarded",
	          (unsigned long long)daemon->config->stop_timeout_s);
	daemon->is_late = true;
	hurry(daemon);
}

/* Context: shard thread. */
static void shard_hurry(struct zi_post *post)
{
	struct daemon *daemon = container_of(post, struct daemon, stop_post);

	sess_shard_stop(daemon->shard.sessions, run_stop_reason);
}

/* stop_post has run: zero_quiesce() was called before the shard's next turn, and the first signal was
 * seconds, or at least a turn of this loop, ago; if not, it is not posted twice. */
static void hurry(struct daemon *daemon)
{
	static struct zi_post unused;

	(void)unused;
	daemon->is_hurried = true;
	zi_loop_post(daemon->shard.loop, &daemon->stop_post, shard_hurry);
	zi_loop_arm(daemon->loop, &daemon->stop_timer, zi_clock_deadline_ns(RUN_HURRY_NS),
	            hurry_due);
}
