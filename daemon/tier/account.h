/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts and charges: bytes of a tier are paid for by an account and every account above it, all
 * or nothing, *before* anything is allocated. Floor 4, shard thread.
 */
#pragma once

#include <stdint.h>

#include "common/base/text.h"
#include "common/base/types.h"
#include "daemon/tier/tier.h"

enum { _TIER_E_SUCCESS, TIER_E_FULL, TIER_E_QUOTA };

struct tier_account {
	char name[ZI_NAME_BYTES];               /* "uid 1000", "job train" */
	struct tier_account *parent;            /* NULL for a uid */
	uint64_t limit_bytes[_TIER_KIND_COUNT]; /* UINT64_MAX: none */
	uint64_t used_bytes[_TIER_KIND_COUNT];
	uint32_t limit_fds; /* UINT32_MAX: none */
	uint32_t used_fds;  /* descriptors that the daemon has open for it */
};

struct tier_charge {
	struct tier *tier; /* NULL: nothing charged */
	struct tier_account *account;
	uint64_t bytes;
};

/* Bytes of one thing that lie on one tier. */
struct tier_part {
	struct tier *tier;
	uint64_t bytes;
};

void tier_account_init(struct tier_account *account, const char *name, struct tier_account *parent);
void tier_account_deinit(struct tier_account *account); /* asserts zero */
/* All or nothing on the tier and every account upward. TIER_E_FULL, TIER_E_QUOTA: @text says asked
 * for, free, capacity or limit, and who holds it. */
int tier_charge_take(struct tier_charge *charge, struct tier *tier, struct tier_account *account,
                     uint64_t bytes, struct zi_text *text);
/* Whether all of @parts, of one kind of tier, could be taken. Conditions as above, of the sums. */
int tier_charge_check(const struct tier_part *parts, uint32_t part_count,
                      const struct tier_account *account, struct zi_text *text);
/* What tier_charge_take() would take at most, now. */
uint64_t tier_charge_room_bytes(const struct tier *tier, const struct tier_account *account);
void tier_charge_return(struct tier_charge *charge); /* idempotent */
/* @count descriptors, before they are opened, on the account and every account upward, all or none.
 * TIER_E_QUOTA: @text has the figures and the key that sets the limit. */
int tier_account_take_fds(struct tier_account *account, uint32_t count, struct zi_text *text);
/* They are closed. */
void tier_account_give_fds(struct tier_account *account, uint32_t count);
