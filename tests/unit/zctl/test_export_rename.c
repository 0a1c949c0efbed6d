/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: an export gets its name without overwriting what has that name, also where the file system
 * knows no RENAME_NOREPLACE. Method: a filter of system calls that answers renameat2() as such a
 * file system does.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "tests/harness/seccomp.h"
#include "zctl/export.h"

#ifndef SYS_rename /* Machines whose C library calls renameat(). */
#define SYS_rename SYS_renameat
#endif

static char folder[] = "/tmp/zinf-rename-XXXXXX";

static void refuse_flag(void)
{
	cr_assert_not_null(mkdtemp(folder));
	cr_assert_eq(chdir(folder), 0);
	refuse_call(SYS_renameat2, EINVAL);
}

static void remove_all(void)
{
	static const char *const names[] = { "a.tmp", "a", "d.tmp/in", "d/in" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)unlink(names[i]); /* Those that are there. */
	(void)rmdir("d.tmp");
	(void)rmdir("d");
	cr_assert_eq(rmdir(folder), 0);
}

TestSuite(export_rename, .init = refuse_flag, .fini = remove_all);

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	zi_close(fd);
}

static void expect_text(const char *path, const char *want)
{
	char text[64];

	cr_assert_eq(zi_read_text(path, text, sizeof(text)), 0, "%s", path);
	cr_expect_str_eq(text, want);
}

Test(export_rename, a_file_gets_its_name_and_takes_no_other_ones)
{
	write_file("a.tmp", "new");
	cr_assert_eq(export_rename("a.tmp", "a", false), 0);
	expect_text("a", "new");
	write_file("a.tmp", "newer");
	cr_expect_eq(export_rename("a.tmp", "a", false), -1);
	cr_expect_eq(errno, EEXIST);
	expect_text("a", "new");
	expect_text("a.tmp", "newer");
}

Test(export_rename, a_directory_gets_its_name_and_takes_no_other_ones)
{
	cr_assert_eq(mkdir("d.tmp", 0700), 0);
	write_file("d.tmp/in", "new");
	cr_assert_eq(export_rename("d.tmp", "d", true), 0);
	expect_text("d/in", "new");
	cr_assert_eq(mkdir("d.tmp", 0700), 0);
	cr_expect_eq(export_rename("d.tmp", "d", true), -1);
	cr_expect_eq(errno, EEXIST);
	expect_text("d/in", "new");
}

Test(export_rename, a_name_that_was_claimed_is_given_back)
{
	cr_expect_eq(export_rename("a.tmp", "a", false), -1);
	cr_expect_eq(errno, ENOENT);
	cr_expect_eq(access("a", F_OK), -1, "an empty file was left");
}

/* An export whose rename never comes: it is killed when it has claimed the name. */
static void kill_after_claim(bool is_directory)
{
	int status;
	pid_t child = fork();

	if (!child) {
		kill_at_call(SYS_rename);
		(void)export_rename(is_directory ? "d.tmp" : "a.tmp", is_directory ? "d" : "a",
		                    is_directory);
		_exit(1); /* Not reached. */
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status), "status %x", status);
	cr_assert_eq(access(is_directory ? "d" : "a", F_OK), 0, "the claim is there");
}

Test(export_rename, a_claim_that_a_kill_left_is_taken_over)
{
	write_file("a.tmp", "new");
	kill_after_claim(false);
	cr_expect(export_name_is_free("a", false));
	cr_expect_eq(export_rename("a.tmp", "a", false), 0);
	expect_text("a", "new");
	cr_expect_not(export_name_is_free("a", false));
	cr_assert_eq(mkdir("d.tmp", 0700), 0);
	write_file("d.tmp/in", "new");
	kill_after_claim(true);
	cr_expect(export_name_is_free("d", true));
	cr_expect_eq(export_rename("d.tmp", "d", true), 0);
	expect_text("d/in", "new");
	cr_expect_not(export_name_is_free("d", true));
}

Test(export_rename, a_claim_in_use_and_an_empty_file_of_somebody_are_left_alone)
{
	int fd;

	write_file("a.tmp", "new");
	write_file("a", "");
	cr_expect_not(export_name_is_free("a", false), "an empty file");
	cr_expect_eq(export_rename("a.tmp", "a", false), -1);
	cr_expect_eq(errno, EEXIST);
	cr_assert_eq(unlink("a"), 0);
	kill_after_claim(false);
	fd = open("a", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	cr_expect_not(export_name_is_free("a", false), "its export lives");
	cr_expect_eq(export_rename("a.tmp", "a", false), -1);
	cr_expect_eq(errno, EEXIST);
	expect_text("a", "");
	(void)zi_close(fd);
	cr_assert_eq(mkdir("d", 0700), 0);
	cr_expect_not(export_name_is_free("d", true), "an empty directory");
}
