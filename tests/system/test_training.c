/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a job ends with depends on its gradients and settings alone, not on where its state
 * lies, nor on how steps overlap, nor on the instruction set; and what a step says of itself is
 * true.
 * Method: a made-up trainer (harness/trainer.h), each rank a process of its own, against the same
 * training computed plainly in the test (harness/reference.h); bits are compared, final parameters
 * as well as norms and clip factors.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/harness/ranks.h"
#include "tests/harness/reference.h"
#include "tests/system/system.h"

TestSuite(training, .timeout = 200);

struct training_case {
	uint32_t world;
	enum zinf_dtype param_dtype, grad_dtype;
	enum zinf_optimizer optimizer;
	enum zinf_grad_reduction schedule;
	uint32_t accumulate;
	double max_norm;
	bool is_eager, is_sum, is_nesterov;
	uint32_t infinite_step;
};

/* Each value of each setting, and the pairs that meet in the code: schedule × accumulation, clip ×
 * one pass or two, optimizer × element type. */
static const struct training_case cases[] = {
	{ 1, ZINF_F32, ZINF_F32, ZINF_ADAMW, ZINF_REDUCE_PER_STEP, 1, 0, false, false, false, 0 },
	{ 2, ZINF_F32, ZINF_F32, ZINF_ADAMW, ZINF_REDUCE_PER_STEP, 2, 1.0, false, false, false, 0 },
	{ 2, ZINF_BF16, ZINF_BF16, ZINF_ADAMW, ZINF_REDUCE_PER_STEP, 1, 0, false, false, false, 0 },
	{ 4, ZINF_BF16, ZINF_BF16, ZINF_ADAMW, ZINF_REDUCE_PER_MICRO_BATCH, 2, 0.5, false, false,
	  false, 0 },
	{ 3, ZINF_BF16, ZINF_F32, ZINF_ADAM, ZINF_REDUCE_PER_MICRO_BATCH, 1, 0, false, false, false,
	  0 },
	{ 2, ZINF_F32, ZINF_F32, ZINF_SGD, ZINF_REDUCE_PER_MICRO_BATCH, 3, 0, false, false, true,
	  0 },
	{ 2, ZINF_BF16, ZINF_BF16, ZINF_SGD, ZINF_REDUCE_PER_STEP, 2, 2.0, false, true, false, 0 },
	{ 2, ZINF_BF16, ZINF_BF16, ZINF_ADAMW, ZINF_REDUCE_PER_STEP, 1, 0, true, false, false, 0 },
	{ 4, ZINF_F32, ZINF_F32, ZINF_ADAM, ZINF_REDUCE_PER_STEP, 1, 1.0, true, false, false, 0 },
	{ 2, ZINF_BF16, ZINF_BF16, ZINF_ADAMW, ZINF_REDUCE_PER_STEP, 1, 1.0, false, false, false,
	  2 },
	{ 2, ZINF_F32, ZINF_F32, ZINF_SGD, ZINF_REDUCE_PER_MICRO_BATCH, 1, 0, false, false, false,
	  1 },
};

/* Where the state lies: memory, disk, disk with a resident share (one subgroup), and disk with
 * all of it resident. */
enum place { IN_MEMORY, ON_DISK, PARTLY_RESIDENT, ALL_RESIDENT, PLACES_COUNT };

static void place_job(struct trainer_settings *settings, enum place place)
{
	if (place == IN_MEMORY)
		return;
	settings->options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings->options.staging_bytes = 8 << 20;
	if (place == PARTLY_RESIDENT)
		settings->options.resident_bytes = 3 << 20;
	if (place == ALL_RESIDENT)
		settings->options.resident_bytes = 64 << 20;
}

static struct trainer_settings settings_of(const struct harness *harness,
                                           const struct training_case *one, enum place place)
{
	struct trainer_settings settings = ranks_settings(harness, "train", one->world);

	place_job(&settings, place);
	settings.options.param_dtype = one->param_dtype;
	settings.options.grad_dtype = one->grad_dtype;
	settings.options.optimizer = one->optimizer;
	settings.options.grad_reduction = one->schedule;
	settings.accumulate = one->accumulate;
	settings.steps = 4;
	settings.is_eager = one->is_eager;
	settings.infinite_step = one->infinite_step;
	settings.step.max_norm = one->max_norm;
	settings.step.sum = one->is_sum;
	settings.step.nesterov = one->is_nesterov;
	settings.step.skip_nonfinite = one->infinite_step;
	settings.step.unscale = one->is_sum ? 0.5 : 1.0;
	if (one->optimizer == ZINF_SGD)
		settings.step.beta2 = 0.1; /* dampening */
	return settings;
}

/* NaN equals NaN here. */
static bool is_same(double left, double right)
{
	return (isnan(left) && isnan(right)) || !memcmp(&left, &right, sizeof(left));
}

static void expect_stats(const struct ranks *ranks, const struct reference_step *expected)
{
	for (uint32_t rank = 0; rank < ranks->world; rank++)
		for (uint32_t step = 1; step <= ranks->settings.steps; step++) {
			const struct zinf_step_stats *stats = &ranks->reports[rank]->stats[step];

			cr_assert_eq(stats->step, step);
			cr_assert_eq(stats->is_skipped, expected[step].is_skipped, "step %u", step);
			if (expected[step].is_skipped) {
				cr_assert_eq(stats->write_bytes, 0);
				continue;
			}
			cr_assert(is_same(stats->norm, expected[step].norm), "step %u: %a, not %a",
			          step, stats->norm, expected[step].norm);
			cr_assert(is_same(stats->clip, expected[step].clip), "step %u: %a, not %a",
			          step, stats->clip, expected[step].clip);
			cr_assert_gt(stats->step_ns, 0);
		}
}

static void train_and_compare(struct harness *harness, const struct training_case *one,
                              enum place place)
{
	struct trainer_settings settings = settings_of(harness, one, place);
	struct reference_step expected[TRAINER_STEPS_MAX + 1];
	unsigned char *parameters = malloc(trainer_dump_bytes(&settings));
	struct ranks ranks;

	cr_assert(reference_train(&settings, parameters, expected));
	free(parameters);
	cr_assert_eq(ranks_train(&ranks, &settings), 0, "case %td, place %d", one - cases, place);
	cr_assert(ranks_are_right(&ranks), "case %td, place %d", one - cases, place);
	expect_stats(&ranks, expected);
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

static void train_all_in(enum place place)
{
	struct harness harness;
	uint64_t baseline_bytes;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	baseline_bytes = harness_cpu_bytes(&harness);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		train_and_compare(&harness, &cases[i], place);
	cr_assert(harness_charges_return(&harness, baseline_bytes, 10000));
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(training, with_state_in_memory_ends_in_the_bits_of_the_plain_computation)
{
	train_all_in(IN_MEMORY);
}

Test(training, with_state_on_disk_ends_in_the_bits_of_the_plain_computation)
{
	train_all_in(ON_DISK);
}

Test(training, with_a_resident_share_ends_in_the_bits_of_the_plain_computation)
{
	train_all_in(PARTLY_RESIDENT);
}

Test(training, with_all_of_it_resident_ends_in_the_bits_of_the_plain_computation)
{
	train_all_in(ALL_RESIDENT);
}

/* The daemon computes with the plain kernels; the vectorised ones ran in the tests above. */
Test(training, with_plain_kernels_and_a_single_thread_ends_in_the_same_bits)
{
	struct harness harness;

	(void)setenv("ZINF_ISA", "ref", 1);
	system_start(&harness, &(struct harness_options){ .nvme_size = "64M",
	                                                  .daemon_extra = "pool_threads = 1\n" });
	(void)unsetenv("ZINF_ISA");
	train_and_compare(&harness, &cases[3], ON_DISK);
	train_and_compare(&harness, &cases[6], IN_MEMORY);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* The engine without io_uring, blocks of one page, a depth of two: the slowest way gives the
 * same. */
Test(training, through_the_threads_engine_ends_in_the_same_bits)
{
	struct harness harness;

	system_start(&harness,
	             &(struct harness_options){
			     .nvme_size = "64M",
			     .nvme_extra = "backend = threads\nread_depth = 2\nwrite_depth = 2\n"
					   "read_block = 64K\n",
		     });
	train_and_compare(&harness, &cases[2], ON_DISK);
	cr_assert_eq(harness_stop(&harness), 0);
}

/* Elements whose state is streamed: all but the last subgroups, which fit into resident_bytes. */
static void expect_bytes(struct harness *harness, enum zinf_dtype dtype, uint64_t state_bytes,
                         uint64_t param_bytes)
{
	struct trainer_settings settings = ranks_settings(harness, "bytes", 2);
	uint64_t padded = trainer_padded_elements(settings.model);
	struct ranks ranks;

	place_job(&settings, ON_DISK);
	settings.options.param_dtype = settings.options.grad_dtype = dtype;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	for (uint32_t step = 1; step <= settings.steps; step++) {
		const struct zinf_step_stats *stats = &ranks.reports[0]->stats[step];

		/* Moments that were never written are zero and take no I/O. */
		cr_assert_eq(stats->read_bytes, step > 1 ? state_bytes * padded : 0,
		             "step %u: %llu", step, (unsigned long long)stats->read_bytes);
		cr_assert_eq(stats->write_bytes, (state_bytes + param_bytes) * padded,
		             "step %u: %llu", step, (unsigned long long)stats->write_bytes);
	}
	ranks_free(&ranks);
	cr_assert_eq(system_destroy_job(&settings), 0);
}

Test(training, a_step_reads_the_state_and_writes_state_and_parameters)
{
	struct harness harness;

	system_start(&harness,
	             &(struct harness_options){ .nvme_size = "64M", .extra = HARNESS_COLD });
	expect_bytes(&harness, ZINF_BF16, 10, 2);
	expect_bytes(&harness, ZINF_F32, 8, 4);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(training, a_resident_share_is_not_read_but_written)
{
	struct harness harness;
	struct trainer_settings settings;
	uint64_t padded, resident;
	struct ranks ranks;

	system_start(&harness,
	             &(struct harness_options){ .nvme_size = "64M", .extra = HARNESS_COLD });
	settings = ranks_settings(&harness, "bytes", 1);
	padded = trainer_padded_elements(settings.model);
	settings.options.param_dtype = settings.options.grad_dtype = ZINF_BF16;
	place_job(&settings, PARTLY_RESIDENT);
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	/* The first subgroups, as many as fit: unit 0 is one of 256 Ki and one of 12 Ki elements,
	 * unit 1 one of 12 Ki + 4 Ki; unit 2 with its 40 Ki has no room in 3 MiB. */
	resident = (256 + 12 + 16) * 1024;
	cr_assert_leq(resident * 10, settings.options.resident_bytes);
	for (uint32_t step = 1; step <= settings.steps; step++) {
		cr_assert_eq(ranks.reports[0]->stats[step].read_bytes,
		             step > 1 ? 10 * (padded - resident) : 0);
		cr_assert_eq(ranks.reports[0]->stats[step].write_bytes, 12 * padded);
	}
	ranks_free(&ranks);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(training, what_zctl_tells_of_a_job_is_what_it_did)
{
	struct harness harness;
	struct trainer_settings settings;
	struct ranks ranks;
	json_t *jobs, *job;

	system_start(&harness, &(struct harness_options){ .nvme_size = "64M" });
	settings = ranks_settings(&harness, "told", 2);
	place_job(&settings, ON_DISK);
	settings.step.want_norm = true;
	cr_assert_eq(ranks_train(&ranks, &settings), 0);
	jobs = harness_admin(&harness, "jobs told");
	job = json_array_get(jobs, 0);
	cr_assert_eq(json_integer_value(json_object_get(job, "committed_step")), settings.steps);
	cr_assert_eq(json_integer_value(json_object_get(job, "elements")),
	             (json_int_t)trainer_elements(settings.model));
	cr_assert_eq(json_integer_value(json_object_get(job, "padded_elements")),
	             (json_int_t)trainer_padded_elements(settings.model));
	cr_assert_eq(json_integer_value(json_object_get(job, "units")), settings.model->unit_count);
	cr_assert_eq(json_integer_value(json_object_get(job, "incarnation_number")), 1);
	job = json_object_get(job, "last_step");
	cr_assert_eq(json_integer_value(json_object_get(job, "step")), settings.steps);
	cr_assert(is_same(json_real_value(json_object_get(job, "norm")),
	                  ranks.reports[0]->stats[settings.steps].norm));
	json_decref(jobs);
	ranks_free(&ranks);
	cr_assert_eq(harness_stop(&harness), 0);
}
