/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the arenas of a job's ranks lie: each on the NUMA node whose CPUs its rank may run on, all
 * in one segment, one after the other. Floor 5, shard thread.
 */
#pragma once

#include "common/base/text.h"
#include "common/wire/verdict.h"

struct zero_job;

/* Decides for every rank of this node, and pays: collectives.arenas and collectives.tiers. Bytes of
 * each: whole huge pages. Return: 0; -ENOSPC, -EDQUOT with figures; -ENOMEM. */
int arenas_charge(struct zero_job *job, uint64_t arena_bytes, struct zi_text *text);
/* Tells the ranks. Before they have the verdicts. */
void arenas_tell(const struct zero_job *job, struct zi_verdicts *verdicts);
