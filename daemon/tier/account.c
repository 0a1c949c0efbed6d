/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts and charges. Floor 4, shard thread. */
#include "daemon/tier/account.h"

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/device/gpu.h"

/**
 * tier_account_init() - an account without limits
 * @account: written; stays at its address while anything is charged to it or to a child
 * @name: for refusals, "uid 1000", "job train"; cut when too long
 * @parent: pays too; NULL for a uid
 */
void tier_account_init(struct tier_account *account, const char *name, struct tier_account *parent)
{
	*account = (struct tier_account){ .parent = parent };
	for (uint32_t i = 0; name[i] && i + 1 < sizeof(account->name); i++)
		account->name[i] = name[i];
	for (uint32_t kind = 0; kind < _TIER_KIND_COUNT; kind++)
		account->limit_bytes[kind] = UINT64_MAX;
	account->limit_fds = UINT32_MAX;
}

/* Asserts that nothing is charged to it. */
void tier_account_deinit(struct tier_account *account)
{
	for (uint32_t kind = 0; kind < _TIER_KIND_COUNT; kind++)
		assert(account->used_bytes[kind] == 0);
	assert(account->used_fds == 0);
	*account = (struct tier_account){ 0 };
}

/* What a user may do who needs more of a tier, and the key that limits an account there. */
static const struct {
	const char *advice, *key;
} kinds[_TIER_KIND_COUNT] = {
	[TIER_CPU] = { "raise tier.cpu.capacity, or end other jobs", "quota.uid_cpu" },
	[TIER_NVME] = { "enlarge the store, or destroy other jobs", "quota.uid_nvme" },
	[TIER_GPU] = { "lower gpu.reserve, or end other jobs", "quota.uid_gpu" },
};

static void say_full(const struct tier *tier, uint64_t bytes, struct zi_text *text)
{
	struct zi_bytes_text asked = zi_format_bytes(bytes);
	struct zi_bytes_text left = zi_format_bytes(tier_free_bytes(tier));
	struct zi_bytes_text capacity = zi_format_bytes(tier->capacity_bytes);
	struct zi_bytes_text lingering;
	uint64_t lingering_bytes = 0;
	pid_t pid = 0;

	if (tier->lingering_bytes)
		lingering_bytes = tier->lingering_bytes(tier->lingering_arg, tier, &pid);
	if (tier->gpu && tier->gpu->ending_pid) {
		zi_text_set(text,
		            "%s asked for on %s, %s free of %s; zinf-gpu (pid %d) was killed and "
		            "has not ended, and may hold some: zctl doctor",
		            asked.chars, tier->name, left.chars, capacity.chars,
		            (int)tier->gpu->ending_pid);
		return;
	}
	if (!lingering_bytes) {
		zi_text_set(text, "%s asked for on %s, %s free of %s: %s", asked.chars, tier->name,
		            left.chars, capacity.chars, kinds[tier->kind].advice);
		return;
	}
	lingering = zi_format_bytes(lingering_bytes);
	zi_text_set(text,
	            "%s asked for on %s, %s free of %s; %s are still held by ranks of starts that "
	            "are over, such as pid %d: end them",
	            asked.chars, tier->name, left.chars, capacity.chars, lingering.chars, (int)pid);
}

static bool account_has_room(const struct tier_account *account, enum tier_kind kind,
                             uint64_t bytes)
{
	return account->used_bytes[kind] <= account->limit_bytes[kind] &&
	       bytes <= account->limit_bytes[kind] - account->used_bytes[kind];
}

static int check_tier(const struct tier *tier, uint64_t bytes, struct zi_text *text)
{
	if (bytes <= tier_free_bytes(tier))
		return 0;
	say_full(tier, bytes, text);
	return TIER_E_FULL;
}

/* @where: the tier, or the tiers, of that kind. */
static int check_account(const struct tier_account *account, enum tier_kind kind, const char *where,
                         uint64_t bytes, struct zi_text *text)
{
	for (const struct tier_account *payer = account; payer; payer = payer->parent) {
		if (account_has_room(payer, kind, bytes))
			continue;
		zi_text_set(text,
		            "%s asked for on %s, %s holds %s of the %s it may hold there: raise "
		            "%s, or end other jobs",
		            zi_format_bytes(bytes).chars, where, payer->name,
		            zi_format_bytes(payer->used_bytes[kind]).chars,
		            zi_format_bytes(payer->limit_bytes[kind]).chars, kinds[kind].key);
		return TIER_E_QUOTA;
	}
	return 0;
}

/**
 * tier_charge_room_bytes() - what is free for an account
 * @tier: whose bytes
 * @account: would pay, with all its parents
 *
 * Return: the least of what the tier and each of them has left. Context: shard thread.
 */
uint64_t tier_charge_room_bytes(const struct tier *tier, const struct tier_account *account)
{
	uint64_t bytes = tier_free_bytes(tier);

	for (const struct tier_account *payer = account; payer; payer = payer->parent) {
		uint64_t limit_bytes = payer->limit_bytes[tier->kind];
		uint64_t used_bytes = payer->used_bytes[tier->kind];

		bytes = ZI_MIN(bytes, limit_bytes > used_bytes ? limit_bytes - used_bytes : 0);
	}
	return bytes;
}

/**
 * tier_charge_check() - whether all of several charges can be paid, before any is
 * @parts: (@part_count,) at least one; their bytes together are no more than UINT64_MAX
 * @account: would pay, with all its parents
 * @text: on a condition, asked for in all, free, and capacity or limit
 *
 * Return: 0; TIER_E_FULL, TIER_E_QUOTA as of tier_charge_take(). Context: shard thread.
 */
int tier_charge_check(const struct tier_part *parts, uint32_t part_count,
                      const struct tier_account *account, struct zi_text *text)
{
	const char *where = parts[0].tier->name;
	enum tier_kind kind = parts[0].tier->kind;
	uint64_t all_bytes = 0;

	for (uint32_t i = 0; i < part_count; i++) {
		const struct tier *tier = parts[i].tier;
		uint64_t bytes = 0;
		int r;

		assert(tier->kind == kind);
		for (uint32_t k = 0; k < part_count; k++)
			bytes += parts[k].tier == tier ? parts[k].bytes : 0;
		r = check_tier(tier, bytes, text);
		if (r)
			return r;
		if (tier != parts[0].tier)
			where = "several tiers";
		all_bytes += parts[i].bytes;
	}
	return check_account(account, kind, where, all_bytes, text);
}

/**
 * tier_charge_take() - pay for bytes
 * @charge: empty; filled on success, returned by tier_charge_return()
 * @tier: whose bytes
 * @account: pays, with all its parents
 * @bytes: any
 * @text: on a condition, asked for, free, and capacity or limit
 *
 * Return: 0; TIER_E_FULL the tier has less; TIER_E_QUOTA an account would pass its limit. Nothing
 * is charged then. Context: shard thread.
 */
int tier_charge_take(struct tier_charge *charge, struct tier *tier, struct tier_account *account,
                     uint64_t bytes, struct zi_text *text)
{
	int r;

	assert(!charge->tier);
	assert(account);
	assert(tier->kind == TIER_NVME || tier->used_bytes <= tier->capacity_bytes);

	r = check_tier(tier, bytes, text);
	if (!r)
		r = check_account(account, tier->kind, tier->name, bytes, text);
	if (r)
		return r;
	for (struct tier_account *payer = account; payer; payer = payer->parent)
		payer->used_bytes[tier->kind] += bytes;
	tier->used_bytes += bytes;
	tier->peak_bytes = ZI_MAX(tier->peak_bytes, tier->used_bytes);
	*charge = (struct tier_charge){ .tier = tier, .account = account, .bytes = bytes };
	return 0;
}

/* Gives the bytes back to the tier and every account. Not charged: nothing to do. */
void tier_charge_return(struct tier_charge *charge)
{
	if (!charge->tier)
		return;
	assert(charge->tier->used_bytes >= charge->bytes);
	charge->tier->used_bytes -= charge->bytes;
	for (struct tier_account *payer = charge->account; payer; payer = payer->parent) {
		assert(payer->used_bytes[charge->tier->kind] >= charge->bytes);
		payer->used_bytes[charge->tier->kind] -= charge->bytes;
	}
	*charge = (struct tier_charge){ 0 };
}

/**
 * tier_account_take_fds() - count descriptors that are about to be opened
 * @account: holds them, with all its parents
 * @text: on a condition: held, asked for, limit and its key
 *
 * Return: 0; TIER_E_QUOTA an account would pass its limit: nothing is counted. Context: shard
 * thread.
 */
int tier_account_take_fds(struct tier_account *account, uint32_t count, struct zi_text *text)
{
	for (const struct tier_account *payer = account; payer; payer = payer->parent) {
		if (payer->used_fds <= payer->limit_fds &&
		    count <= payer->limit_fds - payer->used_fds)
			continue;
		zi_text_set(text,
		            "%s holds %u descriptors of zinfd and needs %u more, %u are allowed: "
		            "raise limits.descriptors_per_uid, or end sessions and jobs",
		            payer->name, payer->used_fds, count, payer->limit_fds);
		return TIER_E_QUOTA;
	}
	for (struct tier_account *payer = account; payer; payer = payer->parent)
		payer->used_fds += count;
	return 0;
}

void tier_account_give_fds(struct tier_account *account, uint32_t count)
{
	for (struct tier_account *payer = account; payer; payer = payer->parent) {
		assert(payer->used_fds >= count);
		payer->used_fds -= count;
	}
}
