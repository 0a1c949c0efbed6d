/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier: memory or disk of one place, with a capacity. Floor 4. It belongs to the shard thread, as
 * does everything in this folder, from the bottom up:
 *
 *   tier.h      cpu:N (a NUMA node's share of memory), nvme:NAME (one store or several), or
 *               gpu:UUID (memory of a GPU)
 *   account.h   a uid, and below it a job: how much of each kind it may hold and holds; a charge:
 *               bytes of a tier on an account, taken *before* anything is allocated
 *   segment.h   memory that ranks may see; reference-counted
 *   staging.h   buffers of a job's step pipeline
 *   holder.h    a process that received segments: it keeps references until its pidfd says it is
 *               gone, because a mapping outlives its session
 *   arena.h     the GPU tiers, and the memory that ranks have of them
 *   member.h    a store of an NVMe tier and how it fares: damage.h, tally.h (bytes and budgets),
 *               flusher.h (its thread for flushes)
 *   stripe.h    which member takes the next extent; drain.h empties one
 *   move.h      bytes between memory and an extent; flush.h down to the media; tune.h measures
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/list.h"
#include "common/base/types.h"

struct dev_gpu;
struct topo;

enum tier_kind { TIER_CPU = 0, TIER_NVME = 1, TIER_GPU = 2, _TIER_KIND_COUNT };

struct tier_member; /* a store of an NVMe tier: member.h */

/* Where bytes lie: an aligned run, wholly on one member. No bytes: nowhere. */
struct tier_extent {
	struct tier_member *member;
	uint64_t offset_bytes;
	uint64_t bytes;
};

struct tier {
	enum tier_kind kind;
	char name[ZI_NAME_BYTES]; /* "cpu:0", "nvme:fast", "gpu:GPU-…" */
	uint64_t capacity_bytes;  /* NVMe: of members that take new extents; may fall below used */
	uint64_t used_bytes, peak_bytes;
	uint32_t node;               /* index into topo's nodes */
	const struct topo *topo;     /* CPU tiers: binding; may be NULL in tests */
	bool wants_huge;             /* try huge pages */
	bool is_stopping;            /* CPU: segments that end leave their pages to the ranks */
	struct dev_gpu *gpu;         /* GPU tiers; not owned */
	struct tier_member *members; /* NVMe tiers: owned, (member_count,) */
	uint32_t member_count;
	bool is_weighed; /* NVMe: weights are those of the present states */
	/* NVMe: a member is in another state; may be NULL. Shard thread, from wherever it was
	 * noticed: must not call back. */
	void (*changed)(void *arg, const struct tier_member *member);
	void *changed_arg;
	uint64_t read_bytes, write_bytes; /* counters since start */
	/* CPU, GPU: bytes that only ranks of replaced starts hold, and the process that holds most,
	 * for refusals (tier_holders_watch(), arena.h); may be NULL. */
	uint64_t (*lingering_bytes)(const void *arg, const struct tier *tier, pid_t *ret_pid);
	const void *lingering_arg;
	struct zi_list tiers_link; /* for whoever keeps a list of tiers */
};

void tier_init_cpu(struct tier *tier, uint32_t node, uint64_t capacity_bytes,
                   const struct topo *topo, bool wants_huge);
/* "nvme:@name", without members: see member.h. -ENAMETOOLONG, -ENOMEM. */
int tier_init_nvme(struct tier *tier, const char *name, uint32_t node);
/* "gpu:UUID" of @gpu, which outlives the tier. @capacity_bytes: what may be charged. */
void tier_init_gpu(struct tier *tier, struct dev_gpu *gpu, uint64_t capacity_bytes);
const char *tier_kind_name(enum tier_kind kind); /* "cpu" */
/* Asserts that nothing is charged. */
void tier_deinit(struct tier *tier);
static inline uint64_t tier_free_bytes(const struct tier *tier)
{
	return tier->capacity_bytes > tier->used_bytes ? tier->capacity_bytes - tier->used_bytes
	                                               : 0;
}
