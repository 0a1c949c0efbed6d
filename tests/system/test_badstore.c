/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a store or a catalog that is damaged, of another version, cut, somebody else's, or in a
 * place that cannot be used, is refused with words that say what is wrong, with figures, and what
 * to do; and every file is byte for byte as it was, so that mending the one thing that was wrong
 * brings the job back.
 * Method: a job of two steps; its daemon stops; one thing is spoilt, zinfd is run until it exits,
 * all files are compared with themselves; the one thing is mended, and the training goes on.
 */
#include <fcntl.h>
#include <sched.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/hash.h"
#include "nvme/superblock.h"
#include "tests/system/system.h"

#define STORE_BYTES (16u << 20)

TestSuite(badstore, .timeout = 120);

static struct harness harness;
static struct trainer_settings settings;
static char words[16384];

/* ---- a job that is at rest ---- */

static void train_to(uint32_t steps, const char *incarnation)
{
	struct ranks ranks;

	settings.options.incarnation = incarnation;
	settings.steps = steps;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks), "other bits than an undisturbed run");
	ranks_free(&ranks);
}

static void begin(void)
{
	system_start(&harness, &(struct harness_options){ .nvme_size = "16M" });
	settings = (struct trainer_settings){
		.options = ZINF_OPTIONS_INIT,
		.step = ZINF_STEP_OPTIONS_INIT,
		.model = &trainer_small,
		.accumulate = 1,
	};
	settings.options.socket_path = harness.socket_path;
	settings.options.job = "kept";
	settings.options.world_size = 1;
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.timeout_ms = 20000;
	train_to(2, "first");
	cr_assert_eq(harness_halt(&harness), 0);
}

/* Nothing was lost by all of it. */
static void end(void)
{
	cr_assert_eq(harness_restart(&harness), 0);
	train_to(4, "second");
	cr_assert_eq(harness_stop(&harness), 0);
}

static const char *path_of(const char *name)
{
	static char path[600];

	(void)snprintf(path, sizeof(path), "%s/%s", harness.directory, name);
	return path;
}

/* ---- files as they were ---- */

struct imprint {
	bool is_there;
	uint64_t bytes, hash;
};

static struct imprint imprint_of(const char *name)
{
	struct imprint imprint = { 0 };
	struct stat status;
	char *content;
	int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return imprint;
	cr_assert_eq(fstat(fd, &status), 0);
	content = malloc((size_t)status.st_size + 1);
	cr_assert_eq(read(fd, content, (size_t)status.st_size), status.st_size);
	(void)close(fd);
	imprint = (struct imprint){ true, (uint64_t)status.st_size,
		                    kern_hash(content, (uint64_t)status.st_size) };
	free(content);
	return imprint;
}

/* zinfd does not start with that state, says both, and touches nothing. */
static void expect_refused_in(const char *state, const char *part, const char *advice)
{
	static const char *const names[] = { "store", "store.zinf-preparing", "other",
		                             "state/catalog.db", "state/catalog.db-wal" };
	struct imprint before[5];
	char config[2048];
	int code;

	for (size_t i = 0; i < 5; i++)
		before[i] = imprint_of(names[i]);
	(void)snprintf(config, sizeof(config),
	               "[daemon]\nsocket = %s/socket\nstate_dir = %s/%s\n[tier.cpu]\n"
	               "capacity = 64M\n[nvme disk]\npath = %s/store\nsize = 16M\n"
	               "measure = never\n",
	               harness.directory, harness.directory, state, harness.directory);
	code = harness_run(config, NULL, words, sizeof(words));
	cr_assert_eq(code, 1, "ended with %d and said: %s", code, words);
	system_expect_text(words, part);
	system_expect_text(words, advice);
	for (size_t i = 0; i < 5; i++) {
		struct imprint after = imprint_of(names[i]);

		cr_assert_eq(after.is_there, before[i].is_there, "%s came or went", names[i]);
		cr_assert_eq(after.bytes, before[i].bytes, "%s was resized", names[i]);
		cr_assert_eq(after.hash, before[i].hash, "%s was overwritten", names[i]);
	}
}

static void expect_refused(const char *part, const char *advice)
{
	expect_refused_in("state", part, advice);
}

/* With a catalog that has just been made. */
static void expect_refused_afresh(const char *part, const char *advice)
{
	expect_refused_in("fresh", part, advice);
	cr_assert_eq(unlink(path_of("fresh/catalog.db")), 0);
	cr_assert_eq(unlink(path_of("fresh/catalog.db-mark")), 0);
	cr_assert_eq(rmdir(path_of("fresh")), 0);
}

static void move(const char *from, const char *to)
{
	char old[600];

	(void)snprintf(old, sizeof(old), "%s", path_of(from));
	cr_assert_eq(rename(old, path_of(to)), 0);
}

static void put(const char *name, off_t offset, const void *bytes, size_t byte_count)
{
	int fd = open(path_of(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	cr_assert_eq(pwrite(fd, bytes, byte_count, offset), (ssize_t)byte_count);
	(void)close(fd);
}

static void get(const char *name, off_t offset, void *bytes, size_t byte_count)
{
	int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);

	cr_assert_eq(pread(fd, bytes, byte_count, offset), (ssize_t)byte_count);
	(void)close(fd);
}

/* ---- the store ---- */

Test(badstore, a_superblock_of_another_version_or_with_a_flipped_bit_is_refused)
{
	struct nvme_superblock sound, spoilt;
	char version[32];

	begin();
	get("store", 0, &sound, sizeof(sound));
	spoilt = sound;
	spoilt.version = NVME_STORE_VERSION + 7;
	nvme_superblock_seal(&spoilt);
	put("store", 0, &spoilt, sizeof(spoilt));
	(void)snprintf(version, sizeof(version), "version %u", spoilt.version);
	expect_refused(version, "use the program that made it");
	spoilt = sound;
	spoilt.uuid[3] ^= 1;
	put("store", 0, &spoilt, sizeof(spoilt));
	expect_refused("is damaged (checksum", "put a copy of the store back");
	put("store", 0, &sound, sizeof(sound));
	end();
}

Test(badstore, one_that_was_cut_is_refused_with_both_sizes)
{
	static char tail[4096];

	begin();
	get("store", STORE_BYTES - sizeof(tail), tail, sizeof(tail));
	cr_assert_eq(truncate(path_of("store"), STORE_BYTES - sizeof(tail)), 0);
	expect_refused("has 16773120 bytes, its superblock says 16777216",
	               "Put the whole file back");
	put("store", STORE_BYTES - sizeof(tail), tail, sizeof(tail));
	end();
}

Test(badstore, one_that_is_gone_is_not_made_anew)
{
	begin();
	move("store", "other");
	expect_refused("does not exist, but the catalog has jobs in it", "put the store back");
	put("store", 0, "", 0);
	expect_refused("is empty, but the catalog has jobs in it", "put the store back");
	cr_assert_eq(unlink(path_of("store")), 0);
	move("other", "store");
	end();
}

Test(badstore, one_that_belongs_to_another_catalog_is_refused_by_both)
{
	struct harness other;
	char path[600];

	begin();
	/* Its own store, and nothing in it, yet another one. */
	system_start(&other, &(struct harness_options){ .nvme_size = "16M" });
	cr_assert_eq(harness_halt(&other), 0);
	move("store", "other");
	(void)snprintf(path, sizeof(path), "%s/store", other.directory);
	cr_assert_eq(rename(path, path_of("store")), 0);
	harness_remove(&other);
	expect_refused("is not the one that", "put the old store back");
	cr_assert_eq(unlink(path_of("store")), 0);
	move("other", "store");
	expect_refused_afresh("holds data that", "put its catalog back");
	end();
}

/* ---- the catalog ---- */

static void spoil_catalog(const char *sql)
{
	sqlite3 *db = NULL;

	cr_assert_eq(sqlite3_open(path_of("state/catalog.db"), &db), SQLITE_OK);
	cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
	cr_assert_eq(sqlite3_close(db), SQLITE_OK);
}

/* The sound file waits beside. */
static void keep_catalog(bool is_back)
{
	char command[1400];

	(void)snprintf(command, sizeof(command), "cp %s/state/%s %s/state/%s", harness.directory,
	               is_back ? "kept" : "catalog.db", harness.directory,
	               is_back ? "catalog.db" : "kept");
	cr_assert_eq(system(command), 0);
	if (is_back)
		(void)unlink(path_of("state/catalog.db-wal")); /* If there is one. */
	(void)unlink(path_of("state/catalog.db-mark"));
}

Test(badstore, a_damaged_catalog_is_refused_however_it_is_damaged)
{
	static const struct {
		const char *sql, *part, *advice;
	} spoils[] = {
		{ "UPDATE meta SET version = 99", "has version 99", "use the zinfd that made it" },
		{ "UPDATE meta SET application_id = 1", "no catalog of zinf", "move it away" },
		{ "DROP TABLE extent", "'extent' in it is missing", "restore the file" },
		{ "DROP TABLE meta", "no catalog of zinf", "move it away" },
		{ "UPDATE store SET name = 'disc'", "the checksum of a row of table store",
		  "restore the file" },
	};
	unsigned char noise[4096];
	struct stat status;

	begin();
	keep_catalog(false);
	for (size_t i = 0; i < ZI_COUNT_OF(spoils); i++) {
		spoil_catalog(spoils[i].sql);
		expect_refused(spoils[i].part, spoils[i].advice);
		keep_catalog(true);
	}
	cr_assert_eq(stat(path_of("state/catalog.db"), &status), 0);
	cr_assert_eq(truncate(path_of("state/catalog.db"), status.st_size / 2), 0);
	expect_refused("catalog.db", "restore the file");
	keep_catalog(true);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (unsigned char)(i * 37 + 11);
	put("state/catalog.db", 4096, noise, sizeof(noise)); /* A page within. */
	expect_refused("malformed", "restore the file");
	put("state/catalog.db", 0, noise, sizeof(noise)); /* All that says what it is. */
	expect_refused("catalog.db", "restore the file");
	keep_catalog(true);
	cr_assert_eq(unlink(path_of("state/kept")), 0);
	end();
}

/* ---- the place ---- */

Test(badstore, a_place_that_is_read_only_is_refused)
{
	if (geteuid())
		cr_skip_test("mounting a folder read-only needs root");
	begin();
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount(path_of("state"), path_of("state"), NULL, MS_BIND, NULL)) {
		end(); /* A test that is skipped has no .fini. */
		cr_skip_test("this machine does not let us mount a folder over itself");
	}
	cr_assert_eq(mount(NULL, path_of("state"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL),
	             0);
	expect_refused("daemon.state_dir", "Read-only file system");
	cr_assert_eq(umount2(path_of("state"), MNT_DETACH), 0);
	cr_assert_eq(mount(path_of("store"), path_of("store"), NULL, MS_BIND, NULL), 0);
	cr_assert_eq(mount(NULL, path_of("store"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL),
	             0);
	expect_refused("/store' cannot be opened", "Read-only file system; mount it for writing");
	cr_assert_eq(umount2(path_of("store"), MNT_DETACH), 0);
	end();
}

Test(badstore, two_daemons_on_one_store_are_refused_and_the_first_goes_on)
{
	begin();
	cr_assert_eq(harness_restart(&harness), 0);
	expect_refused_afresh("is in use by another process (pid ", "stop that zinfd");
	expect_refused("has it open", "another zinfd");
	train_to(3, "meanwhile");
	cr_assert_eq(harness_halt(&harness), 0);
	end();
}
