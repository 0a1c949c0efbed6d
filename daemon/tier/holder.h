/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holders: processes that received segments. A mapping outlives its session, so memory stays
 * referenced, and charged, until the process's pidfd says that it is gone. Floor 4, shard thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/loop.h"
#include "daemon/tier/segment.h"

struct tier_holder;  /* a process */
struct tier_holders; /* all of them, by pid */

int tier_holders_new(struct zi_loop *loop, struct tier_holders **ret_holders);
struct tier_holders *tier_holders_free(struct tier_holders *holders);
/* The process behind @pidfd received @segment: a reference is kept until it is gone. Twice for the
 * same pair is once. @pidfd is duplicated. -EMFILE, -ENOMEM. */
int tier_holders_add(struct tier_holders *holders, pid_t pid, int pidfd,
                     struct tier_segment *segment);
uint32_t tier_holders_count(const struct tier_holders *holders);
/* What processes hold of @tier that nobody else does any more: segments whose owners have dropped
 * them. 0 when none; @ret_pid is the one that holds most. */
uint64_t tier_holders_lingering_bytes(const struct tier_holders *holders, const struct tier *tier,
                                      pid_t *ret_pid);
/* From now on refusals of @tier name who still holds its memory. @holders NULL: no more. */
void tier_holders_watch(const struct tier_holders *holders, struct tier *tier);
