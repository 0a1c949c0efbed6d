/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what cannot be materialised (a layout that differs, memory or space that is not there) is
 * refused with a sentence that names it, and everything is given back; what can be, is laid out and
 * held as it should.
 * Method: each refusal once, with the tiers' counters before and after.
 */
#include "daemon/zero/job/layout.h"
#include "tests/unit/zero/door.h"
#include "tests/unit/zero/gate.h"

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

/* A start of one rank, up to where the catalog is asked to store its job. */
static void start_as_far_as_the_catalog(void)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);
	struct attach_options options = as("first", 0, 1);
	const struct zero_job *job;

	cr_assert_eq(attach(0, options), 0);
	layout_unit(&actors[0], "a");
	layout_param(&actors[0], "w", 8, 4);
	gate_close(&node);
	actor_start(&actors[0], 0, zero_materialize, NULL);
	job = node_job(&node, "train");
	while (!job->request.done) {
		node_turn(&node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns);
	}
	cr_assert_not(job->is_stored);
}

/* @options: of the next start, which comes while that is under way. */
static void comes_before_it_is_stored(const struct attach_options *options, bool has_more,
                                      const char *words)
{
	begin();
	start_as_far_as_the_catalog();
	cr_assert_eq(attach(1, *options), 0, "%s", actors[1].text.chars);
	cr_assert(actors[0].is_broken);
	layout_unit(&actors[1], "a");
	layout_param(&actors[1], "w", 8, 4);
	if (has_more) {
		layout_unit(&actors[1], "b");
		layout_param(&actors[1], "v", 3, 0);
	}
	actor_start(&actors[1], 0, zero_materialize, NULL);
	gate_open();
	cr_assert_eq(actor_wait(&actors[1], 0), -EINVAL, "%s", actors[1].text.chars);
	cr_assert_not_null(strstr(actors[1].text.chars, words), "'%s'", actors[1].text.chars);
	/* Nothing was ever committed: it ends with its ranks, and the name is free. */
	leave_all();
	node_settle(&node);
	cr_assert_null(node_job(&node, "train"));
	cr_assert_eq(node.cpu.used_bytes, 0);
	node_deinit(&node);
	gate_end();
}

Test(zero_layout, that_differs_from_what_a_former_start_is_storing_is_refused)
{
	struct attach_options options = as("second", 0, 1);

	comes_before_it_is_stored(&options, true,
	                          "rank 0: 2 units with 2 parameters, the stored job has 1 with 1");
	options.config.param_dtype = options.config.grad_dtype = ZI_DTYPE_F32;
	comes_before_it_is_stored(&options, false,
	                          "param_dtype is f32, but bf16 in the stored job");
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

/* Whichever comes first when names are sorted; in one unit and in two. */
Test(zero_layout, a_parameter_that_is_there_twice_is_named_where_the_job_is_new)
{
	struct attach_options options = { .world = 2, .config = model_config(ZI_DTYPE_F32, 0) };

	begin();
	model_attach(&node, actors, 2, &options);
	for (uint32_t i = 0; i < 2; i++) {
		layout_unit(&actors[i], "embed");
		layout_param(&actors[i], "tied", 3, 0);
		layout_param(&actors[i], "b", 3, 0);
		layout_unit(&actors[i], "head");
		layout_param(&actors[i], "a", 3, 0);
		layout_param(&actors[i], "tied", 3, 0);
	}
	cr_assert_eq(all_call(actors, 2, zero_materialize, NULL), -EINVAL);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_str_eq(actors[i].text.chars,
		                 "parameter 'tied' is in the model twice, as number 0 in unit "
		                 "'embed' and as number 3 in unit 'head': register it once (a tied "
		                 "weight in one unit, which both uses unshard)");
		cr_expect_not(actors[i].is_broken);
	}
	cr_assert_eq(node.nvme.used_bytes, 0);
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
	                 "shape (10,81), the stored job has (10,80); start the job with its "
	                 "stored model, or name another job");
	leave_all();
	node_deinit(&node);
}

/* ---- memory ---- */

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

/* Its ranks have their answer in time, and are not held to have called when they come again. */
Test(zero_memory, a_deletion_that_takes_too_long_is_told_and_may_be_waited_for_again)
{
	struct attach_options options = { .world = 2,
		                          .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME) };
	struct attach_options alone = { .world = 1, .job = "other", .config = options.config };

	begin();
	cr_assert_eq(attach(5, alone), 0);
	cr_assert_eq(model_materialize(&actors[5], 1), 0, "%s", actors[5].text.chars);
	options.timeout_ns = 30 * ZI_NS_PER_MS;
	model_attach(&node, actors, 2, &options);
	gate_close(&node);
	actor_leave(&actors[5], true); /* Nothing was committed: the job ends, and waits. */
	cr_assert_not(zi_list_is_empty(&node.zero->ghosts));
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(i ? all_call(actors, 2, zero_materialize, NULL)
		               : model_materialize(actors, 2),
		             -ETIMEDOUT, "%s", actors[0].text.chars);
		for (int j = 0; j < 2; j++)
			cr_expect_str_eq(
				actors[j].text.chars,
				"materialize timed out after 0.0 s: the catalog has not "
				"forgotten another job of this uid yet, whose space may be "
				"needed (is its disk slow?)");
	}
	gate_open();
	node_settle(&node);
	cr_assert(zi_list_is_empty(&node.zero->ghosts));
	cr_assert_eq(actors[0].rank->job->group.phase, ZERO_GROUP_FORMING, "nobody called");
	actors[0].rank->timeout_ns = actors[1].rank->timeout_ns = TURN_LIMIT_NS;
	cr_assert_eq(all_call(actors, 2, zero_materialize, NULL), 0, "%s", actors[0].text.chars);
	leave_all();
	node_deinit(&node);
	gate_end();
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

/* The reason is long here: what to do stands at its end. */
Test(zero_memory, quota_that_refuses_says_all_of_what_to_do)
{
	struct attach_options options = { .world = 1,
		                          .uid = 4000000001,
		                          .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME) };

	node_init(&node);
	node.uid_nvme_bytes = 8 * MIB + 512 * 1024;
	node_start(&node);
	model_attach(&node, actors, 1, &options);
	cr_assert_eq(model_materialize(actors, 1), -EDQUOT);
	cr_assert_not_null(strstr(actors[0].text.chars, "raise quota.uid_nvme, or end other jobs"),
	                   "%s", actors[0].text.chars);
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
