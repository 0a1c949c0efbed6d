/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a catalog whose newest commit is missing is refused with that commit's step, whatever
 * befell its log. What a power failure cost, what was deleted or begun anew is not missed. Method:
 * the three files as a kill leaves them, copied into another folder and damaged there. */
#include <sys/wait.h>

#include "daemon/catalog/catalog_private.h"
#include "daemon/catalog/mark.h"
#include "kernels/hash.h"
#include "tests/unit/catalog/fixture.h"

#define STEPS 4

static struct fixture fixture, later;
static struct sample sample;

static int commit(int64_t step, bool is_durable)
{
	struct catalog_request request = { .kind = CATALOG_COMMIT,
		                           .job = &sample.job,
		                           .is_durable = is_durable };

	sample_set_step(&sample, step);
	return fixture_run(&fixture, &request);
}

static void setup(void)
{
	fixture_begin(&fixture, &sample, 40);
	for (int64_t step = 0; step < STEPS; step++)
		cr_assert_eq(commit(step, step == 1), 0);
}

static void teardown(void)
{
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

TestSuite(catalog_mark, .init = setup, .fini = teardown);

/* What a daemon finds that is started after this one is killed now. */
static void kill_now(void)
{
	char command[700];

	fixture_init(&later);
	(void)snprintf(command, sizeof(command), "cp %s* %s", fixture.file, later.directory);
	cr_assert_eq(system(command), 0);
}

static void copy_file(const char *from, const char *to)
{
	char command[700];

	(void)snprintf(command, sizeof(command), "cp %s %s", from, to);
	cr_assert_eq(system(command), 0);
}

static const char *later_file(const char *end)
{
	static char path[192];

	(void)snprintf(path, sizeof(path), "%s%s", later.file, end);
	return path;
}

static uint64_t log_bytes(void)
{
	struct stat status;

	cr_assert_eq(stat(later_file("-wal"), &status), 0);
	return (uint64_t)status.st_size;
}

static void change_log(uint64_t offset)
{
	int fd = open(later_file("-wal"), O_RDWR | O_CLOEXEC);
	uint8_t byte;

	cr_assert_eq(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= 4;
	cr_assert_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
	(void)zi_close(fd);
}

static void flip_last_page(void)
{
	change_log(log_bytes() - 100);
}

static void flip_middle(void)
{
	change_log(log_bytes() / 2);
}

static void flip_head(void)
{
	change_log(18);
}

static void cut(void)
{
	cr_assert_eq(truncate(later_file("-wal"), (off_t)(log_bytes() - 4096)), 0);
}

static void cut_all(void)
{
	cr_assert_eq(truncate(later_file("-wal"), 0), 0);
}

/* As if another process had the mark written, in another boot of the machine. */
static void change_boot(void)
{
	struct catalog_mark mark;
	int fd = open(later_file("-mark"), O_RDWR | O_CLOEXEC);

	cr_assert_eq(pread(fd, &mark, sizeof(mark), 0), (ssize_t)sizeof(mark));
	cr_assert(mark.boot[0], "the kernel says which boot this is");
	mark.boot[0] ^= 1;
	mark.checksum = kern_hash(&mark, offsetof(struct catalog_mark, checksum));
	cr_assert_eq(pwrite(fd, &mark, sizeof(mark), 0), (ssize_t)sizeof(mark));
	(void)zi_close(fd);
}

static int64_t later_step(void)
{
	struct catalog_job *job;
	int64_t step;

	cr_assert_eq(fixture_open(&later), 0, "%s", later.text.chars);
	job = fixture_load(&later);
	step = job ? job->step : -2;
	job = catalog_job_free(job);
	fixture_deinit(&later);
	return step;
}

Test(catalog_mark, what_a_kill_leaves_is_taken)
{
	kill_now();
	cr_expect_eq(later_step(), STEPS - 1);
	fixture.catalog = catalog_close(fixture.catalog); /* Folds the log into the file. */
	kill_now();
	cr_expect_eq(later_step(), STEPS - 1);
}

Test(catalog_mark, damage_of_the_log_is_refused_with_the_step_that_it_cost)
{
	static void (*const damages[])(void) = { flip_last_page, flip_middle, flip_head, cut,
		                                 cut_all };

	for (size_t i = 0; i < ZI_COUNT_OF(damages); i++) {
		uint64_t bytes;
		char mark[192];

		kill_now();
		damages[i]();
		bytes = log_bytes();
		cr_expect_eq(fixture_open(&later), -EUCLEAN, "damage %zu", i);
		cr_expect(strstr(later.text.chars, "its newest commit (step 3 of job 'train') is "
		                                   "missing: catalog.db-wal may have been damaged"),
		          "damage %zu: %s", i, later.text.chars);
		cr_expect(strstr(later.text.chars, "-mark to go on with older commits"), "cut: %s",
		          later.text.chars);
		later.catalog = catalog_close(later.catalog);
		cr_expect_eq(log_bytes(), bytes, "damage %zu: it was changed", i);
		(void)snprintf(mark, sizeof(mark), "%s", later_file("-mark"));
		cr_assert_eq(unlink(mark), 0);
		if (damages[i] == flip_last_page || damages[i] == cut)
			cr_expect_eq(later_step(), STEPS - 2, "damage %zu", i);
		else
			fixture_deinit(&later);
	}
}

Test(catalog_mark, after_a_power_failure_only_synced_commits_are_missed)
{
	kill_now();
	change_boot();
	flip_last_page();
	cr_expect_eq(later_step(), STEPS - 2, "it was not synced");
	cr_assert_eq(commit(STEPS, true), 0);
	kill_now();
	change_boot();
	cr_expect_eq(later_step(), STEPS);
	kill_now();
	change_boot();
	flip_last_page();
	cr_expect_eq(fixture_open(&later), -EUCLEAN);
	cr_expect(strstr(later.text.chars, "step 4 of job 'train'"), "%s", later.text.chars);
	fixture_deinit(&later);
}

/* Step 3 was not synced: the power failure may have cost it. Step 1 was. */
Test(catalog_mark, a_refusal_after_a_power_failure_names_the_newest_commit_that_was_synced)
{
	kill_now();
	change_boot();
	cut_all();
	cr_expect_eq(fixture_open(&later), -EUCLEAN);
	cr_expect(strstr(later.text.chars, "its newest synced commit (step 1 of job 'train')"),
	          "%s", later.text.chars);
	fixture_deinit(&later);
}

static void expect_owner(uid_t uid)
{
	struct stat status;

	cr_assert_eq(stat(later_file("-mark"), &status), 0);
	cr_expect_eq(status.st_uid, uid, "uid %u", status.st_uid);
	cr_expect_eq(status.st_gid, uid, "gid %u", status.st_gid);
}

/* Root starts zinfd on the directory of another user, who can start it again later. */
Test(catalog_mark, the_mark_belongs_to_the_owner_of_the_catalog)
{
	enum { OWNER = 12345 };

	if (geteuid() != 0)
		cr_skip_test("needs root, to give a file away");
	kill_now();
	cr_assert_eq(chown(later_file(""), OWNER, OWNER), 0);
	cr_assert_eq(unlink(later_file("-mark")), 0);
	cr_assert_eq(fixture_open(&later), 0, "%s", later.text.chars);
	expect_owner(OWNER);
	later.catalog = catalog_close(later.catalog);
	/* One that an earlier zinfd made for root. */
	cr_assert_eq(chown(later_file("-mark"), 0, 0), 0);
	cr_assert_eq(fixture_open(&later), 0, "%s", later.text.chars);
	expect_owner(OWNER);
	fixture_deinit(&later);
}

/* Two daemons that start at once on a directory without a catalog: the lock is the other one's.
 * Method: a directory in place of the log, which SQLite cannot remove. */
Test(catalog_mark, a_mark_stays_where_the_new_catalog_cannot_be_locked)
{
	kill_now();
	cr_assert_eq(unlink(later_file("")), 0);
	cr_assert_eq(unlink(later_file("-wal")), 0);
	cr_assert_eq(mkdir(later_file("-wal"), 0700), 0);
	cr_expect_lt(fixture_open(&later), 0);
	cr_expect_eq(access(later_file("-mark"), F_OK), 0, "the mark of the other one is gone");
	cr_assert_eq(rmdir(later_file("-wal")), 0);
	fixture_deinit(&later);
}

Test(catalog_mark, a_commit_that_went_with_its_job_is_not_missed)
{
	struct sample other;

	sample_init(&other, "other", 4);
	sample_set_step(&other, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &other.job), 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &other.job), 0);
	kill_now();
	cr_expect_eq(later_step(), STEPS - 1);
	cr_assert_eq(commit(STEPS, false), 0);
	kill_now();
	flip_last_page();
	cr_expect_eq(fixture_open(&later), -EUCLEAN, "missed again");
	fixture_deinit(&later);
	sample_deinit(&other);
}

Test(catalog_mark, a_catalog_that_is_begun_anew_misses_nothing)
{
	kill_now();
	cr_assert_eq(unlink(later_file("")), 0);
	cr_assert_eq(unlink(later_file("-wal")), 0);
	cr_expect_eq(later_step(), -2);
}

/* The mark cannot be made void: nothing is deleted, and the next attempt tries both again. */
Test(catalog_mark, a_job_that_could_not_be_deleted_can_be_deleted_later)
{
	int fd = fixture.catalog->mark_fd;

	fixture.catalog->mark_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cr_assert_neq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	kill_now();
	cr_expect_eq(later_step(), STEPS - 1);
	(void)zi_close(fixture.catalog->mark_fd);
	fixture.catalog->mark_fd = fd;
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	kill_now();
	cr_expect_eq(later_step(), -2);
}

/* A full disk took no mark: there is none to be made void. */
Test(catalog_mark, a_mark_that_was_never_written_hinders_no_deletion)
{
	int fd = fixture.catalog->mark_fd;

	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	fixture.catalog->mark_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(fixture_do(&fixture, CATALOG_JOB_CREATE, &sample.job), 0);
	cr_expect_eq(fixture_do(&fixture, CATALOG_JOB_DELETE, &sample.job), 0);
	(void)zi_close(fixture.catalog->mark_fd);
	fixture.catalog->mark_fd = fd;
}

/* A daemon that ends well leaves no log: an older catalog may be put in place of its own. */
Test(catalog_mark, a_catalog_that_was_closed_can_be_restored)
{
	char older[200];
	struct catalog_job *job;

	(void)snprintf(older, sizeof(older), "%s-older", fixture.file);
	fixture.catalog = catalog_close(fixture.catalog);
	cr_assert_eq(link(fixture.file, older), 0);
	cr_assert_eq(unlink(fixture.file), 0);
	copy_file(older, fixture.file);
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	cr_assert_eq(catalog_start(fixture.catalog), 0);
	cr_assert_eq(commit(STEPS, true), 0);
	fixture.catalog = catalog_close(fixture.catalog);
	cr_assert_eq(rename(older, fixture.file), 0);
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	job = fixture_load(&fixture);
	cr_assert_not_null(job);
	cr_expect_eq(job->step, STEPS - 1);
	job = catalog_job_free(job);
}

/* Nor is it removed, where a new catalog would have to. */
Test(catalog_mark, a_folder_in_its_place_is_named)
{
	kill_now();
	cr_assert_eq(unlink(later_file("-mark")), 0);
	cr_assert_eq(mkdir(later_file("-mark"), 0700), 0);
	cr_expect_eq(fixture_open(&later), -EISDIR);
	cr_expect(strstr(later.text.chars, "Opening "), "%s", later.text.chars);
	cr_expect(strstr(later.text.chars, "catalog.db-mark: Is a directory"), "%s",
	          later.text.chars);
	later.catalog = catalog_close(later.catalog);
	cr_assert_eq(unlink(later_file("")), 0);
	cr_assert_eq(unlink(later_file("-wal")), 0);
	cr_expect_eq(fixture_open(&later), -EISDIR);
	cr_expect(strstr(later.text.chars, "Removing "), "%s", later.text.chars);
	cr_assert_eq(rmdir(later_file("-mark")), 0);
	fixture_deinit(&later);
}

/* A mark that was damaged itself claims nothing. */
Test(catalog_mark, a_mark_that_does_not_check_is_none)
{
	kill_now();
	cr_assert_eq(truncate(later_file("-mark"), 100), 0);
	flip_last_page();
	cr_expect_eq(later_step(), STEPS - 2);
}
