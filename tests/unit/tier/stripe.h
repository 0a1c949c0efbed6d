/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about several paths: a tier over stores that exist on paper only. Nothing moves;
 * tests say what would have. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/tier/account.h"
#include "daemon/tier/member.h"
#include "daemon/tier/stripe.h"
#include "daemon/tier/tier.h"

#define MIB (1ull << 20)

struct stripe {
	struct tier tier;
	struct nvme_store stores[TIER_MEMBERS_MAX];
	char paths[TIER_MEMBERS_MAX][16];
	uint32_t changed_count; /* times that a state was told */
	enum tier_member_state told;
};

static inline void stripe_changed(void *arg, const struct tier_member *member)
{
	struct stripe *stripe = arg;

	stripe->changed_count++;
	stripe->told = member->state;
}

/* @bytes: (count,) of each store. */
static inline void stripe_init(struct stripe *stripe, uint32_t count, const uint64_t *bytes)
{
	*stripe = (struct stripe){ .changed_count = 0 };
	cr_assert_eq(tier_init_nvme(&stripe->tier, "fast", 0), 0);
	for (uint32_t i = 0; i < count; i++) {
		struct nvme_store *store = &stripe->stores[i];

		store->bytes = bytes[i] + NVME_SUPERBLOCK_BYTES;
		store->path = stripe->paths[i];
		store->uuid[0] = (uint8_t)(i + 1);
		(void)snprintf(store->name, sizeof(store->name), "s%u", i);
		(void)snprintf(stripe->paths[i], sizeof(stripe->paths[i]), "/path/%u", i % 100);
		cr_assert_eq(tier_member_add_store(&stripe->tier, store), 0);
	}
	stripe->tier.changed = stripe_changed;
	stripe->tier.changed_arg = stripe;
}

static inline void stripe_deinit(struct stripe *stripe)
{
	stripe->tier.used_bytes = 0;
	tier_deinit(&stripe->tier);
}

static inline void stripe_tune(struct stripe *stripe, uint32_t index, uint64_t bytes_per_s)
{
	stripe->stores[index].tuning.read_bytes_per_s = bytes_per_s;
	stripe->stores[index].tuning.write_bytes_per_s = bytes_per_s;
}

/* The member that takes @bytes; NULL: full. What it took is given back at once unless kept. */
static inline struct tier_member *stripe_take(struct stripe *stripe, uint32_t lane, uint64_t bytes,
                                              struct tier_extent *ret_extent)
{
	struct tier_extent extent = { 0 };
	struct tier_member *member;
	int r = tier_extent_reserve(&stripe->tier, lane, bytes, &extent);

	cr_assert(r == 0 || r == TIER_E_FULL);
	if (r)
		return NULL;
	cr_assert_eq(extent.bytes, bytes);
	member = extent.member;
	if (ret_extent)
		*ret_extent = extent;
	else
		tier_extent_release(&extent);
	return member;
}

/* What began there has ended. */
static inline void stripe_end(struct tier_member *member, bool is_write, int result,
                              uint64_t offset_bytes, uint64_t bytes, uint64_t now_ns)
{
	tier_member_end(member,
	                &(struct tier_outcome){ .is_write = is_write,
	                                        .result = result,
	                                        .place = { offset_bytes, bytes } },
	                now_ns);
}

/* @bytes were read there in @ns, with nothing else in flight. */
static inline void stripe_move(struct stripe *stripe, uint32_t index, uint64_t bytes, uint64_t ns)
{
	tier_member_begin(&stripe->tier.members[index], 1000);
	stripe_end(&stripe->tier.members[index], false, 0, 0, bytes, 1000 + ns);
}
