/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zctl's answers are of use to people and to programs, with exit codes that a script can
 * trust; also when there is no daemon, no such command, no such job. Method: a daemon with one job
 * that has trained; each command is run, plain and with --json; words and figures that must be
 * there are looked for.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 20];

static void start(void)
{
	struct trainer_settings settings;
	struct ranks ranks;

	system_start(&harness,
	             &(struct harness_options){ .nvme_size = "32M", .extra = HARNESS_COLD });
	settings = ranks_settings(&harness, "shown", 2);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	ranks_free(&ranks);
}

static void stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
}

TestSuite(zctl, .init = start, .fini = stop, .timeout = 60);

#define RUN(code, ...) SYSTEM_ZCTL(harness.socket_path, words, (code), __VA_ARGS__)

/* The newest words as JSON of the kind awaited. */
static json_t *parsed(bool is_array)
{
	json_error_t error;
	json_t *json = json_loads(words, 0, &error);

	cr_assert_not_null(json, "%s: %s", error.text, words);
	cr_assert_eq(json_is_array(json), is_array);
	return json;
}

Test(zctl, status_tells_who_runs)
{
	json_t *json;

	RUN(0, "status");
	system_expect_text(words, "0.1.0");
	system_expect_text(words, harness.socket_path);
	RUN(0, "--json", "status");
	json = parsed(false);
	cr_assert_eq(json_integer_value(json_object_get(json, "pid")), harness.pid);
	cr_assert_eq(json_integer_value(json_object_get(json, "jobs")), 1);
	cr_assert_eq(json_integer_value(json_object_get(json, "sessions_max")), 128);
	cr_assert_str_eq(json_string_value(json_object_get(json, "protocol")), "1.0");
	cr_assert(json_is_false(json_object_get(json, "is_stopping")));
	cr_assert_geq(json_array_size(json_object_get(json, "threads")), 3);
	json_decref(json);
}

Test(zctl, tiers_tell_capacity_use_and_traffic)
{
	json_t *json, *tier;

	RUN(0, "tiers");
	system_expect_text(words, "cpu:0");
	system_expect_text(words, "nvme:disk");
	system_expect_text(words, "256 MiB");
	/* Traffic of memory is not counted, which is not none. */
	system_expect_text(words, "peak  share");
	system_expect_text(words, " -        -         -  node");
	RUN(0, "tiers", "--json");
	json = parsed(true);
	cr_assert_eq(json_array_size(json), 2);
	tier = json_array_get(json, 0);
	cr_assert_str_eq(json_string_value(json_object_get(tier, "name")), "cpu:0");
	cr_assert_eq(json_integer_value(json_object_get(tier, "capacity_bytes")), 256 << 20);
	cr_assert_gt(json_integer_value(json_object_get(tier, "peak_bytes")), 0);
	tier = json_array_get(json, 1);
	cr_assert_str_eq(json_string_value(json_object_get(tier, "kind")), "nvme");
	/* 8 bytes of state of the last two steps read; first values and 12 bytes of three
	 * written. */
	cr_assert_eq(json_integer_value(json_object_get(tier, "read_bytes")),
	             (long long)trainer_padded_elements(&trainer_small) * 16);
	cr_assert_eq(json_integer_value(json_object_get(tier, "write_bytes")),
	             (long long)trainer_padded_elements(&trainer_small) * (4 + 36));
	json_decref(json);
}

Test(zctl, jobs_tell_steps_and_what_is_held)
{
	json_t *json, *logical;

	RUN(0, "jobs");
	system_expect_text(words, "shown");
	system_expect_text(words, "ddp");
	system_expect_text(words, "logical");
	RUN(0, "jobs", "shown");
	system_expect_text(words, "logical/rank");
	system_expect_text(words, "\nheld: bytes that this node really uses");
	system_expect_text(words, "step 3");
	system_expect_text(words, "adamw");
	system_expect_text(words, "optimizer state on NVMe, parameters in memory");
	/* fp32: the moments are read; with the parameters they are written. */
	system_expect_text(words, "(8.00 B per element)");
	system_expect_text(words, "(12.00 B)");
	RUN(0, "--json", "jobs");
	json = parsed(true);
	cr_assert_eq(json_array_size(json), 1);
	cr_assert_eq(json_integer_value(json_object_get(json_array_get(json, 0), "committed_step")),
	             3);
	cr_assert_str_eq(json_string_value(json_object_get(json_array_get(json, 0), "strategy")),
	                 "ddp");
	cr_assert_eq(json_integer_value(json_object_get(json_array_get(json, 0), "shard_size")), 0);
	logical = json_array_get(json_object_get(json_array_get(json, 0), "logical"), 0);
	cr_assert_eq(json_integer_value(json_object_get(logical, "state")),
	             (long long)trainer_padded_elements(&trainer_small) * 8);
	cr_assert_eq(json_integer_value(json_object_get(logical, "param")),
	             (long long)trainer_padded_elements(&trainer_small) * 4);
	json_decref(json);
	cr_assert_null(strstr(words, " \n"), "a line ends in blanks: %s", words);
	RUN(1, "jobs", "hidden");
	system_expect_text(words, "hidden");
	system_expect_text(words, "shown"); /* those there are */
}

Test(zctl, jobs_tell_what_their_options_made_of_them)
{
	struct trainer_settings settings = ranks_settings(&harness, "pooled", 1);
	struct neighbour neighbour;

	settings.options.offload_optimizer = settings.options.offload_param = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 12 << 20;
	settings.options.resident_bytes = 1 << 20;
	settings.options.commit_interval = 2;
	settings.options.strategy = ZINF_ZERO3;
	settings.options.shard_size = 1;
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	RUN(0, "jobs", "pooled");
	system_expect_text(words, "optimizer state on NVMe, parameters on NVMe");
	system_expect_text(words, "up to 1 MiB of the state stay in memory");
	system_expect_text(words, "committed every 2 steps");
	system_expect_text(words, "strategy zero3, shards over 1 ranks");
	system_expect_text(words, "pool of parameters: ");
	cr_assert(neighbour_stop(&neighbour));
}

/* Each phase that the daemon may report (daemon/zero/job/job.c) is explained. */
Test(zctl, jobs_help_explains_each_phase)
{
	static const char *const phases[] = { "IDLE",     "FORMING",  "READY",
		                              "STEPPING", "UPDATING", "COMMITTING",
		                              "BROKEN",   "DAMAGED",  "REFUSED" };

	RUN(0, "jobs", "--help");
	for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
		system_expect_text(words, phases[i]);
	system_expect_text(words, "logical     bytes that the strategy gives");
	system_expect_text(words, "held        bytes that this node really uses");
}

Test(zctl, limits_tell_value_and_key)
{
	json_t *json;

	RUN(0, "limits");
	system_expect_text(words, "sessions");
	system_expect_text(words, "128");
	system_expect_text(words, "uid_write_bytes_per_day       none");
	system_expect_text(words, "  quota.uid_write_per_day");
	RUN(0, "--json", "limits");
	json = parsed(true);
	cr_assert_geq(json_array_size(json), 6);
	json_decref(json);
}

Test(zctl, doctor_looks_at_the_machine)
{
	const char *verdict = "";
	bool is_there = false;
	json_t *json, *finding;
	uint32_t unused_count = 0;
	size_t index;

	/* 1: something could be better. */
	int code = harness_zctl(harness.socket_path, (const char *const[]){ "doctor", NULL }, words,
	                        sizeof(words));

	cr_assert(code == 0 || code == 1, "%d: %s", code, words);
	system_expect_text(words, "io_uring");
	system_expect_text(words, "lockable memory");
	system_expect_text(words, "zinf-net is ");
	cr_expect_null(strstr(words, "collectives are not"), "they are there: %s", words);
	code = harness_zctl(harness.socket_path, (const char *const[]){ "--json", "doctor", NULL },
	                    words, sizeof(words));
	json = json_loads(words, 0, NULL);
	cr_assert_not_null(json, "%s", words);
	json_array_foreach(json, index, finding)
	{
		const char *subject = json_string_value(json_object_get(finding, "subject"));

		/* Nobody can do anything about these, so they are no fault of the machine. */
		if (!strcmp(subject, "CUDA") || !strcmp(subject, "NCCL")) {
			cr_expect_str_eq(json_string_value(json_object_get(finding, "verdict")),
			                 "not used");
			cr_expect_str_empty(json_string_value(json_object_get(finding, "advice")));
			unused_count++;
		}
		if (strcmp(subject, "several nodes (Gloo)") != 0)
			continue;
		verdict = json_string_value(json_object_get(finding, "verdict"));
		is_there = !strcmp(json_string_value(json_object_get(finding, "found")),
		                   "zinf-net is there");
	}
	cr_expect_str_eq(verdict, is_there ? "ok" : "could be better", "%s", words);
	cr_expect_eq(unused_count, 2, "%s", words);
	json_decref(json);
}

Test(zctl, a_wrong_word_is_answered_with_what_is_allowed)
{
	RUN(2, "statuss");
	system_expect_text(words, "statuss");
	system_expect_text(words, "usage: zctl");
	RUN(2, "--jsom", "status");
	system_expect_text(words, "--jsom");
	RUN(2, "jobs", "a", "b");
	RUN(2, "jobs", "../x");
	RUN(2, "snapshot", "rm", "shown");
	system_expect_text(words, "'shown' names no snapshot; each is JOB/NAME");
	RUN(2, "export", "shown", "nowhere", "--format", "pickle");
	system_expect_text(words, "unknown format 'pickle'");
	system_expect_text(words, "usage: zctl export");
	RUN(0, "snapshot", "list", "hidden");
	system_expect_text(words, "no snapshot of a job 'hidden'");
}

Test(zctl, no_daemon_is_told_with_the_path_and_what_to_do)
{
	const char *const status[] = { "status", NULL };

	cr_assert_eq(harness_zctl("/nowhere/zinfd.sock", status, words, sizeof(words)), 1);
	system_expect_text(words, "/nowhere/zinfd.sock");
	system_expect_text(words, "systemctl start zinfd");
}
