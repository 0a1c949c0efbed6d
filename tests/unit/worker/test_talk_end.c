/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a worker that dies, an abort, and what a daemon says wrongly end a talk everywhere with the
 * reason; a worker that talks nonsense is ended, and so is one to which nonsense is said. Method:
 * real workers on loopback (talk_fixture.h), a program that is none, and a test that is no daemon.
 */
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/wire/control.h"
#include "daemon/worker/spawn.h"
#include "tests/guard/guard.h"
#include "tests/unit/worker/talk_fixture.h"

TestSuite(talk_end, .timeout = 240);

Test(talk_end, nobody_talks_before_all_have_met)
{
	struct net_test test = { .talked = talked_plainly };

	net_test_skip_unless_built(&test);
	net_test_init(&test, 1);
	talk_one(&test, 0);
	await_over(&test);
	expect_over(&test, NET_CULPRIT_NONE, -ENOTCONN, "have not met");
	close_talk(&test);
}

Test(talk_end, a_killed_worker_is_named_everywhere)
{
	struct net_test test;

	open_or_skip(&test, 3, talked_plainly);
	for (uint32_t victim = 0; victim < 3; victim++) {
		/* Of which something is on its way. */
		for (uint32_t i = 0; i < 3; i++)
			if (i != victim)
				send_one(&test.nodes[i], victim,
				         (struct talk_entry){ .kind = TALK_PULL,
				                              .tag = 1,
				                              .slab = NET_SLAB_TALK,
				                              .bytes = 1 });
		net_test_kill(&test, victim, SIGKILL);
		await_over(&test);
		expect_over(&test, victim, -EPIPE, "node ");
		cr_expect(strstr(test.nodes[victim].request.text.chars, "was killed by signal 9"),
		          "%s", test.nodes[victim].request.text.chars);
		for (uint32_t i = 0; i < 3; i++)
			cr_expect(i == victim || test.nodes[i].request.culprit == victim,
			          "victim %u: %u: %u %s", victim, i, test.nodes[i].request.culprit,
			          test.nodes[i].request.text.chars);
		net_test_start_node(&test, victim);
		talk_all(&test);
	}
	close_talk(&test);
}

/* Node 2 hears node 1 after it has spoken to node 0, whose worker sleeps while node 1 dies. */
Test(talk_end, what_a_node_said_before_it_died_is_heard)
{
	const struct talk_entry entries[] = { { .kind = TALK_READY, .node = 0 },
		                              { .kind = TALK_READY, .node = 2 } };
	struct net_test test;

	open_or_skip(&test, 3, talked_plainly);
	/* All links are there, and the first frames are no longer waited for. */
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t k = 0; k < 3; k++)
			if (i != k)
				send_one(&test.nodes[i], k,
				         (struct talk_entry){ .kind = TALK_BYE });
	for (uint32_t i = 0; i < 3; i++)
		run_until(&test, &talkers[i].heard[TALK_BYE], 2);
	net_test_kill(&test, 0, SIGSTOP);
	cr_assert_eq(net_worker_talk_send(test.nodes[1].worker, entries, 2), 0);
	run_until(&test, &talkers[2].heard[TALK_READY], 1);
	net_test_kill(&test, 1, SIGKILL);
	net_test_await_down(&test, 1);
	net_test_kill(&test, 0, SIGCONT);
	await_over(&test);
	expect_over(&test, 1, -EPIPE, "node ");
	cr_expect_eq(talkers[0].heard[TALK_READY], 1, "%s", test.nodes[0].request.text.chars);
	close_talk(&test);
}

Test(talk_end, an_abort_reaches_all_nodes_with_its_text)
{
	struct net_test test;

	open_or_skip(&test, 3, talked_plainly);
	net_worker_abort(test.nodes[1].worker, -ETIMEDOUT,
	                 &(struct zi_text){ "rank 3 did not come" });
	await_over(&test);
	expect_over(&test, NET_CULPRIT_NONE, -ETIMEDOUT, "rank 3 did not come");
	close_talk(&test);
}

Test(talk_end, what_a_daemon_says_wrongly_ends_it_everywhere)
{
	struct net_test test;

	open_or_skip(&test, 2, talked_plainly);
	send_one(&test.nodes[1], 0,
	         (struct talk_entry){ .kind = TALK_PULL,
	                              .slab = NET_SLAB_PARAM,
	                              .offset_bytes = NET_TEST_SLAB_BYTES,
	                              .bytes = 1 });
	await_over(&test);
	expect_over(&test, NET_CULPRIT_NONE, -EINVAL,
	            "1 bytes at 33554432 of slab 6: it has 33554432");
	close_talk(&test);
}

/* ---- workers and daemons that are none ---- */

struct double_batch {
	struct net_talk_batch batch;
	uint32_t bytes; /* 0: as it should be */
};

/* A test double that says HELLO, and then what lies in a file. */
static void make_double(struct net_test *test, const char *path, const struct double_batch *says)
{
	struct net_header hello = { NET_HELLO, sizeof(hello), ZI_COLL_VERSION };
	struct double_batch message = *says;
	char lines[1024];
	FILE *file;

	message.batch.header.type = NET_TALK_BATCH;
	message.batch.header.bytes =
		message.bytes ? message.bytes : net_talk_batch_bytes(message.batch.count);
	(void)snprintf(lines, sizeof(lines), "%s.message", path);
	file = fopen(lines, "we");
	cr_assert(file);
	cr_assert_eq(fwrite(&hello, sizeof(hello), 1, file), 1);
	cr_assert_eq(fwrite(&message.batch, message.batch.header.bytes, 1, file), 1);
	cr_assert_eq(fclose(file), 0);
	file = fopen(path, "we");
	cr_assert(file);
	/* Each dd writes one packet. */
	cr_assert_gt(fprintf(file,
	                     "#!/bin/sh\n"
	                     "dd if='%s' bs=%zu count=1 >&3 2>/dev/null\n"
	                     "tail -c %u '%s' | dd bs=%u iflag=fullblock count=1 >&3 2>/dev/null\n"
	                     "exec cat <&3 >/dev/null\n",
	                     lines, sizeof(hello), message.batch.header.bytes, lines,
	                     message.batch.header.bytes),
	             0);
	cr_assert_eq(fchmod(fileno(file), 0700), 0);
	cr_assert_eq(fclose(file), 0);
	(void)snprintf(test->program, sizeof(test->program), "%s", path);
}

Test(talk_end, a_worker_that_talks_nonsense_is_ended)
{
	const struct talk_entry came = { .kind = TALK_CAME, .node = 1 };
	const struct double_batch doubles[] = {
		{ .batch = { .count = 1 }, .bytes = net_talk_batch_bytes(0) },
		{ .batch = { .count = 0 }, .bytes = net_talk_batch_bytes(1) },
		{ .batch = { .count = 0 }, .bytes = net_talk_batch_bytes(0) - 1 },
		{ .batch = { .count = TALK_BATCH_MAX + 1 }, .bytes = 64 },
		{ .batch = { .node = SUBTREE_NODES_MAX } },
		{ .batch = { .taken = 1 } },
		{ .batch = { .count = 1, .entries[0] = came } }, /* that was not pulled */
		{ .batch = { .count = 1, .entries[0] = { .kind = TALK_SERVE } } },
		{ .batch = { .count = 1,
		             .entries[0] = { .kind = TALK_READY, .node = SUBTREE_NODES_MAX } } },
		{ .batch = { .count = 1,
		             .entries[0] = { .kind = TALK_READY,
		                             .data_bytes = TALK_DATA_BYTES + 1 } } },
	};
	char path[128], message[160];

	cr_assert_not_null(guard_path(path, sizeof(path), "worker"));
	(void)snprintf(message, sizeof(message), "%s.message", path);
	for (uint32_t i = 0; i < ZI_COUNT_OF(doubles); i++) {
		struct net_test test = { .talked = talked_plainly };

		memset(talkers, 0, sizeof(talkers));
		make_double(&test, path, &doubles[i]);
		net_test_init(&test, 1);
		talk_one(&test, 0);
		net_test_await_down(&test, 0);
		cr_expect(strstr(test.nodes[0].ended.chars, "sent a message of type 16"), "%u: %s",
		          i, test.nodes[0].ended.chars);
		expect_over(&test, NET_CULPRIT_NONE, -EPROTO, "none of its");
		cr_expect_eq(talkers[0].heard[TALK_READY] + talkers[0].heard[TALK_CAME], 0);
		net_test_deinit(&test);
	}
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(unlink(message), 0);
}

/* What the worker is told by one that is no daemon; how it ends. */
static int exit_of(const struct net_test *test, const void *message, uint32_t bytes, bool talks)
{
	struct net_header talk = { NET_TALK, sizeof(talk), 1 };
	struct zi_text text = { "" };
	struct pollfd ended = { .events = POLLIN };
	siginfo_t fate = { .si_status = -1 };
	pid_t pid;
	int fd;

	cr_assert_eq(spawn_worker(test->program, 0, &text, &fd, &ended.fd, &pid), 0, "%s",
	             text.chars);
	if (talks)
		cr_assert_eq(send(fd, &talk, sizeof(talk), MSG_NOSIGNAL), sizeof(talk));
	cr_assert_eq(send(fd, message, bytes, MSG_NOSIGNAL), bytes);
	/* One that takes it ends with its daemon. */
	cr_assert_eq(shutdown(fd, SHUT_WR), 0);
	cr_assert_eq(poll(&ended, 1, NET_TEST_MS), 1);
	cr_assert_eq(waitid(P_PIDFD, (id_t)ended.fd, &fate, WEXITED), 0);
	zi_close(fd);
	zi_close(ended.fd);
	return fate.si_status;
}

Test(talk_end, what_no_daemon_sends_ends_the_worker)
{
	struct net_talk_batch batch = { .header = { NET_TALK_BATCH, net_talk_batch_bytes(1), 0 },
		                        .count = 1,
		                        .entries[0] = { .kind = TALK_READY, .node = 1 } };
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	cr_expect_eq(exit_of(&test, &batch, net_talk_batch_bytes(1), true), 0);
	cr_expect_eq(exit_of(&test, &batch, net_talk_batch_bytes(1), false), 0, "goes nowhere");
	batch.entries[0].node = SUBTREE_NODES_MAX;
	cr_expect_eq(exit_of(&test, &batch, net_talk_batch_bytes(1), true), 4);
	batch.entries[0].node = 1;
	batch.count = 2;
	cr_expect_eq(exit_of(&test, &batch, net_talk_batch_bytes(1), true), 4);
	batch.count = TALK_BATCH_MAX + 1;
	cr_expect_eq(exit_of(&test, &batch, net_talk_batch_bytes(1), true), 4);
	batch.header.bytes = sizeof(batch.header);
	cr_expect_eq(exit_of(&test, &batch, sizeof(batch.header), true), 4);
}
