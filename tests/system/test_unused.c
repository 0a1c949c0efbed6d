/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: parameters without a gradient. With finds_unused what no rank used is left alone, and what
 * some did is summed with zeros of the others, with the same bits by every strategy and schedule,
 * wherever state and parameters lie, and through a restart; without it what was forgotten is named.
 * And micro-batches under no_sync are those of a step: 1, 2 or 3 of them, some without sync, end in
 * the same bits by every strategy and both schedules. Method: ranks as processes whose gradients
 * come and go (trainer_uses()), compared with the plain computation; then one rank by hand.
 */
#include "common/base/cleanup.h"
#include "tests/system/pair.h"

TestSuite(unused, .timeout = 300);

static struct trainer_settings settings_of(const char *job, uint32_t world)
{
	struct trainer_settings settings = ranks_settings(&harness, job, world);

	settings.steps = 4;
	settings.is_sparse = settings.options.finds_unused = true;
	return settings;
}

static void train(const struct trainer_settings *settings, const char *what)
{
	struct ranks ranks;
	uint64_t unused = 0;

	cr_assert_eq(ranks_train(&ranks, settings), 0, "%s", what);
	cr_assert(ranks_are_right(&ranks), "%s", what);
	for (uint32_t step = 1; step <= settings->steps; step++)
		unused += ranks.reports[0]->stats[step].unused_count;
	cr_assert_eq(unused > 0, settings->is_sparse, "%s: %llu", what, (unsigned long long)unused);
	ranks_free(&ranks);
}

static const struct {
	enum zinf_offload optimizer, param;
} places[] = {
	{ ZINF_OFFLOAD_NONE, ZINF_OFFLOAD_NONE },
	{ ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_CPU },
	{ ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_NVME },
};

/* For a few jobs of the small model. */
static void start_large(void)
{
	system_start(&harness, &(struct harness_options){ .nvme_size = "96M" });
}

static void place(struct trainer_settings *settings, uint32_t index)
{
	settings->options.offload_optimizer = places[index % ZI_COUNT_OF(places)].optimizer;
	settings->options.offload_param = places[index % ZI_COUNT_OF(places)].param;
	settings->options.staging_bytes = 12 << 20;
}

/* 24 rows, in each of which the rest is another. */
Test(unused, every_strategy_and_schedule_leaves_alone_what_nobody_used)
{
	static const enum zinf_dtype dtypes[] = { ZINF_F32, ZINF_BF16, ZINF_F16 };
	uint32_t row = 0;

	for (uint32_t strategy = ZINF_DDP; strategy <= ZINF_ZERO3; strategy++) {
		start_large();
		for (uint32_t sharded = 0; sharded < 2; sharded++)
			for (uint32_t p = 0; p < (uint32_t)ZI_COUNT_OF(places); p++, row++) {
				char job[32];

				(void)snprintf(job, sizeof(job), "row%u", row);
				struct trainer_settings settings = settings_of(job, 1 + row % 3);

				settings.options.strategy = strategy;
				settings.options.grad_reduction =
					sharded ? ZINF_REDUCE_PER_MICRO_BATCH
						: ZINF_REDUCE_PER_STEP;
				settings.options.param_dtype = settings.options.grad_dtype =
					dtypes[(row + strategy) % 3];
				settings.accumulate = 1 + row % 3;
				settings.options.accumulation = sharded ? 0 : settings.accumulate;
				settings.options.optimizer = 1 + row % 5;
				settings.step.max_norm = row % 2 ? 0.5 : 0;
				settings.step.update_early = row % 4 < 2;
				place(&settings, p);
				train(&settings, job);
			}
		stop();
	}
}

/* A start has its own marks: what was used is not known from before, nor needed. */
Test(unused, a_restart_goes_on_with_the_same_bits)
{
	struct trainer_settings settings;

	start_large();
	settings = settings_of("again", 2);
	place(&settings, 1);
	for (settings.steps = 1; settings.steps <= 4; settings.steps++)
		train(&settings, "again");
	stop();
}

Test(unused, micro_batches_without_sync_are_those_of_a_step)
{
	uint32_t row = 0;

	for (uint32_t strategy = ZINF_DDP; strategy <= ZINF_ZERO3; strategy++) {
		start_large();
		for (uint32_t sharded = 0; sharded < 2; sharded++)
			for (uint32_t micros = 1; micros <= 3; micros++, row++) {
				char job[32];

				(void)snprintf(job, sizeof(job), "sync%u", row);
				struct trainer_settings settings = settings_of(job, 2);

				settings.steps = 2;
				settings.is_sparse = settings.options.finds_unused = row % 2;
				settings.accumulate = micros;
				settings.options.strategy = strategy;
				settings.options.grad_reduction =
					sharded ? ZINF_REDUCE_PER_MICRO_BATCH
						: ZINF_REDUCE_PER_STEP;
				settings.options.accumulation = sharded ? 0 : micros;
				/* All but the last one; of three ranks' sums some only. */
				settings.no_sync_mask = row % 4 == 1 && sharded && micros == 3
				                                ? 2
				                                : (1u << (micros - 1)) - 1;
				place(&settings, row);
				train(&settings, job);
			}
		stop();
	}
}

/* ---- one rank by hand ---- */

static struct zinf *zinf;
static uint32_t params[3];

static void expect(const char *part)
{
	system_expect_text(zinf_error_text(zinf), part);
}

/* One unit of three parameters, and one of a single one. */
static void begin(bool finds_unused)
{
	static const uint64_t shape[] = { 100 };
	struct zinf_options options;
	uint32_t unit, param;

	start(NULL);
	options = options_of(0, 1);
	options.finds_unused = finds_unused;
	zinf = attach(&options);
	cr_assert_eq(zinf_unit_add(zinf, "body", &unit), 0);
	for (uint32_t i = 0; i < 3; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "body.%u", i);
		cr_assert_eq(zinf_param_add(zinf, name, 1, shape, &params[i]), 0);
	}
	cr_assert_eq(zinf_unit_add(zinf, "head", &unit), 0);
	cr_assert_eq(zinf_param_add(zinf, "head.0", 1, shape, &param), 0);
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_param_write_begin(zinf, i), 0);
		for (uint32_t k = 0; k < (i ? 100 : 300); k++)
			((float *)(uintptr_t)zinf_param_data(zinf, i ? param : params[0]))[k] = 1;
		cr_assert_eq(zinf_param_write_end(zinf, i, 0), 0);
	}
	cr_assert_eq(zinf_commit(zinf, NULL, 0), 0);
}

static void end(void)
{
	zinf_detach(zinf);
	stop();
}

static void step_begin(void)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;

	options.lr = 0.5;
	options.weight_decay = 0.1;
	cr_assert_eq(zinf_step_begin(zinf, &options), 0, "%s", zinf_error_text(zinf));
}

static void fill(uint32_t param, float value)
{
	float *grad = zinf_grad_data(zinf, param);

	for (uint32_t i = 0; i < 100; i++)
		grad[i] = value;
}

static void hand_over(uint32_t unit, const uint32_t *marked, uint32_t marked_count)
{
	cr_assert_eq(zinf_grad_acquire(zinf, unit), 0);
	for (uint32_t i = 0; i < marked_count; i++) {
		fill(marked[i], 1);
		cr_assert_eq(zinf_grad_done(zinf, marked[i]), 0, "%s", zinf_error_text(zinf));
	}
	cr_assert_eq(zinf_reduce(zinf, unit), 0, "%s", zinf_error_text(zinf));
}

static uint32_t step_end(void)
{
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	zinf_ticket ticket;

	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_wait(zinf, ticket, &stats), 0, "%s", zinf_error_text(zinf));
	return stats.unused_count;
}

static float value_of(uint32_t param)
{
	return ((const float *)zinf_param_data(zinf, param))[7];
}

/* What the buffer holds of the step before is nobody's gradient. */
Test(unused, what_the_buffer_holds_is_not_a_gradient)
{
	const uint32_t all[] = { 0, 1, 2 }, head = 3;
	float former[4];

	begin(true);
	step_begin();
	hand_over(0, all, 3);
	hand_over(1, &head, 1);
	cr_assert_eq(step_end(), 0);
	for (uint32_t i = 0; i < 4; i++)
		former[i] = value_of(i);
	step_begin();
	hand_over(0, &all[1], 1);
	/* The head is not so much as acquired. */
	cr_assert_eq(step_end(), 3);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(value_of(i) == former[i], i != 1, "parameter %u", i);
	end();
}

/* More parameters than a slot names, at the borders of slots and words. */
Test(unused, of_a_unit_of_many_those_that_are_not_marked_stay)
{
	static const uint32_t left_out[] = { 0, 63, 64, 319, 320, 639, 640, 699 };
	struct zinf_options options;
	uint32_t index, next = 0;

	start(NULL);
	options = options_of(0, 1);
	options.finds_unused = true;
	zinf = attach(&options);
	cr_assert_eq(zinf_unit_add(zinf, "many", &index), 0);
	for (uint32_t i = 0; i < 700; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "many.%u", i);
		cr_assert_eq(zinf_param_add(zinf, name, 0, NULL, &index), 0);
	}
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_commit(zinf, NULL, 0), 0);
	step_begin();
	cr_assert_eq(zinf_grad_acquire(zinf, 0), 0);
	for (uint32_t i = 0; i < 700; i++) {
		*(float *)zinf_grad_data(zinf, i) = 1;
		if (i == left_out[next % ZI_COUNT_OF(left_out)])
			next++;
		else
			cr_assert_eq(zinf_grad_done(zinf, i), 0);
	}
	cr_assert_eq(zinf_reduce(zinf, 0), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(step_end(), ZI_COUNT_OF(left_out));
	next = 0;
	for (uint32_t i = 0; i < 700; i++) {
		bool is_left = i == left_out[next % ZI_COUNT_OF(left_out)];

		next += is_left;
		cr_assert_eq(*(const float *)zinf_param_data(zinf, i) == 0, is_left, "%u", i);
	}
	end();
}

Test(unused, who_marks_and_forgets_one_is_told_which)
{
	const uint32_t all[] = { 0, 1, 2 }, head = 3;

	begin(false);
	step_begin();
	cr_assert_eq(zinf_grad_done(zinf, 0), -EINVAL);
	expect("parameter 'body.0': call zinf_grad_acquire() of unit 'body' first");
	cr_assert_eq(zinf_grad_done(zinf, 4), -EINVAL);
	expect("parameter 4 of 4");
	hand_over(1, NULL, 0); /* Nobody marks anything yet: it has a gradient of all. */
	cr_assert_eq(zinf_grad_acquire(zinf, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		fill(i, 1);
	cr_assert_eq(zinf_grad_done(zinf, 1), 0);
	cr_assert_eq(zinf_reduce(zinf, 0), -ENODATA);
	expect("unit 'body': no gradient of 'body.0', 'body.2': zinf_grad_done() them");
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(zinf_grad_done(zinf, i), 0);
	cr_assert_eq(zinf_reduce(zinf, 0), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(step_end(), 0);
	step_begin();
	cr_assert_eq(zinf_grad_acquire(zinf, 1), 0);
	cr_assert_eq(zinf_reduce(zinf, 1), -ENODATA, "from the first mark on");
	cr_assert_eq(zinf_grad_done(zinf, head), 0);
	cr_assert_eq(zinf_reduce(zinf, 1), 0);
	hand_over(0, all, 3);
	cr_assert_eq(step_end(), 0);
	end();
}

Test(unused, who_finds_them_and_marks_none_is_told_so)
{
	const uint32_t all[] = { 0, 1, 2 };
	zinf_ticket ticket;

	begin(true);
	step_begin();
	hand_over(1, NULL, 0);
	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), -ENODATA);
	expect("finds_unused is set, and rank 0 has marked no gradient");
	hand_over(0, all, 3);
	cr_assert_eq(step_end(), 1);
	step_begin();
	cr_assert_eq(zinf_grad_acquire(zinf, 0), 0);
	cr_assert_eq(zinf_grad_done(zinf, 0), 0);
	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), -ENODATA, "marked, and not handed over");
	expect("no gradient for units: body");
	cr_assert_eq(zinf_reduce(zinf, 0), 0);
	cr_assert_eq(step_end(), 3);
	end();
}

Test(unused, no_sync_has_a_begin_and_an_end)
{
	const uint32_t all[] = { 0, 1, 2 }, head = 3;
	zinf_ticket ticket;

	begin(false);
	cr_assert_eq(zinf_no_sync_end(zinf), -EINVAL);
	expect("call zinf_no_sync_begin() first");
	step_begin();
	cr_assert_eq(zinf_no_sync_begin(zinf), 0);
	cr_assert_eq(zinf_no_sync_begin(zinf), 0);
	hand_over(1, &head, 1);
	cr_assert_eq(zinf_no_sync_end(zinf), 0);
	cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), -EBUSY);
	expect("zinf_no_sync_end() comes before zinf_step()");
	cr_assert_eq(zinf_no_sync_end(zinf), 0);
	cr_assert_eq(zinf_no_sync_end(zinf), -EINVAL);
	hand_over(1, &head, 1);
	hand_over(0, all, 3);
	cr_assert_eq(step_end(), 0);
	cr_assert_eq(zinf_no_sync_begin(zinf), 0);
	cr_assert_eq(zinf_join(zinf, false), -EBUSY);
	expect("zinf_no_sync_end() comes before zinf_join()");
	cr_assert_eq(zinf_no_sync_end(zinf), 0);
	cr_assert_eq(zinf_join(zinf, false), 0);
	end();
}

/* It has no gradient, and nobody asks for one. */
Test(unused, a_unit_that_is_frozen_whole_is_left_out)
{
	static const uint64_t shape[] = { 100 };
	struct zinf_options options;
	uint32_t unit, param, frozen;

	start(NULL);
	options = options_of(0, 1);
	zinf = attach(&options);
	cr_assert_eq(zinf_unit_add(zinf, "body", &unit), 0);
	cr_assert_eq(zinf_param_add(zinf, "body.0", 1, shape, &frozen), 0);
	cr_assert_eq(zinf_param_group(zinf, frozen, ZINF_GROUP_FROZEN), 0, "%s",
	             zinf_error_text(zinf));
	cr_assert_eq(zinf_unit_add(zinf, "head", &unit), 0);
	cr_assert_eq(zinf_param_add(zinf, "head.0", 1, shape, &param), 0);
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(zinf_commit(zinf, NULL, 0), 0);
	step_begin();
	cr_assert_null(zinf_grad_data(zinf, frozen));
	cr_assert_eq(zinf_grad_acquire(zinf, 0), -EPERM);
	expect("all parameters of unit 'body' are frozen: it has no gradient");
	cr_assert_eq(zinf_reduce(zinf, 0), -EPERM);
	cr_assert_eq(zinf_grad_done(zinf, frozen), -EPERM);
	cr_assert_eq(zinf_grad_acquire(zinf, 1), 0);
	fill(param, 1);
	cr_assert_eq(zinf_reduce(zinf, 1), 0, "%s", zinf_error_text(zinf));
	cr_assert_eq(step_end(), 0);
	cr_assert_eq(value_of(frozen), 0);
	cr_assert_neq(value_of(param), 0);
	end();
}
