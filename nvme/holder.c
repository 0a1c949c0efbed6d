/* SPDX-License-Identifier: Apache-2.0 */
/* See holder.h. */
#include "nvme/holder.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/base/fd.h"

/* A killed process has its id until its parent has asked for the exit code. */
static bool is_living(pid_t pid)
{
	char path[64], text[512];
	const char *name_end;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (zi_read_text(path, text, sizeof(text)))
		return false;
	name_end = strrchr(text, ')'); /* PID (NAME) STATE … */
	return name_end && name_end[1] == ' ' && !strchr("ZXx", name_end[2]);
}

/* Documented in the header. */
pid_t nvme_holder_of(const char *path)
{
	struct stat status;
	char *line = NULL;
	size_t capacity = 0;
	pid_t holder = 0;
	FILE *locks;

	if (stat(path, &status))
		return 0;
	locks = fopen("/proc/locks", "re");
	if (!locks)
		return 0;
	/* "1: FLOCK  ADVISORY  WRITE PID MAJOR:MINOR:INODE 0 EOF"; the device is hexadecimal. */
	while (!holder && getline(&line, &capacity, locks) > 0) {
		unsigned long long inode;
		unsigned major_id, minor_id;
		int pid;

		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_id, &minor_id,
		           &inode) == 4 &&
		    pid > 0 && inode == status.st_ino && major_id == major(status.st_dev) &&
		    minor_id == minor(status.st_dev) && is_living(pid))
			holder = pid;
	}
	free(line);
	(void)fclose(locks);
	return holder;
}
