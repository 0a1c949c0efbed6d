/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: --help of each command is an answer (exit code 0, standard output, 80 columns), and an
 * answer that was not written is no success. Method: lines of sh, with standard output full, closed
 * or a pipe whose reader has ended; tables of a daemon that runs.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 16];

/* In each the programs are $zctl, $zinfd and $net. Return: the exit code; what the line prints on
 * standard output goes to `words`. */
static int sh(const char *line)
{
	char path[300];
	size_t byte_count;
	FILE *pipe;

	setenv("zctl", harness_program("zctl", path, sizeof(path)), 1);
	setenv("zinfd", harness_program("zinfd", path, sizeof(path)), 1);
	setenv("net", harness_program("zinf-net", path, sizeof(path)), 1);
	pipe = popen(line, "r");
	cr_assert_not_null(pipe);
	byte_count = fread(words, 1, sizeof(words) - 1, pipe);
	words[byte_count] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

static void expect_columns(const char *command)
{
	char *place = NULL;

	for (char *line = strtok_r(words, "\n", &place); line; line = strtok_r(NULL, "\n", &place))
		cr_expect_leq(strlen(line), 80, "%s: '%s'", command, line);
}

static const char *const programs[] = {
	"$zctl",        "$zctl status", "$zctl tiers",    "$zctl jobs",    "$zctl delete",
	"$zctl limits", "$zctl bench",  "$zctl drain",    "$zctl undrain", "$zctl snapshot",
	"$zctl export", "$zctl load",   "$zctl estimate", "$zctl launch",  "$zctl doctor",
	"$zinfd",       "$net",
};

Test(zctl_output, help_is_an_answer_in_80_columns, .timeout = 120)
{
	for (size_t i = 0; i < ZI_COUNT_OF(programs); i++) {
		char line[200];

		(void)snprintf(line, sizeof(line), "%s --help 2>/dev/null", programs[i]);
		cr_expect_eq(sh(line), 0, "%s", line);
		cr_expect_eq(strncmp(words, "usage: ", 7), 0, "%s: %s", line, words);
		cr_expect_not_null(strstr(words, "\nexample: "), "%s: %s", line, words);
		expect_columns(line);
		(void)snprintf(line, sizeof(line), "%s --help 2>&1 >/dev/full", programs[i]);
		cr_expect_eq(sh(line), 1, "%s", line);
		cr_expect_not_null(strstr(words, "No space left on device\n"), "%s: %s", line,
		                   words);
	}
}

Test(zctl_output, help_is_a_command_too, .timeout = 60)
{
	cr_expect_eq(sh("$zctl help 2>/dev/null"), 0);
	system_expect_text(words, "usage: zctl [--socket PATH]");
	cr_expect_eq(sh("$zctl help snapshot 2>/dev/null"), 0);
	system_expect_text(words, "usage: zctl snapshot JOB");
	cr_expect_eq(sh("$zctl help bogus 2>&1"), 2);
	system_expect_text(words, "zctl: unknown command 'bogus'");
	cr_expect_eq(sh("$zctl bench 2>&1"), 2);
	system_expect_text(words, "usage: zctl bench nvme [NAME]");
}

Test(zctl_output, a_lost_answer_is_no_success, .timeout = 120)
{
	static const char *const answers[] = { "status",      "tiers",         "jobs",     "limits",
		                               "estimate 1G", "--json status", "--version" };

	system_start(&harness, &(struct harness_options){ .nvme_size = "32M" });
	setenv("ZINF_SOCKET", harness.socket_path, 1);
	for (size_t i = 0; i < ZI_COUNT_OF(answers); i++) {
		char line[200];

		(void)snprintf(line, sizeof(line), "$zctl %s 2>&1 >/dev/full", answers[i]);
		cr_expect_eq(sh(line), 1, "%s", line);
		cr_expect_str_eq(words, "zctl: writing to standard output failed: No space left on "
		                        "device\n");
		(void)snprintf(line, sizeof(line), "$zctl %s 2>&1 >&-", answers[i]);
		cr_expect_eq(sh(line), 1, "%s", line);
		cr_expect_str_eq(words, "zctl: writing to standard output failed: Bad file "
		                        "descriptor\n");
		/* The reader's end: also where SIGPIPE is ignored. */
		(void)snprintf(line, sizeof(line), "exec 2>&1; trap '' PIPE; $zctl %s | true",
		               answers[i]);
		cr_expect_eq(sh(line), 0, "%s", line);
		cr_expect_str_eq(words, "", "%s", line);
	}
	cr_assert_eq(harness_stop(&harness), 0);
}

/* ---- what zctl says of its surroundings ---- */

Test(zctl_output, a_directory_without_manifest_is_named_as_such, .timeout = 60)
{
	cr_expect_eq(sh("d=$(mktemp -d); $zctl load $d gpt 2>&1; c=$?; rmdir $d; exit $c"), 1);
	system_expect_text(words, " has no manifest.json: name a directory that zctl export "
	                          "--format zinf wrote; nothing was loaded\n");
}

/* Mode 0 keeps out everybody but root. */
Test(zctl_output, the_socket_of_another_uid_is_said_to_be_one, .timeout = 60)
{
	static const char *const as_nobody =
		"setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null || exit 77; "
		"setpriv --reuid 65534 --regid 65534 --clear-groups $zctl status 2>&1";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char owner[80];
	int code;

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/zinf-other-%d.sock",
	               getpid());
	cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(chmod(address.sun_path, 0), 0);
	setenv("ZINF_SOCKET", address.sun_path, 1);
	code = sh(geteuid() ? "$zctl status 2>&1" : as_nobody);
	(void)unlink(address.sun_path);
	(void)close(fd);
	if (code == 77)
		cr_skip_test("root, and no setpriv to be another uid");
	if (code == 126 || code == 127)
		cr_skip_test("uid 65534 may not start zctl where it was built");
	cr_expect_eq(code, 1, "%d", code);
	(void)snprintf(owner, sizeof(owner), "of uid %u and gid %u", geteuid(), getegid());
	cr_expect_not_null(strstr(words, "may not use zinfd's socket"), "%s", words);
	cr_expect_not_null(strstr(words, owner), "%s", words);
}
