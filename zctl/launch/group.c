/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run as one (group.h). */
#include "zctl/launch/group.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "zctl/launch/report.h"

/* See group.h. */
int launch_group_init(struct launch_group *group, const struct launch_rank_place *place)
{
	uint32_t rank_count = place->plan->options->rank_count;

	*group = (struct launch_group){ .place = *place };
	group->ranks = calloc(rank_count, sizeof(*group->ranks));
	if (!group->ranks)
		return err_origin(-ENOMEM);
	group->rank_count = rank_count;
	for (uint32_t i = 0; i < rank_count; i++)
		launch_rank_init(&group->ranks[i], i);
	return 0;
}

/* See group.h. */
void launch_group_deinit(struct launch_group *group)
{
	launch_group_signal(group, SIGKILL);
	for (uint32_t i = 0; i < group->rank_count; i++) {
		launch_rank_reap(&group->ranks[i]);
		launch_stream_stop(&group->ranks[i].out);
		launch_stream_stop(&group->ranks[i].err);
	}
	free(group->ranks);
	group->ranks = NULL;
	group->rank_count = group->running_count = 0;
}

/* See group.h. */
int launch_group_start(struct launch_group *group, struct zi_text *text)
{
	int r;

	assert(!group->running_count && launch_group_is_drained(group));
	group->failure_count = 0;
	r = launch_logs_make(&group->place.plan->logs, group->place.attempt, group->rank_count,
	                     text);
	for (uint32_t i = 0; i < group->rank_count && !r; i++) {
		r = launch_rank_start(&group->ranks[i], &group->place, text);
		group->running_count += group->ranks[i].pid != 0;
	}
	return err_trace(r);
}

/* See group.h. */
void launch_group_signal(const struct launch_group *group, int number)
{
	for (uint32_t i = 0; i < group->rank_count; i++)
		launch_rank_signal_all(&group->ranks[i], number);
}

/* See group.h. */
void launch_group_signal_leaders(const struct launch_group *group, int number)
{
	for (uint32_t i = 0; i < group->rank_count; i++)
		launch_rank_signal(&group->ranks[i], number);
}

/* See group.h. */
int32_t launch_group_reap(struct launch_group *group)
{
	int32_t worst = -1;

	for (uint32_t i = 0; i < group->rank_count; i++) {
		struct launch_rank *rank = &group->ranks[i];

		if (!launch_rank_has_ended(rank))
			continue;
		launch_rank_reap(rank);
		group->running_count--;
		if (!rank->status)
			continue;
		group->failure_count++;
		if (worst < 0 || launch_report_is_worse(rank->status, group->ranks[worst].status))
			worst = (int32_t)i;
	}
	return worst;
}

/* See group.h. */
void launch_group_finish(struct launch_group *group)
{
	for (uint32_t i = 0; i < group->rank_count; i++) {
		launch_stream_finish(&group->ranks[i].out);
		launch_stream_finish(&group->ranks[i].err);
	}
}

/* See group.h. */
void launch_group_resume(struct launch_group *group)
{
	for (uint32_t i = 0; i < group->rank_count; i++) {
		launch_stream_resume(&group->ranks[i].out);
		launch_stream_resume(&group->ranks[i].err);
	}
}

/* See group.h. */
bool launch_group_is_drained(const struct launch_group *group)
{
	for (uint32_t i = 0; i < group->rank_count; i++)
		if (!launch_stream_is_over(&group->ranks[i].out) ||
		    !launch_stream_is_over(&group->ranks[i].err))
			return false;
	return true;
}
