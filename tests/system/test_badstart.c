/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a daemon that cannot work does not start, says why in one line that holds file and line, or
 * both figures, or who is in the way, and leaves what it found as it was. Method: zinfd is run with
 * each wrong configuration, or in each wrong place, until it exits; its words are looked at. Full
 * disks are small tmpfs in a mount namespace of the test, which ends with it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/guard/guard.h"
#include "tests/system/system.h"

#define OTHER_UID 65534u

TestSuite(badstart, .timeout = 120);

static char words[16384];

/* Runs zinfd, which must end by itself with exit code 1. */
static void expect_refused(const char *config, const char *part)
{
	int code = harness_run(config, NULL, words, sizeof(words));

	cr_assert_eq(code, 1, "ended with %d and said: %s", code, words);
	system_expect_text(words, part);
}

static const struct {
	const char *config;
	const char *place; /* ":LINE:" */
	const char *part;
} wrong[] = {
	{ "[deamon]\nsocket = /tmp/s\n", ":1:", "[daemon]" },
	{ "[daemon]\nsocked = /tmp/s\n", ":2:", "socket" },
	{ "[daemon]\n\n# a comment\nlog_level = loud\n", ":4:", "error warning info debug" },
	{ "[daemon]\nsocket_mode = 999\n", ":2:", "socket_mode" },
	{ "[daemon]\nstop_timeout_s = 0\n", ":2:", "1 to 3600" },
	{ "[daemon]\nspin_us = fast\n", ":2:", "spin_us" },
	{ "[tier.cpu]\ncapacity = 1M\n", ":2:", "16 MiB" },
	{ "[tier.cpu]\ncapacity = 12 apples\n", ":2:", "12 apples" },
	{ "[tier.cpu]\ncapacity = 64M\ncapacity = 65M\n", ":3:", "line 2" },
	{ "[limits]\nsessions = 99999999999999999999\n", ":2:", "16384" },
	{ "[nvme disk]\nsize = 64M\n", "", "path" },
	{ "[nvme disk]\npath = here/store\nsize = 64M\n", "", "/" },
	{ "[nvme di/sk]\npath = /tmp/store\n", ":1:", "name" },
	{ "[nvme a]\npath = /tmp/store\n[nvme b]\npath = /tmp/store\n", "", "same path" },
	{ "[nvme a]\npath = /tmp/store\nread_block = 5000\n", "", "4096" },
	{ "socket = /tmp/s\n", ":1:", "section" },
	{ "[daemon]\nwhat is this\n", ":2:", "key = value" },
	{ "[daemon\nsocket = /tmp/s\n", ":1:", "]" },
	{ "\x7f\x45LF\x02\x01\x01\x03 not text at all", ":1:", "" },
};

Test(badstart, a_wrong_configuration_is_refused_by_file_and_line_with_what_is_allowed)
{
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		expect_refused(wrong[i].config, wrong[i].part);
		system_expect_text(words, wrong[i].place);
		system_expect_text(words, "zinf-config."); /* the file's name */
	}
}

Test(badstart, keys_that_do_not_go_together_are_named_with_their_values)
{
	expect_refused("[limits]\nring_entries = 100\n", "limits.ring_entries is 100");
	system_expect_text(words, "power of two");
	system_expect_text(words, ":2: ");
	expect_refused("[limits]\nsessions = 100\ninflight_ops = 50\n", "inflight_ops");
	system_expect_text(words, "100");
	system_expect_text(words, ":3: ");
	expect_refused("[daemon]\n\nsocket = here\n", "daemon.socket is 'here'");
	system_expect_text(words, ":3: ");
}

Test(badstart, check_config_tells_the_same_and_starts_nothing)
{
	const char *const check[] = { "--check-config", NULL };
	const char *const set[] = { "--check-config", "--set", "limits.jobs=none", NULL };

	cr_assert_eq(harness_run("[limits]\njobs = 0\n", check, words, sizeof(words)), 1);
	system_expect_text(words, "1 to 65536");
	cr_assert_eq(harness_run("[limits]\njobs = 8\n", check, words, sizeof(words)), 0, "%s",
	             words);
	cr_assert_eq(harness_run("", set, words, sizeof(words)), 1);
	system_expect_text(words, "--set");
}

/* Runs zinfd with words that the shell expands. Its exit code. */
static int run_words(const char *arguments)
{
	char program[300], command[1024];
	FILE *pipe;
	int status;

	(void)snprintf(command, sizeof(command), "%s %s 2>&1",
	               harness_program("zinfd", program, sizeof(program)), arguments);
	pipe = popen(command, "r");
	cr_assert_not_null(pipe);
	words[fread(words, 1, sizeof(words) - 1, pipe)] = '\0';
	status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(badstart, check_config_of_a_user_makes_nothing)
{
	cr_assert_eq(access("/var/tmp/zinf-never-made", F_OK), -1);
	cr_assert_eq(run_words("--user --dir /var/tmp/zinf-never-made --size 64M --check-config"),
	             0, "%s", words);
	cr_assert_eq(access("/var/tmp/zinf-never-made", F_OK), -1);
}

Test(badstart, a_configuration_that_is_not_there_is_named)
{
	cr_assert_eq(run_words("--config /nowhere/zinfd.conf"), 1);
	system_expect_text(words, "/nowhere/zinfd.conf");
	system_expect_text(words, "No such file");
}

/* ---- in a place of its own ---- */

/* A directory that goes with place_remove(), and configurations in it. */
struct place {
	struct harness harness; /* never started */
	char config[2048];
};

static void place_make(struct place *place)
{
	*place = (struct place){ .harness = { .notify_fd = -1 } };
	cr_assert_not_null(mkdtemp(
		guard_path(place->harness.directory, sizeof(place->harness.directory), "place")));
}

static const char *place_config(struct place *place, const char *state, const char *rest)
{
	(void)snprintf(place->config, sizeof(place->config),
	               "[daemon]\nsocket = %s/socket\nstate_dir = %s/%s\n"
	               "[tier.cpu]\ncapacity = 32M\n%s",
	               place->harness.directory, place->harness.directory, state, rest);
	return place->config;
}

static const char *place_store_config(struct place *place, const char *store, const char *rest)
{
	char section[1024];

	(void)snprintf(section, sizeof(section), "[nvme disk]\npath = %s/%s\n%s",
	               place->harness.directory, store, rest);
	return place_config(place, "state", section);
}

static void put_file(const struct place *place, const char *name, const char *text)
{
	char path[512];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", place->harness.directory, name);
	file = fopen(path, "we");
	cr_assert_not_null(file);
	cr_assert_geq(fputs(text, file), 0);
	cr_assert_eq(fclose(file), 0);
}

Test(badstart, a_missing_directory_is_named)
{
	struct place place;

	place_make(&place);
	expect_refused(place_config(&place, "no/such/state", ""), "no/such/state");
	system_expect_text(words, "state_dir");
	expect_refused(place_store_config(&place, "no/such/store", "size = 64M\n"),
	               "no/such/store");
	expect_refused(place_store_config(&place, "store", ""), "no size is given");
	harness_remove(&place.harness);
}

Test(badstart, a_file_that_is_no_store_is_left_alone)
{
	struct place place;
	char path[512], kept[64] = "";
	int fd;

	place_make(&place);
	put_file(&place, "letter", "Dear Ada, the engine works.\n");
	expect_refused(place_store_config(&place, "letter", "size = 64M\n"), "letter");
	(void)snprintf(path, sizeof(path), "%s/letter", place.harness.directory);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_eq(read(fd, kept, sizeof(kept)), 28);
	cr_assert_str_eq(kept, "Dear Ada, the engine works.\n");
	(void)close(fd);
	harness_remove(&place.harness);
}

Test(badstart, a_catalog_that_is_no_database_is_named)
{
	struct place place;
	char path[512];

	place_make(&place);
	(void)snprintf(path, sizeof(path), "%s/state", place.harness.directory);
	cr_assert_eq(mkdir(path, 0700), 0);
	put_file(&place, "state/catalog.db", "this is not a database, but long enough to be one\n");
	expect_refused(place_config(&place, "state", ""), "catalog");
	harness_remove(&place.harness);
}

Test(badstart, more_memory_than_there_is_is_refused_with_both_figures)
{
	expect_refused("[tier.cpu]\ncapacity = 1024T\n", "1 PiB");
	system_expect_text(words, "/proc/meminfo");
	expect_refused("[tier.cpu]\ncapacity = 8G\nhuge_pages = require\n", "nr_hugepages");
	system_expect_text(words, "8 GiB");
}

/* Without CAP_IPC_LOCK, hence as another uid when the test is root's. */
static int run_without_memlock(void *arg)
{
	const struct rlimit limit = { 8 << 20, 8 << 20 };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || (!geteuid() && setuid(OTHER_UID)))
		return 2;
	if (harness_run(arg, NULL, words, sizeof(words)) != 1)
		return 3;
	/* Both figures, and what to do. */
	if (!strstr(words, "RLIMIT_MEMLOCK is 8 MiB") || !strstr(words, "lock = try"))
		return 4;
	return strstr(words, "LimitMEMLOCK") ? 0 : 5;
}

Test(badstart, too_little_memlock_is_refused_with_both_figures)
{
	char config[] = "[tier.cpu]\ncapacity = 64M\nlock = require\n";
	char program[300];

	if (access(harness_program("zinfd", program, sizeof(program)), X_OK))
		cr_skip_test("zinfd cannot be run by others");
#ifdef ZI_COVERED
	cr_skip_test("another user's process cannot write what it counted, and says so at length");
#endif
	cr_assert_eq(harness_wait(harness_fork(run_without_memlock, config), 20000), 0);
}

/* ---- somebody else is there ---- */

static void put_config(struct harness *harness, char *config, size_t capacity, const char *socket,
                       const char *state, const char *store)
{
	(void)snprintf(config, capacity,
	               "[daemon]\nsocket = %s/%s\nstate_dir = %s/%s\n"
	               "[tier.cpu]\ncapacity = 32M\n[nvme disk]\npath = %s/%s\nsize = 16M\n",
	               harness->directory, socket, harness->directory, state, harness->directory,
	               store);
}

Test(badstart, what_another_daemon_uses_is_refused)
{
	struct harness harness;
	char config[2048];

	system_start(&harness, &(struct harness_options){ .nvme_size = "16M" });
	put_config(&harness, config, sizeof(config), "zinfd.sock", "state2", "store2");
	expect_refused(config, "zinfd.sock");
	put_config(&harness, config, sizeof(config), "socket2", "state", "store2");
	expect_refused(config, "/state");
	put_config(&harness, config, sizeof(config), "socket2", "state2", "store");
	expect_refused(config, "/store");
	cr_assert(system_is_alive(&harness)); /* and was not harmed */
	(void)snprintf(config, sizeof(config), "rm -rf %s/state2", harness.directory);
	cr_assert_eq(system(config), 0);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(badstart, a_socket_that_a_killed_daemon_left_is_taken_over)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ 0 });
	harness_kill(&harness);
	cr_assert_eq(access(harness.socket_path, F_OK), 0);
	cr_assert_eq(harness_restart(&harness), 0);
	cr_assert(system_is_alive(&harness));
	cr_assert_eq(harness_stop(&harness), 0);
}

/* ---- full disks ---- */

/* At its place a tmpfs that only this test sees; else the test is skipped, which leaves nothing. */
static void mount_small(struct place *place, const char *options)
{
	if (geteuid()) {
		harness_remove(&place->harness);
		cr_skip_test("mounting a small file system needs root");
	}
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("zinf-test", place->harness.directory, "tmpfs", 0, options)) {
		harness_remove(&place->harness);
		cr_skip_test("this machine does not let us mount a tmpfs");
	}
}

Test(badstart, a_store_larger_than_the_disk_is_refused_with_the_figures)
{
	struct place place;

	place_make(&place);
	mount_small(&place, "size=8M");
	expect_refused(place_store_config(&place, "store", "size = 64M\ndirect = try\n"), "64 MiB");
	system_expect_text(words, "store");
	cr_assert_eq(umount2(place.harness.directory, MNT_DETACH), 0);
	harness_remove(&place.harness);
}

Test(badstart, a_file_system_without_direct_io_is_refused_unless_asked_for)
{
	struct harness harness;
	struct place place;

	place_make(&place);
	mount_small(&place, "size=64M");
	expect_refused(place_store_config(&place, "store", "size = 16M\n"), "without direct I/O");
	system_expect_text(words, "name a path on a disk");
	system_expect_text(words, "direct = try");
	system_start(&harness,
	             &(struct harness_options){ .nvme_size = "16M",
	                                        .nvme_extra = "direct = try\n",
	                                        .directory_in = place.harness.directory });
	cr_assert_eq(harness_zctl(harness.socket_path, (const char *const[]){ "tiers", NULL },
	                          words, sizeof(words)),
	             0);
	system_expect_text(words, "/store, buffered,");
	cr_assert_eq(harness_stop(&harness), 0);
	cr_assert_eq(umount2(place.harness.directory, MNT_DETACH), 0);
	harness_remove(&place.harness);
}

Test(badstart, a_store_that_cannot_be_polled_works_with_interrupts_after_a_word)
{
	struct harness harness;

	system_start(&harness, &(struct harness_options){ .nvme_size = "16M",
	                                                  .nvme_extra = "iopoll = yes\n" });
	harness_log(&harness, words, sizeof(words));
	system_expect_text(words, "cannot be polled: it is a file");
	system_expect_text(words, "going on with interrupts");
	cr_assert_eq(harness_stop(&harness), 0);
}
