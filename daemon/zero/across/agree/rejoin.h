/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a job's nodes go on when its ranks come back, by rounds (RESUME): which commits each has,
 * and what it is in doubt of. Floor 5, shard thread.
 *
 *   a name that all nodes have, each as its ranks now need it ─▶ the newest such; who is ahead of
 *                                                                it steps back
 *   otherwise, of state on NVMe ─▶ the newest that is whole, which is healed (heal.h)
 */
#pragma once

struct zero_job;

/* `resume` of struct zero_votes. */
void rejoin_ask(struct zero_job *job);
