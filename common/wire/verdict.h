/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's verdicts on the groups of a job's ranks: one region, which the daemon alone writes
 * and ranks map read-only. Floor 1.
 *
 * A verdict is given once: 0, the group stands; then, for good, the positive errno that every later
 * call of the group ends with. Whoever waits for a peer sleeps on this word as well, and is woken
 * (a shared futex) once it is written. Why, in words, is asked for on the socket (COLL_FAIL).
 *
 * Where arenas lie is written before any rank maps the region, and stays: numbers of NUMA nodes as
 * the daemon counts them, all 0 unless every rank has ZI_FEATURE_NUMA.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>

#include "common/wire/layout.h"

#define ZI_GROUPS_MAX    64u /* of one job at a time, the world's among them */
#define ZI_GROUP_WORLD   0u  /* all ranks; made by COLL_OPEN */
#define ZI_GROUP_NONE    UINT32_MAX
#define ZI_VERDICT_BYTES 8192u /* of the region */

struct zi_verdicts {
	struct zi_line spin_us;      /* how long a waiting rank may burn a CPU; 0: not at all */
	uint8_t numa[ZI_LINE_BYTES]; /* of each rank of this node: where its arena lies */
	/* As spin_us, of a thread that waits beside the one that computes. */
	struct zi_line beside_us;
	struct zi_line reserved[13];
	struct zi_line groups[ZI_GROUPS_MAX];
};
static_assert(sizeof(struct zi_verdicts) <= ZI_VERDICT_BYTES, "verdicts are whole pages");

/* What is wrong with one call (members call different things, or one refuses its own): all members
 * know, and the next one begins anew. */
static inline bool zi_verdict_is_refusal(int error)
{
	return error == -EINVAL || error == -EOVERFLOW || error == -EACCES;
}

/* The refusal that a peer tells by its errno, which may be anything. */
static inline int zi_verdict_refusal_of(uint32_t error)
{
	return error <= INT16_MAX && zi_verdict_is_refusal(-(int)error) ? -(int)error : -EINVAL;
}

/* What ends a call for all its members and leaves its group as it was (-ECANCELED: it was never
 * made): no verdict, and no COLL_FAIL. */
static inline bool zi_verdict_is_spared(int error)
{
	return zi_verdict_is_refusal(error) || error == -ECANCELED;
}

/* The daemon's: writes a verdict (a positive errno) and wakes who waits, in any process. */
void zi_verdict_give(struct zi_line *verdict, uint32_t error);
