/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake zinf-gpu: a child of the test, which says on the worker's socket what the test wants. It
 * knows no driver; its chunks are descriptors of an empty file.
 */
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/unit/worker/gpu_fixture.h"

#define GPU_DOUBLE_UUID "GPU-00000000-0000-4000-8000-000000000001"

/* What the child does with its end of the socket; it ends when the daemon closes the other one. */
typedef void (*gpu_double_fn)(int fd);

static gpu_double_fn gpu_double_play;

/* A message as a sound zinf-gpu sends it. */
static inline union gpu_message gpu_double_hello(void)
{
	union gpu_message message = { .hello = { .header = gpu_header_of(GPU_HELLO, 0),
		                                 .uuid = GPU_DOUBLE_UUID,
		                                 .name = "Fake GPU",
		                                 .pci = "0000:01:00.0",
		                                 .bytes = 1ull << 30,
		                                 .granularity_bytes = 2u << 20,
		                                 .driver_version = 12040,
		                                 .capability = 90,
		                                 .host_numa = -1,
		                                 .count = 1,
		                                 .flags = GPU_FLAG_VMM | GPU_FLAG_POSIX_FDS } };

	return message;
}

/* Of the child: a failure ends it with a code that no test expects. */
static inline void gpu_double_check(bool is_right)
{
	if (!is_right)
		_exit(99);
}

/* @bytes of @message, with @fd_count descriptors. */
static inline void gpu_double_send(int fd, const void *message, size_t bytes, uint32_t fd_count)
{
	char control[CMSG_SPACE(16 * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { (void *)message, bytes };
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	struct cmsghdr *extra = (struct cmsghdr *)control;
	int fds[16];

	gpu_double_check(fd_count <= 16);
	for (uint32_t i = 0; i < fd_count; i++) {
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		gpu_double_check(fds[i] >= 0);
	}
	if (fd_count) {
		packet.msg_control = control;
		packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		*extra = (struct cmsghdr){ .cmsg_len = CMSG_LEN(fd_count * sizeof(int)),
			                   .cmsg_level = SOL_SOCKET,
			                   .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(extra), fds, fd_count * sizeof(int));
	}
	gpu_double_check(sendmsg(fd, &packet, MSG_NOSIGNAL) == (ssize_t)bytes);
	for (uint32_t i = 0; i < fd_count; i++)
		(void)close(fds[i]);
}

static inline void gpu_double_greet(int fd)
{
	union gpu_message hello = gpu_double_hello();

	gpu_double_send(fd, &hello, sizeof(hello.hello), 0);
}

/* The next message of @type. Others are answered where they are a PING, else wrong. */
static inline void gpu_double_await(int fd, uint32_t type, union gpu_message *ret_message)
{
	for (;;) {
		ssize_t bytes = recv(fd, ret_message, sizeof(*ret_message), 0);

		if (!bytes)
			_exit(0);
		gpu_double_check(bytes > 0 && gpu_message_is_whole(ret_message, (uint64_t)bytes));
		if (ret_message->header.type == type)
			return;
		gpu_double_check(ret_message->header.type == GPU_PING);
		struct gpu_header pong = gpu_header_of(GPU_PONG, 0);

		gpu_double_send(fd, &pong, sizeof(pong), 0);
	}
}

static inline union gpu_message gpu_double_chunks(uint64_t cookie, uint32_t first, uint32_t count)
{
	union gpu_message message = { .chunks = { .header = gpu_header_of(GPU_CHUNKS, cookie),
		                                  .first = first,
		                                  .count = count } };

	for (uint32_t i = 0; i < count; i++)
		message.chunks.ids[i] = first + i + 1;
	return message;
}

static inline union gpu_message gpu_double_done(uint64_t cookie, int error, uint32_t held_count)
{
	union gpu_message message = { .done = { .header = gpu_header_of(GPU_DONE, cookie),
		                                .error = error,
		                                .held_count = held_count,
		                                .held_bytes = held_count * GPU_TEST_CHUNK } };

	if (error)
		zi_text_set(&message.done.text, "the double says %d", error);
	return message;
}

static inline void gpu_double_end(int fd, uint64_t cookie, int error, uint32_t held_count)
{
	union gpu_message done = gpu_double_done(cookie, error, held_count);

	gpu_double_send(fd, &done, sizeof(done.done), 0);
}

/* Of gpu_worker_options: starts no program. */
static inline int gpu_double_spawn(const struct spawn_options *options, struct zi_text *text,
                                   struct spawned *ret_spawned)
{
	int pair[2];
	pid_t pid;

	cr_assert_str_eq(options->name, "zinf-gpu");
	(void)text;
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		char rest[1024];

		(void)close(pair[0]);
		gpu_double_play(pair[1]);
		while (recv(pair[1], rest, sizeof(rest), 0) > 0)
			;
		_exit(0);
	}
	(void)close(pair[1]);
	cr_assert_eq(zi_fd_set_nonblock(pair[0], true), 0);
	ret_spawned->fd = pair[0];
	ret_spawned->pid = pid;
	return zi_pidfd_open(pid, &ret_spawned->pidfd);
}
