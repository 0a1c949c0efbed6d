/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the topology: what reads the system's files takes their places as arguments, so that
 * tests have their own. Floor 2.
 *
 *   hwloc.c   nodes, disks and GPUs out of hwloc: the border to it
 *   topo.c    questions about them: disk of a path, node of a device, pool threads
 *   numa.c    binding of threads and memory
 *   memory.c  how much memory there is to be had
 */
#pragma once

#include <stdint.h>

#include "daemon/topo/topo.h"

/* ---- topo.c ---- */

/* Whole disk below a device: a partition's disk; of a stacked device (dm, md) the first one below.
 * @sys_path: "/sys". @ret_name: (32,) "nvme0n1". -ENODEV when it is no block device of this
 * system. */
int topo_disk_of_device(const char *sys_path, uint32_t major, uint32_t minor, char *ret_name);

/* ---- numa.c ---- */

/* Prefers the node with this index of the operating system, without asking whether it pays. */
int topo_prefer_node(uint32_t os_index, void *base, uint64_t bytes);

/* ---- memory.c ---- */

/* The places of "/proc/self/cgroup", "/sys/fs/cgroup", "/proc/meminfo". */
struct topo_memory_files {
	const char *self_path;
	const char *mount_path;
	const char *meminfo_path;
};

uint64_t topo_memory_limit_of(const struct topo_memory_files *files);
uint64_t topo_huge_free_of(const char *meminfo_path);
