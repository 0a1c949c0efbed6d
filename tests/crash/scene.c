/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of check_crash (scene.h). */
#include "tests/crash/scene.h"

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

/* ---- what ranks do ---- */

static void note_committed(struct scene_diary *diary, const struct trainer *trainer)
{
	const struct zinf_step_stats *stats = &trainer->report->stats[trainer->report->step];
	uint32_t rank = trainer->rank;
	double *place = &diary->norms[rank][stats->step];

	if (stats->committed_step > diary->acknowledged[rank])
		diary->acknowledged[rank] = stats->committed_step;
	if ((int64_t)stats->step > diary->told[rank])
		diary->told[rank] = (int64_t)stats->step;
	if (*place == 0)
		*place = stats->norm;
	else if (memcmp(place, &stats->norm, sizeof(stats->norm)) != 0 &&
	         !(isnan(stats->norm) && isnan(*place)))
		diary->is_another = true;
}

/* The death of ranks costs nothing that was in force; a killed daemon's what was not committed. */
static void note_stand(const struct scene *scene, const struct trainer *trainer)
{
	struct scene_diary *diary = scene->diary;
	uint32_t rank = trainer->rank;

	diary->is_lost |= trainer->step <
	                  (scene->is_daemon_victim ? diary->acknowledged[rank] : diary->told[rank]);
	diary->is_ahead |= trainer->step > diary->told[rank] + 1;
}

/* Rank 0 keeps every step, the newest two of them, and step 2 until step 4. What was kept in its
 * former life is there already; when the daemon or another rank dies meanwhile, the next call says
 * so too. */
static void keep(struct scene *scene, const struct trainer *trainer)
{
	struct zinf_snapshot_options automatic = ZINF_SNAPSHOT_OPTIONS_INIT;
	struct zinf_snapshot_options named = ZINF_SNAPSHOT_OPTIONS_INIT;
	static const char *const removal[] = { "snapshot", "rm", "crash/mine", NULL };
	char words[256];
	int r;

	automatic.keep_count = 2;
	named.name = "mine";
	r = zinf_snapshot(trainer->zinf, &automatic, NULL);
	if (!r && trainer->step == 2)
		r = zinf_snapshot(trainer->zinf, &named, NULL);
	if (trainer->step == 4)
		(void)harness_zctl(scene->harness.socket_path, removal, words, sizeof(words));
	if (r && r != -EEXIST && r != -ESTALE && r != -EPIPE)
		scene->diary->snapshot_result = r;
}

static void hook(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct scene *scene = arg;
	struct scene_diary *diary = scene->diary;
	uint32_t rank = trainer->rank;

	if (point == TRAINER_BORN && scene->rank_point && rank == scene->rank_victim &&
	    !trainer->start_count && !points_arm(scene->rank_point, &diary->counts[rank]))
		_exit(125);
	if (point == TRAINER_MATERIALIZED)
		note_stand(scene, trainer);
	if (point == TRAINER_COMMITTED)
		diary->acknowledged[rank] = diary->told[rank] = 0;
	if (point == TRAINER_WAITED)
		note_committed(diary, trainer);
	if (point == TRAINER_WAITED && scene->kind->has_snapshots && !rank)
		keep(scene, trainer);
	if (point == scene->hook_point && trainer->step == scene->hook_step &&
	    rank == scene->rank_victim && !trainer->start_count)
		(void)kill(scene->hook_target ? scene->hook_target : getpid(), SIGKILL);
}

static struct trainer_settings settings_of(struct scene *scene)
{
	const struct kind *kind = scene->kind;
	struct trainer_settings settings = ranks_settings(&scene->harness, "crash", kind->world);

	settings.options.param_dtype = settings.options.grad_dtype = kind->dtype;
	settings.options.offload_optimizer = kind->offload;
	settings.options.offload_param = kind->offload_param;
	settings.options.durability = kind->durability;
	settings.options.grad_reduction = kind->grad_reduction;
	settings.options.resident_bytes = kind->resident_bytes;
	settings.options.param_budget_bytes = kind->param_budget_bytes;
	settings.options.commit_interval = kind->commit_interval;
	if (kind->offload == ZINF_OFFLOAD_NVME)
		settings.options.staging_bytes =
			kind->offload_param == ZINF_OFFLOAD_NVME ? 10 << 20 : 8 << 20;
	settings.step.max_norm = kind->max_norm;
	settings.step.want_norm = kind->want_norm;
	settings.step.update_early = kind->update_early;
	settings.step.skip_nonfinite = kind->infinite_step != 0;
	settings.accumulate = kind->accumulate;
	settings.infinite_step = kind->infinite_step;
	settings.is_eager = kind->is_eager;
	settings.is_deferred = kind->is_deferred;
	settings.discard_count = kind->discard_count;
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

static void set_backend(struct scene *scene, const char *rule)
{
	const char *over = scene->kind->is_ring ? "auto" : "threads";

	if (*rule)
		(void)snprintf(scene->backend, sizeof(scene->backend),
		               "backend = faulty:over=%s,%s\n", over, rule);
	else
		(void)snprintf(scene->backend, sizeof(scene->backend), "backend = %s\n", over);
	scene->harness.options.nvme_extra = scene->backend;
}

/* What the preloaded double is to do: its environment. */
static bool set_point(struct scene *scene, const char *point)
{
	const char *build = getenv("ZINF_BUILD");
	char path[300];

	if (!scene->daemon_counts && !map_counts(scene, path, sizeof(path)))
		return false;
	(void)snprintf(path, sizeof(path), "%s/state/points", scene->harness.directory);
	*scene->daemon_counts = (struct point_counts){ 0 };
	(void)snprintf(scene->environment[0], sizeof(scene->environment[0]),
	               "LD_PRELOAD=%s/tests/crash/points.so", build ? build : "build/release");
	(void)snprintf(scene->environment[1], sizeof(scene->environment[1]),
	               POINT_ENVIRONMENT "=%s", point);
	(void)snprintf(scene->environment[2], sizeof(scene->environment[2]),
	               POINT_COUNT_ENVIRONMENT "=%s", path);
	for (uint32_t i = 0; i < 3; i++)
		scene->environment_list[i] = scene->environment[i];
	scene->harness.options.environment = scene->environment_list;
	return true;
}

int scene_daemon_start(struct scene *scene, const char *point)
{
	bool is_rule = point && strchr(point, '=');

	scene->harness.options.environment = NULL;
	scene->harness.options.is_quiet = point && *point;
	set_backend(scene, is_rule ? point : "");
	if (point && !is_rule && !set_point(scene, point))
		return -EIO;
	return harness_restart(&scene->harness);
}

/* ---- its life ---- */

void scene_reset(struct scene *scene)
{
	if (scene->ranks.world)
		ranks_free(&scene->ranks);
	memset(scene->diary, 0, sizeof(*scene->diary));
	for (uint32_t i = 0; i < SCENE_WORLD; i++) {
		scene->diary->acknowledged[i] = -1;
		scene->diary->told[i] = -1;
	}
	scene->rank_point = NULL;
	scene->is_daemon_victim = false;
	scene->hook_point = 0;
	scene->hook_target = 0;
}

static uint64_t request_count(struct scene *scene)
{
	json_t *status = harness_admin(&scene->harness, "status");
	json_int_t count = json_integer_value(json_object_get(status, "io_requests"));

	json_decref(status);
	return (uint64_t)count;
}

/* Undisturbed: what it must give, and how many calls and requests there are to die at. */
static bool run_once(struct scene *scene)
{
	scene_reset(scene);
	scene->rank_point = "";
	scene->rank_victim = scene->kind->world - 1;
	if (!scene_says(ranks_train(&scene->ranks, &scene->settings) == 0, "the first run failed"))
		return false;
	scene->rank_total = scene->diary->counts[scene->rank_victim];
	scene->request_total = request_count(scene);
	if (!scene_is_right(scene) || harness_halt(&scene->harness))
		return scene_says(false, "the first run was not right");
	scene->daemon_total = *scene->daemon_counts;
	return true;
}

bool scene_open(struct scene *scene, const struct kind *kind)
{
	/* Two or three times a state of 4 MiB, and as much again for what is loaded and kept. */
	struct harness_options options = { .nvme_size = kind->has_snapshots ? "56M" : "24M",
		                           .has_second_path = kind->path_count > 1 };
	unsigned char *parameters;
	bool is_right;

	*scene = (struct scene){ .kind = kind };
	scene->diary = mmap(NULL, sizeof(*scene->diary), PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (scene->diary == MAP_FAILED || harness_start(&scene->harness, &options))
		return scene_says(false, "no daemon");
	scene->idle_cpu_bytes = harness_cpu_bytes(&scene->harness);
	scene->settings = settings_of(scene);
	parameters = malloc(trainer_dump_bytes(&scene->settings));
	is_right = parameters && reference_train(&scene->settings, parameters, scene->expected);
	free(parameters);
	if (!scene_says(is_right, "no reference") || harness_halt(&scene->harness))
		return false;
	return scene_says(scene_daemon_start(scene, "") == 0, "no preloaded daemon") &&
	       run_once(scene);
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
	is_right &=
		scene_says(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a process is left");
	if (scene->daemon_counts)
		(void)munmap(scene->daemon_counts, sizeof(*scene->daemon_counts));
	(void)munmap(scene->diary, sizeof(*scene->diary));
	return is_right;
}
