/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors: owned locals, and the few Linux calls libc does not wrap. Floor 0. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Closes @fd unless negative; always -1, so that `fd = zi_close(fd)`. Never fails: EINTR and EIO on
 * close cannot be acted on here, data paths check their own writes. */
int zi_close(int fd);
static inline void zi_closep(int *fd)
{
	(void)zi_close(*fd);
}

int zi_fd_set_nonblock(int fd, bool is_nonblock);
struct msghdr;
/* Puts copies of descriptors into a packet of sendmsg(); they stay the caller's. @control: of
 * CMSG_SPACE(@fd_count * sizeof(int)) bytes, zeroed, aligned as a struct cmsghdr, and there until
 * the packet is sent. */
void zi_fd_pass(struct msghdr *packet, void *control, const int *fds, uint32_t fd_count);
int zi_pidfd_open(pid_t pid, int *ret_fd);
/* How the process that has ended did: as waitpid() would say it, whoever its parent is. -EAGAIN the
 * kernel does not tell: another user's before its parent has waited for it, or an exit with 0;
 * anyone's after that before Linux 6.15. */
int zi_pidfd_status(int pidfd, pid_t pid, int *ret_status);
/* The same open file, opened anew O_RDONLY|O_CLOEXEC through /proc/self/fd (memfds for ranks). */
int zi_fd_reopen_readonly(int fd, int *ret_fd);
/* Whole transfers: -EIO on a short end of file, EINTR retried. */
int zi_pread_all(int fd, void *buffer, size_t bytes, uint64_t offset_bytes);
int zi_pwrite_all(int fd, const void *buffer, size_t bytes, uint64_t offset_bytes);
/* Reads a small text file (/proc, /sys) into @buffer, always NUL-terminated, newlines at the
 * end stripped; -EFBIG when it does not fit. */
int zi_read_text(const char *path, char *buffer, size_t capacity);
