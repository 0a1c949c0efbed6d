/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a program that is no worker, or is spoken to by no daemon, ends with a word, and never
 * holds anybody up. Method: programs that are missing, end, are silent or talk nonsense in place of
 * zinf-net; and zinf-net itself without its socket, and with nonsense in it.
 */
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/worker/spawn.h"
#include "tests/guard/guard.h"
#include "tests/unit/worker/net_fixture.h"

static int start_program(const char *program, struct net_test *test, struct zi_text *text)
{
	cr_assert_eq(zi_loop_new(&test->loop), 0);
	cr_assert_eq(net_worker_new(test->loop,
	                            &(struct net_worker_options){ .program = program,
	                                                          .pong_ns = 200 * ZI_NS_PER_MS,
	                                                          .ended = net_test_ended,
	                                                          .arg = &test->nodes[0] },
	                            &test->nodes[0].worker),
	             0);
	test->nodes[0].request.done = net_test_done;
	test->nodes[0].test = test;
	return net_worker_start(test->nodes[0].worker, text);
}

static void expect_ends(const char *program, int error, const char *says)
{
	struct net_test test = { .pending_count = 0 };
	struct zi_text text;

	cr_assert_eq(start_program(program, &test, &text), 0, "%s", text.chars);
	test.nodes[0].join.timeout_ms = 1000;
	/* It may have ended already: then nothing is accepted. */
	if (!net_worker_join(test.nodes[0].worker, &test.nodes[0].request, &test.nodes[0].join)) {
		test.pending_count++;
		net_test_run(&test);
		cr_expect_eq(test.nodes[0].request.error, error, "%d", test.nodes[0].request.error);
		cr_expect(strstr(test.nodes[0].request.text.chars, says), "%s",
		          test.nodes[0].request.text.chars);
	}
	net_test_await_down(&test, 0);
	cr_expect(strstr(test.nodes[0].ended.chars, says), "%s", test.nodes[0].ended.chars);
	net_worker_free(test.nodes[0].worker);
	zi_loop_free(test.loop);
}

Test(spawn, a_program_that_is_not_there_is_named)
{
	struct net_test test = { .pending_count = 0 };
	struct zi_text text;

	cr_expect_eq(start_program("/nonexistent/zinf-net", &test, &text), -ENOENT);
	cr_expect(strstr(text.chars, "libgloo-dev"), "%s", text.chars);
	net_worker_free(test.nodes[0].worker);
	zi_loop_free(test.loop);
}

Test(spawn, a_program_that_ends_is_told_with_its_code)
{
	expect_ends("/bin/false", -EPIPE, "ended with exit code 1");
}

/* Nothing reads its end of the socket: it "answers" nothing. */
static void script(char *path, size_t capacity, const char *text)
{
	FILE *file;

	(void)guard_path(path, capacity, "program");
	zi_close(mkstemp(path));
	file = fopen(path, "w");
	cr_assert(file);
	cr_assert_gt(fputs(text, file), 0);
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(chmod(path, 0700), 0);
}

Test(spawn, a_program_that_says_nothing_is_killed)
{
	char path[256];

	script(path, sizeof(path), "#!/bin/sh\nread never <&3\nkill -STOP $$\n");
	expect_ends(path, -ETIMEDOUT, "hung");
	(void)unlink(path);
}

Test(spawn, a_program_that_says_nonsense_is_killed)
{
	char path[256];

	script(path, sizeof(path), "#!/bin/sh\necho nonsense >&3\nkill -STOP $$\n");
	expect_ends(path, -EPROTO, "none of its");
	(void)unlink(path);
}

static void expect_leaves(const void *message, size_t bytes, const char *says)
{
	struct net_test test = { .host = NULL };
	struct net_header hello;
	struct zi_text text;
	int fd, pidfd;
	pid_t pid;

	net_test_skip_unless_built(&test);
	cr_assert_eq(spawn_worker(test.program, 0, &text, &fd, &pidfd, &pid), 0, "%s", text.chars);
	cr_assert_eq(zi_fd_set_nonblock(fd, false), 0);
	cr_assert_eq(recv(fd, &hello, sizeof(hello), 0), sizeof(hello));
	cr_expect_eq(hello.type, NET_HELLO);
	if (bytes)
		cr_assert_eq(send(fd, message, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
	else
		fd = zi_close(fd);
	spawn_reap(pidfd, &text);
	cr_expect(strstr(text.chars, says), "%s", text.chars);
	zi_close(fd);
	zi_close(pidfd);
}

Test(spawn, zinf_net_ends_when_the_daemon_does)
{
	expect_leaves(NULL, 0, "exit code 0");
}

Test(spawn, zinf_net_bears_no_nonsense_from_its_daemon)
{
	struct net_header unknown = { _NET_TYPE_COUNT, sizeof(unknown), 1 };
	struct net_header lying = { NET_PING, sizeof(lying) + 1, 1 };
	struct net_header shorter = { NET_JOIN, sizeof(shorter), 1 };

	expect_leaves("x", 1, "exit code 4");
	expect_leaves(&unknown, sizeof(unknown), "exit code 4");
	expect_leaves(&lying, sizeof(lying), "exit code 4");
	expect_leaves(&shorter, sizeof(shorter), "exit code 4");
}

/* Until somebody writes to @path, which nobody does, whoever asks for a host's name waits. */
static bool hold_resolver(const char *path)
{
	return !mkfifo(path, 0600) && !unshare(CLONE_NEWNS) &&
	       !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount(path, "/etc/hosts", NULL, MS_BIND, NULL);
}

/* Its daemon would take it for hung, and the name be told to nobody. */
Test(spawn, zinf_net_answers_while_the_resolver_does_not)
{
	struct net_meet meet = { .header = { NET_MEET, sizeof(meet), 1 },
		                 .way = { .place = { .host = "slow.invalid" }, .job = "gpt" },
		                 .ranks = 1,
		                 .world_size = 2,
		                 .opening = 1,
		                 .timeout_ms = NET_TEST_MS };
	struct net_header ping = { NET_PING, sizeof(ping), 2 }, answer;
	struct net_test test = { .host = NULL };
	struct pollfd ready = { .events = POLLIN };
	char path[256];
	struct zi_text text;
	int fd, pidfd;
	pid_t pid;

	net_test_skip_unless_built(&test);
	(void)guard_path(path, sizeof(path), "hosts");
	if (!hold_resolver(path)) {
		(void)unlink(path);
		cr_skip_test("mounting is not allowed here");
	}
	meet.way.place.port = harness_free_port();
	cr_assert_eq(spawn_worker(test.program, 0, &text, &fd, &pidfd, &pid), 0, "%s", text.chars);
	cr_assert_eq(zi_fd_set_nonblock(fd, false), 0);
	cr_assert_eq(recv(fd, &answer, sizeof(answer), 0), sizeof(answer));
	cr_assert_eq(send(fd, &meet, sizeof(meet), MSG_NOSIGNAL), sizeof(meet));
	cr_assert_eq(send(fd, &ping, sizeof(ping), MSG_NOSIGNAL), sizeof(ping));
	ready.fd = fd;
	cr_assert_eq(poll(&ready, 1, NET_TEST_MS / 2), 1, "it waits for the resolver");
	cr_assert_eq(recv(fd, &answer, sizeof(answer), 0), sizeof(answer));
	cr_expect_eq(answer.type, NET_PONG, "%u", answer.type);
	zi_close(fd);
	spawn_reap(pidfd, &text);
	cr_expect(strstr(text.chars, "exit code 0"), "%s", text.chars);
	zi_close(pidfd);
	(void)umount("/etc/hosts"); /* Ours alone: it goes with us. */
	(void)unlink(path);
}

Test(spawn, zinf_net_by_hand_says_what_it_is)
{
	struct net_test test = { .host = NULL };
	char command[600];
	char words[256] = "";
	FILE *output;

	net_test_skip_unless_built(&test);
	(void)snprintf(command, sizeof(command), "%s 2>&1 3<&-", test.program);
	output = popen(command, "r");
	cr_assert(output);
	cr_expect(fgets(words, sizeof(words), output));
	cr_expect_eq(WEXITSTATUS(pclose(output)), 1);
	cr_expect(strstr(words, "started by zinfd"), "%s", words);
}

/* ---- rights ---- */

/* Some user that is not root, and has nothing. */
#define OTHER_UID 54321u

/* Whether /proc/@pid/status has @line. */
static bool has_line(pid_t pid, const char *line)
{
	char path[64], found[256];
	bool has = false;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid); /* Fits. */
	file = fopen(path, "re");
	cr_assert(file);
	while (!has && fgets(found, sizeof(found), file)) {
		found[strcspn(found, "\n")] = '\0';
		has = !strcmp(found, line);
	}
	(void)fclose(file);
	return has;
}

Test(spawn, zinf_net_of_a_root_daemon_is_the_jobs_user_without_rights)
{
	static const char *const lines[] = { "Uid:\t54321\t54321\t54321\t54321",
		                             "Gid:\t65534\t65534\t65534\t65534",
		                             "Groups:\t ",
		                             "NoNewPrivs:\t1",
		                             "CapEff:\t0000000000000000",
		                             "CapPrm:\t0000000000000000" };
	struct net_test test = { .host = NULL };
	struct net_header hello;
	struct zi_text text;
	int fd, pidfd;
	pid_t pid;

	net_test_skip_unless_built(&test);
	if (geteuid())
		cr_skip_test("only root starts programs as another user");
	cr_assert_eq(spawn_worker(test.program, OTHER_UID, &text, &fd, &pidfd, &pid), 0, "%s",
	             text.chars);
	cr_assert_eq(zi_fd_set_nonblock(fd, false), 0);
	cr_assert_eq(recv(fd, &hello, sizeof(hello), 0), sizeof(hello));
	for (uint32_t i = 0; i < ZI_COUNT_OF(lines); i++)
		cr_expect(has_line(pid, lines[i]), "%s", lines[i]);
	zi_close(fd);
	spawn_reap(pidfd, &text);
	cr_expect(strstr(text.chars, "exit code 0"), "%s", text.chars);
	zi_close(pidfd);
}

Test(spawn, zinf_net_of_one_user_keeps_it_and_gains_no_rights)
{
	struct net_test test = { .host = NULL };
	struct net_header hello;
	struct zi_text text;
	int fd, pidfd;
	pid_t pid;

	net_test_skip_unless_built(&test);
	cr_assert_eq(spawn_worker(test.program, geteuid(), &text, &fd, &pidfd, &pid), 0, "%s",
	             text.chars);
	cr_assert_eq(zi_fd_set_nonblock(fd, false), 0);
	cr_assert_eq(recv(fd, &hello, sizeof(hello), 0), sizeof(hello));
	cr_expect(has_line(pid, "NoNewPrivs:\t1"));
	zi_close(fd);
	spawn_reap(pidfd, &text);
	zi_close(pidfd);
}

Test(spawn, a_uid_that_is_none_ends_zinf_net)
{
	static const char *const wrong[] = { "0", "-1", "4294967295", "12x", "''", "root" };
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	for (uint32_t i = 0; i < ZI_COUNT_OF(wrong); i++) {
		char command[600], words[256] = "";
		FILE *output;

		(void)snprintf(command, sizeof(command), "%s %s 2>&1 3</dev/null", test.program,
		               wrong[i]);
		output = popen(command, "r");
		cr_assert(output);
		cr_expect(fgets(words, sizeof(words), output));
		cr_expect_eq(WEXITSTATUS(pclose(output)), 1);
		cr_expect(strstr(words, "is no uid of a user"), "%s: %s", wrong[i], words);
	}
}

/* Both nodes hear it at once, though only the first one would have listened. */
Test(spawn, a_port_below_1024_is_refused_for_users)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	test.uid = OTHER_UID;
	net_test_init(&test, 2);
	test.epoch = 1;
	test.port = 443;
	net_test_join_one(&test, 0, NET_TEST_MS);
	net_test_join_one(&test, 1, NET_TEST_MS);
	net_test_run(&test);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(test.nodes[i].request.error, -EACCES, "%u: %d", i,
		             test.nodes[i].request.error);
		cr_expect(strstr(test.nodes[i].request.text.chars, "port 443 (ZINF_PORT)"), "%s",
		          test.nodes[i].request.text.chars);
	}
	net_test_deinit(&test);
}

/* A job of a user goes the whole way with these rights: it meets and maps slabs. */
Test(spawn, nodes_of_a_users_job_meet_and_map_their_slabs)
{
	struct net_test test = { .host = NULL };

	net_test_skip_unless_built(&test);
	test.uid = OTHER_UID;
	net_test_init(&test, 2);
	net_test_join(&test);
	net_test_deinit(&test);
}
