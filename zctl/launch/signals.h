/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a signal to zctl launch means: all end (--signals-to-handle), all stop or go on (Ctrl-Z and
 * fg), or, SIGUSR1 and SIGUSR2, it is for the ranks alone. Asked by keeper and supervisor, before
 * either changes how it takes one.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "zctl/launch/options.h"

/* All that have a meaning. Not those that were ignored before us, unless they were named. */
void launch_signals_taken(const struct launch_options *options, sigset_t *ret_signals);
/* Whether it is passed on and all end. */
bool launch_signal_is_ending(const struct launch_options *options, int number);
/* Whether it is SIGTSTP or SIGCONT, and the two stop the ranks and let them go on: unless one of
 * them ends all, or Ctrl-Z was ignored before us. */
bool launch_signal_is_pause(const struct launch_options *options, int number);
