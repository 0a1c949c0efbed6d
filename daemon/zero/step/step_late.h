/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps a step or commit on this node, when a rank's time is over. Floor 5, shard thread. */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"

struct zero_job;

/* With figures, and the path that has most to do. Return: false, it is not what this node writes
 * that is waited for; @ret_text is untouched. */
bool step_say_late(const struct zero_job *job, struct zi_text *ret_text);
