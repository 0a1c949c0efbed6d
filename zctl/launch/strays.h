/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that ranks left behind: a subreaper's children once the ranks themselves are reaped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/clock.h"

/* Children of before, which are none. Not reaped, they keep their ids. */
struct launch_spared {
	pid_t *pids; /* (count,); the owner's to free() */
	size_t count;
};

/* The children that this process has now. Return: 0; -ENOMEM. */
int launch_spared_find(struct launch_spared *ret_spared);

/* @name: the process's own. @error: 0: it is killed; -EPERM: it cannot be, being another user's;
 * -ETIMEDOUT: it was, and is held by the kernel or a debugger. */
typedef void (*launch_stray_fn)(void *arg, pid_t pid, const char *name, int error);

/* Freeing a terabyte takes the kernel seconds. */
#define LAUNCH_STRAYS_WAIT_NS (30 * ZI_NS_PER_S)

struct launch_strays {
	struct launch_spared spared;
	uint64_t wait_ns; /* for their ends, at most */
	bool is_quiet;    /* told of those alone that are left */
	launch_stray_fn told;
	void *arg; /* for that */
};

/* Kills all children of this process that are not spared, those that become its children by that
 * included, and reaps them. Tells of those that were there at first, and of those that are left
 * when ->wait_ns is over. Blocks until then; SIGCHLD is used up. */
void launch_strays_end(const struct launch_strays *strays);
