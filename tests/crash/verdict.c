/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the daemon when a run of check_crash is over (scene.h). */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "tests/crash/scene.h"

bool scene_says(bool is_right, const char *words)
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
	static const char *const names[] = {
		".", "..", "catalog.db", "catalog.db-wal", "catalog.db-mark", "points"
	};
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
	struct zinf_options options = *(const struct zinf_options *)arg;
	struct zinf *zinf = NULL;

	options.incarnation = "destroy";
	options.world_size = 1;
	options.rank = 0;
	if (!zinf_attach(&options, &zinf) && !zinf_destroy_job(zinf))
		return 0;
	fprintf(stderr, "check_crash: %s\n", zinf ? zinf_error_text(zinf) : zinf_attach_error());
	return 1;
}

static bool destroy(const struct zinf_options *options)
{
	return scene_says(
		harness_wait(harness_fork(destroy_body, (void *)options), SCENE_PATIENCE_MS) == 0,
		"a job could not be destroyed");
}

/* ---- snapshots ---- */

/* A job that begins with the snapshot and makes the steps that it lacks ends in the same bits. */
static bool loads(struct scene *scene, const char *name)
{
	struct trainer_settings settings = scene->settings;
	char source[128];
	struct ranks ranks;
	bool is_right;

	(void)snprintf(source, sizeof(source), "crash/%s", name);
	settings.options.job = "loaded";
	settings.load = source;
	settings.hook = NULL;
	is_right = scene_says(ranks_train(&ranks, &settings) == 0 && ranks_are_right(&ranks),
	                      "a job that began with a snapshot ended in other parameters");
	ranks_free(&ranks);
	return destroy(&settings.options) && is_right;
}

/* Each is whole or not there at all; the oldest, which has most to lose, is loaded every other
 * time. */
static bool snapshots_are_right(struct scene *scene)
{
	json_t *list = harness_admin(&scene->harness, "snapshot list");
	int r = scene->diary->snapshot_result;
	bool is_right = scene_says(r == 0, r ? zi_err_name(-r) : "no snapshot") &&
	                scene_says(list != NULL, "no list of snapshots");

	is_right = is_right && scene_says(json_array_size(list) <= 3, "retention kept too many");
	for (size_t i = 0; i < json_array_size(list) && is_right; i++) {
		const json_t *snapshot = json_array_get(list, i);
		const char *name = json_string_value(json_object_get(snapshot, "name"));
		const char *refusal = json_string_value(json_object_get(snapshot, "refusal"));
		char path[128], words[256];
		const char *const removal[] = { "snapshot", "rm", path, NULL };

		is_right = scene_says(!refusal || !*refusal, "a snapshot is refused") &&
		           (i || scene->verdict_count++ % 2 || loads(scene, name));
		(void)snprintf(path, sizeof(path), "crash/%s", name);
		is_right = is_right && scene_says(!harness_zctl(scene->harness.socket_path, removal,
		                                                words, sizeof(words)),
		                                  "a snapshot cannot be removed");
	}
	json_decref(list);
	return is_right;
}

/* A job that is ahead of its commit is committed when its ranks have left: asks until then, each
 * question a round trip. */
static bool space_is_named(struct scene *scene)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(SCENE_PATIENCE_MS * ZI_NS_PER_MS);
	bool is_named;

	do {
		is_named = tier_bytes(scene, "nvme", "extent_bytes") == named_bytes(scene);
	} while (!is_named && zi_clock_now_ns() < deadline_ns);
	return is_named;
}

bool scene_is_right(struct scene *scene)
{
	const struct scene_diary *diary = scene->diary;
	bool is_right = scene_says(ranks_are_right(&scene->ranks), "other parameters");

	is_right &= scene_says(norms_are_right(scene), "other norms than an undisturbed run's");
	is_right &= scene_says(!diary->is_another, "a step that was made twice had another norm");
	is_right &= scene_says(!diary->is_lost, "a step that a rank was told of was lost");
	is_right &= scene_says(!diary->is_ahead, "the job stood beyond the step under way");
	ranks_free(&scene->ranks);
	is_right &= !scene->kind->has_snapshots || snapshots_are_right(scene);
	is_right &= scene_says(space_is_named(scene), "space is taken that no commit names");
	is_right &= destroy(&scene->settings.options);
	is_right &=
		scene_says(tier_bytes(scene, "nvme", "extent_bytes") == 0, "extents are left over");
	is_right &=
		scene_says(tier_bytes(scene, "nvme", "used_bytes") == 0, "space is still charged");
	is_right &= scene_says(
		harness_charges_return(&scene->harness, scene->idle_cpu_bytes, SCENE_PATIENCE_MS),
		"memory is still charged");
	is_right &= scene_says(!has_stray_files(scene), "files are left over");
	return is_right;
}
