/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a catalog is opened by one daemon at a time, and what cannot be used is refused with the
 * right errno, a sentence that names it, and not a byte changed. Method: files made wrong in every
 * way we know of, and compared before and after. Tests that need to be an ordinary user become one
 * (each test is a process of its own). */
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "tests/unit/catalog/fixture.h"

#define NOBODY       65534
#define SNAPSHOT_MAX (1u << 20)

struct snapshot {
	uint8_t *bytes;
	size_t byte_count;
	uint32_t entry_count; /* of the directory */
};

static uint32_t count_entries(const struct fixture *fixture)
{
	DIR *directory = opendir(fixture->directory);
	uint32_t count = 0;

	cr_assert_not_null(directory);
	while (readdir(directory))
		count++;
	(void)closedir(directory);
	return count;
}

static struct snapshot snapshot_take(const struct fixture *fixture)
{
	struct snapshot snapshot = {
		.bytes = malloc(SNAPSHOT_MAX),
		.entry_count = count_entries(fixture),
	};
	FILE *file = fopen(fixture->file, "rb");

	cr_assert_not_null(file);
	snapshot.byte_count = fread(snapshot.bytes, 1, SNAPSHOT_MAX, file);
	cr_assert_lt(snapshot.byte_count, SNAPSHOT_MAX);
	(void)fclose(file);
	return snapshot;
}

static void change_bytes(const struct fixture *fixture, uint64_t offset_bytes, const void *bytes,
                         size_t byte_count)
{
	int fd = open(fixture->file, O_WRONLY);

	cr_assert_eq(zi_pwrite_all(fd, bytes, byte_count, offset_bytes), 0);
	fd = zi_close(fd);
}

static void assert_refused_untouched(struct fixture *fixture, int error, const char *words)
{
	struct snapshot before = snapshot_take(fixture);
	struct snapshot after;

	cr_assert_eq(fixture_open(fixture), error, "%s", fixture->text.chars);
	cr_assert_null(fixture->catalog);
	cr_assert_not_null(strstr(fixture->text.chars, fixture->file), "%s", fixture->text.chars);
	cr_assert_not_null(strstr(fixture->text.chars, words), "%s", fixture->text.chars);
	after = snapshot_take(fixture);
	cr_assert_eq(before.byte_count, after.byte_count);
	cr_assert_eq(memcmp(before.bytes, after.bytes, before.byte_count), 0, "not a byte");
	cr_assert_eq(before.entry_count, after.entry_count, "no file beside it");
	free(before.bytes);
	free(after.bytes);
}

Test(open, a_new_catalog_is_for_its_owner_alone_and_leaves_two_files)
{
	struct fixture fixture;
	struct stat status;

	fixture_init(&fixture);
	cr_assert_eq(fixture_open(&fixture), 0, "%s", fixture.text.chars);
	cr_assert_null(fixture_load(&fixture));
	fixture_reopen(&fixture);
	cr_assert_null(fixture_load(&fixture));
	fixture.catalog = catalog_close(fixture.catalog);
	cr_assert_eq(stat(fixture.file, &status), 0);
	cr_assert_eq(status.st_mode & 07777, 0600);
	cr_assert_eq(count_entries(&fixture), 4, "the file, its mark, . and ..");
	fixture_deinit(&fixture);
}

Test(open, the_log_is_for_its_owner_alone_too)
{
	struct fixture fixture;
	struct sample sample;
	struct stat status;
	char log[192];

	fixture_begin(&fixture, &sample, 10);
	(void)snprintf(log, sizeof(log), "%s-wal", fixture.file);
	cr_assert_eq(stat(log, &status), 0);
	cr_assert_eq(status.st_mode & 07777, 0600);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(open, a_making_that_was_cut_short_is_made_again)
{
	struct fixture fixture;

	fixture_init(&fixture);
	(void)zi_close(open(fixture.file, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(fixture_open(&fixture), 0, "an empty file: %s", fixture.text.chars);
	fixture.catalog = catalog_close(fixture.catalog);
	(void)unlink(fixture.file);
	change_by_sql(&fixture, "PRAGMA journal_mode = WAL");
	cr_assert_eq(fixture_open(&fixture), 0, "no table yet: %s", fixture.text.chars);
	fixture_deinit(&fixture);
}

Test(open, a_second_daemon_is_refused_in_the_same_process_and_in_another)
{
	struct fixture fixture;
	struct fixture second;
	struct sample sample;
	pid_t child;
	int status;

	fixture_begin(&fixture, &sample, 10);
	second = fixture;
	second.catalog = NULL;
	for (uint32_t i = 0; i < 2; i++) { /* The first refusal must not have dropped the lock. */
		cr_assert_eq(fixture_open(&second), -EBUSY);
		cr_assert_not_null(strstr(second.text.chars, "another zinfd"), "%s",
		                   second.text.chars);
		child = fork();
		if (!child)
			_exit(fixture_open(&second) == -EBUSY ? 0 : 1);
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert_eq(status, 0, "another process is refused");
	}
	sample_set_step(&sample, 0);
	cr_assert_eq(fixture_do(&fixture, CATALOG_COMMIT, &sample.job), 0, "and the first goes on");
	fixture_assert_committed(&fixture, &sample);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(open, a_directory_that_is_missing_or_none_is_named)
{
	struct fixture fixture;
	char directory[sizeof(fixture.directory)];

	fixture_init(&fixture);
	(void)snprintf(directory, sizeof(directory), "%s", fixture.directory);
	(void)snprintf(fixture.directory, sizeof(fixture.directory), "%.100s/absent", directory);
	cr_assert_eq(fixture_open(&fixture), -ENOENT);
	cr_assert_not_null(strstr(fixture.text.chars, fixture.directory));
	cr_assert_not_null(strstr(fixture.text.chars, "does not exist"));
	(void)zi_close(open(fixture.directory, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(fixture_open(&fixture), -ENOTDIR);
	cr_assert_not_null(strstr(fixture.text.chars, "is not a directory"));
	(void)unlink(fixture.directory);
	(void)snprintf(fixture.directory, sizeof(fixture.directory), "%s", directory);
	cr_assert_eq(catalog_open("/nonexistent", NULL, &fixture.catalog), -ENOENT,
	             "no text wanted");
	fixture_deinit(&fixture);
}

/* An ordinary user with a directory of his own. */
static void become_nobody(struct fixture *fixture)
{
	fixture_init(fixture);
	if (getuid())
		return;
	cr_assert_eq(chown(fixture->directory, NOBODY, NOBODY), 0);
	cr_assert_eq(setresgid(NOBODY, NOBODY, NOBODY), 0);
	cr_assert_eq(setresuid(NOBODY, NOBODY, NOBODY), 0);
}

Test(open, a_directory_that_may_not_be_read_or_written_is_named)
{
	struct fixture fixture;

	become_nobody(&fixture);
	cr_assert_eq(chmod(fixture.directory, 0), 0);
	cr_assert_eq(fixture_open(&fixture), -EACCES);
	cr_assert_not_null(strstr(fixture.text.chars, fixture.directory), "%s", fixture.text.chars);
	cr_assert_eq(chmod(fixture.directory, 0500), 0);
	cr_assert_eq(fixture_open(&fixture), -EACCES);
	cr_assert_not_null(strstr(fixture.text.chars, "cannot be made"), "%s", fixture.text.chars);
	cr_assert_eq(chmod(fixture.directory, 0700), 0);
	/* The file may be written, but its log cannot be made. */
	cr_assert_eq(fixture_open(&fixture), 0);
	fixture.catalog = catalog_close(fixture.catalog);
	cr_assert_eq(chmod(fixture.directory, 0500), 0);
	cr_assert_eq(fixture_open(&fixture), -EROFS, "%s", fixture.text.chars);
	cr_assert_not_null(strstr(fixture.text.chars, "its directory"), "%s", fixture.text.chars);
	cr_assert_eq(chmod(fixture.directory, 0700), 0);
	fixture_deinit(&fixture);
}

Test(open, a_file_that_may_not_be_written_is_refused)
{
	struct fixture fixture;

	become_nobody(&fixture);
	cr_assert_eq(fixture_open(&fixture), 0);
	fixture.catalog = catalog_close(fixture.catalog);
	cr_assert_eq(chmod(fixture.file, 0400), 0);
	assert_refused_untouched(&fixture, -EROFS, "read-only");
	cr_assert_eq(chmod(fixture.file, 0), 0);
	cr_assert_eq(fixture_open(&fixture), -EACCES, "%s", fixture.text.chars);
	fixture_deinit(&fixture);
}

Test(open, a_read_only_file_system_is_refused)
{
	struct fixture fixture;
	struct sample sample;

	make_catalog(&fixture, &sample);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount(fixture.directory, fixture.directory, NULL, MS_BIND, NULL)) {
		sample_deinit(&sample);
		fixture_deinit(&fixture);
		cr_skip_test("mounting is not allowed here");
	}
	cr_assert_eq(mount(NULL, fixture.directory, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL),
	             0);
	assert_refused_untouched(&fixture, -EROFS, "read-only");
	cr_assert_eq(umount(fixture.directory), 0);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(open, another_version_is_refused_and_named)
{
	struct fixture fixture;
	struct sample sample;

	make_catalog(&fixture, &sample);
	change_by_sql(&fixture, "UPDATE meta SET version = version + 1");
	assert_refused_untouched(&fixture, -EPROTONOSUPPORT, "use the zinfd that made it");
	change_by_sql(&fixture, "UPDATE meta SET version = 1");
	assert_refused_untouched(&fixture, -EPROTONOSUPPORT, "has version 1, this zinfd needs");
	/* The one before, with tables of its own: the version is what counts. */
	change_by_sql(&fixture, "UPDATE meta SET version = 3; DROP TABLE member_set;"
	                        "ALTER TABLE stand DROP COLUMN number;"
	                        "ALTER TABLE unit DROP COLUMN member_set");
	assert_refused_untouched(&fixture, -EPROTONOSUPPORT,
	                         "has version 3, this zinfd needs version 4");
	assert_refused_untouched(&fixture, -EPROTONOSUPPORT, "here `zctl load`");
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

/* What a killed daemon left in its log belongs to the file: it is neither folded in nor dropped. */
Test(open, a_refusal_leaves_the_log_of_a_killed_daemon_alone)
{
	struct fixture fixture;
	struct sample sample;
	struct stat before;
	struct stat after;
	char log[192];
	int status;
	pid_t child;

	make_catalog(&fixture, &sample);
	child = fork();
	if (!child) {
		sqlite3 *db = NULL;

		(void)sqlite3_open(fixture.file, &db);
		(void)sqlite3_exec(db, "UPDATE meta SET version = 99", NULL, NULL, NULL);
		_exit(0); /* Without closing. */
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	(void)snprintf(log, sizeof(log), "%s-wal", fixture.file);
	cr_assert_eq(stat(log, &before), 0);
	cr_assert_gt(before.st_size, 4096);
	assert_refused_untouched(&fixture, -EPROTONOSUPPORT, "version 99");
	cr_assert_eq(stat(log, &after), 0);
	cr_assert_eq(before.st_size, after.st_size);
	cr_assert_eq(memcmp(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim)), 0);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(open, the_database_of_another_program_is_refused)
{
	struct fixture fixture;

	fixture_init(&fixture);
	change_by_sql(&fixture, "CREATE TABLE bookmarks(url TEXT)");
	assert_refused_untouched(&fixture, -EUCLEAN, "no catalog of zinf");
	change_by_sql(&fixture, "CREATE TABLE meta(application_id INTEGER, version INTEGER);"
	                        "INSERT INTO meta VALUES(7, 1)");
	assert_refused_untouched(&fixture, -EUCLEAN, "no catalog of zinf");
	change_by_sql(&fixture, "DELETE FROM meta");
	assert_refused_untouched(&fixture, -EUCLEAN, "reading its version");
	fixture_deinit(&fixture);
}

/* As a hand that meant well left it. */
static void assert_shape_refused(const char *sql, const char *words)
{
	struct fixture fixture;
	struct sample sample;

	make_catalog(&fixture, &sample);
	change_by_sql(&fixture, sql);
	assert_refused_untouched(&fixture, -EUCLEAN, words);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(open, a_table_that_is_missing_or_not_as_it_should_be_is_named)
{
	assert_shape_refused("DROP TABLE extent", "'extent' in it is missing");
	assert_shape_refused("DROP TABLE unit", "'unit' in it is missing");
	assert_shape_refused("ALTER TABLE stand DROP COLUMN beta1_power",
	                     "'stand' in it is not as its version has it");
	assert_shape_refused("ALTER TABLE blob ADD COLUMN more INTEGER",
	                     "'blob' in it is not as its version has it");
	assert_shape_refused("CREATE TABLE aaa(x)", "'aaa' in it is unknown");
	assert_shape_refused("CREATE TABLE zzz(x)", "'zzz' in it is unknown");
	assert_shape_refused("CREATE TRIGGER t AFTER INSERT ON job BEGIN DELETE FROM job; END",
	                     "'t' in it is unknown");
	assert_shape_refused("ALTER TABLE blob RENAME TO b; CREATE VIEW blob AS SELECT * FROM b",
	                     "'b' in it is unknown");
}

Test(open, statistics_that_somebody_asked_for_do_no_harm)
{
	struct fixture fixture;
	struct sample sample;
	struct catalog *catalog = NULL;
	struct zi_text text = { "" };

	make_catalog(&fixture, &sample);
	change_by_sql(&fixture, "ANALYZE");
	cr_assert_eq(catalog_open(fixture.directory, &text, &catalog), 0, "%s", text.chars);
	catalog = catalog_close(catalog);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(open, a_file_that_is_no_database_is_refused)
{
	struct fixture fixture;
	uint8_t noise[8192];
	int fd;

	fixture_init(&fixture);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(i * 37 + 11);
	fd = open(fixture.file, O_CREAT | O_WRONLY, 0600);
	cr_assert_eq(zi_pwrite_all(fd, noise, sizeof(noise), 0), 0);
	fd = zi_close(fd);
	assert_refused_untouched(&fixture, -EUCLEAN, "move it away");
	fixture_deinit(&fixture);
}

Test(open, a_file_that_was_cut_off_is_refused)
{
	struct fixture fixture;
	struct sample sample;
	struct stat status;

	make_catalog(&fixture, &sample);
	cr_assert_eq(stat(fixture.file, &status), 0);
	cr_assert_eq(truncate(fixture.file, status.st_size / 2), 0);
	assert_refused_untouched(&fixture, -EUCLEAN, "");
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}

Test(open, a_page_that_was_overwritten_is_found_wherever_it_lies)
{
	static const uint8_t noise[256] = { 0xff, 0xfe, 0xfd, 1, 2, 3 };
	struct fixture fixture;
	struct sample sample;
	struct snapshot sound;

	make_catalog(&fixture, &sample);
	sound = snapshot_take(&fixture);
	cr_assert_gt(sound.byte_count, 4 * 4096);
	/* The head of each page: a page of zeros is free space to nobody but us, hence noise. */
	for (uint64_t offset = 4096; offset < sound.byte_count; offset += 4096) {
		change_bytes(&fixture, offset, noise, sizeof(noise));
		assert_refused_untouched(&fixture, -EUCLEAN, "");
		change_bytes(&fixture, offset, sound.bytes + offset, sizeof(noise));
	}
	fixture_assert_committed(&fixture, &sample);
	free(sound.bytes);
	sample_deinit(&sample);
	fixture_deinit(&fixture);
}
