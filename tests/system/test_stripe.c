/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: training over several paths ends in the bits of the reference while one of them dies, is
 * drained, or is not there any more at a restart; zctl and the log say which and why. Method: a
 * tier over two files, in one of which the fault injector fails writes, or which is moved away.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/guard/guard.h"
#include "tests/harness/ranks.h"
#include "tests/system/system.h"

TestSuite(stripe, .timeout = 200);

static struct harness harness;
static char words[1 << 18];
static char directory[64], second[96], away[96];
static char nvme_extra[256], extra[512];

/* The tier nvme:wide: "disk" in the harness's directory, "second" in one of ours. */
static struct harness_options options_with(const char *lines)
{
	(void)snprintf(nvme_extra, sizeof(nvme_extra), "stripe = wide\n%s", lines);
	(void)snprintf(extra, sizeof(extra),
	               HARNESS_COLD "[nvme second]\npath = %s\nsize = 32M\nmeasure = never\n"
	                            "direct = try\nstripe = wide\n%s",
	               second, lines);
	return (struct harness_options){ .nvme_size = "32M",
		                         .nvme_extra = nvme_extra,
		                         .extra = extra };
}

static void start(const char *lines)
{
	struct harness_options options;

	cr_assert_not_null(mkdtemp(guard_path(directory, sizeof(directory), "stripe")));
	(void)snprintf(second, sizeof(second), "%s/second", directory);
	(void)snprintf(away, sizeof(away), "%s/away", directory);
	options = options_with(lines);
	cr_assert_eq(harness_start(&harness, &options), 0);
}

static void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
	cr_assert_eq(unlink(second), 0);
	cr_assert_eq(rmdir(directory), 0);
}

static struct trainer_settings settings_of(const char *job, uint32_t world, uint32_t steps)
{
	struct trainer_settings settings = ranks_settings(&harness, job, world);

	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.steps = steps;
	return settings;
}

/* A path as `zctl tiers` has it; the caller's. */
static json_t *path(const char *name)
{
	json_t *tiers = harness_admin(&harness, "tiers");
	json_t *tier, *member, *found = NULL;
	size_t i, j;

	cr_assert_not_null(tiers);
	json_array_foreach(tiers, i, tier)
	{
		json_array_foreach(json_object_get(tier, "members"), j, member)
		{
			if (!strcmp(json_string_value(json_object_get(member, "name")), name)) {
				cr_assert_str_eq(json_string_value(json_object_get(tier, "name")),
				                 "nvme:wide");
				found = json_incref(member);
			}
		}
	}
	json_decref(tiers);
	cr_assert_not_null(found, "no path %s", name);
	return found;
}

static void expect_path(const char *name, const char *state, const char *reason, bool is_empty)
{
	json_t *member = path(name);

	cr_assert_str_eq(json_string_value(json_object_get(member, "state")), state);
	cr_assert_str_eq(json_string_value(json_object_get(member, "reason")), reason);
	cr_assert_eq(json_integer_value(json_object_get(member, "used_bytes")) == 0, is_empty,
	             "%lld bytes lie on %s",
	             (long long)json_integer_value(json_object_get(member, "used_bytes")), name);
	json_decref(member);
}

static void zctl(int code, const char *first, const char *rest, const char *expected)
{
	const char *const arguments[] = { first, rest, NULL };

	cr_assert_eq(harness_zctl(harness.socket_path, arguments, words, sizeof(words)), code, "%s",
	             words);
	system_expect_text(words, expected);
}

static uint32_t log_count(const char *needle)
{
	uint32_t count = 0;

	harness_log(&harness, words, sizeof(words));
	for (const char *at = words; (at = strstr(at, needle)); at += strlen(needle))
		count++;
	return count;
}

Test(stripe, training_goes_on_while_a_path_dies)
{
	struct trainer_settings settings;
	struct ranks ranks;

	start("backend = faulty:path=second,write_eio_from=20\n");
	settings = settings_of("train", 2, 8);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	expect_path("second", "failed", "writing failed: EIO", true);
	expect_path("disk", "healthy", "", false);
	cr_assert_eq(log_count("Path second of nvme:wide is failed (writing failed: EIO)"), 1);
	zctl(0, "tiers", NULL, "failed: writing failed: EIO");
	zctl(0, "undrain", "nvme:second", "path second of nvme:wide is healthy");
	stop();
}

Test(stripe, bad_sector_is_shown_and_the_path_stays_in_use)
{
	struct trainer_settings settings;
	struct ranks ranks;

	start("backend = faulty:path=second,ENODATA=read@10\n");
	settings = settings_of("train", 1, 8);
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 0), 1);
	system_expect_text(ranks.reports[0]->text, second);
	system_expect_text(ranks.reports[0]->text, "ENODATA");
	ranks_free(&ranks);
	expect_path("second", "healthy", "", false);
	zctl(0, "tiers", NULL, "healthy, reads failed at 1 place");
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	expect_path("second", "healthy", "", false);
	stop();
}

Test(stripe, drained_path_ends_empty_and_is_used_again_when_told)
{
	struct trainer_settings settings;
	struct neighbour trainer;

	start("");
	settings = settings_of("train", 1, 1);
	cr_assert_eq(neighbour_start(&trainer, &settings), 0);
	cr_assert(neighbour_steps(&trainer));
	cr_assert(neighbour_steps(&trainer));
	expect_path("second", "healthy", "", false);
	zctl(0, "drain", "nvme:second", "path second of nvme:wide is draining");
	cr_assert(neighbour_steps(&trainer));
	expect_path("second", "draining", "drained by an administrator", true);
	zctl(1, "drain", "disk", "without");
	zctl(1, "drain", "tape", "no path 'tape'");
	zctl(1, "drain", "../x", "drain STORE");
	zctl(2, "drain", NULL, "usage: zctl drain nvme:NAME");
	zctl(0, "undrain", "second", "path second of nvme:wide is healthy");
	cr_assert(neighbour_steps(&trainer));
	expect_path("second", "healthy", "", false);
	cr_assert(neighbour_stop(&trainer));
	stop();
}

static double share_of(const char *name)
{
	json_t *member = path(name);
	double share = json_real_value(json_object_get(member, "share"));

	json_decref(member);
	return share;
}

Test(stripe, what_a_bench_finds_weighs_at_once)
{
	/* The injector holds it to 4 MB/s: that far behind a disk is no matter of timing. */
	start("backend = faulty:path=second,bytes_per_s=4000000\n");
	cr_assert_eq(share_of("second"), 0.5, "never measured");
	for (int i = 0; i < 2; i++) {
		const char *const arguments[] = { "--seconds",           "1", "bench", "nvme",
			                          i ? "second" : "disk", NULL };

		cr_assert_eq(harness_zctl(harness.socket_path, arguments, words, sizeof(words)), 0,
		             "%s", words);
	}
	cr_assert_lt(share_of("second"), 0.4, "%.3f", share_of("second"));
	stop();
}

/* Until nothing lies there. */
static void await_empty(const char *name)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(60 * ZI_NS_PER_S);
	int64_t used = 1;

	while (used) {
		json_t *member = path(name);

		used = json_integer_value(json_object_get(member, "used_bytes"));
		json_decref(member);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "%lld bytes stay on %s",
		             (long long)used, name);
	}
}

/* Of a job that is no more; another one goes on from what lies elsewhere then. */
Test(stripe, snapshot_leaves_a_drained_path)
{
	static const char *const words_of[] = { "snapshot", "restore", "train/step-3",
		                                "--as",     "again",   NULL };
	struct trainer_settings settings;
	struct ranks ranks;

	start("");
	settings = settings_of("train", 1, 3);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	zctl(0, "snapshot", "train", "kept train/step-3");
	cr_assert_eq(system_destroy_job(&settings), 0);
	expect_path("second", "healthy", "", false);
	zctl(0, "drain", "nvme:second", "path second of nvme:wide is draining");
	await_empty("second");
	cr_assert_eq(harness_zctl(harness.socket_path, words_of, words, sizeof(words)), 0, "%s",
	             words);
	settings = settings_of("again", 1, 4);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], 3);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	stop();
}

Test(stripe, drained_by_configuration_from_the_start)
{
	struct trainer_settings settings;
	struct ranks ranks;

	start("");
	settings = settings_of("train", 1, 2);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	expect_path("second", "healthy", "", false);
	cr_assert_eq(harness_halt(&harness), 0);
	harness.options = options_with("");
	(void)strncat(extra, "drain = yes\n", sizeof(extra) - strlen(extra) - 1);
	cr_assert_eq(harness_restart(&harness), 0);
	settings.steps = 4;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	expect_path("second", "draining", "drained by an administrator", true);
	stop();
}

Test(stripe, restart_without_a_path_refuses_its_jobs_by_name_and_no_others)
{
	struct trainer_settings settings;
	struct ranks ranks;

	start("");
	settings = settings_of("train", 1, 3);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
	cr_assert_eq(harness_halt(&harness), 0);
	cr_assert_eq(rename(second, away), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert_neq(access(second, F_OK), 0, "nothing is made in its place");
	expect_path("second", "missing", "was not there when the daemon started", true);
	cr_assert_eq(ranks_start(&ranks, &settings), 0);
	cr_assert_eq(ranks_wait(&ranks, 0), 1);
	system_expect_text(ranks.reports[0]->text, second);
	ranks_free(&ranks);

	settings = settings_of("other", 1, 3);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);

	cr_assert_eq(harness_halt(&harness), 0);
	cr_assert_eq(rename(away, second), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	settings = settings_of("train", 1, 6);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	cr_assert_eq(ranks.reports[0]->first_steps[0], 3, "where it stood");
	ranks_free(&ranks);
	stop();
}
