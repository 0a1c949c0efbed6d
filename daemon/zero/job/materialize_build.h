/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and segments of a job whose ranks have all come. Floor 5, shard thread. */
#pragma once

struct zero_job;

/* Whatever becomes of it, materialize_built() is told: from the loop, or before this returns. */
void materialize_build(struct zero_job *job);
