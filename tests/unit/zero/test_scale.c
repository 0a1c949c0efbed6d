/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the daemon scales as the trainer's own machine would: gradients are divided by the scale, a
 * step in which any rank's is not finite changes nothing and moves the scale, which is committed
 * with the step, and survives whoever dies. Method: a job beside the plain computation, whose scale
 * is moved by zi_scaler_update() alone; nodes are stopped and started anew.
 */
#include "daemon/zero/step/scale.h"
#include "daemon/zero/step/step.h"
#include "tests/unit/catalog/reseal.h"
#include "tests/unit/zero/kept.h"
#include "tests/unit/zero/world.h"

static struct zi_job_config config;
static struct zi_scaler_options scaler;
static struct zi_scaler expected;
static uint32_t worlds = 3;

static struct attach_options asked(void)
{
	struct attach_options options = { .config = config };

	zi_training_set_scaler(&options.training, &scaler);
	return options;
}

static void scale_begin_with(uint32_t world, uint32_t offload)
{
	config = model_config(ZI_DTYPE_F16, offload);
	zi_scaler_init(&expected, &scaler);
	worlds = world;
	node_init(&node);
	node.staging_bytes = 12 * MIB;
	node.store_bytes = 64 * MIB;
	node_start(&node);
	plain_init(&plain, &config, world);
	model_begin(&node, actors, world,
	            &(struct attach_options){ .config = config, .training = asked().training });
	cr_assert_eq(actors[0].memory.loss_scale, expected.scale);
}

static void scale_begin(enum zi_scaler_kind kind, uint32_t world, uint32_t offload)
{
	scaler = zi_scaler_defaults(kind);
	scaler.window = 4;
	scale_begin_with(world, offload);
}

/* The daemon dies, and another one finds what is there. */
static void come_back(uint64_t committed)
{
	const struct attach_options options = asked();

	actors_leave(actors, worlds, false);
	node_stop(&node);
	node_start(&node);
	model_attach(&node, actors, worlds, &options);
	cr_assert_eq(model_materialize(actors, worlds), 0, "%s", actors[0].text.chars);
	cr_assert_eq(actors[0].memory.committed_step, (int64_t)committed);
}

static struct zi_step_options plain_options(void)
{
	struct zi_step_options options = model_options();

	options.unscale = 1;
	return options;
}

/* Step @number, with an infinity in rank @rank's gradient of unit 1 where @is_bad. */
static void step(uint64_t number, uint32_t rank, bool is_bad)
{
	struct zi_step_options options = plain_options();
	const struct zi_step_stats *stats = &actors[0].calls[0].op.stats;

	poison = (struct poison){ .what = grad_what(number, 0, rank, 1),
		                  .index = 300000 + number,
		                  .value = number % 2 ? INFINITY : NAN,
		                  .count = is_bad };
	cr_assert_eq(model_step(actors, worlds, number, &options), 0, "%s", actors[0].text.chars);
	poison.count = 0;
	cr_assert_eq(stats->is_skipped, is_bad);
	if (is_bad) {
		cr_assert_eq(stats->culprit, rank, "step %llu: %u", (unsigned long long)number,
		             stats->culprit);
		cr_assert_eq(actors[0].calls[0].op.culprit_unit, 1);
	} else {
		cr_assert_eq(stats->culprit, UINT32_MAX);
		cr_assert_eq(actors[0].calls[0].op.culprit_unit, UINT32_MAX);
		options.unscale = (float)(1.0 / expected.scale);
		plain_step(&plain, number, &options);
	}
	(void)zi_scaler_update(&expected, &scaler, is_bad);
	cr_assert_eq(stats->loss_scale, expected.scale, "step %llu: %g, not %g",
	             (unsigned long long)number, stats->loss_scale, expected.scale);
	cr_assert(plain_equals(&plain, &actors[worlds - 1]));
}

Test(zero_scale, an_overflow_of_one_rank_skips_the_step_of_all_and_moves_the_scale)
{
	static const uint32_t kinds[] = { ZI_SCALER_STATIC, ZI_SCALER_DEEPSPEED, ZI_SCALER_TORCH,
		                          ZI_SCALER_APEX };

	for (uint32_t i = 0; i < ZI_COUNT_OF(kinds); i++) {
		scale_begin((enum zi_scaler_kind)kinds[i], 3, ZI_OFFLOAD_CPU);
		for (uint64_t number = 1; number <= 12; number++)
			step(number, (uint32_t)number % 3, number == 2 || number == 3);
		end(3);
	}
}

Test(zero_scale, the_scale_of_a_commit_survives_the_daemon_and_that_of_a_broken_step_does_not)
{
	struct zi_step_options options = plain_options();

	scale_begin(ZI_SCALER_DEEPSPEED, 2, ZI_OFFLOAD_NVME);
	step(1, 0, false);
	step(2, 1, true); /* One of two that the hysteresis lets pass. */
	come_back(2);
	cr_assert_eq(actors[1].memory.loss_scale, 65536);
	step(3, 0, true);
	cr_assert_eq(expected.scale, 32768, "the hysteresis was kept");
	/* A fourth one is handed over, with an overflow, and never ended. */
	poison = (struct poison){ .what = grad_what(4, 0, 0, 0), .value = NAN, .count = 1 };
	model_gradients(actors, 2, 4, &options);
	poison.count = 0;
	come_back(3);
	cr_assert_eq(actors[0].memory.loss_scale, 32768);
	cr_assert_eq(node_job(&node, "train")->scale.state.skipped_count, 2);
	for (uint64_t number = 4; number <= 9; number++) {
		step(number, 0, false);
		come_back(number);
	}
	cr_assert_eq(expected.scale, 65536, "the window was kept");
	end(2);
}

Test(zero_scale, steps_ahead_of_their_commit_fall_back_with_their_scale)
{
	struct zi_scaler committed;

	scale_begin(ZI_SCALER_TORCH, 1, ZI_OFFLOAD_NVME);
	config.commit_interval = 3;
	come_back(0);
	step(1, 0, true);
	step(2, 0, false);
	step(3, 0, true);
	committed = expected;
	step(4, 0, true);
	cr_assert_eq(node_job(&node, "train")->committed_step, 3);
	cr_assert_eq(actors[0].calls[0].op.stats.loss_scale, 8192);
	/* Its disk is gone: what is ahead cannot be written when the rank leaves. */
	ahead_drop(node_job(&node, "train"));
	cr_assert_eq(memcmp(&node_job(&node, "train")->scale.state, &committed, sizeof(committed)),
	             0);
	expected = committed;
	come_back(3);
	cr_assert_eq(actors[0].memory.loss_scale, 16384);
	step(4, 0, true);
	step(5, 0, false);
	actors_leave(actors, 1, true); /* Is committed then. */
	node_settle(&node);
	come_back(5);
	cr_assert_eq(actors[0].memory.loss_scale, 8192);
	end(1);
}

Test(zero_scale, an_overflow_at_the_least_scale_ends_the_run_with_who_and_where)
{
	struct zi_step_options options = plain_options();

	scaler = zi_scaler_defaults(ZI_SCALER_DEEPSPEED);
	scaler.hysteresis = 1;
	scaler.init = scaler.min = 128;
	scale_begin_with(3, ZI_OFFLOAD_NVME);
	step(1, 0, false);
	poison = (struct poison){ .what = grad_what(2, 0, 2, 2), .value = NAN, .count = 1 };
	cr_assert_eq(model_step(actors, 3, 2, &options), -ERANGE);
	poison.count = 0;
	cr_assert_str_eq(
		actors[1].text.chars,
		"loss scale 128 is the least one (scale_min), and in step 2 rank 2's "
		"gradient of unit 'head' is not finite: the model diverges, or wants bf16");
	node_settle(&node);
	cr_assert(actors[0].is_broken);
	cr_assert_eq(actors[0].broken_error, -ERANGE);
	cr_assert_eq(actors[0].broken_culprit, 2);
	come_back(2);
	cr_assert(plain_equals(&plain, &actors[0]), "as it was skipped");
	cr_assert_eq(actors[0].memory.loss_scale, 128);
	step(3, 0, false);
	end(3);
}

/* Further down the scale would be read as damage: a job that could not be had again. */
static void falls_as_far_as_it_can(enum zi_scaler_kind kind)
{
	struct zi_step_options options = plain_options();
	uint64_t number = 1;

	scaler = zi_scaler_defaults(kind);
	scaler.init = 0x1p-122;
	scale_begin_with(2, ZI_OFFLOAD_NVME);
	for (; expected.scale > 0x1p-127; number++)
		step(number, 1, true);
	cr_assert_eq(number, 6);
	for (uint32_t i = 0; i < 2; i++, number++) {
		poison = (struct poison){ .what = grad_what(number, 0, 1, 2),
			                  .value = NAN,
			                  .count = 1 };
		cr_assert_eq(model_step(actors, 2, number, &options), -ERANGE, "%s",
		             actors[0].text.chars);
		poison.count = 0;
		cr_assert_not_null(strstr(actors[0].text.chars,
		                          "5.87747e-39 is the least one (1 / scale in f32), and in "
		                          "step"),
		                   "'%s'", actors[0].text.chars);
		cr_assert_not_null(strstr(actors[0].text.chars,
		                          "rank 1's gradient of unit 'head' is not finite"),
		                   "'%s'", actors[0].text.chars);
		node_settle(&node);
		come_back(number);
		cr_assert_eq(actors[0].memory.loss_scale, 0x1p-127);
		cr_assert(plain_equals(&plain, &actors[0]));
	}
	end(2);
}

Test(zero_scale, a_fall_ends_the_run_before_the_job_is_lost)
{
	falls_as_far_as_it_can(ZI_SCALER_TORCH);
	falls_as_far_as_it_can(ZI_SCALER_APEX);
}

Test(zero_scale, unscale_is_the_daemon_s_where_there_is_a_scaler)
{
	scale_begin(ZI_SCALER_STATIC, 1, ZI_OFFLOAD_CPU);
	refused(&actors[0], -EINVAL, "unscale is 0.5, but the job has a static loss scale",
	        step_begin(&actors[0], model_options()));
	step(1, 0, false);
	end(1);
}

Test(zero_scale, a_job_may_come_back_with_another_scaler)
{
	scale_begin(ZI_SCALER_TORCH, 2, ZI_OFFLOAD_NVME);
	step(1, 0, true);
	cr_assert_eq(expected.scale, 32768);
	/* Of the same kind: the state goes on under what is asked for now. */
	scaler.backoff = 0.25;
	come_back(1);
	step(2, 1, true);
	cr_assert_eq(expected.scale, 8192);
	/* Of another one: anew. */
	scaler = zi_scaler_defaults(ZI_SCALER_APEX);
	zi_scaler_init(&expected, &scaler);
	come_back(2);
	cr_assert_eq(actors[0].memory.loss_scale, 65536);
	step(3, 0, true);
	/* A cap that is below. */
	scaler.max = 4096;
	expected.scale = 4096;
	come_back(3);
	cr_assert_eq(actors[0].memory.loss_scale, 4096);
	/* A fixed one is what is asked for, always. */
	for (uint32_t i = 0; i < 2; i++) {
		scaler = zi_scaler_defaults(ZI_SCALER_STATIC);
		scaler.init = 256 << i;
		zi_scaler_init(&expected, &scaler);
		come_back(3 + i);
		cr_assert_eq(actors[0].memory.loss_scale, 256 << i);
		step(4 + i, 0, i);
	}
	/* None. */
	scaler = zi_scaler_defaults(ZI_SCALER_NONE);
	zi_scaler_init(&expected, &scaler);
	come_back(5);
	cr_assert_eq(actors[0].memory.loss_scale, 1);
	step(6, 0, false);
	/* And the former one is forgotten. */
	scaler = zi_scaler_defaults(ZI_SCALER_STATIC);
	zi_scaler_init(&expected, &scaler);
	come_back(6);
	cr_assert_eq(node_job(&node, "train")->scale.state.skipped_count, 0);
	end(2);
}

Test(zero_scale, a_snapshot_has_the_scale_of_its_step)
{
	struct kept kept = { 0 };
	struct actor other = { 0 };
	struct zi_text text;
	struct attach_options options;

	scale_begin(ZI_SCALER_TORCH, 1, ZI_OFFLOAD_NVME);
	step(1, 0, true);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "a"), 0);
	step(2, 0, true);
	options = asked();
	options.job = "other";
	model_attach(&node, &other, 1, &options);
	cr_assert_eq(zero_load(other.rank, "train", "a", &text), 0, "%s", text.chars);
	cr_assert_eq(model_materialize(&other, 1), 0, "%s", other.text.chars);
	cr_assert_eq(other.memory.loss_scale, 32768);
	actor_leave(&other, true);
	actors_leave(actors, 1, true);
	node_settle(&node);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", "a"), 0, "%s",
	             kept.op.text.chars);
	cr_assert_eq(node_job(&node, "train")->scale.state.scale, 32768);
	expected.scale = 32768;
	expected.skipped_count = 1;
	come_back(1);
	cr_assert_eq(actors[0].memory.loss_scale, 32768);
	step(2, 0, false);
	end(1);
}

Test(zero_scale, a_stored_scale_that_can_be_none_is_refused)
{
	/* Too short; of no kind; a scale of zero; an overflow in the future. */
	static const char *const bad[] = {
		"UPDATE stand SET scaler = x'00'",
		"UPDATE stand SET scaler = CAST(x'09000000' || substr(scaler, 5) AS BLOB)",
		"UPDATE stand SET scaler = CAST(substr(scaler, 1, 8) || zeroblob(8) || "
		"substr(scaler, 17) AS BLOB)",
		"UPDATE stand SET scaler = CAST(substr(scaler, 1, 24) || x'ffffffffffffff7f' || "
		"substr(scaler, 33) AS BLOB)",
	};
	struct attach_options options;
	struct kept kept = { 0 };
	char path[128];

	for (uint32_t i = 0; i < ZI_COUNT_OF(bad); i++) {
		scale_begin(ZI_SCALER_TORCH, 1, ZI_OFFLOAD_NVME);
		step(1, 0, true);
		cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "a"), 0);
		actors_leave(actors, 1, true);
		node_stop(&node);
		(void)snprintf(path, sizeof(path), "%s/catalog.db", node.directory);
		change_file(path, bad[i], true);
		node_start(&node);
		options = asked();
		options.world = 1;
		cr_expect_eq(actor_attach(&node, &actors[0], &options), -EUCLEAN, "%u", i);
		cr_expect_not_null(strstr(actors[0].text.chars, "loss scale"), "%u: '%s'", i,
		                   actors[0].text.chars);
		cr_expect_eq(kept_call(&node, &kept, zero_snapshot_restore, "train", "a"), -EUCLEAN,
		             "%u: %s", i, kept.op.text.chars);
		end(1);
	}
}

/* The scale moves with steps that end, whatever was in the gradients of others. */
Test(zero_scale, a_step_that_is_discarded_does_not_move_it)
{
	struct zi_step_options options = plain_options(), begun = options;

	scale_begin(ZI_SCALER_DEEPSPEED, 2, ZI_OFFLOAD_NVME);
	begun.flags = ZI_STEP_DEFERRED;
	for (uint64_t number = 1; number <= 8; number++) {
		poison = (struct poison){ .what = grad_what(50, 0, 1, 1),
			                  .value = INFINITY,
			                  .count = number % 2 };
		model_gradients(actors, 2, 50, &begun);
		poison.count = 0;
		cr_assert_eq(all_call(actors, 2, zero_grad_norm, NULL), 0, "%s",
		             actors[0].text.chars);
		cr_assert_eq(!isfinite(actors[1].calls[0].op.norm), number % 2);
		cr_assert_eq(all_call(actors, 2, zero_step_discard, NULL), 0);
		step(number, 1, number == 3 || number == 4);
	}
	come_back(8);
	cr_assert_eq(actors[0].memory.loss_scale, expected.scale);
	end(2);
}
