/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks of a run: started together, signalled together, over together. Owner: the supervisor's
 * thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "zctl/launch/rank.h"

struct launch_group {
	struct launch_rank_place place; /* of all of them; ->attempt is the supervisor's to count */
	struct launch_rank *ranks;      /* (rank_count,) */
	uint32_t rank_count;
	uint32_t running_count;
	uint32_t failure_count; /* of this attempt, whyever */
};

/* @place: copied. Return: 0; -ENOMEM. */
int launch_group_init(struct launch_group *group, const struct launch_rank_place *place);
/* Kills whoever runs; what they printed is dropped. Also one of zeros. */
void launch_group_deinit(struct launch_group *group);

/* Starts all ranks, their directories first. Return: 0; -errno with the reason of the first that
 * could not be: those before it run. */
int launch_group_start(struct launch_group *group, struct zi_text *text);
/* To all ranks and what they started. */
void launch_group_signal(const struct launch_group *group, int number);
/* To the ranks' own processes. */
void launch_group_signal_leaders(const struct launch_group *group, int number);
/* Reaps all that have ended. Return: of those that failed the one that rather caused it; -1:
 * none. */
int32_t launch_group_reap(struct launch_group *group);

/* What was printed: nobody writes any more; the sinks have room; all of it has been passed on. */
void launch_group_finish(struct launch_group *group);
void launch_group_resume(struct launch_group *group);
bool launch_group_is_drained(const struct launch_group *group);
