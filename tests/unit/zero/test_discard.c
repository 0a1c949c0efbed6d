/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a step is discarded in every state that ranks may be in, and leaves nothing: training goes
 * on with the bits of a run without that step. Ranks that wait for a rank that discards get an
 * error. Method: steps stopped at many places beside the plain computation; ranks that come late,
 * not at all, or die.
 */
#include "daemon/tier/stripe.h"
#include "tests/unit/zero/deferred.h"
#include "tests/unit/zero/kept.h"
#include "tests/unit/zero/world.h"

TestSuite(zero_discard, .timeout = 240);

#define WORLD 2u

static int discard(void)
{
	return all_call(actors, WORLD, zero_step_discard, NULL);
}

static void begin_deferred(const struct zi_step_options *options)
{
	cr_assert_eq(all_call(actors, WORLD, zero_step_begin,
	                      &(struct zero_op){ .options = deferred_options(options) }),
	             0, "%s", actors[0].text.chars);
}

static void hand_over(uint32_t rank, uint64_t step, uint32_t unit)
{
	struct actor *actor = &actors[rank];

	cr_assert_eq(actor_unit(actor, zero_grad_acquire, unit), 0, "%s", actor->text.chars);
	model_fill_grad(actor, step, 0, unit);
	cr_assert_eq(actor_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
}

/* A step with the model's options, deferred or not, is right. */
static void step_is_right(uint64_t step)
{
	struct zi_step_options options = model_options();
	double norm = 0;

	if (step % 2) {
		cr_assert_eq(model_step(actors, WORLD, step, &options), 0, "%s",
		             actors[0].text.chars);
	} else {
		deferred_gradients(actors, WORLD, step, &options);
		cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0, "%s",
		             actors[0].text.chars);
	}
	plain_step(&plain, step, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "step %llu", (unsigned long long)step);
	cr_assert_eq(node_job(&node, "train")->current_step, (int64_t)plain.update_count);
}

/* Rank 0 has handed over @first units, rank 1 @second; then both discard. */
static void discard_after(uint32_t first, uint32_t second, bool is_deferred)
{
	struct zi_step_options options = model_options();
	int r;

	options.max_norm = 1;
	if (is_deferred)
		options = deferred_options(&options);
	r = all_call(actors, WORLD, zero_step_begin, &(struct zero_op){ .options = options });
	cr_assert_eq(r, 0, "%s", actors[0].text.chars);
	for (uint32_t unit = 0; unit < first; unit++)
		hand_over(0, 77, unit);
	for (uint32_t unit = 0; unit < second; unit++)
		hand_over(1, 77, unit);
	cr_assert_eq(discard(), 0, "%s", actors[0].text.chars);
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_NONE);
}

static void discards_of_all_kinds(void)
{
	uint64_t step = 1, free_bytes;

	step_is_right(step++);
	step_is_right(step++);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	for (uint32_t first = 0; first <= UNITS; first++)
		for (uint32_t second = 0; second <= UNITS; second += 1 + first % 2) {
			discard_after(first, second, (first + second) % 2);
			cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes,
			             "nothing is reserved");
			if (second != 1)
				step_is_right(step++);
			free_bytes = tier_extent_free_bytes(&node.nvme);
		}
	/* One after the other. */
	for (uint32_t i = 0; i < 3; i++)
		discard_after(UNITS, UNITS, i % 2);
	step_is_right(step++);
}

Test(zero_discard, state_in_memory)
{
	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	discards_of_all_kinds();
	end(WORLD);
}

Test(zero_discard, state_on_nvme)
{
	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	discards_of_all_kinds();
	end(WORLD);
}

Test(zero_discard, parameters_on_nvme)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.offload_param = ZI_OFFLOAD_NVME;
	begin_staged(WORLD, &config, 12 * MIB);
	discards_of_all_kinds();
	end(WORLD);
}

Test(zero_discard, steps_between_commits)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.commit_interval = 3;
	begin_with(WORLD, &config);
	for (uint64_t step = 1; step <= 8; step++) {
		discard_after(UNITS, (uint32_t)step % UNITS, step % 2);
		cr_assert_eq(model_step(actors, WORLD, step, &options), 0, "%s",
		             actors[0].text.chars);
		plain_step(&plain, step, &options);
		cr_assert(plain_equals(&plain, &actors[0]));
		cr_assert_eq(node_job(&node, "train")->committed_step, (int64_t)(step / 3 * 3));
	}
	end(WORLD);
}

Test(zero_discard, micro_batches_that_the_daemon_adds_up)
{
	struct zi_step_options options = model_options();

	options.micro_batches = 3;
	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_SHARDED);
	for (uint64_t step = 1; step <= 3; step++) {
		struct zi_step_options begun = deferred_options(&options);
		double norm = 0;

		cr_assert_eq(all_call(actors, WORLD, zero_step_begin,
		                      &(struct zero_op){ .options = begun }),
		             0);
		for (uint32_t micro = 0; micro < step; micro++)
			for (uint32_t unit = 0; unit < UNITS; unit++)
				for (uint32_t rank = 0; rank < WORLD; rank++)
					hand_over(rank, 99, unit);
		cr_assert_eq(discard(), 0);
		deferred_gradients(actors, WORLD, step, &options);
		cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0);
		plain_step(&plain, step, &options);
		cr_assert(plain_equals(&plain, &actors[1]));
	}
	end(WORLD);
}

Test(zero_discard, sums_in_flight_are_waited_for)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	begin_deferred(&options);
	/* No turn of the loop: state is being read, and sums are with the device. */
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t rank = 0; rank < WORLD; rank++)
			actor_start(&actors[rank], 0, zero_reduce,
			            &(struct zero_op){ .unit = unit });
	cr_assert_gt(node_job(&node, "train")->step.reduce_count, 0);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		actor_start(&actors[rank], 1, zero_step_discard, NULL);
	cr_assert_not(actors[0].calls[1].is_done);
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_STEPPING);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		cr_assert_eq(actor_wait(&actors[rank], 1), 0, "%s", actors[rank].text.chars);
	step_is_right(1);
	end(WORLD);
}

Test(zero_discard, rank_that_waits_for_the_norm_is_told)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	begin_deferred(&options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(0, 1, unit);
	actor_start(&actors[0], 1, zero_grad_norm, NULL);
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	refused(&actors[0], -ECANCELED, "rank 1 (pid ", actor_wait(&actors[0], 1));
	refused(&actors[0], -ECANCELED, "call zinf_step_discard()",
	        actor_call(&actors[0], zero_grad_norm, NULL));
	refused(&actors[0], -ECANCELED, "discards", actor_unit(&actors[0], zero_grad_acquire, 0));
	refused(&actors[0], -ECANCELED, "discards",
	        actor_call(&actors[0], zero_step_options, &(struct zero_op){ .options = options }));
	refused(&actors[0], -ECANCELED, "discards", actor_call(&actors[0], zero_step, NULL));
	cr_assert_not(actors[1].calls[0].is_done);
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	step_is_right(1);
	end(WORLD);
}

/* Ranks skip a step by its norm, and one asks for the norm when the other discards already. */
Test(zero_discard, norm_that_all_gradients_gave_is_told_while_a_rank_discards)
{
	struct zi_step_options options = model_options();
	double norm;

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	begin_deferred(&options);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			hand_over(rank, 1, unit);
	cr_assert_eq(actor_call(&actors[1], zero_grad_norm, NULL), 0);
	norm = actors[1].calls[0].op.norm;
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	cr_assert_eq(actor_call(&actors[0], zero_grad_norm, NULL), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].calls[0].op.norm, norm);
	cr_assert_gt(norm, 0);
	cr_assert_not(actors[1].calls[0].is_done);
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	step_is_right(1);
	end(WORLD);
}

Test(zero_discard, rank_that_has_ended_the_step_is_told_and_may_end_it_again)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	model_gradients(actors, WORLD, 1, &options);
	actor_start(&actors[0], 1, zero_step, NULL);
	actor_start(&actors[0], 2, zero_unshard, NULL);
	cr_assert_not(actors[0].calls[2].is_done);
	refused(&actors[0], -EBUSY, "has ended this step",
	        actor_call(&actors[0], zero_step_discard, NULL));
	actors[1].rank->timeout_ns = 50 * ZI_NS_PER_MS;
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	refused(&actors[0], -ECANCELED, "rank 1", actor_wait(&actors[0], 1));
	cr_assert_eq(actor_wait(&actors[0], 2), 0, "the step is not to be: present values");
	refused(&actors[1], -ETIMEDOUT, "rank 0 (pid ", actor_wait(&actors[1], 0));
	cr_assert_not_null(strstr(actors[1].text.chars, "did not come"));
	/* Nobody discards it any more. */
	actors[1].rank->timeout_ns = TURN_LIMIT_NS;
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 0), 0);
	cr_assert_eq(all_call(actors, WORLD, zero_step, NULL), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(WORLD);
}

Test(zero_discard, units_stay_unsharded)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.offload_param = ZI_OFFLOAD_NVME;
	begin_staged(WORLD, &config, 12 * MIB);
	begin_deferred(&options);
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 1), 0);
	cr_assert_eq(discard(), 0);
	refused(&actors[1], -EINVAL, "was not unsharded", actor_unit(&actors[1], zero_reshard, 1));
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 1), 0);
	step_is_right(1);
	step_is_right(2);
	end(WORLD);
}

Test(zero_discard, calls_out_of_order_are_refused)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	refused(&actors[0], -EINVAL, "before step_begin",
	        actor_call(&actors[0], zero_step_discard, NULL));
	cr_assert_eq(step_begin(&actors[0], deferred_options(&options)), 0);
	refused(&actors[1], -EINVAL, "before step_begin",
	        actor_call(&actors[1], zero_step_discard, NULL));
	actor_start(&actors[0], 0, zero_step_discard, NULL);
	refused(&actors[0], -EINVAL, "after step_discard",
	        actor_unit_at(&actors[0], 1, zero_reduce, 0));
	cr_assert_eq(step_begin(&actors[1], deferred_options(&options)), 0);
	cr_assert_eq(actor_unit(&actors[1], zero_reduce, 0), 0, "nobody waits for it");
	cr_assert_eq(actor_call(&actors[1], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	step_is_right(1);
	end(WORLD);
}

Test(zero_discard, call_that_is_made_again_takes_the_place_of_the_former)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	begin_deferred(&options);
	actor_start(&actors[0], 0, zero_step_discard, NULL);
	actor_start(&actors[0], 1, zero_step_discard, NULL);
	refused(&actors[0], -ECANCELED, "called again", actor_wait(&actors[0], 0));
	cr_assert_eq(actor_call(&actors[1], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	step_is_right(1);
	end(WORLD);
}

static void dies(bool is_second_there)
{
	struct zi_step_options options = model_options();

	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	step_is_right(1);
	begin_deferred(&options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t rank = 0; rank < WORLD; rank++)
			actor_start(&actors[rank], 1, zero_reduce,
			            &(struct zero_op){ .unit = unit });
	actor_start(&actors[0], 0, zero_step_discard, NULL);
	if (is_second_there)
		actor_start(&actors[1], 0, zero_step_discard, NULL);
	cr_assert_not(actors[0].calls[0].is_done);
	actor_leave(&actors[1], false);
	refused(&actors[0], -EPIPE, "rank 1", actor_wait(&actors[0], 0));
	actor_leave(&actors[0], true);
	node_settle(&node);
	model_attach(
		&node, actors, WORLD,
		&(struct attach_options){ .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME) });
	cr_assert_eq(model_materialize(actors, WORLD), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	step_is_right(2);
	end(WORLD);
}

Test(zero_discard, rank_that_dies_before_it_came_ends_the_group)
{
	dies(false);
}

Test(zero_discard, rank_that_dies_while_sums_are_waited_for_ends_the_group)
{
	dies(true);
}

Test(zero_discard, step_that_is_updated_early_is_refused)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(
		all_call(actors, WORLD, zero_step_begin, &(struct zero_op){ .options = options }),
		0);
	hand_over(0, 1, 1);
	cr_assert_eq(discard(), 0, "no unit is ready");
	cr_assert_eq(
		all_call(actors, WORLD, zero_step_begin, &(struct zero_op){ .options = options }),
		0);
	actor_start(&actors[0], 0, zero_step_discard, NULL);
	cr_assert_eq(actor_unit(&actors[1], zero_reduce, 1), 0);
	cr_assert_eq(actor_call(&actors[1], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	cr_assert_eq(
		all_call(actors, WORLD, zero_step_begin, &(struct zero_op){ .options = options }),
		0);
	hand_over(0, 1, 1);
	hand_over(1, 1, 1);
	refused(&actors[0], -EOPNOTSUPP, "unit 'h.0' is updated already",
	        actor_call(&actors[0], zero_step_discard, NULL));
	for (uint32_t unit = 0; unit < UNITS; unit += 2)
		for (uint32_t rank = 0; rank < WORLD; rank++)
			hand_over(rank, 1, unit);
	cr_assert_eq(all_call(actors, WORLD, zero_step, NULL), 0);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(WORLD);
}

/* The last gradient of a unit comes after the first discard. */
Test(zero_discard, step_that_a_rank_discards_is_not_updated_early)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(
		all_call(actors, WORLD, zero_step_begin, &(struct zero_op){ .options = options }),
		0);
	hand_over(0, 77, 1);
	actor_start(&actors[0], 1, zero_step_discard, NULL);
	cr_assert_eq(actor_unit(&actors[1], zero_reduce, 1), 0);
	cr_assert_eq(actor_call(&actors[1], zero_step_discard, NULL), 0, "%s",
	             actors[1].text.chars);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	step_is_right(1);
	end(WORLD);
}

/* State in memory is written for a snapshot while the step is under way: that ends first. */
Test(zero_discard, snapshot_that_is_being_written_is_kept)
{
	struct zi_step_options options = model_options();
	struct kept kept = { 0 };

	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	step_is_right(1);
	begin_deferred(&options);
	hand_over(0, 2, 1);
	kept_start(&node, &kept, zero_snapshot_create, "train", "");
	cr_assert_eq(node_job(&node, "train")->pipeline.kind, ZERO_PIPELINE_KEEP);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		actor_start(&actors[rank], 0, zero_step_discard, NULL);
	cr_assert_not(actors[0].calls[0].is_done);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		cr_assert_eq(actor_wait(&actors[rank], 0), 0, "%s", actors[rank].text.chars);
	cr_assert_eq(kept_wait(&node, &kept), 0, "%s", kept.op.text.chars);
	cr_assert_eq(kept.op.step, 1);
	step_is_right(2);
	node_check_space(&node);
	end(WORLD);
}

/* Its own units are of one rank each; the norm is of all. */
Test(zero_discard, ranks_that_train_other_units)
{
	static const struct model_set sets[UNITS] = { { "all", 3 }, { "one", 1 }, { "two", 2 } };
	struct zi_step_options options = model_options();
	double norm = 0;

	model_sets = sets;
	begin(WORLD, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	for (uint64_t step = 1; step <= 2; step++) {
		begin_deferred(&options);
		hand_over(0, 9, 1);
		if (step == 2)
			hand_over(1, 9, 2);
		cr_assert_eq(discard(), 0, "%s", actors[0].text.chars);
		deferred_gradients(actors, WORLD, step, &options);
		cr_assert_eq(deferred_end(actors, WORLD, &options, &norm), 0);
		plain_step(&plain, step, &options);
		cr_assert_eq(norm, plain.norm);
		cr_assert(plain_equals(&plain, &actors[0]));
	}
	end(WORLD);
}

/* Rank 1 holds all the pool has room for, and discards the step; rank 0 would wait for room. */
Test(zero_discard, rank_that_waits_for_room_is_told)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = 2 * 530000 + 8192;
	begin_staged(WORLD, &config, 12 * MIB);
	begin_deferred(&options);
	cr_assert_eq(actor_unit(&actors[1], zero_unshard, 1), 0, "%s", actors[1].text.chars);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = 2 });
	node_settle(&node);
	cr_assert_not(actors[0].calls[1].is_done, "%s", actors[0].calls[1].op.text.chars);
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	refused(&actors[0], -ECANCELED, "rank 1 (pid ", actor_wait(&actors[0], 1));
	refused(&actors[0], -ECANCELED, "rank 1 (pid ", actor_unit(&actors[0], zero_unshard, 2));
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 1), 0);
	step_is_right(1);
	end(WORLD);
}

/* Rank 0 is in the forward of the step that rank 1 discards, and waits for room that comes. */
Test(zero_discard, rank_that_has_not_begun_the_step_goes_on_waiting)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = 2 * 530000 + 8192;
	begin_staged(WORLD, &config, 12 * MIB);
	node.is_disk_held = true;
	actor_start(&actors[1], 1, zero_prefetch, &(struct zero_op){ .unit = 1 });
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = 2 });
	cr_assert_eq(step_begin(&actors[1], deferred_options(&options)), 0);
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	for (uint32_t i = 0; i < 20; i++)
		node_turn(&node);
	cr_assert_not(actors[0].calls[1].is_done, "%s", actors[0].calls[1].op.text.chars);
	node.is_disk_held = false;
	(void)nvme_engine_reap(node.engine);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 2), 0);
	cr_assert_eq(step_begin(&actors[0], deferred_options(&options)), 0);
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	step_is_right(1);
	end(WORLD);
}

/* Rank 1 holds all the room, and waits for rank 0. */
Test(zero_discard, rank_that_has_not_begun_the_step_and_stands_still_is_refused)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = 2 * 530000 + 8192;
	begin_staged(WORLD, &config, 12 * MIB);
	cr_assert_eq(step_begin(&actors[1], deferred_options(&options)), 0);
	cr_assert_eq(actor_unit(&actors[1], zero_unshard, 1), 0);
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	refused(&actors[0], -ENOSPC, "param_budget_bytes", actor_unit(&actors[0], zero_unshard, 2));
	cr_assert_eq(step_begin(&actors[0], deferred_options(&options)), 0);
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 1), 0);
	step_is_right(1);
	end(WORLD);
}

Test(zero_discard, rank_that_waits_for_the_norm_stands_still)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = 2 * 530000 + 8192;
	begin_staged(WORLD, &config, 12 * MIB);
	begin_deferred(&options);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(1, 1, unit);
	/* Rank 1 holds the pool and stands still for rank 0, which needs room: it is refused. */
	cr_assert_eq(actor_unit(&actors[1], zero_unshard, 1), 0);
	actor_start(&actors[1], 1, zero_grad_norm, NULL);
	refused(&actors[0], -ENOSPC, "param_budget_bytes", actor_unit(&actors[0], zero_unshard, 2));
	actor_start(&actors[0], 0, zero_step_discard, NULL);
	refused(&actors[1], -ECANCELED, "rank 0", actor_wait(&actors[1], 1));
	cr_assert_eq(actor_call(&actors[1], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 1), 0);
	step_is_right(1);
	end(WORLD);
}

/* A rank that is alone may discard the step while it waits for its norm, as after an interrupt. */
Test(zero_discard, norm_of_a_rank_alone_ends_with_its_step)
{
	struct zi_step_options options = model_options();

	begin(1, ZI_OFFLOAD_NVME, ZI_SCHEDULE_SHARDED);
	cr_assert_eq(step_begin(&actors[0], deferred_options(&options)), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		actor_start(&actors[0], 0, zero_reduce, &(struct zero_op){ .unit = unit });
	cr_assert_gt(node_job(&node, "train")->step.reduce_count, 0);
	actor_start(&actors[0], 1, zero_grad_norm, NULL);
	actor_start(&actors[0], 2, zero_step_discard, NULL);
	cr_assert_eq(actor_wait(&actors[0], 2), 0, "%s", actors[0].text.chars);
	cr_assert(actors[0].calls[1].is_done);
	refused(&actors[0], -ECANCELED, "its step is over", actor_wait(&actors[0], 1));
	/* A step without a norm. */
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(1);
}

/* The discard of rank 1 timed out, and the step was discarded after that; rank 1 then joins. */
Test(zero_discard, rank_that_missed_the_end_and_joins_discards_the_step_that_it_shadows)
{
	struct zi_step_options options = model_options();
	struct zi_step_options joined = options;

	joined.flags = ZI_STEP_JOINED;
	begin(WORLD, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	begin_deferred(&options);
	cr_assert_eq(discard(), 0);
	node_job(&node, "train")->group.discarded_mask = 2;
	cr_assert_eq(step_begin(&actors[0], deferred_options(&options)), 0);
	cr_assert_eq(step_begin(&actors[1], joined), 0, "%s", actors[1].text.chars);
	actor_start(&actors[1], 0, zero_step_discard, NULL);
	cr_assert_not(actors[1].calls[0].is_done, "rank 0 has not come");
	cr_assert_eq(actor_call(&actors[0], zero_step_discard, NULL), 0);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	step_is_right(1);
	end(WORLD);
}
