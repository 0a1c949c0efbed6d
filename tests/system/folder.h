/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a test's own, for the files that its programs write and read. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "tests/guard/guard.h"
#include "tests/system/system.h"

struct folder {
	char path[64];
};

/* @name: of it as people see it. */
static inline void folder_make(struct folder *folder, const char *name)
{
	cr_assert_not_null(mkdtemp(guard_path(folder->path, sizeof(folder->path), name)));
}

/* Of a file in it; the newest four stay. */
static inline const char *folder_file(const struct folder *folder, const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *path = paths[next++ % 4];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", folder->path, name);
	return path;
}

/* @script: of sh, begun in it; must end well. */
static inline void folder_run(const struct folder *folder, const char *script)
{
	char command[768];

	(void)snprintf(command, sizeof(command), "cd %s && { %s; }", folder->path, script);
	cr_assert_eq(system(command), 0, "%s", script);
}

/* With all that is in it. */
static inline void folder_remove(const struct folder *folder)
{
	folder_run(folder, "rm -rf $PWD");
}
