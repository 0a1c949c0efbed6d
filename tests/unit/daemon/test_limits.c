/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what the kernel does not grant is refused at start, with both figures. Method:
 * configurations beyond any machine; children without privileges and with small limits.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "daemon/config.h"
#include "daemon/limits.h"
#include "daemon/topo/topo.h"

static struct config config;
static struct zi_text text;
static uint64_t capacity_bytes;

static void set_defaults(void)
{
	config_init(&config);
}

TestSuite(limits, .init = set_defaults);

Test(limits, auto_is_half_of_what_there_is)
{
	uint64_t limit_bytes = topo_memory_limit_bytes();

	cr_assert_eq(limits_check(&config, &text, &capacity_bytes), 0);
	cr_assert_leq(capacity_bytes, limit_bytes / 2);
	cr_assert_gt(capacity_bytes, limit_bytes / 2 - (2 << 20));
}

Test(limits, a_capacity_beyond_the_machine_is_refused_with_both_figures)
{
	config.cpu_capacity_bytes = 1ull << 60;
	cr_assert_eq(limits_check(&config, &text, &capacity_bytes), -ENOMEM);
	cr_assert(strstr(text.chars, "tier.cpu.capacity is 1 EiB"));
	cr_assert(strstr(text.chars, zi_format_bytes(topo_memory_limit_bytes()).chars));
}

Test(limits, huge_pages_that_are_not_there_are_refused_with_both_figures)
{
	config.cpu_capacity_bytes = topo_memory_limit_bytes();
	config.huge_pages = CONFIG_HUGE_REQUIRE;
	if (topo_huge_free_bytes() >= config.cpu_capacity_bytes)
		cr_skip_test("all memory of this machine is huge pages");
	cr_assert_eq(limits_check(&config, &text, &capacity_bytes), -ENOMEM);
	cr_assert(strstr(text.chars, "nr_hugepages"));
	cr_assert(strstr(text.chars, zi_format_bytes(config.cpu_capacity_bytes).chars));
}

/* The result of @body in a child that has no privileges and may lock @memlock_bytes. */
static int as_nobody(uint64_t memlock_bytes, int (*body)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		struct rlimit limit = { memlock_bytes, memlock_bytes };

		if (setrlimit(RLIMIT_MEMLOCK, &limit))
			_exit(100);
		if (geteuid() == 0 && setuid(65534))
			_exit(101);
		_exit(body());
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int check_lock_required(void)
{
	config.lock = CONFIG_LOCK_REQUIRE;
	config.cpu_capacity_bytes = 32 << 20;
	if (limits_check(&config, &text, &capacity_bytes) != -EPERM)
		return 1;
	if (!strstr(text.chars, "needs 96 MiB to be locked, RLIMIT_MEMLOCK is 1 MiB"))
		return 2;
	return !strstr(text.chars, "LimitMEMLOCK=infinity");
}

static int check_lock_granted(void)
{
	config.lock = CONFIG_LOCK_REQUIRE;
	config.cpu_capacity_bytes = 32 << 20;
	return limits_check(&config, &text, &capacity_bytes) != 0;
}

static int check_lock_tried(void)
{
	config.lock = CONFIG_LOCK_TRY;
	config.cpu_capacity_bytes = 32 << 20;
	return limits_check(&config, &text, &capacity_bytes) != 0 || limits_lock(&config, &text);
}

Test(limits, memory_that_may_not_be_locked_is_refused_with_both_figures)
{
	cr_assert_eq(as_nobody(1 << 20, check_lock_required), 0);
}

Test(limits, memory_that_may_be_locked_is_accepted)
{
	int code = as_nobody(RLIM_INFINITY, check_lock_granted);

	if (code == 100)
		cr_skip_test("RLIMIT_MEMLOCK cannot be raised here");
	cr_assert_eq(code, 0);
}

Test(limits, a_process_with_the_capability_locks_whatever_the_limit)
{
	char status[4096];
	const char *line;

	cr_assert_eq(zi_read_text("/proc/self/status", status, sizeof(status)), 0);
	line = strstr(status, "CapEff:");
	if (!line || !(strtoull(line + 7, NULL, 16) >> 14 & 1)) /* CAP_IPC_LOCK */
		cr_skip_test("no CAP_IPC_LOCK here");
	cr_assert_eq(check_lock_granted(), 0);
}

Test(limits, trying_to_lock_asks_for_nothing)
{
	cr_assert_eq(as_nobody(0, check_lock_tried), 0);
}

static int compare_descriptors(void)
{
	struct rlimit limit = { 1024, 1024 };

	if (setrlimit(RLIMIT_NOFILE, &limit))
		return 1;
	if (!limits_descriptors_are_few(&config, &text) || limits_uid_descriptors(&config) != 256)
		return 2;
	if (!strstr(text.chars, "auto is 256, a quarter of RLIMIT_NOFILE (1024): 64 sessions of a "
	                        "uid (limits.sessions_per_uid) need 448. Raise RLIMIT_NOFILE to "
	                        "1792"))
		return 3;
	config.sessions_per_uid = 32;
	if (limits_descriptors_are_few(&config, &text))
		return 4;
	config.sessions_per_uid = 64;
	config.descriptors_per_uid = 256; /* Somebody decided so. */
	return limits_descriptors_are_few(&config, &text) ? 5 : 0;
}

Test(limits, descriptors_that_are_few_for_the_sessions_of_a_uid_are_told_with_figures)
{
	cr_assert_eq(as_nobody(1 << 20, compare_descriptors), 0);
}

static int raise_and_compare(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 1;
	limit.rlim_cur = 16;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return 2;
	limits_raise();
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 3;
	return limit.rlim_cur != limit.rlim_max;
}

Test(limits, soft_limits_are_raised_to_the_hard_ones)
{
	cr_assert_eq(as_nobody(1 << 20, raise_and_compare), 0);
}
