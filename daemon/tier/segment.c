/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: memory that ranks may see, paid for before it exists, counted by references. Floor 4,
 * shard thread, but for tier_segment_build() and tier_segment_prepare().
 *
 * Making memory is slow (fresh pages come at 0.3 to 2 GB/s), so it is apart from paying for it, and
 * runs on a pool thread of the tier's node.
 */
#include "daemon/tier/segment.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/topo/topo.h"

/* -ENOSPC and -EDQUOT of a charge's conditions. */
static int charge_error(int condition)
{
	if (condition == TIER_E_FULL)
		return err_origin(-ENOSPC);
	if (condition == TIER_E_QUOTA)
		return err_origin(-EDQUOT);
	return err_fold(condition);
}

/* Bytes of whole pages of the kind that would be tried first. */
uint64_t tier_segment_charged_bytes(const struct tier *tier, uint64_t bytes, enum tier_pages pages)
{
	bool is_huge = pages != TIER_PAGES_SMALL && tier->wants_huge;

	return zi_align_up(bytes, is_huge ? ZI_HUGE_PAGE_BYTES : 4096);
}

uint64_t tier_segment_bytes_on(const struct tier_segment *segment, const struct tier *tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < segment->charge_count; i++)
		if (segment->charges[i].tier == tier)
			bytes += segment->charges[i].bytes;
	return bytes;
}

/**
 * tier_segment_charge_parts() - the first half of a segment: the object, and its price paid
 * @parts: (@part_count,) as they lie one after the other; CPU tiers that want the same pages
 * @account: pays; outlives the segment
 * @name: for /proc/PID/maps; cut when too long
 * @pages: whole huge pages where the tiers want them, but for TIER_PAGES_SMALL
 * @text: of a refusal
 * @ret_segment: one reference, the caller's; without memory until tier_segment_build()
 *
 * Return: 0; -ENOSPC, -EDQUOT with figures; -ENOMEM. Context: shard thread.
 */
int tier_segment_charge_parts(const struct tier_part *parts, uint32_t part_count,
                              struct tier_account *account, const char *name, enum tier_pages pages,
                              struct zi_text *text, struct tier_segment **ret_segment)
{
	_cleanup_(tier_segment_unrefp) struct tier_segment *segment = NULL;
	int r;

	assert(part_count > 0);

	/* What is refused says what was asked for in all, not what was left for one part. */
	r = tier_charge_check(parts, part_count, account, text);
	if (r)
		return charge_error(r);
	segment = calloc(1, sizeof(*segment) + part_count * sizeof(segment->charges[0]));
	if (!segment)
		return err_origin(-ENOMEM);
	segment->ref_count = 1;
	segment->region = (struct zi_region)ZI_REGION_INIT;
	segment->pages = parts[0].tier->wants_huge ? pages : TIER_PAGES_SMALL;
	(void)snprintf(segment->name, sizeof(segment->name), "%s", name); /* Cut: only a name. */
	r = tier_account_take_fds(account, 1, text);
	if (r)
		return charge_error(r);
	segment->fd_account = account;
	for (uint32_t i = 0; i < part_count; i++) {
		struct tier *tier = parts[i].tier;

		assert(tier->kind == TIER_CPU && tier->wants_huge == parts[0].tier->wants_huge);
		assert(parts[i].bytes > 0);
		assert(parts[i].bytes == tier_segment_charged_bytes(tier, parts[i].bytes, pages));
		r = tier_charge_take(&segment->charges[i], tier, account, parts[i].bytes, text);
		assert(!r);
		segment->charge_count++;
		segment->bytes += parts[i].bytes;
	}
	*ret_segment = zi_steal(segment);
	return 0;
}

/* One part. @bytes: at least 1, rounded up to whole pages. Else as tier_segment_charge_parts(). */
int tier_segment_charge(struct tier *tier, struct tier_account *account, const char *name,
                        uint64_t bytes, enum tier_pages pages, struct zi_text *text,
                        struct tier_segment **ret_segment)
{
	struct tier_part part = { tier, tier_segment_charged_bytes(tier, bytes, pages) };

	return err_trace(
		tier_segment_charge_parts(&part, 1, account, name, pages, text, ret_segment));
}

/* Pages come from the node of their part's tier, also those that are taken anew after a hole was
 * punched, whoever touches them. */
static void bind_to_nodes(void *arg, void *base, uint64_t bytes)
{
	const struct tier_segment *segment = arg;
	char *place = base;

	(void)bytes; /* The segment's own; without asserts nobody looks. */
	assert(bytes == segment->bytes);
	for (uint32_t i = 0; i < segment->charge_count; i++) {
		const struct tier_charge *charge = &segment->charges[i];

		/* Refused: slower, but no reason to go without the memory. */
		if (charge->tier->topo)
			(void)topo_bind_memory(charge->tier->topo, charge->tier->node, place,
			                       charge->bytes);
		place += charge->bytes;
	}
}

/**
 * tier_segment_build() - the second half: memory
 * @segment: charged, not built
 * @text: of a refusal
 *
 * Allocates every page, so that no later touch can fail, and makes huge ones of them where wanted.
 *
 * Return: 0; -ENOMEM, -ENOSPC the kernel has no such memory. Context: any thread, on a segment that
 * nobody else uses.
 */
int tier_segment_build(struct tier_segment *segment, struct zi_text *text)
{
	enum zi_region_pages want =
		segment->pages == TIER_PAGES_HUGE ? ZI_PAGES_HUGETLB : ZI_PAGES_SMALL;
	struct zi_region_place place = { bind_to_nodes, segment };
	int r;

	assert(segment->region.fd < 0);
	assert(segment->charge_count > 0);

	r = zi_region_create(segment->name, segment->bytes, want, &place, &segment->region);
	if (r)
		return zi_text_error(text, r, "the kernel refused %s of memory for '%s': %s",
		                     zi_format_bytes(segment->bytes).chars, segment->name,
		                     zi_err_name(r));
	assert(segment->region.bytes == segment->bytes);
	if (segment->charges[0].tier->wants_huge)
		tier_segment_prepare(segment);
	return 0;
}

/**
 * tier_segment_new() - charge and build at once, on this thread
 *
 * For what is small; see tier_segment_charge() and tier_segment_build() for arguments and errors.
 */
int tier_segment_new(struct tier *tier, struct tier_account *account, const char *name,
                     uint64_t bytes, enum tier_pages pages, struct zi_text *text,
                     struct tier_segment **ret_segment)
{
	_cleanup_(tier_segment_unrefp) struct tier_segment *segment = NULL;
	int r;

	r = tier_segment_charge(tier, account, name, bytes, pages, text, &segment);
	if (r)
		return err_trace(r);
	r = tier_segment_build(segment, text);
	if (r)
		return err_trace(r);
	*ret_segment = zi_steal(segment);
	return 0;
}

/* Return: @segment, with one reference more. */
struct tier_segment *tier_segment_ref(struct tier_segment *segment)
{
	assert(segment->ref_count > 0);
	segment->ref_count++;
	return segment;
}

/* See segment.h. */
void tier_segment_discard(struct tier_segment *segment)
{
	assert(segment->ref_count == 1);
	assert(!segment->engine);
	zi_region_destroy(&segment->region);
}

struct tier_segment *tier_segment_unref(struct tier_segment *segment)
{
	if (!segment)
		return NULL;
	assert(segment->ref_count > 0);
	if (--segment->ref_count > 0)
		return NULL;
	assert(segment->holder_count == 0);
	tier_segment_unregister(segment);
	/* Ranks may still be reading, and are about to hear that the daemon stops. */
	if (segment->region.fd >= 0 && segment->charges[0].tier->is_stopping)
		zi_region_abandon(&segment->region);
	else
		zi_region_destroy(&segment->region);
	if (segment->fd_account)
		tier_account_give_fds(segment->fd_account, 1);
	for (uint32_t i = 0; i < segment->charge_count; i++)
		tier_charge_return(&segment->charges[i]);
	free(segment);
	return NULL;
}

/**
 * tier_segment_register() - registered I/O on this memory
 * @segment: built, not registered
 * @engine: of the shard; outlives the registration
 *
 * Return: 0, also when the kernel refused (unregistered I/O works, slower); -ENOMEM and the like.
 * Context: shard thread.
 */
int tier_segment_register(struct tier_segment *segment, struct nvme_engine *engine)
{
	int r;

	assert(segment->region.fd >= 0);
	assert(!segment->engine);

	r = nvme_engine_register_buffer(engine, segment->region.base, segment->region.bytes);
	if (r)
		return err_fold(r);
	segment->engine = engine;
	return 0;
}

/* Nothing may be in flight on it. Not registered: nothing to do. */
void tier_segment_unregister(struct tier_segment *segment)
{
	if (!segment->engine)
		return;
	nvme_engine_unregister_buffer(segment->engine, segment->region.base);
	segment->engine = NULL;
}

/**
 * tier_segment_readonly_fd() - a descriptor for those who only read
 * @segment: built
 * @ret_fd: opened O_RDONLY; the caller's, who closes it when it is sent
 *
 * Return: 0; -EMFILE, -ENFILE.
 */
int tier_segment_readonly_fd(struct tier_segment *segment, int *ret_fd)
{
	assert(segment->region.fd >= 0);

	return err_trace(zi_fd_reopen_readonly(segment->region.fd, ret_fd));
}

/*
 * Asks for huge pages where the kernel gave small ones. Context: any thread, before
 * registration.
 */
void tier_segment_prepare(struct tier_segment *segment)
{
	assert(segment->region.fd >= 0);
	if (segment->region.pages == ZI_PAGES_SMALL)
		zi_region_collapse(&segment->region);
}
