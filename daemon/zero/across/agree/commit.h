/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits of a job of several nodes, by rounds: what step/votes.h asks, and where all go on from
 * when ranks come back. Floor 5, shard thread.
 *
 *   PREPARED   all have written the commit of one number and line ─▶ the catalog
 *   COMMITTED  all have it ─▶ the former one is released, the step ends
 *   RESUME     which commits each has ─▶ the newest that all have; who is ahead steps back
 *
 * A vote that does not come fails with the talk: of PREPARED, nothing of the commit is left here;
 * of COMMITTED, both commits are kept for RESUME to judge.
 */
#pragma once

#include "daemon/zero/step/votes.h"

extern const struct zero_votes commit_votes;
