/* SPDX-License-Identifier: Apache-2.0 */
/* Signals and what they mean (signals.h). */
#include "zctl/launch/signals.h"

#include <stddef.h>

#include "common/base/cleanup.h"

/* See signals.h. */
bool launch_signal_is_ending(const struct launch_options *options, int number)
{
	for (size_t i = 0; options->signals[i]; i++)
		if (options->signals[i] == number)
			return true;
	return false;
}

static bool is_ignored(int number)
{
	struct sigaction before;

	return !sigaction(number, NULL, &before) && before.sa_handler == SIG_IGN;
}

/* Whoever started us said with it that this one is not for us: nohup; a shell, of a script's
 * background jobs. */
static bool is_declined(const struct launch_options *options, int number)
{
	return !options->are_signals_named && number != SIGTERM && is_ignored(number);
}

/* See signals.h. */
bool launch_signal_is_pause(const struct launch_options *options, int number)
{
	return (number == SIGTSTP || number == SIGCONT) &&
	       !launch_signal_is_ending(options, SIGTSTP) &&
	       !launch_signal_is_ending(options, SIGCONT) && !is_ignored(SIGTSTP);
}

/* See signals.h. */
void launch_signals_taken(const struct launch_options *options, sigset_t *ret_signals)
{
	static const int passed[] = { SIGUSR1, SIGUSR2 };

	(void)sigemptyset(ret_signals);
	for (size_t i = 0; options->signals[i]; i++)
		if (!is_declined(options, options->signals[i]))
			(void)sigaddset(ret_signals, options->signals[i]);
	for (size_t i = 0; i < ZI_COUNT_OF(passed); i++)
		(void)sigaddset(ret_signals, passed[i]);
	if (launch_signal_is_pause(options, SIGTSTP)) {
		(void)sigaddset(ret_signals, SIGTSTP);
		(void)sigaddset(ret_signals, SIGCONT);
	}
}
