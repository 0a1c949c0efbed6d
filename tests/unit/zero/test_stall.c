/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: in memory for one bucket a rank gets on as long as somebody can, and who waits for what
 * nobody will ever do is refused at once, with what each rank holds: by its own buckets, by
 * another order, by a barrier, by parameters that stay in use, by a full pool of parameters.
 * Method: two ranks whose calls come in chosen orders; what waits must not be over, what is freed
 * must go on.
 */
#include "tests/unit/zero/buckets.h"

TestSuite(zero_stall, .timeout = 120);

static int try_acquire(uint32_t rank, uint32_t unit)
{
	return actor_unit(&actors[rank], zero_grad_acquire, unit);
}

Test(zero_stall, one_bucket_a_rank_trains_to_the_plain_bits)
{
	static const uint32_t offloads[] = { ZI_OFFLOAD_CPU, ZI_OFFLOAD_NVME };

	for (uint32_t i = 0; i < 2; i++) {
		buckets_begin(2, offloads[i], BUCKET_BYTES);
		cr_assert_eq(actors[0].memory.grad->region.bytes, BUCKET_BYTES);
		model_train(actors, 2, 1, 3);
		plain_train(&plain, 1, 3);
		cr_assert(plain_equals(&plain, &actors[1]));
		buckets_end();
	}
}

/* Of two ranks: 3 lengths, and of each 3 places of 4 bytes and 3 runs of 32. */
#define TABLE_BYTES (12 + 2 * (12 + 3 * 32ull))

/* Of the tier, or of the uid with @is_uid, somebody leaves a byte less than parameters, buckets
 * and tables take. */
static void tables_refused(bool is_uid, int error, const char *words)
{
	struct tier_account *uid = zero_account(node.zero, 0), other;
	struct tier_charge charge = { 0 };
	uint64_t left_bytes = UNITS * BUCKET_BYTES + 2 * BUCKET_BYTES + TABLE_BYTES - 1;

	tier_account_init(&other, "other", NULL);
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .config = config, .training = training });
	buckets_layout(2);
	/* Given back before memory is asked for: it is rank 0's layout that counts. */
	left_bytes -= actors[1].rank->stream_charge.bytes;
	if (is_uid)
		uid->limit_bytes[TIER_CPU] = uid->used_bytes[TIER_CPU] + left_bytes;
	else
		cr_assert_eq(tier_charge_take(&charge, &node.cpu, &other,
		                              tier_free_bytes(&node.cpu) - left_bytes, NULL),
		             0);
	expect_refused(0, error, words, all_call(actors, 2, zero_materialize, NULL));
	tier_charge_return(&charge);
	actors_leave(actors, 2, true);
	node_settle(&node);
	tier_account_deinit(&other);
}

Test(zero_stall, tables_of_buckets_are_paid_for)
{
	buckets_config(ZI_OFFLOAD_CPU, BUCKET_BYTES);
	node_init(&node);
	node_start(&node);
	tables_refused(false, -ENOSPC, "228 B asked for on cpu:0, 227 B free");
	tables_refused(true, -EDQUOT, "228 B asked for on cpu:0, uid 0 holds");
	node_deinit(&node);
}

Test(zero_stall, rank_whose_own_buckets_are_full_is_refused_with_a_budget)
{
	buckets_begin(2, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(2, 0);
	acquire(0, 2);
	expect_refused(0, -EDEADLK, "rank 0 has 'u2'", try_acquire(0, 1));
	/* Of all its units: who sums micro-batches by itself has them at once. */
	expect_refused(0, -EDEADLK,
	               "rank 0 acquired 1 and reduced none; reduce before the next, say "
	               "`accumulation` if micro-batches are summed here, or grant "
	               "grad_budget_bytes of 122880",
	               try_acquire(0, 1));
	acquire(0, 2); /* It has it yet. */
	reduce(0, 2);
	hand_over(1, 2);
	acquire(0, 1);
	buckets_end();
}

Test(zero_stall, waiting_for_a_rank_that_runs_is_no_stall)
{
	buckets_begin(2, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(2, 0);
	hand_over(0, 2);
	acquire_waits(0, 1);
	hand_over(1, 2);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].calls[1].op.offset_bytes, 0);
	buckets_end();
}

Test(zero_stall, same_gradient_is_waited_for_once)
{
	buckets_begin(2, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(2, 0);
	hand_over(0, 2);
	acquire_waits(0, 1);
	expect_refused(0, -EALREADY, "unit 'u1' is waited for already", try_acquire(0, 1));
	actor_start(&actors[0], 2, zero_grad_acquire, &(struct zero_op){ .unit = 0 });
	cr_assert_not(actors[0].calls[2].is_done, "another one is");
	hand_over(1, 2);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	buckets_end();
}

Test(zero_stall, two_orders_are_refused_with_what_each_rank_has)
{
	buckets_begin(2, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(2, 0);
	hand_over(0, 2);
	hand_over(1, 1);
	acquire_waits(0, 1);
	expect_refused(1, -EDEADLK, "no bucket for unit 'u2', and every rank waits",
	               try_acquire(1, 2));
	cr_assert_not_null(strstr(actors[1].text.chars,
	                          "rank 1 has 'u1' (handed over); rank 0 has 'u2' (handed over)"),
	                   "%s", actors[1].text.chars);
	cr_assert_not(actors[0].calls[1].is_done, "rank 1 may yet do something else");
	actor_leave(&actors[1], false);
	cr_assert_eq(actor_wait(&actors[0], 1), -EPIPE);
	buckets_end();
}

Test(zero_stall, two_orders_in_memory_for_two_get_on)
{
	/* Four ranks: of two a whole plane each would be less. */
	buckets_begin(4, ZI_OFFLOAD_CPU, 0);
	cr_assert_eq(actors[0].memory.grad->region.bytes, 2 * BUCKET_BYTES);
	begin_step(4, 0);
	for (uint32_t rank = 0; rank < 4; rank++) {
		hand_over(rank, rank & 1 ? 1 : 2);
		hand_over(rank, rank & 1 ? 2 : 1);
	}
	for (uint32_t rank = 0; rank < 4; rank++)
		hand_over(rank, 0);
	cr_assert_eq(all_call(actors, 4, zero_step, NULL), 0, "%s", actors[0].text.chars);
	plain_train(&plain, 1, 1);
	cr_assert(plain_equals(&plain, &actors[3]));
	buckets_end();
}

Test(zero_stall, who_waits_for_one_that_waits_in_a_barrier_is_refused)
{
	buckets_begin(2, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(2, 0);
	hand_over(0, 2);
	actor_start(&actors[1], 1, zero_barrier, NULL);
	expect_refused(0, -EDEADLK, "rank 0 has 'u2' (handed over)", try_acquire(0, 1));
	actor_start(&actors[0], 1, zero_barrier, NULL);
	cr_assert_eq(actor_wait(&actors[1], 1), 0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	buckets_end();
}

Test(zero_stall, barrier_that_comes_later_is_the_same_stall)
{
	buckets_begin(2, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(2, 0);
	hand_over(0, 2);
	acquire_waits(0, 1);
	actor_start(&actors[1], 1, zero_barrier, NULL);
	expect_refused(0, -EDEADLK, "rank 0 has 'u2' (handed over)", actor_wait(&actors[0], 1));
	actor_start(&actors[0], 1, zero_barrier, NULL);
	cr_assert_eq(actor_wait(&actors[1], 1), 0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	buckets_end();
}

/* Two wait for buckets with what rank 2 has not handed over; that comes to a barrier, and so will
 * not as long as they wait. Each is refused when whoever it waits for stands still. */
Test(zero_stall, all_that_wait_for_one_in_a_barrier_are_refused)
{
	buckets_begin(4, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(4, 0);
	hand_over(0, 2);
	hand_over(1, 2);
	acquire_waits(0, 1);
	acquire_waits(1, 0);
	actor_start(&actors[2], 1, zero_barrier, NULL);
	expect_refused(0, -EDEADLK, "no bucket for unit 'u1'", actor_wait(&actors[0], 1));
	expect_refused(1, -EDEADLK, "no bucket for unit 'u0'", actor_wait(&actors[1], 1));
	actor_start(&actors[0], 1, zero_barrier, NULL);
	actor_start(&actors[1], 1, zero_barrier, NULL);
	actor_start(&actors[3], 1, zero_barrier, NULL);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(actor_wait(&actors[i], 1), 0);
	buckets_end();
}

Test(zero_stall, early_update_waits_for_who_uses_the_unit)
{
	buckets_begin(2, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	begin_step(2, ZI_STEP_UPDATE_EARLY);
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 2), 0);
	hand_over(0, 2);
	hand_over(1, 2);
	expect_refused(0, -EDEADLK, "rank 0 has 'u2' (handed over)", try_acquire(0, 1));
	acquire_waits(1, 1);
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 2), 0);
	cr_assert_eq(actor_wait(&actors[1], 1), 0, "%s", actors[1].text.chars);
	acquire(0, 1);
	buckets_end();
}

/* As counted by hand: of each rank and unit. */
static void expect_users(uint32_t counts[3][UNITS])
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint64_t mask = 0;

		for (uint32_t rank = 0; rank < 3; rank++)
			mask |= (uint64_t)(counts[rank][unit] > 0) << rank;
		cr_assert_eq(actors[0].rank->job->units[unit].users_mask, mask);
	}
}

/* Each bucket that is looked at asks for them: by one word, not rank by rank. */
Test(zero_stall, users_of_a_unit_are_who_has_it_unsharded)
{
	uint32_t counts[3][UNITS] = { 0 };

	buckets_begin(3, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t rank = (uint32_t)(test_noise(2 * i) % 3),
			 unit = (uint32_t)(test_noise(i) % UNITS);
		bool is_more = !counts[rank][unit] || test_noise(3 * i) % 2;

		cr_assert_eq(actor_unit(&actors[rank], is_more ? zero_unshard : zero_reshard, unit),
		             0, "%s", actors[rank].text.chars);
		counts[rank][unit] += is_more ? 1 : UINT32_MAX;
		expect_users(counts);
	}
	cr_assert_eq(actor_unit(&actors[2], zero_unshard, 0), 0);
	actor_leave(&actors[2], true);
	memset(counts[2], 0, sizeof(counts[2]));
	expect_users(counts);
	actors_leave(actors, 2, true);
	node_settle(&node);
	memset(counts, 0, sizeof(counts));
	buckets_attach(3, "run.1");
	expect_users(counts);
	buckets_end();
}

Test(zero_stall, pool_of_parameters_that_is_full_by_who_waits_is_refused)
{
	buckets_config(ZI_OFFLOAD_NVME, BUCKET_BYTES);
	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = BUCKET_BYTES;
	buckets_begin_with(2);
	begin_step(2, 0);
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 0), 0);
	hand_over(0, 2);
	acquire_waits(0, 1);
	expect_refused(1, -ENOSPC, "param_budget_bytes", actor_unit(&actors[1], zero_unshard, 2));
	cr_assert_not(actors[0].calls[1].is_done);
	hand_over(1, 2);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	buckets_end();
}

Test(zero_stall, bucket_that_waits_for_one_who_waits_for_parameters_is_refused)
{
	buckets_config(ZI_OFFLOAD_NVME, BUCKET_BYTES);
	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = BUCKET_BYTES;
	buckets_begin_with(2);
	begin_step(2, 0);
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 0), 0);
	hand_over(0, 2);
	actor_start(&actors[1], 1, zero_unshard, &(struct zero_op){ .unit = 2 });
	cr_assert_not(actors[1].calls[1].is_done);
	expect_refused(0, -EDEADLK, "rank 0 has 'u2' (handed over)", try_acquire(0, 1));
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 0), 0);
	cr_assert_eq(actor_wait(&actors[1], 1), 0, "%s", actors[1].text.chars);
	buckets_end();
}

Test(zero_stall, gradient_that_was_not_acquired_is_not_taken)
{
	buckets_begin(2, ZI_OFFLOAD_CPU, BUCKET_BYTES);
	begin_step(2, 0);
	expect_refused(0, -EINVAL, "unit 'u1' was not acquired",
	               actor_unit(&actors[0], zero_reduce, 1));
	acquire(0, 1);
	reduce(0, 1);
	expect_refused(0, -EALREADY, "was handed over before",
	               actor_unit(&actors[0], zero_reduce, 1));
	buckets_end();
}

Test(zero_stall, deadline_of_who_waits_says_for_what)
{
	buckets_config(ZI_OFFLOAD_CPU, BUCKET_BYTES);
	buckets_begin_with(2);
	begin_step(2, 0);
	hand_over(0, 2);
	/* What comes before takes as long as the machine does. */
	actors[0].rank->timeout_ns = 50 * ZI_NS_PER_MS;
	acquire_waits(0, 1);
	expect_refused(0, -ETIMEDOUT, "buckets are full", actor_wait(&actors[0], 1));
	buckets_end();
}

Test(zero_stall, budget_below_the_largest_unit_is_refused_with_figures)
{
	buckets_config(ZI_OFFLOAD_CPU, BUCKET_BYTES - 1);
	node_init(&node);
	node_start(&node);
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .config = config, .training = training });
	expect_refused(0, -ENOSPC, "unit 'u0' takes", buckets_materialize(2));
	expect_refused(1, -ENOSPC, "grant at least 40960 bytes", actors[1].calls[0].op.result);
	actors_leave(actors, 2, true);
	node_deinit(&node);
}
