/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: made, left, broken; see coll.h. Floor 3, shard thread. */
#include "daemon/coll/coll.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "daemon/coll/words.h"

/* See coll.h. */
int coll_new(const struct coll_options *options, struct coll **ret_coll)
{
	struct coll *coll;

	assert(options->world_size > 0);
	assert(options->world_size <= ZI_WORLD_MAX);
	coll = calloc(1, sizeof(*coll));
	if (!coll)
		return err_origin(-ENOMEM);
	coll->options = *options;
	*ret_coll = coll;
	return 0;
}

/* Boards and verdicts stay: ranks may still wait on them. Return: NULL. */
struct coll *coll_free(struct coll *coll)
{
	free(coll);
	return NULL;
}

/* See coll.h. */
void coll_rank_here(struct coll *coll, uint32_t rank, int pid)
{
	assert(rank < coll->options.world_size);
	coll->ranks[rank] = (struct coll_rank){ .pid = pid, .is_here = true };
}

/* See coll.h. */
void coll_spin_set(struct coll *coll, uint32_t spin_us, uint32_t beside_us)
{
	zi_line_store(&coll->options.verdicts->spin_us, spin_us);
	zi_line_store(&coll->options.verdicts->beside_us, beside_us);
}

/* ---- groups ---- */

/* See coll.h. */
int coll_group_choose(const struct coll *coll, uint64_t avoided, struct zi_text *text,
                      uint32_t *ret_group)
{
	uint64_t free = 0;

	static_assert(ZI_GROUPS_MAX <= 64, "numbers are the bits of one word");
	for (uint32_t i = ZI_GROUP_WORLD + 1; i < ZI_GROUPS_MAX; i++)
		if (!coll->groups[i].is_used)
			free |= 1ull << i;
	if (free) {
		free = free & ~avoided ? free & ~avoided : free;
		*ret_group = (uint32_t)__builtin_ctzll(free);
		return 0;
	}
	return err_origin(zi_text_error(text, -ENOSPC,
	                                "the job has %u groups, the most there can be: free one "
	                                "on all of its members",
	                                ZI_GROUPS_MAX));
}

/* See coll.h. */
void coll_group_add(struct coll *coll, uint32_t group, uint64_t mask,
                    const struct zi_board_member *board, uint64_t timeout_ns)
{
	struct coll_group *made = &coll->groups[group];

	assert(group < ZI_GROUPS_MAX);
	assert(!made->is_used);
	assert(mask);
	*made = (struct coll_group){
		.is_used = true,
		.number = group,
		.board = board,
		.timeout_ns = timeout_ns,
		.culprit = COLL_NOBODY,
		.seen_ns = zi_clock_now_ns(),
	};
	for (uint32_t i = 0; i < coll->options.world_size; i++)
		if (mask >> i & 1)
			made->ranks[made->member_count++] = i;
	assert(made->member_count > 0);
	/* A verdict on whoever had the number before is nobody's any more. */
	zi_line_store(&coll->options.verdicts->groups[group], 0);
}

/* See coll.h. */
uint32_t coll_member_of(const struct coll_group *group, uint32_t rank)
{
	for (uint32_t i = 0; i < group->member_count; i++)
		if (group->ranks[i] == rank)
			return i;
	return COLL_NOBODY;
}

/* See coll.h. */
uint32_t coll_rank_of(const struct coll_group *group, uint32_t member)
{
	uint64_t left = group->far_mask;

	if (!left)
		return member < group->member_count ? group->ranks[member] : COLL_NOBODY;
	for (uint32_t i = 0; i < member && left; i++)
		left &= left - 1;
	return left ? (uint32_t)__builtin_ctzll(left) : COLL_NOBODY;
}

/* See coll.h. */
int coll_group_of(struct coll *coll, uint32_t rank, uint32_t group, struct zi_text *text,
                  struct coll_group **ret_group)
{
	struct coll_group *found = group < ZI_GROUPS_MAX ? &coll->groups[group] : NULL;
	uint32_t member;

	if (!found || !found->is_used)
		return err_origin(zi_text_error(text, -EPERM, "there is no group %u", group));
	member = coll_member_of(found, rank);
	if (member == COLL_NOBODY)
		return err_origin(zi_text_error(text, -EPERM, "rank %u is no member of group %u",
		                                rank, group));
	if (found->left_mask >> member & 1)
		return err_origin(zi_text_error(text, -EPERM, "rank %u has freed group %u before",
		                                rank, group));
	*ret_group = found;
	return 0;
}

static bool leave(struct coll_group *group, uint32_t member)
{
	assert(member < group->member_count);
	group->left_mask |= 1ull << member;
	for (uint32_t i = 0; i < group->member_count; i++)
		if (!(group->left_mask >> i & 1))
			return false;
	group->is_used = false;
	return true;
}

/* See coll.h. */
bool coll_group_leave(struct coll *coll, struct coll_group *group, uint32_t rank)
{
	(void)coll; /* The verdict stays until the number is used again. */
	assert(group->number != ZI_GROUP_WORLD);
	return leave(group, coll_member_of(group, rank));
}

/* ---- the end of a group ---- */

/* See coll.h. */
void coll_break(struct coll *coll, struct coll_group *group, int error, uint32_t culprit,
                const struct zi_text *text)
{
	assert(group->is_used);
	assert(error < 0);
	if (group->error)
		return;
	/* Other nodes may say anything: by a verdict like this its members would take the group for
	 * one that stands. */
	if (zi_verdict_is_spared(error))
		error = -EPROTO;
	group->error = error;
	group->culprit = culprit;
	group->text = *text;
	zi_utf8_clean(group->text.chars); /* Of what others said. It goes to logs and terminals. */
	zi_verdict_give(&coll->options.verdicts->groups[group->number], (uint32_t)-error);
	if (coll->options.broken)
		coll->options.broken(coll->options.arg, group->number, error, &group->text);
}

/* See coll.h. */
int coll_abort(struct coll *coll, uint32_t rank, uint32_t group, const char *reason,
               struct zi_text *text)
{
	struct zi_text why = { "" };
	struct coll_group *found;
	int r;

	r = coll_group_of(coll, rank, group, text, &found);
	if (r)
		return err_trace(r);
	coll_append_rank(&why, coll, rank);
	zi_text_append(&why, " aborted group %u%s", group, reason[0] ? ": " : "");
	zi_text_append(&why, "%s", reason);
	coll_break(coll, found, -ECONNABORTED, rank, &why);
	return 0;
}

/* See coll.h. */
void coll_break_all(struct coll *coll, int error, const struct zi_text *text)
{
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		if (coll->groups[i].is_used)
			coll_break(coll, &coll->groups[i], error, COLL_NOBODY, text);
}

/* See coll.h. */
uint64_t coll_rank_gone(struct coll *coll, uint32_t rank, const struct zi_text *text)
{
	uint64_t ended_mask = 0;

	coll->ranks[rank].is_gone = true;
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++) {
		struct coll_group *group = &coll->groups[i];
		uint32_t member = group->is_used ? coll_member_of(group, rank) : COLL_NOBODY;

		if (member == COLL_NOBODY || group->left_mask >> member & 1)
			continue;
		coll_break(coll, group, -EPIPE, rank, text);
		if (leave(group, member))
			ended_mask |= 1ull << i;
	}
	return ended_mask;
}
