/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: sealed memfds that ranks may see; charged, reference-counted. Floor 4, shard thread but
 * for what says otherwise.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/wire/region.h"
#include "daemon/tier/account.h"
#include "daemon/tier/tier.h"
#include "nvme/nvme.h"

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
	uint64_t bytes;             /* charged, on all tiers */
	uint32_t holder_count;      /* of ref_count: ranks that received it */
	enum tier_pages pages;      /* wanted */
	struct nvme_engine *engine; /* registered with; NULL: not */
	char name[32];
	struct tier_account *fd_account; /* its descriptor is counted here; NULL: not yet */
	uint32_t charge_count;
	struct tier_charge charges[]; /* (charge_count,) one after the other, as the memory lies */
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
/* The same of parts that lie one after the other, each on its tier: all of them or none. */
int tier_segment_charge_parts(const struct tier_part *parts, uint32_t part_count,
                              struct tier_account *account, const char *name, enum tier_pages pages,
                              struct zi_text *text, struct tier_segment **ret_segment);
int tier_segment_build(struct tier_segment *segment, struct zi_text *text);
/* Bytes that tier_segment_charge() takes for @bytes. */
uint64_t tier_segment_charged_bytes(const struct tier *tier, uint64_t bytes, enum tier_pages pages);
/* Of what it has, on @tier. */
uint64_t tier_segment_bytes_on(const struct tier_segment *segment, const struct tier *tier);
/* Registered I/O on the segment, until unregistered or gone. The kernel's refusal is no error. */
int tier_segment_register(struct tier_segment *segment, struct nvme_engine *engine);
void tier_segment_unregister(struct tier_segment *segment);
struct tier_segment *tier_segment_ref(struct tier_segment *segment);
/* The last reference gives the pages back, whoever else has descriptors or mappings, and returns
 * the charge. Where the tier is_stopping, the pages stay with those. Always NULL. */
struct tier_segment *tier_segment_unref(struct tier_segment *segment);
ZI_DEFINE_CLEANUP(struct tier_segment *, tier_segment_unref)
/* A new descriptor that can only be mapped for reading; the caller's. */
int tier_segment_readonly_fd(struct tier_segment *segment, int *ret_fd);
/* The memory goes now, the charge with the last reference: giving back much memory takes long, and
 * may be done on any thread while nobody else uses the segment. */
void tier_segment_discard(struct tier_segment *segment);
/* Asks for huge pages where there are small ones; on any thread, on a segment nobody else has. */
void tier_segment_prepare(struct tier_segment *segment);
