/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU quotas. Floor 0, any thread. A quota binds everything below it, so each group from ours up to
 * the mount is read. In a container the path in /proc/self/cgroup may be the host's while the mount
 * shows only our own group as its root: files that are not there are passed over, and the root of
 * the mount is always read.
 */
#include "common/base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/fd.h"

/* /proc/self/cgroup: a line for each of at most 14 controllers, with paths. */
#define CGROUP_SELF_BYTES  8192u
#define CGROUP_VALUE_BYTES 64u

/* Where the two versions keep the quota, below the mount. */
struct cgroup_kind {
	const char *controller_path; /* "" or "/cpu,cpuacct" */
	unsigned (*read)(const char *folder);
};

static unsigned cgroup_ceil(long long quota_us, long long period_us)
{
	long long count;

	if (quota_us <= 0 || period_us <= 0)
		return 0; /* v1 says -1 for none. */
	count = (quota_us - 1) / period_us + 1;
	return count > INT_MAX ? 0 : (unsigned)count;
}

/* cpu.max: "max 100000" or "150000 100000". */
static unsigned cgroup_read_v2(const char *folder)
{
	char path[PATH_MAX];
	char value[CGROUP_VALUE_BYTES];
	long long quota_us;
	long long period_us;

	if (snprintf(path, sizeof(path), "%s/cpu.max", folder) >= (int)sizeof(path))
		return 0;
	if (zi_read_text(path, value, sizeof(value)) != 0)
		return 0;
	if (sscanf(value, "%lld %lld", &quota_us, &period_us) != 2)
		return 0;
	return cgroup_ceil(quota_us, period_us);
}

/* cpu.cfs_quota_us and cpu.cfs_period_us, a number each. */
static unsigned cgroup_read_v1(const char *folder)
{
	static const char *const names[] = { "cpu.cfs_quota_us", "cpu.cfs_period_us" };
	char path[PATH_MAX];
	char value[CGROUP_VALUE_BYTES];
	long long values_us[ZI_COUNT_OF(names)];

	for (size_t i = 0; i < ZI_COUNT_OF(names); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", folder, names[i]) >= (int)sizeof(path))
			return 0;
		if (zi_read_text(path, value, sizeof(value)) != 0)
			return 0;
		if (sscanf(value, "%lld", &values_us[i]) != 1)
			return 0;
	}
	return cgroup_ceil(values_us[0], values_us[1]);
}

static unsigned cgroup_tighter(unsigned a, unsigned b)
{
	if (!a || !b)
		return a | b;
	return ZI_MIN(a, b);
}

/* @group: "/a/b", cut from its end as we go up. */
static unsigned cgroup_walk(const struct cgroup_kind *kind, const char *mount_path, char *group)
{
	unsigned count = 0;

	for (;;) {
		char folder[PATH_MAX];
		char *slash = strrchr(group, '/');

		if (snprintf(folder, sizeof(folder), "%s%s%s", mount_path, kind->controller_path,
		             group) < (int)sizeof(folder))
			count = cgroup_tighter(count, kind->read(folder));
		if (!slash)
			return count;
		*slash = '\0'; /* The last round is "": the mount itself. */
	}
}

/* Whether the comma-separated @controllers name "cpu". */
static bool cgroup_has_cpu(const char *controllers)
{
	char padded[CGROUP_VALUE_BYTES];

	if (snprintf(padded, sizeof(padded), ",%s,", controllers) >= (int)sizeof(padded))
		return false;
	return strstr(padded, ",cpu,");
}

/* @self_path, @mount_path: as in cgroup.h. Return: CPUs of the tightest quota, 0 for none. */
unsigned zi_cgroup_cpu_count(const char *self_path, const char *mount_path)
{
	static const struct cgroup_kind v2 = { "", cgroup_read_v2 };
	static const struct cgroup_kind v1 = { "/cpu", cgroup_read_v1 };
	static const struct cgroup_kind v1_joint = { "/cpu,cpuacct", cgroup_read_v1 };
	static const struct cgroup_kind v2_hybrid = { "/unified", cgroup_read_v2 };
	char self[CGROUP_SELF_BYTES];
	unsigned count = 0;
	char *rest = NULL;

	if (zi_read_text(self_path, self, sizeof(self)) != 0)
		return 0;
	/* A line is "ID:CONTROLLERS:PATH"; version 2 is "0::PATH". */
	for (char *line = strtok_r(self, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const struct cgroup_kind *kinds[2] = { NULL, NULL };
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!group)
			continue;
		*controllers++ = '\0';
		*group++ = '\0';
		if (strcmp(line, "0") == 0 && !*controllers) {
			kinds[0] = &v2;
			kinds[1] = &v2_hybrid;
		} else if (cgroup_has_cpu(controllers)) {
			kinds[0] = &v1;
			kinds[1] = &v1_joint;
		}
		for (size_t i = 0; i < ZI_COUNT_OF(kinds) && kinds[i]; i++) {
			char path[CGROUP_SELF_BYTES];

			(void)snprintf(path, sizeof(path), "%s", group); /* Fits: a part of self. */
			count = cgroup_tighter(count, cgroup_walk(kinds[i], mount_path, path));
		}
	}
	return count;
}
