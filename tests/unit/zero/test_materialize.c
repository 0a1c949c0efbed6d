/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what cannot be materialised (a layout that differs, memory or space that is not there) is
 * refused with a sentence that names it, and everything is given back; what can be, is laid out and
 * held as it should.
 * Method: each refusal once, with the tiers' counters before and after.
 */
#include "daemon/zero/job/layout.h"
#include "tests/unit/zero/door.h"

/* ---- layouts ---- */

Test(zero_layout, that_differs_between_ranks_breaks_the_group_and_names_the_difference)
{
	begin();
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .config = model_config(ZI_DTYPE_F32, 0) });
	layout_unit(&actors[0], "h.0");
	layout_param(&actors[0], "h.0.w", 8, 4);
	layout_unit(&actors[1], "h.0");
	layout_param(&actors[1], "h.0.w", 4, 8);
	actor_start(&actors[0], 0, zero_materialize, NULL);
	cr_assert_eq(actor_call(&actors[1], zero_materialize, NULL), -EINVAL);
	cr_assert_str_eq(actors[1].text.chars, "rank 1: parameter 'h.0.w' of unit 'h.0' has shape "
	                                       "(4,8), rank 0 has (8,4); all ranks must have "
	                                       "the same model");
	cr_assert_eq(actor_wait(&actors[0], 0), -EINVAL);
	cr_assert_str_eq(actors[0].text.chars, actors[1].text.chars);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_culprit, 1);
	leave_all();
	node_deinit(&node);
}

static void differ(void (*other)(struct actor *actor), const char *word)
{
	begin();
	model_attach(&node, actors, 2,
	             &(struct attach_options){ .config = model_config(ZI_DTYPE_F32, 0) });
	layout_unit(&actors[0], "a");
	layout_param(&actors[0], "w", 8, 4);
	other(&actors[1]);
	actor_start(&actors[0], 0, zero_materialize, NULL);
	cr_assert_eq(actor_call(&actors[1], zero_materialize, NULL), -EINVAL);
	cr_assert_not_null(strstr(actors[1].text.chars, word), "'%s'", actors[1].text.chars);
	leave_all();
	node_deinit(&node);
}

static void other_unit(struct actor *actor)
{
	layout_unit(actor, "b");
	layout_param(actor, "w", 8, 4);
}

static void other_param(struct actor *actor)
{
	layout_unit(actor, "a");
	layout_param(actor, "v", 8, 4);
}

static void one_more(struct actor *actor)
{
	layout_unit(actor, "a");
	layout_param(actor, "w", 8, 4);
	layout_param(actor, "x", 1, 0);
}

Test(zero_layout, another_unit_is_named)
{
	differ(other_unit, "rank 1: unit 0 is 'b', rank 0 has 'a'");
}

Test(zero_layout, another_parameter_is_named)
{
	differ(other_param, "has a parameter 'v' where rank 0 has 'w'");
}

Test(zero_layout, another_count_is_told)
{
	differ(one_more, "1 units with 2 parameters, rank 0 has 1 with 1");
}

Test(zero_layout, that_cannot_be_is_refused_and_the_rank_may_mend_it)
{
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM, .name = "w" };

	begin();
	cr_assert_eq(attach(0, as("", 0, 1)), 0);
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), -EINVAL);
	cr_assert_str_eq(actors[0].text.chars, "the model has no units");
	cr_assert_eq(zero_layout_add(actors[0].rank, &entry, &actors[0].text), -EINVAL);
	cr_assert_not_null(strstr(actors[0].text.chars, "before the first unit"));
	layout_unit(&actors[0], "a");
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), -EINVAL);
	cr_assert_str_eq(actors[0].text.chars, "unit 'a' has no parameters");
	layout_param(&actors[0], "w", 3, 0);
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), 0);
	cr_assert_eq(zero_unit_count(actors[0].rank), 1);
	cr_assert_eq(zero_layout_add(actors[0].rank, &entry, &actors[0].text), -EBUSY);
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), 0, "twice is once");
	leave_all();
	node_deinit(&node);
}

Test(zero_layout, units_of_one_name_and_models_past_counting_are_refused)
{
	begin();
	cr_assert_eq(attach(0, as("", 0, 1)), 0);
	for (int i = 0; i < 2; i++) {
		layout_unit(&actors[0], "same");
		layout_param(&actors[0], "w", 3, 0);
	}
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), -EINVAL);
	cr_assert_str_eq(actors[0].text.chars, "two units are called 'same'");
	cr_assert_eq(attach(1, (struct attach_options){ .job = "large",
	                                                .world = 1,
	                                                .config = model_config(ZI_DTYPE_F32, 0) }),
	             0);
	layout_unit(&actors[1], "u");
	layout_param(&actors[1], "w", 1ull << 40, 1ull << 40);
	cr_assert_eq(actor_call(&actors[1], zero_materialize, NULL), -EINVAL);
	cr_assert_not_null(strstr(actors[1].text.chars, "passes 2^48"));
	leave_all();
	node_deinit(&node);
}

Test(zero_layout, limits_are_told)
{
	struct zi_layout_entry unit = { .kind = ZI_LAYOUT_UNIT, .name = "u3" };
	struct zi_layout_entry param = { .kind = ZI_LAYOUT_PARAM, .name = "w3" };

	node_init(&node);
	node.units_max = 2;
	node.params_max = 2;
	node_start(&node);
	cr_assert_eq(attach(0, as("", 0, 1)), 0);
	layout_unit(&actors[0], "u1");
	layout_unit(&actors[0], "u2");
	layout_param(&actors[0], "w1", 1, 0);
	layout_param(&actors[0], "w2", 1, 0);
	cr_assert_eq(zero_layout_add(actors[0].rank, &unit, &actors[0].text), -E2BIG);
	cr_assert_not_null(strstr(actors[0].text.chars, "'u3' is one too many: 2"));
	cr_assert_eq(zero_layout_add(actors[0].rank, &param, &actors[0].text), -E2BIG);
	leave_all();
	node_deinit(&node);
}

Test(zero_layout, what_a_rank_streams_is_paid_for_until_it_leaves)
{
	struct attach_options options = { .config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_CPU),
		                          .world = 1 };
	struct zi_layout_entry entry = { .kind = ZI_LAYOUT_PARAM, .dim_count = 1, .shape = { 1 } };
	uint64_t paid_bytes = 0;
	int r = 0;

	node_init(&node);
	node.uid_cpu_bytes = 16 << 10;
	node_start(&node);
	cr_assert_eq(actor_attach(&node, &actors[0], &options), 0);
	layout_unit(&actors[0], "u");
	for (uint32_t i = 0; !r && i < node.params_max; i++) {
		paid_bytes = node.cpu.used_bytes;
		(void)snprintf(entry.name, sizeof(entry.name), "p%u", i);
		r = zero_layout_add(actors[0].rank, &entry, &actors[0].text);
	}
	cr_assert_eq(r, -EDQUOT, "%d", r);
	cr_assert_not_null(strstr(actors[0].text.chars, "the layout that rank 0 streams"), "%s",
	                   actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, "raise quota.uid_cpu"), "%s",
	                   actors[0].text.chars);
	cr_assert_gt(paid_bytes, 0);
	cr_assert_eq(node.cpu.used_bytes, paid_bytes, "a refusal costs nothing");
	actor_leave(&actors[0], true);
	cr_assert_eq(node.cpu.used_bytes, 0);
	node_deinit(&node);
}

Test(zero_layout, stored_job_is_the_model)
{
	begin();
	model_begin(&node, actors, 1,
	            &(struct attach_options){ .config = model_config(ZI_DTYPE_F32, 0) });
	actor_leave(&actors[0], true);
	model_attach(&node, actors, 1,
	             &(struct attach_options){ .config = model_config(ZI_DTYPE_F32, 0) });
	layout_unit(&actors[0], "embed");
	layout_param(&actors[0], "embed.w", 10, 81);
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), -EINVAL);
	cr_assert_str_eq(actors[0].text.chars,
	                 "rank 0: parameter 'embed.w' of unit 'embed' has "
	                 "shape (10,81), the stored job has (10,80); give it the model "
	                 "that it has, or name another job");
	leave_all();
	node_deinit(&node);
}

/* ---- memory ---- */

static void materialize_refused(const struct zi_job_config *config, int error, const char *word)
{
	uint64_t cpu_bytes = node.cpu.used_bytes;

	cr_assert_eq(attach(0, (struct attach_options){ .world = 1, .config = *config }), 0);
	cr_assert_eq(model_materialize(actors, 1), error, "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, word), "'%s'", actors[0].text.chars);
	cr_assert_eq(node.cpu.used_bytes, cpu_bytes, "everything is undone");
	cr_assert_eq(node.nvme.used_bytes, 0);
	cr_assert_not(actors[0].is_broken, "it may try again");
}

Test(zero_memory, that_is_not_there_is_refused_with_figures_and_may_be_asked_again)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	begin();
	/* param and gradients would fit, the state does not. */
	node.cpu.capacity_bytes = 6 * MIB;
	materialize_refused(&config, -ENOSPC, "free of 6 MiB");
	node.cpu.capacity_bytes = 64 * MIB;
	cr_assert_eq(actor_call(&actors[0], zero_materialize, NULL), 0, "%s", actors[0].text.chars);
	leave_all();
	node_deinit(&node);
}

/* As @words name fields of the configuration. */
static void set_named(struct zi_job_config *config, const char *words)
{
	const struct {
		const char *name;
		uint64_t *bytes;
	} budgets[] = {
		{ "resident_bytes ", &config->resident_bytes },
		{ "staging_bytes ", &config->staging_bytes },
		{ "param_budget_bytes ", &config->param_budget_bytes },
	};

	if (strstr(words, "offload_optimizer cpu"))
		config->offload_optimizer = ZI_OFFLOAD_CPU;
	if (strstr(words, "offload_optimizer nvme"))
		config->offload_optimizer = ZI_OFFLOAD_NVME;
	if (strstr(words, "offload_param nvme"))
		config->offload_param = ZI_OFFLOAD_NVME;
	for (size_t i = 0; i < ZI_COUNT_OF(budgets); i++) {
		const char *place = strstr(words, budgets[i].name);

		if (place)
			*budgets[i].bytes = strtoull(place + strlen(budgets[i].name), NULL, 10);
	}
}

/* Refused as it is wished, and then trained with the setting that the refusal names. @words: of
 * it. */
static void take_advice(struct zi_job_config config, const char *words)
{
	const char *advice;

	materialize_refused(&config, -ENOSPC, words);
	advice = strstr(actors[0].text.chars, "; in all ");
	cr_assert_not_null(advice, "%s", actors[0].text.chars);
	set_named(&config, advice);
	leave_all();
	node_settle(&node);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	model_train(actors, 1, 1, 2);
	leave_all();
	node_deinit(&node);
}

/* Parameters and gradients 1.1 MiB each, a copy of 1 MiB of them, and 15 MiB, of which 7.5 do. */
Test(zero_memory, a_refusal_names_the_nearest_setting_that_works)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.resident_bytes = 3 * MIB;
	config.staging_bytes = 20 * MIB;
	begin();
	node.cpu.capacity_bytes = 12 * MIB;
	take_advice(config, "it fits with resident_bytes 0, staging_bytes 7864320");
}

Test(zero_memory, a_refusal_of_the_store_names_memory_that_does)
{
	node_init(&node);
	node.store_bytes = 8 * MIB;
	node_start(&node);
	take_advice(model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME),
	            " and 12.8 MiB of NVMe; it fits with offload_optimizer cpu");
}

/* It is there, and stays where it is. */
Test(zero_memory, what_is_committed_is_not_told_to_move)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	begin();
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	model_train(actors, 1, 1, 1);
	actor_leave(&actors[0], true);
	node_settle(&node);
	node.cpu.capacity_bytes = node.cpu.used_bytes + MIB / 2;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), -ENOSPC, "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, "asked for on cpu:0"));
	cr_assert_null(strstr(actors[0].text.chars, "offload_optimizer"), "%s",
	               actors[0].text.chars);
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, what_no_setting_fits_into_is_told_with_the_least)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	begin();
	node.cpu.capacity_bytes = 3 * MIB;
	materialize_refused(&config, -ENOSPC, "no setting fits: with all on NVMe it takes ");
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, quota_of_a_uid_is_refused_with_figures)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	node_init(&node);
	node.uid_cpu_bytes = 4 * MIB;
	node_start(&node);
	materialize_refused(&config, -EDQUOT, "uid 0 holds");
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, store_must_hold_twice_the_state)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	node_init(&node);
	node.store_bytes = 8 * MIB;
	node_start(&node);
	materialize_refused(&config, -ENOSPC, "needs 2 x 6.4 MiB on nvme:t");
	leave_all();
	node_deinit(&node);
}

/* The catalog has not forgotten it yet, and space is free only then: ranks that are started again
 * at once would find the store full of what nobody needs. */
Test(zero_memory, of_a_job_that_is_being_deleted_is_waited_for)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct attach_options options = { .world = 1, .config = config };

	node_init(&node);
	node.store_bytes = 16 * MIB; /* 2 x 6.4 MiB fit once. */
	node_start(&node);
	cr_assert_eq(attach(0, options), 0);
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", actors[0].text.chars);
	actor_leave(&actors[0], true); /* Nothing was committed: the job ends. */
	cr_assert_not(zi_list_is_empty(&node.zero->ghosts), "the catalog is asked");
	cr_assert_gt(node.nvme.used_bytes, 0, "what it had is still taken");
	cr_assert_eq(attach(0, options), 0);
	model_layout(&actors[0]);
	actor_start(&actors[0], 0, zero_materialize, NULL);
	cr_assert_not(zi_list_is_empty(&node.zero->ghosts), "the loop has not turned");
	cr_assert_eq(actor_wait(&actors[0], 0), 0, "%s", actors[0].text.chars);
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, quota_of_nvme_is_refused_with_figures)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	node_init(&node);
	node.uid_nvme_bytes = 8 * MIB;
	node_start(&node);
	materialize_refused(&config, -EDQUOT, "needs 2 x 6.4 MiB");
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, staging_below_three_slots_is_refused_with_the_figure)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	begin();
	config.staging_bytes = 7 * MIB;
	materialize_refused(&config, -EINVAL, "at least 7864320 bytes");
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, huge_slots_where_they_cost_little)
{
	begin();
	node.cpu.wants_huge = true;
	cr_assert_eq(attach(0, as("", 0, 1)), 0);
	cr_assert_eq(model_materialize(actors, 1), 0);
	cr_assert_eq(actors[0].memory.slot_bytes, 4096, "three small units would waste half");
	cr_assert_eq(attach(1, (struct attach_options){ .job = "large",
	                                                .world = 1,
	                                                .config = model_config(ZI_DTYPE_BF16, 0) }),
	             0);
	for (int i = 0; i < 2; i++) {
		layout_unit(&actors[1], i ? "b" : "a");
		layout_param(&actors[1], i ? "b.w" : "a.w", 1000, 1024);
	}
	cr_assert_eq(actor_call(&actors[1], zero_materialize, NULL), 0, "%s", actors[1].text.chars);
	zero_materialized(actors[1].rank, &actors[1].memory);
	cr_assert_eq(actors[1].memory.slot_bytes, 2 * MIB);
	cr_assert_eq(actors[1].memory.param->region.bytes, 4 * MIB);
	cr_assert_eq(unit_of(&actors[1], actors[1].memory.grad, 1),
	             (char *)actors[1].memory.grad->region.base + 2 * MIB);
	cr_assert_eq(actor_unit(&actors[1], zero_param_write_begin, 1), 0);
	cr_assert_eq(zero_param_staging(actors[1].rank)->region.bytes, 2 * MIB);
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, of_a_process_without_descriptors_left_is_not_handed_out)
{
	begin();
	cr_assert_eq(attach(0, as("", 0, 1)), 0);
	/* The session's pidfd is void: the process cannot be watched, so it gets nothing. */
	(void)zi_close(actors[0].rank->pidfd);
	actors[0].rank->pidfd = -1;
	cr_assert_eq(model_materialize(actors, 1), -EBADF);
	cr_assert_not_null(strstr(actors[0].text.chars, "handing memory of job 'train'"));
	cr_assert_eq(node.cpu.used_bytes, 0);
	leave_all();
	node_deinit(&node);
}

Test(zero_memory, what_a_dead_process_held_is_free_once_it_is_gone)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	uint64_t deadline_ns;

	begin();
	for (uint32_t i = 0; i < 2; i++)
		actor_fork(&actors[i]);
	model_begin(&node, actors, 2, &(struct attach_options){ .config = config });
	for (uint32_t i = 0; i < 2; i++)
		actor_leave(&actors[i], i == 0);
	node_settle(&node);
	cr_assert_gt(node.cpu.used_bytes, 0, "they may still look at it");
	actor_kill(&actors[0]);
	actor_kill(&actors[1]);
	deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	while (tier_holders_count(node.holders)) {
		node_turn(&node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns);
	}
	cr_assert_eq(node.cpu.used_bytes, 0);
	cr_assert_gt(node.nvme.used_bytes, 0, "the job itself stays");
	node_deinit(&node);
}

Test(zero_destroy, is_refused_while_others_live_and_then_leaves_nothing)
{
	begin();
	model_begin(
		&node, actors, 2,
		&(struct attach_options){ .config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NVME) });
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), -EBUSY);
	cr_assert_not_null(strstr(actors[0].text.chars, "has other ranks, such as pid"));
	actor_leave(&actors[1], true);
	cr_assert_eq(actor_call(&actors[0], zero_job_destroy, NULL), 0);
	actors[0].rank = NULL;
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(node.nvme.used_bytes, 0);
	node_stop(&node);
	node_start(&node);
	cr_assert_null(node_job(&node, "train"), "nor in the catalog");
	node_deinit(&node);
}
