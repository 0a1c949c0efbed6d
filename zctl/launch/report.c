/* SPDX-License-Identifier: Apache-2.0 */
/* Words about the end of a rank (report.h). */
#include "zctl/launch/report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/clock.h"

/* sysexits.h: try again. */
#define CODE_LEFT_ALONE 75

/* See report.h. */
void launch_report_end(const struct launch_rank *rank, struct zi_text *text)
{
	double seconds = (double)(rank->ended_ns - rank->started_ns) / (double)ZI_NS_PER_S;

	if (WIFSIGNALED(rank->status))
		zi_text_set(text, "rank %u (pid %d) was killed by signal %d (%s) after %.1f s",
		            rank->index, rank->last_pid, WTERMSIG(rank->status),
		            strsignal(WTERMSIG(rank->status)), seconds);
	else
		zi_text_set(text, "rank %u (pid %d) ended with code %d after %.1f s", rank->index,
		            rank->last_pid, WEXITSTATUS(rank->status), seconds);
}

/* See report.h. */
void launch_report_stray(pid_t pid, const char *name, int error, struct zi_text *text)
{
	zi_text_set(text, "process %d (%s) was left behind by a rank, %s", pid, name,
	            !error            ? "and is killed"
	            : error == -EPERM ? "and stays: it belongs to another user, who must end it"
	                              : "is killed and has not ended: the kernel or a debugger "
	                                "holds it; it is left");
}

/* See report.h. */
int launch_report_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int gravity(int status)
{
	if (WIFSIGNALED(status))
		return 3;
	return WEXITSTATUS(status) == CODE_LEFT_ALONE ? 1 : WEXITSTATUS(status) ? 2 : 0;
}

/* See report.h. */
bool launch_report_is_worse(int status, int other_status)
{
	return gravity(status) > gravity(other_status);
}

/* See report.h. */
bool launch_report_error(const struct launch_logs *logs, uint32_t attempt, uint32_t rank,
                         struct zi_text *text)
{
	char path[PATH_MAX];
	const char *words;
	json_t *file, *message;

	if (!*launch_logs_path(logs, attempt, rank, "error.json", path))
		return false;
	file = json_load_file(path, 0, NULL);
	/* {"message": {"message": "…", "extraInfo": …}}, or without the inner object. */
	message = json_object_get(file, "message");
	if (json_is_object(message))
		message = json_object_get(message, "message");
	words = json_string_value(message);
	if (words)
		zi_text_set(text, "%s", words);
	json_decref(file);
	return words != NULL;
}
