/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: memory that zinfd no longer charges has no pages, whoever has its descriptors and mappings;
 * sessions that have ended leave no descriptor and no charge behind, although their process lives.
 * Method: children pass their segments on to the test by SCM_RIGHTS and end in one way each; what
 * the test then holds is what the kernel says of it (st_blocks). See hostile.h for what must hold
 * afterwards.
 */
#include "tests/system/hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"

#define WAIT_MS      60000
#define OTHER_UID    65534u
#define PARAMS       2u
#define ELEMENTS     (1u << 20)
#define JOB_BYTES    (PARAMS * ELEMENTS * 4ull)
#define KEPT         4u /* descriptors of each child: both rings, parameters, gradients */
#define ROUNDS       6u
#define SESSIONS     200u
#define BAD_SESSIONS 8u /* fewer than limits.sessions */

TestSuite(hostile_held, .init = hostile_open, .fini = hostile_close, .timeout = 240);

static const uint32_t kept[KEPT] = { RAW_UPLINK, RAW_DOWNLINK, RAW_PARAM, RAW_GRAD };

static uint64_t held_bytes(int fd)
{
	struct stat status;

	cr_assert_eq(fstat(fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

/* One packet with descriptors, in either direction. Return: whether it came through. */
static bool pass_fds(int socket_fd, int *fds, bool is_sent)
{
	char control[CMSG_SPACE(KEPT * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	char byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr packet = { .msg_iov = &part,
		                 .msg_iovlen = 1,
		                 .msg_control = control,
		                 .msg_controllen = sizeof(control) };
	struct cmsghdr *rights = (struct cmsghdr *)control;

	if (!is_sent) {
		if (recvmsg(socket_fd, &packet, MSG_CMSG_CLOEXEC) != 1)
			return false;
		memcpy(fds, CMSG_DATA(rights), KEPT * sizeof(int));
		return rights->cmsg_len == CMSG_LEN(KEPT * sizeof(int));
	}
	*rights = (struct cmsghdr){ .cmsg_len = CMSG_LEN(KEPT * sizeof(int)),
		                    .cmsg_level = SOL_SOCKET,
		                    .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(rights), fds, KEPT * sizeof(int));
	return sendmsg(socket_fd, &packet, MSG_NOSIGNAL) == 1;
}

/* ---- what children do when they have passed their memory on ---- */

enum ending {
	END_DESTROY,
	END_DETACH,
	END_KILLED,
	END_BREACH, /* the daemon ends the session, and the process lives until the test ends it */
	END_FORKED, /* a child of the child has all descriptors, and lives on */
	_END_COUNT
};

struct giver {
	enum ending ending;
	int sockets[2]; /* the test's, the child's */
};

/* Until the test closes its end. */
static void wait_for_the_test(int socket_fd)
{
	char byte;

	(void)recv(socket_fd, &byte, 1, 0);
}

static int give_away(void *arg)
{
	const struct giver *giver = arg;
	int fds[KEPT];

	(void)zi_close(giver->sockets[0]);
	attack_attached();
	if (raw_layout(&raw, PARAMS, ELEMENTS) || raw_materialize(&raw, PARAMS))
		return 1;
	for (uint32_t i = 0; i < KEPT; i++)
		fds[i] = raw.fds[kept[i]];
	if (!pass_fds(giver->sockets[1], fds, true))
		return 2;
	wait_for_the_test(giver->sockets[1]); /* It has looked at them. */
	switch (giver->ending) {
	case END_DESTROY:
		if (raw_send_plain(&raw, ZI_MESSAGE_DESTROY))
			return 3;
		return raw_receive(&raw) == ZI_MESSAGE_DONE ? 0 : 4;
	case END_DETACH:
		if (raw_send_plain(&raw, ZI_MESSAGE_DETACH))
			return 5;
		return raw_receive(&raw) == ZI_MESSAGE_DONE ? 0 : 6;
	case END_KILLED:
		return raise(SIGKILL);
	case END_BREACH:
		if (raw_send(&raw, "garbage", 7, NULL, 0) || !raw_is_ended(&raw))
			return 7;
		wait_for_the_test(giver->sockets[1]);
		return 0;
	case END_FORKED:
		if (fork() == 0)
			wait_for_the_test(giver->sockets[1]);
		_exit(0);
	case _END_COUNT:
	default:
		return 8;
	}
}

/* The first byte lets the child go on, the end of the socket lets it go. */
static void let_go_on(const struct giver *giver)
{
	cr_assert_eq(send(giver->sockets[0], "", 1, MSG_NOSIGNAL), 1);
}

/* @fds: (KEPT,) filled. */
static void take_over(enum ending ending, uint64_t charged_bytes, int *fds)
{
	struct giver giver = { .ending = ending };
	pid_t pid;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, giver.sockets), 0);
	pid = harness_fork(give_away, &giver);
	(void)zi_close(giver.sockets[1]);
	cr_assert(pass_fds(giver.sockets[0], fds, false));
	for (uint32_t i = 0; i < KEPT; i++)
		cr_assert_gt(held_bytes(fds[i]), 0);
	cr_assert_geq(held_bytes(fds[2]), JOB_BYTES);
	cr_assert_geq(harness_cpu_bytes(&harness), charged_bytes + 2 * JOB_BYTES);
	let_go_on(&giver);
	cr_assert(harness_charges_return(&harness, charged_bytes, WAIT_MS), "ending %d", ending);
	for (uint32_t i = 0; i < KEPT; i++)
		cr_assert_eq(held_bytes(fds[i]), 0, "ending %d, descriptor %u", ending, i);
	(void)zi_close(giver.sockets[0]);
	cr_assert_eq(harness_wait(pid, WAIT_MS), ending == END_KILLED ? 1000 + SIGKILL : 0);
}

/* More than the tier has, if any of it stayed. */
Test(hostile_held, memory_handed_to_another_process_ends_with_its_charge)
{
	uint64_t charged_bytes = harness_cpu_bytes(&harness);
	int fds[ROUNDS * _END_COUNT][KEPT];

	static_assert(ROUNDS * _END_COUNT * 2 * JOB_BYTES > 256ull << 20, "the tier's capacity");
	for (uint32_t i = 0; i < ROUNDS * _END_COUNT; i++)
		take_over(i % _END_COUNT, charged_bytes, fds[i]);
	for (uint32_t i = 0; i < ROUNDS * _END_COUNT; i++)
		for (uint32_t k = 0; k < KEPT; k++) {
			cr_assert_eq(held_bytes(fds[i][k]), 0);
			(void)zi_close(fds[i][k]);
		}
}

/* What the process touches anew is its own memory; the daemon neither charges nor sees it. */
Test(hostile_held, mappings_kept_after_the_end_of_a_job_are_the_process_own)
{
	uint64_t charged_bytes = harness_cpu_bytes(&harness);
	const volatile char *params;
	volatile char *grads;

	attack_attached();
	cr_assert_eq(raw_layout(&raw, PARAMS, ELEMENTS), 0);
	cr_assert_eq(raw_materialize(&raw, PARAMS), 0);
	params = mmap(NULL, JOB_BYTES, PROT_READ, MAP_SHARED, raw.fds[RAW_PARAM], 0);
	grads = mmap(NULL, JOB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, raw.fds[RAW_GRAD], 0);
	cr_assert(params != MAP_FAILED && grads != MAP_FAILED);
	memset((void *)(uintptr_t)grads, 'x', JOB_BYTES);
	cr_assert_eq(raw_send_plain(&raw, ZI_MESSAGE_DESTROY), 0);
	cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_DONE);
	cr_assert(harness_charges_return(&harness, charged_bytes, WAIT_MS));
	cr_assert_eq(ftruncate(raw.fds[RAW_GRAD], 0), -1, "or the next line would be a SIGBUS");
	for (uint64_t i = 0; i < JOB_BYTES; i += 4096)
		cr_assert(!params[i] && !grads[i]);
	memset((void *)(uintptr_t)grads, 'y', JOB_BYTES);
	cr_assert_eq(fallocate(raw.fds[RAW_GRAD], 0, 0, (off_t)JOB_BYTES), 0);
	cr_assert_eq(harness_cpu_bytes(&harness), charged_bytes);
	cr_assert_eq(munmap((void *)(uintptr_t)params, JOB_BYTES), 0);
	cr_assert_eq(munmap((void *)(uintptr_t)grads, JOB_BYTES), 0);
}

/* ---- sessions without end ---- */

/* The daemon has as many as before, at the latest when what is ending has ended. */
static void expect_fds_return(void)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(WAIT_MS * ZI_NS_PER_MS);

	while (count_fds() != fd_count)
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "%u descriptors, before %u",
		             count_fds(), fd_count);
}

static int attach_as_other(void *arg)
{
	(void)arg;
	if (setgid(OTHER_UID) || setuid(OTHER_UID))
		return 1;
	return raw_join(&raw, harness.socket_path, "others", 0, 1) ? 2 : 0;
}

Test(hostile_held, sessions_that_detach_cost_a_living_process_nothing)
{
	uint64_t charged_bytes = harness_cpu_bytes(&harness);

	for (uint32_t i = 0; i < SESSIONS; i++) {
		attack_attached();
		cr_assert_eq(raw_send_plain(&raw, ZI_MESSAGE_DETACH), 0);
		cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_DONE);
		raw_close(&raw);
		cr_assert_leq(count_fds(), fd_count + 16, "session %u", i);
	}
	expect_fds_return();
	cr_assert(harness_charges_return(&harness, charged_bytes, WAIT_MS));
	if (!geteuid())
		cr_assert_eq(harness_wait(harness_fork(attach_as_other, NULL), WAIT_MS), 0);
}

Test(hostile_held, sessions_that_end_otherwise_cost_a_living_process_nothing)
{
	uint64_t charged_bytes = harness_cpu_bytes(&harness);

	for (uint32_t i = 0; i < BAD_SESSIONS; i++) {
		attack_attached();
		if (i % 2)
			cr_assert_eq(raw_send(&raw, "garbage", 7, NULL, 0), 0);
		raw_close(&raw);
	}
	expect_fds_return();
	cr_assert(harness_charges_return(&harness, charged_bytes, WAIT_MS));
}
