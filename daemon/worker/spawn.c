/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a worker program; see spawn.h. Floor 3. Any thread. */
#include "daemon/worker/spawn.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/net.h"

/* A plain environment: what configures zinfd is not the worker's, which is told what it needs. */
static char spawn_path[] = "PATH=/usr/bin:/bin", spawn_locale[] = "LC_ALL=C";
static char spawn_name[] = "zinf-net";

static int fill(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int fd)
{
	sigset_t none, all;
	int r;

	(void)sigemptyset(&none); /* Neither can fail. */
	(void)sigfillset(&all);
	r = posix_spawn_file_actions_adddup2(actions, fd, NET_SOCKET_FD);
	r = r ? r : posix_spawn_file_actions_addclosefrom_np(actions, NET_SOCKET_FD + 1);
	r = r ? r : posix_spawnattr_setsigmask(attributes, &none);
	r = r ? r : posix_spawnattr_setsigdefault(attributes, &all);
	r = r ? r
	      : posix_spawnattr_setflags(attributes,
	                                 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return -r;
}

static int spawn(const char *program, uid_t uid, int fd, pid_t *ret_pid)
{
	char number[16];
	/* A program that is another user's already has no rights to give up. */
	char *arguments[] = { spawn_name, uid && !geteuid() ? number : NULL, NULL };
	char *environment[] = { spawn_path, spawn_locale, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int r;

	(void)snprintf(number, sizeof(number), "%u", uid); /* Fits. */
	r = -posix_spawn_file_actions_init(&actions);
	if (r)
		return r;
	r = -posix_spawnattr_init(&attributes);
	if (r)
		goto out;
	r = fill(&actions, &attributes, fd);
	if (!r)
		r = -posix_spawn(ret_pid, program, &actions, &attributes, arguments, environment);
	(void)posix_spawnattr_destroy(&attributes); /* Cannot fail. */
out:
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* Documented in the header. */
int spawn_worker(const char *program, uid_t uid, struct zi_text *text, int *ret_fd, int *ret_pidfd,
                 pid_t *ret_pid)
{
	_cleanup_(zi_closep) int ours = -1;
	_cleanup_(zi_closep) int theirs = -1;
	int pair[2], pidfd, r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return err_origin(zi_text_error(text, -errno, "a socket for %s: %s", program,
		                                strerror(errno)));
	ours = pair[0];
	theirs = pair[1];
	r = zi_fd_set_nonblock(ours, true);
	r = r ? r : spawn(program, uid, theirs, &pid);
	if (r)
		return err_origin(zi_text_error(
			text, r, "starting %s: %s%s", program, strerror(-r),
			r == -ENOENT ? ": it is built where libgloo-dev is installed (tools/deps)"
				     : ""));
	r = zi_pidfd_open(pid, &pidfd);
	if (r) {
		(void)kill(pid, SIGKILL); /* Our child, and not reaped: it is still that one. */
		(void)waitpid(pid, NULL, 0);
		return err_origin(zi_text_error(text, r, "watching %s: %s", program, strerror(-r)));
	}
	*ret_fd = zi_steal_fd(ours);
	*ret_pidfd = pidfd;
	*ret_pid = pid;
	return 0;
}

/* Documented in the header. */
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
