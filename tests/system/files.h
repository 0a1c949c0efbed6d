/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of exported and loaded files share: a daemon with a store, a folder beside it, and
 * zctl with the exit code that it must have. Each program has its own. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "tests/guard/guard.h"
#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 16]; /* of what ran last */
static char folder[64];

static inline void files_start_with(const char *nvme_size)
{
	cr_assert_not_null(mkdtemp(guard_path(folder, sizeof(folder), "files")));
	system_start(&harness, &(struct harness_options){ .nvme_size = nvme_size });
}

static inline void files_start(void)
{
	files_start_with("64M");
}

static inline void files_stop(void)
{
	char command[128];

	cr_assert_eq(harness_stop(&harness), 0);
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_assert_eq(system(command), 0);
}

/* Of a file in the folder; the newest four stay. */
static inline const char *path_of(const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *path = paths[next++ % 4];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static inline void files_zctl(int code, const char *const *arguments)
{
	int got = harness_zctl(harness.socket_path, arguments, words, sizeof(words));

	cr_assert_eq(got, code, "%s ended with %d: %s", arguments[0], got, words);
}
#define RUN(code, ...) files_zctl((code), (const char *const[]){ __VA_ARGS__, NULL })
