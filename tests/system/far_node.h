/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of jobs over several nodes share, whatever these jobs do: whether there is a zinf-net,
 * what a rank is told of its place, and the processes of a daemon. */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/harness/port.h"
#include "tests/system/system.h"

#define FAR_JOIN_MS 60000u /* nobody waits so long: what takes it has failed */

static inline bool far_is_built(void)
{
	char path[PATH_MAX];

	return access(harness_program("zinf-net", path, sizeof(path)), X_OK) == 0;
}

/* Skips the test where there is none: that does not return. Before anything is started. */
static inline void far_need_net(void)
{
	if (!far_is_built())
		cr_skip_test("zinf-net is not built (libgloo-dev)");
}

static inline void far_set_number(const char *name, uint32_t number)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", number); /* Fits. */
	(void)setenv(name, text, 1);                      /* Memory is there. */
}

/* In a rank's process, before it attaches: where it is, as launchers tell it. @port: at which nodes
 * meet; @local_size: ranks of its node. */
static inline void far_set_place(const struct harness *node, uint32_t port, uint32_t local_size)
{
	(void)setenv("ZINF_SOCKET", node->socket_path, 1); /* Memory is there. */
	(void)setenv("MASTER_ADDR", "127.0.0.1", 1);       /* As above. */
	far_set_number("MASTER_PORT", port - 1);           /* The launcher's own. */
	far_set_number("LOCAL_WORLD_SIZE", local_size);
}

/* The youngest process called @name whose parent is @parent; 0: none. The youngest, as workers of a
 * former job stay a moment after its ranks have left.
 */
static inline pid_t far_child_of(pid_t parent, const char *name)
{
	DIR *proc = opendir("/proc");
	unsigned long long youngest = 0;
	struct dirent *entry;
	pid_t found = 0;

	cr_assert(proc);
	while ((entry = readdir(proc))) {
		char path[300], line[600], comm[64] = "";
		int pid = atoi(entry->d_name), ppid = 0;
		unsigned long long started;
		FILE *file;

		if (pid <= 0)
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid); /* Fits. */
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(line, sizeof(line), file) &&
		    sscanf(line,
		           "%*d (%63[^)]) %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		           "%*s %*s %*s %*s %*s %llu",
		           comm, &ppid, &started) == 3 &&
		    ppid == parent && strcmp(comm, name) == 0 && started >= youngest) {
			youngest = started;
			found = pid;
		}
		(void)fclose(file);
	}
	(void)closedir(proc);
	return found;
}

/* Until there is one. */
static inline void far_await_child(pid_t parent, const char *name)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(FAR_JOIN_MS * ZI_NS_PER_MS);

	while (!far_child_of(parent, name))
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "no %s", name);
}
