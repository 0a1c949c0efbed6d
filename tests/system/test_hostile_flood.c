/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a client that sends more than anybody should (descriptors, questions, connections), or
 * nothing at all, or is dead while its socket lives, costs nobody but itself. Method: a raw client;
 * see hostile.h for what must hold afterwards.
 */
#include "tests/harness/patience.h"
#include "tests/system/hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"

TestSuite(hostile_flood, .init = hostile_open, .fini = hostile_close, .timeout = 120);

static void send_fds(int *fds, uint32_t count)
{
	struct zi_hello hello = hello_of(ZI_PROTOCOL_MAJOR);

	for (uint32_t sent = 0; sent < 4; sent++) {
		int r = raw_send(&raw, &hello, sizeof(hello), fds, count);

		cr_assert(!r || r == -EPIPE || r == -ECONNRESET || r == -ETOOMANYREFS, "%s",
		          strerror(-r));
	}
	cr_assert(raw_is_ended(&raw));
	raw_close(&raw);
}

static int send_fds_attached(void *arg)
{
	attack_attached();
	send_fds(arg, 250);
	return 0;
}

Test(hostile_flood, a_thousand_descriptors_are_not_kept)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(10 * ZI_NS_PER_S));
	int fds[250];

	for (uint32_t i = 0; i < 250; i++) {
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		cr_assert_geq(fds[i], 0);
	}
	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	send_fds(fds, 250);
	/* A process that had a session holds its rings while it lives: this one goes. */
	cr_assert_eq(harness_wait(harness_fork(send_fds_attached, fds), 20000), 0);
	while (count_fds() > fd_count && zi_clock_now_ns() < deadline_ns)
		cr_assert(system_is_alive(&harness));
	cr_assert_leq(count_fds(), fd_count);
	for (uint32_t i = 0; i < 250; i++)
		(void)close(fds[i]);
}

/* Sends until the daemon closes, or its buffer is full; never reads. */
static void flood(const void *message, size_t bytes)
{
	for (uint32_t i = 0; i < 20000; i++)
		if (send(raw.socket_fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
		    errno != EAGAIN)
			break;
}

/* The daemon has closed its end: no reading needed to see that. */
static bool is_hung_up(void)
{
	struct pollfd poller = { .fd = raw.socket_fd, .events = POLLRDHUP };

	return poll(&poller, 1, RAW_TIMEOUT_MS) == 1;
}

Test(hostile_flood, a_flood_of_questions_nobody_reads_ends_the_connection)
{
	struct zi_admin question = { .header = { ZI_CONTROL_MAGIC, ZI_MESSAGE_ADMIN, 0,
		                                 sizeof(question), 2 },
		                     .command = "jobs" };

	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(raw_hello(&raw), 0);
	flood(&question, sizeof(question));
	cr_assert(neighbour_steps(&neighbour));
	cr_assert(is_hung_up());
}

Test(hostile_flood, a_flood_of_requests_nobody_reads_ends_the_session)
{
	struct zi_message_header request = { ZI_CONTROL_MAGIC, ZI_MESSAGE_BLOB_GET, 0,
		                             sizeof(request), 2 };

	attack_attached();
	flood(&request, sizeof(request));
	cr_assert(neighbour_steps(&neighbour));
	cr_assert(is_hung_up());
}

Test(hostile_flood, connections_that_say_nothing_are_closed_and_keep_nobody_out)
{
	enum { SILENT = 300 };
	static int fds[SILENT];

	for (uint32_t i = 0; i < SILENT; i++) {
		cr_assert_eq(raw_connect(&raw, harness.socket_path), 0, "%u", i);
		fds[i] = raw.socket_fd;
		raw.socket_fd = -1;
		if (i % 50 == 49)
			cr_assert(system_is_alive(&harness));
	}
	for (uint32_t i = 0; i < SILENT; i++) {
		raw.socket_fd = fds[i];
		cr_assert(is_hung_up(), "connection %u", i);
		(void)close(fds[i]);
	}
	raw.socket_fd = -1;
}

/* ---- a process that is gone, and a socket that is not ---- */

/* Attaches as rank 1, leaves a child that holds the socket, and dies. The child ends with the
 * pipe. */
static int die_and_leave_a_child(void *arg)
{
	const int *fds = arg;
	char word;
	pid_t pid;

	if (raw_join(&raw, harness.socket_path, "orphan", 1, 2))
		return 1;
	pid = fork();
	if (!pid) {
		(void)close(fds[1]);
		(void)!read(fds[0], &word, 1);
		_exit(0);
	}
	raise(SIGKILL);
	return 1;
}

Test(hostile_flood, a_child_that_holds_the_socket_does_not_keep_a_dead_rank_alive)
{
	int fds[2], code;
	char name[32];
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(raw_join(&raw, harness.socket_path, "orphan", 0, 2), 0);
	{
		static struct raw first;

		first = raw;
		pid = harness_fork(die_and_leave_a_child, fds);
		code = harness_wait(pid, 20000);
		raw = first;
	}
	cr_assert_eq(code, 1000 + SIGKILL);
	cr_assert_eq(raw_receive(&raw), ZI_MESSAGE_NOTICE);
	cr_assert_eq(raw.reply.notice.error, -EPIPE);
	cr_assert_eq(raw.reply.notice.rank, 1);
	(void)snprintf(name, sizeof(name), "pid %d", pid);
	system_expect_text(raw.reply.notice.text.chars, name);
	(void)close(fds[1]);
	(void)close(fds[0]);
}

Test(hostile_flood, a_half_closed_socket_ends_the_session)
{
	attack_materialized();
	cr_assert_eq(shutdown(raw.socket_fd, SHUT_WR), 0);
	cr_assert(raw_is_ended(&raw));
}
