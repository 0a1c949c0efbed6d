/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a unit's optimizer state that ranks read and write between steps: whatever the tier, it is
 * what the plain computation has, bit by bit; what was written is in force at once and durable with
 * the next commit, or void without it; zinf_param_write_end() can keep it.
 * Method: the model in memory, on NVMe, resident, and with a pool, beside the plain computation.
 */
#include "tests/unit/zero/state_world.h"

TestSuite(zero_state, .timeout = 120);

/* ---- reading ---- */

Test(zero_state, read_state_is_that_of_the_newest_step_on_every_tier)
{
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		start(&places[i]);
		expect_plain(&actors[0]);
		go_on(2, 2);
		finish();
	}
}

Test(zero_state, a_range_may_begin_and_end_anywhere)
{
	uint64_t middle = ZI_SUBGROUP_ELEMENTS - 7;

	for (size_t i = 1; i < 5; i++) {
		start(&places[i]);
		cr_assert_eq(range_of(&actors[0], 1, ZI_STATE_SECOND, middle, 20000), 0, "%s",
		             actors[0].text.chars);
		cr_assert_eq(memcmp(window(&actors[0]), plain.exp_avg_sq[1] + middle, 80000), 0);
		cr_assert_eq(range_of(&actors[0], 1, ZI_STATE_FIRST, model_elements[1] - 1, 1), 0);
		cr_assert_eq(
			memcmp(window(&actors[0]), plain.exp_avg[1] + model_elements[1] - 1, 4), 0);
		end(2);
	}
}

/* The other rank has begun the next step already, and even handed gradients over. */
Test(zero_state, state_is_read_during_a_step_until_its_update)
{
	for (size_t i = 1; i < 4; i++) {
		start(&places[i]);
		cr_assert_eq(step_begin(&actors[1], model_options()), 0);
		expect_plain(&actors[0]);
		cr_assert_eq(all_call(&actors[0], 1, zero_step_begin,
		                      &(struct zero_op){ .options = model_options() }),
		             0);
		expect_plain(&actors[0]);
		for (uint32_t k = 0; k < 2; k++)
			for (uint32_t unit = 0; unit < UNITS; unit++) {
				cr_assert_eq(actor_unit(&actors[k], zero_grad_acquire, unit), 0);
				model_fill_grad(&actors[k], 2, 0, unit);
				cr_assert_eq(actor_unit(&actors[k], zero_reduce, unit), 0);
			}
		actor_start(&actors[0], 1, zero_step, NULL);
		refused(&actors[0], -EBUSY, "a step is under way",
		        range_of(&actors[0], 0, ZI_STATE_FIRST, 0, 1));
		expect_plain(&actors[1]);
		cr_assert_eq(actor_call(&actors[1], zero_step, NULL), 0);
		cr_assert_eq(actor_wait(&actors[0], 1), 0);
		plain_train(&plain, 2, 2);
		finish();
	}
}

/* ---- writing ---- */

Test(zero_state, written_state_is_in_force_and_committed_on_every_tier)
{
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		start(&places[i]);
		write_all(500);
		expect_plain(&actors[0]);
		write_all(600); /* Once more before the commit. */
		expect_plain(&actors[0]);
		commit();
		expect_plain(&actors[1]);
		go_on(2, 3);
		finish();
	}
}

Test(zero_state, a_part_of_a_unit_is_written_and_the_rest_stays)
{
	uint64_t first = ZI_SUBGROUP_ELEMENTS - 100;

	for (size_t i = 1; i < 5; i++) {
		start(&places[i]);
		for (uint64_t k = 0; k < 300; k++)
			plain.exp_avg[1][first + k] = (float)k;
		memcpy(window(&actors[0]), plain.exp_avg[1] + first, 1200);
		cr_assert_eq(write_range(1, ZI_STATE_FIRST, first, 300, 0), 0, "%s",
		             actors[0].text.chars);
		expect_plain(&actors[1]);
		commit();
		go_on(2, 2);
		finish();
	}
}

/* The store's space is what it was: no extent is lost, and none is freed twice. */
Test(zero_state, state_that_was_not_committed_is_void_and_costs_nothing)
{
	for (size_t i = 2; i < 5; i++) {
		uint64_t free_bytes;
		float *moments[UNITS];

		start(&places[i]);
		free_bytes = tier_extent_free_bytes(&node.nvme);
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			moments[unit] = malloc(model_elements[unit] * 4);
			memcpy(moments[unit], plain.exp_avg[unit], model_elements[unit] * 4);
		}
		write_all(500);
		attach_again(&places[i], "two");
		cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			cr_assert_eq(
				range_of(&actors[0], unit, ZI_STATE_FIRST, 0, model_elements[unit]),
				0);
			cr_assert_eq(
				memcmp(window(&actors[0]), moments[unit], model_elements[unit] * 4),
				0);
			free(moments[unit]);
		}
		end(2);
	}
}

Test(zero_state, committed_state_survives_the_daemon)
{
	for (size_t i = 2; i < 5; i++) {
		start(&places[i]);
		write_all(500);
		cr_assert_eq(all_call(actors, 2, zero_state_count,
		                      &(struct zero_op){ .state = { .update_count = 40,
		                                                    .betas = { 0.9, 0.99 } } }),
		             0, "%s", actors[0].text.chars);
		plain.update_count = 40;
		plain.beta1_power = plain.beta2_power = 1;
		for (uint32_t k = 0; k < 40; k++) {
			plain.beta1_power *= 0.9;
			plain.beta2_power *= 0.99;
		}
		commit();
		restart_node(&places[i], "two");
		expect_plain(&actors[0]);
		cr_assert_eq(actors[0].memory.update_count, 40);
		go_on(2, 3);
		finish();
	}
}

Test(zero_state, a_step_waits_for_the_commit_of_what_was_written_to_the_store)
{
	start(&places[2]);
	write_all(500);
	refused(&actors[0], -EBUSY, "optimizer state of unit 'embed' was written and not committed",
	        step_begin(&actors[0], model_options()));
	commit();
	cr_assert_eq(all_call(actors, 2, zero_state_count,
	                      &(struct zero_op){ .state = { .update_count = 3 } }),
	             0);
	refused(&actors[0], -EBUSY, "the number of updates was written and not committed",
	        step_begin(&actors[0], model_options()));
	commit();
	cr_assert_eq(all_call(actors, 2, zero_step_begin,
	                      &(struct zero_op){ .options = model_options() }),
	             0);
	end(2);
}

Test(zero_state, a_count_that_was_not_committed_is_void)
{
	start(&places[2]);
	cr_assert_eq(all_call(actors, 2, zero_state_count,
	                      &(struct zero_op){ .state = { .update_count = 40 } }),
	             0);
	attach_again(&places[2], "two");
	cr_assert_eq(actors[0].memory.update_count, 1);
	go_on(2, 2);
	finish();
}

/* ---- beside written parameters ---- */

static void write_param(uint32_t unit, uint64_t what, bool keeps_state)
{
	uint32_t dtype = plain.config.param_dtype;

	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, unit), 0, "%s",
	             actors[0].text.chars);
	fill(zero_param_staging(actors[0].rank)->region.base, what, model_elements[unit], dtype);
	cr_assert_eq(all_call(actors, 2, zero_param_write_end,
	                      &(struct zero_op){ .unit = unit, .keeps_state = keeps_state }),
	             0, "%s", actors[0].text.chars);
	fill(plain.param[unit], what, model_elements[unit], dtype);
	memset(plain.remainder[unit], 0, zi_geometry_padded(model_elements[unit]) * 4);
	if (keeps_state)
		return;
	memset(plain.exp_avg[unit], 0, zi_geometry_padded(model_elements[unit]) * 4);
	memset(plain.exp_avg_sq[unit], 0, zi_geometry_padded(model_elements[unit]) * 4);
}

Test(zero_state, written_parameters_keep_their_moments_and_the_master_follows)
{
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		start(&places[i]);
		for (uint32_t unit = 0; unit < UNITS; unit++)
			write_param(unit, 700 + unit, true);
		expect_plain(&actors[0]);
		write_param(1, 800, true);
		commit();
		expect_plain(&actors[0]);
		go_on(2, 3);
		finish();
	}
}

Test(zero_state, state_and_parameters_are_written_in_any_order)
{
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		start(&places[i]);
		write_all(500);
		write_param(1, 700, false);
		expect_plain(&actors[0]);
		write_param(2, 701, true);
		write_all(600);
		expect_plain(&actors[0]);
		write_param(0, 702, true);
		commit();
		expect_plain(&actors[0]);
		go_on(2, 2);
		finish();
	}
}

Test(zero_state, state_of_a_model_that_never_stepped_is_zero_and_can_be_written)
{
	for (size_t i = 0; i < ZI_COUNT_OF(places); i++) {
		struct zi_job_config config = config_of(&places[i]);

		begin_with(2, &config);
		cr_assert_eq(all_call(actors, 2, zero_state_open, NULL), 0);
		expect_plain(&actors[0]);
		write_param(1, 701, true); /* Nothing to keep. */
		write_all(500);
		expect_plain(&actors[0]);
		commit();
		go_on(1, 2);
		finish();
	}
}

Test(zero_state, ranks_must_agree_to_keep_state)
{
	start(&places[2]);
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, 1), 0);
	actor_start(&actors[0], 0, zero_param_write_end,
	            &(struct zero_op){ .unit = 1, .keeps_state = true });
	refused(&actors[1], -EINVAL, "rank 1 ends a write of unit 1 and zeroes optimizer state",
	        actor_unit(&actors[1], zero_param_write_end, 1));
	cr_assert_eq(actor_call(&actors[1], zero_param_write_end,
	                        &(struct zero_op){ .unit = 1, .keeps_state = true }),
	             0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	end(2);
}
