/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a client that does not wait for its answers, lies about sizes, or gives itself no time
 * spoils its own job alone. Method: calls that overlap as libzinf never lets them, with the commit
 * thread held where the order matters.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/gate.h"
#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[4];

static void begin(uint32_t world)
{
	struct attach_options options = { .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME) };

	node_init(&node);
	node_start(&node);
	model_begin(&node, actors, world, &options);
}

static void end(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), true);
	node_deinit(&node);
	gate_end();
}

/* A commit would take the place of the request that deletes, in the commit thread's queue. */
Test(zero_hostile, job_that_is_being_deleted_takes_no_more_calls)
{
	struct zero_op begin_op = { .options = model_options() };

	begin(1);
	gate_close(&node);
	actor_start(&actors[0], 1, zero_job_destroy, NULL);
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), -EBUSY);
	cr_assert_not_null(strstr(actors[0].text.chars, "is being deleted"));
	cr_assert_eq(actor_call(&actors[0], zero_step_begin, &begin_op), -EBUSY);
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, 0), -EBUSY);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), -EBUSY);
	gate_open();
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	actors[0].rank = NULL;
	cr_assert_null(node_job(&node, "train"));
	end();
}

Test(zero_hostile, destroy_that_timed_out_is_told_once_and_its_rank_must_leave)
{
	begin(1);
	gate_close(&node);
	actors[0].rank->timeout_ns = 1;
	actor_start(&actors[0], 1, zero_job_destroy, NULL);
	cr_assert_eq(actor_wait(&actors[0], 1), -ETIMEDOUT);
	actors[0].calls[1].op = (struct zero_op){ 0 }; /* Its owner has it back. */
	gate_open();
	node_settle(&node);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_error, -ESTALE);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "was destroyed"));
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), node.nvme.capacity_bytes);
	actor_leave(&actors[0], true);
	cr_assert_null(node_job(&node, "train"));
	end();
}

/* Memory for collectives is being made, say, and nobody waits for it any more. */
Test(zero_hostile, destroy_of_a_new_job_that_timed_out_leaves_its_rank_in_place)
{
	const struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zero_job *job;

	node_init(&node);
	node_start(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	job = node_job(&node, "train");
	cr_assert_not(job->is_stored);
	job_busy(job);
	actors[0].rank->timeout_ns = 1;
	actor_start(&actors[0], 1, zero_job_destroy, NULL);
	cr_assert_eq(actor_wait(&actors[0], 1), -ETIMEDOUT, "%s", actors[0].text.chars);
	actors[0].calls[1].op = (struct zero_op){ 0 }; /* Its owner has it back. */
	job_unbusy(job);
	job_settle(job);
	zero_drain(node.zero);
	node_settle(&node);
	cr_assert(actors[0].is_broken);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "was destroyed"));
	actor_leave(&actors[0], true);
	cr_assert_null(node_job(&node, "train"));
	node_deinit(&node);
}

Test(zero_hostile, rank_that_leaves_while_its_job_is_deleted_leaves_nothing)
{
	begin(1);
	gate_close(&node);
	actor_start(&actors[0], 1, zero_job_destroy, NULL);
	actor_leave(&actors[0], false);
	cr_assert_eq(actors[0].calls[1].op.result, -ECANCELED);
	gate_open();
	node_settle(&node);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), node.nvme.capacity_bytes);
	end();
}

/* 2^47 elements: the tables of its subgroups alone would be larger than this machine. */
Test(zero_hostile, model_larger_than_the_tier_is_refused_before_any_table_is_made)
{
	struct attach_options options = { .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME) };

	node_init(&node);
	node_start(&node);
	model_attach(&node, actors, 2, &options);
	for (uint32_t i = 0; i < 2; i++) {
		layout_unit(&actors[i], "huge");
		layout_param(&actors[i], "huge.w", 1ull << 23, 1ull << 24);
	}
	cr_assert_eq(all_call(actors, 2, zero_materialize, NULL), -ENOSPC, "%s",
	             actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, "with 2 ranks take 768 TiB"), "%s",
	                   actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, "has 256 MiB in all"), "%s",
	                   actors[0].text.chars);
	cr_assert_null(node_job(&node, "train")->units);
	end();
}

/* Whichever of the two tasks the device ends first. */
Test(zero_hostile, copy_that_is_still_filled_when_its_unit_is_written_serves_nobody)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		const struct zero_op unit = { .unit = 1 };
		struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
		int r;

		node_init(&node);
		node.seed = seed;
		node_start(&node);
		model_attach(&node, actors, 2, &(struct attach_options){ .config = config });
		cr_assert_eq(model_materialize(actors, 2), 0);
		cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, 1), 0);
		actor_start(&actors[0], 0, zero_param_write_end, &unit);
		actor_start(&actors[1], 1, zero_param_write_begin, &unit);
		actor_start(&actors[1], 0, zero_param_write_end, &unit);
		cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
		cr_assert_eq(actor_wait(&actors[1], 0), 0, "%s", actors[1].text.chars);
		r = actor_wait(&actors[1], 1);
		cr_assert(r == 0 || r == -EBUSY, "%d: %s", r, actors[1].text.chars);
		/* What it may write into now is a copy that is its own, and nobody fills. */
		cr_assert_eq(actor_unit(&actors[1], zero_param_write_begin, 1), 0, "%s",
		             actors[1].text.chars);
		end();
	}
}

Test(zero_hostile, unshard_behind_a_step_that_timed_out_goes_on)
{
	struct zi_step_options options = model_options();

	begin(2);
	model_gradients(actors, 2, 1, &options);
	actors[0].rank->timeout_ns = 20 * ZI_NS_PER_MS;
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[0], 1, zero_unshard, &(struct zero_op){ .unit = 2 });
	cr_assert_not(actors[0].calls[1].is_done, "it waits for the next parameters");
	/* Its deadline is later, by enough for a slow machine. */
	actors[0].calls[1].op.queued_ns += TURN_LIMIT_NS;
	cr_assert_eq(actor_wait(&actors[0], 0), -ETIMEDOUT);
	cr_assert_eq(actor_wait(&actors[0], 1), 0, "%s", actors[0].text.chars);
	end();
}

static void quiesced(void *arg)
{
	*(bool *)arg = true;
}

Test(zero_hostile, daemon_that_stops_begins_no_work)
{
	bool is_quiet = false;

	begin(1);
	zero_quiesce(node.zero, quiesced, &is_quiet);
	cr_assert_not(is_quiet, "it ends ranks: never within a call into zero");
	node_turn(&node);
	cr_assert(is_quiet);
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, 0), -ESTALE);
	cr_assert_eq(actor_call(&actors[0], zero_commit, NULL), -ESTALE);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), -ESTALE);
	cr_assert_eq(node_job(&node, "train")->busy_count, 0);
	end();
}
