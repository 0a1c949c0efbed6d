/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: who becomes a rank, and who is refused with which sentence: incarnations, configuration,
 * limits. A refusal changes nothing.
 * Method: the table of docs/ARCHITECTURE.md, "Incarnations", row by row; then each refusal once.
 */
#include "daemon/zero/step/step.h"
#include "tests/unit/zero/door.h"

static void refused(uint32_t index, struct attach_options options, int error, const char *word)
{
	int r = attach(index, options);

	cr_assert_eq(r, error, "%d: %s", r, actors[index].text.chars);
	cr_assert_not_null(strstr(actors[index].text.chars, word), "'%s'",
	                   actors[index].text.chars);
}

/* ---- incarnations ---- */

Test(zero_attach, same_name_and_a_living_rank_is_refused_with_its_pid)
{
	char word[32];

	begin();
	(void)snprintf(word, sizeof(word), "living process %d", (int)getpid());
	cr_assert_eq(attach(0, as("run.0", 0, 2)), 0);
	refused(1, as("run.0", 0, 2), -EBUSY, word);
	cr_assert_eq(attach(1, as("run.0", 1, 2)), 0, "the other place is free");
	cr_assert_eq(node_job(&node, "train")->group.number, 1);
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, new_name_fences_the_older_ones_and_an_older_name_is_stale)
{
	begin();
	cr_assert_eq(attach(0, as("run.0", 0, 2)), 0);
	actor_start(&actors[0], 0, zero_barrier, NULL);
	cr_assert_eq(attach(1, as("run.1", 0, 2)), 0);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_error, -ESTALE);
	cr_assert_eq(actors[0].broken_culprit, UINT32_MAX);
	cr_assert_not_null(strstr(actors[0].broken_text.chars, "'run.1'"));
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), -ESTALE);
	cr_assert_eq(node_job(&node, "train")->group.number, 2);
	refused(2, as("run.0", 1, 2), -ESTALE, "older than the present one, 'run.1'");
	actor_leave(&actors[0], true);
	cr_assert_not(actors[1].is_broken, "who was fenced takes nobody along");
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, older_ranks_that_have_not_left_keep_the_job)
{
	begin();
	cr_assert_eq(attach(0, as("run.0", 0, 1)), 0);
	cr_assert_eq(attach(1, as("run.1", 0, 1)), 0);
	cr_assert_eq(actor_call(&actors[1], zero_job_destroy, NULL), -EBUSY);
	cr_assert_not_null(strstr(actors[1].text.chars, "ranks of an older incarnation"), "%s",
	                   actors[1].text.chars);
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, ranks_of_a_node_count_alike_and_materialize_once)
{
	struct attach_options other = as("run.0", 1, 3);

	begin();
	other.local = 2;
	cr_assert_eq(attach(0, as("run.0", 0, 3)), 0);
	refused(1, other, -EINVAL, "LOCAL_WORLD_SIZE differs: rank 1 has 2, the other ranks");
	model_layout(&actors[0]);
	actor_start(&actors[0], 1, zero_materialize, NULL);
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), -EALREADY);
	cr_assert_not_null(strstr(actors[0].text.chars, "was called before and has not ended"));
	cr_assert_not(actors[0].calls[1].is_done, "the first one waits for the others");
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, same_name_forms_anew_when_all_its_ranks_have_left)
{
	begin();
	cr_assert_eq(attach(0, as("run.0", 0, 2)), 0);
	cr_assert_eq(attach(1, as("run.0", 1, 2)), 0);
	actor_leave(&actors[1], false);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_error, -EPIPE);
	refused(1, as("run.0", 1, 2), -EBUSY, "rank 1 (pid");
	actor_leave(&actors[0], true);
	/* The job is gone with its ranks, as it never committed. */
	cr_assert_eq(attach(0, as("run.0", 0, 1)), 0, "and with another world");
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, a_job_that_must_exist_is_not_made)
{
	struct attach_options other = as("", 1, 2);

	begin();
	other.must_exist = true;
	refused(1, other, -ENODATA, "there is no job 'train' on this node: train it first");
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(attach(0, as("", 0, 2)), 0);
	cr_assert_eq(attach(1, other), 0, "%s", actors[1].text.chars);
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, nameless_ranks_join_the_start_that_is_forming)
{
	begin();
	cr_assert_eq(attach(0, as("", 0, 2)), 0);
	cr_assert_eq(attach(1, as("", 1, 2)), 0);
	cr_assert_eq(node_job(&node, "train")->group.rank_count, 2);
	refused(2, as("", 1, 2), -EBUSY, "living");
	cr_assert_eq(model_materialize(actors, 2), 0);
	refused(2, as("", 0, 2), -EBUSY, "name a new incarnation or ask for takeover");
	leave_all();
	node_settle(&node);
	cr_assert_eq(attach(0, as("", 0, 1)), 0, "nobody lives: a new start");
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, takeover_replaces_living_ranks_and_its_own_ranks_join_each_other)
{
	struct attach_options take = as("", 0, 2);

	begin();
	cr_assert_eq(attach(0, as("run.0", 0, 1)), 0);
	cr_assert_eq(model_materialize(actors, 1), 0);
	take.takeover = true;
	cr_assert_eq(attach(1, take), 0);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_error, -ESTALE);
	take.rank = 1;
	cr_assert_eq(attach(2, take), 0);
	cr_assert_not(actors[1].is_broken);
	cr_assert_eq(model_materialize(&actors[1], 2), 0, "%s", actors[1].text.chars);
	cr_assert_eq(node_job(&node, "train")->group.number, 2);
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, place_of_a_rank_that_left_while_forming_is_free_again)
{
	begin();
	cr_assert_eq(attach(0, as("run.0", 0, 2)), 0);
	cr_assert_eq(attach(1, as("run.0", 1, 2)), 0);
	actor_leave(&actors[1], true);
	cr_assert_not(actors[0].is_broken);
	cr_assert_eq(attach(1, as("run.0", 1, 2)), 0);
	cr_assert_eq(model_materialize(actors, 2), 0);
	actor_leave(&actors[1], true);
	refused(1, as("run.0", 1, 2), -EBUSY, "rank 1 has left this incarnation");
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, incarnation_that_takes_over_during_the_update_goes_on_from_its_commit)
{
	struct attach_options options = as("run.0", 0, 2);
	struct zi_step_options step = model_options();
	struct plain plain;

	begin();
	options.config.offload_optimizer = ZI_OFFLOAD_NVME;
	plain_init(&plain, &options.config, 2);
	model_begin(&node, actors, 2, &options);
	model_gradients(actors, 2, 1, &step);
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[1], 0, zero_step, NULL);
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_UPDATING);
	options.incarnation = "run.1";
	model_attach(&node, &actors[2], 2, &options);
	cr_assert_eq(actors[0].calls[0].op.result, -ESTALE);
	cr_assert_eq(model_materialize(&actors[2], 2), 0, "%s", actors[2].text.chars);
	plain_step(&plain, 1, &step);
	cr_assert_eq(actors[2].memory.committed_step, 1, "what updated was committed");
	cr_assert(plain_equals(&plain, &actors[3]));
	cr_assert_eq(model_step(&actors[2], 2, 2, &step), 0, "%s", actors[2].text.chars);
	plain_step(&plain, 2, &step);
	cr_assert(plain_equals(&plain, &actors[2]));
	plain_deinit(&plain);
	leave_all();
	node_deinit(&node);
}

/* Its memory is on its way to nobody: the new ranks come in whenever they like, and wait for it. */
Test(zero_attach, incarnation_that_takes_over_while_memory_is_made_forms_like_any_other)
{
	struct attach_options options = as("run.0", 0, 2);

	begin();
	model_attach(&node, actors, 2, &options);
	for (uint32_t i = 0; i < 2; i++) {
		model_layout(&actors[i]);
		actor_start(&actors[i], 0, zero_materialize, NULL);
	}
	cr_assert(node_job(&node, "train")->is_materializing);
	cr_assert_eq(attach(2, as("run.1", 0, 2)), 0);
	cr_assert_eq(actors[0].calls[0].op.result, -ESTALE);
	model_layout(&actors[2]);
	actor_start(&actors[2], 0, zero_materialize, NULL);
	cr_assert(node_job(&node, "train")->is_materializing, "the former one's is on its way");
	cr_assert_eq(attach(3, as("run.1", 1, 2)), 0, "%s", actors[3].text.chars);
	model_layout(&actors[3]);
	actor_start(&actors[3], 0, zero_materialize, NULL);
	actor_start(&actors[3], 1, zero_materialize, NULL);
	cr_assert_eq(actors[3].calls[1].op.result, -EALREADY, "twice is refused");
	cr_assert_eq(actor_wait(&actors[2], 0), 0, "%s", actors[2].text.chars);
	cr_assert_eq(actor_wait(&actors[3], 0), 0, "%s", actors[3].text.chars);
	leave_all();
	node_deinit(&node);
}

/* What the former one still writes is no reason to wait. */
Test(zero_attach, death_while_forming_is_told_at_once_whatever_a_former_step_does)
{
	struct attach_options options = as("run.0", 0, 2);
	struct zi_step_options step = model_options();

	begin();
	options.config.offload_optimizer = ZI_OFFLOAD_NVME;
	model_begin(&node, actors, 2, &options);
	model_gradients(actors, 2, 1, &step);
	actor_start(&actors[0], 0, zero_step, NULL);
	actor_start(&actors[1], 0, zero_step, NULL);
	options.incarnation = "run.1";
	model_attach(&node, &actors[2], 2, &options);
	model_layout(&actors[2]);
	actor_start(&actors[2], 0, zero_materialize, NULL);
	cr_assert_eq(node_job(&node, "train")->step.phase, ZERO_STEP_UPDATING);
	actor_leave(&actors[3], false);
	cr_assert(actors[2].is_broken);
	cr_assert_eq(actors[2].broken_culprit, 1);
	cr_assert_eq(actors[2].calls[0].op.result, -EPIPE);
	node_settle(&node);
	cr_assert_eq(node_job(&node, "train")->committed_step, 1);
	leave_all();
	node_deinit(&node);
}

/* ---- configuration and limits ---- */

Test(zero_attach, ranks_that_differ_are_refused_with_both_values)
{
	struct attach_options options;

	begin();
	cr_assert_eq(attach(0, as("run.0", 0, 2)), 0);
	refused(1, as("run.0", 1, 3), -EINVAL, "world_size is 3, but 2");
	options = as("run.0", 1, 2);
	options.config.grad_dtype = ZI_DTYPE_F32;
	refused(1, options, -EINVAL, "grad_dtype is f32, but bf16 in the other ranks");
	options = as("run.0", 1, 2);
	options.config.param_dtype = ZI_DTYPE_F32;
	refused(1, options, -EINVAL, "param_dtype is f32, but bf16");
	options = as("run.0", 1, 2);
	options.config.optimizer = ZI_OPTIMIZER_SGD;
	refused(1, options, -EINVAL, "optimizer is sgd, but adamw");
	options = as("run.0", 1, 2);
	options.config.schedule = ZI_SCHEDULE_SHARDED;
	refused(1, options, -EINVAL, "grad_reduction is per_micro_batch, but per_step");
	options = as("run.0", 1, 2);
	options.config.offload_optimizer = ZI_OFFLOAD_NVME;
	refused(1, options, -EINVAL, "offload_optimizer is nvme, but cpu");
	options = as("run.0", 1, 2);
	options.config.durability = ZI_DURABILITY_POWER;
	refused(1, options, -EINVAL, "durability is power, but process");
	options = as("run.0", 1, 2);
	options.config.resident_bytes = MIB;
	refused(1, options, -EINVAL, "resident_bytes is 1 MiB, but 0 B");
	options = as("run.0", 1, 2);
	options.config.staging_bytes = MIB;
	refused(1, options, -EINVAL, "staging_bytes is 1 MiB, but 0 B");
	options = as("run.0", 1, 2);
	options.config.io_weight = 300;
	refused(1, options, -EINVAL, "io_weight is 300, but 0");
	options = as("run.0", 1, 2);
	options.config.snapshot_interval = 10;
	options.config.snapshot_keep = 2;
	refused(1, options, -EINVAL, "snapshot_interval is 10, snapshot_keep 2, but 0 and 0");
	options = as("run.0", 1, 2);
	options.training.strategy = ZI_STRATEGY_ZERO1;
	refused(1, options, -EINVAL, "strategy is zero1, but ddp in the other ranks");
	options = as("run.0", 1, 2);
	options.training.strategy = ZI_STRATEGY_DDP; /* is what nothing means */
	cr_assert_eq(attach(1, options), 0);
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, stored_job_keeps_its_types_and_its_place)
{
	struct attach_options options = as("run.0", 0, 1);

	begin();
	model_begin(&node, actors, 1, &options);
	actor_leave(&actors[0], true);
	options = as("run.1", 0, 1);
	options.config.optimizer = ZI_OPTIMIZER_ADAM;
	refused(0, options, -EINVAL, "optimizer is adam, but adamw in the stored job");
	options = as("run.1", 0, 1);
	options.config.offload_optimizer = ZI_OFFLOAD_NVME;
	refused(0, options, -EOPNOTSUPP, "not built yet");
	options = as("run.1", 0, 1);
	options.uid = 12;
	refused(0, options, -EACCES, "job name 'train' is taken by another user");
	options = as("run.1", 0, 1);
	options.config.schedule = ZI_SCHEDULE_SHARDED;
	options.training.strategy = ZI_STRATEGY_ZERO3;
	options.training.shard_size = 1;
	cr_assert_eq(attach(0, options), 0, "schedule and strategy are each start's own");
	leave_all();
	node_deinit(&node);
}

Test(zero_attach, world_and_rank_are_within_bounds)
{
	begin();
	refused(0, as("", 0, 0), -EINVAL, "rank 0 of 0");
	refused(0, as("", 2, 2), -EINVAL, "rank 2 of 2");
	refused(0, as("", 0, ZI_WORLD_MAX + 1), -EINVAL, "1 to 64");
	node_deinit(&node);
}

Test(zero_attach, limits_of_jobs_are_refused_with_figures_and_nvme_needs_a_tier)
{
	struct attach_options options = as("", 0, 1);

	node_init(&node);
	node.jobs_max = 3;
	node.jobs_per_uid_max = 2;
	node.is_dumb = true;
	node_start(&node);
	options.config.offload_optimizer = ZI_OFFLOAD_NVME;
	refused(0, options, -EINVAL, "no nvme tier");
	options = as("", 0, 1);
	for (uint32_t i = 0; i < 3; i++) {
		static const char *const names[] = { "a", "b", "c" };

		options.job = names[i];
		options.uid = i / 2;
		cr_assert_eq(attach(i, options), 0);
	}
	options.job = "d";
	options.uid = 1;
	refused(3, options, -EMFILE,
	        "3 jobs of at most 3: delete one (zctl jobs, zctl delete JOB)");
	actor_leave(&actors[2], true);
	options.uid = 0;
	refused(3, options, -EDQUOT, "uid 0 has 2 jobs of at most 2: delete one (zctl jobs");
	leave_all();
	node_deinit(&node);
}
