/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whoever is killed (SIGKILL), a rank or the daemon, at whatever point, the job stands at a
 * committed step that is not below what any rank was told of, goes on with the blob of that step,
 * and ends in the parameters and norms of an undisturbed run, bit for bit; nothing is left over: no
 * space that no commit names, no memory charged, no file, no process.
 * Method: points are exact, not times: the n-th call of libc of a class (points.h: reads and writes
 * of the store, writes and syncs of the catalog, messages, doorbells, mappings; before, after or in
 * the middle of it), while the daemon starts, serves or stops; the n-th request of its engine,
 * before it goes out or when it is done (the engine's fault injector, over io_uring as well); and
 * the named points of a trainer's protocol. They are drawn from a seed, each by itself, over kinds
 * of jobs that are drawn too (kind.h). Ranks wait for the daemon to return, or are started again as
 * by a launcher. What snapshots keep is loaded into another job, which must end in the same bits.
 * Usage: check_crash [--seed N] [--points N] [--point I]   (I: that one alone)
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/crash/scene.h"
#include "tests/harness/option.h"

/* More of them in vain, and the points are not where the job is. */
#define MISSED_SHARE_MAX 4u
/* Points of each kind of job. */
#define KIND_POINTS 5u

/* Who dies where, and what becomes of the others. */
struct fate {
	char words[200];
	char call[64];     /* of libc, or a rule of the fault injector; "" a point of the trainer */
	bool is_of_daemon; /* who dies */
	uint32_t rank;     /* the victim, or who kills the daemon */
	enum trainer_point at; /* with step: where */
	int64_t step;
	bool is_waiting;  /* ranks wait for the daemon; else they are started again */
	bool is_launched; /* the launcher kills the other ranks with the victim */
	bool is_in_vain;  /* the point was not reached */
};

static const char *const trainer_point_names[_TRAINER_POINT_COUNT] = {
	[TRAINER_BORN] = "before attach",
	[TRAINER_ATTACHED] = "attached",
	[TRAINER_LAID_OUT] = "laid out",
	[TRAINER_MATERIALIZED] = "materialized",
	[TRAINER_WRITE_BEGUN] = "first values begun",
	[TRAINER_WRITTEN] = "first values written",
	[TRAINER_COMMITTED] = "first values committed",
	[TRAINER_STEP_BEGUN] = "step begun",
	[TRAINER_UNSHARDED] = "unsharded",
	[TRAINER_ACQUIRED] = "gradient acquired",
	[TRAINER_REDUCED] = "one gradient reduced",
	[TRAINER_BACKWARD] = "all gradients reduced",
	[TRAINER_STEPPED] = "step called",
	[TRAINER_WAITED] = "step committed",
	[TRAINER_NORMED] = "norm told",
	[TRAINER_WASTED] = "a step to be discarded",
	[TRAINER_DISCARDED] = "a step discarded",
};

/* A class that the undisturbed run used, each as likely as the other, and a call of it. */
static void draw_call(struct draw *random, const struct point_counts *total, struct fate *fate)
{
	static const char *const moments[] = { "", "/after", "/half" };
	enum point_class class;
	bool is_write;

	do {
		class = (enum point_class)draw(random, _POINT_CLASS_COUNT);
	} while (!total->calls[class]);
	is_write = class == POINT_STORE_WRITE || class == POINT_CATALOG_WRITE;
	(void)snprintf(fate->call, sizeof(fate->call), "%s@%llu%s", point_class_names[class],
	               (unsigned long long)(1 + draw(random, total->calls[class])),
	               moments[draw(random, is_write ? 3 : 2)]);
}

/* A request of the engine, before it goes out or when it has come back: with io_uring there is no
 * call between those of one submission. */
static void draw_request(struct draw *random, const struct scene *scene, struct fate *fate)
{
	(void)snprintf(fate->call, sizeof(fate->call), "%s=any@%llu",
	               draw(random, 2) ? "kill" : "kill_done",
	               (unsigned long long)(1 + draw(random, scene->request_total)));
}

/* One that steps of this kind have beside those of every step. */
static void draw_other_point(struct draw *random, const struct kind *kind, struct fate *fate)
{
	bool is_discard = kind->discard_count && (!kind->is_deferred || draw(random, 3));

	fate->at =
		!is_discard ? TRAINER_NORMED : TRAINER_WASTED + (enum trainer_point)draw(random, 2);
	fate->step -= is_discard; /* It comes before the step. */
}

static void draw_trainer_point(struct draw *random, const struct scene *scene, struct fate *fate)
{
	bool is_first = draw(random, 4) == 0;

	fate->rank = (uint32_t)draw(random, scene->kind->world);
	fate->step = is_first ? 0 : 1 + (int64_t)draw(random, SCENE_STEPS);
	fate->at = is_first ? TRAINER_BORN + (enum trainer_point)draw(random, TRAINER_STEP_BEGUN -
	                                                                              TRAINER_BORN)
	                    : TRAINER_STEP_BEGUN +
	                              (enum trainer_point)draw(random, _TRAINER_PLAIN_COUNT -
	                                                                       TRAINER_STEP_BEGUN);
	if (!is_first && (scene->kind->is_deferred || scene->kind->discard_count) &&
	    draw(random, 3) == 0)
		draw_other_point(random, scene->kind, fate);
	if (fate->at == TRAINER_MATERIALIZED)
		fate->step = -1;
	/* Of rank 0 alone, or of whoever is the root of the first unit. */
	if (fate->at == TRAINER_WRITE_BEGUN)
		fate->rank = 0;
}

static struct fate draw_fate(struct draw *random, const struct scene *scene)
{
	struct fate fate = { .is_waiting = draw(random, 3) > 0,
		             .is_launched = draw(random, 2) > 0 };
	bool is_call = draw(random, 3) > 0;

	/* State in memory alone ends with the daemon, as promised. */
	fate.is_of_daemon = scene->kind->offload == ZINF_OFFLOAD_NVME && draw(random, 5) < 3;
	if (is_call && fate.is_of_daemon && scene->request_total && draw(random, 3) == 0) {
		draw_request(random, scene, &fate);
	} else if (is_call && fate.is_of_daemon) {
		draw_call(random, &scene->daemon_total, &fate);
	} else if (is_call) {
		fate.rank = scene->kind->world - 1;
		draw_call(random, &scene->rank_total, &fate);
	} else {
		draw_trainer_point(random, scene, &fate);
	}
	if (fate.call[0])
		(void)snprintf(fate.words, sizeof(fate.words), "%s dies at %s",
		               fate.is_of_daemon ? "the daemon" : "the last rank", fate.call);
	else
		(void)snprintf(fate.words, sizeof(fate.words),
		               "%s dies when rank %u has come to '%s', step %lld",
		               fate.is_of_daemon ? "the daemon" : "it", fate.rank,
		               trainer_point_names[fate.at], (long long)fate.step);
	return fate;
}

static void arm(struct scene *scene, const struct fate *fate)
{
	if (fate->call[0]) {
		if (!fate->is_of_daemon)
			scene->rank_point = fate->call;
		scene->rank_victim = scene->kind->world - 1;
		return;
	}
	scene->rank_victim = fate->rank;
	scene->hook_point = fate->at;
	scene->hook_step = fate->step;
	scene->hook_target = fate->is_of_daemon ? scene->harness.pid : 0;
}

static void disarm(struct scene *scene)
{
	scene->rank_point = NULL;
	scene->hook_point = 0;
}

/* All ranks once more, under a new name; they must end well. */
static bool start_again(struct scene *scene)
{
	disarm(scene);
	scene->ranks.settings.options.incarnation = "second";
	for (uint32_t rank = 0; rank < scene->kind->world; rank++)
		if (!scene_says(ranks_start_one(&scene->ranks, rank) == 0, "no process"))
			return false;
	return scene_says(ranks_join(&scene->ranks) == 0, "going on failed");
}

/* ---- a rank dies ---- */

static bool kill_rank(struct scene *scene, struct fate *fate)
{
	uint32_t victim = scene->rank_victim;
	int code;

	if (!scene->harness.pid && !scene_says(scene_daemon_start(scene, NULL) == 0, "no daemon"))
		return false;
	arm(scene, fate);
	if (!scene_says(ranks_start(&scene->ranks, &scene->settings) == 0, "no ranks"))
		return false;
	victim = scene->rank_victim;
	code = ranks_wait(&scene->ranks, victim);
	fate->is_in_vain = code == 0;
	for (uint32_t rank = 0; rank < scene->kind->world; rank++) {
		if (rank == victim)
			continue;
		/* Whoever waits for one that never came would do so for its full patience. */
		if (!fate->is_in_vain &&
		    (fate->is_launched || scene->ranks.reports[victim]->attach_count == 0))
			(void)kill(scene->ranks.pids[rank], SIGKILL);
		(void)ranks_wait(&scene->ranks, rank); /* As it may: test_death is about that. */
	}
	if (fate->is_in_vain)
		return true;
	if (!scene_says(code == 1000 + SIGKILL, "the victim ended otherwise"))
		return false;
	return start_again(scene);
}

/* ---- the daemon dies ---- */

/* True when it died; false when every rank has ended before. */
static bool await_daemon_or_ranks(const struct scene *scene)
{
	struct pollfd pollers[1 + SCENE_WORLD];
	uint32_t count = 1 + scene->kind->world;
	uint32_t left_count = scene->kind->world;
	bool is_dead = false;

	for (uint32_t i = 0; i < count; i++) {
		pollers[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
		(void)zi_pidfd_open(i ? scene->ranks.pids[i - 1] : scene->harness.pid,
		                    &pollers[i].fd);
	}
	while (!is_dead && left_count && poll(pollers, count, 120000) > 0) {
		is_dead = pollers[0].revents & POLLIN;
		for (uint32_t i = 1; i < count; i++) {
			if (!(pollers[i].revents & POLLIN))
				continue;
			pollers[i].fd = zi_close(pollers[i].fd); /* -1: poll() passes over it. */
			left_count--;
		}
	}
	for (uint32_t i = 0; i < count; i++)
		(void)zi_close(pollers[i].fd);
	return is_dead;
}

/* It outlived the training: it may die while it stops, and the job must be there all the same. */
static bool stop_daemon(struct scene *scene, struct fate *fate)
{
	int code;

	if (!scene_says(ranks_join(&scene->ranks) == 0, "nobody died, and a rank failed"))
		return false;
	code = harness_halt(&scene->harness);
	fate->is_in_vain = code == 0;
	if (!scene_says(code == 0 || code == 1000 + SIGKILL, "the daemon stopped otherwise") ||
	    !scene_says(scene_daemon_start(scene, NULL) == 0, "no daemon"))
		return false;
	return start_again(scene);
}

/* How long it takes until it is ready is told, not judged: other programs share the machine. */
static bool restart(struct scene *scene)
{
	uint64_t started_ns = zi_clock_now_ns();

	if (!scene_says(scene_daemon_start(scene, NULL) == 0, "the daemon does not start again"))
		return false;
	scene->restart_ns = ZI_MAX(scene->restart_ns, zi_clock_now_ns() - started_ns);
	return true;
}

static bool kill_daemon(struct scene *scene, struct fate *fate)
{
	bool is_dead = false;
	bool is_ended = true;

	if (fate->call[0] && scene->harness.pid &&
	    !scene_says(harness_halt(&scene->harness) == 0, "the daemon did not stop"))
		return false;
	if (fate->call[0])
		is_dead = scene_daemon_start(scene, fate->call) != 0;
	else if (!scene->harness.pid &&
	         !scene_says(scene_daemon_start(scene, NULL) == 0, "no daemon"))
		return false;
	arm(scene, fate);
	scene->settings.options.wait_for_daemon = fate->is_waiting || is_dead;
	scene->settings.restart_max = fate->is_waiting ? 3 : 0;
	if (!scene_says(ranks_start(&scene->ranks, &scene->settings) == 0, "no ranks"))
		return false;
	if (!is_dead && !await_daemon_or_ranks(scene))
		is_ended = false;
	if (!is_ended && scene->ranks.reports[0]->is_dumped)
		return stop_daemon(scene, fate);
	if (!is_dead && !scene_says(harness_await_end(&scene->harness) == 1000 + SIGKILL,
	                            "the daemon ended otherwise"))
		return false;
	if (!restart(scene))
		return false;
	if (fate->is_waiting || is_dead)
		return scene_says(ranks_join(&scene->ranks) == 0, "going on failed");
	for (uint32_t rank = 0; rank < scene->kind->world; rank++)
		(void)ranks_wait(&scene->ranks, rank); /* -ESTALE; or it was done. */
	return start_again(scene);
}

/* ---- all of it ---- */

static bool run_point(struct scene *scene, uint64_t seed, uint32_t point, uint32_t *missed_count)
{
	struct draw random = { seed * 0x100000001b3ull + point };
	struct fate fate;
	bool is_right;

	scene_reset(scene);
	scene->settings.options.wait_for_daemon = false;
	scene->settings.restart_max = 0;
	(void)draw(&random, 2);
	fate = draw_fate(&random, scene);
	scene->is_daemon_victim = fate.is_of_daemon;
	is_right = fate.is_of_daemon ? kill_daemon(scene, &fate) : kill_rank(scene, &fate);
	is_right = is_right && scene_is_right(scene);
	*missed_count += fate.is_in_vain;
	if (is_right && !getenv("VERBOSE"))
		return true;
	fprintf(stderr, "point %u of seed %llu (%s): %s%s%s: %s\n", point, (unsigned long long)seed,
	        scene->kind->words, fate.words,
	        fate.is_of_daemon && fate.is_waiting ? ", ranks wait for it" : "",
	        fate.is_in_vain ? " (not reached)" : "", is_right ? "right" : "FAILED");
	if (is_right)
		return true;
	fprintf(stderr, "repeat with: make check-crash SEED=%llu POINT=%u\n",
	        (unsigned long long)seed, point);
	harness_print_log(&scene->harness);
	return false;
}

int main(int count, char **words)
{
	uint64_t seed = option_number(count, words, "--seed", 1);
	uint32_t point_count = (uint32_t)option_number(count, words, "--points", 25);
	uint32_t only = (uint32_t)option_number(count, words, "--point", UINT32_MAX);
	uint64_t started_ns = zi_clock_now_ns();
	uint64_t restart_ns = 0;
	uint32_t run_count = 0, missed_count = 0;
	bool is_right = true;

	for (uint32_t point = 0; point < point_count && is_right; point += KIND_POINTS) {
		struct kind kind = kind_draw(seed, point / KIND_POINTS);
		uint32_t end = ZI_MIN(point + KIND_POINTS, point_count);
		struct scene scene;

		if (only != UINT32_MAX && only / KIND_POINTS != point / KIND_POINTS)
			continue;
		is_right = scene_open(&scene, &kind);
		for (uint32_t i = point; i < end && is_right; i++) {
			if (only != UINT32_MAX && i != only)
				continue;
			is_right = run_point(&scene, seed, i, &missed_count);
			run_count++;
		}
		if (is_right && !scene.harness.pid)
			is_right = scene_says(scene_daemon_start(&scene, NULL) == 0, "no daemon");
		restart_ns = ZI_MAX(restart_ns, scene.restart_ns);
		is_right &= scene_close(&scene);
		if (!is_right)
			fprintf(stderr, "check_crash: kind %u of seed %llu: %s\n",
			        point / KIND_POINTS, (unsigned long long)seed, kind.words);
	}
	if (is_right && missed_count * MISSED_SHARE_MAX > run_count)
		is_right = scene_says(false, "too many points were never reached");
	printf("check-crash: seed %llu: %u points, %u of them not reached, killed daemons ready "
	       "after %.2f s at most, in %.1f s: %s\n",
	       (unsigned long long)seed, run_count, missed_count,
	       (double)restart_ns / (double)ZI_NS_PER_S,
	       (double)(zi_clock_now_ns() - started_ns) / (double)ZI_NS_PER_S,
	       is_right ? "nothing lost, nothing left over" : "FAILED");
	return is_right ? 0 : 1;
}
