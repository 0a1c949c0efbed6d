/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: zinf-gpt writes its files and its text to wherever a user may send them: devices, FIFOs,
 * links, pipes that close, disks that are full. Method: the program as a command; the dump of the
 * same training in a regular file for comparison. Links in the test's folder lead to devices, so
 * that a program that replaces its target harms nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/system/gpt.h"

#define TINY                                                                        \
	"--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --warmup 1 " \
	"--lr 1e-3 --min-lr 1e-3 --staging 4M "
#define PLAIN TINY "--reference --steps 2 --quiet "

static void start_plain(void)
{
	folder_make(&folder, "output");
	gpt_needs_program();
	gpt_run(0, "zinf-gpt", PLAIN "--dump plain");
}

static void stop_plain(void)
{
	folder_remove(&folder);
}

TestSuite(dump, .init = start_plain, .fini = stop_plain, .timeout = 60);

/* The type of @name itself, not of what it leads to. */
static unsigned type_of(const char *name)
{
	struct stat status;

	cr_assert_eq(lstat(path_of(name), &status), 0, "%s", name);
	return status.st_mode & S_IFMT;
}

Test(dump, links_stay_and_their_targets_are_written)
{
	folder_run(&folder, "mkdir sub && ln -s sub/real first && ln -s first second && "
	                    "ln -s $PWD/sub/absent dangling && echo old >sub/real");
	gpt_run(0, "zinf-gpt", PLAIN "--dump second");
	cr_expect_eq(type_of("first"), S_IFLNK);
	cr_expect_eq(type_of("second"), S_IFLNK);
	cr_expect_eq(type_of("sub/real"), S_IFREG);
	gpt_expect_equal_dumps("plain", "sub/real");
	gpt_run(0, "zinf-gpt", PLAIN "--dump dangling");
	cr_expect_eq(type_of("dangling"), S_IFLNK);
	gpt_expect_equal_dumps("plain", "sub/absent");
	folder_run(&folder, "[ \"$(ls sub)\" = \"absent\nreal\" ]");
}

Test(dump, a_circle_of_links_is_refused)
{
	folder_run(&folder, "ln -s two one && ln -s one two");
	gpt_run(1, "zinf-gpt", PLAIN "--dump one");
	system_expect_text(words, "writing --dump one failed: Too many levels of symbolic links");
	cr_expect_eq(type_of("one"), S_IFLNK);
}

Test(dump, a_fifo_is_written_in_place)
{
	folder_run(&folder, "mkfifo fifo");
	gpt_run(0, "zinf-gpt", "--version; cat fifo >got & $program " PLAIN "--dump fifo && wait");
	cr_expect_eq(type_of("fifo"), S_IFIFO);
	gpt_expect_equal_dumps("plain", "got");
}

Test(dump, devices_are_written_in_place)
{
	folder_run(&folder, "ln -s /dev/null null && ln -s /dev/full full");
	gpt_run(0, "zinf-gpt", PLAIN "--dump null --dump-state null");
	cr_expect_eq(type_of("null"), S_IFLNK);
	gpt_run(1, "zinf-gpt", PLAIN "--dump full");
	system_expect_text(words, "writing --dump full failed: No space left on device");
	gpt_run(1, "zinf-gpt", PLAIN "--dump-state full");
	system_expect_text(words, "writing --dump-state full failed: No space left on device");
	cr_expect_eq(type_of("full"), S_IFLNK);
}

Test(dump, standard_output_takes_a_dump_behind_the_lines)
{
	folder_run(&folder, "ln -s /dev/stdout out");
	gpt_run(0, "zinf-gpt", "--version >/dev/null; $program " PLAIN "--dump out | cmp - plain");
	cr_expect_eq(type_of("out"), S_IFLNK);
	/* A file that is standard output already keeps its lines. */
	gpt_run(0, "zinf-gpt",
	        "--version >lines; cp lines want; cat plain >>want; "
	        "$program " PLAIN "--dump out >>lines && cmp lines want");
}

Test(dump, a_full_disk_leaves_the_former_file)
{
	folder_run(&folder, "echo old >kept && cp kept old && mkdir kept.part");
	gpt_run(1, "zinf-gpt", PLAIN "--dump kept");
	system_expect_text(words, "writing --dump kept failed: Is a directory");
	gpt_expect_equal_dumps("kept", "old");
	gpt_run(1, "zinf-gpt", PLAIN "--dump .");
	system_expect_text(words, "writing --dump . failed: Is a directory");
}
