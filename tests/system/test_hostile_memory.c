/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what the daemon writes nobody else can write; no segment changes its size; what belongs to
 * another uid cannot be joined, seen by name, or opened. Method: a raw client, as the daemon's own
 * uid and (when the test runs as root) as another one, tries; see hostile.h for what must hold
 * afterwards.
 */
#include "tests/system/hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* "nobody" everywhere: it owns nothing. */
#define OTHER_UID 65534u

TestSuite(hostile_memory, .init = hostile_open, .fini = hostile_close, .timeout = 120);

static int map_writable(int fd, uint64_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	(void)munmap(map, bytes);
	return 0;
}

Test(hostile_memory, what_the_daemon_writes_cannot_be_mapped_writable)
{
	attack_materialized();
	cr_assert_eq(map_writable(raw.fds[RAW_DOWNLINK], raw.attached.downlink_bytes), -EACCES);
	cr_assert_eq(map_writable(raw.fds[RAW_PARAM], raw.materialized.param_bytes), -EACCES);
	/* Nor made so later. */
	cr_assert_eq(mprotect((void *)(uintptr_t)raw.downlink, raw.attached.downlink_bytes,
	                      PROT_READ | PROT_WRITE),
	             -1);
	cr_assert_eq(errno, EACCES);
	cr_assert_eq(write(raw.fds[RAW_PARAM], "x", 1), -1);
	cr_assert_eq(map_writable(raw.fds[RAW_UPLINK], raw.attached.uplink_bytes), 0);
	cr_assert_eq(map_writable(raw.fds[RAW_GRAD], raw.materialized.grad_bytes), 0);
}

Test(hostile_memory, no_segment_changes_its_size)
{
	static const uint32_t writable[] = { RAW_UPLINK, RAW_GRAD };

	attack_materialized();
	for (size_t i = 0; i < 2; i++) {
		int fd = raw.fds[writable[i]];

		cr_assert_eq(ftruncate(fd, 0), -1);
		cr_assert_eq(errno, EPERM);
		cr_assert_eq(ftruncate(fd, 1ll << 32), -1);
		cr_assert_eq(errno, EPERM);
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
		cr_assert_eq(errno, EPERM);
	}
	cr_assert_eq(ftruncate(raw.fds[RAW_PARAM], 0), -1);
	cr_assert_eq(ftruncate(raw.fds[RAW_DOWNLINK], 0), -1);
}

/* Punching the pages out of one's own gradients loses one's own gradients: no SIGBUS in the
 * daemon. */
Test(hostile_memory, holes_in_ones_own_memory_harm_nobody)
{
	attack_materialized();
	cr_assert_eq(fallocate(raw.fds[RAW_UPLINK], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
	                       (off_t)raw.attached.uplink_bytes),
	             0);
	cr_assert_eq(fallocate(raw.fds[RAW_GRAD], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
	                       (off_t)raw.materialized.grad_bytes),
	             0);
	raw_ring(&raw);
	expect_unharmed();
}

/* ---- as another uid ---- */

static bool is_root_or_says_so(void)
{
	if (!geteuid())
		return true;
	hostile_close(); /* A test that is skipped has no .fini. */
	cr_skip_test("another uid's client needs root to become it");
	return false;
}

static int become_other(void)
{
	return setgid(OTHER_UID) || setuid(OTHER_UID) ? -errno : 0;
}

/* 0: every try was refused as it must be; else the number of the one that was not. */
static int try_as_other(void *arg)
{
	char path[64];

	(void)arg;
	if (become_other())
		return 1;
	/* The neighbour's job, of root. */
	if (raw_join(&raw, harness.socket_path, "neighbour", 0, 1) != -EACCES)
		return 2;
	if (!strstr(raw.reply.error.text.chars, "taken by another user"))
		return 3;
	raw_close(&raw);
	/* An own job; then what it was given read-only, opened anew. */
	attack_materialized();
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", raw.fds[RAW_PARAM]);
	if (open(path, O_RDWR | O_CLOEXEC) >= 0 || errno != EACCES)
		return 4;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", raw.fds[RAW_DOWNLINK]);
	if (open(path, O_RDWR | O_CLOEXEC) >= 0 || errno != EACCES)
		return 5;
	/* The daemon's own descriptors. */
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/0", harness.pid);
	if (open(path, O_RDONLY | O_CLOEXEC) >= 0)
		return 6;
	return 0;
}

Test(hostile_memory, another_uid_joins_and_opens_nothing_of_ours)
{
	if (!is_root_or_says_so())
		return;
	cr_assert_eq(harness_wait(harness_fork(try_as_other, NULL), 20000), 0);
}

/* What another uid is told: its own jobs, and sums. */
static int ask_as_other(void *arg)
{
	json_t *jobs, *tiers;
	int code = 0;

	(void)arg;
	if (become_other())
		return 1;
	jobs = harness_admin(&harness, "jobs");
	if (!jobs || json_array_size(jobs))
		code = 2;
	json_decref(jobs);
	jobs = harness_admin(&harness, "jobs neighbour");
	if (jobs)
		code = 3;
	json_decref(jobs);
	tiers = harness_admin(&harness, "tiers");
	if (!tiers)
		code = 4;
	json_decref(tiers);
	return code;
}

Test(hostile_memory, another_uid_sees_no_job_of_ours)
{
	char program[300];

	if (!is_root_or_says_so())
		return;
	if (access(harness_program("zctl", program, sizeof(program)), X_OK)) {
		hostile_close(); /* A test that is skipped has no .fini. */
		cr_skip_test("zctl is not where another uid could run it");
	}
	cr_assert_eq(harness_wait(harness_fork(ask_as_other, NULL), 20000), 0);
}
