/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor says of its ranks (tell.h). */
#include "zctl/launch/tell.h"

#include <string.h>

#include "zctl/launch/plan.h"
#include "zctl/launch/report.h"

/* See tell.h, as are the others. */
void launch_tell_failure(struct launch_voice *voice, const struct launch_group *group,
                         uint32_t culprit)
{
	struct zi_text text;

	launch_report_end(&group->ranks[culprit], &text);
	launch_voice_say(voice, "%s%s", text.chars,
	                 group->running_count ? "; ending the others" : "");
}

void launch_tell_first(struct launch_voice *voice, const struct launch_group *group,
                       uint32_t culprit, bool has_survivors)
{
	const struct launch_rank_place *place = &group->place;
	struct zi_text text;

	if (launch_report_error(&place->plan->logs, place->attempt, culprit, &text))
		launch_voice_say(voice, "rank %u says: %s", culprit, text.chars);
	launch_report_end(&group->ranks[culprit], &text);
	if (has_survivors)
		launch_voice_say(voice, "failed first: %s", text.chars);
}

void launch_tell_lost_logs(struct launch_voice *voice, const struct launch_group *group)
{
	for (uint32_t i = 0; i < group->rank_count; i++) {
		const struct launch_rank *rank = &group->ranks[i];
		int error = rank->out.log_error ? rank->out.log_error : rank->err.log_error;

		if (error)
			launch_voice_say(voice, "a log file of rank %u is not whole: %s", i,
			                 strerror(-error));
	}
}

void launch_tell_stray(void *arg, pid_t pid, const char *name, int error)
{
	struct zi_text text;

	launch_report_stray(pid, name, error, &text);
	launch_voice_say(arg, "%s", text.chars);
}
