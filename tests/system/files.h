/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of exported and loaded files share: a daemon with a store, a folder beside it, and
 * zctl with the exit code that it must have. Each program has its own. */
#pragma once

#include "tests/system/folder.h"
#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 16]; /* of what ran last */
static struct folder folder;

static inline void files_start_with(const char *nvme_size)
{
	folder_make(&folder, "files");
	system_start(&harness, &(struct harness_options){ .nvme_size = nvme_size });
}

static inline void files_start(void)
{
	files_start_with("64M");
}

static inline void files_stop(void)
{
	cr_assert_eq(harness_stop(&harness), 0);
	folder_remove(&folder);
}

/* Of a file in the folder; the newest four stay. */
static inline const char *path_of(const char *name)
{
	return folder_file(&folder, name);
}

#define RUN(code, ...) SYSTEM_ZCTL(harness.socket_path, words, (code), __VA_ARGS__)
