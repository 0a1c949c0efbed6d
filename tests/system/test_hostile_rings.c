/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a client that scribbles over its rings, in any word of them, loses its own session only; a
 * mere mistake (no such unit, a blob too large) costs only the operation. Method: a raw client
 * writes into its uplink what no libzinf would, then rings; see hostile.h for what must hold
 * afterwards.
 */
#include "tests/system/hostile.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

TestSuite(hostile_rings, .init = hostile_open, .fini = hostile_close, .timeout = 120);

static void expect_ended(const char *what)
{
	raw_ring(&raw);
	cr_assert(raw_is_ended(&raw), "%s", what);
	raw_close(&raw);
}

Test(hostile_rings, a_tail_that_jumps_ends_the_session)
{
	static const uint32_t jumps[] = { 257, 1000, 1u << 31, UINT32_MAX };

	for (size_t i = 0; i < sizeof(jumps) / sizeof(*jumps); i++) {
		attack_materialized();
		raw.uplink->sq_tail.value += jumps[i];
		expect_ended("a jump");
	}
}

Test(hostile_rings, slots_of_garbage_end_the_session)
{
	static const struct zi_sqe bad[] = {
		{ .opcode = _ZI_OP_COUNT },
		{ .opcode = UINT16_MAX },
		{ .opcode = ZI_OP_NOP, .flags = 1 },
		{ .opcode = ZI_OP_NOP, .unit = 1 },
		{ .opcode = ZI_OP_NOP, .args = { 1 } },
		{ .opcode = ZI_OP_UNSHARD, .args = { 0, 0, 0, 0, 0, 1 } },
		{ .opcode = ZI_OP_STEP, .args = { 0, 1 } },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		attack_materialized();
		raw_push(&raw, &bad[i]);
		expect_ended("a slot");
	}
}

Test(hostile_rings, random_bytes_all_over_the_uplink_end_the_session)
{
	uint64_t random = 88172645463325252ull;

	for (uint32_t round = 0; round < 10; round++) {
		uint64_t *words;

		attack_materialized();
		words = (uint64_t *)raw.uplink;
		for (uint64_t i = 0; i < raw.attached.uplink_bytes / sizeof(*words); i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			words[i] = random;
		}
		expect_ended("random bytes");
	}
}

/* A full ring of requests that are fine, while the head of the completions lies. */
Test(hostile_rings, a_completion_head_that_lies_ends_the_session)
{
	static const uint32_t lies[] = { 257, 100000, 1u << 31, UINT32_MAX };

	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		attack_materialized();
		raw.uplink->cq_head.value = lies[i];
		for (uint32_t slot = 0; slot < raw.attached.ring_entries; slot++)
			raw_push(&raw, &(struct zi_sqe){ .opcode = ZI_OP_NOP });
		expect_ended("a head");
	}
}

/* The head moves back after completions were reaped: places that were free are not. */
Test(hostile_rings, a_completion_head_that_turns_back_ends_the_session)
{
	attack_materialized();
	for (uint32_t i = 0; i < 2 * raw.attached.ring_entries; i++)
		cr_assert_eq(raw_call(&raw, ZI_OP_NOP, 0), 0);
	raw.uplink->cq_head.value -= raw.attached.ring_entries + 1;
	for (uint32_t slot = 0; slot < raw.attached.ring_entries; slot++)
		raw_push(&raw, &(struct zi_sqe){ .opcode = ZI_OP_NOP });
	expect_ended("a head");
}

/* Its own requests wait for it; nobody else's. */
Test(hostile_rings, who_never_reaps_stalls_itself_alone)
{
	struct zi_cqe cqe;

	attack_materialized();
	for (uint32_t i = 0; i < raw.attached.ring_entries; i++)
		raw_push(&raw, &(struct zi_sqe){ .user_data = i, .opcode = ZI_OP_NOP });
	raw_ring(&raw);
	expect_unharmed();
	for (uint32_t i = 0; i < 16; i++) /* more, into a ring that may be full */
		raw_push(&raw, &(struct zi_sqe){ .user_data = 1000 + i, .opcode = ZI_OP_NOP });
	raw_ring(&raw);
	expect_unharmed();
	for (uint32_t i = 0; i < raw.attached.ring_entries + 16; i++) {
		cr_assert_eq(raw_pop(&raw, &cqe), 0, "completion %u", i);
		cr_assert_eq(cqe.result, 0);
	}
}

/* Mistakes: the operation pays, the session goes on. */
Test(hostile_rings, arguments_out_of_range_fail_the_operation_alone)
{
	struct zi_sqe sqe = { .opcode = ZI_OP_STEP, .args = { ZI_BLOB_BYTES + 1 }, .user_data = 7 };
	struct zi_cqe cqe;

	attack_materialized();
	for (uint16_t opcode = ZI_OP_UNSHARD; opcode <= ZI_OP_REDUCE; opcode++) {
		cr_assert_eq(raw_call(&raw, opcode, 1), -EINVAL, "opcode %u", opcode);
		cr_assert_eq(raw_call(&raw, opcode, UINT32_MAX), -EINVAL, "opcode %u", opcode);
	}
	raw_push(&raw, &sqe);
	raw_ring(&raw);
	cr_assert_eq(raw_pop(&raw, &cqe), 0);
	cr_assert_eq(cqe.result, -EINVAL);
	cr_assert_eq(raw_call(&raw, ZI_OP_NOP, 0), 0);
}

/* In the wrong order: no step was begun, nothing was committed, nothing was unsharded. */
Test(hostile_rings, operations_out_of_order_fail_alone)
{
	static const uint16_t wrong[] = { ZI_OP_RESHARD, ZI_OP_REDUCE, ZI_OP_STEP };

	attack_materialized();
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		cr_assert_lt(raw_call(&raw, wrong[i], 0), 0, "opcode %u", wrong[i]);
	raw.uplink->step_options = (struct zi_step_options){ .lr = 1e-3,
		                                             .beta1 = 0.9,
		                                             .beta2 = 0.999,
		                                             .eps = 1e-8,
		                                             .unscale = 1,
		                                             .micro_batches = 1 };
	cr_assert_eq(raw_call(&raw, ZI_OP_STEP_BEGIN, 0), -EINVAL); /* never committed */
	cr_assert_eq(raw_call(&raw, ZI_OP_NOP, 0), 0);
}

Test(hostile_rings, step_options_of_nonsense_are_refused)
{
	const struct zi_step_options good = { .lr = 1e-3,
		                              .beta1 = 0.9,
		                              .beta2 = 0.999,
		                              .eps = 1e-8,
		                              .unscale = 1,
		                              .micro_batches = 1 };
	static const double bad[] = { NAN, INFINITY, -1, 1e300 };

	attack_materialized();
	cr_assert_eq(raw_call(&raw, ZI_OP_COMMIT, 0), 0); /* parameters as they are: zero */
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		raw.uplink->step_options = good;
		raw.uplink->step_options.lr = bad[i];
		cr_assert_eq(raw_call(&raw, ZI_OP_STEP_BEGIN, 0), -EINVAL);
		raw.uplink->step_options = good;
		raw.uplink->step_options.unscale = i ? bad[i] : 0;
		cr_assert_eq(raw_call(&raw, ZI_OP_STEP_BEGIN, 0), -EINVAL);
	}
	raw.uplink->step_options = good;
	raw.uplink->step_options.micro_batches = 0;
	cr_assert_eq(raw_call(&raw, ZI_OP_STEP_BEGIN, 0), -EINVAL);
	raw.uplink->step_options.micro_batches = UINT32_MAX;
	cr_assert_eq(raw_call(&raw, ZI_OP_STEP_BEGIN, 0), -EINVAL);
	raw.uplink->step_options = good;
	raw.uplink->step_options.reserved[5] = 1;
	raw_push(&raw, &(struct zi_sqe){ .opcode = ZI_OP_STEP_BEGIN });
	expect_ended("reserved words");
}

/* The bell: filled to the brim, emptied, rung without need. */
Test(hostile_rings, the_doorbell_is_a_toy_that_harms_nobody)
{
	uint64_t brim = UINT64_MAX - 1, word;

	attack_materialized();
	(void)!write(raw.fds[RAW_DAEMON_BELL], &brim, sizeof(brim));
	expect_unharmed();
	(void)!read(raw.fds[RAW_DAEMON_BELL], &word, sizeof(word));
	for (uint32_t i = 0; i < 20000; i++)
		raw_ring(&raw);
	expect_unharmed();
	cr_assert_eq(raw_call(&raw, ZI_OP_NOP, 0), 0);
}

/* Rings are there before a model is: what needs one is refused. */
Test(hostile_rings, operations_before_materialize_fail_alone)
{
	attack_attached();
	for (uint16_t opcode = ZI_OP_UNSHARD; opcode < _ZI_OP_COUNT; opcode++)
		cr_assert_eq(raw_call(&raw, opcode, 0), -EINVAL, "opcode %u", opcode);
	cr_assert_eq(raw_call(&raw, ZI_OP_NOP, 0), 0);
}
