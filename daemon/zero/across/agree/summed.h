/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before state in memory alone is changed by a step of several nodes, each says that it has all
 * that takes: from the moment when all have, no node needs another one to end the step
 * (step/doubt.h). Floor 5, shard thread.
 */
#pragma once

#include <stdbool.h>

#include "common/base/text.h"

struct zero_job;

/* The step under way is to be asked for; what is on NVMe has a way back, and one node none to ask.
 */
bool summed_is_due(const struct zero_job *job);
/* All that the step takes is here. step_update() comes from the loop, or the step ends. */
void summed_ask(struct zero_job *job);
/* Whose word is waited for. Return: false, nobody's; @ret_text is untouched. */
bool summed_say_late(const struct zero_job *job, struct zi_text *ret_text);
