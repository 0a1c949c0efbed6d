/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: everything has a limit, and who runs into one is told which, with what was asked for and
 * what there is; nothing is lost: not what was committed, not what is charged to others. Method:
 * daemons with small limits, quotas, stores and disks; a full disk is a small tmpfs in a mount
 * namespace of the test.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/guard/guard.h"
#include "tests/harness/patience.h"
#include "tests/system/pair.h"

TestSuite(limits, .timeout = 120);

/* A rank alone whose model has @elements in its body. */
static struct zinf *alone(const struct zinf_options *options, uint64_t elements)
{
	struct zinf *zinf = attach(options);

	lay_out(zinf, 1, elements);
	return zinf;
}

static void expect_no_room(const struct zinf_options *options, uint64_t elements, int error,
                           const char *first, const char *second)
{
	uint64_t before_bytes = harness_cpu_bytes(&harness);
	struct zinf *zinf = alone(options, elements);

	cr_assert_eq(zinf_materialize(zinf), error, "%s", zinf_error_text(zinf));
	system_expect_text(zinf_error_text(zinf), first);
	system_expect_text(zinf_error_text(zinf), second);
	zinf_detach(zinf);
	/* But for the rings, which this process still holds. */
	cr_assert_leq(harness_cpu_bytes(&harness), before_bytes + (256 << 10));
}

static struct zinf_options options_alone(void)
{
	struct zinf_options options = options_of(0, 1);

	options.incarnation = NULL;
	return options;
}

Test(limits, memory_that_a_job_needs_and_the_tier_has_not_is_told)
{
	struct zinf_options options;

	system_start(&harness, &(struct harness_options){ .cpu_capacity = "16M" });
	options = options_alone();
	/* Two units, each on a slot of 2 MiB. */
	expect_no_room(&options, 4 << 20, -ENOSPC, "take 32 MiB", "has 16 MiB in all");
	expect_no_room(&options, 1ull << 40, -ENOSPC, "take 8 TiB", "has 16 MiB in all");
	stop();
}

Test(limits, a_store_smaller_than_the_job_is_told_with_what_it_needs)
{
	struct zinf_options options;

	start(NULL); /* a store of 16 MiB */
	options = options_alone();
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	/* 12 bytes per element, twice: 24 MiB. */
	expect_no_room(&options, 1 << 20, -ENOSPC, "2 x 12", "nvme:disk");
	stop();
}

Test(limits, without_a_store_nothing_is_offloaded_to_one)
{
	struct zinf_options options;

	system_start(&harness, &(struct harness_options){ 0 });
	options = options_alone();
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	expect_refused(&options, -EOPNOTSUPP, "no NVMe tier");
	stop();
}

Test(limits, a_quota_is_told_with_its_figure)
{
	struct zinf_options options;

	start("[quota]\nuid_cpu = 8M\nuid_nvme = 4M\n");
	options = options_alone();
	expect_no_room(&options, 1 << 20, -EDQUOT, "uid 0", "8 MiB");
	options.job = "other";
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	expect_no_room(&options, 256 << 10, -EDQUOT, "uid 0", "4 MiB");
	stop();
}

Test(limits, staging_that_is_too_small_is_told_with_what_it_takes)
{
	struct zinf_options options;

	start(NULL);
	options = options_alone();
	options.offload_optimizer = ZINF_OFFLOAD_NVME;
	options.staging_bytes = 1 << 20;
	expect_no_room(&options, 300000, -EINVAL, "staging_bytes is 1 MiB", "2 MiB");
	stop();
}

/* A refused session is told before it is gone. */
static void await_sessions(long long count)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(10 * ZI_NS_PER_S));
	long long got;

	do {
		json_t *status = harness_admin(&harness, "status");

		got = json_integer_value(json_object_get(status, "sessions"));
		json_decref(status);
	} while (got != count && zi_clock_now_ns() < deadline_ns);
	cr_assert_eq(got, count);
}

Test(limits, more_jobs_or_sessions_than_allowed_are_told_with_the_figure)
{
	struct zinf *zinf[3];
	struct zinf_options options;

	start("[limits]\njobs = 2\nsessions = 3\n");
	for (int i = 0; i < 2; i++) {
		char name[16];

		options = options_alone();
		(void)snprintf(name, sizeof(name), "job.%d", i);
		options.job = name;
		zinf[i] = attach(&options);
	}
	options.job = "job.2";
	expect_refused(&options, -EMFILE, "2 jobs");
	await_sessions(2);
	options.job = "job.0";
	options.takeover = true;
	zinf[2] = attach(&options);
	expect_refused(&options, -EMFILE, "limits.sessions");
	system_expect_text(zinf_attach_error(), "3 sessions");
	for (int i = 0; i < 3; i++)
		zinf_detach(zinf[i]);
	stop();
}

/* A limit that `zctl limits` shows of this uid; -1: it does not. */
static long long limit_field(const char *name, const char *field)
{
	json_t *limits = harness_admin(&harness, "limits"), *limit;
	long long value = -1;
	size_t index;

	cr_assert_not_null(limits);
	/* clang-format off: it does not know the loop */
	json_array_foreach(limits, index, limit)
	{
		if (!strcmp(json_string_value(json_object_get(limit, "name")), name) &&
		    json_integer_value(json_object_get(limit, "uid")) == (json_int_t)geteuid())
			value = json_integer_value(json_object_get(limit, field));
	}
	/* clang-format on */
	json_decref(limits);
	return value;
}

/* Six for each session: rings, doorbells, the socket, and the process's. */
Test(limits, descriptors_of_a_uid_are_counted_shown_and_refused_with_the_figure)
{
	struct zinf_options options;
	struct zinf *zinf[3];

	start("[limits]\ndescriptors_per_uid = 20\n");
	for (int i = 0; i < 3; i++) {
		char name[16];

		options = options_alone();
		(void)snprintf(name, sizeof(name), "job.%d", i);
		options.job = name;
		zinf[i] = attach(&options);
		cr_assert_eq(limit_field("descriptors_per_uid", "used"), 6 * (i + 1));
	}
	cr_assert_eq(limit_field("descriptors_per_uid", "value"), 20);
	options.job = "job.3";
	expect_refused(&options, -EDQUOT, "holds 18 descriptors");
	system_expect_text(zinf_attach_error(), "limits.descriptors_per_uid");
	lay_out(zinf[0], 1, 1000);
	cr_assert_eq(zinf_materialize(zinf[0]), -EDQUOT, "parameters and gradients and state");
	system_expect_text(zinf_error_text(zinf[0]), "20 are allowed");
	zinf_detach(zinf[1]);
	await_sessions(2);
	cr_assert_eq(zinf_materialize(zinf[0]), 0, "%s", zinf_error_text(zinf[0]));
	cr_assert_gt(limit_field("descriptors_per_uid", "used"), 12);
	zinf_detach(zinf[0]);
	zinf_detach(zinf[2]);
	await_sessions(0);
	cr_assert_eq(limit_field("descriptors_per_uid", "used"), 0);
	stop();
}

/* ---- a disk that is full while the daemon works ---- */

/* Fills the file system to its last block. */
static void fill(const char *directory)
{
	static char block[65536];
	char path[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/state/filler", directory);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	while (write(fd, block, 512) > 0)
		;
	(void)close(fd);
}

static void empty(const char *directory)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/state/filler", directory);
	cr_assert_eq(unlink(path), 0);
}

Test(limits, a_full_disk_under_the_catalog_fails_the_step_and_loses_nothing)
{
	char directory[64];
	struct trainer_settings settings;
	struct neighbour neighbour;
	struct ranks ranks;

	if (geteuid())
		cr_skip_test("mounting a small file system needs root");
	cr_assert_not_null(mkdtemp(guard_path(directory, sizeof(directory), "full")));
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("zinf-test", directory, "tmpfs", 0, "size=40M")) {
		(void)rmdir(directory);
		cr_skip_test("this machine does not let us mount a tmpfs");
	}
	system_start(&harness, &(struct harness_options){ .nvme_size = "24M",
	                                                  .nvme_extra = "direct = try\n",
	                                                  .directory_in = directory });
	settings = ranks_settings(&harness, "full", 1);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	fill(harness.directory);
	cr_assert(!neighbour_steps(&neighbour));
	cr_assert_eq(neighbour.report->result, -ENOSPC, "%s", neighbour.report->text);
	cr_assert_gt(strlen(neighbour.report->text), 0);
	cr_assert_eq(harness_wait(neighbour.pid, 20000), 1); /* it is gone, and said why */
	cr_assert(system_is_alive(&harness));
	empty(harness.directory);
	settings.options.incarnation = "second";
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert_eq(ranks.reports[0]->first_steps[0], 1);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
	stop();
	/* A ring of the daemon that has just gone may keep the file system for a moment longer. */
	cr_assert_eq(umount2(directory, MNT_DETACH), 0);
	cr_assert_eq(rmdir(directory), 0);
}
