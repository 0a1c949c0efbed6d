/* SPDX-License-Identifier: Apache-2.0 */
/* ADMIN: tiers, and the paths of those on NVMe, as JSON. Floor 6, shard thread. */
#include "daemon/session/admin/answer_tiers.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"
#include "daemon/tier/drain.h"
#include "daemon/tier/holder.h"
#include "daemon/tier/member.h"
#include "daemon/tier/tier.h"

static json_t *answer_tier(const struct tier *tier)
{
	json_t *object = json_object();

	answer_word(object, "name", tier->name);
	answer_word(object, "kind", tier_kind_name(tier->kind));
	answer_put(object, "node",
	           tier->gpu && tier->gpu->facts.node < 0 ? json_null() : json_integer(tier->node));
	answer_number(object, "capacity_bytes", tier->capacity_bytes);
	answer_number(object, "used_bytes", tier->used_bytes);
	answer_number(object, "peak_bytes", tier->peak_bytes);
	answer_number(object, "read_bytes", tier->read_bytes);
	answer_number(object, "write_bytes", tier->write_bytes);
	return object;
}

/* What the drive says; a string says why it does not. */
static json_t *answer_wear(const struct tier_wear *wear)
{
	const struct nvme_smart *smart = &wear->smart;
	json_t *object;

	if (!wear->is_known)
		return json_string(wear->why.chars[0] ? wear->why.chars : "not asked yet");
	object = json_object();
	answer_number(object, "used_percent", smart->used_percent);
	answer_number(object, "spare_percent", smart->spare_percent);
	answer_number(object, "spare_threshold_percent", smart->spare_threshold_percent);
	answer_number(object, "critical_warning", smart->critical_warning);
	answer_number(object, "media_errors", smart->media_error_count);
	answer_number(object, "power_on_hours", smart->power_on_hours);
	answer_number(object, "unsafe_shutdowns", smart->unsafe_shutdown_count);
	answer_put(object, "celsius",
	           smart->celsius == NVME_SMART_UNKNOWN_CELSIUS ? json_null()
	                                                        : json_integer(smart->celsius));
	answer_put(object, "read_bytes",
	           smart->read_bytes ? answer_integer(smart->read_bytes) : json_null());
	answer_put(object, "write_bytes",
	           smart->write_bytes ? answer_integer(smart->write_bytes) : json_null());
	return object;
}

static json_t *answer_member(const struct tier_member *member, double weight_sum)
{
	const struct nvme_store *store = member->store;
	json_t *object = json_object();

	answer_word(object, "name", member->name);
	answer_word(object, "path", member->path);
	answer_word(object, "state", tier_member_state_name(member->state));
	answer_word(object, "reason", member->reason.chars);
	answer_put(object, "share", json_real(weight_sum > 0 ? member->weight / weight_sum : 0));
	answer_number(object, "capacity_bytes", store ? nvme_space_total_bytes(member->space) : 0);
	answer_number(object, "used_bytes", tier_member_used_bytes(member));
	answer_number(object, "read_bytes", member->read_bytes);
	answer_number(object, "write_bytes", member->write_bytes);
	answer_number(object, "total_read_bytes", member->tally.read_bytes);
	answer_number(object, "total_write_bytes", member->tally.write_bytes);
	answer_number(object, "today_write_bytes", tier_tally_day_bytes(&member->tally));
	answer_put(object, "write_budget_per_day",
	           member->tally.budget.day_bytes ? answer_integer(member->tally.budget.day_bytes)
	                                          : json_null());
	answer_word(object, "write_budget_action",
	            tier_budget_action_name(member->tally.budget.action));
	answer_put(object, "drive", answer_wear(&member->wear));
	answer_number(object, "moved_bytes_per_s", member->pace.bytes_per_s);
	answer_number(object, "errors", member->error_count);
	answer_number(object, "damaged_reads", member->damage.read_count);
	answer_number(object, "damaged_places", member->damage.place_count);
	answer_put(object, "is_draining", json_boolean(member->is_draining));
	answer_put(object, "is_direct", json_boolean(store && store->is_direct));
	answer_put(object, "is_block_device", json_boolean(store && store->is_block_device));
	answer_put(object, "is_polled", json_boolean(store && store->is_polled));
	return object;
}

/* The paths of a tier. What is true of all of them is said of the tier as well. */
static void answer_members(json_t *object, const struct tier *tier)
{
	json_t *members = json_array();
	bool is_direct = true, is_block_device = true;
	uint64_t extent_bytes = 0;
	double weight_sum = 0;

	for (uint32_t i = 0; i < tier->member_count; i++) {
		const struct nvme_store *store = tier->members[i].store;

		weight_sum += tier->members[i].weight;
		extent_bytes += tier_member_used_bytes(&tier->members[i]);
		is_direct = is_direct && (!store || store->is_direct); /* Missing: not known. */
		is_block_device = is_block_device && store && store->is_block_device;
	}
	for (uint32_t i = 0; i < tier->member_count; i++)
		(void)json_array_append_new(members, answer_member(&tier->members[i], weight_sum));
	answer_number(object, "extent_bytes", extent_bytes);
	answer_word(object, "path", tier->member_count ? tier->members[0].path : "");
	answer_put(object, "is_direct", json_boolean(is_direct));
	answer_put(object, "is_block_device", json_boolean(is_block_device));
	answer_put(object, "members", members);
}

void sess_answer_ending(json_t *object, pid_t pid, uint64_t killed_ns)
{
	answer_put(object, "ending_pid", pid ? json_integer(pid) : json_null());
	answer_put(object, "ending_s",
	           pid ? answer_integer((zi_clock_now_ns() - killed_ns) / ZI_NS_PER_S)
	               : json_null());
}

/* A GPU, and its state. */
static json_t *answer_gpu(const struct tier_arenas *arenas, const struct tier *tier)
{
	const struct dev_gpu *gpu = tier->gpu;
	json_t *object = answer_tier(tier);

	answer_number(object, "free_bytes", tier_free_bytes(tier));
	answer_word(object, "uuid", gpu->facts.uuid);
	answer_word(object, "device", gpu->facts.name);
	answer_word(object, "pci", gpu->facts.pci);
	answer_number(object, "memory_bytes", gpu->facts.bytes);
	answer_number(object, "granularity_bytes", gpu->facts.granularity_bytes);
	answer_number(object, "driver_version", (uint64_t)gpu->facts.driver_version);
	answer_number(object, "capability", gpu->facts.capability);
	answer_put(object, "is_up", json_boolean(gpu->is_up));
	answer_word(object, "reason", gpu->down.chars);
	sess_answer_ending(object, gpu->ending_pid, gpu->killed_ns);
	answer_number(object, "arenas", tier_arenas_arena_count(arenas, tier));
	answer_number(object, "lingering_bytes", tier_arenas_lingering_bytes(arenas, tier, NULL));
	return object;
}

json_t *sess_answer_tiers(struct sess_shard *shard, const struct sess_facts *facts)
{
	struct sess_engine_facts engine = { .backend = "none" };
	json_t *tiers = json_array();

	if (facts->engine)
		facts->engine(facts->engine_arg, &engine);
	for (uint32_t i = 0; i < facts->cpu_tier_count; i++) {
		const struct tier *tier = &facts->cpu_tiers[i];
		json_t *object = answer_tier(tier);

		answer_put(object, "wants_huge", json_boolean(tier->wants_huge));
		answer_number(object, "huge_free_bytes",
		              facts->huge_free_bytes ? facts->huge_free_bytes() : 0);
		answer_number(object, "lingering_bytes",
		              tier_holders_lingering_bytes(shard->holders, tier, NULL));
		(void)json_array_append_new(tiers, object);
	}
	for (uint32_t i = 0; i < facts->nvme_tier_count; i++) {
		const struct tier *tier = &facts->nvme_tiers[i];
		json_t *object = answer_tier(tier);

		answer_number(object, "free_bytes", tier_free_bytes(tier));
		answer_members(object, tier);
		answer_word(object, "engine", engine.backend);
		answer_number(object, "registered_bytes", engine.registered_bytes);
		answer_number(object, "unregistered_bytes", engine.unregistered_bytes);
		(void)json_array_append_new(tiers, object);
	}
	for (uint32_t i = 0; shard->arenas && i < tier_arenas_count(shard->arenas); i++)
		(void)json_array_append_new(
			tiers, answer_gpu(shard->arenas, tier_arenas_tier(shard->arenas, i)));
	return tiers;
}

/* The member of that name, as its section of the configuration is called. */
static struct tier_member *find_member(const struct sess_facts *facts, const char *name)
{
	for (uint32_t i = 0; i < facts->nvme_tier_count; i++)
		for (uint32_t j = 0; j < facts->nvme_tiers[i].member_count; j++)
			if (!strcmp(facts->nvme_tiers[i].members[j].name, name))
				return &facts->nvme_tiers[i].members[j];
	return NULL;
}

/**
 * sess_answer_drain() - empties a path, or has it used again
 * @inquiry: the path's name; gets the refusal: -ENOENT no such path, what tier_member_drain() says
 *
 * Return: the path as it is then; NULL: refused. Context: shard thread.
 */
json_t *sess_answer_drain(struct sess_shard *shard, const struct sess_facts *facts,
                          struct sess_inquiry *inquiry)
{
	struct tier_member *member = find_member(facts, inquiry->job);
	json_t *object;

	if (!member)
		inquiry->result =
			zi_text_error(&inquiry->text, err_origin(-ENOENT),
		                      "no path '%s': zctl tiers lists the paths", inquiry->job);
	else
		inquiry->result = tier_member_drain(member, inquiry->question == SESS_ASK_DRAIN,
		                                    &inquiry->text);
	if (inquiry->result)
		return NULL;
	zero_evacuate(shard->zero);
	object = answer_member(member, 0);
	answer_word(object, "tier", member->tier->name);
	return object;
}
