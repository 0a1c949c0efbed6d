/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the program zinf-gpu bears no nonsense from its daemon, ends with it even while it waits in
 * the driver, and says what it is to a user who starts it. Method: zinf-gpu on the fake driver gets
 * orders from the test, each with one thing wrong.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/unit/worker/gpu_real.h"

/* @words: of the fake driver. The socket waits. */
static struct spawned start(const char *words)
{
	static const char *const variables[] = { FAKE_GPU_ENV, NULL };
	struct spawn_options options = { .program = gpu_real_program,
		                         .name = "zinf-gpu",
		                         .variables = variables };
	const char *arguments[] = { "--device", "0", "--driver", gpu_real_driver, NULL };
	struct spawned spawned;
	struct zi_text text;

	gpu_real_set(words);
	options.arguments = arguments;
	cr_assert_eq(spawn_program(&options, &text, &spawned), 0, "%s", text.chars);
	cr_assert_eq(zi_fd_set_nonblock(spawned.fd, false), 0);
	return spawned;
}

/* The next message, whose descriptors are closed. Return: its type; 0 at the end. */
static uint32_t receive(int fd, union gpu_message *message)
{
	char control[CMSG_SPACE(GPU_FDS_MAX * sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { message, sizeof(*message) };
	struct msghdr packet = { .msg_iov = &part,
		                 .msg_iovlen = 1,
		                 .msg_control = control,
		                 .msg_controllen = sizeof(control) };
	ssize_t bytes = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
	struct cmsghdr *extra = CMSG_FIRSTHDR(&packet);

	if (bytes <= 0)
		return 0;
	cr_assert(gpu_message_is_whole(message, (uint64_t)bytes));
	for (size_t i = 0; extra && i < (extra->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
		int copy;

		memcpy(&copy, CMSG_DATA(extra) + i * sizeof(int), sizeof(int));
		zi_close(copy);
	}
	return message->header.type;
}

static void greet(const struct spawned *spawned)
{
	union gpu_message message;

	cr_assert_eq(receive(spawned->fd, &message), GPU_SEEN);
	cr_expect_eq(message.seen.count, 2);
	cr_assert_eq(receive(spawned->fd, &message), GPU_HELLO);
}

static void order(int fd, const void *message, size_t bytes)
{
	cr_assert_eq(send(fd, message, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* Closes the socket, unless it is closed, and waits for the end. */
static void expect_ends(struct spawned *spawned, const char *says)
{
	struct zi_text text;

	spawn_reap(spawned->pidfd, &text);
	cr_expect(strstr(text.chars, says), "%s", text.chars);
	zi_close(spawned->fd);
	zi_close(spawned->pidfd);
}

/* @message: whole. CREATE of 20 chunks is in progress where @is_busy. */
static void expect_refused(const void *message, size_t bytes, bool is_busy)
{
	struct gpu_create create = { .header = gpu_header_of(GPU_CREATE, 7),
		                     .count = 20,
		                     .chunk_bytes = GPU_TEST_CHUNK };
	struct spawned spawned = start("");
	union gpu_message answer;

	greet(&spawned);
	if (is_busy) {
		order(spawned.fd, &create, sizeof(create));
		cr_assert_eq(receive(spawned.fd, &answer), GPU_CHUNKS);
		cr_expect_eq(answer.chunks.count, GPU_FDS_MAX);
	}
	order(spawned.fd, message, bytes);
	cr_expect_eq(receive(spawned.fd, &answer), 0);
	expect_ends(&spawned, "ended with exit code 4");
}

Test(gpu_orders, packets_that_are_no_messages_end_zinf_gpu)
{
	struct gpu_header ping = gpu_header_of(GPU_PING, 0), wrong;
	char endless[4096] = "";

	expect_refused("x", 1, false);
	expect_refused(endless, sizeof(endless), false);
	expect_refused(&ping, sizeof(ping) - 1, false);
	wrong = ping;
	wrong.magic++;
	expect_refused(&wrong, sizeof(wrong), false);
	wrong = ping;
	wrong.version++;
	expect_refused(&wrong, sizeof(wrong), false);
	wrong = ping;
	wrong.bytes++;
	expect_refused(&wrong, sizeof(wrong), false);
	wrong = ping;
	wrong.reserved = 1;
	expect_refused(&wrong, sizeof(wrong), false);
	wrong = ping;
	wrong.type = 0;
	expect_refused(&wrong, sizeof(wrong), false);
	wrong.type = GPU_SEEN + 1;
	expect_refused(&wrong, sizeof(wrong), false);
	wrong.type = GPU_CREATE; /* shorter than its type */
	expect_refused(&wrong, sizeof(wrong), false);
}

Test(gpu_orders, messages_of_a_worker_end_zinf_gpu)
{
	union gpu_message message;

	for (uint32_t type = GPU_HELLO; type <= GPU_SEEN; type++) {
		if (type == GPU_CREATE || type == GPU_RELEASE || type == GPU_PING)
			continue;
		message = (union gpu_message){ .header = gpu_header_of(type, 1) };
		expect_refused(&message, gpu_message_bytes(type), false);
	}
}

Test(gpu_orders, orders_that_cannot_be_end_zinf_gpu)
{
	struct gpu_create create = { .header = gpu_header_of(GPU_CREATE, 0), .count = 1 };
	struct gpu_release release = { .header = gpu_header_of(GPU_RELEASE, 1) };

	expect_refused(&create, sizeof(create), false);
	create.header.cookie = 1;
	create.reserved = 1;
	expect_refused(&create, sizeof(create), false);
	expect_refused(&release, sizeof(release), false); /* of no chunk */
	release.count = GPU_RELEASES_MAX + 1;
	expect_refused(&release, sizeof(release), false);
	release.count = UINT32_MAX;
	expect_refused(&release, sizeof(release), false);
	release.count = 1;
	release.reserved = 1;
	expect_refused(&release, sizeof(release), false);
	release.reserved = 0;
	release.header.cookie = 0;
	expect_refused(&release, sizeof(release), false);
}

Test(gpu_orders, orders_amid_a_create_end_zinf_gpu)
{
	struct gpu_create create = { .header = gpu_header_of(GPU_CREATE, 8),
		                     .count = 1,
		                     .chunk_bytes = GPU_TEST_CHUNK };
	struct gpu_release release = { .header = gpu_header_of(GPU_RELEASE, 8), .count = 1 };
	struct gpu_taken taken = { .header = gpu_header_of(GPU_TAKEN, 8) };

	expect_refused(&create, sizeof(create), true);
	expect_refused(&release, sizeof(release), true);
	expect_refused(&taken, sizeof(taken), true); /* of another request */
	taken.header.cookie = 7;
	taken.error = 1;
	expect_refused(&taken, sizeof(taken), true);
	taken.error = 0;
	taken.reserved = 1;
	expect_refused(&taken, sizeof(taken), true);
}

Test(gpu_orders, a_descriptor_with_an_order_ends_zinf_gpu)
{
	struct gpu_header ping = gpu_header_of(GPU_PING, 0);
	struct spawned spawned = start("");
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { &ping, sizeof(ping) };
	struct msghdr packet = { .msg_iov = &part,
		                 .msg_iovlen = 1,
		                 .msg_control = control,
		                 .msg_controllen = sizeof(control) };
	struct cmsghdr *extra = (struct cmsghdr *)control;

	greet(&spawned);
	*extra = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
		                   .cmsg_level = SOL_SOCKET,
		                   .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(extra), &spawned.pidfd, sizeof(int));
	cr_assert_eq(sendmsg(spawned.fd, &packet, MSG_NOSIGNAL), (ssize_t)sizeof(ping));
	expect_ends(&spawned, "ended with exit code 4");
}

/* ---- what it does answer ---- */

Test(gpu_orders, a_ping_amid_a_create_is_answered_and_a_refused_batch_is_undone)
{
	struct gpu_create create = { .header = gpu_header_of(GPU_CREATE, 7),
		                     .count = 20,
		                     .chunk_bytes = GPU_TEST_CHUNK };
	struct gpu_header ping = gpu_header_of(GPU_PING, 0);
	struct gpu_taken taken = { .header = gpu_header_of(GPU_TAKEN, 7) };
	struct spawned spawned = start("");
	union gpu_message answer;

	greet(&spawned);
	order(spawned.fd, &create, sizeof(create));
	cr_assert_eq(receive(spawned.fd, &answer), GPU_CHUNKS);
	order(spawned.fd, &ping, sizeof(ping));
	cr_assert_eq(receive(spawned.fd, &answer), GPU_PONG);
	order(spawned.fd, &taken, sizeof(taken));
	cr_assert_eq(receive(spawned.fd, &answer), GPU_CHUNKS);
	cr_expect_eq(answer.chunks.first, GPU_FDS_MAX);
	taken.error = -EMFILE;
	order(spawned.fd, &taken, sizeof(taken));
	cr_assert_eq(receive(spawned.fd, &answer), GPU_DONE);
	cr_expect_eq(answer.done.error, -EMFILE);
	cr_expect_eq(answer.done.held_count, 0);
	cr_expect_eq(answer.done.held_bytes, 0);
	gpu_test_expect_text(answer.done.text, "16 of 20 chunks were made and released");
	create.header.cookie = 8;
	create.count = 0; /* Sound enough for an answer. */
	order(spawned.fd, &create, sizeof(create));
	cr_assert_eq(receive(spawned.fd, &answer), GPU_DONE);
	cr_expect_eq(answer.done.error, -EINVAL);
	spawned.fd = zi_close(spawned.fd);
	expect_ends(&spawned, "ended with exit code 0");
}

Test(gpu_orders, a_daemon_that_leaves_amid_a_create_ends_zinf_gpu)
{
	struct gpu_create create = { .header = gpu_header_of(GPU_CREATE, 7),
		                     .count = 20,
		                     .chunk_bytes = GPU_TEST_CHUNK };
	struct spawned spawned = start("");

	greet(&spawned);
	order(spawned.fd, &create, sizeof(create));
	spawned.fd = zi_close(spawned.fd);
	expect_ends(&spawned, "ended with exit code 0");
}

/* The socket cannot tell a process that waits in the driver. */
Test(gpu_orders, the_death_of_the_daemon_ends_a_zinf_gpu_that_hangs)
{
	struct pollfd ended = { .events = POLLIN };
	int pipes[2];
	pid_t daemon, worker;

	cr_assert_eq(pipe(pipes), 0);
	daemon = fork();
	cr_assert_geq(daemon, 0);
	if (!daemon) {
		struct gpu_create create = { .header = gpu_header_of(GPU_CREATE, 7),
			                     .count = 1,
			                     .chunk_bytes = GPU_TEST_CHUNK };
		struct spawned spawned = start("hang=cuMemCreate:1");

		greet(&spawned);
		order(spawned.fd, &create, sizeof(create));
		if (write(pipes[1], &spawned.pid, sizeof(spawned.pid)) < 0)
			_exit(1);
		(void)pause();
		_exit(0);
	}
	cr_assert_eq(read(pipes[0], &worker, sizeof(worker)), sizeof(worker));
	cr_assert_eq(zi_pidfd_open(worker, &ended.fd), 0);
	cr_assert_eq(kill(daemon, SIGKILL), 0);
	cr_assert_eq(waitpid(daemon, NULL, 0), daemon);
	cr_expect_eq(poll(&ended, 1, (int)(patient_ns(30 * ZI_NS_PER_S) / ZI_NS_PER_MS)), 1);
	zi_close(ended.fd);
	zi_close(pipes[0]);
	zi_close(pipes[1]);
}

/* ---- by hand ---- */

static void expect_words(const char *arguments, int code, const char *says)
{
	char command[700], words[2048] = "";
	FILE *output;

	(void)snprintf(command, sizeof(command), "%s %s 2>&1 3<&-", gpu_real_program, arguments);
	output = popen(command, "r");
	cr_assert(output);
	words[fread(words, 1, sizeof(words) - 1, output)] = '\0';
	cr_expect_eq(WEXITSTATUS(pclose(output)), code, "%s", arguments);
	cr_expect(strstr(words, says), "%s: %s", arguments, words);
}

Test(gpu_orders, zinf_gpu_by_hand_says_what_it_is)
{
	gpu_real_set("");
	expect_words("--help", 0, "usage: zinf-gpu");
	expect_words("", 1, "is started by zinfd");
	expect_words("--device 0", 1, "is started by zinfd");
	expect_words("--device 0 more", 1, "is started by zinfd");
	expect_words("--wrong", 1, "--wrong");
}
