/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holders: ranks whose process received segments. A segment that its job has dropped stays, and
 * stays charged, until the last rank that received it leaves: the rank may still be reading it.
 * With the last reference the pages go, whatever the process did with the descriptors. Floor 4,
 * shard thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/tier/segment.h"

struct tier_holder;  /* a rank */
struct tier_holders; /* all of them */

int tier_holders_new(struct tier_holders **ret_holders);
/* Asserts that no holder is left. NULL. */
struct tier_holders *tier_holders_free(struct tier_holders *holders);
/* A rank that holds nothing yet. @pid: for people. -ENOMEM. */
int tier_holder_new(struct tier_holders *holders, pid_t pid, struct tier_holder **ret_holder);
/* The rank leaves: everything that it held. NULL-safe. NULL. */
struct tier_holder *tier_holder_free(struct tier_holder *holder);
/* The rank receives @segment, or did before. -ENOMEM. */
int tier_holder_add(struct tier_holder *holder, struct tier_segment *segment);
/* Ranks that hold anything. */
uint32_t tier_holders_count(const struct tier_holders *holders);
/* What ranks hold of @tier that nobody else does any more: segments whose owners have dropped
 * them. 0 when none; @ret_pid is the one that holds most. */
uint64_t tier_holders_lingering_bytes(const struct tier_holders *holders, const struct tier *tier,
                                      pid_t *ret_pid);
/* From now on refusals of @tier name who still holds its memory. @holders NULL: no more. */
void tier_holders_watch(const struct tier_holders *holders, struct tier *tier);
