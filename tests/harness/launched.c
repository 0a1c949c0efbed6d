/* SPDX-License-Identifier: Apache-2.0 */
/* zctl launch as a child whose words are followed (launched.h). */
#include "tests/harness/launched.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/harness/harness.h"

#define PIECE_BYTES      5000
#define WORDS_MAX        64
#define AWAIT_TIMEOUT_NS (100 * ZI_NS_PER_S)

static void become_zctl(const struct launched *launched, const char *const *words, int in, int out,
                        int err)
{
	const char *arguments[WORDS_MAX] = { "zctl", "launch" };
	char program[300];

	for (size_t i = 0; words[i] && i + 3 < WORDS_MAX; i++)
		arguments[i + 2] = words[i];
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setpgid(0, 0);
	if (in < 0)
		in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		_exit(99);
	/* Not as whoever runs the tests has them. */
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	(void)signal(SIGQUIT, SIG_DFL);
	(void)signal(SIGTSTP, SIG_DFL);
	if (launched->prepare)
		launched->prepare();
	(void)execv(harness_program("zctl", program, sizeof(program)), (char **)arguments);
	_exit(98);
}

static void start(struct launched *launched, const char *const *words, int stdin_fd, bool is_merged)
{
	int out[2], err[2];

	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		abort();
	launched->pid = fork();
	if (!launched->pid)
		become_zctl(launched, words, stdin_fd, out[1], is_merged ? out[1] : err[1]);
	(void)close(out[1]);
	(void)close(err[1]);
	launched->is_held = false;
	launched->is_merged = is_merged;
	launched->fds[0] = out[0];
	launched->fds[1] = err[0];
	for (int i = 0; i < 2; i++) {
		launched->words[i] = calloc(1, LAUNCHED_WORDS_BYTES);
		launched->counts[i] = 0;
	}
	if (launched->pid < 0 || !launched->words[0] || !launched->words[1])
		abort();
}

void launched_start(struct launched *launched, const char *const *words, int stdin_fd)
{
	start(launched, words, stdin_fd, false);
}

void launched_start_merged(struct launched *launched, const char *const *words)
{
	start(launched, words, -1, true);
}

/* Return: false when the stream has ended. */
static bool take(struct launched *launched, int stream)
{
	size_t room = launched->is_merged ? PIECE_BYTES
	                                  : LAUNCHED_WORDS_BYTES - 1 - launched->counts[stream];
	ssize_t count = read(launched->fds[stream],
	                     launched->words[stream] + launched->counts[stream], room);

	if (count > 0) {
		launched->counts[stream] += (size_t)count;
		return true;
	}
	(void)close(launched->fds[stream]);
	launched->fds[stream] = -1;
	return false;
}

/* Both streams, so that neither holds up the other. Return: false when time is over. */
static bool take_any(struct launched *launched, uint64_t deadline_ns)
{
	struct pollfd fds[2] = { { .fd = launched->is_held ? -1 : launched->fds[0],
		                   .events = POLLIN },
		                 { .fd = launched->fds[1], .events = POLLIN } };

	if (poll(fds, 2, zi_clock_poll_ms(deadline_ns)) <= 0)
		return false;
	for (int i = 0; i < 2; i++)
		if (fds[i].revents)
			(void)take(launched, i);
	return true;
}

int launched_count(const char *words, const char *part)
{
	int count = 0;

	for (const char *at = words; (at = strstr(at, part)); at += strlen(part))
		count++;
	return count;
}

bool launched_await(struct launched *launched, int stream, const char *part, int count)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(AWAIT_TIMEOUT_NS);

	while (launched_count(launched->words[stream], part) < count)
		if (launched->fds[stream] < 0 || !take_any(launched, deadline_ns))
			return false;
	return true;
}

int launched_end(struct launched *launched)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(AWAIT_TIMEOUT_NS);
	int code;

	while ((launched->fds[0] >= 0 && !launched->is_held) || launched->fds[1] >= 0)
		if (!take_any(launched, deadline_ns))
			break;
	for (int i = 0; i < 2; i++)
		if (launched->fds[i] >= 0) {
			(void)close(launched->fds[i]);
			launched->fds[i] = -1;
		}
	code = harness_wait(launched->pid, 10000);
	launched->pid = 0;
	return code;
}

void launched_free(struct launched *launched)
{
	if (launched->pid)
		(void)launched_end(launched);
	for (int i = 0; i < 2; i++)
		free(launched->words[i]);
}
