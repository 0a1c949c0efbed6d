/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank computes on a GPU what it computes on the host, bit for bit, whatever the size of
 * its arena and the order in which streams run; the daemon gets gradients that have arrived.
 * Method: the fake driver (tests/gpu/) and the fake daemon, whose steps change values.
 */
#include "tests/unit/libclient/gpu.h"

#define STEPS 3u

static void train(const char *order, const struct fake_daemon_options *daemon, uint32_t param_units,
                  uint32_t grad_units)
{
	struct gpu_job job = gpu_attach(order, daemon);

	gpu_materialize(&job, param_units, grad_units);
	for (uint32_t step = 1; step <= STEPS; step++)
		gpu_must_step(&job, (float)step);
	cr_expect_eq(gpu_wrong_count(&job, STEPS, 1), 0u, "%s, %u units", order, param_units);
	gpu_leave(&job);
}

#define ARENA_TEST(name, order, param_units, grad_units)          \
	Test(gpu, name)                                           \
	{                                                         \
		struct fake_daemon_options daemon = gpu_daemon(); \
                                                                  \
		train(order, &daemon, param_units, grad_units);   \
	}

ARENA_TEST(arena_of_all_units_eager, "order=eager", 0, 0)
ARENA_TEST(arena_of_all_units_late, "order=late", 0, 0)
ARENA_TEST(arena_of_all_units_shuffled, "order=shuffled:11", GPU_UNITS, GPU_UNITS)
ARENA_TEST(arena_of_half_eager, "order=eager", 5, 2)
ARENA_TEST(arena_of_half_late, "order=late", 5, 2)
ARENA_TEST(arena_of_half_shuffled, "order=shuffled:12", 5, 2)
ARENA_TEST(arena_of_three_units_eager, "order=eager", 3, 2)
ARENA_TEST(arena_of_three_units_late, "order=late", 3, 3)
ARENA_TEST(arena_of_three_units_shuffled, "order=shuffled:13", 3, 2)

/* Parameters on NVMe: the pool has room for two units. */
static struct fake_daemon_options pooled_daemon(void)
{
	struct fake_daemon_options daemon = gpu_daemon();

	daemon.has_pool = true;
	return daemon;
}

Test(gpu, pool_is_copied_from_where_the_unit_lies)
{
	struct fake_daemon_options daemon = pooled_daemon();

	train("order=eager", &daemon, 3, 2);
}

Test(gpu, pool_with_late_streams)
{
	struct fake_daemon_options daemon = pooled_daemon();

	train("order=late", &daemon, 3, 2);
}

Test(gpu, pool_with_shuffled_streams)
{
	struct fake_daemon_options daemon = pooled_daemon();

	train("order=shuffled:5", &daemon, 5, 2);
}

Test(gpu, gradients_land_in_their_buckets)
{
	struct fake_daemon_options daemon = gpu_daemon();

	daemon.has_buckets = true;
	train("order=late", &daemon, 3, 2);
}

/* What the driver does not register goes through two buffers. */
Test(gpu, memory_that_cannot_be_registered_is_copied_by_buffers)
{
	struct fake_daemon_options daemon = gpu_daemon();

	train("order=shuffled:3,register=4K", &daemon, 3, 2);
}

Test(gpu, read_only_registration_is_not_needed)
{
	struct fake_daemon_options daemon = gpu_daemon();

	train("order=late,no=read_only", &daemon, 3, 2);
}

/* Pieces end amid units: copies are cut there. */
Test(gpu, copies_are_cut_at_pieces)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("order=eager", &daemon);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));
	struct zinf_gpu_stats stats = { .bytes = sizeof(stats) };

	cr_assert_eq(zinf_gpu_open(job.zinf, &options), 0, "%s", zinf_error_text(job.zinf));
	job.zinf->gpu->pins.piece_bytes = MIB;
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(gpu_load_kernel(&job), 0);
	gpu_await_pins(&job);
	cr_assert_eq(zinf_gpu_stats(job.zinf, &stats), 0);
	cr_expect_eq(stats.pinned_bytes, job.zinf->param_bytes + job.zinf->grad_bytes);
	gpu_must_step(&job, 1);
	cr_expect_eq(gpu_wrong_count(&job, 1, 1), 0u);
	gpu_leave(&job);
}

/* ---- what is counted ---- */

Test(gpu, all_units_are_copied_once_a_step_where_they_fit)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("order=eager", &daemon);
	struct zinf_gpu_stats stats = { .bytes = sizeof(stats) };

	gpu_materialize(&job, 0, 0);
	gpu_must_step(&job, 1);
	gpu_must_step(&job, 2);
	cr_assert_eq(zinf_gpu_stats(job.zinf, &stats), 0);
	cr_expect_eq(stats.to_gpu_count, 2 * GPU_UNITS);
	cr_expect_eq(stats.from_gpu_count, 2 * GPU_UNITS);
	cr_expect_eq(stats.to_gpu_bytes, stats.from_gpu_bytes);
	cr_expect_geq(stats.hit_count, 2 * GPU_UNITS, "backward has what forward had");
	cr_expect_gt(stats.prefetch_count, 0u, "the second forward was foreseen");
	cr_expect_eq(stats.param_budget_bytes, GPU_UNITS * UNIT_BYTES);
	cr_expect_eq(stats.grad_budget_bytes, 2 * UNIT_BYTES);
	cr_expect_eq(stats.chunk_bytes, 2 * MIB);
	cr_expect_eq(stats.chunk_count, 2 * GPU_UNITS + 4);
	gpu_leave(&job);
}

/* The daemon holds a unit only while it is copied: at the end of a step none. */
Test(gpu, daemon_gets_every_unit_back)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("order=late", &daemon);

	gpu_materialize(&job, 3, 0);
	for (uint32_t step = 1; step <= STEPS; step++) {
		gpu_must_step(&job, (float)step);
		cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_UNSHARD)),
		             fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_RESHARD)));
	}
	gpu_leave(&job);
}

Test(gpu, addresses_are_fixed_and_of_their_own)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);
	uint64_t params[GPU_UNITS];

	cr_expect_eq(zinf_gpu_param(job.zinf, 0), 0u, "no GPU yet");
	gpu_materialize(&job, 3, 2);
	for (uint32_t i = 0; i < GPU_UNITS; i++) {
		params[i] = zinf_gpu_param(job.zinf, job.params[i]);
		cr_assert_neq(params[i], 0u);
		cr_assert_neq(zinf_gpu_grad(job.zinf, job.params[i]), 0u);
		for (uint32_t other = 0; other < i; other++)
			cr_assert_neq(params[i], params[other]);
	}
	gpu_must_step(&job, 1);
	for (uint32_t i = 0; i < GPU_UNITS; i++)
		cr_expect_eq(params[i], zinf_gpu_param(job.zinf, job.params[i]));
	cr_expect_eq(zinf_gpu_param(job.zinf, GPU_UNITS), 0u);
	cr_expect_eq(zinf_gpu_grad(job.zinf, GPU_UNITS), 0u);
	cr_expect_not(zinf_param_is_resident(job.zinf, job.params[0]));
	gpu_leave(&job);
}

/* ---- the trainer's stream and context ---- */

Test(gpu, context_of_the_caller_comes_back)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("gpus=2", &daemon);
	struct zi_cuda_context *other = NULL, *current = NULL;

	gpu_materialize(&job, 3, 2);
	cr_assert_eq(job.cuda->cuDevicePrimaryCtxRetain(&other, 1), 0);
	cr_assert_eq(job.cuda->cuCtxPushCurrent(other), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_ping(job.zinf), 0);
	cr_assert_eq(job.cuda->cuCtxGetCurrent(&current), 0);
	cr_expect_eq(current, other);
	cr_assert_eq(job.cuda->cuCtxPopCurrent(NULL), 0);
	gpu_leave(&job);
}

/* Work on the former stream comes before work on the next one. */
Test(gpu, streams_may_change_amid_a_step)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("order=shuffled:8", &daemon);
	struct zi_cuda_stream *streams[3];

	gpu_materialize(&job, 3, 2);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(job.cuda->cuStreamCreateWithPriority(&streams[i], 1, 0), 0);
	for (uint32_t step = 1; step <= STEPS; step++) {
		const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
		zinf_ticket ticket;

		cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
		for (uint32_t i = 0; i < GPU_UNITS; i++) {
			job.stream = streams[(i + step) % 3];
			cr_assert_eq(zinf_gpu_stream(job.zinf, job.stream), 0, "%s",
			             zinf_error_text(job.zinf));
			cr_assert_eq(zinf_unshard(job.zinf, i), 0);
			cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0);
			cr_assert_eq(gpu_compute(&job, i, (float)step, 0), 0);
			cr_assert_eq(zinf_reduce(job.zinf, i), 0);
			cr_assert_eq(zinf_reshard(job.zinf, i), 0);
		}
		cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
		cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	}
	cr_expect_eq(gpu_wrong_count(&job, STEPS, 1), 0u);
	cr_assert_eq(zinf_gpu_stream(job.zinf, NULL), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(job.cuda->cuStreamDestroy(streams[i]), 0);
	gpu_leave(&job);
}

Test(gpu, stream_of_another_context_is_refused)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("gpus=2", &daemon);
	struct zi_cuda_context *other = NULL;
	struct zi_cuda_stream *stream;

	cr_expect_eq(zinf_gpu_stream(job.zinf, NULL), -EINVAL, "no GPU yet");
	gpu_materialize(&job, 3, 2);
	cr_assert_eq(job.cuda->cuDevicePrimaryCtxRetain(&other, 1), 0);
	cr_assert_eq(job.cuda->cuCtxPushCurrent(other), 0);
	cr_assert_eq(job.cuda->cuStreamCreateWithPriority(&stream, 1, 0), 0);
	cr_assert_eq(job.cuda->cuCtxPopCurrent(NULL), 0);
	cr_expect_eq(zinf_gpu_stream(job.zinf, stream), -EINVAL);
	expect_text(job.zinf, "primary context");
	cr_expect_eq(zinf_gpu_stream(job.zinf, &job), -EINVAL);
	gpu_must_step(&job, 1);
	gpu_leave(&job);
}

/* ---- values that change elsewhere ---- */

Test(gpu, written_values_are_copied_anew)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("order=late", &daemon);
	float seen[4] = { 0 };

	daemon.has_steps = false;
	gpu_materialize(&job, 0, 0);
	cr_assert_eq(zinf_unshard(job.zinf, 2), 0);
	cr_expect_eq(zinf_param_write_begin(job.zinf, 2), -EBUSY);
	cr_expect_eq(zinf_param_write_end(job.zinf, 2, 0), -EBUSY);
	expect_text(job.zinf, "unsharded on the GPU");
	cr_assert_eq(zinf_reshard(job.zinf, 2), 0);
	cr_assert_eq(zinf_param_write_begin(job.zinf, 2), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(zinf_unshard(job.zinf, 2), -EBUSY, "it is written");
	for (int i = 0; i < 4; i++)
		((float *)(uintptr_t)zinf_param_data(job.zinf, job.params[2]))[i] = (float)i + 77;
	cr_assert_eq(zinf_param_write_end(job.zinf, 2, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_unshard(job.zinf, 2), 0);
	cr_assert_eq(job.cuda->cuMemcpyDtoHAsync(seen, zinf_gpu_param(job.zinf, job.params[2]),
	                                         sizeof(seen), NULL),
	             0);
	cr_assert_eq(job.cuda->cuStreamSynchronize(NULL), 0);
	for (int i = 0; i < 4; i++)
		cr_expect_eq(seen[i], (float)i + 77);
	cr_assert_eq(zinf_reshard(job.zinf, 2), 0);
	gpu_leave(&job);
}

Test(gpu, discarded_step_leaves_values_and_gradients_as_they_were)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("order=shuffled:4", &daemon);

	gpu_materialize(&job, 3, 3);
	cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 8), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 8), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 8), 0, "twice is once");
	cr_assert_eq(gpu_compute(&job, 8, 99, 0), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 8), 0);
	cr_assert_eq(zinf_step_discard(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	gpu_must_step(&job, 1);
	cr_expect_eq(gpu_wrong_count(&job, 1, 1), 0u);
	gpu_leave(&job);
}
