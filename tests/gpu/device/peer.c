/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes of a run, and packets between them and their parent; see peer.h. */
#include "tests/gpu/device/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/harness/harness.h"

/* Until a child that was killed has ended. A GPU's driver may have to stop a kernel first. */
#define END_TIMEOUT_MS 60000u

static void become(const char *role, const char *fake, int fd, pid_t parent)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	if (fake && setenv(FAKE_GPU_ENV, fake, 1))
		_exit(125);
	/* Either way the descriptor stays open over execl(). */
	if (fd == PEER_SOCKET_FD ? fcntl(fd, F_SETFD, 0) : dup2(fd, PEER_SOCKET_FD) < 0)
		_exit(125);
	execl("/proc/self/exe", "gpu-trials", "--role", role, (char *)NULL);
	_exit(126);
}

int peer_start(struct peer *peer, const char *role, const char *fake, const void *settings,
               size_t bytes)
{
	pid_t parent = getpid();
	int fds[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -errno;
	(void)fflush(NULL);
	peer->pid = fork();
	if (!peer->pid) {
		(void)zi_close(fds[0]);
		become(role, fake, fds[1], parent);
	}
	(void)zi_close(fds[1]);
	if (peer->pid < 0) {
		*peer = (struct peer){ .fd = zi_close(fds[0]) };
		return -EAGAIN;
	}
	peer->fd = fds[0];
	r = peer_send(peer->fd, settings, bytes, NULL, 0);
	if (r)
		(void)peer_kill(peer); /* The first error says more. */
	return r;
}

static int await_end(struct peer *peer, uint32_t timeout_ms)
{
	pid_t pid = peer->pid;

	peer->fd = zi_close(peer->fd);
	peer->pid = 0;
	return pid > 0 ? harness_wait(pid, timeout_ms) : -ESRCH;
}

int peer_end(struct peer *peer, uint32_t timeout_ms)
{
	return await_end(peer, timeout_ms);
}

int peer_kill(struct peer *peer)
{
	if (peer->pid > 0)
		(void)kill(peer->pid, SIGKILL); /* Of a child that was not waited for. */
	return await_end(peer, END_TIMEOUT_MS);
}

static int send_flagged(int fd, const void *message, size_t bytes, const int *fds,
                        uint32_t fd_count, int flags)
{
	char control[CMSG_SPACE(PEER_FDS_MAX * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { (void *)(uintptr_t)message, bytes }; /* Only read. */
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t r;

	assert(fd_count <= PEER_FDS_MAX);
	if (fd_count)
		zi_fd_pass(&packet, control, fds, fd_count);
	do
		r = sendmsg(fd, &packet, MSG_NOSIGNAL | flags);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int peer_send(int fd, const void *message, size_t bytes, const int *fds, uint32_t fd_count)
{
	return send_flagged(fd, message, bytes, fds, fd_count, 0);
}

int peer_try_send(int fd, const void *message, size_t bytes)
{
	return send_flagged(fd, message, bytes, NULL, 0, MSG_DONTWAIT);
}

/* What does not fit into @ret_fds is closed. */
static void take_fds(struct msghdr *packet, int *ret_fds, uint32_t fd_count)
{
	struct cmsghdr *extra = CMSG_FIRSTHDR(packet);
	int fds[PEER_FDS_MAX];
	uint32_t count;

	for (uint32_t i = 0; i < fd_count; i++)
		ret_fds[i] = -1;
	if (!extra || extra->cmsg_type != SCM_RIGHTS)
		return;
	count = (uint32_t)((extra->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(fds, CMSG_DATA(extra), count * sizeof(int));
	for (uint32_t i = 0; i < count; i++) {
		if (i < fd_count)
			ret_fds[i] = fds[i];
		else
			(void)zi_close(fds[i]);
	}
}

int peer_receive(int fd, uint64_t timeout_ns, void *message, size_t bytes, int *ret_fds,
                 uint32_t fd_count)
{
	char control[CMSG_SPACE(PEER_FDS_MAX * sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { message, bytes };
	struct msghdr packet = { .msg_iov = &part,
		                 .msg_iovlen = 1,
		                 .msg_control = control,
		                 .msg_controllen = sizeof(control) };
	uint64_t deadline_ns = zi_clock_deadline_ns(timeout_ns);
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	ssize_t r;

	do
		r = poll(&poller, 1, zi_clock_poll_ms(deadline_ns));
	while (r < 0 && errno == EINTR);
	if (!r)
		return -ETIMEDOUT;
	do
		r = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	if (!r)
		return -EPIPE;
	take_fds(&packet, ret_fds, fd_count);
	return (size_t)r == bytes && !(packet.msg_flags & MSG_TRUNC) ? 0 : -EPROTO;
}
