/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a worker program; see spawn.h. Floor 3. Any thread. */
#include "daemon/worker/spawn.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/net.h"

/* A plain environment: what configures zinfd is not the worker's, which is told what it needs. */
static const char spawn_path[] = "PATH=/usr/bin:/bin", spawn_locale[] = "LC_ALL=C";

#define SPAWN_VARIABLE_BYTES 1280u

static_assert(NET_SOCKET_FD == SPAWN_SOCKET_FD, "one number for all workers");

/* Documented in the header, as are the others. */
int spawn_beside(const char *name, char *path, size_t capacity, struct zi_text *text)
{
	size_t name_bytes = strlen(name) + 1;
	ssize_t bytes;
	char *slash;

	assert(capacity > name_bytes);
	bytes = readlink("/proc/self/exe", path, capacity - name_bytes);
	if (bytes <= 0)
		return err_origin(zi_text_error(text, -ENOENT,
		                                "where zinfd itself lies is not "
		                                "known: /proc is needed"));
	path[bytes] = '\0';
	slash = strrchr(path, '/');
	assert(slash);
	memcpy(slash + 1, name, name_bytes);
	return 0;
}

/* The words of an execve(), which takes them as char * and only reads them. */
struct spawn_words {
	const char *arguments[SPAWN_WORDS_MAX + 2];
	const char *environment[SPAWN_WORDS_MAX + 3];
	char variables[SPAWN_WORDS_MAX][SPAWN_VARIABLE_BYTES];
};

static void fill_words(struct spawn_words *words, const struct spawn_options *options)
{
	uint32_t count = 0;

	*words = (struct spawn_words){ .arguments = { options->name },
		                       .environment = { spawn_path, spawn_locale } };
	while (options->arguments && options->arguments[count]) {
		assert(count < SPAWN_WORDS_MAX);
		words->arguments[count + 1] = options->arguments[count];
		count++;
	}
	count = 0;
	for (uint32_t i = 0; options->variables && options->variables[i]; i++) {
		const char *value = getenv(options->variables[i]);

		assert(i < SPAWN_WORDS_MAX);
		if (!value ||
		    (size_t)snprintf(words->variables[i], SPAWN_VARIABLE_BYTES, "%s=%s",
		                     options->variables[i], value) >= SPAWN_VARIABLE_BYTES)
			continue; /* Cut, it would say something else. */
		words->environment[2 + count++] = words->variables[i];
	}
}

static int fill(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int fd)
{
	sigset_t none, all;
	int r;

	(void)sigemptyset(&none); /* Neither can fail. */
	(void)sigfillset(&all);
	r = posix_spawn_file_actions_adddup2(actions, fd, SPAWN_SOCKET_FD);
	r = r ? r : posix_spawn_file_actions_addclosefrom_np(actions, SPAWN_SOCKET_FD + 1);
	r = r ? r : posix_spawnattr_setsigmask(attributes, &none);
	r = r ? r : posix_spawnattr_setsigdefault(attributes, &all);
	r = r ? r
	      : posix_spawnattr_setflags(attributes,
	                                 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return -r;
}

static int spawn(const struct spawn_options *options, int fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	struct spawn_words words;
	int r;

	fill_words(&words, options);
	r = -posix_spawn_file_actions_init(&actions);
	if (r)
		return r;
	r = -posix_spawnattr_init(&attributes);
	if (r)
		goto out;
	r = fill(&actions, &attributes, fd);
	if (!r)
		r = -posix_spawn(ret_pid, options->program, &actions, &attributes,
		                 (char *const *)words.arguments, (char *const *)words.environment);
	(void)posix_spawnattr_destroy(&attributes); /* Cannot fail. */
out:
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

int spawn_program(const struct spawn_options *options, struct zi_text *text,
                  struct spawned *ret_spawned)
{
	_cleanup_(zi_closep) int ours = -1;
	_cleanup_(zi_closep) int theirs = -1;
	const char *program = options->program;
	int pair[2], pidfd, r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return err_origin(zi_text_error(text, -errno, "a socket for %s: %s", program,
		                                strerror(errno)));
	ours = pair[0];
	theirs = pair[1];
	r = zi_fd_set_nonblock(ours, true);
	r = r ? r : spawn(options, theirs, &pid);
	if (r)
		return err_origin(
			zi_text_error(text, r, "starting %s: %s%s%s", program, strerror(-r),
		                      r == -ENOENT && options->hint ? ": " : "",
		                      r == -ENOENT && options->hint ? options->hint : ""));
	r = zi_pidfd_open(pid, &pidfd);
	if (r) {
		(void)kill(pid, SIGKILL); /* Our child, and not reaped: it is still that one. */
		(void)waitpid(pid, NULL, 0);
		return err_origin(zi_text_error(text, r, "watching %s: %s", program, strerror(-r)));
	}
	*ret_spawned = (struct spawned){ .fd = zi_steal_fd(ours), .pidfd = pidfd, .pid = pid };
	return 0;
}

int spawn_worker(const char *program, uid_t uid, struct zi_text *text, int *ret_fd, int *ret_pidfd,
                 pid_t *ret_pid)
{
	char number[16];
	/* A program that is another user's already has no rights to give up. */
	const char *const arguments[] = { uid && !geteuid() ? number : NULL, NULL };
	const struct spawn_options options = {
		.program = program,
		.name = "zinf-net",
		.arguments = arguments,
		.hint = "it is built where libgloo-dev is installed (tools/deps)",
	};
	struct spawned spawned;
	int r;

	(void)snprintf(number, sizeof(number), "%u", uid); /* Fits. */
	r = spawn_program(&options, text, &spawned);
	if (r)
		return err_trace(r);
	*ret_fd = spawned.fd;
	*ret_pidfd = spawned.pidfd;
	*ret_pid = spawned.pid;
	return 0;
}

bool spawn_has_ended(int pidfd, int wait_ms)
{
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };

	/* A signal makes the wait shorter: the threads of this process take none. */
	return poll(&ended, 1, wait_ms) > 0;
}

void spawn_reap(int pidfd, struct zi_text *text)
{
	siginfo_t status = { .si_pid = 0 };
	int r;

	do
		r = waitid(P_PIDFD, (id_t)pidfd, &status, WEXITED);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		zi_text_set(text, "ended for an unknown reason: %s", strerror(errno));
	else if (status.si_code == CLD_EXITED)
		zi_text_set(text, "ended with exit code %d", status.si_status);
	else
		zi_text_set(text, "was killed by signal %d (%s)", status.si_status,
		            strsignal(status.si_status));
}
