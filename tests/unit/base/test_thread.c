/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: threads are named, deaf to signals, and hand back their result; the CPU count obeys
 * affinity and cgroup quotas of both versions. Method: real threads; for quotas, made-up trees of
 * files. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cgroup.h"
#include "common/base/thread.h"
#include "tests/guard/guard.h"

struct seen {
	char name[16];
	sigset_t blocked;
};

static int look_around(void *arg)
{
	struct seen *seen = arg;

	pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
	pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
	return -ENOSPC;
}

Test(thread, thread_has_its_name_and_every_signal_blocked)
{
	struct zi_thread thread = { 0 };
	struct seen seen;
	sigset_t own;

	cr_assert_eq(zi_thread_start(&thread, "shard-0", look_around, &seen), 0);
	cr_assert_eq(zi_thread_join(&thread), -ENOSPC, "the entry's result");
	cr_assert_str_eq(seen.name, "shard-0");
	cr_assert(sigismember(&seen.blocked, SIGTERM));
	cr_assert(sigismember(&seen.blocked, SIGHUP));
	pthread_sigmask(SIG_SETMASK, NULL, &own);
	cr_assert_not(sigismember(&own, SIGTERM), "the caller's mask is back");
}

Test(thread, joining_what_never_started_or_is_joined_is_zero)
{
	struct zi_thread thread = { 0 };
	struct seen seen;

	cr_assert_eq(zi_thread_join(&thread), 0);
	cr_assert_eq(zi_thread_start(&thread, "x", look_around, &seen), 0);
	cr_assert_eq(zi_thread_join(&thread), -ENOSPC);
	cr_assert_eq(zi_thread_join(&thread), 0);
	cr_assert_eq(zi_thread_start(&thread, "y", look_around, &seen), 0, "may start again");
	cr_assert_eq(zi_thread_join(&thread), -ENOSPC);
}

Test(thread, name_longer_than_the_kernel_takes_is_refused)
{
	struct zi_thread thread = { 0 };

	cr_assert_eq(zi_thread_start(&thread, "0123456789abcdef", look_around, NULL),
	             -ENAMETOOLONG);
	cr_assert_not(thread.is_started);
}

Test(thread, allowed_cpus_follow_the_affinity)
{
	cpu_set_t set;
	cpu_set_t one;
	int cpu = 0;

	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	cr_assert_geq(zi_cpu_allowed_count(), 1);
	cr_assert_leq(zi_cpu_allowed_count(), (unsigned)CPU_COUNT(&set));
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	cr_assert_eq(zi_cpu_allowed_count(), 1);
}

static char root[64];
static char self_path[80];

static void make_root(void)
{
	cr_assert(mkdtemp(guard_path(root, sizeof(root), "cgroup")));
	snprintf(self_path, sizeof(self_path), "%s/self", root);
}

static void remove_root(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	cr_assert_eq(system(command), 0);
}

/* Writes root/path, its folders included. */
static void put(const char *path, const char *text)
{
	char full[256];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		cr_assert(mkdir(full, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(full, "w");
	cr_assert(file);
	fputs(text, file);
	fclose(file);
}

static unsigned quota(void)
{
	return zi_cgroup_cpu_count(self_path, root);
}

TestSuite(cgroup, .init = make_root, .fini = remove_root);

Test(cgroup, v2_quota_is_rounded_up)
{
	put("self", "0::/job.slice\n");
	put("job.slice/cpu.max", "150000 100000\n");
	cr_assert_eq(quota(), 2);
	put("job.slice/cpu.max", "200000 100000\n");
	cr_assert_eq(quota(), 2);
	put("job.slice/cpu.max", "1000 100000\n");
	cr_assert_eq(quota(), 1);
}

Test(cgroup, v2_without_a_quota_is_unlimited)
{
	put("self", "0::/job.slice\n");
	cr_assert_eq(quota(), 0, "no file");
	put("job.slice/cpu.max", "max 100000\n");
	cr_assert_eq(quota(), 0);
}

Test(cgroup, v2_tightest_group_on_the_way_up_counts)
{
	put("self", "0::/a/b/c\n");
	put("a/cpu.max", "300000 100000\n");
	put("a/b/cpu.max", "800000 100000\n");
	put("a/b/c/cpu.max", "max 100000\n");
	cr_assert_eq(quota(), 3);
	put("cpu.max", "200000 100000\n");
	cr_assert_eq(quota(), 2, "the mount itself, as in a container");
}

Test(cgroup, v1_quota_over_period_is_read)
{
	put("self", "12:memory:/x\n4:cpu,cpuacct:/box/job\n0::/\n");
	put("cpu/box/job/cpu.cfs_quota_us", "250000\n");
	put("cpu/box/job/cpu.cfs_period_us", "50000\n");
	cr_assert_eq(quota(), 5);
	put("cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
	put("cpu,cpuacct/box/cpu.cfs_period_us", "50000\n");
	cr_assert_eq(quota(), 3, "the joint mount, and the parent");
	put("cpu/cpu.cfs_quota_us", "-1\n");
	put("cpu/cpu.cfs_period_us", "100000\n");
	cr_assert_eq(quota(), 3, "-1 is no quota");
}

Test(cgroup, cpuset_is_not_cpu)
{
	put("self", "3:cpuset:/x\n");
	put("cpu/x/cpu.cfs_quota_us", "50000\n");
	put("cpu/x/cpu.cfs_period_us", "50000\n");
	cr_assert_eq(quota(), 0);
}

Test(cgroup, garbage_is_no_quota)
{
	cr_assert_eq(quota(), 0, "no file at all");
	put("self", "garbage\n1:\n0::/x\n");
	put("x/cpu.max", "lots\n");
	cr_assert_eq(quota(), 0);
	put("x/cpu.max", "100000 0\n");
	cr_assert_eq(quota(), 0);
	put("x/cpu.max", "9223372036854775807 1\n");
	cr_assert_eq(quota(), 0, "more CPUs than a count holds");
}
