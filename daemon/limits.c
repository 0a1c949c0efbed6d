/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the process. Floor 7, main thread. */
#include "daemon/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "daemon/config.h"
#include "daemon/topo/topo.h"

#define LIMITS_STATUS_BYTES 4096u
#define LIMITS_CAP_IPC_LOCK 14u /* linux/capability.h */

static void raise_limit(int which, const char *name)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)which, &limit) || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit((__rlimit_resource_t)which, &limit))
		(void)log_warning_errno(errno, "Raising %s to its hard limit failed, ignoring",
		                        name);
}

/* A limit that cannot be raised is reported and lived with. Context: main thread. */
void limits_raise(void)
{
	raise_limit(RLIMIT_NOFILE, "RLIMIT_NOFILE");
	raise_limit(RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK");
}

/* Of how many uids each may have its share of the daemon's descriptors at once. */
#define LIMITS_UID_SHARES      4u
#define LIMITS_UID_DESCRIPTORS 64u /* at least, however few there are */

uint32_t limits_uid_descriptors(const struct config *config)
{
	struct rlimit limit = { .rlim_cur = 0 };

	if (config->descriptors_per_uid)
		return (uint32_t)config->descriptors_per_uid;
	(void)getrlimit(RLIMIT_NOFILE, &limit); /* Else the least. */
	return (uint32_t)ZI_MIN(ZI_MAX(limit.rlim_cur / LIMITS_UID_SHARES, LIMITS_UID_DESCRIPTORS),
	                        UINT32_MAX);
}

/* 6 for each session (docs/CONFIG.md), and segments of its jobs. */
#define LIMITS_SESSION_DESCRIPTORS 6u

/* See limits.h. */
bool limits_descriptors_are_few(const struct config *config, struct zi_text *text)
{
	uint64_t few = limits_uid_descriptors(config);
	uint64_t wanted =
		LIMITS_SESSION_DESCRIPTORS * config->sessions_per_uid + LIMITS_UID_DESCRIPTORS;
	struct rlimit limit = { .rlim_cur = 0 };

	(void)getrlimit(RLIMIT_NOFILE, &limit); /* For people. */
	if (few >= wanted || config->descriptors_per_uid)
		return false;
	zi_text_set(text,
	            "limits.descriptors_per_uid = auto is %llu, a quarter of RLIMIT_NOFILE (%llu): "
	            "%llu sessions of a uid (limits.sessions_per_uid) need %llu. Raise "
	            "RLIMIT_NOFILE to %llu (LimitNOFILE=, ulimit -n), or expect refusals",
	            (unsigned long long)few, (unsigned long long)limit.rlim_cur,
	            (unsigned long long)config->sessions_per_uid, (unsigned long long)wanted,
	            (unsigned long long)(wanted * LIMITS_UID_SHARES));
	return true;
}

/* A process with CAP_IPC_LOCK locks what it likes. */
static bool may_lock_anything(void)
{
	char status[LIMITS_STATUS_BYTES];
	const char *line;

	if (zi_read_text("/proc/self/status", status, sizeof(status)))
		return false;
	line = strstr(status, "CapEff:");
	return line && (strtoull(line + strlen("CapEff:"), NULL, 16) >> LIMITS_CAP_IPC_LOCK & 1);
}

static int check_lock(uint64_t capacity_bytes, struct zi_text *text)
{
	struct rlimit limit;
	uint64_t wanted_bytes = capacity_bytes + LIMITS_OVERHEAD_BYTES;

	if (may_lock_anything())
		return 0;
	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return err_origin(-errno);
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted_bytes)
		return 0;
	return zi_text_error(text, err_origin(-EPERM),
	                     "tier.cpu.lock = require needs %s to be locked, RLIMIT_MEMLOCK is %s: "
	                     "raise it (LimitMEMLOCK=infinity) or use lock = try",
	                     zi_format_bytes(wanted_bytes).chars,
	                     zi_format_bytes(limit.rlim_cur).chars);
}

/**
 * limits_check() - is there what the configuration asks for?
 * @ret_capacity_bytes: of the CPU tier, whole huge pages
 *
 * Return: 0; -ENOMEM more than there is; -EPERM may not be locked; with both figures in @text.
 */
int limits_check(const struct config *config, struct zi_text *text, uint64_t *ret_capacity_bytes)
{
	uint64_t limit_bytes = topo_memory_limit_bytes();
	uint64_t capacity_bytes = config->cpu_capacity_bytes;
	int r;

	if (!capacity_bytes)
		capacity_bytes = limit_bytes / 2 & ~(ZI_HUGE_PAGE_BYTES - 1);
	if (capacity_bytes > limit_bytes)
		return zi_text_error(text, err_origin(-ENOMEM),
		                     "tier.cpu.capacity is %s, but this process may use %s at most "
		                     "(control group and /proc/meminfo)",
		                     zi_format_bytes(capacity_bytes).chars,
		                     zi_format_bytes(limit_bytes).chars);
	if (config->huge_pages == CONFIG_HUGE_REQUIRE) {
		uint64_t huge_bytes = topo_huge_free_bytes();

		if (huge_bytes < capacity_bytes)
			return zi_text_error(
				text, err_origin(-ENOMEM),
				"tier.cpu.huge_pages = require, but %s of huge pages are "
				"free and capacity is %s: raise "
				"/proc/sys/vm/nr_hugepages, or use huge_pages = try",
				zi_format_bytes(huge_bytes).chars,
				zi_format_bytes(capacity_bytes).chars);
	}
	if (config->lock == CONFIG_LOCK_REQUIRE) {
		r = check_lock(capacity_bytes, text);
		if (r)
			return err_trace(r);
	}
	*ret_capacity_bytes = capacity_bytes;
	return 0;
}

/* MCL_ONFAULT: a mapping is not touched for being locked, only kept once it was. */
int limits_lock(const struct config *config, struct zi_text *text)
{
	int r;

	if (config->lock != CONFIG_LOCK_REQUIRE)
		return 0;
	if (!mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))
		return 0;
	r = -errno;
	return zi_text_error(text, err_origin(r), "locking memory (tier.cpu.lock = require): %s",
	                     strerror(-r));
}
