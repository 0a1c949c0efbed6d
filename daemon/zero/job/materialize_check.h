/* SPDX-License-Identifier: Apache-2.0 */
/* What a job is refused for before anything of it is changed. Floor 5, shard thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"

struct zero_job;
struct zero_marks;

/* Before any table is made: those are small beside the planes, if the planes fit. -ENOSPC. */
int materialize_check_bytes(const struct zero_job *job, struct zi_text *text);
/* A commit of the job, at @step with @marks (-1: none), was made with ranks where they are now,
 * with the same strategy: what this node has of it is what they need. Its nodes have met. */
bool materialize_is_in_place(const struct zero_job *job, int64_t step,
                             const struct zero_marks *marks);
/* Whether what this node has need not come from others, or can. -ENODATA a node alone has a part;
 * -EOPNOTSUPP memory alone stays where it is. */
int materialize_check_nodes(const struct zero_job *job, struct zi_text *text);
