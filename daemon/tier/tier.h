/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies where, and who pays for it: tiers with a capacity, accounts with quotas, charges that
 * bind one to the other *before* anything is allocated, segments (sealed memfds), staging buffers
 * of the step pipeline, and the memory of processes that have not quite gone. Floor 4. Everything
 * here belongs to the shard thread.
 *
 *   tier      cpu:N (a NUMA node's share of memory) or nvme:NAME (one store or several: members,
 *             each with its free space)
 *   account   a uid, and below it a job: how much of each kind it may hold and holds
 *   charge    bytes of a tier on an account; embedded in what it pays for; returned at its end
 *   segment   memory that ranks may see; reference-counted
 *   holder    a process that received segments: it keeps references until its pidfd says it is
 *             gone, because a mapping outlives its session
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/list.h"
#include "common/base/loop.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/region.h"
#include "nvme/nvme.h"

struct tier_holders;
struct topo;

enum { _TIER_E_SUCCESS, TIER_E_FULL, TIER_E_QUOTA };

enum tier_kind { TIER_CPU = 0, TIER_NVME = 1, _TIER_KIND_COUNT };

struct tier_member; /* a store of an NVMe tier: stripe.h */

/* Where bytes lie: an aligned run, wholly on one member. No bytes: nowhere. */
struct tier_extent {
	struct tier_member *member;
	uint64_t offset_bytes;
	uint64_t bytes;
};

struct tier {
	enum tier_kind kind;
	char name[ZI_NAME_BYTES]; /* "cpu:0", "nvme:fast" */
	uint64_t capacity_bytes;  /* NVMe: of members that take new extents; may fall below used */
	uint64_t used_bytes, peak_bytes;
	uint32_t node;               /* index into topo's nodes */
	const struct topo *topo;     /* CPU tiers: binding; may be NULL in tests */
	bool wants_huge;             /* try huge pages */
	struct tier_member *members; /* NVMe tiers: owned, (member_count,) */
	uint32_t member_count;
	bool is_weighed; /* NVMe: weights are those of the present states */
	/* NVMe: a member is in another state; may be NULL. Shard thread, from wherever it was
	 * noticed: must not call back. */
	void (*changed)(void *arg, const struct tier_member *member);
	void *changed_arg;
	uint64_t read_bytes, write_bytes; /* counters since start */
	const struct tier_holders
		*holders;          /* names who still holds memory in refusals; may be NULL */
	struct zi_list tiers_link; /* for whoever keeps a list of tiers */
};

void tier_init_cpu(struct tier *tier, uint32_t node, uint64_t capacity_bytes,
                   const struct topo *topo, bool wants_huge);
/* "nvme:@name", without members: see stripe.h. -ENAMETOOLONG, -ENOMEM. */
int tier_init_nvme(struct tier *tier, const char *name, uint32_t node);
/* Asserts that nothing is charged. */
void tier_deinit(struct tier *tier);
static inline uint64_t tier_free_bytes(const struct tier *tier)
{
	return tier->capacity_bytes > tier->used_bytes ? tier->capacity_bytes - tier->used_bytes
	                                               : 0;
}

/* ---- accounts and charges (account.c) ---- */

struct tier_account {
	char name[ZI_NAME_BYTES];               /* "uid 1000", "job train" */
	struct tier_account *parent;            /* NULL for a uid */
	uint64_t limit_bytes[_TIER_KIND_COUNT]; /* UINT64_MAX: none */
	uint64_t used_bytes[_TIER_KIND_COUNT];
};

struct tier_charge {
	struct tier *tier; /* NULL: nothing charged */
	struct tier_account *account;
	uint64_t bytes;
};

void tier_account_init(struct tier_account *account, const char *name, struct tier_account *parent);
void tier_account_deinit(struct tier_account *account); /* asserts zero */
/* All or nothing on the tier and every account upward. TIER_E_FULL, TIER_E_QUOTA: @text says asked
 * for, free, capacity or limit, and who holds it. */
int tier_charge_take(struct tier_charge *charge, struct tier *tier, struct tier_account *account,
                     uint64_t bytes, struct zi_text *text);
void tier_charge_return(struct tier_charge *charge); /* idempotent */

/* ---- segments (segment.c) ---- */

/* What a segment's pages may be. A rank can punch holes into a segment that it may write, sealed or
 * not; the fault that follows takes a page anew. One of 4 KiB the kernel has as long as anybody has
 * memory; one of the hugetlb pool it may not have, and the daemon would die of SIGBUS. So what
 * ranks write never comes from the pool. */
enum tier_pages {
	TIER_PAGES_SMALL,     /* 4 KiB */
	TIER_PAGES_COLLAPSED, /* asked to become huge, where the tier wants it */
	TIER_PAGES_HUGE,      /* from the pool first, else collapsed; never writable by ranks */
};

struct tier_segment {
	uint32_t ref_count;
	struct zi_region region;
	struct tier_charge charge;
	int readonly_fd;            /* reopened for ranks; -1 until asked for */
	uint32_t holder_count;      /* of ref_count: processes that received it */
	enum tier_pages pages;      /* wanted */
	struct nvme_engine *engine; /* registered with; NULL: not */
	char name[32];
};

/* Charged, then created, bound to the tier's node, zero-filled by the kernel. Huge pages as the
 * tier wants. The memory is fully allocated when this returns; helpers that collapse pages are the
 * caller's affair (segment_prepare). -ENOSPC, -EDQUOT with figures, -ENOMEM. */
int tier_segment_new(struct tier *tier, struct tier_account *account, const char *name,
                     uint64_t bytes, enum tier_pages pages, struct zi_text *text,
                     struct tier_segment **ret_segment);
/* The same in two halves, so that the slow one (allocating and zeroing pages) runs on a device
 * thread: charge makes the object and pays; build, from any thread, makes the memory. Whole huge
 * pages but for TIER_PAGES_SMALL, when the tier wants them. */
int tier_segment_charge(struct tier *tier, struct tier_account *account, const char *name,
                        uint64_t bytes, enum tier_pages pages, struct zi_text *text,
                        struct tier_segment **ret_segment);
int tier_segment_build(struct tier_segment *segment, struct zi_text *text);
/* Bytes that tier_segment_charge() takes for @bytes. */
uint64_t tier_segment_charged_bytes(const struct tier *tier, uint64_t bytes, enum tier_pages pages);
/* Registered I/O on the segment, until unregistered or gone. The kernel's refusal is no error. */
int tier_segment_register(struct tier_segment *segment, struct nvme_engine *engine);
void tier_segment_unregister(struct tier_segment *segment);
struct tier_segment *tier_segment_ref(struct tier_segment *segment);
/* The last reference unmaps, closes and returns the charge. Always NULL. */
struct tier_segment *tier_segment_unref(struct tier_segment *segment);
ZI_DEFINE_CLEANUP(struct tier_segment *, tier_segment_unref)
/* A descriptor that can only be mapped for reading; stays the segment's. */
int tier_segment_readonly_fd(struct tier_segment *segment, int *ret_fd);
/* Asks for huge pages where there are small ones; on any thread, on a segment nobody else has. */
void tier_segment_prepare(struct tier_segment *segment);

/* ---- staging (staging.c): bounded, registered buffers of a job's step pipeline ---- */

struct tier_staging {
	struct tier_segment *segment;
	struct nvme_engine *engine;
	uint64_t slot_bytes;
	uint32_t slot_count;
	uint32_t free_count;
	uint16_t *free_slots;
};

/* @segment: built, of at least slot_bytes × slot_count bytes; its reference passes on if done. */
int tier_staging_adopt(struct tier_segment *segment, struct nvme_engine *engine,
                       uint64_t slot_bytes, uint32_t slot_count, struct tier_staging **ret_staging);
int tier_staging_new(struct tier *tier, struct tier_account *account, struct nvme_engine *engine,
                     uint64_t slot_bytes, uint32_t slot_count, struct zi_text *text,
                     struct tier_staging **ret_staging);
struct tier_staging *tier_staging_free(struct tier_staging *staging); /* asserts all are back */
void *tier_staging_take(struct tier_staging *staging);                /* NULL: none free */
void tier_staging_give(struct tier_staging *staging, void *slot);

/* ---- holders (holder.c) ---- */

struct tier_holder;  /* a process */
struct tier_holders; /* all of them, by pid */

int tier_holders_new(struct zi_loop *loop, struct tier_holders **ret_holders);
struct tier_holders *tier_holders_free(struct tier_holders *holders);
/* The process behind @pidfd received @segment: a reference is kept until it is gone. Twice for the
 * same pair is once. @pidfd is duplicated. -EMFILE, -ENOMEM. */
int tier_holders_add(struct tier_holders *holders, pid_t pid, int pidfd,
                     struct tier_segment *segment);
/* Whether a process other than @pid still holds @segment; names one. */
bool tier_holders_is_held(const struct tier_holders *holders, const struct tier_segment *segment,
                          pid_t except_pid, pid_t *ret_pid);
uint32_t tier_holders_count(const struct tier_holders *holders);
/* What processes hold of @tier that nobody else does any more: segments whose owners have dropped
 * them. 0 when none; @ret_pid is the one that holds most. */
uint64_t tier_holders_lingering_bytes(const struct tier_holders *holders, const struct tier *tier,
                                      pid_t *ret_pid);
