/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a worker program, and what became of it. Floor 3. Any thread. */
#pragma once

#include <sys/types.h>

#include "common/base/text.h"

/**
 * spawn_worker() - start @program with its end of a socket pair as descriptor NET_SOCKET_FD
 * @uid: the job's user, which zinf-net becomes where this process is root (net/rights.h)
 * @ret_fd: our end, SOCK_SEQPACKET, non-blocking, close-on-exec
 * @ret_pidfd: readable when it has ended; spawn_reap() then, or it stays a zombie
 *
 * The program has nothing else of ours open, no signal blocked or caught.
 * Return: 0; -ENOENT, -EACCES, -EAGAIN, -ENOMEM, -EMFILE, with @text.
 */
int spawn_worker(const char *program, uid_t uid, struct zi_text *text, int *ret_fd, int *ret_pidfd,
                 pid_t *ret_pid);

/* Waits for the end of what has ended or was killed. @text: "was killed by signal 9 (Killed)". */
void spawn_reap(int pidfd, struct zi_text *text);
