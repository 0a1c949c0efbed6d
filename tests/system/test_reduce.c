/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: sums of gradients in a type of their own (reduce_dtype) have the bits of
 * docs/ARITHMETIC.md by every strategy, schedule and place, on several ranks, clipped or not,
 * updated early or not; wide sums of 16-bit gradients are in the accumulator's memory, alone.
 * Method: ranks as processes, compared with the plain computation; what zctl says of the job.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "common/base/cleanup.h"
#include "tests/system/system.h"

static struct harness harness;
static char words[1 << 20];

TestSuite(reduce, .timeout = 300);

static const struct {
	enum zinf_dtype param, grad, reduce;
} types[] = {
	{ ZINF_BF16, ZINF_BF16, ZINF_F32 }, { ZINF_F16, ZINF_F16, ZINF_F32 },
	{ ZINF_BF16, ZINF_F32, ZINF_BF16 }, { ZINF_F32, ZINF_F32, ZINF_F16 },
	{ ZINF_F32, ZINF_F32, ZINF_BF16 },
};

/* Of the plane, in memory. */
static uint64_t held_bytes(const char *job, const char *plane)
{
	int code = harness_zctl(harness.socket_path,
	                        (const char *const[]){ "--json", "jobs", job, NULL }, words,
	                        sizeof(words));
	json_t *jobs, *held;
	uint64_t bytes;

	cr_assert_eq(code, 0, "%s", words);
	jobs = json_loads(words, 0, NULL);
	cr_assert_not_null(jobs, "%s", words);
	held = json_object_get(json_object_get(json_array_get(jobs, 0), "held"), plane);
	held = json_object_get(held, "cpu_bytes");
	cr_assert(json_is_integer(held), "no %s in %s", plane, words);
	bytes = (uint64_t)json_integer_value(held);
	json_decref(jobs);
	return bytes;
}

static void train(uint32_t row, uint32_t strategy, bool is_sharded)
{
	struct trainer_settings settings = ranks_settings(&harness, "sums", 1 + row % 4);
	bool is_nvme = row % 2, has_pool = row % 4 == 3;
	struct ranks ranks;

	settings.options.param_dtype = types[row % ZI_COUNT_OF(types)].param;
	settings.options.grad_dtype = types[row % ZI_COUNT_OF(types)].grad;
	settings.options.reduce_dtype = types[row % ZI_COUNT_OF(types)].reduce;
	settings.options.strategy = strategy;
	settings.options.grad_reduction =
		is_sharded ? ZINF_REDUCE_PER_MICRO_BATCH : ZINF_REDUCE_PER_STEP;
	settings.options.offload_optimizer = is_nvme ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_CPU;
	settings.options.offload_param = has_pool ? ZINF_OFFLOAD_NVME : ZINF_OFFLOAD_NONE;
	settings.options.staging_bytes = 12 << 20;
	settings.accumulate = is_sharded ? 2 : 1;
	settings.step.max_norm = row % 3 ? 0 : 0.5;
	settings.step.update_early = row % 3 == 1;
	cr_assert_eq(ranks_train(&ranks, &settings), 0, "row %u", row);
	cr_assert(ranks_are_right(&ranks), "row %u", row);
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

Test(reduce, every_strategy_and_type_ends_in_the_bits_of_its_definition)
{
	uint32_t row = 0;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	for (uint32_t strategy = ZINF_DDP; strategy <= ZINF_ZERO3; strategy++)
		for (uint32_t i = 0; i < 2 * ZI_COUNT_OF(types); i++, row++)
			train(row, strategy, i % 2);
	cr_assert_eq(harness_stop(&harness), 0);
}

static struct zinf *attach(struct zinf_options *options)
{
	struct zinf *zinf = NULL;
	const uint64_t shape = 1000000;
	uint32_t index;

	options->socket_path = harness.socket_path;
	options->job = "held";
	options->incarnation = "one";
	options->rank = 0;
	options->world_size = 1;
	cr_assert_eq(zinf_attach(options, &zinf), 0, "%s", zinf_attach_error());
	cr_assert_eq(zinf_unit_add(zinf, "u", &index), 0);
	cr_assert_eq(zinf_param_add(zinf, "u.w", 1, &shape, &index), 0);
	cr_assert_eq(zinf_materialize(zinf), 0, "%s", zinf_error_text(zinf));
	return zinf;
}

Test(reduce, wide_sums_take_an_accumulator_and_nothing_else)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct zinf_options options = ZINF_OPTIONS_INIT;
		struct zinf *zinf;

		system_start(&harness, &(struct harness_options){ .nvme_size = "16M" });
		options.param_dtype = options.grad_dtype = ZINF_BF16;
		options.reduce_dtype = i ? ZINF_F32 : ZINF_BF16;
		zinf = attach(&options);
		cr_assert_geq(held_bytes("held", "reduced_grad"), i ? 4000000 : 0);
		cr_assert_lt(held_bytes("held", "reduced_grad"), i ? 4000000 + (4 << 20) : 1);
		cr_assert_lt(held_bytes("held", "grad"), 2000000 + (4 << 20));
		zinf_detach(zinf);
		cr_assert_eq(harness_stop(&harness), 0);
	}
}

/* What 16 bits cannot have is the rank's whose gradient it is, though f32 has it. */
Test(reduce, an_overflow_of_the_sums_type_is_told_by_rank_and_skipped)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf_step_options step_options = ZINF_STEP_OPTIONS_INIT;
	struct zinf_step_stats stats = { .bytes = sizeof(stats) };
	struct zinf *zinf;
	zinf_ticket ticket;
	float *grad;

	system_start(&harness, &(struct harness_options){ .nvme_size = "16M" });
	options.reduce_dtype = ZINF_F16;
	zinf = attach(&options);
	cr_assert_eq(zinf_commit(zinf, NULL, 0), 0);
	step_options.skip_nonfinite = true;
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(zinf_step_begin(zinf, &step_options), 0);
		cr_assert_eq(zinf_grad_acquire(zinf, 0), 0);
		grad = zinf_grad_data(zinf, 0);
		for (uint32_t k = 0; k < 1000000; k++)
			grad[k] = 1;
		grad[777777] = i ? 65519 : 65520; /* to infinity, or not, when rounded to f16 */
		cr_assert_eq(zinf_reduce(zinf, 0), 0);
		cr_assert_eq(zinf_step(zinf, NULL, 0, &ticket), 0);
		cr_assert_eq(zinf_wait(zinf, ticket, &stats), 0);
		cr_assert_eq(stats.is_skipped, !i);
		cr_assert_eq(stats.nonfinite_rank, i ? -1 : 0);
	}
	zinf_detach(zinf);
	cr_assert_eq(harness_stop(&harness), 0);
}
