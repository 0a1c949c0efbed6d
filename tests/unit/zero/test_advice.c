/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what has no room is refused with the nearest setting that has, and that setting works; what
 * cannot be chosen any more is not told. Method: a refusal of each kind, and then the job with what
 * its words name.
 */
#include "tests/unit/zero/door.h"

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
Test(zero_advice_memory, a_refusal_names_the_nearest_setting_that_works)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.resident_bytes = 3 * MIB;
	config.staging_bytes = 20 * MIB;
	begin();
	node.cpu.capacity_bytes = 12 * MIB;
	take_advice(config, "it fits with resident_bytes 0, staging_bytes 7864320");
}

Test(zero_advice_memory, a_refusal_of_the_store_names_memory_that_does)
{
	node_init(&node);
	node.store_bytes = 8 * MIB;
	node_start(&node);
	take_advice(model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME),
	            " and 12.8 MiB of NVMe; it fits with offload_optimizer cpu");
}

/* It is there, and stays where it is. */
Test(zero_advice_memory, what_is_committed_is_not_told_to_move)
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

Test(zero_advice_memory, what_no_setting_fits_into_is_told_with_the_least)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	begin();
	node.cpu.capacity_bytes = 3 * MIB;
	materialize_refused(&config, -ENOSPC, "no setting fits: with all on NVMe it takes ");
	leave_all();
	node_deinit(&node);
}

/* ---- a copy for first values ---- */

/* What they received is free when they are gone. */
static void processes_end(uint32_t world)
{
	leave_all();
	for (uint32_t i = 0; i < world; i++)
		actor_kill(&actors[i]);
	node_settle(&node);
}

/* In memory it would take 8.5 MiB; on NVMe 7.5 of staging and 3.2 beside them. */
Test(zero_advice_memory, what_is_committed_on_nvme_hears_the_least_there_is_there)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	begin();
	actor_fork(&actors[0]);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	model_train(actors, 1, 1, 1);
	processes_end(1);
	node.cpu.capacity_bytes = 9 * MIB;
	model_attach(&node, actors, 1, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, 1), -ENOSPC, "%s", actors[0].text.chars);
	cr_assert_not_null(strstr(actors[0].text.chars, "; in all "), "%s", actors[0].text.chars);
	cr_assert_not_null(
		strstr(actors[0].text.chars, "no setting fits: with all on NVMe it takes "), "%s",
		actors[0].text.chars);
	leave_all();
	node_deinit(&node);
}

/* State in memory, parameters and gradients fit, what they are to be written into does not. The
 * ranks before @world - 1 have their copies already. */
static void copy_refused(struct zi_job_config config, uint32_t world, const char *words,
                         bool is_committed)
{
	begin();
	for (uint32_t i = 0; i < world; i++)
		actor_fork(&actors[i]);
	if (is_committed)
		model_begin(&node, actors, world, &(struct attach_options){ .config = config });
	else
		model_attach(&node, actors, world, &(struct attach_options){ .config = config });
	if (!is_committed)
		cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
	for (uint32_t i = 0; i + 1 < world; i++)
		cr_assert_eq(actor_unit(&actors[i], zero_param_write_begin, 1), 0);
	node.cpu.capacity_bytes = node.cpu.used_bytes;
	cr_assert_eq(actor_unit(&actors[world - 1], zero_param_write_begin, 1), -ENOSPC);
	cr_expect_not_null(strstr(actors[world - 1].text.chars, words), "'%s'",
	                   actors[world - 1].text.chars);
}

/* As many copies at once as ranks, where the advice is followed. */
static void copies_fit(struct zi_job_config config, uint32_t world)
{
	set_named(&config, strstr(actors[world - 1].text.chars, "; in all "));
	processes_end(world);
	model_attach(&node, actors, world, &(struct attach_options){ .config = config });
	cr_assert_eq(model_materialize(actors, world), 0, "%s", actors[0].text.chars);
	for (uint32_t i = 0; i < world; i++)
		cr_assert_eq(actor_unit(&actors[i], zero_param_write_begin, 1), 0, "%s",
		             actors[i].text.chars);
}

/* 1.1 MiB of parameters and gradients each, 5.3 of state, and 1 for a copy. Nothing is committed:
 * the job may begin anew with all that there is. */
Test(zero_advice, state_in_memory_that_was_never_committed_may_move)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	copy_refused(config, 1, "; in all 8.5 MiB; ", false);
	processes_end(1);
	node_deinit(&node);
}

Test(zero_advice, state_in_memory_that_is_committed_may_not)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU);

	copy_refused(config, 2, "free of", true);
	cr_expect_null(strstr(actors[1].text.chars, "; in all "), "%s", actors[1].text.chars);
	processes_end(2);
	node_deinit(&node);
}

/* A resident share that may be smaller: 2.5 MiB of it are two copies and more. */
Test(zero_advice, each_rank_that_writes_has_a_copy_of_its_own)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);

	config.resident_bytes = 3 * MIB;
	config.staging_bytes = 8 * MIB;
	copy_refused(config, 3, "it fits with resident_bytes ", false);
	copies_fit(config, 3);
	leave_all();
	node_deinit(&node);
}

/* ---- before there are tables ---- */

/* Of @world ranks, and that many units of a subgroup each, beside the config. Return: what
 * materialize says. */
static int materialize_ranks(const struct zi_job_config *config,
                             const struct zi_job_training *training, uint32_t world,
                             uint32_t unit_count, uint64_t unit_elements)
{
	for (uint32_t rank = 0; rank < world; rank++) {
		cr_assert_eq(attach(rank, (struct attach_options){ .rank = rank,
		                                                   .world = world,
		                                                   .config = *config,
		                                                   .training = *training }),
		             0);
		for (uint32_t i = 0; i < unit_count; i++) {
			char name[16];

			(void)snprintf(name, sizeof(name), "u.%u", i);
			layout_unit(&actors[rank], name);
			(void)snprintf(name, sizeof(name), "p.%u", i);
			layout_param(&actors[rank], name, unit_elements, 0);
		}
	}
	return all_call(actors, world, zero_materialize, NULL);
}

static int materialize_large(const struct zi_job_config *config,
                             const struct zi_job_training *training, uint32_t unit_count,
                             uint64_t unit_elements)
{
	return materialize_ranks(config, training, 1, unit_count, unit_elements);
}

/* 12.5 MiB of parameters, and as much of gradients, are more than there is in all; with parameters
 * on NVMe a pool, and staging for them, take less. */
Test(zero_advice, what_is_larger_than_the_tier_is_told_what_fits)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_DDP };
	const char *advice;

	node_init(&node);
	node.store_bytes = 192 * MIB;
	node.cpu_bytes = 24 * MIB + MIB / 2;
	node_start(&node);
	cr_assert_eq(materialize_large(&config, &training, 25, ZI_SUBGROUP_ELEMENTS), -ENOSPC);
	cr_assert_not_null(strstr(actors[0].text.chars, "parameters and gradients of job"));
	cr_expect_null(strstr(actors[0].text.chars, "fewer ranks"), "there is one");
	advice = strstr(actors[0].text.chars, "it fits with offload_param nvme");
	cr_assert_not_null(advice, "%s", actors[0].text.chars);
	set_named(&config, advice);
	leave_all();
	node_settle(&node);
	cr_expect_eq(materialize_large(&config, &training, 25, ZI_SUBGROUP_ELEMENTS), 0, "%s",
	             actors[0].text.chars);
	leave_all();
	node_settle(&node);
	node_deinit(&node);
}

/* Of two ranks each has 12.5 MiB of gradients with ddp, whatever goes to the store; with zero2 they
 * have two buckets each, and the sums of 12.5 MiB once. */
Test(zero_advice, another_strategy_is_named_where_no_setting_of_its_own_fits)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_job_training training = { .strategy = ZI_STRATEGY_DDP };
	const char *advice;

	node_init(&node);
	node.store_bytes = 320 * MIB;
	node.cpu_bytes = 30 * MIB;
	node_start(&node);
	cr_assert_eq(materialize_ranks(&config, &training, 2, 25, ZI_SUBGROUP_ELEMENTS), -ENOSPC);
	advice = strstr(actors[0].text.chars, "; strategy zero2 takes ");
	cr_assert_not_null(advice, "%s", actors[0].text.chars);
	cr_expect_not_null(strstr(advice, " MiB: it fits with offload_param nvme"), "%s", advice);
	set_named(&config, advice);
	training.strategy = ZI_STRATEGY_ZERO2;
	leave_all();
	node_settle(&node);
	cr_expect_eq(materialize_ranks(&config, &training, 2, 25, ZI_SUBGROUP_ELEMENTS), 0, "%s",
	             actors[0].text.chars);
	leave_all();
	node_settle(&node);
	node_deinit(&node);
}

/* What trains nothing needs little memory: tables of a model for which the store has no room, or
 * memory for them has none, are not made. */
Test(zero_advice, nothing_is_made_of_a_model_that_has_no_room)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	const struct zi_job_training training = { .flags = ZI_TRAINING_FORWARD_ONLY };
	const struct {
		uint64_t elements;
		const char *words;
	} models[] = {
		{ 1ull << 32, "needs 2 x 8 GiB on nvme:t, which has " },
		{ 1ull << 40, "needs 2 x 2 TiB on nvme:t, which has " },
		{ 1ull << 47, "elements with padding, and tables for them would take too much" },
	};

	config.offload_param = ZI_OFFLOAD_NVME;
	begin();
	for (size_t i = 0; i < ZI_COUNT_OF(models); i++) {
		if (i + 1 == ZI_COUNT_OF(models))
			node.nvme.capacity_bytes = 1ull << 50;
		cr_expect_eq(materialize_large(&config, &training, 1, models[i].elements), -ENOSPC);
		cr_expect_not_null(strstr(actors[0].text.chars, models[i].words), "%s",
		                   actors[0].text.chars);
		cr_expect_eq(actors[0].rank->job->tile_count, 0);
		leave_all();
		node_settle(&node);
	}
	node_deinit(&node);
}

/* 20 MiB of sums of gradients, more than there is, go to the store by a budget. */
Test(zero_advice, sums_in_the_store_are_not_counted_as_memory)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO2,
		                                  .grad_budget_bytes = 3 * MIB / 2 };

	config.offload_param = ZI_OFFLOAD_NVME;
	config.staging_bytes = 11010048; /* The least. */
	node_init(&node);
	node.store_bytes = 320 * MIB;
	node.cpu_bytes = 19 * MIB;
	node_start(&node);
	cr_expect_eq(materialize_large(&config, &training, 40, ZI_SUBGROUP_ELEMENTS), 0, "%s",
	             actors[0].text.chars);
	leave_all();
	node_settle(&node);
	node_deinit(&node);
}
