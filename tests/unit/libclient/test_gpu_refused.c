/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what a rank asks of a GPU in vain is refused with figures, and nothing else changes; a
 * daemon that lies is not believed. Method: the fake driver and the fake daemon.
 */
#include "tests/unit/libclient/gpu.h"

static int open_with(struct gpu_job *job, const struct zinf_gpu_options *options)
{
	return zinf_gpu_open(job->zinf, options);
}

static int materialize_with(struct gpu_job *job, uint64_t param_bytes, uint64_t grad_bytes)
{
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	options.param_budget_bytes = param_bytes;
	options.grad_budget_bytes = grad_bytes;
	cr_assert_eq(open_with(job, &options), 0, "%s", zinf_error_text(job->zinf));
	return zinf_materialize(job->zinf);
}

Test(gpu_refused, without_a_driver_nothing_changes)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);
	struct zinf_gpu_options options = ZINF_GPU_OPTIONS_INIT;

	options.driver = "/nowhere/libcuda.so.1";
	cr_expect_eq(zinf_gpu_open(job.zinf, &options), -ENODEV);
	expect_text(job.zinf, "no NVIDIA driver");
	cr_expect_eq(zinf_gpu_stats(job.zinf, &(struct zinf_gpu_stats){ .bytes = 144 }), -EINVAL);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_expect_eq(((const float *)zinf_param_data(job.zinf, 0))[5], fake_value(5));
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	gpu_leave(&job);
}

Test(gpu_refused, options_are_checked)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("gpus=2", &daemon);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path)), bad;

	bad = options;
	bad.bytes = 8;
	cr_expect_eq(open_with(&job, &bad), -EINVAL);
	bad = options;
	bad.reserved[3] = 1;
	cr_expect_eq(open_with(&job, &bad), -EINVAL);
	expect_text(job.zinf, "reserved");
	bad = options;
	bad.device = "0";
	cr_expect_eq(open_with(&job, &bad), -EINVAL);
	expect_text(job.zinf, "no UUID");
	bad.device = "GPU-fa4e0000-0000-0000-0000-000000000009";
	cr_expect_eq(open_with(&job, &bad), -ENODEV);
	bad = options;
	bad.stream = &bad;
	cr_expect_eq(open_with(&job, &bad), -EINVAL);
	expect_text(job.zinf, "primary context");
	cr_assert_eq(open_with(&job, &options), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(open_with(&job, &options), -EALREADY);
	expect_text(job.zinf, FAKE_GPU_UUID_0);
	gpu_leave(&job);
}

Test(gpu_refused, local_rank_chooses_among_visible_gpus)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("gpus=2", &daemon);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	options.device = NULL;
	unsetenv("LOCAL_RANK");
	cr_expect_eq(open_with(&job, &options), -EINVAL);
	expect_text(job.zinf, "sees 2 GPUs");
	cr_assert_eq(setenv("LOCAL_RANK", "2", 1), 0);
	cr_expect_eq(open_with(&job, &options), -ENODEV);
	expect_text(job.zinf, "LOCAL_RANK is 2");
	cr_assert_eq(setenv("LOCAL_RANK", "x", 1), 0);
	cr_expect_eq(open_with(&job, &options), -EINVAL);
	cr_assert_eq(setenv("LOCAL_RANK", "1", 1), 0);
	cr_expect_eq(open_with(&job, &options), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_str_eq(job.zinf->gpu->device.uuid, FAKE_GPU_UUID_1);
	gpu_leave(&job);
}

Test(gpu_refused, only_gpu_needs_no_name)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("gpus=1", &daemon);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	options.device = NULL;
	cr_assert_eq(setenv("LOCAL_RANK", "3", 1), 0);
	cr_expect_eq(open_with(&job, &options), 0, "%s", zinf_error_text(job.zinf));
	gpu_leave(&job);
}

Test(gpu_refused, gpu_that_cannot_export_memory)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("no=fds", &daemon);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	cr_expect_eq(open_with(&job, &options), -ENOTSUP);
	expect_text(job.zinf, "file descriptors");
	gpu_leave(&job);
}

Test(gpu_refused, older_daemon)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job;
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	daemon.features = UINT64_MAX & ~ZI_FEATURE_GPU;
	job = gpu_attach("", &daemon);
	cr_expect_eq(open_with(&job, &options), -EOPNOTSUPP);
	expect_text(job.zinf, "newer zinfd");
	gpu_leave(&job);
}

Test(gpu_refused, daemon_without_the_gpu)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job;
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	daemon.gpu_bytes = 0;
	job = gpu_attach("", &daemon);
	cr_expect_eq(open_with(&job, &options), -ENODEV);
	expect_text(job.zinf, "no such GPU");
	cr_expect_null(job.zinf->gpu);
	gpu_leave(&job);
}

Test(gpu_refused, after_materialize)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	cr_assert_eq(zinf_materialize(job.zinf), 0);
	cr_expect_eq(open_with(&job, &options), -EINVAL);
	expect_text(job.zinf, "zinf_gpu_open() after zinf_materialize()");
	gpu_leave(&job);
}

/* ---- budgets ---- */

Test(gpu_refused, budget_below_two_neighbours)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);

	cr_expect_eq(materialize_with(&job, 2 * UNIT_BYTES - 1, 0), -ENOSPC);
	expect_text(job.zinf, "parameters");
	expect_text(job.zinf, "at least 8 MiB");
	gpu_leave(&job);
}

Test(gpu_refused, budget_of_less_than_a_chunk)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);

	cr_expect_eq(materialize_with(&job, 0, 4096), -ENOSPC);
	expect_text(job.zinf, "gradients");
	gpu_leave(&job);
}

/* The least is 16 MiB. One byte less than that is refused, that is used. */
Test(gpu_refused, gpu_without_room)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job;

	daemon.gpu_bytes = 4 * UNIT_BYTES - 1;
	job = gpu_attach("", &daemon);
	cr_expect_eq(materialize_with(&job, 0, 0), -ENOSPC);
	expect_text(job.zinf, "has room for");
	expect_text(job.zinf, "16 MiB");
	gpu_leave(&job);
}

Test(gpu_refused, gpu_with_the_least_room)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job;

	daemon.gpu_bytes = 4 * UNIT_BYTES;
	job = gpu_attach("order=shuffled:2", &daemon);
	cr_assert_eq(materialize_with(&job, 0, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(gpu_load_kernel(&job), 0);
	gpu_must_step(&job, 1);
	cr_expect_eq(gpu_wrong_count(&job, 1, 1), 0u);
	gpu_leave(&job);
}

/* ---- micro-batches ---- */

static struct gpu_job attach_adding(uint32_t accumulation)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct zinf_options options = ZINF_OPTIONS_INIT;

	options.accumulation = accumulation;
	return gpu_attach_with("order=shuffled:6", &daemon, &options);
}

Test(gpu_refused, adding_up_needs_gradients_of_all_units)
{
	struct gpu_job job = attach_adding(2);

	cr_expect_eq(materialize_with(&job, 0, 2 * UNIT_BYTES), -ENOSPC);
	expect_text(job.zinf, "2 micro-batches");
	expect_text(job.zinf, "36 MiB");
	gpu_leave(&job);
}

Test(gpu_refused, no_sync_needs_gradients_of_all_units)
{
	struct gpu_job job = attach_adding(1);

	cr_assert_eq(materialize_with(&job, 0, 0), 0);
	cr_expect_eq(zinf_no_sync_begin(job.zinf), -ENOSPC);
	expect_text(job.zinf, "from 8 MiB to 36 MiB");
	gpu_leave(&job);
}

Test(gpu_refused, gradients_of_all_units_add_up)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct gpu_job job = attach_adding(2);
	zinf_ticket ticket;

	gpu_materialize(&job, 3, 0);
	for (uint32_t step = 1; step <= 2; step++) {
		cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
		for (uint32_t micro = 0; micro < 2; micro++) {
			if (!micro)
				cr_assert_eq(zinf_no_sync_begin(job.zinf), 0);
			for (uint32_t i = 0; i < GPU_UNITS; i++) {
				cr_assert_eq(zinf_unshard(job.zinf, i), 0);
				cr_assert_eq(zinf_grad_acquire(job.zinf, i), 0);
				cr_assert_eq(gpu_compute(&job, i, (float)step, micro), 0);
				cr_assert_eq(zinf_reduce(job.zinf, i), 0);
				cr_assert_eq(zinf_reshard(job.zinf, i), 0);
			}
			if (!micro)
				cr_assert_eq(zinf_no_sync_end(job.zinf), 0);
		}
		cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0);
		cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	}
	cr_expect_eq(gpu_wrong_count(&job, 2, 2), 0u);
	gpu_leave(&job);
}

/* ---- units in use at one time ---- */

Test(gpu_refused, unit_whose_place_is_in_use)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);

	gpu_materialize(&job, 3, 2);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0, "uses nest");
	cr_expect_eq(zinf_unshard(job.zinf, 3), -EBUSY);
	expect_text(job.zinf, "unit 'u3' shares GPU memory with unit 'u0'");
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_expect_eq(zinf_unshard(job.zinf, 3), -EBUSY);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_expect_eq(zinf_unshard(job.zinf, 3), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 3), 0);
	gpu_leave(&job);
}

Test(gpu_refused, gradient_whose_place_is_taken)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);

	gpu_materialize(&job, 3, 2);
	cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
	cr_expect_eq(zinf_grad_acquire(job.zinf, 2), -EBUSY);
	expect_text(job.zinf, "gradient of unit 'u2' shares GPU memory with that of unit 'u0'");
	cr_assert_eq(zinf_reduce(job.zinf, 0), 0);
	cr_expect_eq(zinf_grad_acquire(job.zinf, 2), 0);
	gpu_leave(&job);
}

Test(gpu_refused, unit_apart_is_used_beside_all_others)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);
	zinf_ticket ticket;

	cr_expect_eq(zinf_gpu_apart(job.zinf, GPU_UNITS), -EINVAL);
	expect_text(job.zinf, "unit 9: there are 9");
	cr_assert_eq(zinf_gpu_apart(job.zinf, 4), 0);
	gpu_materialize(&job, 4, 3); /* Three of the ring and one apart; two and one. */
	cr_expect_eq(zinf_gpu_apart(job.zinf, 3), -EINVAL);
	expect_text(job.zinf, "after zinf_materialize()");
	cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 4), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 4), 0);
	for (uint32_t i = 0; i < GPU_UNITS; i++) {
		if (i == 4)
			continue;
		cr_expect_eq(gpu_backward(&job, i, 1), 0, "%s", zinf_error_text(job.zinf));
		cr_expect_eq(zinf_reshard(job.zinf, i), 0);
	}
	cr_assert_eq(gpu_compute(&job, 4, 1, false), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 4), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 4), 0);
	cr_assert_eq(zinf_step(job.zinf, NULL, 0, &ticket), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_wait(job.zinf, ticket, NULL), 0);
	cr_expect_eq(gpu_wrong_count(&job, 1, 1), 0u);
	gpu_leave(&job);
}

Test(gpu_refused, budget_without_room_for_a_unit_apart)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = gpu_attach("", &daemon);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	options.param_budget_bytes = 2 * UNIT_BYTES;
	cr_assert_eq(zinf_gpu_apart(job.zinf, 4), 0);
	cr_assert_eq(open_with(&job, &options), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(zinf_materialize(job.zinf), -ENOSPC);
	expect_text(job.zinf, "2 for units in use beside others");
	gpu_leave(&job);
}

/* ---- lies ---- */

static void lie(enum fake_lie lie)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job;
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));
	int fd_count = open_fd_count(), r;

	daemon.lie = lie;
	job = gpu_attach("", &daemon);
	r = open_with(&job, &options);
	if (!r)
		r = zinf_materialize(job.zinf);
	cr_expect_eq(r, -EPROTO, "lie %d: %d %s", (int)lie, r, zinf_error_text(job.zinf));
	gpu_leave(&job);
	cr_expect_eq(open_fd_count(), fd_count, "lie %d", (int)lie);
}

Test(gpu_refused, figures_that_cannot_be)
{
	lie(FAKE_LIE_GPU_FIGURES);
}

Test(gpu_refused, arena_of_other_counts)
{
	lie(FAKE_LIE_GPU_COUNTS);
}

Test(gpu_refused, chunks_out_of_order)
{
	lie(FAKE_LIE_GPU_ORDER);
}

Test(gpu_refused, chunks_of_no_arena)
{
	lie(FAKE_LIE_GPU_MORE);
}
