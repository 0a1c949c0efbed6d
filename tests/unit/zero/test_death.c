/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whenever a rank dies or leaves, the others hear who it was, nothing is half done, and the
 * job goes on from its last commit with the same bits. Who does not come is named in time.
 * Method: ranks end at each point of a step; then everybody attaches anew and trains on beside the
 * plain computation. Timeouts are milliseconds, and the loop waits for them.
 */
#include "daemon/tier/stripe.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/plain.h"

static struct node node;
static struct actor actors[4];
static struct plain plain;
static struct zi_job_config config;

static void begin(uint32_t world, uint32_t offload)
{
	config = model_config(ZI_DTYPE_BF16, offload);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, world);
	model_begin(&node, actors, world,
	            &(struct attach_options){
			    .incarnation = "run.0",
			    .config = config,
		    });
}

static void end(void)
{
	actors_leave(actors, ZI_COUNT_OF(actors), true);
	plain_deinit(&plain);
	node_deinit(&node);
}

/* Survivors leave, all come back under a new name and make the step @committed + 1. */
static void come_back(uint32_t world, uint64_t committed)
{
	struct zi_step_options options = model_options();

	actors_leave(actors, world, true);
	model_attach(&node, actors, world,
	             &(struct attach_options){ .incarnation = "run.1", .config = config });
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)committed);
	cr_assert(plain_equals(&plain, &actors[0]), "as committed");
	cr_assert_eq(model_step(actors, world, committed + 1, &options), 0, "%s",
	             actors[0].text.chars);
	plain_step(&plain, committed + 1, &options);
	cr_assert(plain_equals(&plain, &actors[world - 1]));
}

static void named(uint32_t culprit, int error, const char *word)
{
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_error, error);
	cr_assert_eq(actors[0].broken_culprit, culprit);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, word), "'%s'",
	                   actors[0].broken_text.chars);
}

/* ---- death at each point of a step ---- */

enum point { AT_REST, BEGUN, HANDED, STEPPED, POINT_COUNT };

static void die_at(enum point point, uint32_t offload)
{
	struct zi_step_options options = model_options();
	uint64_t free_bytes;

	begin(2, offload);
	options.max_norm = point == HANDED ? 1 : 0;
	free_bytes = tier_extent_free_bytes(&node.nvme);
	if (point >= BEGUN)
		cr_assert_eq(all_call(actors, 2, zero_step_begin,
		                      &(struct zero_op){ .options = options }),
		             0);
	for (uint32_t unit = 0; unit < UNITS && point >= HANDED; unit++)
		for (uint32_t i = 0; i < 2; i++)
			actor_start(&actors[i], unit, zero_reduce,
			            &(struct zero_op){ .unit = unit });
	if (point == STEPPED)
		actor_start(&actors[0], 5, zero_step, NULL);
	else
		actor_start(&actors[0], 5, zero_barrier, NULL);
	actor_start(&actors[1], 5, zero_unshard, &(struct zero_op){ .unit = 0 });
	actor_leave(&actors[1], false);
	cr_assert(actors[1].calls[5].is_done);
	cr_assert_eq(actor_wait(&actors[0], 5), -EPIPE);
	named(1, -EPIPE, "rank 1 (pid");
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "died: killed by the test"));
	cr_assert_eq(actor_call(&actors[0], zero_barrier, NULL), -EPIPE, "from now on always");
	node_settle(&node);
	cr_assert_eq(tier_extent_free_bytes(&node.nvme), free_bytes, "nothing stays reserved");
	come_back(2, 0);
	end();
}

Test(zero_death, at_rest_breaks_the_group)
{
	die_at(AT_REST, ZI_OFFLOAD_NVME);
}

Test(zero_death, after_step_begin_discards_the_step)
{
	die_at(BEGUN, ZI_OFFLOAD_NVME);
}

Test(zero_death, while_gradients_are_summed_discards_the_step)
{
	die_at(HANDED, ZI_OFFLOAD_NVME);
}

Test(zero_death, before_its_own_step_discards_the_step)
{
	die_at(STEPPED, ZI_OFFLOAD_NVME);
}

Test(zero_death, leaves_state_in_memory_as_it_was)
{
	for (enum point point = AT_REST; point < POINT_COUNT; point++)
		die_at(point, ZI_OFFLOAD_CPU);
}

/* @max_norm: 0: the last step() begins the update; else it waits for sums of gradients, whose ends
 * the loop, which nobody has turned yet, brings. */
static void die_when_called(uint32_t offload, float max_norm, bool is_clean)
{
	struct zi_step_options options = model_options();
	const struct zero_step *step;

	begin(2, offload);
	options.max_norm = max_norm;
	model_gradients(actors, 2, 1, &options);
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[1], 0, zero_step, NULL);
	step = &node_job(&node, "train")->step;
	cr_assert_eq(step->phase, max_norm > 0 ? ZERO_STEP_STEPPING : ZERO_STEP_UPDATING);
	cr_assert_eq(step->reduce_count > 0, max_norm > 0);
	actor_leave(&actors[1], is_clean);
	cr_assert_eq(actors[1].calls[0].op.result, -ECANCELED);
	cr_assert_not(actors[0].is_broken, "the step needs nothing more of it");
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].is_broken, !is_clean);
	if (is_clean)
		cr_assert_eq(actor_call(&actors[0], zero_step_begin,
		                        &(struct zero_op){ .options = options }),
		             -EPIPE, "now it is needed");
	named(1, -EPIPE, is_clean ? "left" : "died");
	plain_step(&plain, 1, &options);
	come_back(2, 1);
	end();
}

Test(zero_death, while_updating_lets_the_step_commit)
{
	die_when_called(ZI_OFFLOAD_NVME, 0, false);
	die_when_called(ZI_OFFLOAD_CPU, 0, false);
}

Test(zero_death, clean_leave_while_updating_breaks_when_it_is_next_needed)
{
	die_when_called(ZI_OFFLOAD_NVME, 0, true);
}

Test(zero_death, when_all_have_called_the_step_but_sums_are_missing_lets_it_commit)
{
	die_when_called(ZI_OFFLOAD_NVME, 1, false);
	die_when_called(ZI_OFFLOAD_NVME, 1, true);
	die_when_called(ZI_OFFLOAD_CPU, 1, false);
}

/* However long the disk takes for the step: nobody waits for it to hear of the death. */
Test(zero_death, while_updating_is_told_at_once_to_all_that_waits_for_more_than_the_step)
{
	static const call_fn functions[] = { zero_unshard, zero_grad_acquire, zero_step_begin,
		                             zero_barrier };
	struct zi_step_options options = model_options();
	struct actor *actor = &actors[0];

	begin(2, ZI_OFFLOAD_NVME);
	model_gradients(actors, 2, 1, &options);
	actor_start(actor, 0, zero_step, NULL);
	actor_start(&actors[1], 0, zero_step, NULL);
	for (uint32_t i = 0; i < ZI_COUNT_OF(functions); i++) {
		actor_start(actor, 1 + i, functions[i], &(struct zero_op){ .options = options });
		cr_assert_not(actor->calls[1 + i].is_done);
	}
	actor_leave(&actors[1], false);
	for (uint32_t i = 0; i < ZI_COUNT_OF(functions); i++) {
		cr_assert(actor->calls[1 + i].is_done, "call %u", i);
		cr_assert_eq(actor->calls[1 + i].op.result, -EPIPE);
		cr_assert_not_null(strstr(actor->calls[1 + i].op.text.chars, "rank 1"), "%s",
		                   actor->calls[1 + i].op.text.chars);
	}
	actor_start(actor, 5, zero_barrier, NULL);
	cr_assert(actor->calls[5].is_done, "nor is waited for anew");
	cr_assert_eq(actor->calls[5].op.result, -EPIPE);
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_UPDATING);
	cr_assert_not(actor->calls[0].is_done);
	cr_assert_not(actor->is_broken);
	cr_assert_eq(actor_wait(actor, 0), 0, "%s", actor->text.chars);
	named(1, -EPIPE, "died");
	plain_step(&plain, 1, &options);
	come_back(2, 1);
	end();
}

/* The same of what zero_commit() writes. */
Test(zero_death, while_a_commit_is_written_lets_it_end)
{
	begin(2, ZI_OFFLOAD_NVME);
	actor_start(&actors[0], 0, zero_commit, NULL);
	actor_start(&actors[1], 0, zero_commit, NULL);
	actor_start(&actors[0], 1, zero_barrier, NULL);
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_COMMITTING);
	actor_leave(&actors[1], false);
	cr_assert(actors[0].calls[1].is_done);
	cr_assert_eq(actors[0].calls[1].op.result, -EPIPE);
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	named(1, -EPIPE, "died");
	come_back(2, 0);
	end();
}

Test(zero_death, of_all_ranks_while_updating_lets_the_step_commit)
{
	struct zi_step_options options = model_options();

	begin(2, ZI_OFFLOAD_NVME);
	model_gradients(actors, 2, 1, &options);
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[1], 0, zero_step, NULL);
	actor_leave(&actors[0], false);
	actor_leave(&actors[1], false);
	plain_step(&plain, 1, &options);
	come_back(2, 1);
	end();
}

Test(zero_death, while_forming_breaks_those_who_wait)
{
	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 2);
	model_attach(&node, actors, 2, &(struct attach_options){ .config = config });
	model_layout(&actors[0]);
	actor_start(&actors[0], 0, zero_materialize, NULL);
	actor_leave(&actors[1], false);
	cr_assert_eq(actor_wait(&actors[0], 0), -EPIPE);
	named(1, -EPIPE, "died");
	end();
}

Test(zero_death, while_memory_is_built_gives_it_back)
{
	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 2);
	model_attach(&node, actors, 2, &(struct attach_options){ .config = config });
	for (uint32_t i = 0; i < 2; i++) {
		model_layout(&actors[i]);
		actor_start(&actors[i], 0, zero_materialize, NULL);
	}
	cr_assert(node_job(&node, "train")->is_materializing);
	cr_assert_gt(node.cpu.used_bytes, 0);
	actor_leave(&actors[1], true);
	named(1, -EPIPE, "left");
	actor_leave(&actors[0], true);
	node_settle(&node);
	cr_assert_eq(node.cpu.used_bytes, 0);
	cr_assert_eq(node.nvme.used_bytes, 0);
	cr_assert_null(node_job(&node, "train"));
	end();
}

Test(zero_death, with_a_unit_open_for_writing_gives_the_copy_back)
{
	begin(2, ZI_OFFLOAD_CPU);
	actor_start(&actors[1], 0, zero_param_write_begin, &(struct zero_op){ .unit = 1 });
	actor_leave(&actors[1], false);
	cr_assert_eq(actors[1].calls[0].op.result, -ECANCELED);
	node_settle(&node);
	named(1, -EPIPE, "died");
	come_back(2, 0);
	end();
}

Test(zero_death, after_an_uncommitted_write_falls_back_to_the_commit)
{
	begin(2, ZI_OFFLOAD_NVME);
	model_write_unit(actors, 2, 1, 500);
	cr_assert_not(plain_equals(&plain, &actors[0]));
	actor_leave(&actors[1], false);
	come_back(2, 0);
	end();
}

Test(zero_death, clean_leave_of_a_rank_that_others_wait_for_names_it_at_once)
{
	begin(3, ZI_OFFLOAD_CPU);
	actor_start(&actors[0], 0, zero_barrier, NULL);
	actor_leave(&actors[2], true);
	cr_assert_eq(actor_wait(&actors[0], 0), -EPIPE);
	named(2, -EPIPE, "rank 2 (pid");
	end();
}

Test(zero_death, clean_leave_at_rest_is_heard_of_when_the_rank_is_needed)
{
	begin(2, ZI_OFFLOAD_CPU);
	actor_leave(&actors[1], true);
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 0), 0, "this needs nobody");
	cr_assert_eq(actor_call(&actors[0], zero_barrier, NULL), -EPIPE);
	named(1, -EPIPE, "left");
	end();
}

Test(zero_death, another_number_of_ranks_goes_on_from_the_commit)
{
	struct zi_step_options options = model_options();

	begin(2, ZI_OFFLOAD_NVME);
	cr_assert_eq(model_step(actors, 2, 1, &options), 0);
	plain_step(&plain, 1, &options);
	plain.world = 4;
	for (uint32_t i = 0; i < 2; i++)
		actor_leave(&actors[i], true);
	come_back(4, 1);
	end();
}

/* ---- time ---- */

#define SHORT_NS (30 * ZI_NS_PER_MS)

/* What the first rank's calls may take but for the one that is to time out: on a busy machine the
 * others need theirs. 0: as it attached. */
static uint64_t patience_ns;

/* A call of the first rank that nobody answers; timed_out() comes next. */
static void start_short(call_fn call)
{
	patience_ns = actors[0].rank->timeout_ns;
	actors[0].rank->timeout_ns = SHORT_NS;
	actor_start(&actors[0], 0, call, NULL);
}

static void timed_out(const char *word)
{
	cr_assert_eq(actor_wait(&actors[0], 0), -ETIMEDOUT);
	cr_assert_not_null(strstr(actors[0].text.chars, word), "'%s'", actors[0].text.chars);
	cr_assert_not(actors[0].is_broken, "it may be called again");
	if (patience_ns)
		actors[0].rank->timeout_ns = patience_ns;
}

Test(zero_time, materialize_names_who_did_not_come)
{
	config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME);
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 2);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(actor_attach(&node, &actors[i],
		                          &(struct attach_options){ .rank = i,
		                                                    .world = 3,
		                                                    .config = config,
		                                                    .timeout_ns = SHORT_NS }),
		             0);
	model_layout(&actors[0]);
	actor_start(&actors[0], 0, zero_materialize, NULL);
	timed_out("rank 1 (pid");
	cr_assert_not_null(
		strstr(actors[0].text.chars, "it only attached; rank 2 is not attached"));
	cr_assert_eq(node_job(&node, "train")->group.phase, ZERO_GROUP_FORMING);
	end();
}

Test(zero_time, barrier_names_who_did_not_come_and_may_be_called_again)
{
	begin(2, ZI_OFFLOAD_CPU);
	cr_assert_eq(actor_unit(&actors[1], zero_unshard, 1), 0);
	start_short(zero_barrier);
	timed_out("its last call was unshard");
	actor_start(&actors[0], 0, zero_barrier, NULL);
	cr_assert_eq(actor_call(&actors[1], zero_barrier, NULL), 0);
	cr_assert_eq(actor_wait(&actors[0], 0), 0);
	end();
}

Test(zero_time, step_is_withdrawn_and_may_be_called_again)
{
	struct zi_step_options options = model_options();

	begin(2, ZI_OFFLOAD_NVME);
	model_gradients(actors, 2, 1, &options);
	start_short(zero_step);
	timed_out("rank 1 (pid");
	cr_assert_eq(all_call(actors, 2, zero_step, NULL), 0, "%s", actors[0].text.chars);
	plain_step(&plain, 1, &options);
	cr_assert(plain_equals(&plain, &actors[0]));
	end();
}

Test(zero_time, commit_and_write_end_name_who_did_not_come)
{
	begin(2, ZI_OFFLOAD_NVME);
	start_short(zero_commit);
	timed_out("rank 1 (pid");
	cr_assert_eq(actor_unit(&actors[0], zero_param_write_begin, 0), 0);
	start_short(zero_param_write_end);
	timed_out("rank 1 (pid");
	end();
}

Test(zero_time, gradient_that_is_not_given_back_times_out_alone)
{
	struct zi_step_options options = model_options();

	begin(2, ZI_OFFLOAD_CPU);
	cr_assert_eq(all_call(actors, 2, zero_step_begin, &(struct zero_op){ .options = options }),
	             0);
	cr_assert_eq(actor_unit(&actors[0], zero_reduce, 0), 0);
	start_short(zero_grad_acquire);
	actor_start(&actors[1], 0, zero_grad_acquire, NULL);
	cr_assert_eq(actor_wait(&actors[1], 0), 0);
	timed_out("another rank has not handed its over");
	end();
}

Test(zero_time, shortest_deadline_ends_the_wait_of_all)
{
	struct zi_job_config shared = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU);

	config = shared;
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 3);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(actor_attach(&node, &actors[i],
		                          &(struct attach_options){ .rank = i,
		                                                    .world = 3,
		                                                    .config = config,
		                                                    .timeout_ns = i ? SHORT_NS
		                                                                    : UINT64_MAX }),
		             0);
		model_layout(&actors[i]);
		actor_start(&actors[i], 0, zero_materialize, NULL);
	}
	timed_out("rank 2 is not attached");
	cr_assert_eq(actor_wait(&actors[1], 0), -ETIMEDOUT);
	end();
}
