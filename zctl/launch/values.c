/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options that are more than a word (values.h). */
#include "zctl/launch/values.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/thread.h"

/* Digits alone, at @*place, which then stands behind them. */
static bool take_count(const char **place, uint32_t most, uint32_t *ret_count)
{
	uint64_t count = 0;
	const char *at = *place;

	for (; *at >= '0' && *at <= '9' && count <= most; at++)
		count = count * 10 + (uint64_t)(*at - '0');
	if (at == *place || count > most)
		return false;
	*place = at;
	*ret_count = (uint32_t)count;
	return true;
}

/* See values.h. */
int launch_value_count(const char *name, const char *value, uint32_t least, uint32_t most,
                       uint32_t *ret_count, struct zi_text *text)
{
	const char *place = value;
	uint32_t count;

	if (!take_count(&place, most, &count) || *place || count < least)
		return zi_text_error(text, -EINVAL, "%s %s: a whole number from %u to %u is needed",
		                     name, value, least, most);
	*ret_count = count;
	return 0;
}

/* See values.h. */
int launch_value_seconds(const char *name, const char *value, double *ret_seconds,
                         struct zi_text *text)
{
	char *end;
	double seconds = strtod(value, &end);

	if (end == value || *end || !(seconds >= 0 && seconds <= 1e9))
		return zi_text_error(text, -EINVAL, "%s %s: seconds are needed, from 0 to 1e9",
		                     name, value);
	*ret_seconds = seconds;
	return 0;
}

/* See values.h. */
int launch_value_ranks(const char *name, const char *value, uint32_t *ret_count, bool *ret_is_cut,
                       struct zi_text *text)
{
	uint32_t count;

	if (strcmp(value, "gpu") == 0)
		return zi_text_error(text, -EINVAL,
		                     "%s gpu: zinf has no GPU support; give a number, or cpu",
		                     name);
	if (strcmp(value, "auto") != 0 && strcmp(value, "cpu") != 0) {
		*ret_is_cut = false;
		return err_trace(
			launch_value_count(name, value, 1, LAUNCH_RANKS_MAX, ret_count, text));
	}
	count = zi_cpu_allowed_count();
	*ret_is_cut = count > LAUNCH_RANKS_MAX;
	*ret_count = ZI_MIN(count, LAUNCH_RANKS_MAX);
	return 0;
}

/* See values.h. */
int launch_value_stds(const char *name, const char *value, uint8_t *stds, struct zi_text *text)
{
	uint8_t found[LAUNCH_RANKS_MAX] = { 0 };
	const char *place = value;
	uint32_t first, std;

	if (take_count(&place, UINT32_MAX, &first) && !*place && first <= LAUNCH_STD_ALL) {
		memset(stds, (int)first, LAUNCH_RANKS_MAX);
		return 0;
	}
	for (place = value;; place++) {
		if (!take_count(&place, LAUNCH_RANKS_MAX - 1, &first) || *place++ != ':' ||
		    !take_count(&place, LAUNCH_STD_ALL, &std) || (*place && *place != ','))
			return zi_text_error(
				text, -EINVAL,
				"%s %s: 0 to 3 is needed (1 stdout, 2 stderr, 3 both), or "
				"RANK:N,RANK:N with ranks below %u",
				name, value, LAUNCH_RANKS_MAX);
		found[first] = (uint8_t)std;
		if (!*place)
			break;
	}
	memcpy(stds, found, sizeof(found));
	return 0;
}

/* See values.h. */
int launch_value_filter(const char *name, const char *value, bool *is_shown, struct zi_text *text)
{
	bool found[LAUNCH_RANKS_MAX] = { false };
	const char *place = value;
	uint32_t rank;

	for (;; place++) {
		if (!take_count(&place, LAUNCH_RANKS_MAX - 1, &rank) || (*place && *place != ','))
			return zi_text_error(text, -EINVAL,
			                     "%s %s: ranks below %u are needed, as 0,3", name,
			                     value, LAUNCH_RANKS_MAX);
		found[rank] = true;
		if (!*place)
			break;
	}
	memcpy(is_shown, found, sizeof(found));
	return 0;
}

/* "SIGTERM" or "TERM" of @bytes bytes. 0: no signal has this name. */
static int find_signal(const char *name, size_t bytes)
{
	if (bytes > 3 && strncmp(name, "SIG", 3) == 0) {
		name += 3;
		bytes -= 3;
	}
	for (int number = 1; number < NSIG; number++) {
		const char *known = sigabbrev_np(number);

		if (known && strlen(known) == bytes && strncmp(known, name, bytes) == 0)
			return number;
	}
	return 0;
}

/* See values.h. */
int launch_value_signals(const char *name, const char *value, int *signals, struct zi_text *text)
{
	int found[LAUNCH_SIGNALS_MAX] = { 0 };
	size_t count = 0;

	for (const char *place = value;; place++) {
		size_t bytes = strcspn(place, ",");
		int number = find_signal(place, bytes);

		/* Children's ends are our own affair, the other two nobody's. */
		if (!number || number == SIGKILL || number == SIGSTOP || number == SIGCHLD ||
		    count == LAUNCH_SIGNALS_MAX - 1)
			return zi_text_error(text, -EINVAL,
			                     "%s %s: names of signals that can be caught are "
			                     "needed, as SIGTERM,SIGINT, %u at most",
			                     name, value, LAUNCH_SIGNALS_MAX - 1);
		found[count++] = number;
		place += bytes;
		if (!*place)
			break;
	}
	memcpy(signals, found, sizeof(found));
	return 0;
}
