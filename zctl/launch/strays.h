/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that ranks left behind: a subreaper's children once the ranks themselves are reaped. */
#pragma once

#include <sys/types.h>

/* @name: the process's own. */
typedef void (*launch_stray_fn)(void *arg, pid_t pid, const char *name);
/* Kills all children of this process, those that become its children by that included, and reaps
 * them. @told: of those that were there at first; or NULL. Blocks until the kernel has ended
 * them. */
void launch_strays_end(launch_stray_fn told, void *arg);
