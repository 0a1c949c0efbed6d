/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that lives on after SIGKILL, as one in an uninterruptible call of a driver does: the
 * test traces it, and its end stops where the kernel begins it (PTRACE_EVENT_EXIT), with all of its
 * memory and descriptors. It ends when the test lets it go, or ends itself. Needs no rights beyond
 * those over a descendant; a sandbox may refuse ptrace() all the same. From one thread.
 */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Traces @pid, which runs on. Return: NULL; why that is not possible. */
static inline const char *stuck_hold(pid_t pid)
{
	if (!ptrace(PTRACE_SEIZE, pid, NULL, (void *)(long)PTRACE_O_TRACEEXIT))
		return NULL;
	return strerror(errno);
}

/* Waits until @pid was killed, and its end is held back. Return: whether it is. */
static inline bool stuck_await(pid_t pid)
{
	int status = 0;
	pid_t got;

	do
		got = waitpid(pid, &status, __WALL);
	while (got < 0 && errno == EINTR);
	return got == pid && WIFSTOPPED(status) &&
	       status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8);
}

/* It ends. Precondition: stuck_await(). */
static inline void stuck_release(pid_t pid)
{
	(void)ptrace(PTRACE_DETACH, pid, NULL, NULL); /* Fails only where it has ended. */
}

/* Whether this machine lets a test do so: a child is tried. @ret_why: else why not. */
static inline bool stuck_is_possible(const char **ret_why)
{
	bool is_held;
	pid_t pid = fork();

	if (!pid)
		for (;;)
			(void)pause();
	*ret_why = pid < 0 ? strerror(errno) : stuck_hold(pid);
	if (pid < 0)
		return false;
	(void)kill(pid, SIGKILL); /* Of a child that is not reaped: cannot fail. */
	is_held = !*ret_why && stuck_await(pid);
	if (is_held)
		stuck_release(pid);
	else if (!*ret_why)
		*ret_why = "this kernel does not stop a killed process at its end";
	(void)waitpid(pid, NULL, __WALL);
	return is_held;
}
