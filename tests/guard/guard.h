/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test program leaves nothing behind, however it ends: failed assertion, crash, timeout, SIGTERM.
 * Linking guard.c is enough. Before main() the program becomes two: the tests run in a child, with
 * TMPDIR a private directory, and their parent waits, ends whatever processes outlive them,
 * removes the directory, and ends as they did; but with 1 when they passed and had left something.
 *
 * Tests make files and directories under guard_path() alone. $ZINF_TEST_GUARD is set inside, so
 * that a program that starts itself again (as Criterion does, once for each test) is guarded once;
 * set it by hand to debug without one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct guard {
	char directory[200];
	pid_t child;
	uint32_t grace_ms; /* for processes that are about to end when the child has */
};

/* fork() with a private directory under @parent (NULL: $TMPDIR, else /var/tmp), which is TMPDIR in
 * the child. Returns 0 in the child, its id in the parent, -errno where there is neither. */
pid_t guard_fork(struct guard *guard, const char *parent);
/* Waits for the child, then ends and removes all that it has left, telling of it on stderr. The
 * child's exit code; 128 + the signal that ended it; 1 when the code was 0, but something left. */
int guard_watch(struct guard *guard);

/* "$TMPDIR/zinf-NAME.XXXXXX", for mkdtemp() or mkstemp(). Return: @path. */
char *guard_path(char *path, size_t capacity, const char *name);
