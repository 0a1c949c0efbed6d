/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the system's own files are read right in all their versions: disks below partitions and
 * stacked devices in /sys, memory limits of both versions of control groups, huge pages. Method:
 * folders made like them in /tmp. */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/topo/topo_private.h"
#include "tests/guard/guard.h"
#include "tests/harness/harness.h"

static char root[64];

static void root_make(void)
{
	cr_assert_not_null(mkdtemp(guard_path(root, sizeof(root), "files")));
}

static void root_remove(void)
{
	cr_assert_eq(harness_remove_folder(root), 0);
}

static const char *in_root(const char *path)
{
	static char buffers[4][384];
	static uint32_t index;
	char *buffer = buffers[index++ % 4];

	(void)snprintf(buffer, sizeof(buffers[0]), "%s/%s", root, path);
	return buffer;
}

/* The folders above @path (below root) are made too. */
static void folder(const char *path)
{
	char part[256];

	for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
		(void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		(void)mkdir(in_root(part), 0700); /* Many are there already. */
	}
	(void)mkdir(in_root(path), 0700);
}

static void put(const char *path, const char *text)
{
	char part[256];
	FILE *file;

	(void)snprintf(part, sizeof(part), "%s", path);
	if (strrchr(part, '/')) {
		*strrchr(part, '/') = '\0';
		folder(part);
	}
	file = fopen(in_root(path), "w");
	cr_assert_not_null(file);
	cr_assert_geq(fputs(text, file), 0);
	(void)fclose(file);
}

static void device(const char *number, const char *path)
{
	char link[64];

	folder(path);
	folder("dev/block");
	(void)snprintf(link, sizeof(link), "dev/block/%s", number);
	cr_assert_eq(symlink(in_root(path), in_root(link)), 0);
}

static void stacked_on(const char *path, const char *below)
{
	char slave[256];

	(void)snprintf(slave, sizeof(slave), "%s/slaves", path);
	folder(slave);
	(void)snprintf(slave, sizeof(slave), "%s/slaves/%s", path, strrchr(below, '/') + 1);
	cr_assert_eq(symlink(in_root(below), in_root(slave)), 0);
}

static const char *disk_of(uint32_t major, uint32_t minor)
{
	static char name[32];

	(void)snprintf(name, sizeof(name), "%s", "untouched");
	if (topo_disk_of_device(root, major, minor, name))
		cr_assert_str_eq(name, "untouched");
	return name;
}

Test(disk, whole_partition_and_stacked_devices_lead_to_a_disk)
{
	root_make();
	device("259:0", "devices/pci/nvme0/nvme0n1");
	device("259:2", "devices/pci/nvme0/nvme0n1/nvme0n1p2");
	put("devices/pci/nvme0/nvme0n1/nvme0n1p2/partition", "2\n");
	device("259:9", "devices/pci/nvme1/nvme1n1");
	/* LUKS on a partition; LVM on LUKS; RAID on two disks, and a partition of it. */
	device("253:0", "devices/virtual/block/dm-0");
	stacked_on("devices/virtual/block/dm-0", "devices/pci/nvme0/nvme0n1/nvme0n1p2");
	device("253:1", "devices/virtual/block/dm-1");
	stacked_on("devices/virtual/block/dm-1", "devices/virtual/block/dm-0");
	device("9:0", "devices/virtual/block/md0");
	stacked_on("devices/virtual/block/md0", "devices/pci/nvme1/nvme1n1");
	stacked_on("devices/virtual/block/md0", "devices/pci/nvme0/nvme0n1");
	device("9:1", "devices/virtual/block/md0/md0p1");
	put("devices/virtual/block/md0/md0p1/partition", "1\n");
	folder("devices/pci/nvme1/nvme1n1/slaves");

	cr_assert_str_eq(disk_of(259, 0), "nvme0n1");
	cr_assert_str_eq(disk_of(259, 2), "nvme0n1");
	cr_assert_str_eq(disk_of(259, 9), "nvme1n1", "an empty folder of slaves");
	cr_assert_str_eq(disk_of(253, 0), "nvme0n1");
	cr_assert_str_eq(disk_of(253, 1), "nvme0n1");
	cr_assert_str_eq(disk_of(9, 0), "nvme0n1", "the first by name");
	cr_assert_str_eq(disk_of(9, 1), "nvme0n1");
	root_remove();
}

Test(disk, what_is_no_disk_is_refused_and_a_ring_ends)
{
	root_make();
	device("8:0", "devices/a-name-of-a-disk-that-is-longer-than-any");
	device("253:0", "devices/virtual/dm-0");
	device("253:1", "devices/virtual/dm-1");
	stacked_on("devices/virtual/dm-0", "devices/virtual/dm-1");
	stacked_on("devices/virtual/dm-1", "devices/virtual/dm-0");
	cr_assert_str_eq(disk_of(8, 0), "untouched");
	cr_assert_str_eq(disk_of(7, 7), "untouched");
	cr_assert_eq(strncmp(disk_of(253, 0), "dm-", 3), 0, "it ends");
	root_remove();
}

Test(disk, a_path_that_is_too_long_is_refused)
{
	static char long_path[PATH_MAX]; /* The name of the device no longer fits behind it. */
	char name[32] = "untouched";

	memset(long_path, 'p', sizeof(long_path) - 1);
	cr_assert_eq(topo_disk_of_device(long_path, 8, 0, name), -ENAMETOOLONG);
	cr_assert_str_eq(name, "untouched");
}

/* ---- memory ---- */

#define MEMINFO                                                                                \
	"MemTotal:       24000000 kB\nMemFree:         1000000 kB\nHugePages_Total:     100\n" \
	"HugePages_Free:       70\nHugePages_Rsvd:       20\nHugepagesize:       2048 kB\n"

static uint64_t limit(const char *self)
{
	struct topo_memory_files files;

	put("self", self);
	files.self_path = in_root("self");
	files.mount_path = in_root("cgroup");
	files.meminfo_path = in_root("meminfo");
	return topo_memory_limit_of(&files);
}

Test(memory, without_control_groups_it_is_what_the_machine_has)
{
	struct topo_memory_files absent = { "/nonexistent", "/nonexistent", "/nonexistent" };

	root_make();
	put("meminfo", MEMINFO);
	cr_assert_eq(limit(""), 24000000ull << 10);
	cr_assert_eq(limit("nonsense\n4:memory\n"), 24000000ull << 10);
	absent.meminfo_path = in_root("meminfo");
	cr_assert_eq(topo_memory_limit_of(&absent), 24000000ull << 10);
	absent.meminfo_path = "/nonexistent";
	cr_assert_eq(topo_memory_limit_of(&absent), UINT64_MAX, "nothing is known");
	root_remove();
}

Test(memory, version_2_takes_the_tightest_on_the_way_up)
{
	root_make();
	put("meminfo", MEMINFO);
	put("cgroup/a/b/memory.max", "8589934592\n");
	put("cgroup/a/memory.max", "max\n");
	cr_assert_eq(limit("0::/a/b\n"), 8589934592ull);
	put("cgroup/a/memory.max", "4294967296\n");
	cr_assert_eq(limit("0::/a/b\n"), 4294967296ull);
	cr_assert_eq(limit("0::/a\n"), 4294967296ull);
	cr_assert_eq(limit("0::/\n"), 24000000ull << 10, "another branch");
	put("cgroup/a/memory.max", "99999999999999\n");
	cr_assert_eq(limit("0::/a\n"), 24000000ull << 10, "more than there is");
	put("cgroup/a/memory.max", "12x\n");
	cr_assert_eq(limit("0::/a\n"), 24000000ull << 10, "no number");
	/* In a container the mount may show our own group as its root. */
	put("cgroup/memory.max", "1073741824\n");
	cr_assert_eq(limit("0::/docker/0123\n"), 1073741824ull);
	root_remove();
}

Test(memory, version_1_and_hybrid_are_read_from_their_own_mounts)
{
	root_make();
	put("meminfo", MEMINFO);
	put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("cgroup/memory/x/y/memory.limit_in_bytes", "536870912\n");
	put("cgroup/unified/u/memory.max", "268435456\n");
	cr_assert_eq(limit("4:memory:/x/y\n"), 536870912ull);
	cr_assert_eq(limit("4:memory:/x\n"), 24000000ull << 10, "v1 says none by a huge number");
	cr_assert_eq(limit("3:cpuset:/x/y\n"), 24000000ull << 10, "another controller");
	cr_assert_eq(limit("4:pids,memory:/x/y\n"), 536870912ull);
	cr_assert_eq(limit("9:name=systemd:/x\n4:memory:/x/y\n0::/u\n"), 268435456ull, "the least");
	root_remove();
}

Test(memory, controllers_that_are_too_many_to_read_have_no_limit)
{
	char self[160];

	root_make();
	put("meminfo", MEMINFO);
	put("cgroup/memory/x/memory.limit_in_bytes", "536870912\n");
	cr_assert_eq(limit("4:memory:/x\n"), 536870912ull);
	(void)snprintf(self, sizeof(self), "4:memory,%070d:/x\n", 0);
	cr_assert_eq(limit(self), 24000000ull << 10);
	root_remove();
}

Test(memory, what_meminfo_does_not_name_is_not_known)
{
	root_make();
	put("meminfo", "MemFree: 1000 kB\n");
	cr_assert_eq(limit(""), UINT64_MAX);
	cr_assert_eq(topo_huge_free_of(in_root("meminfo")), 0);
	root_remove();
}

Test(memory, huge_pages_that_are_promised_to_others_are_not_free)
{
	root_make();
	put("meminfo", MEMINFO);
	cr_assert_eq(topo_huge_free_of(in_root("meminfo")), 50ull * 2048 << 10);
	put("meminfo", "HugePages_Free: 5\nHugePages_Rsvd: 5\nHugepagesize: 2048 kB\n");
	cr_assert_eq(topo_huge_free_of(in_root("meminfo")), 0);
	cr_assert_eq(topo_huge_free_of("/nonexistent"), 0);
	root_remove();
}

Test(memory, this_machine_has_some)
{
	cr_assert_gt(topo_memory_limit_bytes(), 1u << 20);
	cr_assert_leq(topo_memory_limit_bytes(),
	              (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
	cr_assert_eq(topo_huge_free_bytes() % 4096, 0);
}
