/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a plain user's daemon, started again without the options that made its store, has its jobs
 * and goes on with them, also after it was killed. Method: zinfd --user in a folder of the test.
 */
#include "tests/system/system.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/guard/guard.h"

TestSuite(user, .timeout = 120);

static struct harness harness = { .notify_fd = -1 };
static pid_t pid;

/* Returns when it says that it is ready. @size: NULL, none is given. */
static void start(const char *size)
{
	char program[300], fd_text[16], byte;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		int log = open(harness.log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(fds[0]);
		(void)dup2(log, STDERR_FILENO);
		(void)snprintf(fd_text, sizeof(fd_text), "%d", fds[1]);
		(void)execl(harness_program("zinfd", program, sizeof(program)), "zinfd", "--user",
		            "--dir", harness.directory, "--ready-fd", fd_text,
		            size ? "--size" : NULL, size, NULL);
		_exit(127);
	}
	(void)close(fds[1]);
	if (read(fds[0], &byte, 1) != 1) {
		harness_print_log(&harness);
		cr_assert_fail("zinfd --user does not start");
	}
	(void)close(fds[0]);
}

static void end(int signal_number)
{
	cr_assert_eq(kill(pid, signal_number), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static void train(uint32_t steps)
{
	struct trainer_settings settings = ranks_settings(&harness, "mine", 1);
	char incarnation[16];
	struct ranks ranks;

	(void)snprintf(incarnation, sizeof(incarnation), "run.%u", steps);
	settings.options.incarnation = incarnation;
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 12 << 20;
	settings.steps = steps;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	cr_assert(ranks_are_right(&ranks));
	cr_assert_eq(ranks.reports[0]->step, steps);
	ranks_free(&ranks);
}

static void remove_all(void)
{
	char command[300];

	(void)snprintf(command, sizeof(command), "rm -rf %s", harness.directory);
	cr_assert_eq(system(command), 0);
}

Test(user, store_in_the_folder_is_used_without_its_size_after_a_crash)
{
	static char words[65536];

	cr_assert_not_null(
		mkdtemp(guard_path(harness.directory, sizeof(harness.directory), "user")));
	(void)snprintf(harness.socket_path, sizeof(harness.socket_path), "%s/zinfd.sock",
	               harness.directory);
	(void)snprintf(harness.log_path, sizeof(harness.log_path), "%s/log", harness.directory);
	start("48M");
	harness_log(&harness, words, sizeof(words));
	system_expect_text(words, "Making a store of 48 MiB at ");
	train(2);
	end(SIGKILL);
	start(NULL);
	cr_assert_eq(harness_zctl(harness.socket_path, (const char *const[]){ "jobs", NULL }, words,
	                          sizeof(words)),
	             0);
	system_expect_text(words, "mine");
	train(4);
	end(SIGTERM);
	remove_all();
}
