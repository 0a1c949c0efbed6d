/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a snapshot taken while training goes on is the step it says, survives a killed daemon, and
 * a job that begins with it ends in the bits of the run it was taken from. Method: rank 0 asks for
 * snapshots from inside the training, or zctl does; the daemon is killed; another job loads one,
 * with its state elsewhere, and is compared with the reference.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 16];

static void start(void)
{
	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
}

static void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
}

TestSuite(snapshot, .init = start, .fini = stop, .timeout = 120);

#define RUN(code, ...) SYSTEM_ZCTL(harness.socket_path, words, (code), __VA_ARGS__)

static struct trainer_settings settings_of(const char *job, enum zinf_offload offload)
{
	struct trainer_settings settings = ranks_settings(&harness, job, 2);

	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = offload;
	settings.options.staging_bytes = 8 << 20;
	settings.steps = 5;
	return settings;
}

/* Rank 0 keeps step 3 as "three", and an automatic one at every step. */
static void keep(const struct trainer *trainer, enum trainer_point point, void *arg)
{
	struct zinf_snapshot_options automatic = ZINF_SNAPSHOT_OPTIONS_INIT;
	struct zinf_snapshot_options named = ZINF_SNAPSHOT_OPTIONS_INIT;
	int64_t step = -1;

	(void)arg;
	if (point != TRAINER_WAITED || trainer->rank)
		return;
	automatic.keep_count = 2;
	if (zinf_snapshot(trainer->zinf, &automatic, NULL))
		_exit(101);
	named.name = "three";
	if (trainer->step == 3 && (zinf_snapshot(trainer->zinf, &named, &step) || step != 3 ||
	                           zinf_snapshot(trainer->zinf, &named, &step) != -EEXIST))
		_exit(102);
}

static void train_and_keep(enum zinf_offload offload)
{
	struct trainer_settings settings = settings_of("base", offload);
	struct ranks ranks;

	settings.hook = keep;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks), "snapshots changed nothing");
	ranks_free(&ranks);
}

/* Job @name begins with base/@snapshot and must end as if it had made all steps. */
static void load(const char *name, const char *source, enum zinf_offload offload, int64_t step)
{
	struct trainer_settings settings = settings_of(name, offload);
	struct ranks ranks;

	settings.load = source;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[1]->first_steps[0], step);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

static void kill_daemon(void)
{
	harness_kill(&harness);
	cr_assert_eq(harness_restart(&harness), 0);
}

Test(snapshot, of_a_run_on_disk_goes_on_with_the_same_bits_after_a_killed_daemon)
{
	train_and_keep(ZINF_OFFLOAD_NVME);
	kill_daemon();
	RUN(0, "snapshot", "list");
	system_expect_text(words, "base/three");
	system_expect_text(words, "base/step-4");
	system_expect_text(words, "base/step-5");
	cr_assert_null(strstr(words, "base/step-2"), "%s", words);
	load("again", "base/three", ZINF_OFFLOAD_NVME, 3);
	load("memory", "base/three", ZINF_OFFLOAD_CPU, 3);
	RUN(0, "snapshot", "rm", "base/three");
	RUN(1, "snapshot", "rm", "base/three");
	system_expect_text(words, "no snapshot 'base/three'");
}

Test(snapshot, of_a_run_in_memory_goes_on_with_the_same_bits_after_a_killed_daemon)
{
	train_and_keep(ZINF_OFFLOAD_CPU);
	kill_daemon();
	load("again", "base/three", ZINF_OFFLOAD_CPU, 3);
	load("disk", "base/step-4", ZINF_OFFLOAD_NVME, 4);
}

Test(snapshot, zctl_keeps_lists_and_removes)
{
	json_t *json;

	train_and_keep(ZINF_OFFLOAD_NVME);
	RUN(0, "snapshot", "base", "--name", "mine");
	system_expect_text(words, "kept base/mine, step 5");
	RUN(1, "snapshot", "base", "--name", "mine");
	system_expect_text(words, "'base/mine' exists");
	RUN(0, "--json", "snapshot", "list", "base");
	json = json_loads(words, 0, NULL);
	cr_assert_eq(json_array_size(json), 4, "%s", words);
	json_decref(json);
	RUN(0, "snapshot", "rm", "base/mine");
	RUN(1, "snapshot", "nobody");
	system_expect_text(words, "no job 'nobody'");
	RUN(2, "snapshot");
	RUN(2, "snapshot", "rm");
	RUN(2, "snapshot", "base", "--nonsense");
	RUN(2, "snapshot", "base", "--name");
}

/* Nobody asks: the daemon keeps steps 2 and 4, and of them the newest. */
Test(snapshot, the_daemon_keeps_every_second_step_by_itself)
{
	struct trainer_settings settings = settings_of("base", ZINF_OFFLOAD_NVME);
	struct ranks ranks;

	settings.options.snapshot_interval = 2;
	settings.options.snapshot_keep = 1;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks), "snapshots changed nothing");
	ranks_free(&ranks);
	RUN(0, "jobs", "base");
	system_expect_text(words, "snapshots: every 2 steps, the newest 1 stay");
	kill_daemon();
	RUN(0, "snapshot", "list");
	system_expect_text(words, "base/auto-000004");
	cr_assert_null(strstr(words, "auto-000002"), "%s", words);
	load("again", "base/auto-000004", ZINF_OFFLOAD_NVME, 4);
}
