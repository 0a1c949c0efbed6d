/* SPDX-License-Identifier: Apache-2.0 */
/* A real zinfd for tests and benches (harness.h): child processes and questions to the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/harness/harness.h"

/* Of a line of zctl, with the NULL behind them. */
#define WORDS_MAX 32

pid_t harness_fork(harness_body_fn body, void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(body(arg));
}

int harness_wait(pid_t pid, uint32_t timeout_ms)
{
	struct pollfd poller = { .events = POLLIN };
	int status = 0;
	int r = zi_pidfd_open(pid, &poller.fd);

	if (r)
		return r;
	r = poll(&poller, 1, (int)timeout_ms);
	(void)zi_close(poller.fd);
	if (r <= 0)
		(void)kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	if (r <= 0)
		return -ETIMEDOUT;
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Runs a program to its end and collects what it prints (both streams when @with_stderr). */
static int collect(const char *program, const char *const *arguments, bool with_stderr, char *words,
                   size_t capacity)
{
	int pipe_fds[2];
	size_t total_bytes = 0;
	ssize_t bytes;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(pipe_fds[1], STDOUT_FILENO);
		if (with_stderr)
			(void)dup2(pipe_fds[1], STDERR_FILENO);
		execv(program, (char *const *)arguments);
		_exit(126);
	}
	(void)zi_close(pipe_fds[1]);
	while (total_bytes + 1 < capacity &&
	       (bytes = read(pipe_fds[0], words + total_bytes, capacity - 1 - total_bytes)) > 0)
		total_bytes += (size_t)bytes;
	words[total_bytes] = '\0';
	(void)zi_close(pipe_fds[0]);
	return pid < 0 ? -errno : harness_wait(pid, 60000);
}

int harness_run(const char *config_text, const char *const *arguments, char *words, size_t capacity)
{
	char program[300], path[256];
	const char *line[32] = { program, "--config", path };
	const char *parent = getenv("TMPDIR");
	int fd, count = 3;
	int r;

	(void)snprintf(path, sizeof path, "%s/zinf-config.XXXXXX", parent ? parent : "/var/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = zi_pwrite_all(fd, config_text, strlen(config_text), 0);
	(void)zi_close(fd);
	while (arguments && *arguments && count < 31)
		line[count++] = *arguments++;
	(void)harness_program("zinfd", program, sizeof program);
	if (!r)
		r = collect(program, line, true, words, capacity);
	(void)unlink(path);
	return r;
}

int harness_zctl(const char *socket_path, const char *const *arguments, char *words,
                 size_t capacity)
{
	char program[300];
	const char *line[WORDS_MAX] = { program, "--socket", socket_path };
	int count = 3;

	(void)harness_program("zctl", program, sizeof program);
	while (*arguments && count < WORDS_MAX - 1)
		line[count++] = *arguments++;
	return collect(program, line, true, words, capacity);
}

json_t *harness_admin(struct harness *harness, const char *command)
{
	enum { ANSWER_BYTES = 1 << 20 };
	char program[300];
	char words[256];
	const char *line[WORDS_MAX] = { program, "--json", "--socket", harness->socket_path };
	char *text = malloc(ANSWER_BYTES), *place = NULL;
	int count = 4;
	json_t *json = NULL;

	if (!text)
		return NULL;
	(void)harness_program("zctl", program, sizeof program);
	(void)snprintf(words, sizeof words, "%s", command);
	for (char *word = strtok_r(words, " ", &place); word && count < WORDS_MAX - 1;
	     word = strtok_r(NULL, " ", &place))
		line[count++] = word;
	if (!collect(program, line, false, text, ANSWER_BYTES))
		json = json_loads(text, 0, NULL);
	if (!json) {
		fprintf(stderr, "harness: zctl %s answered: %s\n", command, text);
		harness_print_log(harness);
	}
	free(text);
	return json;
}

uint64_t harness_cpu_bytes(struct harness *harness)
{
	json_t *tiers = harness_admin(harness, "tiers"), *tier;
	uint64_t bytes = 0;
	size_t index;

	if (!tiers)
		return UINT64_MAX;
	/* clang-format off: it does not know the loop */
	json_array_foreach(tiers, index, tier)
	{
		if (!strcmp(json_string_value(json_object_get(tier, "kind")), "cpu"))
			bytes += (uint64_t)json_integer_value(json_object_get(tier, "used_bytes"));
	}
	/* clang-format on */
	json_decref(tiers);
	return bytes;
}

bool harness_charges_return(struct harness *harness, uint64_t expected_cpu_bytes,
                            uint32_t timeout_ms)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(timeout_ms * ZI_NS_PER_MS);
	uint64_t bytes;

	do {
		bytes = harness_cpu_bytes(harness);
		if (bytes == expected_cpu_bytes)
			return true;
	} while (bytes != UINT64_MAX && zi_clock_now_ns() < deadline_ns);
	fprintf(stderr, "harness: %llu bytes of CPU tiers are charged, %llu expected\n",
	        (unsigned long long)bytes, (unsigned long long)expected_cpu_bytes);
	return false;
}
