/* SPDX-License-Identifier: Apache-2.0 */
/* The process that starts the ranks, passes on what they print, and sees to their end. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "zctl/launch/plan.h"

/* Those that are not in --signals-to-handle and are passed on all the same, ending nothing. */
#define LAUNCH_SIGNALS_PASSED    \
	{                        \
		SIGUSR1, SIGUSR2 \
	}

/* The signals that keeper and supervisor take. */
void launch_signals(const struct launch_options *options, sigset_t *ret_signals);

/* @keeper: the parent, with which all ends. @before: signals blocked before ours. Return: exit
 * code. */
int launch_supervise(const struct launch_plan *plan, pid_t keeper, const sigset_t *before);
