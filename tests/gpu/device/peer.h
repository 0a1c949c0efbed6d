/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes of a run (trial.h): this program again, as one of the roles of roles.h, with a
 * socket to its parent. A child is a new program, since a driver that was opened does not survive
 * fork(). It ends with its parent.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PEER_SOCKET_FD 3
#define PEER_FDS_MAX   8u

struct peer {
	pid_t pid; /* 0: there is none */
	int fd;    /* a packet socket */
};

/* @role: of roles.h. @fake: words of $ZINF_FAKE_GPU for the child alone; NULL: the parent's.
 * @settings: its first message. Return: 0; -errno. */
int peer_start(struct peer *peer, const char *role, const char *fake, const void *settings,
               size_t bytes);
/* Closes the socket, by which a child ends, and waits. Return: as harness_wait(). */
int peer_end(struct peer *peer, uint32_t timeout_ms);
/* SIGKILL, and its end is waited for. Return: as harness_wait(). */
int peer_kill(struct peer *peer);

/* One packet, with descriptors. Return: 0; -EPIPE the other side has ended; -errno. */
int peer_send(int fd, const void *message, size_t bytes, const int *fds, uint32_t fd_count);
/* As peer_send(); -EAGAIN the other side does not read. */
int peer_try_send(int fd, const void *message, size_t bytes);
/* @message: (@bytes,) a packet of just this length. @ret_fds: (@fd_count,) descriptors that come
 * with it; -1: none. Return: 0; -EPIPE; -ETIMEDOUT; -EPROTO another length. */
int peer_receive(int fd, uint64_t timeout_ns, void *message, size_t bytes, int *ret_fds,
                 uint32_t fd_count);
