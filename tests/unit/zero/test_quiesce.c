/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a daemon that stops is told once that nothing is in flight, whatever ended last, and where
 * it may end every rank. Method: what is posted or under way when it stops is of each kind in turn;
 * the callback ends the ranks, as the daemon's does.
 */
#include "daemon/tier/drain.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/model.h"

TestSuite(zero_quiesce, .timeout = 120);

static struct node node;
static struct actor actors[2];
static uint32_t quiesced_count;
static bool is_within; /* a call into zero */

static void quiesced(void *arg)
{
	(void)arg;
	cr_assert_not(is_within);
	quiesced_count++;
	actors_leave(actors, ZI_COUNT_OF(actors), true);
}

static void quiesce(void)
{
	is_within = true;
	zero_quiesce(node.zero, quiesced, NULL);
	is_within = false;
}

static void begin_on(uint32_t store_count, bool is_written)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	node_init(&node);
	node.store_count = store_count;
	node_start(&node);
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), 0);
	if (is_written)
		model_write(actors, 1);
}

Test(zero_quiesce, ranks_of_a_step_that_was_written_are_ended)
{
	struct zi_step_options options = model_options();

	begin_on(1, true);
	model_gradients(actors, 1, 1, &options);
	actor_start(&actors[0], 0, zero_step, NULL);
	quiesce();
	node_settle(&node);
	cr_assert_eq(quiesced_count, 1);
	cr_assert_null(actors[0].rank);
	cr_assert_eq(actors[0].calls[0].op.result, 0, "it was committed before");
	cr_assert_eq(node_job(&node, "train")->committed_step, 1);
	node_deinit(&node);
}

/* With its last rank it is deleted, which the catalog is asked for: nobody is told twice. */
Test(zero_quiesce, job_that_never_committed_goes_with_its_rank)
{
	begin_on(1, false);
	quiesce();
	node_settle(&node);
	cr_assert_eq(quiesced_count, 1);
	cr_assert_null(node_job(&node, "train"));
	node_deinit(&node);
}

/* A job at rest would be moved off it, were it not for the end. */
Test(zero_quiesce, path_that_was_just_drained_keeps_nobody)
{
	struct zi_text text;

	begin_on(2, true);
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_eq(tier_member_drain(&node.nvme.members[1], true, &text), 0, "%s", text.chars);
	zero_evacuate(node.zero);
	quiesce();
	node_settle(&node);
	cr_assert_eq(quiesced_count, 1);
	node_deinit(&node);
}

static void leave(struct zero_op *op)
{
	container_of(op, struct call, op)->is_done = true;
	cr_assert_eq(op->result, -ESTALE);
	actor_leave(&actors[1], true);
}

/* What waits hears of the end, and its callback ends a rank of the job that is told next. */
Test(zero_quiesce, callbacks_may_end_jobs)
{
	struct attach_options half = { .job = "train", .world = 2 };

	half.config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	node_init(&node);
	node_start(&node);
	cr_assert_eq(actor_attach(&node, &actors[0], &half), 0);
	half.job = "other";
	cr_assert_eq(actor_attach(&node, &actors[1], &half), 0);
	model_layout(&actors[0]);
	actors[0].calls[0] = (struct call){ .op.done = leave };
	zero_materialize(actors[0].rank, &actors[0].calls[0].op);
	cr_assert_not(actors[0].calls[0].is_done);
	quiesce();
	cr_assert(actors[0].calls[0].is_done);
	node_settle(&node);
	cr_assert_null(node_job(&node, "other"));
	cr_assert_eq(quiesced_count, 1);
	node_deinit(&node);
}
