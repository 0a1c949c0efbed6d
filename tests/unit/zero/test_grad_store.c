/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: sums of gradients that have no room in memory go to the store and come back as they were:
 * a step gives the plain bits, and leaves nothing reserved; an early one writes none; what cannot
 * be is refused when the step begins; a write or read that fails, or damage, ends the step, which
 * is undone. Method: a budget of one unit a rank, so that all sums are stored; the engine's faulty
 * backend fails the k-th read or write, for every k; a bit of a sum turned on the store.
 */
#include "daemon/tier/stripe.h"
#include "tests/unit/zero/buckets.h"
#include "tests/unit/zero/flip.h"

TestSuite(zero_grad_store, .timeout = 240);

#define WORLD     2u
#define SUM_BYTES (3 * BUCKET_BYTES)

static struct zi_step_options options_of(uint32_t flags)
{
	struct zi_step_options options = model_options();

	options.flags = flags;
	return options;
}

static const struct zi_step_stats *stats(void)
{
	return &actors[0].calls[0].op.stats;
}

static int step(uint64_t number, const struct zi_step_options *options)
{
	model_gradients(actors, WORLD, number, options);
	return all_call(actors, WORLD, zero_step, NULL);
}

static void step_is_right(uint64_t number, const struct zi_step_options *options)
{
	cr_assert_eq(step(number, options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, number, options);
	cr_assert(plain_equals(&plain, &actors[1]), "step %llu", (unsigned long long)number);
}

Test(zero_grad_store, sums_come_back_as_they_were_and_leave_nothing)
{
	const uint32_t flags[] = { 0, ZI_STEP_WANT_NORM, ZI_STEP_SKIP_NONFINITE };
	uint64_t free_bytes = 0;

	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	cr_assert_eq(node_job(&node, "train")->spill->stored_bytes, SUM_BYTES);
	for (uint32_t i = 0; i < ZI_COUNT_OF(flags); i++) {
		struct zi_step_options options = options_of(flags[i]);

		options.max_norm = i == 1 ? 0.25 : 0;
		step_is_right(i + 1, &options);
		cr_expect_eq(stats()->write_bytes, SUM_BYTES / 2 * 14, "sums, and 12 bytes");
		/* The first one leaves state. */
		cr_expect(i == 0 || tier_extent_free_bytes(&node.nvme) == free_bytes);
		free_bytes = tier_extent_free_bytes(&node.nvme);
	}
	buckets_end();
}

Test(zero_grad_store, early_step_writes_none)
{
	struct zi_step_options options = options_of(ZI_STEP_UPDATE_EARLY);

	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	for (uint64_t number = 1; number <= 2; number++) {
		step_is_right(number, &options);
		cr_expect_eq(stats()->write_bytes, SUM_BYTES / 2 * 12);
	}
	buckets_end();
}

Test(zero_grad_store, several_micro_batches_are_stored_once)
{
	struct zi_step_options options = options_of(0);

	buckets_config(ZI_OFFLOAD_NVME, BUCKET_BYTES);
	config.schedule = ZI_SCHEDULE_SHARDED;
	options.micro_batches = 3;
	buckets_begin_with(WORLD);
	step_is_right(1, &options);
	cr_expect_eq(stats()->write_bytes, SUM_BYTES / 2 * 14);
	options.flags = ZI_STEP_UPDATE_EARLY;
	step_is_right(2, &options);
	buckets_end();
}

Test(zero_grad_store, with_parameters_in_a_pool_and_resident_state)
{
	struct zi_step_options options = options_of(ZI_STEP_WANT_NORM);

	buckets_config(ZI_OFFLOAD_NVME, BUCKET_BYTES);
	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = BUCKET_BYTES;
	config.resident_bytes = 10 * 20480;
	buckets_begin_with(WORLD);
	for (uint64_t number = 1; number <= 3; number++)
		step_is_right(number, &options);
	buckets_end();
}

Test(zero_grad_store, budget_leaves_the_first_sums_in_memory)
{
	struct zi_step_options options = options_of(0);

	/* Two buckets a rank, and one of the three sums; four ranks, or planes would be less. */
	buckets_begin(4, ZI_OFFLOAD_NVME, 2 * BUCKET_BYTES + BUCKET_BYTES / 4);
	cr_assert_eq(node_job(&node, "train")->spill->stored_bytes, 2 * BUCKET_BYTES);
	model_train(actors, 4, 1, 2);
	plain_train(&plain, 1, 2);
	cr_assert(plain_equals(&plain, &actors[3]));
	cr_assert_eq(model_step(actors, 4, 3, &options), 0);
	buckets_end();
}

Test(zero_grad_store, f32_never_goes_there)
{
	struct zi_step_options options = options_of(ZI_STEP_UPDATE_EARLY);

	buckets_config(ZI_OFFLOAD_NVME, 2 * BUCKET_BYTES);
	config.param_dtype = config.grad_dtype = ZI_DTYPE_F32;
	buckets_begin_with(WORLD);
	expect_refused(0, -EINVAL, "gradients never go to NVMe in f32: 240 KiB",
	               actor_call(&actors[0], zero_step_begin,
	                          &(struct zero_op){ .options = options_of(0) }));
	step_is_right(1, &options);
	buckets_end();
}

Test(zero_grad_store, store_without_room_is_told_when_the_step_begins)
{
	struct tier_extent fill[64] = { { 0 } };
	uint64_t free_bytes;

	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	/* Room for a second set, and not for the sums. */
	for (uint32_t i = 0; i < 64; i++) {
		free_bytes = tier_extent_free_bytes(&node.nvme);
		if (free_bytes < SUM_BYTES / 2 * 13)
			break;
		cr_assert_eq(tier_extent_reserve(
				     &node.nvme, 0,
				     ZI_MIN(free_bytes - SUM_BYTES / 2 * 12, 1ull << 20), &fill[i]),
		             0);
	}
	free_bytes = tier_extent_free_bytes(&node.nvme);
	expect_refused(0, -ENOSPC, "gradients of a step of job 'train' need 120 KiB",
	               actor_call(&actors[0], zero_step_begin,
	                          &(struct zero_op){ .options = options_of(0) }));
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing stays reserved");
	for (uint32_t i = 0; i < 64; i++)
		tier_extent_release(&fill[i]);
	step_is_right(1, &(struct zi_step_options[]){ options_of(0) }[0]);
	buckets_end();
}

/* Ranks that heard of the end come back, and make step @number. */
static void come_back(uint64_t number, const char *incarnation)
{
	struct zi_step_options options = options_of(0);

	actors_leave(actors, WORLD, true);
	node_settle(&node);
	buckets_attach(WORLD, incarnation);
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)number - 1);
	cr_assert(plain_equals(&plain, &actors[0]), "as committed");
	step_is_right(number, &options);
}

Test(zero_grad_store, damage_is_named_and_the_step_undone)
{
	struct zi_step_options options = options_of(0);
	const struct zero_subgroup *subgroup;
	uint64_t free_bytes;

	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	model_gradients(actors, WORLD, 1, &options);
	node_settle(&node);
	subgroup = &node_job(&node, "train")->subgroups[1];
	flip(subgroup->sum_place.next.member->path,
	     subgroup->sum_place.next.offset_bytes + 2 * ZI_TILE_ELEMENTS + 5);
	cr_assert_eq(all_call(actors, WORLD, zero_step, NULL), -EBADMSG);
	cr_assert_not_null(strstr(actors[0].broken_text.chars,
	                          "gradients of unit 'u1' are damaged: 8192 bytes"),
	                   "%s", actors[0].broken_text.chars);
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	come_back(1, "run.1");
	buckets_end();
}

Test(zero_grad_store, rank_that_dies_while_sums_are_written_leaves_nothing)
{
	uint64_t free_bytes;

	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	begin_step(WORLD, 0);
	hand_over(0, 2);
	acquire(1, 2);
	actor_start(&actors[1], 0, zero_reduce, &(struct zero_op){ .unit = 2 });
	actor_leave(&actors[1], false);
	cr_assert(actors[0].is_broken);
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	come_back(1, "run.1");
	buckets_end();
}

static void restart(const char *backend, const char *incarnation)
{
	actors_leave(actors, WORLD, false);
	node_stop(&node);
	node.backend = backend;
	node_start(&node);
	model_attach(&node, actors, WORLD,
	             &(struct attach_options){
			     .incarnation = incarnation, .config = config, .training = training });
}

/* Gradients, as far as the step stands. Return: of step(). */
static int try_step(uint64_t number)
{
	struct zi_step_options options = options_of(0);
	int r = all_call(actors, WORLD, zero_step_begin, &(struct zero_op){ .options = options });

	for (uint32_t unit = UNITS; unit-- > 0 && !r;)
		for (uint32_t rank = 0; rank < WORLD && !r; rank++) {
			r = actor_unit(&actors[rank], zero_grad_acquire, unit);
			if (r)
				break;
			model_fill_grad(&actors[rank], number, 0, unit);
			r = actor_unit(&actors[rank], zero_reduce, unit);
		}
	return r ? r : all_call(actors, WORLD, zero_step, NULL);
}

static void fail_each(const char *what, uint32_t at_least)
{
	char backend[64], incarnation[16];
	uint64_t committed = 0, free_bytes;
	uint32_t failed_count = 0;

	buckets_begin(WORLD, ZI_OFFLOAD_NVME, BUCKET_BYTES);
	for (uint32_t k = 1; k < 60; k++) {
		(void)snprintf(backend, sizeof(backend), "faulty:over=threads,%s=%u", what, k);
		(void)snprintf(incarnation, sizeof(incarnation), "fail.%u", k);
		restart(backend, incarnation);
		if (buckets_materialize(WORLD))
			continue; /* Reading what is committed failed. */
		free_bytes = tier_extent_free_bytes(&node.nvme);
		if (!try_step(committed + 1)) {
			plain_train(&plain, committed + 1, committed + 1);
			committed++;
			break;
		}
		failed_count++;
		cr_assert(actors[0].is_broken, "k = %u", k);
		cr_assert_eq(actors[0].broken_error, -EIO, "k = %u: %s", k,
		             actors[0].broken_text.chars);
		node_settle(&node);
		cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "k = %u", k);
	}
	cr_assert_eq(committed, 1, "one was sound");
	cr_assert_geq(failed_count, at_least);
	restart("threads", "sound");
	cr_assert_eq(buckets_materialize(WORLD), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	buckets_end();
}

Test(zero_grad_store, any_write_that_fails_ends_the_step)
{
	fail_each("write_eio_at", 9);
}

Test(zero_grad_store, any_read_that_fails_ends_the_step)
{
	fail_each("read_eio_at", 3);
}
