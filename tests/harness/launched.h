/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zctl launch that is under way: its words are read as they come, and waited for by what they
 * say. Nothing is slept for.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LAUNCHED_WORDS_BYTES (8u << 20)

struct launched {
	void (*prepare)(void); /* in the process before it becomes zctl; NULL: nothing to do */
	pid_t pid;
	int fds[2];     /* stdout, stderr; -1: ended */
	bool is_held;   /* stdout is not read */
	bool is_merged; /* both are one, and read by small pieces */
	char *words[2]; /* (LAUNCHED_WORDS_BYTES,) each, NUL-terminated */
	size_t counts[2];
};

/* As the leader of a process group. @words: after "zctl launch", ended by NULL. @stdin_fd: -1:
 * /dev/null. Aborts when it cannot. */
void launched_start(struct launched *launched, const char *const *words, int stdin_fd);
/* As above, with stdout and stderr one pipe, which is stream 0. */
void launched_start_merged(struct launched *launched, const char *const *words);
/* How often @part is in @words. */
int launched_count(const char *words, const char *part);
/* Reads until @part has come @count times on stream 0 or 1; false after 100 s, or at the stream's
 * end. */
bool launched_await(struct launched *launched, int stream, const char *part, int count);
/* Reads both streams to their ends and reaps. Exit code; 1000 + signal; -ETIMEDOUT after 110 s
 * (killed then). */
int launched_end(struct launched *launched);
/* Waits, then frees what it said. */
void launched_free(struct launched *launched);
