/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of check_crash (scene.h). */
#include "tests/crash/scene.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"

const struct scene_kind scene_kinds[] = {
	{ .words = "bf16, 2 ranks, NVMe by threads",
	  .world = 2,
	  .dtype = ZINF_BF16,
	  .offload = ZINF_OFFLOAD_NVME,
	  .backend = "threads",
	  .max_norm = 1 },
	{ .words = "fp32, 1 rank, NVMe by io_uring, partly resident, durability power",
	  .world = 1,
	  .dtype = ZINF_F32,
	  .offload = ZINF_OFFLOAD_NVME,
	  .durability = ZINF_DURABILITY_POWER,
	  .backend = "auto",
	  .resident_bytes = 2 << 20 },
	{ .words = "bf16, 2 ranks, NVMe by threads, durability power, 2 micro-batches, eager",
	  .world = 2,
	  .dtype = ZINF_BF16,
	  .offload = ZINF_OFFLOAD_NVME,
	  .durability = ZINF_DURABILITY_POWER,
	  .schedule = ZINF_SHARDED,
	  .backend = "threads",
	  .accumulate = 2,
	  .is_eager = true },
	{ .words = "bf16, 1 rank, NVMe by io_uring, partly resident, a step that is skipped",
	  .world = 1,
	  .dtype = ZINF_BF16,
	  .offload = ZINF_OFFLOAD_NVME,
	  .backend = "auto",
	  .resident_bytes = 1 << 20,
	  .infinite_step = 3 },
	{ .words = "fp32, 2 ranks, state in memory",
	  .world = 2,
	  .dtype = ZINF_F32,
	  .offload = ZINF_OFFLOAD_CPU,
	  .max_norm = 1,
	  .backend = "auto" },
};
const uint32_t scene_kind_count = sizeof(scene_kinds) / sizeof(*scene_kinds);

/* ---- what ranks do ---- */

static void note_committed(struct scene_diary *diary, const struct trainer *trainer)
{
	uint32_t rank = trainer->rank;
	int64_t step = trainer->report->step;
	double norm = trainer->report->stats[step].norm;
	double *place = &diary->norms[rank][step];

	if (step > diary->acknowledged[rank])
		diary->acknowledged[rank] = step;
	if (*place == 0)
		*place = norm;
	else if (memcmp(place, &norm, sizeof(norm)) != 0 && !(isnan(norm) && isnan(*place)))
		diary->is_another = true;
}

static void hook(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct scene *scene = arg;
	struct scene_diary *diary = scene->diary;
	uint32_t rank = trainer->rank;

	if (point == TRAINER_BORN && scene->rank_point && rank == scene->rank_victim &&
	    !trainer->start_count && !points_arm(scene->rank_point, &diary->counts[rank]))
		_exit(125);
	if (point == TRAINER_MATERIALIZED) {
		diary->is_lost |= trainer->step < diary->acknowledged[rank];
		diary->is_ahead |= trainer->step > diary->acknowledged[rank] + 1;
	}
	if (point == TRAINER_COMMITTED && diary->acknowledged[rank] < 0)
		diary->acknowledged[rank] = 0;
	if (point == TRAINER_WAITED)
		note_committed(diary, trainer);
	if (point == scene->hook_point && trainer->step == scene->hook_step &&
	    rank == scene->rank_victim && !trainer->start_count)
		(void)kill(scene->hook_target ? scene->hook_target : getpid(), SIGKILL);
}

static struct trainer_settings settings_of(struct scene *scene)
{
	const struct scene_kind *kind = scene->kind;
	struct trainer_settings settings = ranks_settings(&scene->harness, "crash", kind->world);

	settings.options.param_dtype = settings.options.grad_dtype = kind->dtype;
	settings.options.offload_optimizer = kind->offload;
	settings.options.durability = kind->durability;
	if (kind->schedule)
		settings.options.schedule = kind->schedule;
	settings.options.resident_bytes = kind->resident_bytes;
	if (kind->offload == ZINF_OFFLOAD_NVME)
		settings.options.staging_bytes = 8 << 20;
	settings.step.max_norm = kind->max_norm;
	settings.step.want_norm = true;
	settings.step.skip_nonfinite = kind->infinite_step != 0;
	settings.accumulate = kind->accumulate ? kind->accumulate : 1;
	settings.infinite_step = kind->infinite_step;
	settings.is_eager = kind->is_eager;
	settings.steps = SCENE_STEPS;
	settings.hook = hook;
	settings.hook_arg = scene;
	return settings;
}

/* ---- the daemon ---- */

static bool map_counts(struct scene *scene, char *path, size_t capacity)
{
	int fd;

	(void)snprintf(path, capacity, "%s/state/points", scene->harness.directory);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(struct point_counts)))
		return false;
	scene->daemon_counts =
		mmap(NULL, sizeof(struct point_counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)zi_close(fd);
	return scene->daemon_counts != MAP_FAILED;
}

int scene_daemon_start(struct scene *scene, const char *point)
{
	const char *build = getenv("ZINF_BUILD");
	char path[300];

	scene->harness.options.environment = NULL;
	scene->harness.options.is_quiet = point && *point;
	if (point) {
		if (!scene->daemon_counts && !map_counts(scene, path, sizeof(path)))
			return -EIO;
		(void)snprintf(path, sizeof(path), "%s/state/points", scene->harness.directory);
		*scene->daemon_counts = (struct point_counts){ 0 };
		(void)snprintf(scene->environment[0], sizeof(scene->environment[0]),
		               "LD_PRELOAD=%s/tests/crash/points.so",
		               build ? build : "build/release");
		(void)snprintf(scene->environment[1], sizeof(scene->environment[1]),
		               POINT_ENVIRONMENT "=%s", point);
		(void)snprintf(scene->environment[2], sizeof(scene->environment[2]),
		               POINT_COUNT_ENVIRONMENT "=%s", path);
		for (uint32_t i = 0; i < 3; i++)
			scene->environment_list[i] = scene->environment[i];
		scene->harness.options.environment = scene->environment_list;
	}
	return harness_restart(&scene->harness);
}

/* ---- what is asked ---- */

static bool says(bool is_right, const char *words)
{
	if (!is_right)
		fprintf(stderr, "check_crash: %s\n", words);
	return is_right;
}

static uint64_t number_of(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* Bytes of @key over tiers of @kind. */
static uint64_t tier_bytes(struct scene *scene, const char *kind, const char *key)
{
	json_t *tiers = harness_admin(&scene->harness, "tiers");
	uint64_t bytes = 0;

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *tier = json_array_get(tiers, i);

		if (!strcmp(json_string_value(json_object_get(tier, "kind")), kind))
			bytes += number_of(tier, key);
	}
	json_decref(tiers);
	return bytes;
}

/* What the job's commit names. */
static uint64_t named_bytes(struct scene *scene)
{
	static const char *const planes[] = { "param", "state" };
	json_t *jobs = harness_admin(&scene->harness, "jobs");
	uint64_t bytes = 0;

	for (size_t i = 0; i < json_array_size(jobs); i++)
		for (size_t plane = 0; plane < 2; plane++)
			bytes += number_of(
				json_object_get(json_object_get(json_array_get(jobs, i), "held"),
			                        planes[plane]),
				"nvme_bytes");
	json_decref(jobs);
	return bytes;
}

/* Nothing lies in the daemon's directory that does not belong there. */
static bool has_stray_files(struct scene *scene)
{
	static const char *const names[] = { ".", "..", "catalog.db", "catalog.db-wal", "points" };
	char path[300];
	struct dirent *entry;
	bool is_stray = false;
	DIR *directory;

	(void)snprintf(path, sizeof(path), "%s/state", scene->harness.directory);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		bool is_known = false;

		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			is_known |= !strcmp(entry->d_name, names[i]);
		if (!is_known)
			fprintf(stderr, "check_crash: '%s' was left behind\n", entry->d_name);
		is_stray |= !is_known;
	}
	if (directory)
		closedir(directory);
	return is_stray;
}

static bool norms_are_right(const struct scene *scene)
{
	for (uint32_t rank = 0; rank < scene->kind->world; rank++)
		for (uint32_t step = 1; step <= SCENE_STEPS; step++) {
			const double *norm = &scene->diary->norms[rank][step];
			const double *expected = &scene->expected[step].norm;

			/* 0: the rank died before it was told. */
			if (*norm != 0 && memcmp(norm, expected, sizeof(*norm)) != 0 &&
			    !(isnan(*norm) && isnan(*expected)))
				return false;
		}
	return true;
}

static int destroy_body(void *arg)
{
	struct scene *scene = arg;
	struct zinf_options options = scene->settings.options;
	struct zinf *zinf;

	options.incarnation = "destroy";
	options.world_size = 1;
	options.rank = 0;
	return zinf_attach(&options, &zinf) || zinf_destroy_job(zinf);
}

bool scene_is_right(struct scene *scene)
{
	const struct scene_diary *diary = scene->diary;
	bool is_right = says(ranks_are_right(&scene->ranks), "other parameters");

	is_right &= says(norms_are_right(scene), "other norms than an undisturbed run's");
	is_right &= says(!diary->is_another, "a step that was made twice had another norm");
	is_right &= says(!diary->is_lost, "a step that a rank was told of was lost");
	is_right &= says(!diary->is_ahead, "the job stood beyond the step under way");
	ranks_free(&scene->ranks);
	is_right &= says(tier_bytes(scene, "nvme", "extent_bytes") == named_bytes(scene),
	                 "space is taken that no commit names");
	is_right &= says(harness_wait(harness_fork(destroy_body, scene), 20000) == 0,
	                 "the job could not be destroyed");
	is_right &= says(tier_bytes(scene, "nvme", "extent_bytes") == 0, "extents are left over");
	is_right &= says(tier_bytes(scene, "nvme", "used_bytes") == 0, "space is still charged");
	is_right &= says(harness_charges_return(&scene->harness, scene->idle_cpu_bytes, 20000),
	                 "memory is still charged");
	is_right &= says(!has_stray_files(scene), "files are left over");
	return is_right;
}

/* ---- its life ---- */

void scene_reset(struct scene *scene)
{
	if (scene->ranks.world)
		ranks_free(&scene->ranks);
	memset(scene->diary, 0, sizeof(*scene->diary));
	for (uint32_t i = 0; i < SCENE_WORLD; i++)
		scene->diary->acknowledged[i] = -1;
	scene->rank_point = NULL;
	scene->hook_point = 0;
	scene->hook_target = 0;
}

/* Undisturbed: what it must give, and how many calls there are to die at. */
static bool run_once(struct scene *scene)
{
	scene_reset(scene);
	scene->rank_point = "";
	scene->rank_victim = scene->kind->world - 1;
	if (!says(ranks_train(&scene->ranks, &scene->settings) == 0, "the first run failed"))
		return false;
	scene->rank_total = scene->diary->counts[scene->rank_victim];
	if (!scene_is_right(scene) || harness_halt(&scene->harness))
		return says(false, "the first run was not right");
	scene->daemon_total = *scene->daemon_counts;
	return true;
}

bool scene_open(struct scene *scene, const struct scene_kind *kind)
{
	struct harness_options options = { .nvme_size = "32M" };
	unsigned char *parameters;
	char extra[64];
	bool is_right;

	*scene = (struct scene){ .kind = kind };
	(void)snprintf(extra, sizeof(extra), "backend = %s\n", kind->backend);
	options.nvme_extra = strdup(extra);
	scene->diary = mmap(NULL, sizeof(*scene->diary), PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (scene->diary == MAP_FAILED || !options.nvme_extra ||
	    harness_start(&scene->harness, &options))
		return says(false, "no daemon");
	scene->idle_cpu_bytes = harness_cpu_bytes(&scene->harness);
	scene->settings = settings_of(scene);
	parameters = malloc(trainer_dump_bytes(&scene->settings));
	is_right = parameters && reference_train(&scene->settings, parameters, scene->expected);
	free(parameters);
	if (!says(is_right, "no reference") || harness_halt(&scene->harness))
		return false;
	return says(scene_daemon_start(scene, "") == 0, "no preloaded daemon") && run_once(scene);
}

bool scene_close(struct scene *scene)
{
	char path[300];
	bool is_right = true;

	scene_reset(scene);
	(void)snprintf(path, sizeof(path), "%s/state/points", scene->harness.directory);
	(void)unlink(path);
	if (scene->harness.pid)
		is_right = harness_stop(&scene->harness) == 0;
	else
		harness_remove(&scene->harness);
	/* Whoever this test has started has been waited for. */
	is_right &= says(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a process is left");
	free((char *)scene->harness.options.nvme_extra);
	if (scene->daemon_counts)
		(void)munmap(scene->daemon_counts, sizeof(*scene->daemon_counts));
	(void)munmap(scene->diary, sizeof(*scene->diary));
	return is_right;
}
