/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody outlives the ranks (strays.h). Children are found by looking through /proc, for the kernel
 * names them nowhere else in every configuration. */
#include "zctl/launch/strays.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"

/* Parent of the process with this number. Return: -1: it has gone. */
static pid_t parent_of(const char *pid, char name[32])
{
	char path[300], line[512];
	const char *begin;
	char *end;

	(void)snprintf(path, sizeof(path), "/proc/%s/stat", pid); /* Fits. */
	if (zi_read_text(path, line, sizeof(line)))
		return -1;
	begin = strchr(line, '(');
	end = strrchr(line, ')'); /* "PID (NAME) STATE PARENT …", and a name may hold anything. */
	if (!begin || !end || strlen(end) < 5)
		return -1;
	*end = '\0';
	(void)snprintf(name, 32, "%.31s", begin + 1);
	return (pid_t)strtol(end + 4, NULL, 10);
}

static void kill_children(launch_stray_fn told, void *arg)
{
	DIR *directory = opendir("/proc");
	const struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		char name[32];
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    parent_of(entry->d_name, name) != getpid())
			continue;
		if (told)
			told(arg, pid, name);
		(void)kill(pid, SIGKILL);
	}
	if (directory)
		(void)closedir(directory);
}

/* See strays.h. */
void launch_strays_end(launch_stray_fn told, void *arg)
{
	pid_t pid;

	/* Those that have ended by themselves need no words. */
	do
		pid = waitpid(-1, NULL, WNOHANG);
	while (pid > 0);
	while (pid >= 0) {
		kill_children(told, arg);
		told = NULL; /* Of the next, which were theirs, nobody need hear. */
		pid = waitpid(-1, NULL, 0);
		if (pid < 0 && errno == EINTR)
			pid = 0;
	}
}
