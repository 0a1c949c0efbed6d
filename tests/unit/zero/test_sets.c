/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: units are trained by the ranks of their set and by no other: their gradients alone are
 * summed, along the tree of the set, and averaged by its count; ranks that are in no set step
 * along; each rank's memory holds the gradients of its own sets; and sets that cannot be are
 * refused by name. Method: layouts of tensor- and pipeline-parallel models beside the plain
 * computation (which is told the members of each unit), in all places and schedules; then each
 * wrong one. Drawn sets are test_property.c's.
 */
#include "tests/unit/zero/world.h"

#define RANKS(...) (rank_mask((const uint32_t[]){ __VA_ARGS__, UINT32_MAX }))

static uint64_t rank_mask(const uint32_t *ranks)
{
	uint64_t mask = 0;

	for (; *ranks != UINT32_MAX; ranks++)
		mask |= 1ull << *ranks;
	return mask;
}

static struct model_set sets[UNITS];

/* Two stages of two replicas, and an embedding that both share. */
static void choose_stages(void)
{
	sets[0] = (struct model_set){ "shared", RANKS(0, 1, 2, 3) };
	sets[1] = (struct model_set){ "first", RANKS(0, 1) };
	sets[2] = (struct model_set){ "second", RANKS(2, 3) };
	model_sets = sets;
}

/* Two shards of each tensor: ranks 0 and 2 have the one, in units 0 and 2, ranks 1 and 3 the
 * other. */
static void choose_shards(void)
{
	sets[0] = sets[2] = (struct model_set){ "left", RANKS(0, 2) };
	sets[1] = (struct model_set){ "right", RANKS(1, 3) };
	model_sets = sets;
}

static void train(uint32_t world, const struct zi_job_config *config,
                  const struct zi_step_options *options)
{
	begin_with(world, config);
	for (uint64_t step = 1; step <= 2; step++) {
		cr_assert_eq(model_step(actors, world, step, options), 0, "%s",
		             actors[0].text.chars);
		plain_step(&plain, step, options);
		for (uint32_t i = 0; i < world; i++)
			cr_assert(plain_equals(&plain, &actors[i]), "step %llu, rank %u",
			          (unsigned long long)step, i);
		if (options->max_norm > 0)
			cr_assert_eq(actors[0].calls[0].op.stats.norm, plain.norm);
	}
	end(world);
}

static void train_everywhere(uint32_t world)
{
	static const uint32_t places[] = { ZI_OFFLOAD_NONE, ZI_OFFLOAD_NVME };

	for (uint32_t place = 0; place < ZI_COUNT_OF(places); place++)
		for (uint32_t schedule = ZI_SCHEDULE_LOCAL; schedule <= ZI_SCHEDULE_SHARDED;
		     schedule++)
			for (uint32_t clipped = 0; clipped < 2; clipped++) {
				struct zi_job_config config =
					model_config(ZI_DTYPE_BF16, places[place]);
				struct zi_step_options options = model_options();

				config.schedule = schedule;
				if (schedule == ZI_SCHEDULE_SHARDED)
					options.micro_batches = 2;
				if (clipped)
					options.max_norm = 0.5;
				else
					options.flags = ZI_STEP_UPDATE_EARLY;
				train(world, &config, &options);
			}
}

Test(zero_sets, stages_of_a_pipeline_train_by_themselves)
{
	choose_stages();
	train_everywhere(4);
}

Test(zero_sets, shards_of_tensors_train_by_themselves)
{
	choose_shards();
	train_everywhere(4);
}

Test(zero_sets, parameters_in_a_pool_are_the_same)
{
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();

	config.offload_param = ZI_OFFLOAD_NVME;
	config.staging_bytes = 10 * MIB;
	choose_shards();
	train(4, &config, &options);
}

/* Rank 2 trains nothing, rank 1 alone trains one unit: multiplied by 1 all the same. */
Test(zero_sets, a_set_of_one_and_a_rank_of_none)
{
	sets[0] = sets[2] = (struct model_set){ "both", RANKS(0, 1) };
	sets[1] = (struct model_set){ "one", RANKS(1) };
	model_sets = sets;
	train_everywhere(3);
}

static void hand_over(uint32_t rank, uint32_t unit)
{
	cr_assert_eq(actor_unit(&actors[rank], zero_grad_acquire, unit), 0);
	model_fill_grad(&actors[rank], 1, 0, unit);
	cr_assert_eq(actor_unit(&actors[rank], zero_reduce, unit), 0);
}

/* What is said in step_begin() cannot have been promised by who has not come there yet. */
Test(zero_sets, unit_of_others_is_not_updated_before_all_have_begun)
{
	const struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct zi_step_options options = model_options();
	const struct zero_unit *unit;

	options.flags = ZI_STEP_UPDATE_EARLY;
	choose_stages();
	begin_with(4, &config);
	unit = &node_job(&node, "train")->units[1];
	plain_step(&plain, 1, &options);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(step_begin(&actors[i], options), 0);
	refused(&actors[2], -EBUSY, "not in the unit's data-parallel group",
	        actor_unit(&actors[2], zero_unshard, 1));
	cr_assert_eq(actor_unit(&actors[3], zero_unshard, 1), 0, "%s", actors[3].text.chars);
	cr_assert_eq(actor_unit(&actors[3], zero_reshard, 1), 0);
	hand_over(0, 1);
	hand_over(1, 1);
	node_settle(&node);
	cr_assert_not(unit->is_ready, "rank 3 may use it yet");
	cr_assert_eq(actor_unit(&actors[3], zero_unshard, 1), 0, "%s", actors[3].text.chars);
	cr_assert_eq(actor_unit(&actors[3], zero_reshard, 1), 0);
	cr_assert_eq(step_begin(&actors[3], options), 0);
	cr_assert(unit->is_ready, "nobody will");
	refused(&actors[3], -EBUSY, "not in the unit's data-parallel group",
	        actor_unit(&actors[3], zero_unshard, 1));
	for (uint32_t i = 0; i < 4; i++) {
		hand_over(i, 0);
		if (i >= 2)
			hand_over(i, 2);
	}
	cr_assert_eq(all_call(actors, 4, zero_step, NULL), 0, "%s", actors[0].text.chars);
	cr_assert(plain_equals(&plain, &actors[3]));
	end(4);
}

Test(zero_sets, each_rank_has_memory_for_its_own_gradients)
{
	const struct zi_job_config config = model_config(ZI_DTYPE_F32, ZI_OFFLOAD_NONE);
	/* 1000, 530000 and 20000 elements in blocks of 4096. */
	const uint64_t bytes[UNITS] = { 4 * 4096ull, 4 * 532480ull, 4 * 20480ull };
	const struct zero_job *job;

	sets[0] = sets[2] = (struct model_set){ "ends", RANKS(0, 1) };
	sets[1] = (struct model_set){ "middle", RANKS(1, 2) };
	model_sets = sets;
	begin_with(4, &config);
	job = node_job(&node, "train");
	cr_expect_eq(actors[0].memory.grad->region.bytes, bytes[0] + bytes[2]);
	cr_expect_eq(actors[1].memory.grad->region.bytes, bytes[0] + bytes[1] + bytes[2]);
	cr_expect_eq(actors[2].memory.grad->region.bytes, bytes[1]);
	cr_expect_eq(actors[3].memory.grad->region.bytes, 4096, "a rank of no set has a page");
	cr_expect_eq(job->sets[0].grad_bases[1], 0);
	cr_expect_eq(job->sets[1].grad_bases[1], bytes[0] + bytes[2]);
	cr_expect_eq(job->sets[1].grad_bases[2], 0);
	end(4);
}

/* Of bf16: 2 bytes of parameters and gradients, 10 of state. */
static struct zero_job_report report;

static void take_report(void *arg, const struct zero_job_report *given)
{
	(void)arg;
	report = *given;
}

Test(zero_sets, shares_are_dealt_out_in_each_set_by_itself)
{
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO2 };

	choose_stages();
	node_init(&node);
	node_start(&node);
	model_begin(
		&node, actors, 4,
		&(struct attach_options){ .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME),
	                                  .training = training });
	cr_assert(zero_report(node.zero, "train", take_report, NULL));
	/* The shared unit is one subgroup, of rank 0. The first stage's are two of 262144 and one
	 * of 8192, the second's one of 20480. */
	cr_expect_eq(report.logical[0].param, 2 * (4096 + 532480));
	cr_expect_eq(report.logical[0].state, 10 * (4096 + 262144 + 8192));
	cr_expect_eq(report.logical[1].state, 10 * 262144);
	cr_expect_eq(report.logical[2].param, 2 * (4096 + 20480));
	cr_expect_eq(report.logical[2].state, 10 * 20480);
	cr_expect_eq(report.logical[3].state, 0);
	cr_expect_eq(report.logical[3].grad, 0);
	cr_expect_eq(report.logical[3].grad_buckets, 2 * (4096 + 20480), "all that it trains");
	actors_leave(actors, 4, true);
	node_deinit(&node);
}

Test(zero_sets, a_shard_size_counts_in_each_set)
{
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO1, .shard_size = 2 };

	choose_stages();
	node_init(&node);
	node_start(&node);
	model_begin(
		&node, actors, 4,
		&(struct attach_options){ .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NONE),
	                                  .training = training });
	cr_assert(zero_report(node.zero, "train", take_report, NULL));
	cr_expect_eq(report.logical[0].state, 10 * (4096 + 262144 + 8192));
	cr_expect_eq(report.logical[2].state, 10 * (4096 + 20480), "the second replica's first");
	actors_leave(actors, 4, true);
	node_deinit(&node);
}

/* ---- what is refused ---- */

Test(zero_sets, a_unit_of_others_has_parameters_and_no_gradient)
{
	struct zi_step_options options = model_options();

	choose_stages();
	begin(4, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(step_begin(&actors[i], options), 0);
	refused(&actors[3], -EPERM,
	        "unit 'h.0' belongs to data-parallel group 'first' (ranks 0-1): rank 3 has no",
	        actor_unit(&actors[3], zero_grad_acquire, 1));
	refused(&actors[3], -EPERM, "belongs to data-parallel group 'first'",
	        actor_unit(&actors[3], zero_reduce, 1));
	cr_assert_eq(actor_unit(&actors[3], zero_unshard, 1), 0, "%s", actors[3].text.chars);
	cr_assert_eq(actor_unit(&actors[3], zero_reshard, 1), 0);
	refused(&actors[3], -ENODATA, "no gradient for units 'embed', 'head'",
	        actor_call(&actors[3], zero_step, &(struct zero_op){ 0 }));
	end(4);
}

/* Whoever hands nothing over has promised nothing: it would meet a unit that is being updated. */
Test(zero_sets, an_early_step_keeps_others_from_a_units_parameters)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_UPDATE_EARLY;
	choose_stages();
	begin(4, ZI_OFFLOAD_NVME, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(actor_unit(&actors[3], zero_unshard, 1), 0, "before the step");
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(step_begin(&actors[i], options), 0);
	cr_assert_eq(actor_unit(&actors[3], zero_reshard, 1), 0);
	refused(&actors[3], -EBUSY, "'h.0' may be updated already",
	        actor_unit(&actors[3], zero_unshard, 1));
	cr_assert_eq(actor_unit(&actors[0], zero_unshard, 1), 0, "a member may");
	cr_assert_eq(actor_unit(&actors[0], zero_reshard, 1), 0);
	end(4);
}

Test(zero_sets, first_values_come_from_a_rank_of_the_set)
{
	choose_stages();
	begin(4, ZI_OFFLOAD_NONE, ZI_SCHEDULE_LOCAL);
	cr_assert_eq(actor_unit(&actors[3], zero_param_write_begin, 1), 0);
	refused(&actors[3], -EINVAL, "root is rank 3, but unit 'h.0' belongs to",
	        actor_call(&actors[3], zero_param_write_end,
	                   &(struct zero_op){ .unit = 1, .root = 3 }));
	end(4);
}

static void attach(uint32_t world, const struct zi_job_training *training)
{
	node_init(&node);
	node_start(&node);
	model_attach(
		&node, actors, world,
		&(struct attach_options){ .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NONE),
	                                  .training = *training });
}

static void leave(uint32_t world)
{
	actors_leave(actors, world, true);
	node_deinit(&node);
}

Test(zero_sets, sets_that_cannot_be_are_refused_by_name)
{
	const struct zi_job_training training = { .strategy = ZI_STRATEGY_ZERO1, .shard_size = 2 };
	char name[16];

	attach(4, &training);
	refused(&actors[0], -EINVAL,
	        "data-parallel group 'far' has ranks 1, 4-5, but the job has 4 ranks",
	        layout_set(&actors[0], &(struct model_set){ "far", RANKS(1, 4, 5) }));
	refused(&actors[0], -EINVAL,
	        "data-parallel group 'odd' has 3 ranks, which shard_size 2 does not divide",
	        layout_set(&actors[0], &(struct model_set){ "odd", RANKS(0, 1, 3) }));
	cr_expect_eq(layout_set(&actors[0], &(struct model_set){ "one", RANKS(3) }), 0,
	             "of fewer ranks all share");
	cr_expect_eq(layout_set(&actors[0], &(struct model_set){ "two", RANKS(0, 1) }), 0);
	cr_expect_eq(layout_set(&actors[0], &(struct model_set){ "one", RANKS(3) }), 0);
	refused(&actors[0], -EINVAL, "two data-parallel groups are named 'one': ranks 3, and 2",
	        layout_set(&actors[0], &(struct model_set){ "one", RANKS(2) }));
	layout_unit(&actors[1], "u");
	refused(&actors[1], -EINVAL, "data-parallel group 'late' comes after unit 'u'",
	        layout_set(&actors[1], &(struct model_set){ "late", RANKS(0) }));
	for (uint32_t i = 2; i < ZI_SETS_MAX; i++) {
		(void)snprintf(name, sizeof(name), "s%u", i);
		cr_assert_eq(layout_set(&actors[0], &(struct model_set){ name, RANKS(0) }), 0);
	}
	refused(&actors[0], -E2BIG, "data-parallel group 'more' is one too many: 256 are allowed",
	        layout_set(&actors[0], &(struct model_set){ "more", RANKS(0) }));
	leave(4);
}

/* Rank 1 has the @second sets, rank 0 the first. */
static void expect_difference(const struct model_set *first, const struct model_set *second,
                              const char *words)
{
	attach(2, &(struct zi_job_training){ 0 });
	model_sets = first;
	model_layout(&actors[0]);
	model_sets = second;
	model_layout(&actors[1]);
	cr_assert_neq(all_call(actors, 2, zero_materialize, NULL), 0);
	cr_expect(actors[0].is_broken);
	cr_expect_not_null(strstr(actors[0].broken_text.chars, words), "'%s' in '%s'", words,
	                   actors[0].broken_text.chars);
	leave(2);
}

Test(zero_sets, ranks_that_differ_in_them_are_told_what)
{
	const struct model_set a[UNITS] = { { "a", 1 }, { "b", 2 }, { "b", 2 } };
	const struct model_set other_ranks[UNITS] = { { "a", 1 }, { "b", 3 }, { "b", 3 } };
	const struct model_set other_name[UNITS] = { { "a", 1 }, { "c", 2 }, { "c", 2 } };
	const struct model_set other_units[UNITS] = { { "a", 1 }, { "b", 2 }, { "a", 1 } };
	const struct model_set fewer[UNITS] = { { "a", 1 }, { "a", 1 }, { "a", 1 } };

	expect_difference(a, other_ranks,
	                  "rank 1: data-parallel group 'b' has ranks 0-1, rank 0 has 1");
	expect_difference(a, other_name, "rank 1: data-parallel group 'c' where rank 0 has 'b'");
	expect_difference(a, other_units,
	                  "rank 1: unit 'head' is in data-parallel group 'a', rank 0 has 'b'");
	expect_difference(a, fewer, "rank 1: 1 data-parallel groups, rank 0 has 2");
	expect_difference(a, NULL, "rank 1: 0 data-parallel groups, rank 0 has 2");
}

/* ---- another start ---- */

/* Sets are how a model is trained: the next start has others, of another world, or none; and a
 * daemon that began anew knows the job at rest by those that it began with. */
Test(zero_sets, a_stored_job_goes_on_with_other_sets)
{
	const struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	const struct model_set halves[UNITS] = { { "a", 1 }, { "b", 2 }, { "b", 2 } };
	const struct model_set *starts[] = { sets, halves, NULL, sets };
	const uint32_t worlds[] = { 4, 2, 3, 4 };

	choose_stages();
	node_init(&node);
	node_start(&node);
	plain_init(&plain, &config, 4);
	for (uint64_t i = 0; i < ZI_COUNT_OF(worlds); i++) {
		plain.world = worlds[i];
		model_sets = starts[i];
		model_attach(&node, actors, worlds[i],
		             &(struct attach_options){ .config = config });
		cr_assert_eq(model_materialize(actors, worlds[i]), 0, "%s", actors[0].text.chars);
		if (!i)
			model_write(actors, worlds[i]);
		model_train(actors, worlds[i], i + 1, i + 1);
		plain_train(&plain, i + 1, i + 1);
		cr_assert(plain_equals(&plain, &actors[0]), "start %llu", (unsigned long long)i);
		actors_leave(actors, worlds[i], true);
		node_settle(&node);
		if (i % 2)
			continue;
		node_stop(&node);
		node_start(&node);
	}
	plain_deinit(&plain);
	node_deinit(&node);
}

Test(zero_sets, ranks_are_named_in_few_words)
{
	cr_expect_str_eq(set_format(1).chars, "0");
	cr_expect_str_eq(set_format(RANKS(0, 2, 5, 6, 7)).chars, "0, 2, 5-7");
	cr_expect_str_eq(set_format(UINT64_MAX).chars, "0-63");
	cr_expect_str_eq(set_format(0x5555555555555555ull).chars,
	                 "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30...");
}
