/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever goes wrong at whatever call of a GPU's driver, in a rank or in its zinf-gpu, the
 * rank ends with a sentence, or trains to the right bits, or hangs in its own driver and can be
 * killed; zinfd goes on, another job makes its steps, and no descriptor, chunk or charge is left.
 * Method: a real zinfd with zinf-gpu on the fake driver (tests/gpu/fake_gpu.h), and zinf-gpt as the
 * rank. A sound run counts the calls of each entry point, copy and kernel in both processes. Then
 * each call in turn fails with a code, breaks its context, hangs, kills its process, or the GPU
 * vanishes. Faults of ranks meet one zinfd after the other; a fault of zinf-gpu has one of its own.
 * Usage: check_gpu_faults [--seed N] [--seconds N: draws cases until so much time is over]
 *                         [--only SIDE:KIND=PLACE[:CALL[:CODE]]]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/faults/faults.h"
#include "tests/faults/gpu/gpu_faults.h"
#include "tests/guard/guard.h"
#include "tests/harness/option.h"
#include "tests/harness/patience.h"

#define GPU "gpus=1,bytes=64M"
/* A victim that hangs in its driver is given up then: twice its own deadline. */
#define HANG_MS     2000u
#define SOUND_MS    60000u
#define KEPT_FDS    4u  /* of a daemon: of its zinf-gpu, and what its first victim makes it open */
#define VICTIMS_MAX 24u /* victims of one zinfd before it stops, and all of it is looked at */

struct kind {
	const char *name;
	bool has_code;
};

static const struct kind kinds[] = {
	{ "fail", true },  { "sticky", true },  { "hang", false },
	{ "kill", false }, { "vanish", false },
};
#define KIND_COUNT ZI_COUNT_OF(kinds)

struct fault {
	const struct gpu_side *side;
	const struct gpu_site *site;
	uint32_t nth, kind;
};

struct check {
	uint64_t seed;
	struct gpu_faults faults;
	struct gpu_side rank, worker;
	struct neighbour neighbour; /* of the faults of ranks */
	bool has_daemon;
	uint32_t victim_count; /* of this daemon */
	uint32_t case_counts[2];
	const char *only; /* NULL: all */
};

/* Documented in gpu_faults.h. */
bool gpu_faults_says(bool is_right, const char *words, const char *detail)
{
	if (!is_right)
		printf("check-gpu-faults: %s: %s\n", words, detail);
	return is_right;
}

/* ---- the calls of a sound run ---- */

static bool read_trace(const struct gpu_faults *faults, const char *name, struct gpu_side *ret_side)
{
	struct gpu_side side = { .name = name };
	char path[300], place[48];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", faults->directory, name); /* Fits. */
	file = fopen(path, "re");
	while (file && fscanf(file, "%47s", place) == 1) {
		uint32_t i = 0;

		while (i < side.site_count && strcmp(side.sites[i].place, place) != 0)
			i++;
		if (i == GPU_SITES_MAX)
			break;
		side.site_count += i == side.site_count;
		memcpy(side.sites[i].place, place, sizeof(place));
		if (side.sites[i].call_count == GPU_CALLS_MAX)
			continue;
		side.sites[i].call_count++;
		side.call_count++;
	}
	if (file)
		(void)fclose(file);
	*ret_side = side;
	return gpu_faults_says(side.site_count > 10, "a trace without calls", path);
}

static bool count_calls(struct check *check)
{
	struct gpu_faults *faults = &check->faults;
	char worker[400], rank[400];
	bool is_right;

	(void)snprintf(worker, sizeof(worker), GPU ",trace=%s/worker", faults->directory);
	(void)snprintf(rank, sizeof(rank), GPU ",trace=%s/rank", faults->directory);
	is_right = gpu_faults_refer(faults) && gpu_faults_start(faults, worker) &&
	           gpu_faults_note(faults) &&
	           gpu_faults_says(gpu_faults_run(faults, rank, SOUND_MS * patience()) ==
	                                   GPU_END_SOUND,
	                           "a sound victim is not sound", faults->said) &&
	           gpu_faults_is_clean(faults, false) && gpu_faults_halt(faults);
	return is_right && read_trace(faults, "rank", &check->rank) &&
	       read_trace(faults, "worker", &check->worker);
}

/* ---- a fault ---- */

/* "fail=cuMemMap:3:2". Codes by the call, so that each comes. */
static void write_rule(const struct fault *fault, char *rule, size_t capacity)
{
	static const int codes[] = { 2, 1, 700, 999 };
	const struct kind *kind = &kinds[fault->kind];
	int count =
		snprintf(rule, capacity, "%s=%s:%u", kind->name, fault->site->place, fault->nth);

	if (kind->has_code)
		(void)snprintf(rule + count, capacity - (size_t)count, ":%d",
		               codes[fault->nth % ZI_COUNT_OF(codes)]);
}

/* Whether the victim may end like that. */
static bool is_allowed(struct gpu_faults *faults, const struct fault *fault, enum gpu_end end)
{
	const char *name = kinds[fault->kind].name;
	bool is_own = !strcmp(fault->side->name, "rank");

	faults->sound_count += end == GPU_END_SOUND;
	faults->told_count += end == GPU_END_TOLD;
	faults->killed_count += end == GPU_END_KILLED;
	faults->hung_count += end == GPU_END_HUNG;
	switch (end) {
	case GPU_END_SOUND:
	case GPU_END_TOLD:
		return true;
	case GPU_END_KILLED:
		return is_own && !strcmp(name, "kill");
	case GPU_END_HUNG:
		return is_own && !strcmp(name, "hang");
	default:
		return false;
	}
}

static bool start_sound(struct check *check)
{
	struct gpu_faults *faults = &check->faults;
	struct trainer_settings settings;

	if (check->has_daemon)
		return true;
	if (!gpu_faults_start(&check->faults, GPU))
		return false;
	check->has_daemon = true;
	check->victim_count = 0;
	settings = ranks_settings(&check->faults.harness, "neighbour", 1);
	if (neighbour_start(&check->neighbour, &settings) || !neighbour_steps(&check->neighbour))
		return gpu_faults_says(false, "no neighbour", "at the start");
	if (!gpu_faults_note(faults) ||
	    !gpu_faults_says(gpu_faults_run(faults, GPU, SOUND_MS * patience()) == GPU_END_SOUND,
	                     "a sound victim is not sound", faults->said))
		return false;
	/* The first victim shows what a daemon keeps open for good. */
	faults->fd_counts[0] += KEPT_FDS;
	faults->fd_counts[1] += KEPT_FDS;
	return gpu_faults_is_clean(faults, true) && gpu_faults_note(faults);
}

static bool stop_sound(struct check *check)
{
	if (!check->has_daemon)
		return true;
	check->has_daemon = false;
	return gpu_faults_says(neighbour_stop(&check->neighbour), "the neighbour has other bits",
	                       "") &&
	       gpu_faults_halt(&check->faults);
}

/* In the rank: the daemon, its zinf-gpu and the neighbour are those of the cases before. */
static bool run_rank_case(struct check *check, const struct fault *fault, const char *rule)
{
	struct gpu_faults *faults = &check->faults;
	bool hangs = !strcmp(kinds[fault->kind].name, "hang");
	char words[256];
	enum gpu_end end;

	if (!start_sound(check))
		return false;
	(void)snprintf(words, sizeof(words), GPU ",%s", rule);
	end = gpu_faults_run(faults, words, (hangs ? HANG_MS : SOUND_MS) * patience());
	return gpu_faults_says(is_allowed(faults, fault, end), "a victim must not end so",
	                       faults->said) &&
	       gpu_faults_is_clean(faults, true) &&
	       gpu_faults_says(neighbour_steps(&check->neighbour), "the neighbour was disturbed",
	                       rule) &&
	       (++check->victim_count < VICTIMS_MAX || stop_sound(check));
}

/* In zinf-gpu: of a daemon of its own, which is asked by a job without a GPU as well. */
static bool run_worker_case(struct check *check, const struct fault *fault, const char *rule)
{
	struct gpu_faults *faults = &check->faults;
	struct trainer_settings settings;
	struct neighbour neighbour;
	char words[256];
	enum gpu_end end;
	bool is_right;

	if (!stop_sound(check))
		return false;
	(void)snprintf(words, sizeof(words), GPU ",%s", rule);
	if (!gpu_faults_start(faults, words))
		return false;
	settings = ranks_settings(&faults->harness, "neighbour", 1);
	if (neighbour_start(&neighbour, &settings) || !neighbour_steps(&neighbour))
		return gpu_faults_says(false, "no neighbour", rule);
	is_right = gpu_faults_note(faults);
	/* A second job meets what the first one left. */
	for (uint32_t i = 0; i < 2 && is_right; i++) {
		end = gpu_faults_run(faults, GPU, SOUND_MS * patience());
		is_right = gpu_faults_says(is_allowed(faults, fault, end),
		                           "a victim must not end so", faults->said);
		faults->fd_counts[0] += i ? 0 : KEPT_FDS;
		is_right = is_right && gpu_faults_is_clean(faults, false);
	}
	is_right = is_right && gpu_faults_says(neighbour_steps(&neighbour),
	                                       "the neighbour was disturbed", rule);
	is_right =
		gpu_faults_says(neighbour_stop(&neighbour), "the neighbour has other bits", rule) &&
		is_right;
	return gpu_faults_halt(faults) && is_right;
}

/* "rank:hang=kernel" means all calls, "rank:hang=kernel:1" not the tenth. */
static bool is_asked(const struct check *check, const char *name)
{
	size_t length = check->only ? strlen(check->only) : 0;

	return !check->only ||
	       (!strncmp(name, check->only, length) && (!name[length] || name[length] == ':'));
}

static bool run_case(struct check *check, const struct fault *fault)
{
	bool is_rank = fault->side == &check->rank;
	char rule[128], name[160];
	bool is_right;

	write_rule(fault, rule, sizeof(rule));
	(void)snprintf(name, sizeof(name), "%s:%s", fault->side->name, rule); /* Fits. */
	if (!is_asked(check, name))
		return true;
	is_right =
		is_rank ? run_rank_case(check, fault, rule) : run_worker_case(check, fault, rule);
	check->case_counts[!is_rank]++;
	return gpu_faults_says(is_right, "FAILED at --only", name);
}

/* ---- which ---- */

static bool run_all(struct check *check)
{
	const struct gpu_side *const sides[] = { &check->rank, &check->worker };

	for (size_t s = 0; s < ZI_COUNT_OF(sides); s++)
		for (uint32_t i = 0; i < sides[s]->site_count; i++)
			for (uint32_t nth = 1; nth <= sides[s]->sites[i].call_count; nth++)
				for (uint32_t kind = 0; kind < KIND_COUNT; kind++)
					if (!run_case(check, &(struct fault){ sides[s],
					                                      &sides[s]->sites[i],
					                                      nth, kind }))
						return false;
	return true;
}

/* A place, then one of its calls: a place with few of them is as likely as others. */
static struct fault draw(const struct check *check, uint32_t index)
{
	uint64_t state = faults_mix(check->seed * 1000003 + index);
	/* A fault of zinf-gpu takes three times as long. */
	const struct gpu_side *side = index % 4 == 3 ? &check->worker : &check->rank;
	const struct gpu_site *site = &side->sites[state % side->site_count];

	return (struct fault){ .side = side,
		               .site = site,
		               .nth = 1 + (uint32_t)(state >> 16) % site->call_count,
		               .kind = (uint32_t)(state >> 48) % KIND_COUNT };
}

static bool run_drawn(struct check *check, uint64_t seconds)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(seconds * ZI_NS_PER_S);

	for (uint32_t i = 0; zi_clock_now_ns() < deadline_ns; i++) {
		struct fault fault = draw(check, i);

		if (!run_case(check, &fault))
			return false;
	}
	return true;
}

int main(int count, char **words)
{
	static struct check check;
	struct gpu_faults *faults = &check.faults;
	uint64_t started_ns = zi_clock_now_ns();
	uint64_t seconds = option_number(count, words, "--seconds", 0);
	bool is_right;

	check.seed = option_number(count, words, "--seed", 1);
	for (int i = 1; i + 1 < count; i++)
		if (!strcmp(words[i], "--only"))
			check.only = words[i + 1];
	(void)setvbuf(stdout, NULL, _IOLBF, 0); /* Else it is told later. */
	is_right = mkdtemp(guard_path(faults->directory, sizeof(faults->directory), "gpu")) &&
	           count_calls(&check) &&
	           (seconds ? run_drawn(&check, seconds) : run_all(&check)) && stop_sound(&check);
	if (!is_right) {
		harness_print_log(&faults->harness);
		harness_remove(&faults->harness);
	}
	/* Victims that were killed leave unfinished files, too. The guard tells what stays. */
	(void)harness_remove_folder(faults->directory);
	printf("check-gpu-faults: seed %llu: %u faults of a rank (of %llu calls at %u places) and "
	       "%u of a zinf-gpu (%llu at %u): %u times a sentence, %u times nobody noticed, %u "
	       "times killed, %u times hung, in %.1f s: %s\n",
	       (unsigned long long)check.seed, check.case_counts[0],
	       (unsigned long long)check.rank.call_count, check.rank.site_count,
	       check.case_counts[1], (unsigned long long)check.worker.call_count,
	       check.worker.site_count, faults->told_count, faults->sound_count,
	       faults->killed_count, faults->hung_count,
	       (double)(zi_clock_now_ns() - started_ns) / (double)ZI_NS_PER_S,
	       is_right ? "nothing left" : "FAILED");
	return !is_right;
}
