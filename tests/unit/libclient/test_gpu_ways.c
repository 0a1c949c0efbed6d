/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a rank can do on the host it can do with a GPU: leave parameters without a gradient,
 * read its masters, compute forward only, freeze units; each call looks for copies that have ended;
 * the arena has the size that budget.h says. Method: the fake driver and the fake
 * daemon.
 */
#include "common/gpu/need.h"
#include "common/gpu/ring.h"
#include "tests/unit/libclient/gpu.h"

#define SMALL 3000u

static struct gpu_job attach_small(const char *fake, const struct zinf_options *options)
{
	struct fake_daemon_options daemon = gpu_daemon();

	gpu_elements = SMALL;
	return gpu_attach_with(fake, &daemon, options);
}

/* REDUCE waits for the copy: with late streams nothing runs before somebody asks for it. */
Test(gpu_ways, gradient_is_handed_over_when_its_copy_has_ended)
{
	const struct zinf_options init = ZINF_OPTIONS_INIT;
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct gpu_job job = attach_small("order=late", &init);
	uint32_t call_count = 0;

	gpu_materialize(&job, 3, 2);
	gpu_await_pins(&job);
	cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
	cr_assert_eq(gpu_compute(&job, 0, 1, 0), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 0), 0);
	cr_assert_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_REDUCE)), 0u);
	/* Each look brings the streams forward by one operation. */
	while (!fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_REDUCE)) && call_count++ < 100)
		cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_REDUCE)), 1u);
	gpu_leave(&job);
}

Test(gpu_ways, parameters_without_a_gradient_are_zeros)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf_options unused = ZINF_OPTIONS_INIT;
	struct gpu_job job;
	zinf_ticket ticket;
	uint64_t first = 0;

	unused.finds_unused = true;
	job = attach_small("order=shuffled:21", &unused);
	gpu_materialize(&job, 3, 3);
	cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
	/* 0 to 3 are marked; 4 has garbage and no mark; the rest is left out. */
	for (uint32_t i = 0; i < 5; i++) {
		cr_assert_eq(zinf_unshard(job.zinf, i), 0);
		cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0, "%s", zinf_error_text(job.zinf));
		cr_assert_eq(gpu_compute(&job, i, 1, 0), 0);
		if (i < 4)
			cr_assert_eq(zinf_grad_done(job.zinf, job.params[i]), 0);
		cr_assert_eq(zinf_reduce(job.zinf, i), 0, "%s", zinf_error_text(job.zinf));
		cr_assert_eq(zinf_reshard(job.zinf, i), 0);
	}
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	for (uint32_t unit = 0; unit < GPU_UNITS; unit++) {
		const float *values = fake_daemon_values(job.fake, unit);
		uint64_t wrong_count = 0;

		for (uint64_t i = 0; i < unit_elements(unit); i++) {
			float value = fake_value(first + i);

			value -= unit < 4 ? grad_of(value, 1) : 0;
			wrong_count += value != values[i];
		}
		cr_expect_eq(wrong_count, 0u, "unit %u", unit);
		first += (uint64_t)(fake_daemon_values(job.fake, unit + 1) - values);
	}
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_REDUCE)), GPU_UNITS);
	gpu_leave(&job);
}

/* A unit that is in use on the GPU is read from CPU memory. */
Test(gpu_ways, masters_are_read_whether_the_unit_is_in_use_or_not)
{
	const struct zinf_options init = ZINF_OPTIONS_INIT;
	struct gpu_job job = attach_small("order=late", &init);
	static float masters[SMALL + GPU_MORE];
	const float *values;

	gpu_materialize(&job, 3, 2);
	gpu_must_step(&job, 1);
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0);
	cr_assert_eq(zinf_state_read(job.zinf, job.params[1], ZINF_STATE_MASTER, masters,
	                             unit_elements(1)),
	             0, "%s", zinf_error_text(job.zinf));
	values = fake_daemon_values(job.fake, 1);
	cr_expect_eq(memcmp(masters, values, unit_elements(1) * sizeof(float)), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 1), 0);
	gpu_leave(&job);
}

/* Neither gradients nor steps: the order of uses is a round. */
Test(gpu_ways, forward_only)
{
	struct zinf_gpu_stats stats = { .bytes = sizeof(stats) };
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct gpu_job job;

	options.is_forward_only = true;
	job = attach_small("order=shuffled:2", &options);
	gpu_materialize(&job, 3, 0);
	cr_expect_eq(zinf_gpu_grad(job.zinf, 0), 0u);
	for (uint32_t round = 0; round < 6; round++)
		for (uint32_t i = 0; i < GPU_UNITS; i++) {
			float seen = -1;

			cr_assert_eq(zinf_unshard(job.zinf, i), 0, "%s", zinf_error_text(job.zinf));
			cr_assert_eq(job.cuda->cuMemcpyDtoHAsync(
					     &seen, zinf_gpu_param(job.zinf, job.params[i]),
					     sizeof(seen), NULL),
			             0);
			cr_assert_eq(job.cuda->cuStreamSynchronize(NULL), 0);
			cr_expect_eq(seen, fake_daemon_values(job.fake, i)[0]);
			cr_assert_eq(zinf_reshard(job.zinf, i), 0);
		}
	cr_assert_eq(zinf_gpu_stats(job.zinf, &stats), 0);
	cr_expect_eq(stats.grad_budget_bytes, 0u);
	cr_expect_eq(zinf_grad_acquire(job.zinf, 0), -EPERM);
	cr_expect_gt(stats.prefetch_count, 0u, "the round was found");
	gpu_leave(&job);
}

/* Their values never change, so a step leaves them where they are. */
Test(gpu_ways, frozen_units_stay_over_steps)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	const struct zinf_options init = ZINF_OPTIONS_INIT;
	struct gpu_job job = attach_small("", &init);
	zinf_ticket ticket;

	cr_assert_eq(zinf_param_group(job.zinf, job.params[8], ZINF_GROUP_FROZEN), 0);
	gpu_materialize(&job, 0, 2);
	cr_expect_eq(zinf_gpu_grad(job.zinf, job.params[8]), 0u);
	cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 8), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 8), 0);
	cr_expect_eq(zinf_grad_acquire(job.zinf, 8), -EPERM);
	for (uint32_t i = 0; i < 8; i++) {
		cr_assert_eq(zinf_unshard(job.zinf, i), 0);
		cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0);
		cr_assert_eq(gpu_compute(&job, i, 1, 0), 0);
		cr_assert_eq(zinf_reduce(job.zinf, i), 0);
		cr_assert_eq(zinf_reshard(job.zinf, i), 0);
	}
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_expect(zi_client_gpu_has(job.zinf, 8));
	cr_expect_not(zi_client_gpu_has(job.zinf, 0));
	cr_expect_eq(zinf_prefetch(job.zinf, 8), 0);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_PREFETCH)), 0u, "it is here");
	gpu_leave(&job);
}

/* ---- the size of an arena ---- */

static struct zi_gpu_unit list[3000];

static struct zi_gpu_units units_of(uint32_t count, uint64_t bytes)
{
	for (uint32_t i = 0; i < count; i++)
		list[i] = (struct zi_gpu_unit){ .name = "u", .bytes = bytes };
	return (struct zi_gpu_units){
		.purpose = "parameters", .list = list, .count = count, .neighbour_count = 2
	};
}

static struct zi_gpu_budget choose(uint32_t count, uint64_t bytes, const struct zi_gpu_wish *wish)
{
	struct zi_gpu_units params = units_of(count, bytes), grads = params;
	struct zi_gpu_budget budget = { 0 };
	struct zi_text text = { "" };

	grads.purpose = "gradients";
	cr_assert_eq(zi_gpu_budget_choose(wish, &params, &grads, &text, &budget), 0, "%s",
	             text.chars);
	cr_assert_leq(budget.param_count + budget.grad_count, ZI_GPU_CHUNKS_MAX);
	cr_assert_leq((budget.param_count + budget.grad_count) * budget.chunk_bytes,
	              wish->free_bytes);
	cr_assert_eq(params.chunk_bytes, budget.chunk_bytes);
	return budget;
}

Test(gpu_ways, chunks_are_as_small_as_their_number_allows)
{
	struct zi_gpu_wish wish = { .granularity_bytes = 2 * MIB,
		                    .free_bytes = 80ull << 30,
		                    .device = "GPU" };
	struct zi_gpu_budget budget = choose(100, 20 * MIB, &wish);

	cr_expect_eq(budget.chunk_bytes, 2 * MIB);
	cr_expect_eq(budget.param_count, 1000u);
	cr_expect_eq(budget.grad_count, 20u);
	/* 1024 chunks of 2 MiB do not hold it; of 4 MiB they do. */
	budget = choose(101, 20 * MIB + 1, &wish);
	cr_expect_eq(budget.chunk_bytes, 4 * MIB);
	cr_expect_eq(budget.param_count, 606u);
	/* More units than chunks: the ring has no more than 1024. */
	budget = choose(3000, MIB, &wish);
	cr_expect_eq(budget.chunk_bytes, 2 * MIB);
	cr_expect_eq(budget.param_count, ZI_GPU_CHUNKS_MAX - 2u);
	/* What there is room for. */
	wish.free_bytes = 100 * MIB + 1;
	budget = choose(100, 20 * MIB, &wish);
	cr_expect_eq(budget.param_count, 30u);
	/* Gradients of all units. */
	wish.free_bytes = 8ull << 30;
	wish.micro_batches = 2;
	budget = choose(100, 20 * MIB, &wish);
	cr_expect_eq(budget.grad_count * budget.chunk_bytes, 2000 * MIB);
}
