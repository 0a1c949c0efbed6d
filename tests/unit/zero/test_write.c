/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: parameters that a rank writes between steps: in force for all at write_end, committed with
 * the next commit, optimizer state of the unit anew; refused wherever a step or another write is.
 * Method: writes at and out of their time beside the plain computation.
 */
#include "daemon/zero/param/write.h"
#include "tests/unit/zero/world.h"

static void rewrite_between_steps(uint32_t optimizer, uint32_t offload, uint64_t resident_bytes)
{
	struct zi_step_options options = model_options();
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, offload);

	config.optimizer = optimizer;
	config.resident_bytes = resident_bytes;
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 2);
	model_begin(&node, actors, 2, &(struct attach_options){ .config = config });
	cr_assert_eq(model_step(actors, 2, 1, &options), 0);
	plain_step(&plain, 1, &options);
	model_write_unit(actors, 2, 1, 700);
	fill(plain.param[1], 701, model_elements[1], ZI_DTYPE_BF16);
	memset(plain.remainder[1], 0, zi_geometry_padded(model_elements[1]) * 2);
	memset(plain.exp_avg[1], 0, zi_geometry_padded(model_elements[1]) * 4);
	memset(plain.exp_avg_sq[1], 0, zi_geometry_padded(model_elements[1]) * 4);
	cr_assert(plain_equals(&plain, &actors[1]));
	cr_assert_eq(all_call(actors, 2, zero_commit, NULL), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].calls[0].op.stats.step, 1, "the step stays");
	for (uint64_t step = 2; step <= 3; step++) {
		cr_assert_eq(model_step(actors, 2, step, &options), 0, "%s", actors[0].text.chars);
		plain_step(&plain, step, &options);
		cr_assert(plain_equals(&plain, &actors[0]), "step %d", (int)step);
	}
	end(2);
}

Test(zero_write, unit_rewritten_between_steps_begins_anew_in_memory)
{
	rewrite_between_steps(ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_CPU, 0);
}

Test(zero_write, unit_rewritten_between_steps_begins_anew_on_nvme)
{
	rewrite_between_steps(ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_NVME, 0);
}

Test(zero_write, unit_rewritten_between_steps_begins_anew_when_resident)
{
	rewrite_between_steps(ZI_OPTIMIZER_ADAMW, ZI_OFFLOAD_NVME, 64 * MIB);
}

Test(zero_write, unit_rewritten_between_steps_begins_anew_with_one_moment)
{
	rewrite_between_steps(ZI_OPTIMIZER_ADAGRAD, ZI_OFFLOAD_CPU, 0);
	rewrite_between_steps(ZI_OPTIMIZER_ADAGRAD, ZI_OFFLOAD_NVME, 0);
	rewrite_between_steps(ZI_OPTIMIZER_LION, ZI_OFFLOAD_NVME, 64 * MIB);
}

Test(zero_write, writes_are_refused_where_they_do_not_fit)
{
	begin(2, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	refused(&actors[0], -EINVAL, "root 0 has not begun",
	        actor_unit(&actors[0], zero_param_write_end, 1));
	refused(&actors[0], -EINVAL, "root is 7 of 2",
	        actor_call(&actors[0], zero_param_write_end, &(struct zero_op){ .root = 7 }));
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, 1), 0);
	refused(&actors[0], -EBUSY, "'h.0' is open for writing already",
	        actor_unit(&actors[0], zero_param_write_begin, 0));
	refused(&actors[1], -EBUSY, "rank 0 has unit 'h.0' open",
	        step_begin(&actors[1], model_options()));
	refused(&actors[1], -EBUSY, "rank 0 has unit 'h.0' open",
	        actor_call(&actors[1], zero_commit, NULL));
	actor_start(&actors[0], 0, zero_param_write_end, &(struct zero_op){ .unit = 1 });
	refused(&actors[1], -EINVAL, "but rank 0 of unit 1 from root 0",
	        actor_call(&actors[1], zero_param_write_end, &(struct zero_op){ .unit = 2 }));
	cr_assert_eq(actor_unit(&actors[1], zero_param_write_end, 1), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	cr_assert_null(zero_param_staging(actors[0].rank), "the copy is gone");
	end(2);
}

/* For the largest unit: 530000 elements, padded, of two bytes. What a process received stays
 * charged while it lives, so a second copy for the same rank would stay as well. */
Test(zero_write, written_copy_begins_with_the_present_values_and_is_charged_once)
{
	uint64_t used_bytes;

	begin(2, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	used_bytes = node.cpu.used_bytes;
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		cr_assert_eq(actor_unit(&actors[1], zero_param_write_begin, unit), 0);
		cr_assert_eq(memcmp(zero_param_staging(actors[1].rank)->region.base,
		                    plain.param[unit], model_elements[unit] * 2),
		             0);
		cr_assert_eq(node.cpu.used_bytes, used_bytes + 532480 * 2);
		actor_start(&actors[0], 0, zero_param_write_end,
		            &(struct zero_op){ .unit = unit, .root = 1 });
		cr_assert_eq(actor_call(&actors[1], zero_param_write_end,
		                        &(struct zero_op){ .unit = unit, .root = 1 }),
		             0);
		cr_assert_eq(actor_wait(&actors[0], 0), 0);
	}
	end(2);
}

Test(zero_write, a_write_without_room_is_refused_with_figures)
{
	begin(2, ZI_OFFLOAD_CPU, ZI_SCHEDULE_LOCAL);
	node.cpu.capacity_bytes = node.cpu.used_bytes;
	refused(&actors[1], -ENOSPC, "0 B free", actor_unit(&actors[1], zero_param_write_begin, 0));
	end(2);
}
