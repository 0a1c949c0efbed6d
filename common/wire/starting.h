/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that is starting recovers its stores before it listens, and clients are told so. A file
 * beside the socket (SOCKET.starting) has its pid, and is locked for writing (fcntl, of the open
 * file) until the daemon listens or ends. Only a process that may write to the file can lock it so.
 * A file without that lock was left by a daemon that was killed: it says nothing, like a file whose
 * owner is neither root nor the owner of the socket's folder. Floor 1, any thread.
 */
#pragma once

#include <sys/types.h>

/* The daemon's: a descriptor for zi_starting_end(); -1: nobody is told. */
int zi_starting_begin(const char *socket_path);
/* Return: -1. Twice is fine. */
int zi_starting_end(const char *socket_path, int fd);
/* Others': the pid of the daemon that is starting there; 0: none is known of. */
pid_t zi_starting_pid(const char *socket_path);
