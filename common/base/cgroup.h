/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU quota of this process's control group, version 1 or 2. Floor 0, any thread. */
#pragma once

/*
 * @self_path: "/proc/self/cgroup"; @mount_path: "/sys/fs/cgroup" (tests have their own).
 * Return: CPUs, a fraction rounded up, of the tightest quota on the way up from this process's
 * group; 0 when there is none or it cannot be read.
 */
unsigned zi_cgroup_cpu_count(const char *self_path, const char *mount_path);
