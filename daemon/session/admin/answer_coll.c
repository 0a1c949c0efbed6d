/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of a job's ranks and who waits for whom, as JSON (docs/ANSWERS.md). Floor 6, shard thread.
 */
#include "daemon/session/admin/answer_coll.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/coll/describe.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/zero/zero.h"

/* The ranks of the members in @mask. */
static json_t *answer_members(const struct coll_description *group, uint64_t mask)
{
	json_t *ranks = json_array();

	for (uint32_t i = 0; i < group->member_count; i++)
		if (mask >> i & 1)
			(void)json_array_append_new(ranks, json_integer(group->ranks[i]));
	return ranks;
}

/* Who waits for whom in sends and receives. */
static json_t *answer_messages(const struct coll_description *group)
{
	json_t *messages = json_array();

	for (uint32_t i = 0; i < ZI_MIN(group->message_count, COLL_MESSAGES_TOLD); i++) {
		json_t *message = json_object();

		answer_number(message, "rank", group->messages[i].rank);
		answer_word(message, "call", group->messages[i].call.chars);
		answer_number(message, "waits_for", group->messages[i].peer);
		(void)json_array_append_new(messages, message);
	}
	return messages;
}

static json_t *answer_group(const struct coll_description *group)
{
	json_t *object = json_object();

	answer_number(object, "group", group->number);
	answer_put(object, "ranks", answer_members(group, UINT64_MAX));
	answer_number(object, "timeout_ms", group->timeout_ns / ZI_NS_PER_MS);
	answer_number(object, "sequence", group->sequence);
	answer_word(object, "call", group->call.chars);
	answer_put(object, "has_come", answer_members(group, group->come_mask));
	answer_put(object, "is_awaited", answer_members(group, group->awaited_mask));
	answer_number(object, "waiting_ns", group->awaited_mask ? group->waited_ns : 0);
	answer_put(object, "messages", answer_messages(group));
	answer_number(object, "message_count", group->message_count);
	answer_put(object, "is_read", answer_members(group, group->read_mask));
	answer_put(object, "is_unread", answer_members(group, group->unread_mask));
	answer_put(object, "has_left", answer_members(group, group->left_mask));
	answer_put(object, "error",
	           group->error ? json_string(zi_err_name(group->error)) : json_null());
	answer_word(object, "reason", group->reason);
	answer_put(object, "failed_rank",
	           group->culprit == COLL_NOBODY ? json_null() : json_integer(group->culprit));
	return object;
}

/* Where each rank's arena lies. */
static json_t *answer_arenas(const struct zero_job_report *report)
{
	json_t *tiers = json_array();

	for (uint32_t i = 0; i < report->world_size; i++) {
		const char *tier = report->ranks[i].arena_tier;

		(void)json_array_append_new(tiers, tier ? json_string(tier) : json_null());
	}
	return tiers;
}

/* See answer_coll.h. */
json_t *sess_answer_coll(const struct zero_job_report *report)
{
	json_t *object, *groups;

	if (!report->coll)
		return json_null();
	object = json_object();
	groups = json_array();
	answer_number(object, "arena_bytes", report->arena_bytes);
	answer_put(object, "arena_tiers", answer_arenas(report));
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++) {
		struct coll_description group;

		if (coll_describe(report->coll, i, &group))
			(void)json_array_append_new(groups, answer_group(&group));
	}
	answer_put(object, "groups", groups);
	return object;
}
