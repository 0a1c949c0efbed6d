/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: of a gradient that is not finite the daemon says whose it is and of which unit, wherever
 * the sum lies, in every type and micro-batch; and blames nobody where a sum overflows of which
 * every part is finite. Method: one spoilt element at drawn places, whose rank and unit are known.
 */
#include "daemon/zero/step/culprit.h"
#include "kernels/finite.h"
#include "tests/unit/zero/world.h"

static const struct zi_step_stats *stats(void)
{
	return &actors[0].calls[0].op.stats;
}

static uint32_t unit_told(void)
{
	return actors[0].calls[0].op.culprit_unit;
}

static void begin_of(uint32_t world, uint32_t param_dtype, uint32_t grad_dtype, uint32_t schedule)
{
	struct zi_job_config config = model_config(param_dtype, ZI_OFFLOAD_CPU);

	config.grad_dtype = grad_dtype;
	config.schedule = schedule;
	begin_with(world, &config);
}

static void every_place(uint32_t param_dtype, uint32_t grad_dtype, uint32_t schedule)
{
	const float values[] = { INFINITY, -INFINITY, NAN };
	struct zi_step_options options = model_options();
	uint64_t number = 1;

	options.micro_batches = schedule == ZI_SCHEDULE_SHARDED ? 3 : 1;
	begin_of(3, param_dtype, grad_dtype, schedule);
	for (uint32_t rank = 0; rank < 3; rank++)
		for (uint32_t micro = 0; micro < options.micro_batches; micro++, number++) {
			uint32_t unit = (uint32_t)number % UNITS;

			/* Told with or without leave to skip. */
			options.flags = number % 2 ? ZI_STEP_SKIP_NONFINITE : ZI_STEP_WANT_NORM;
			poison =
				(struct poison){ .what = grad_what(number, micro, rank, unit),
				                 .index = test_noise(number) % model_elements[unit],
				                 .value = values[number % 3],
				                 .count = 1 };
			cr_assert_eq(model_step(actors, 3, number, &options), 0);
			poison.count = 0;
			cr_expect_eq(stats()->culprit, rank, "rank %u micro %u: %u", rank, micro,
			             stats()->culprit);
			cr_expect_eq(unit_told(), unit);
			cr_expect_eq(stats()->is_skipped, number % 2);
			/* What a NaN has spoilt is no concern of the next. */
			options.flags = ZI_STEP_WANT_NORM;
			cr_assert_eq(model_step(actors, 3, ++number, &options), 0);
			cr_expect_eq(stats()->culprit, UINT32_MAX);
			cr_expect_eq(unit_told(), UINT32_MAX);
		}
	end(3);
}

Test(zero_culprit, every_rank_is_told_in_every_type_and_micro_batch)
{
	static const uint32_t types[][2] = {
		{ ZI_DTYPE_F32, ZI_DTYPE_F32 },  { ZI_DTYPE_BF16, ZI_DTYPE_BF16 },
		{ ZI_DTYPE_F16, ZI_DTYPE_F16 },  { ZI_DTYPE_F16, ZI_DTYPE_F32 },
		{ ZI_DTYPE_BF16, ZI_DTYPE_F32 },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(types); i++) {
		every_place(types[i][0], types[i][1], ZI_SCHEDULE_LOCAL);
		every_place(types[i][0], types[i][1], ZI_SCHEDULE_SHARDED);
	}
}

/* @value in the same element of unit 2 of the ranks in @mask. */
static void spoil(uint32_t world, uint32_t mask, float value, const struct zi_step_options *options)
{
	uint32_t dtype = plain.config.grad_dtype;

	cr_assert_eq(
		all_call(actors, world, zero_step_begin, &(struct zero_op){ .options = *options }),
		0, "%s", actors[0].text.chars);
	for (uint32_t micro = 0; micro < options->micro_batches; micro++)
		for (uint32_t i = 0; i < world; i++)
			for (uint32_t unit = 0; unit < UNITS; unit++) {
				cr_assert_eq(actor_unit(&actors[i], zero_grad_acquire, unit), 0);
				model_fill_grad(&actors[i], 1, 0, unit);
				if (unit == 2 && mask >> i & 1)
					put(unit_of(&actors[i], actors[i].memory.grad, unit), 4567,
					    value, dtype);
				cr_assert_eq(actor_unit(&actors[i], zero_reduce, unit), 0);
			}
	cr_assert_eq(all_call(actors, world, zero_step, NULL), 0);
}

Test(zero_culprit, nobody_is_blamed_for_a_sum_of_finite_parts)
{
	static const struct {
		uint32_t param, grad, schedule, flags;
		float value;
	} cases[] = {
		{ ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_LOCAL, 0, 3e38f },
		{ ZI_DTYPE_BF16, ZI_DTYPE_BF16, ZI_SCHEDULE_LOCAL, 0, 3e38f },
		{ ZI_DTYPE_F16, ZI_DTYPE_F16, ZI_SCHEDULE_LOCAL, ZI_STEP_SUM, 60000 },
		{ ZI_DTYPE_F32, ZI_DTYPE_F32, ZI_SCHEDULE_SHARDED, 0, 3e38f },
		/* Finite in the accumulator, and not as an f16. */
		{ ZI_DTYPE_F16, ZI_DTYPE_F16, ZI_SCHEDULE_SHARDED, 0, 60000 },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(cases); i++) {
		struct zi_step_options options = model_options();

		options.flags = ZI_STEP_SKIP_NONFINITE | cases[i].flags;
		options.micro_batches = cases[i].schedule == ZI_SCHEDULE_SHARDED ? 2 : 1;
		begin_of(2, cases[i].param, cases[i].grad, cases[i].schedule);
		spoil(2, 3, cases[i].value, &options);
		cr_expect_eq(stats()->is_skipped, 1, "%u", i);
		cr_expect_eq(stats()->culprit, UINT32_MAX, "%u: %u", i, stats()->culprit);
		cr_expect_eq(unit_told(), 2, "%u", i);
		end(2);
	}
}

Test(zero_culprit, of_several_one_that_is_to_blame_is_told)
{
	struct zi_step_options options = model_options();

	options.flags = ZI_STEP_SKIP_NONFINITE;
	for (uint32_t mask = 1; mask < 16; mask++) {
		begin_of(4, ZI_DTYPE_F16, ZI_DTYPE_F16, ZI_SCHEDULE_LOCAL);
		spoil(4, mask, INFINITY, &options);
		cr_expect_eq(stats()->is_skipped, 1);
		cr_assert_lt(stats()->culprit, 4);
		cr_expect(mask >> stats()->culprit & 1, "%u of %#x", stats()->culprit, mask);
		cr_expect_eq(unit_told(), 2);
		end(4);
	}
}

Test(zero_culprit, the_first_element_that_is_not_finite_is_found)
{
	static const enum zi_dtype types[] = { ZI_DTYPE_F32, ZI_DTYPE_F16, ZI_DTYPE_BF16 };
	const float values[] = { INFINITY, -INFINITY, NAN };
	uint32_t elements[40];

	for (uint32_t i = 0; i < ZI_COUNT_OF(types); i++) {
		for (uint32_t k = 0; k < 40; k++)
			put(elements, k, k % 2 ? -60000 : 6e-8f, types[i]);
		cr_expect_eq(kern_first_nonfinite(elements, 40, types[i]), 40);
		for (uint32_t k = 40; k-- > 0;) {
			put(elements, k, values[k % 3], types[i]);
			cr_expect_eq(kern_first_nonfinite(elements, 40, types[i]), k);
			cr_expect_eq(kern_first_nonfinite(elements, k, types[i]), k);
		}
	}
}
