/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: with update_early a unit is updated as soon as nobody uses it any more, and not sooner; the
 * promise is kept by whoever gave it; whoever dies or fails then, the job stands at its committed
 * step. Method: one call at a time on a device that ends tasks in a drawn order; what is computed
 * is seen in the parameters themselves, beside the plain computation.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/warm.h"
#include "tests/unit/zero/world.h"

static struct zi_step_options early_options(void)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	return options;
}

static void hand_over(struct actor *actor, uint64_t step, uint32_t micro, uint32_t unit)
{
	cr_assert_eq(actor_unit(actor, zero_grad_acquire, unit), 0, "%s", actor->text.chars);
	model_fill_grad(actor, step, micro, unit);
	cr_assert_eq(actor_unit(actor, zero_reduce, unit), 0, "%s", actor->text.chars);
}

/* The unit's parameters are those of @plain. */
static bool is_at_plain(uint32_t unit)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)plain.config.param_dtype);

	return memcmp(plain.param[unit], unit_of(&actors[0], actors[0].memory.param, unit),
	              model_elements[unit] * width) == 0;
}

static void finish(uint32_t world)
{
	for (uint32_t i = 0; i < world; i++)
		actor_start(&actors[i], 0, zero_step, NULL);
	for (uint32_t i = 0; i < world; i++)
		cr_assert_eq(actor_wait(&actors[i], 0), 0, "%s", actors[i].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert_eq(warm_bytes(node_job(&node, "train")) > 0,
	             job_is_nvme(node_job(&node, "train")));
}

static void updates_unit_by_unit(uint32_t schedule, uint32_t micro_batches)
{
	struct zi_step_options options = early_options();

	options.micro_batches = micro_batches;
	begin(2, ZI_OFFLOAD_NVME, schedule);
	plain_step(&plain, 1, &options);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(step_begin(&actors[i], options), 0);
	for (uint32_t micro = 0; micro < micro_batches; micro++)
		for (uint32_t unit = UNITS; unit-- > 0;) {
			hand_over(&actors[0], 1, micro, unit);
			node_settle(&node);
			cr_assert_not(is_at_plain(unit), "rank 1 still needs it");
			hand_over(&actors[1], 1, micro, unit);
			node_settle(&node);
			cr_assert_eq(is_at_plain(unit), micro + 1 == micro_batches);
		}
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_STEPPING);
	cr_assert_eq(node_job(&node, "train")->committed_step, 0);
	finish(2);
	end(2);
}

Test(zero_early, unit_is_updated_when_every_rank_has_handed_its_gradient_over)
{
	updates_unit_by_unit(ZI_SCHEDULE_LOCAL, 1);
}

Test(zero_early, unit_is_updated_after_its_last_micro_batch)
{
	updates_unit_by_unit(ZI_SCHEDULE_SHARDED, 2);
}

Test(zero_early, unit_that_a_rank_still_uses_waits_for_its_reshard)
{
	struct zi_step_options options = early_options();

	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	plain_step(&plain, 1, &options);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(actor_unit(&actors[i], zero_unshard, 1), 0);
		cr_assert_eq(step_begin(&actors[i], options), 0);
	}
	for (uint32_t i = 0; i < 2; i++)
		hand_over(&actors[i], 1, 0, 1);
	cr_assert_eq(actor_unit(&actors[1], zero_unshard, 1), 0, "it uses it already");
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 1), 0);
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 1), 0);
	node_settle(&node);
	cr_assert_not(is_at_plain(1), "rank 1 uses it still");
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 1), 0);
	node_settle(&node);
	cr_assert(is_at_plain(1));
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t unit = 0; unit < UNITS; unit += 2)
			hand_over(&actors[i], 1, 0, unit);
	finish(2);
	end(2);
}

static void unshard_is_refused(uint32_t offload, double max_norm)
{
	struct zi_step_options options = early_options();

	options.max_norm = max_norm;
	begin(2, offload, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	hand_over(&actors[0], 1, 0, 2);
	refused(&actors[0], -EBUSY, "'head' may be updated already",
	        actor_unit(&actors[0], zero_unshard, 2));
	cr_assert_eq(actor_unit(&actors[1], zero_unshard, 2), 0, "that rank may");
	cr_assert_eq(actor_unit(&actors[1], zero_reshard, 2), 0);
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 1), 0, "that unit may");
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 1), 0);
	end(2);
}

Test(zero_early, unshard_against_the_promise_is_refused_wherever_the_state_is)
{
	unshard_is_refused(ZI_OFFLOAD_NVME, 0);
	unshard_is_refused(ZI_OFFLOAD_NVME, 1);
	unshard_is_refused(ZI_OFFLOAD_CPU, 0);
}

/* Rank 1 hangs before its zinf_step(); rank 0 waits in the unshard of the next forward. */
static void begin_hung(uint32_t flags)
{
	struct zi_step_options options = model_options();

	options.flags |= flags;
	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	plain_step(&plain, 1, &options);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(step_begin(&actors[i], options), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&actors[0], 1, 0, unit);
}

static void go_on_hung(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&actors[1], 1, 0, unit);
	finish(2);
	end(2);
}

Test(zero_early, rank_that_hangs_is_named_where_another_waits_for_its_step)
{
	begin_hung(ZI_STEP_UPDATE_EARLY);
	actor_start(&actors[0], 1, zero_step, &(struct zero_op){ .timeout_ns = ZI_NS_PER_MS });
	actor_start(&actors[0], 2, zero_unshard, &(struct zero_op){ .unit = 2 });
	refused(&actors[0], -ETIMEDOUT, "; rank 1 (pid ", actor_wait(&actors[0], 1));
	refused(&actors[0], -ETIMEDOUT, "; rank 1 (pid ", actor_wait(&actors[0], 2));
	refused(&actors[0], -ETIMEDOUT, "unit 'embed' cannot be unsharded: step timed out after",
	        actor_unit(&actors[0], zero_unshard, 0));
	go_on_hung();
}

Test(zero_early, unshard_that_times_out_names_the_rank_that_has_not_called_step)
{
	begin_hung(0);
	actor_start(&actors[0], 1, zero_step, NULL);
	actor_start(&actors[0], 2, zero_unshard,
	            &(struct zero_op){ .unit = 2, .timeout_ns = ZI_NS_PER_MS });
	refused(&actors[0], -ETIMEDOUT, "; rank 1 (pid ", actor_wait(&actors[0], 2));
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&actors[1], 1, 0, unit);
	actor_start(&actors[1], 0, zero_step, NULL);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actor_wait(&actors[1], 0), 0, "%s", actors[1].text.chars);
	cr_assert(plain_equals(&plain, &actors[0]));
	end(2);
}

static void nothing_before_every_step(uint32_t offload, double max_norm, uint32_t flags)
{
	struct zi_step_options options = early_options();

	options.max_norm = max_norm;
	options.flags |= flags;
	begin(1, offload, ZI_SCHEDULE_LOCAL);
	plain_step(&plain, 1, &options);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&actors[0], 1, 0, unit);
	node_settle(&node);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		cr_assert_not(is_at_plain(unit));
	finish(1);
	end(1);
}

Test(zero_early, nothing_is_updated_before_every_step_where_a_norm_or_memory_forbids_it)
{
	nothing_before_every_step(ZI_OFFLOAD_CPU, 0, 0);
	nothing_before_every_step(ZI_OFFLOAD_NVME, 1, 0);
	nothing_before_every_step(ZI_OFFLOAD_NVME, 0, ZI_STEP_SKIP_NONFINITE);
	nothing_before_every_step(ZI_OFFLOAD_NVME, 0, ZI_STEP_WANT_NORM);
}

Test(zero_early, withdrawn_step_does_not_give_the_unit_back)
{
	struct zi_step_options options = early_options();

	begin(2, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	plain_step(&plain, 1, &options);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(step_begin(&actors[i], options), 0);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			hand_over(&actors[i], 1, 0, unit);
	actors[0].rank->timeout_ns = 30 * ZI_NS_PER_MS;
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = 0 });
	cr_assert_not(actors[0].calls[1].is_done);
	cr_assert_eq(actor_wait(&actors[0], 0), -ETIMEDOUT);
	refused(&actors[0], -ETIMEDOUT, "; rank 1 (pid ", actor_wait(&actors[0], 1));
	actors[0].rank->timeout_ns = TURN_LIMIT_NS;
	finish(2);
	end(2);
}

/* What was read ahead in the foretold order (the last unit first) is not what comes first. */
Test(zero_early, what_is_ready_takes_the_slots_of_what_was_read_ahead)
{
	static const uint64_t elements[UNITS] = { 530000, 530000, 530000 };
	static const uint64_t former[UNITS] = { 1000, 530000, 20000 };
	struct zi_job_config drawn = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = early_options();
	const struct zero_job *job;

	memcpy(model_elements, elements, sizeof(elements));
	node_init(&node);
	node.store_bytes = 64 * MIB;
	node_start(&node);
	plain_init(&plain, &drawn, 1);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = drawn });
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		char name[8];

		(void)snprintf(name, sizeof(name), "u%u", unit);
		layout_unit(&actors[0], name);
		layout_param(&actors[0], name, elements[unit], 0);
	}
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), 0, "%s", actors[0].text.chars);
	zero_materialized(actors[0].rank, &actors[0].memory);
	model_write(actors, 1);
	job = node_job(&node, "train");
	for (uint64_t step = 1; step <= 3; step++) {
		plain_step(&plain, step, &options);
		cr_assert_eq(step_begin(&actors[0], options), 0);
		node_settle(&node);
		cr_assert_eq(job->staging->free_count, 0, "every slot is read into");
		for (uint32_t k = 0; k < UNITS; k++) {
			/* Another order than that of the step before. */
			uint32_t unit = (uint32_t)((step + k) % UNITS);

			hand_over(&actors[0], step, 0, unit);
			node_settle(&node);
			cr_assert(is_at_plain(unit), "step %llu, unit %u", (unsigned long long)step,
			          unit);
			cr_assert_eq(job->queue.units[k], unit);
		}
		finish(1);
		/* The first time there is nothing to read. */
		cr_assert(step == 1 || actors[0].calls[0].op.stats.read_bytes >
		                               job->padded_count * job_state_bytes(job));
	}
	end(1);
	memcpy(model_elements, former, sizeof(former));
}

/* ---- ends ---- */

/* Rank 1 dies @turns turns after its last gradient: updates are computed, written, or over. */
static bool die_after(uint32_t turns)
{
	struct zi_step_options options = early_options();
	struct zi_job_config drawn = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	uint64_t free_bytes;
	bool is_over;

	drawn.resident_bytes = turns % 2 ? 3 * MIB : 0;
	begin_with(2, &drawn);
	cr_assert_eq(model_step(actors, 2, 1, &options), 0);
	plain_step(&plain, 1, &options);
	free_bytes = tier_extent_free_bytes(&node.nvme);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(step_begin(&actors[i], options), 0);
	for (uint32_t unit = UNITS; unit-- > 0;)
		for (uint32_t i = 0; i < 2; i++)
			if (unit || turns % 3)
				hand_over(&actors[i], 2, 0, unit);
	for (uint32_t i = 0; i < turns; i++)
		node_turn(&node);
	is_over = node_is_quiet(&node);
	actor_leave(&actors[1], false);
	cr_assert(actors[0].is_broken);
	refused(&actors[0], -EPIPE, "died", actor_unit(&actors[0], zero_unshard, 0));
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing stays reserved");
	model_attach(&node, actors, 2, &(struct attach_options){ .config = drawn });
	cr_assert_eq(model_materialize(actors, 2), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, 1);
	cr_assert(plain_equals(&plain, &actors[0]), "as committed");
	cr_assert_eq(model_step(actors, 2, 2, &options), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 2, &options);
	cr_assert(plain_equals(&plain, &actors[0]), "optimizer state as committed");
	end(2);
	return is_over;
}

Test(zero_early, death_at_any_moment_leaves_the_committed_step)
{
	uint32_t turns = 0;

	/* Larger strides later: how many turns a step takes is the disk's affair. */
	while (!die_after(turns) || turns % 3 == 0)
		turns += 1 + turns / 8;
	cr_assert_gt(turns, 5, "there were moments in between");
}

static void quiesced(void *arg)
{
	((struct node *)arg)->is_quiesced = true;
}

Test(zero_early, quiescing_discards_what_was_updated_early)
{
	struct zi_step_options options = early_options();

	begin(1, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		hand_over(&actors[0], 1, 0, unit);
	zero_quiesce(node.zero, quiesced, &node);
	node_settle(&node);
	cr_assert(node.is_quiesced);
	cr_assert_eq(node_job(&node, "train")->committed_step, 0);
	cr_assert_not(node_job(&node, "train")->is_loaded);
	end(1);
}

static void next_forward_begins(uint32_t flags)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.staging_bytes = 32 * MIB; /* A slot for each subgroup. */
	options.flags = flags;
	begin_with(1, &config);
	plain_step(&plain, 1, &options);
	cr_assert_eq(step_begin(&actors[0], options), 0);
	/* The first step reads nothing: from here on no write is known to have ended. */
	node.is_disk_held = true;
	for (uint32_t unit = UNITS; unit-- > 0;)
		hand_over(&actors[0], 1, 0, unit);
	actor_start(&actors[0], 1, zero_step, NULL);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		cr_assert_eq(actor_unit(&actors[0], zero_unshard, unit), 0);
	cr_assert(plain_equals(&plain, &actors[0]));
	cr_assert_not(actors[0].calls[1].is_done);
	node.is_disk_held = false;
	cr_assert_eq(actor_wait(&actors[0], 1), 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		cr_assert_eq(actor_unit(&actors[0], zero_reshard, unit), 0);
	end(1);
}

Test(zero_early, next_forward_begins_while_the_step_is_written)
{
	next_forward_begins(0);
	next_forward_begins(ZI_STEP_WANT_NORM);
	next_forward_begins(ZI_STEP_UPDATE_EARLY);
}
