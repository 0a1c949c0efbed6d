/* SPDX-License-Identifier: Apache-2.0 */
/* The process that starts the ranks, passes on what they print, and sees to their end. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "zctl/launch/plan.h"

/* @keeper: the parent, with which all ends. @before: signals blocked before ours. Return: exit
 * code. */
int launch_supervise(const struct launch_plan *plan, pid_t keeper, const sigset_t *before);
