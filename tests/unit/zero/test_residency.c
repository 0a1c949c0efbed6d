/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with parameters on NVMe a rank finds in its pool what was committed, whatever came and
 * went; a demand waits while it can be met, and is refused with figures when it cannot; nothing
 * that is pinned moves; damage is found and named. Method: a node whose pool holds less than the
 * model, one to three ranks that pin and wait in chosen orders, and the store's bytes turned by
 * hand.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/place/extent.h"
#include "tests/unit/zero/flip.h"
#include "tests/unit/zero/pool.h"

TestSuite(zero_residency, .timeout = 120);

Test(zero_residency, units_come_and_go_and_are_what_was_committed)
{
	pool_begin(1, 260 * SLOT, 0);
	for (int round = 0; round < 3; round++) {
		cr_assert(plain_equals_unit(&plain, &actors[0], EMBED));
		cr_assert(plain_equals_unit(&plain, &actors[0], HEAD));
		cr_assert(pool_has(EMBED) && pool_has(HEAD));
		cr_assert(plain_equals_unit(&plain, &actors[0], H0));
		cr_assert(!pool_has(EMBED) && !pool_has(HEAD), "it takes the whole pool");
	}
	cr_assert_eq(pool_of()->miss_count, 9);
	cr_assert_eq(pool_of()->hit_count, 0);
	pool_end(1);
}

Test(zero_residency, what_is_still_there_is_not_read_again)
{
	uint64_t read_bytes;

	pool_begin(1, 272 * SLOT, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	read_bytes = pool_of()->fetches.read_bytes;
	cr_assert_eq(read_bytes, (4096 + 532480 + 20480) * 2);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert_eq(pool_of()->fetches.read_bytes, read_bytes);
	cr_assert_eq(pool_of()->hit_count, 3);
	cr_assert_eq(pool_of()->evicted_count, 0);
	pool_end(1);
}

Test(zero_residency, pool_below_the_largest_unit_is_refused_with_figures)
{
	config = pool_config(259 * SLOT);
	node_init(&node);
	node_start(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	expect_refused(&actors[0], -ENOSPC, "unit 'h.0' takes", model_materialize(actors, 1));
	cr_assert_not_null(strstr(actors[0].text.chars, "1064960"), "%s", actors[0].text.chars);
	actor_leave(&actors[0], true);
	node_deinit(&node);
}

Test(zero_residency, without_a_budget_the_daemon_chooses_one)
{
	pool_begin(1, 0, 0);
	cr_assert_eq(pool_of()->slot_count, 272, "three of the largest, but no more than all");
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

Test(zero_residency, demand_that_its_own_rank_blocks_is_refused_and_may_come_again)
{
	pool_begin(1, 260 * SLOT, 0);
	unshard(&actors[0], EMBED);
	expect_refused(&actors[0], -ENOSPC, "reshard first",
	               actor_unit(&actors[0], zero_unshard, H0));
	cr_assert_not_null(strstr(actors[0].text.chars, "1 unsharded units hold 8 KiB"), "%s",
	                   actors[0].text.chars);
	reshard(&actors[0], EMBED);
	cr_assert(plain_equals_unit(&plain, &actors[0], H0));
	pool_end(1);
}

Test(zero_residency, demand_waits_for_another_rank_to_reshard)
{
	pool_begin(2, 260 * SLOT, 0);
	unshard(&actors[0], EMBED);
	actor_start(&actors[1], 0, zero_unshard, &(struct zero_op){ .unit = H0 });
	node_settle(&node);
	cr_assert_not(actors[1].calls[0].is_done);
	cr_assert(pool_has(EMBED), "what is pinned stays");
	reshard(&actors[0], EMBED);
	cr_assert_eq(actor_wait(&actors[1], 0), 0, "%s", actors[1].text.chars);
	reshard(&actors[1], H0);
	pool_end(2);
}

Test(zero_residency, demand_that_waits_too_long_says_for_what)
{
	pool_begin(2, 260 * SLOT, 0);
	unshard(&actors[0], EMBED);
	/* What comes before takes as long as the machine does. */
	actors[1].rank->timeout_ns = 100 * ZI_NS_PER_MS;
	expect_refused(&actors[1], -ETIMEDOUT, "param_budget_bytes",
	               actor_unit(&actors[1], zero_unshard, H0));
	pool_end(2);
}

Test(zero_residency, two_ranks_that_block_each_other_hear_of_it_and_one_goes_on)
{
	pool_begin(2, 260 * SLOT, 0);
	unshard(&actors[0], EMBED);
	unshard(&actors[1], HEAD);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = H0 });
	node_settle(&node);
	cr_assert_eq(actors[0].calls[1].is_done, true, "its own unit is in the way already");
	cr_assert_eq(actors[0].calls[1].op.result, -ENOSPC);
	reshard(&actors[0], EMBED);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = H0 });
	node_settle(&node);
	cr_assert_not(actors[0].calls[1].is_done, "rank 1 may reshard yet");
	/* It will not: it waits for the same unit, and keeps its own. */
	expect_refused(&actors[1], -ENOSPC, "reshard first",
	               actor_unit(&actors[1], zero_unshard, H0));
	reshard(&actors[1], HEAD);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	pool_end(2);
}

Test(zero_residency, rank_that_stands_still_for_the_one_that_waits_counts_as_waiting)
{
	pool_begin(2, 260 * SLOT, 0);
	unshard(&actors[0], EMBED);
	actor_start(&actors[0], 1, zero_barrier, NULL);
	expect_refused(&actors[1], -ENOSPC, "reshard first",
	               actor_unit(&actors[1], zero_unshard, H0));
	cr_assert_eq(actor_call(&actors[1], zero_barrier, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	pool_end(2);
}

Test(zero_residency, ranks_share_one_copy_until_the_last_has_resharded)
{
	uint64_t offset;

	pool_begin(3, 262 * SLOT, 0);
	for (int i = 0; i < 3; i++) {
		unshard(&actors[i], HEAD);
		offset = actors[i].calls[0].op.offset_bytes;
		cr_assert_eq(offset, actors[0].calls[0].op.offset_bytes);
	}
	cr_assert_eq(pool_of()->miss_count, 1);
	reshard(&actors[0], HEAD);
	reshard(&actors[2], HEAD);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = H0 });
	node_settle(&node);
	cr_assert_not(actors[0].calls[1].is_done);
	reshard(&actors[1], HEAD);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	pool_end(3);
}

Test(zero_residency, death_of_a_rank_that_pins_ends_the_wait_and_the_pool)
{
	config = pool_config(260 * SLOT);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 2);
	pool_attach(2, 0);
	model_write(actors, 2);
	unshard(&actors[0], EMBED);
	actor_start(&actors[1], 0, zero_unshard, &(struct zero_op){ .unit = H0 });
	node_settle(&node);
	actor_leave(&actors[0], false);
	cr_assert_eq(actor_wait(&actors[1], 0), -EPIPE, "%s", actors[1].text.chars);
	actor_leave(&actors[1], true);
	node_settle(&node);
	cr_assert_lt(node.cpu.used_bytes, 260 * SLOT, "nobody looks at the pool any more");
	/* The next incarnation has a pool of its own. */
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	plain.world = 1;
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

static uint64_t param_offset_of(uint32_t unit, uint32_t index)
{
	const struct zero_job *job = node_job(&node, "train");

	return job->subgroups[job->units[unit].subgroup_first + index]
	        .places[ZERO_PLANE_PARAM]
	        .extent.offset_bytes;
}

Test(zero_residency, damage_is_named_at_the_unshard_and_others_are_sound)
{
	char place[32];
	uint64_t offset;

	pool_begin(2, 260 * SLOT, 0);
	offset = param_offset_of(H0, 2);
	/* The second tile of the last subgroup. */
	(void)snprintf(place, sizeof(place), "offset %llu", (unsigned long long)offset);
	flip(node.store_path, offset + 5);
	for (int i = 0; i < 2; i++) {
		expect_refused(&actors[i], -EBADMSG, "unit 'h.0' are damaged",
		               actor_unit(&actors[i], zero_unshard, H0));
		cr_assert_not_null(strstr(actors[i].text.chars, place), "%s", actors[i].text.chars);
		cr_assert_not_null(strstr(actors[i].text.chars, node.store_path));
	}
	cr_assert(!pool_has(H0));
	cr_assert(plain_equals_unit(&plain, &actors[0], HEAD));
	/* A medium that has thought better of it: nothing was kept of the bad read. */
	flip(node.store_path, offset + 5);
	cr_assert(plain_equals_unit(&plain, &actors[0], H0));
	pool_end(2);
}

Test(zero_residency, damage_met_by_an_update_in_staging_ends_the_step_in_the_former_one)
{
	struct zi_step_options options = model_options();

	pool_begin(1, 260 * SLOT, 0);
	flip(node.store_path, param_offset_of(HEAD, 0));
	cr_assert_eq(model_step(actors, 1, 1, &options), -EBADMSG);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "unit 'head' are damaged"), "%s",
	                   actors[0].broken_text.chars);
	actor_leave(&actors[0], true);
	node_settle(&node);
	flip(node.store_path, param_offset_of(HEAD, 0));
	pool_attach(1, 0);
	cr_assert_eq(actors[0].memory.committed_step, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

Test(zero_residency, failed_read_is_told_to_who_waits_and_may_be_tried_again)
{
	pool_begin(1, 260 * SLOT, 0);
	actor_leave(&actors[0], true);
	node_stop(&node);
	node.backend = "faulty:over=threads,read_eio_at=2";
	node_start(&node);
	pool_attach(1, 0);
	expect_refused(&actors[0], -EIO, "reading parameters of unit 'h.0'",
	               actor_unit(&actors[0], zero_unshard, H0));
	cr_assert_not(actors[0].is_broken);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

/* ---- steps ---- */

/* Each unit forward, then backward: what a trainer does beside model_step(). */
static void use_all(uint32_t world)
{
	for (uint32_t k = 0; k < 2 * UNITS; k++)
		for (uint32_t i = 0; i < world; i++) {
			uint32_t unit = k < UNITS ? k : 2 * UNITS - 1 - k;

			unshard(&actors[i], unit);
			reshard(&actors[i], unit);
		}
}

static void train(uint32_t world, uint64_t budget_bytes, uint64_t resident_bytes, double max_norm)
{
	struct zi_step_options options = model_options();

	options.max_norm = max_norm;
	config = pool_config(budget_bytes);
	config.resident_bytes = resident_bytes;
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, world);
	pool_attach(world, 0);
	model_write(actors, world);
	for (uint64_t step = 1; step <= 4; step++) {
		use_all(world);
		cr_assert_eq(model_step(actors, world, step, &options), 0, "%s",
		             actors[0].text.chars);
		plain_step(&plain, step, &options);
		cr_assert(plain_equals(&plain, &actors[world - 1]), "step %llu",
		          (unsigned long long)step);
	}
	pool_end(world);
}

Test(zero_residency, steps_update_what_is_there_in_place_and_the_rest_in_staging)
{
	train(1, 260 * SLOT, 0, 0);
	train(2, 262 * SLOT, 0, 0.25);
	train(2, 272 * SLOT, 64 * MIB, 0);
	train(1, 260 * SLOT, 3 * MIB, 0.25);
}

Test(zero_residency, step_reads_parameters_only_where_they_are_not_in_the_pool)
{
	const uint64_t state_bytes = (4096 + 532480 + 20480) * 10;
	struct zi_step_options options = model_options();

	pool_begin(1, 260 * SLOT, 0);
	node.zero->options.is_staging_kept = false;
	cr_assert_eq(model_step(actors, 1, 1, &options), 0);
	cr_assert_eq(actors[0].calls[0].op.stats.read_bytes, (4096 + 532480 + 20480) * 2,
	             "no state yet");
	cr_assert_eq(actors[0].calls[0].op.stats.write_bytes, (4096 + 532480 + 20480) * 12);
	unshard(&actors[0], H0);
	reshard(&actors[0], H0);
	cr_assert_eq(model_step(actors, 1, 2, &options), 0);
	cr_assert_eq(actors[0].calls[0].op.stats.read_bytes, state_bytes + (4096 + 20480) * 2);
	pool_end(1);
}

/* ---- values that ranks write ---- */

Test(zero_residency, written_values_are_in_the_store_at_once_and_committed_before_a_step)
{
	struct zi_step_options options = model_options();

	pool_begin(1, 260 * SLOT, 0);
	unshard(&actors[0], HEAD);
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, HEAD), 0);
	expect_refused(&actors[0], -EBUSY, "rank 0 has unit 'head' unsharded",
	               actor_unit(&actors[0], zero_param_write_end, HEAD));
	reshard(&actors[0], HEAD);
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_end, HEAD), 0);
	model_write_unit(actors, 1, HEAD, 7000);
	fill(plain.param[HEAD], 7000 + HEAD, model_elements[HEAD], config.param_dtype);
	cr_assert(plain_equals_unit(&plain, &actors[0], H0));
	cr_assert(plain_equals_unit(&plain, &actors[0], HEAD), "before the commit");
	expect_refused(
		&actors[0], -EBUSY, "unit 'head' was written and not committed",
		actor_call(&actors[0], zero_step_begin, &(struct zero_op){ .options = options }));
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert_eq(model_step(actors, 1, 1, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

Test(zero_residency, written_and_not_committed_is_forgotten_with_the_group)
{
	uint64_t free_bytes;

	pool_begin(1, 260 * SLOT, 0);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	model_write_unit(actors, 1, H0, 7000);
	cr_assert_lt(tier_extent_free_bytes(&node.nvme), free_bytes);
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes);
	pool_attach(1, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

Test(zero_residency, never_written_is_zero_and_committed_as_such)
{
	config = pool_config(260 * SLOT);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 1);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		memset(plain.param[unit], 0, model_elements[unit] * 2);
	pool_attach(1, 0);
	cr_assert(plain_equals(&plain, &actors[0]), "nothing to read yet");
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), 0, "%s", actors[0].text.chars);
	actor_leave(&actors[0], true);
	node_stop(&node);
	node_start(&node);
	pool_attach(1, 0);
	cr_assert_eq(actors[0].memory.committed_step, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}

/* ---- a job's life ---- */

Test(zero_residency, job_moves_between_all_in_memory_and_a_pool)
{
	struct zi_step_options options = model_options();

	pool_begin(1, 260 * SLOT, 0);
	for (uint64_t step = 1; step <= 4; step++) {
		cr_assert_eq(model_step(actors, 1, step, &options), 0, "%s", actors[0].text.chars);
		plain_step(&plain, step, &options);
		actor_leave(&actors[0], true);
		if (step == 2) {
			node_stop(&node);
			node_start(&node);
		}
		config.offload_param = step % 2 ? ZI_OFFLOAD_NONE : ZI_OFFLOAD_NVME;
		config.param_budget_bytes = step % 2 ? 0 : 262 * SLOT;
		pool_attach(1, 0);
		cr_assert_eq(node_job(&node, "train")->residency != NULL, step % 2 == 0);
		cr_assert(plain_equals(&plain, &actors[0]), "step %llu", (unsigned long long)step);
	}
	pool_end(1);
}

Test(zero_residency, ranks_agree_on_where_parameters_are)
{
	struct attach_options options = { .world = 2, .config = pool_config(260 * SLOT) };

	node_init(&node);
	node_start(&node);
	cr_assert_eq(actor_attach(&node, &actors[0], &options), 0);
	options.rank = 1;
	options.config.param_budget_bytes = 270 * SLOT;
	cr_assert_eq(actor_attach(&node, &actors[1], &options), -EINVAL);
	cr_assert_not_null(strstr(actors[1].text.chars, "param_budget_bytes"));
	options.config.offload_param = ZI_OFFLOAD_CPU;
	options.config.param_budget_bytes = 0;
	cr_assert_eq(actor_attach(&node, &actors[1], &options), -EINVAL);
	cr_assert_not_null(strstr(actors[1].text.chars, "offload_param is cpu, but nvme"), "%s",
	                   actors[1].text.chars);
	actor_leave(&actors[0], true);
	node_deinit(&node);
}

Test(zero_residency, job_is_destroyed_while_parameters_are_read_ahead)
{
	pool_begin(1, 260 * SLOT, 0);
	actor_start(&actors[0], 0, zero_prefetch, &(struct zero_op){ .unit = H0 });
	cr_assert_gt(pool_of()->fetches.busy_count, 0);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0, "%s", actors[0].text.chars);
	actors[0].rank = NULL;
	node_settle(&node);
	cr_assert_eq(nvme_space_free_bytes(node.nvme.members[0].space),
	             nvme_space_total_bytes(node.nvme.members[0].space));
	plain_deinit(&plain);
	node_deinit(&node);
}

Test(zero_residency, rank_leaves_while_its_unit_is_read)
{
	pool_begin(1, 260 * SLOT, 0);
	actor_start(&actors[0], 0, zero_unshard, &(struct zero_op){ .unit = H0 });
	cr_assert_gt(pool_of()->fetches.busy_count, 0);
	actor_leave(&actors[0], false);
	cr_assert(actors[0].calls[0].is_done);
	cr_assert_eq(actors[0].calls[0].op.result, -ECANCELED);
	node_settle(&node);
	pool_attach(1, 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	pool_end(1);
}
