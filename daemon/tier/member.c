/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an NVMe tier: their conditions, and what they are seen to move. Floor 4. */
#include "daemon/tier/member.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"

const char *tier_member_state_name(enum tier_member_state state)
{
	static const char *const names[_TIER_MEMBER_STATE_COUNT] = {
		[TIER_MEMBER_HEALTHY] = "healthy", [TIER_MEMBER_SLOW] = "slow",
		[TIER_MEMBER_FULL] = "full",       [TIER_MEMBER_DRAINING] = "draining",
		[TIER_MEMBER_FAILED] = "failed",   [TIER_MEMBER_MISSING] = "missing",
	};

	assert(state < _TIER_MEMBER_STATE_COUNT);
	return names[state];
}

static enum tier_member_state gravest(const struct tier_member *member)
{
	if (!member->store)
		return TIER_MEMBER_MISSING;
	if (member->error)
		return TIER_MEMBER_FAILED;
	if (member->is_draining)
		return TIER_MEMBER_DRAINING;
	if (member->is_full)
		return TIER_MEMBER_FULL;
	return member->is_slow ? TIER_MEMBER_SLOW : TIER_MEMBER_HEALTHY;
}

uint64_t tier_members_capacity_bytes(const struct tier *tier, const struct tier_member *except)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < tier->member_count; i++) {
		const struct tier_member *member = &tier->members[i];

		if (member != except && member->store && !tier_member_is_leaving(member))
			bytes += nvme_space_total_bytes(member->space);
	}
	return bytes;
}

static void explain(struct tier_member *member)
{
	struct zi_text *reason = &member->reason;

	switch (member->state) {
	case TIER_MEMBER_SLOW:
		zi_text_set(reason, "moves %s/s, where a path of its weight moves %s/s",
		            zi_format_bytes(member->pace.bytes_per_s).chars,
		            zi_format_bytes(member->expected_bytes_per_s).chars);
		return;
	case TIER_MEMBER_FULL:
		zi_text_set(reason, "no run of %s is free, %s are in pieces",
		            zi_format_bytes(member->full_bytes).chars,
		            zi_format_bytes(member->full_free_bytes).chars);
		return;
	case TIER_MEMBER_DRAINING:
		zi_text_set(reason, "drained by an administrator");
		return;
	case TIER_MEMBER_FAILED:
		if (member->damage.place_count == TIER_DAMAGE_PLACES_MAX)
			zi_text_set(reason, "reading %u different places failed, the last with %s",
			            TIER_DAMAGE_PLACES_MAX, zi_err_name(member->error));
		else
			zi_text_set(reason, "%s failed: %s", member->error_doing,
			            zi_err_name(member->error));
		return;
	case TIER_MEMBER_MISSING:
		zi_text_set(reason, "was not there when the daemon started");
		return;
	case TIER_MEMBER_HEALTHY:
	case _TIER_MEMBER_STATE_COUNT:
	default:
		zi_text_set(reason, "%s", "");
	}
}

/* The one function that changes the state. */
void tier_member_update(struct tier_member *member)
{
	enum tier_member_state state = gravest(member);
	struct tier *tier = member->tier;

	tier->capacity_bytes = tier_members_capacity_bytes(tier, NULL);
	if (state == member->state)
		return;
	member->state = state;
	tier->is_weighed = false;
	explain(member);
	/* Shares that were owed are owed no more. */
	for (uint32_t i = 0; i < tier->member_count; i++)
		memset(tier->members[i].credits, 0, sizeof(tier->members[i].credits));
	if (tier->changed)
		tier->changed(tier->changed_arg, member);
}

/**
 * tier_member_add() - one more store of a tier
 * @options: name and uuid are copied
 *
 * Return: 0; see member.h. Context: at start, before anything is reserved.
 */
int tier_member_add(struct tier *tier, const struct tier_member_options *options)
{
	struct tier_member *member = &tier->members[tier->member_count];
	struct nvme_space *space = NULL;
	struct tier_flusher *flusher = NULL;
	int r;

	assert(tier->kind == TIER_NVME);
	if (tier->member_count == TIER_MEMBERS_MAX)
		return err_origin(-ENOSPC);
	if (options->store) {
		r = nvme_space_new(options->store->bytes, &space);
		if (r)
			return err_fold(r);
		r = tier_flusher_new(options->name, options->store, &flusher);
		if (r) {
			space = nvme_space_free(space);
			return err_trace(r);
		}
	}
	*member = (struct tier_member){
		.tier = tier,
		.store = options->store,
		.space = space,
		.flusher = flusher,
		.path = options->path,
		.is_draining = options->is_draining,
		.tally = { .budget = options->write_budget },
	};
	(void)zi_copy_name(member->name, sizeof(member->name), options->name); /* Of a store. */
	memcpy(member->uuid, options->uuid, sizeof(member->uuid));
	tier->member_count++;
	tier->is_weighed = false;
	tier_member_update(member);
	return 0;
}

/* Return: as tier_member_add(). */
int tier_member_add_store(struct tier *tier, struct nvme_store *store)
{
	return err_trace(tier_member_add(tier, &(struct tier_member_options){
						       .name = store->name,
						       .path = store->path,
						       .store = store,
						       .uuid = store->uuid,
					       }));
}

/* Return: the member with this identity, or NULL. */
struct tier_member *tier_member_find(struct tier *tier, const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < tier->member_count; i++)
		if (memcmp(tier->members[i].uuid, uuid, sizeof(tier->members[i].uuid)) == 0)
			return &tier->members[i];
	return NULL;
}

bool tier_member_is_leaving(const struct tier_member *member)
{
	return member->tier->member_count > 1 && member->store &&
	       (member->is_draining || member->error);
}

/* Return: bytes; 0 for a missing one. */
uint64_t tier_member_used_bytes(const struct tier_member *member)
{
	return member->space ? nvme_space_total_bytes(member->space) -
	                               nvme_space_free_bytes(member->space)
	                     : 0;
}

void tier_member_forgive(struct tier_member *member)
{
	member->error = 0;
	member->damage = (struct tier_damage){ 0 };
	tier_member_update(member);
}

/* The first error stands. */
void tier_member_fail(struct tier_member *member, int error, const char *doing)
{
	assert(error < 0);
	member->error_count++;
	if (member->error)
		return;
	member->error = error;
	member->error_doing = doing;
	tier_member_update(member);
}

/* ---- pace ---- */

void tier_member_begin(struct tier_member *member, uint64_t now_ns)
{
	if (!member->pace.inflight_count++)
		member->pace.begin_ns = now_ns;
}

/* A read that meets a bad sector is its job's affair, until there are too many. */
static void judge(struct tier_member *member, const struct tier_outcome *outcome)
{
	if (outcome->is_write || !tier_damage_is(outcome->result)) {
		tier_member_fail(member, outcome->result,
		                 outcome->is_write ? "writing" : "reading");
		return;
	}
	if (tier_damage_add(&member->damage, &outcome->place))
		tier_member_fail(member, outcome->result, "reading");
	else
		member->error_count++;
}

/* Its bytes are counted when it succeeded. */
void tier_member_end(struct tier_member *member, const struct tier_outcome *outcome,
                     uint64_t now_ns)
{
	struct tier_pace *pace = &member->pace;
	uint64_t bytes = outcome->place.bytes;

	assert(pace->inflight_count > 0);
	if (!--pace->inflight_count)
		pace->busy_ns += now_ns - pace->begin_ns;
	if (outcome->result && outcome->result != -ECANCELED)
		judge(member, outcome);
	if (outcome->result)
		return;
	pace->bytes += bytes;
	tier_tally_add(&member->tally, outcome->is_write, bytes);
	if (outcome->is_write) {
		member->write_bytes += bytes;
		member->tier->write_bytes += bytes;
	} else {
		member->read_bytes += bytes;
		member->tier->read_bytes += bytes;
	}
	/* The only one is tried again and again. */
	if (outcome->is_write && member->error && member->tier->member_count == 1)
		tier_member_forgive(member);
}
