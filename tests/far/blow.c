/* SPDX-License-Identifier: Apache-2.0 */
/* Blows of check_crash_nodes (blow.h). */
#include "tests/far/blow.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"

#define WORKERS_MAX 4u

static void describe(struct blow *blow, const struct crew *crew)
{
	static const char *const kinds[_BLOW_COUNT] = {
		[BLOW_RANK] = "SIGKILL of a rank",  [BLOW_WORKER] = "SIGKILL of zinf-net",
		[BLOW_DAEMON] = "SIGKILL of zinfd", [BLOW_NODE] = "SIGKILL of all of a node",
		[BLOW_TERM] = "SIGTERM of zinfd",   [BLOW_STOP] = "SIGSTOP of a node",
		[BLOW_LEAVE] = "a rank leaves",
	};

	(void)snprintf(blow->words, sizeof(blow->words),
	               "%s (node %u, rank %u), %u us after point %u of rank %u at step %lld%s",
	               kinds[blow->kind], blow->node, blow->rank, blow->delay_us, crew->point,
	               crew->point_rank, (long long)crew->point_step,
	               crew->is_waiting ? ", which waits" : "");
}

struct blow blow_draw(struct draw *random, struct crew *crew)
{
	/* Who is gone before nodes have met is missed at a deadline: seldom. */
	bool is_early = crew_acknowledged(crew) < 0 && draw(random, 5) == 0;
	struct blow blow = { .kind = (enum blow_kind)draw(random, _BLOW_COUNT),
		             .rank = (uint32_t)draw(random, crew->kind.world) };

	int64_t stood;

	blow.node = crew_node_of(crew, blow.rank);
	blow.stop_ms = 100 + (uint32_t)draw(random, 3000);
	crew->point_rank = draw(random, 2) ? blow.rank : (uint32_t)draw(random, crew->kind.world);
	crew->point = is_early ? TRAINER_ATTACHED + (enum trainer_point)draw(random, 6)
	                       : TRAINER_STEP_BEGUN +
	                                 (enum trainer_point)draw(
						 random, _TRAINER_PLAIN_COUNT - TRAINER_STEP_BEGUN);
	/* Of what is not made yet; after the last blow a job may have nothing left to make. */
	stood = ZI_MIN(ZI_MAX(crew_acknowledged(crew), 0), CREW_STEPS - 1);
	crew->point_step = is_early ? 0 : stood + 1 + (int64_t)draw(random, CREW_STEPS - stood);
	if (crew->point == TRAINER_MATERIALIZED)
		crew->point_step = -1;
	if (crew->point == TRAINER_WRITE_BEGUN)
		crew->point_rank = 0;
	blow.delay_us = draw(random, 2) ? (uint32_t)draw(random, 20000) : 0;
	crew->is_waiting = blow.delay_us == 0;
	crew->is_leaving = blow.kind == BLOW_LEAVE;
	if (crew->is_leaving)
		crew->point_rank = blow.rank;
	describe(&blow, crew);
	return blow;
}

/* True at the moment; false when all ranks have ended before. */
static bool await_moment(struct crew *crew)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(CREW_PATIENCE_MS * ZI_NS_PER_MS);
	struct pollfd pollers[1 + CREW_WORLD] = { { .fd = crew->tell_fds[0], .events = POLLIN } };
	uint32_t left_count = crew->kind.world;
	bool is_told = false;
	char byte;

	for (uint32_t i = 0; i < crew->kind.world; i++) {
		pollers[1 + i] = (struct pollfd){ .fd = -1, .events = POLLIN };
		(void)zi_pidfd_open(crew->ranks.pids[i], &pollers[1 + i].fd);
	}
	while (!is_told && left_count &&
	       poll(pollers, 1 + crew->kind.world, zi_clock_poll_ms(deadline_ns)) > 0) {
		is_told = pollers[0].revents & POLLIN && read(crew->tell_fds[0], &byte, 1) == 1;
		for (uint32_t i = 1; i <= crew->kind.world; i++)
			if (pollers[i].revents & POLLIN) {
				pollers[i].fd = zi_close(pollers[i].fd);
				left_count--;
			}
	}
	for (uint32_t i = 1; i <= crew->kind.world; i++)
		(void)zi_close(pollers[i].fd);
	return is_told;
}

/* To all ranks of the node that are there. */
static void signal_ranks(struct crew *crew, uint32_t node, int number)
{
	for (uint32_t i = 0; i < crew->kind.world; i++)
		if (crew_node_of(crew, i) == node && crew->ranks.pids[i])
			(void)kill(crew->ranks.pids[i], number);
}

static void signal_workers(struct crew *crew, uint32_t node, int number)
{
	pid_t pids[WORKERS_MAX];
	uint32_t count = crew_workers(crew, node, pids, WORKERS_MAX);

	for (uint32_t i = 0; i < count; i++)
		(void)kill(pids[i], number);
}

/* Waits, for the time itself is what is tried. A rank that ends meanwhile is no matter. */
static void let_pass_us(uint32_t us)
{
	uint64_t end_ns = zi_clock_now_ns() + us * (ZI_NS_PER_MS / 1000);

	while (zi_clock_now_ns() < end_ns)
		(void)poll(NULL, 0, us >= 10000 ? 1 : 0);
}

static bool fall(struct crew *crew, const struct blow *blow)
{
	struct harness *harness = &crew->harness[blow->node];

	let_pass_us(blow->delay_us);
	switch (blow->kind) {
	case BLOW_RANK:
		(void)kill(crew->ranks.pids[blow->rank], SIGKILL);
		return true;
	case BLOW_WORKER:
		signal_workers(crew, blow->node, SIGKILL);
		return true;
	case BLOW_NODE:
		(void)kill(harness->pid, SIGKILL);
		signal_workers(crew, blow->node, SIGKILL);
		signal_ranks(crew, blow->node, SIGKILL);
		harness_kill(harness);
		return true;
	case BLOW_DAEMON:
		harness_kill(harness);
		return true;
	case BLOW_TERM:
		(void)kill(harness->pid, SIGTERM);
		__atomic_store_n(&crew->diary->is_struck, 1, __ATOMIC_RELEASE);
		return crew_says(harness_await_end(harness) == 0,
		                 "the daemon of node %u did not stop well", blow->node);
	case BLOW_STOP:
		(void)kill(harness->pid, SIGSTOP);
		signal_workers(crew, blow->node, SIGSTOP);
		signal_ranks(crew, blow->node, SIGSTOP);
		__atomic_store_n(&crew->diary->is_struck, 1, __ATOMIC_RELEASE);
		let_pass_us(blow->stop_ms * 1000);
		signal_ranks(crew, blow->node, SIGCONT);
		(void)kill(harness->pid, SIGCONT);
		signal_workers(crew, blow->node, SIGCONT);
		return true;
	case BLOW_LEAVE:
	case _BLOW_COUNT:
		return true;
	}
	return true;
}

/* Only who was hit may have gone; a daemon that was not may not. */
static bool daemons_live(struct crew *crew)
{
	bool is_right = true;

	for (uint32_t i = 0; i < crew->kind.node_count; i++) {
		int status;

		if (!crew->harness[i].pid || waitpid(crew->harness[i].pid, &status, WNOHANG) == 0)
			continue;
		crew->harness[i].pid = 0;
		is_right = crew_says(false, "the daemon of node %u died: status 0x%x", i, status);
	}
	return is_right;
}

bool blow_strike(struct crew *crew, const struct blow *blow, bool *is_in_vain)
{
	int codes[CREW_WORLD];
	bool is_right, is_daemon = blow->kind == BLOW_DAEMON || blow->kind == BLOW_NODE ||
	                           blow->kind == BLOW_TERM;

	__atomic_store_n(&crew->diary->is_struck, 0, __ATOMIC_RELEASE);
	if (!crew_start(crew))
		return false;
	*is_in_vain = !await_moment(crew);
	is_right = *is_in_vain || fall(crew, blow);
	__atomic_store_n(&crew->diary->is_struck, 1, __ATOMIC_RELEASE);
	is_right &= crew_await(crew, codes);
	is_right &= daemons_live(crew);
	crew->is_memory_lost |=
		!*is_in_vain && is_daemon && crew->kind.offload != ZINF_OFFLOAD_NVME;
	for (uint32_t i = 0; i < crew->kind.world && is_right; i++) {
		bool is_victim = (blow->kind == BLOW_RANK && i == blow->rank) ||
		                 (blow->kind == BLOW_NODE && crew_node_of(crew, i) == blow->node);

		is_right = crew_says(is_victim || codes[i] != 1000 + SIGKILL,
		                     "rank %u was killed by somebody else", i) &&
		           /* Patience is longer than that. */
		           crew_says(blow->kind != BLOW_STOP || codes[i] == 0,
		                     "rank %u did not outlive that its node stood: %s", i,
		                     crew->ranks.reports[i]->text);
	}
	return is_right && crew_restart(crew);
}
