/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor says of its ranks, at their end. Owner: its thread. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "zctl/launch/group.h"
#include "zctl/launch/voice.h"

/* Rank @culprit is the first that failed: all others are about to be ended. */
void launch_tell_failure(struct launch_voice *voice, const struct launch_group *group,
                         uint32_t culprit);
/* Once more, below everything that was printed since, where it has left any (@has_survivors); and
 * what its program says of it. */
void launch_tell_first(struct launch_voice *voice, const struct launch_group *group,
                       uint32_t culprit, bool has_survivors);
/* Log files of this attempt. */
void launch_tell_lost_logs(struct launch_voice *voice, const struct launch_group *group);
/* A launch_strays's `told`. @arg: the voice. */
void launch_tell_stray(void *arg, pid_t pid, const char *name, int error);
