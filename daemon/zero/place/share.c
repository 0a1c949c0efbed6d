/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds an extent: a job's committed state, and any number of snapshots and jobs loaded from
 * them. Its space is free when the last of them lets go. Floor 5, shard thread.
 *
 * Most extents have one holder, and nothing is written down for them: a commit that replaces them
 * finds nothing here and gives the space back, and never allocates. Only what is held more than
 * once is in the table (open addressing, linear probing), from when a second holder comes until one
 * is left.
 *
 * While the daemon recovers, every extent that a row of the catalog names is in the table, with a
 * digest of what the row says about it: two rows may name one extent only when they say the same.
 */
#include "daemon/zero/place/share.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/job.h"

#define SHARES_CAPACITY_MIN 64u

static uint64_t share_mix(uint64_t word)
{
	/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): offsets differ in high bits. */
	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
	word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
	return word ^ (word >> 31);
}

static uint32_t share_home(const struct zero_shares *shares, const struct tier_member *member,
                           uint64_t offset_bytes)
{
	uint64_t hash = share_mix(offset_bytes ^ share_mix((uint64_t)(uintptr_t)member));

	return (uint32_t)hash & (shares->capacity - 1);
}

/* Its slot, or the free one where it would be. Precondition: one is free. */
static struct zero_share *share_find(const struct zero_shares *shares,
                                     const struct tier_member *member, uint64_t offset_bytes)
{
	uint32_t index = share_home(shares, member, offset_bytes);

	assert(shares->count < shares->capacity);
	while (shares->slots[index].hold_count &&
	       (shares->slots[index].member != member ||
	        shares->slots[index].offset_bytes != offset_bytes))
		index = (index + 1) & (shares->capacity - 1);
	return &shares->slots[index];
}

static bool is_known(const struct zero_shares *shares, const struct tier_extent *extent,
                     struct zero_share **ret_share)
{
	if (!shares->count)
		return false;
	*ret_share = share_find(shares, extent->member, extent->offset_bytes);
	return (*ret_share)->hold_count > 0;
}

static void share_add(struct zero_shares *shares, const struct zero_share *share)
{
	struct zero_share *slot = share_find(shares, share->member, share->offset_bytes);

	assert(!slot->hold_count);
	*slot = *share;
	shares->count++;
}

/* Linear probing: what follows moves up, so that no search ends early at the gap. */
static void share_remove(struct zero_shares *shares, struct zero_share *share)
{
	uint32_t mask = shares->capacity - 1;
	uint32_t gap = (uint32_t)(share - shares->slots);

	for (uint32_t index = (gap + 1) & mask; shares->slots[index].hold_count;
	     index = (index + 1) & mask) {
		const struct zero_share *next = &shares->slots[index];
		uint32_t home = share_home(shares, next->member, next->offset_bytes);

		/* Is the gap on the way from its home to where it is? */
		if (((index - home) & mask) < ((index - gap) & mask))
			continue;
		shares->slots[gap] = *next;
		gap = index;
	}
	shares->slots[gap] = (struct zero_share){ 0 };
	shares->count--;
}

/* A table that holds @count and stays half empty, with those in it that have @least holders. */
static int share_rebuild(struct zero_shares *shares, uint64_t count, uint32_t least)
{
	struct zero_shares fresh = { .capacity = SHARES_CAPACITY_MIN };

	while (fresh.capacity < 2 * count)
		fresh.capacity *= 2;
	fresh.slots = calloc(fresh.capacity, sizeof(*fresh.slots));
	if (!fresh.slots)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < shares->capacity; i++)
		if (shares->slots[i].hold_count >= least)
			share_add(&fresh, &shares->slots[i]);
	fresh.is_recovering = shares->is_recovering;
	free(shares->slots);
	*shares = fresh;
	return 0;
}

/* Room for @count more, so that share_hold() cannot fail. Return: 0; -ENOMEM. */
int share_reserve(struct zero_shares *shares, uint32_t count)
{
	uint64_t wanted = (uint64_t)shares->count + count;

	if (2 * wanted <= shares->capacity)
		return 0;
	if (wanted > UINT32_MAX / 4)
		return err_origin(-ENOMEM);
	return err_trace(share_rebuild(shares, wanted, 1));
}

/* One more holder of an extent that is held. Precondition: share_reserve(). */
void share_hold(struct zero_shares *shares, const struct tier_extent *extent)
{
	struct zero_share *share;

	assert(extent->bytes);
	if (is_known(shares, extent, &share)) {
		assert(share->bytes == extent->bytes);
		share->hold_count++;
		return;
	}
	share_add(shares, &(struct zero_share){
				  .member = extent->member,
				  .offset_bytes = extent->offset_bytes,
				  .bytes = extent->bytes,
				  .hold_count = 2,
			  });
}

/* A holder lets go and forgets where it was; the last one gives the space back. Nothing for an
 * extent without bytes. */
void share_release(struct zero_shares *shares, struct tier_extent *extent)
{
	struct zero_share *share;

	if (!extent->bytes)
		return;
	if (is_known(shares, extent, &share)) {
		assert(share->bytes == extent->bytes);
		share->hold_count--;
		if (share->hold_count == (shares->is_recovering ? 0 : 1)) {
			bool is_last = !share->hold_count;

			share_remove(shares, share);
			if (is_last)
				tier_extent_release(extent);
		}
		*extent = (struct tier_extent){ 0 };
		return;
	}
	tier_extent_release(extent);
}

/*
 * Recovery: a row names @extent. @digest: of what else it says. Precondition: share_reserve().
 * Return: 0; -EUCLEAN outside the store, or another row means something else by the same place.
 */
int share_claim(struct zero_shares *shares, const struct tier_extent *extent, uint64_t digest)
{
	struct zero_share *share;
	int r;

	assert(shares->is_recovering);
	if (is_known(shares, extent, &share)) {
		if (share->bytes != extent->bytes || share->digest != digest)
			return err_origin(-EUCLEAN);
		share->hold_count++;
		return 0;
	}
	r = tier_extent_claim(extent);
	if (r)
		return err_trace(r);
	share_add(shares, &(struct zero_share){
				  .member = extent->member,
				  .offset_bytes = extent->offset_bytes,
				  .bytes = extent->bytes,
				  .digest = digest,
				  .hold_count = 1,
			  });
	return 0;
}

/*
 * Recovery: as far as a damaged row can be believed, what it names is given to nobody.
 * Precondition: share_reserve(). Return: 0, it is a holder; -EUCLEAN outside the store, or other
 * rows' in part.
 */
int share_keep(struct zero_shares *shares, const struct tier_extent *extent)
{
	struct zero_share *share;

	if (!is_known(shares, extent, &share))
		return err_trace(share_claim(shares, extent, 0));
	if (share->bytes != extent->bytes)
		return err_origin(-EUCLEAN);
	share->hold_count++;
	return 0;
}

/* From here on what has one holder is not written down. Return: 0; -ENOMEM. */
int share_recovered(struct zero_shares *shares)
{
	uint64_t count = 0;
	int r;

	for (uint32_t i = 0; i < shares->capacity; i++)
		count += shares->slots[i].hold_count > 1;
	r = share_rebuild(shares, count, 2);
	if (r)
		return err_trace(r);
	shares->is_recovering = false;
	return 0;
}

/* What is still shared then is the catalog's knowledge. */
void share_free(struct zero_shares *shares)
{
	free(shares->slots);
	*shares = (struct zero_shares){ 0 };
}
