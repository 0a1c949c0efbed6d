/* SPDX-License-Identifier: Apache-2.0 */
/* What test programs leave behind is removed (guard.h). One thread, libc alone. */
#include "tests/guard/guard.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GUARD_NAME "ZINF_TEST_GUARD"
/* A daemon whose test has died unmaps some GiB before it is gone. */
#define GRACE_MS 10000
/* A killed process that the kernel holds for longer is left. */
#define KILL_MS 30000

static pid_t forward_to; /* for the handler */

static const char *parent_directory(void)
{
	const char *parent = getenv("TMPDIR");

	return parent && *parent ? parent : "/var/tmp";
}

char *guard_path(char *path, size_t capacity, const char *name)
{
	(void)snprintf(path, capacity, "%s/zinf-%s.XXXXXX", parent_directory(), name);
	return path; /* Cut: nothing can be made there. */
}

/* ---- processes ---- */

static void forward(int signal_number)
{
	(void)kill(forward_to, signal_number);
}

/* Those that ended. Return: whether there are others. */
static bool reap(void)
{
	pid_t pid;

	do
		pid = waitpid(-1, NULL, WNOHANG);
	while (pid > 0);
	return pid == 0;
}

/* Return: whether all have ended within that time. SIGCHLD is blocked. */
static bool await_ends(uint32_t timeout_ms)
{
	const struct timespec slice = { .tv_nsec = 100 * 1000 * 1000 };
	sigset_t child_ends;

	(void)sigemptyset(&child_ends);
	(void)sigaddset(&child_ends, SIGCHLD);
	for (uint32_t waited_ms = 0; reap(); waited_ms += 100) {
		if (waited_ms >= timeout_ms)
			return false;
		(void)sigtimedwait(&child_ends, NULL, &slice);
	}
	return true;
}

/* The parent of process @pid, and its name. -1: it has gone. */
static pid_t parent_of(const char *pid, char *name, size_t capacity)
{
	char path[300], line[512] = "";
	char *begin, *end;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	(void)fclose(file);
	begin = strchr(line, '(');
	end = strrchr(line, ')'); /* "PID (NAME) STATE PARENT ..." */
	if (!begin || !end || strlen(end) < 4)
		return -1;
	*end = '\0';
	(void)snprintf(name, capacity, "%s", begin + 1);
	return (pid_t)strtol(end + 3, NULL, 10);
}

/* Ours, which are all whose own parents have gone (PR_SET_CHILD_SUBREAPER). */
static void kill_children(bool is_told)
{
	DIR *directory = opendir("/proc");
	const struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		char name[64];

		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    parent_of(entry->d_name, name, sizeof(name)) != getpid())
			continue;
		if (is_told)
			(void)fprintf(stderr, "guard: process %s (%s) was left behind\n",
			              entry->d_name, name);
		(void)kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
	}
	if (directory)
		(void)closedir(directory);
}

/* Return: whether there was one. */
static bool end_processes(uint32_t grace_ms)
{
	if (await_ends(grace_ms))
		return false;
	kill_children(true);
	/* The children of the killed become ours. */
	for (uint32_t i = 0; i < KILL_MS / 100 && !await_ends(100); i++)
		kill_children(false);
	return true;
}

/* ---- files ---- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	(void)remove(path); /* best effort */
	return 0;
}

/* Return: whether there was something in it. */
static bool remove_directory(const char *path)
{
	DIR *directory = opendir(path);
	const struct dirent *entry;
	bool is_left = false;

	while (directory && (entry = readdir(directory))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		(void)fprintf(stderr, "guard: '%s' was left behind\n", entry->d_name);
		is_left = true;
	}
	if (directory)
		(void)closedir(directory);
	(void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return is_left;
}

/* ---- public ---- */

pid_t guard_fork(struct guard *guard, const char *parent)
{
	sigset_t all, before;

	*guard = (struct guard){ .grace_ms = GRACE_MS };
	(void)snprintf(guard->directory, sizeof(guard->directory), "%s/zinf-test.XXXXXX",
	               parent ? parent : parent_directory());
	/* As /tmp: tests and their daemons may become others. */
	if (!mkdtemp(guard->directory) || chmod(guard->directory, 01777))
		return -errno;
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	guard->child = fork();
	if (guard->child < 0) {
		int error = errno;

		(void)rmdir(guard->directory);
		(void)sigprocmask(SIG_SETMASK, &before, NULL);
		return -error;
	}
	if (guard->child)
		return guard->child; /* guard_watch() takes the signals. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setenv("TMPDIR", guard->directory, 1);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return 0;
}

int guard_watch(struct guard *guard)
{
	struct sigaction action = { .sa_handler = forward };
	sigset_t mask;
	bool is_left;
	pid_t pid;
	int status = 0, code;

	forward_to = guard->child;
	(void)sigaction(SIGTERM, &action, NULL);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGHUP, &action, NULL);
	(void)sigfillset(&mask);
	(void)sigdelset(&mask, SIGTERM);
	(void)sigdelset(&mask, SIGINT);
	(void)sigdelset(&mask, SIGHUP);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	do
		pid = waitpid(-1, &status, 0); /* Others: orphans of the child's. */
	while (pid != guard->child && (pid > 0 || errno == EINTR));
	code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	(void)sigaddset(&mask, SIGTERM); /* Its id is no longer ours to signal. */
	(void)sigaddset(&mask, SIGINT);
	(void)sigaddset(&mask, SIGHUP);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	is_left = end_processes(code ? 0 : guard->grace_ms);
	is_left = remove_directory(guard->directory) || is_left;
	return code || !is_left ? code : 1;
}

static __attribute__((constructor)) void guard_program(void)
{
	struct guard guard;
	pid_t pid;

	if (getenv(GUARD_NAME))
		return;
	(void)setenv(GUARD_NAME, "1", 1);
	pid = guard_fork(&guard, NULL);
	if (!pid)
		return;
	if (pid > 0)
		_exit(guard_watch(&guard));
	(void)fprintf(stderr, "guard: no directory in %s: %s\n", parent_directory(),
	              strerror((int)-pid));
	_exit(1);
}
