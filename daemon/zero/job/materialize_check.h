/* SPDX-License-Identifier: Apache-2.0 */
/* What a job is refused for before anything of it is changed. Floor 5, shard thread. */
#pragma once

#include "common/base/text.h"

struct zero_job;

/* Before any table is made: those are small beside the planes, if the planes fit. -ENOSPC. */
int materialize_check_bytes(const struct zero_job *job, struct zi_text *text);
/* Whether this node has what its ranks need: what others hold of it cannot be had from them. Its
 * nodes have met. -EOPNOTSUPP. */
int materialize_check_nodes(const struct zero_job *job, struct zi_text *text);
