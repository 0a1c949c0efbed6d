/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the fake zero (fake_zero.h, which includes this): memory of a kind, every group is
 * number 3 of two members, and rank 0 is one of them. */
#pragma once

#include "daemon/coll/coll.h"
#include "tests/unit/session/fake_zero.h"

DOUBLE struct {
	struct tier_segment *verdicts, *arenas, *board;
	uint64_t arena_bytes, asked_bytes, timeout_ns, call_timeout_ns;
	int refusal; /* of the last wish, and its reason */
	struct zi_text refusal_text;
	uint64_t members[ZI_GROUP_MASK_WORDS];
	bool is_over;   /* what was opened or made is gone before it is answered */
	uint32_t freed; /* group of the last COLL_GROUP_FREE */
	uint32_t aborted;
	char reason[ZI_ABORT_REASON_BYTES];
	struct zi_coll_fail report;  /* the last */
	uint32_t spin_us, cpu_count; /* the last that was said */
} fake_coll;

static inline void fake_coll_deinit(void)
{
	fake_coll.verdicts = tier_segment_unref(fake_coll.verdicts);
	fake_coll.arenas = tier_segment_unref(fake_coll.arenas);
	fake_coll.board = tier_segment_unref(fake_coll.board);
	memset(&fake_coll, 0, sizeof(fake_coll));
}

static inline void fake_coll_segment(uint64_t bytes, struct tier_segment **segment)
{
	struct zi_text text;

	if (!*segment)
		cr_assert_eq(tier_segment_new(fake.tier, &fake.account, "coll", bytes,
		                              TIER_PAGES_SMALL, &text, segment),
		             0);
}

/* Return: whether its rank refuses it; then it is completed with that. */
static inline bool fake_coll_is_refused(struct zero_op *op)
{
	fake_coll.refusal = op->refusal;
	if (!op->refusal)
		return false;
	zi_text_set(&fake_coll.refusal_text, "%s", op->reason);
	op->text = fake_coll.refusal_text;
	op->result = op->refusal;
	op->done(op);
	return true;
}

DOUBLE void zero_coll_open(struct zero_rank *rank, struct zero_op *op)
{
	if (fake_coll_is_refused(op))
		return;
	fake_coll.asked_bytes = op->asked_bytes;
	fake_coll.arena_bytes = op->bytes;
	fake_coll.timeout_ns = op->timeout_ns;
	fake_coll.call_timeout_ns = op->call_timeout_ns;
	fake_coll_segment(ZI_VERDICT_BYTES, &fake_coll.verdicts);
	fake_coll_segment(1 << 20, &fake_coll.arenas);
	fake_coll_segment(zi_board_bytes(2), &fake_coll.board);
	fake_take(rank, op);
}

DOUBLE bool zero_coll_opened(struct zero_rank *rank, struct zero_coll_opened *ret_opened)
{
	(void)rank;
	*ret_opened = (struct zero_coll_opened){ .verdicts = fake_coll.verdicts,
		                                 .arenas = fake_coll.arenas,
		                                 .board = fake_coll.board,
		                                 .arena_bytes = 1 << 19,
		                                 .board_bytes = zi_board_bytes(2),
		                                 .member_count = 2 };
	return !fake_coll.is_over;
}

DOUBLE void zero_coll_group(struct zero_rank *rank, struct zero_op *op)
{
	if (fake_coll_is_refused(op))
		return;
	memcpy(fake_coll.members, op->members, sizeof(fake_coll.members));
	fake_coll.timeout_ns = op->timeout_ns;
	op->id = 3;
	fake_coll_segment(zi_board_bytes(2), &fake_coll.board);
	fake_take(rank, op);
}

DOUBLE bool zero_coll_grouped(struct zero_rank *rank, uint32_t group,
                              struct zero_coll_grouped *ret_grouped)
{
	bool is_member = rank->attach.rank == 0;

	cr_assert_eq(group, 3);
	*ret_grouped = (struct zero_coll_grouped){ .self = is_member ? 0 : COLL_NOBODY,
		                                   .member_count = 2,
		                                   .board = is_member ? fake_coll.board : NULL };
	ret_grouped->board_bytes = is_member ? zi_board_bytes(2) : 0;
	return !fake_coll.is_over;
}

DOUBLE int zero_coll_group_free(struct zero_rank *rank, uint32_t group, struct zi_text *text)
{
	(void)rank;
	fake_coll.freed = group;
	return group == 3 ? 0 : zi_text_error(text, -EPERM, "fake has group 3 alone");
}

DOUBLE int zero_coll_fail(struct zero_rank *rank, const struct zi_coll_fail *report,
                          struct zi_text *text)
{
	(void)rank;
	fake_coll.report = *report;
	return zi_text_error(text, -ETIMEDOUT, "fake blames nobody");
}

DOUBLE int zero_coll_abort(struct zero_rank *rank, uint32_t group, const char *reason,
                           struct zi_text *text)
{
	(void)rank;
	fake_coll.aborted = group;
	(void)snprintf(fake_coll.reason, sizeof(fake_coll.reason), "%s", reason);
	return group == 3 ? 0 : zi_text_error(text, -EPERM, "fake has group 3 alone");
}

DOUBLE void zero_coll_spin(struct zero *zero, uint32_t cpu_count, uint32_t spin_us)
{
	(void)zero;
	fake_coll.cpu_count = cpu_count;
	fake_coll.spin_us = spin_us;
}
