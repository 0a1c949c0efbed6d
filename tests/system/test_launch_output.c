/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what ranks print arrives whole, behind their prefix, byte by byte as it was, in log files
 * too; and a reader that is slow or gone holds up nobody. Method: the real zctl; what arrives is
 * compared with what was written.
 */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/guard/guard.h"
#include "tests/system/launch.h"

TestSuite(launch_output, .timeout = 180);

static char directory[256];

static void make_directory(void)
{
	cr_assert_not_null(mkdtemp(guard_path(directory, sizeof(directory), "launch")));
}

static void remove_directory(void)
{
	cr_assert_eq(harness_remove_folder(directory), 0);
}

/* The only file that @pattern, below the directory, names; its bytes are the caller's. */
static char *read_file(const char *pattern, size_t *ret_count)
{
	char path[400];
	glob_t found;
	struct stat status;
	char *bytes;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, pattern);
	cr_assert_eq(glob(path, 0, NULL, &found), 0, "no %s", path);
	cr_assert_eq(found.gl_pathc, 1);
	fd = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && !fstat(fd, &status));
	bytes = calloc(1, (size_t)status.st_size + 1);
	cr_assert_eq(read(fd, bytes, (size_t)status.st_size), status.st_size);
	(void)close(fd);
	globfree(&found);
	if (ret_count)
		*ret_count = (size_t)status.st_size;
	return bytes;
}

static void expect_file(const char *pattern, const char *words)
{
	char *bytes = read_file(pattern, NULL);

	cr_expect_str_eq(bytes, words, "%s holds: %s", pattern, bytes);
	free(bytes);
}

/* ---- lines ---- */

Test(launch_output, both_streams_are_told_apart)
{
	RUN(0, "--standalone", "sh", "-c", "echo to out; echo to err >&2");
	cr_expect_str_eq(out, "[rank 0]: to out\n");
	cr_expect_str_eq(err, "[rank 0]: to err\n");
	launched_free(&launched);
}

Test(launch_output, lines_of_many_ranks_never_mix)
{
	int counts[8] = { 0 };
	char *place = NULL;

	/* In pieces, so that only whoever collects them makes lines. */
	RUN(0, "--nproc-per-node", "8", "sh", "-c",
	    "i=0; while [ $i -lt 100 ]; do printf \"$RANK says \"; printf \"$i and \"; "
	    "printf 'no more\\n'; i=$((i+1)); done");
	for (char *line = strtok_r(out, "\n", &place); line; line = strtok_r(NULL, "\n", &place)) {
		char expected[64];
		int rank = atoi(line + strlen("[rank "));

		cr_assert(rank >= 0 && rank < 8, "%s", line);
		(void)snprintf(expected, sizeof(expected), "[rank %d]: %d says %d and no more",
		               rank, rank, counts[rank]++);
		cr_assert_str_eq(line, expected);
	}
	for (int rank = 0; rank < 8; rank++)
		cr_expect_eq(counts[rank], 100);
	launched_free(&launched);
}

Test(launch_output, a_last_line_without_an_end_gets_one)
{
	RUN(0, "sh", "-c", "printf 'no end'");
	cr_expect_str_eq(out, "[rank 0]: no end\n");
	launched_free(&launched);
}

Test(launch_output, a_bar_is_shown_each_time_it_is_drawn)
{
	BEGIN("sh", "-c", "printf '\\r10%%\\r20%%'; read x; printf '\\ndone\\r\\nend\\n'");
	launch_end(0);
	cr_expect_str_eq(out, "[rank 0]: \r[rank 0]: 10%\r[rank 0]: 20%\n[rank 0]: done\r\n"
	                      "[rank 0]: end\n");
	launched_free(&launched);
}

Test(launch_output, very_long_lines_are_cut_with_a_prefix_each)
{
	const size_t piece = 64 << 10;

	RUN(0, "sh", "-c", "head -c 150000 /dev/zero | tr '\\0' x; echo; echo short");
	cr_expect_eq(launched.counts[0],
	             150000 + 3 * strlen("[rank 0]: \n") + strlen("[rank 0]: short\n"));
	cr_expect_eq(launched_count(out, "[rank 0]: x"), 3);
	cr_expect_eq(strcspn(out, "\n"), strlen("[rank 0]: ") + piece);
	expect_words(out, "x\n[rank 0]: short\n");
	launched_free(&launched);
}

/* Without its prefixes: the bytes as they were. */
static size_t strip(char *words, size_t count)
{
	static const char prefix[] = "[rank 0]: ";
	size_t kept = 0;

	for (size_t i = 0; i < count;) {
		if (count - i >= sizeof(prefix) - 1 &&
		    memcmp(words + i, prefix, sizeof(prefix) - 1) == 0)
			i += sizeof(prefix) - 1;
		else
			words[kept++] = words[i++];
	}
	return kept;
}

Test(launch_output, bytes_of_any_kind_arrive_as_they_were)
{
	size_t count, kept;
	char *bytes;

	make_directory();
	RUN(0, "--log-dir", directory, "--tee", "1", "sh", "-c",
	    "head -c 1000000 /dev/urandom; echo end");
	bytes = read_file("*/attempt_0/0/stdout.log", &count);
	cr_expect_eq(count, 1000004);
	kept = strip(out, launched.counts[0]);
	cr_expect_eq(kept, count);
	cr_expect_eq(memcmp(out, bytes, count), 0);
	free(bytes);
	launched_free(&launched);
	remove_directory();
}

Test(launch_output, lines_of_both_streams_into_one_pipe_never_mix)
{
	int counts[2] = { 0 };
	char *place = NULL;

	/* Far more than a pipe takes at once: parts of what is written. */
	launched_start_merged(&launched,
	                      (const char *const[]){ "--standalone", "sh", "-c",
	                                             "yes 12345678901234 | head -n 12000 & "
	                                             "yes abcdefghijklmn | head -n 12000 >&2; wait",
	                                             NULL });
	launch_end(0);
	for (char *line = strtok_r(out, "\n", &place); line; line = strtok_r(NULL, "\n", &place)) {
		if (strcmp(line, "[rank 0]: 12345678901234") == 0)
			counts[0]++;
		else if (strcmp(line, "[rank 0]: abcdefghijklmn") == 0)
			counts[1]++;
		else
			cr_assert_fail("%s", line);
	}
	cr_expect_eq(counts[0], 12000);
	cr_expect_eq(counts[1], 12000);
	launched_free(&launched);
}

/* ---- files ---- */

Test(launch_output, redirected_streams_go_into_files_alone)
{
	static const char *const script = "echo out $RANK; echo err $RANK >&2";

	cr_assert_eq(setenv("OMP_NUM_THREADS", "1", 1), 0);
	make_directory();
	RUN(0, "--nproc-per-node", "3", "--log-dir", directory, "--rdzv-id", "named", "-r",
	    "0:3,1:2", "--tee=1:1", "sh", "-c", script);
	cr_expect_eq(launched_count(out, "[rank "), 2, "%s", out);
	expect_words(out, "[rank 1]: out 1\n");
	expect_words(out, "[rank 2]: out 2\n");
	expect_words(err, "zctl: log files are in ");
	expect_words(err, "/named_zctl-");
	cr_expect_eq(launched_count(err, "[rank "), 1, "%s", err);
	expect_words(err, "[rank 2]: err 2\n");
	expect_file("named_*/attempt_0/0/stdout.log", "out 0\n");
	expect_file("named_*/attempt_0/0/stderr.log", "err 0\n");
	expect_file("named_*/attempt_0/1/stdout.log", "out 1\n");
	expect_file("named_*/attempt_0/1/stderr.log", "err 1\n");
	launched_free(&launched);
	remove_directory();
}

Test(launch_output, each_attempt_has_files_of_its_own)
{
	make_directory();
	RUN(1, "--max-restarts", "1", "--log-dir", directory, "-r3", "sh", "-c",
	    "echo try $TORCHELASTIC_RESTART_COUNT; exit 1");
	expect_file("*/attempt_0/0/stdout.log", "try 0\n");
	expect_file("*/attempt_1/0/stdout.log", "try 1\n");
	launched_free(&launched);
	remove_directory();
}

Test(launch_output, a_log_directory_that_cannot_be_made_is_told)
{
	RUN(1, "--log-dir", "/proc/nowhere", "-r", "3", "true");
	expect_words(err, "making /proc/nowhere failed: ");
	launched_free(&launched);
	cr_assert_eq(setenv("TMPDIR", "/proc/nowhere", 1), 0);
	RUN(1, "-r", "3", "true");
	expect_words(err, "making /proc/nowhere/zctl-launch.");
	launched_free(&launched);
	/* Without log files it is not needed. */
	RUN(0, "sh", "-c", "echo error file: $TORCHELASTIC_ERROR_FILE");
	cr_expect_str_eq(out, "[rank 0]: error file:\n");
	launched_free(&launched);
}

Test(launch_output, log_files_without_a_directory_are_kept_and_named)
{
	cr_assert_eq(setenv("TMPDIR", "/tmp", 0), 0);
	make_directory();
	cr_assert_eq(setenv("TMPDIR", directory, 1), 0);
	RUN(0, "-t", "2", "sh", "-c", "echo kept >&2");
	expect_file("zctl-launch.*/attempt_0/0/stderr.log", "kept\n");
	expect_words(err, directory);
	launched_free(&launched);
	remove_directory();
}

Test(launch_output, only_the_ranks_asked_for_are_shown)
{
	RUN(0, "--nproc-per-node", "4", "--local-ranks-filter", "1,3", "sh", "-c",
	    "echo I am $RANK; echo x >&2");
	expect_words(out, "[rank 1]: I am 1\n");
	expect_words(out, "[rank 3]: I am 3\n");
	expect_no_words(out, "[rank 0]");
	expect_no_words(err, "[rank 2]");
	launched_free(&launched);
	RUN(5, "--local-ranks-filter", "1", "sh", "-c", "echo hidden; exit 5");
	cr_expect_str_eq(out, "");
	expect_words(err, "zctl: rank 0 (pid "); /* told all the same */
	expect_words(err, "--local-ranks-filter names rank 1, but of 1 ranks the last is rank 0");
	launched_free(&launched);
	make_directory();
	RUN(0, "--log-dir", directory, "--redirects", "0:1,7:2", "--local-ranks-filter", "0,1",
	    "--nproc-per-node", "2", "true");
	expect_words(err, "--redirects names rank 7, but of 2 ranks the last is rank 1");
	launched_free(&launched);
	remove_directory();
	RUN(0, "--nproc-per-node", "2", "--redirects", "0", "true");
	expect_no_words(err, "names rank");
	launched_free(&launched);
}

/* ---- readers ---- */

Test(launch_output, a_reader_that_does_not_read_holds_up_no_signal)
{
	/* 200 KB are more than the pipes and a line take: the rest must wait in the supervisor. */
	BEGIN("sh", "-c",
	      "yes 123456789012345678901234567890123456789 | head -c 200000; echo ready >&2; "
	      "exec yes");
	launched.is_held = true;
	AWAIT(1, "ready", 1);
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	AWAIT(1, "zctl: SIGTERM is passed on", 1);
	launched.is_held = false;
	launch_end(128 + SIGTERM);
	cr_expect_eq(launched_count(out, "[rank 0]: 1234567890"), 5000);
	launched_free(&launched);
}

/* Once the ranks have ended, a signal says that nobody wants the rest. */
Test(launch_output, what_nobody_reads_can_be_given_up)
{
	BEGIN("--stdin", "none", "sh", "-c",
	      "yes 123456789012345678901234567890123456789 | head -c 200000; exit 6");
	launched.is_held = true;
	AWAIT(1, "zctl: rank 0 (pid ", 1);
	cr_assert_eq(kill(launched.pid, SIGTERM), 0);
	launch_end(6);
	launched_free(&launched);
}

Test(launch_output, a_slow_reader_gets_everything)
{
	const size_t count = 300000, line = strlen("[rank 0]: yyyyyyy\n");

	BEGIN("sh", "-c", "yes yyyyyyy | head -n 300000; echo done >&2");
	/* It cannot be done before most of it was read. */
	cr_expect_null(strstr(err, "done"));
	launch_end(0);
	expect_words(err, "done");
	cr_expect_eq(launched.counts[0], count * line, "%zu", launched.counts[0]);
	launched_free(&launched);
}

Test(launch_output, a_reader_that_went_away_ends_no_training)
{
	BEGIN("sh", "-c", "echo ready >&2; while :; do echo words; [ -e $0 ] && exit 7; done",
	      "/dev/null");
	(void)close(launched.fds[0]);
	launched.fds[0] = -1;
	launch_end(7);
	launched_free(&launched);
}
