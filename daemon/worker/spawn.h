/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a worker program, and what became of it. Floor 3. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/text.h"

#define SPAWN_SOCKET_FD 3 /* the worker's end of the socket */
/* Words after the program's name, and variables of the environment. */
#define SPAWN_WORDS_MAX 8u

/* @path: (capacity,) of the program @name beside this one, built or installed. Return: 0; -ENOENT
 * with @text. */
int spawn_beside(const char *name, char *path, size_t capacity, struct zi_text *text);

struct spawn_options {
	const char *program;          /* path */
	const char *name;             /* the process's: "zinf-net" */
	const char *const *arguments; /* NULL at the end; NULL: none */
	/* Names of variables that it inherits where they are set, NULL at the end; NULL: none. */
	const char *const *variables;
	const char *hint; /* what to do where there is no such program; NULL: nothing */
};

struct spawned {
	int fd;    /* our end: SOCK_SEQPACKET, non-blocking, close-on-exec */
	int pidfd; /* readable when it has ended; spawn_reap() then, or it stays a zombie */
	pid_t pid;
};

/**
 * spawn_program() - start a program with its end of a socket pair as descriptor SPAWN_SOCKET_FD
 * @ret_spawned: the caller's
 *
 * The program has nothing else of ours open, no signal blocked or caught, and a plain environment.
 * Return: 0; -ENOENT, -EACCES, -EAGAIN, -ENOMEM, -EMFILE, with @text.
 */
int spawn_program(const struct spawn_options *options, struct zi_text *text,
                  struct spawned *ret_spawned);

/* zinf-net by spawn_program(). @uid: the job's user, which zinf-net becomes where this process is
 * root (net/rights.h). */
int spawn_worker(const char *program, uid_t uid, struct zi_text *text, int *ret_fd, int *ret_pidfd,
                 pid_t *ret_pid);

/* Whether it has ended; waits for that at most @wait_ms. */
bool spawn_has_ended(int pidfd, int wait_ms);
/* Waits for the end of what has ended or was killed. @text: "was killed by signal 9 (Killed)". */
void spawn_reap(int pidfd, struct zi_text *text);
