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

/* ---- standard output ---- */

#define MODEL "--layers 1 --heads 1 --d-model 16 --seq-len 16 --batch-size 1 --staging 4M "

static void start_trained(void)
{
	gpt_start();
	gpt_run(0, "zinf-gpt", TINY "--steps 2 --quiet");
}

TestSuite(stdout_lost, .init = start_trained, .fini = files_stop, .timeout = 120);

/* Ends with @code and prints nothing but @says. */
static void expect_end(int code, const char *says, const char *arguments)
{
	gpt_run(code, "zinf-gpt", arguments);
	cr_expect_str_eq(words, says, "%s", arguments);
}

/* With a full disk for its output; must end with 1. Its errors lie in `words`. */
static void run_full(const char *arguments)
{
	char line[600];

	(void)snprintf(line, sizeof(line), "--version >/dev/null; ( $program %s 2>&1 >/dev/full )",
	               arguments);
	gpt_run(1, "zinf-gpt", line);
}

Test(stdout_lost, text_for_a_full_output_is_an_error)
{
	run_full("--help");
	cr_expect_str_eq(words,
	                 "zinf-gpt: writing to standard output failed: No space left on device\n");
	run_full("--version");
	cr_expect_str_eq(words,
	                 "zinf-gpt: writing to standard output failed: No space left on device\n");
	run_full(MODEL "--generate 1000000000");
	system_expect_text(words, "zinf-gpt: rank 0: writing to standard output failed: No space "
	                          "left on device\n");
	run_full(MODEL "--generate 1000000000 --json");
	system_expect_text(words, "No space left on device\n");
	run_full(MODEL "--eval /usr/share/common-licenses/BSD");
	system_expect_text(words, "No space left on device\n");
	gpt_run(0, "zinf-gpt",
	        "--version; ( $program " MODEL "--generate 1000000000 >&- ); echo $?");
	system_expect_text(words, "141\n");
}

Test(stdout_lost, text_ends_quietly_when_nobody_reads_it)
{
	expect_end(0, "The end141\n",
	           "--version >/dev/null; { $program " MODEL
	           "--generate 1000000000 --prompt 'The end of all' 2>&1; echo $? >code; } | "
	           "head -c 7; cat code");
	/* What was made for it goes as well. */
	gpt_run(0, "zctl", "snapshot gpt --name s");
	expect_end(0, "T141\n",
	           "--version >/dev/null; { $program " MODEL
	           "--generate 1000000000 --prompt 'The end' --job look --load gpt/s --delete-job "
	           "2>&1; echo $? >code; } | head -c 1; cat code");
	gpt_run(0, "zctl", "jobs");
	cr_expect_null(strstr(words, "look"), "%s", words);
}

Test(stdout_lost, training_goes_on_without_a_reader)
{
	gpt_run(0, "zinf-gpt",
	        "--version; { $program " TINY
	        "--steps 30 --log-every 1 2>errors; echo $? >code; } | "
	        "head -n 1; cat code errors");
	system_expect_text(words, "\n0\n");
	gpt_run(0, "zctl", "jobs gpt");
	system_expect_text(words, "step 30");
	run_full(TINY "--steps 32 --log-every 1");
	system_expect_text(words, "writing to standard output failed, and lines are lost; the "
	                          "training itself is complete and committed\n");
	gpt_run(0, "zctl", "jobs gpt");
	system_expect_text(words, "step 32");
	gpt_run(0, "zinf-gpt", "--version; ( $program " TINY "--steps 33 --log-every 1 >&- )");
}

Test(stdout_lost, the_loss_of_a_text_is_no_progress)
{
	gpt_run(0, "zinf-gpt", MODEL "--eval /usr/share/common-licenses/BSD --quiet");
	system_expect_text(words, "/usr/share/common-licenses/BSD: loss ");
}
