/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory there is to be had. Floor 2, any thread.
 *
 * Never a NUMA node's claimed size: on virtual machines it has been seen to be a third of the
 * truth, and to grow as memory is touched. A limit of a control group binds everything below it, so
 * each group from ours up to the mount is read. In a container the path in /proc/self/cgroup may be
 * the host's while the mount shows our own group as its root: files that are not there are passed
 * over, and the root of the mount is always read.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"
#include "daemon/topo/topo_private.h"

/* /proc/self/cgroup: a line for each of at most 14 controllers, with paths. */
#define SELF_BYTES    8192u
#define MEMINFO_BYTES 8192u
#define VALUE_BYTES   64u

/* Where a version of control groups keeps the limit, below the mount. */
struct cgroup_kind {
	const char *controller_path;
	const char *file;
};

static const struct cgroup_kind cgroup_v1 = { "/memory", "memory.limit_in_bytes" };
static const struct cgroup_kind cgroup_v2 = { "", "memory.max" };
static const struct cgroup_kind cgroup_v2_hybrid = { "/unified", "memory.max" };

/* v2 says "max" for none, v1 the largest multiple of a page: both come out as more than there
 * is. */
static uint64_t read_limit(const char *path)
{
	char value[VALUE_BYTES];
	unsigned long long bytes;
	char *end;

	if (zi_read_text(path, value, sizeof(value)) != 0)
		return UINT64_MAX;
	errno = 0;
	bytes = strtoull(value, &end, 10);
	if (errno || end == value || *end)
		return UINT64_MAX;
	return bytes;
}

/* The smallest limit of @group ("/a/b") and of all above it. */
static uint64_t walk(const struct cgroup_kind *kind, const char *mount_path, const char *group)
{
	char path[SELF_BYTES];
	uint64_t limit_bytes = UINT64_MAX;

	if (snprintf(path, sizeof(path), "%s", group) >= (int)sizeof(path))
		path[0] = '\0';
	for (;;) {
		char *slash = strrchr(path, '/');
		char file[PATH_MAX];

		if (snprintf(file, sizeof(file), "%s%s%s/%s", mount_path, kind->controller_path,
		             path, kind->file) < (int)sizeof(file))
			limit_bytes = ZI_MIN(limit_bytes, read_limit(file));
		if (!slash)
			return limit_bytes;
		*slash = '\0'; /* The last round is "": the mount itself. */
	}
}

/* Whether the comma-separated @controllers name "memory". */
static bool has_memory(const char *controllers)
{
	char padded[VALUE_BYTES];

	if (snprintf(padded, sizeof(padded), ",%s,", controllers) >= (int)sizeof(padded))
		return false;
	return strstr(padded, ",memory,");
}

static uint64_t cgroup_limit(const char *self_path, const char *mount_path)
{
	char self[SELF_BYTES];
	uint64_t limit_bytes = UINT64_MAX;
	char *rest = NULL;

	if (zi_read_text(self_path, self, sizeof(self)) != 0)
		return UINT64_MAX;
	/* A line is "ID:CONTROLLERS:PATH"; version 2 is "0::PATH". */
	for (char *line = strtok_r(self, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		uint64_t group_bytes = UINT64_MAX;

		if (!group)
			continue;
		*controllers++ = '\0';
		*group++ = '\0';
		if (strcmp(line, "0") == 0 && !*controllers)
			group_bytes = ZI_MIN(walk(&cgroup_v2, mount_path, group),
			                     walk(&cgroup_v2_hybrid, mount_path, group));
		else if (has_memory(controllers))
			group_bytes = walk(&cgroup_v1, mount_path, group);
		limit_bytes = ZI_MIN(limit_bytes, group_bytes);
	}
	return limit_bytes;
}

/* A line "Name:   123 kB" (or without kB). Return: the number, 0 when there is none. */
static uint64_t meminfo_value(const char *meminfo_path, const char *name)
{
	char meminfo[MEMINFO_BYTES];
	size_t name_bytes = strlen(name);
	char *rest = NULL;

	if (zi_read_text(meminfo_path, meminfo, sizeof(meminfo)) != 0)
		return 0;
	for (char *line = strtok_r(meminfo, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (strncmp(line, name, name_bytes) == 0 && line[name_bytes] == ':')
			return strtoull(line + name_bytes + 1, NULL, 10);
	return 0;
}

/* As topo_memory_limit_bytes(), of other files. */
uint64_t topo_memory_limit_of(const struct topo_memory_files *files)
{
	uint64_t total_bytes = meminfo_value(files->meminfo_path, "MemTotal") * 1024;
	uint64_t limit_bytes = cgroup_limit(files->self_path, files->mount_path);

	return total_bytes ? ZI_MIN(total_bytes, limit_bytes) : limit_bytes;
}

/*
 * Return: the smallest of MemTotal and the limits of the control groups that this process is in; of
 * what others use now nothing is taken off. UINT64_MAX when nothing can be read.
 */
uint64_t topo_memory_limit_bytes(void)
{
	static const struct topo_memory_files files = {
		.self_path = "/proc/self/cgroup",
		.mount_path = "/sys/fs/cgroup",
		.meminfo_path = "/proc/meminfo",
	};

	return topo_memory_limit_of(&files);
}

/* As topo_huge_free_bytes(), of another file. */
uint64_t topo_huge_free_of(const char *meminfo_path)
{
	uint64_t free_count = meminfo_value(meminfo_path, "HugePages_Free");
	uint64_t reserved_count = meminfo_value(meminfo_path, "HugePages_Rsvd");
	uint64_t page_bytes = meminfo_value(meminfo_path, "Hugepagesize") * 1024;

	/* Reserved: free still, but promised to mappings that have not touched them. */
	return free_count > reserved_count ? (free_count - reserved_count) * page_bytes : 0;
}

/* Return: bytes that a hugetlb memfd of the default page size could get now; 0 when there are
 * none. */
uint64_t topo_huge_free_bytes(void)
{
	return topo_huge_free_of("/proc/meminfo");
}
