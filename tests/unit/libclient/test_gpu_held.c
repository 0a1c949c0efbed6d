/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a rank holds no more of zinfd's memory than it must: in a pool one unit, and none while
 * other ranks are waited for; what failed or was interrupted goes on, and loses nothing. Method:
 * the fake driver, whose copies take long, and the fake daemon.
 */
#include <sched.h>

#include "common/gpu/ring.h"
#include "libclient/gpu/way.h"
#include "tests/unit/libclient/gpu.h"

#define SMALL 3000u

static struct gpu_job attach_small(const char *fake, const struct fake_daemon_options *daemon,
                                   const struct zinf_options *given)
{
	const struct zinf_options init = ZINF_OPTIONS_INIT;

	gpu_elements = SMALL;
	return gpu_attach_with(fake, daemon, given ? given : &init);
}

static struct fake_daemon_options daemon_with(bool has_pool)
{
	struct fake_daemon_options daemon = gpu_daemon();

	daemon.has_pool = has_pool;
	return daemon;
}

static void materialize_pinned(struct gpu_job *job)
{
	gpu_materialize(job, 3, 2);
	gpu_await_pins(job);
}

static enum zi_gpu_phase phase_of(const struct gpu_job *job, uint32_t unit)
{
	return zi_gpu_state_of(job->zinf, unit)->phase;
}

/* ---- in a pool ---- */

static void use_two_units(bool has_pool, enum zi_gpu_phase expected)
{
	struct fake_daemon_options daemon = daemon_with(has_pool);
	struct gpu_job job = attach_small("order=eager,delay=copy:1:100", &daemon, NULL);

	gpu_materialize(&job, 3, 2);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 1), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(phase_of(&job, 0), expected);
	cr_assert_eq(zinf_reshard(job.zinf, 1), 0);
	gpu_leave(&job);
}

Test(gpu_held, unit_of_a_pool_is_given_back_before_the_next_is_asked_for)
{
	use_two_units(true, ZI_GPU_IDLE);
}

Test(gpu_held, without_a_pool_units_are_copied_one_behind_the_other)
{
	use_two_units(false, ZI_GPU_COPYING);
}

/* The unit has lost its place while it is copied. */
static void demand_amid_a_copy(bool has_pool, uint32_t unshard_count)
{
	struct fake_daemon_options daemon = daemon_with(has_pool);
	struct gpu_job job = attach_small("order=eager,delay=copy:1:100", &daemon, NULL);

	gpu_materialize(&job, 3, 2);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	zi_client_gpu_void(job.zinf, 0);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_UNSHARD)), unshard_count);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	gpu_leave(&job);
}

Test(gpu_held, unit_of_a_pool_is_given_back_before_it_is_copied_anew)
{
	demand_amid_a_copy(true, 2);
}

Test(gpu_held, unit_without_a_pool_is_copied_anew_at_once)
{
	demand_amid_a_copy(false, 1);
}

static void settle_shared(bool has_pool, uint32_t expected)
{
	struct fake_daemon_options daemon = daemon_with(has_pool);
	struct gpu_job job = attach_small("order=eager,delay=copy:1:100", &daemon, NULL);

	gpu_materialize(&job, 3, 2);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zi_client_gpu_settle_shared(job.zinf), 0);
	cr_expect_eq(job.zinf->gpu->active_count, expected);
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	gpu_leave(&job);
}

Test(gpu_held, nothing_of_a_pool_is_held_while_other_ranks_are_waited_for)
{
	settle_shared(true, 0);
}

Test(gpu_held, without_a_pool_copies_go_on_while_other_ranks_are_waited_for)
{
	settle_shared(false, 1);
}

/* The round is learned, and unit 3 loses its place while it is copied: it is the next one. */
static void prefetch_amid_a_copy(bool has_pool, uint64_t expected_more)
{
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct fake_daemon_options daemon = daemon_with(has_pool);
	struct gpu_job job;
	uint64_t count;

	options.is_forward_only = true;
	job = attach_small("order=eager,delay=copy:10:200", &daemon, &options);
	gpu_materialize(&job, 0, 0);
	for (uint32_t i = 0; i < 4 * GPU_UNITS + 3; i++) {
		cr_assert_eq(zinf_unshard(job.zinf, i % GPU_UNITS), 0);
		cr_assert_eq(zinf_reshard(job.zinf, i % GPU_UNITS), 0);
	}
	cr_assert_eq(zi_client_gpu_settle(job.zinf), 0);
	cr_assert_eq(job.zinf->gpu->stats.to_gpu_count, GPU_UNITS);
	zi_client_gpu_void(job.zinf, 3);
	cr_assert_eq(zinf_unshard(job.zinf, 3), 0);
	cr_assert_eq(zinf_reshard(job.zinf, 3), 0);
	cr_assert_eq(phase_of(&job, 3), ZI_GPU_COPYING);
	zi_client_gpu_void(job.zinf, 3);
	count = job.zinf->gpu->stats.to_gpu_count;
	cr_assert_eq(zinf_unshard(job.zinf, 4), 0);
	cr_expect_eq(job.zinf->gpu->stats.to_gpu_count, count + expected_more);
	cr_expect_eq(zi_client_gpu_has(job.zinf, 3), expected_more > 0);
	cr_assert_eq(zinf_reshard(job.zinf, 4), 0);
	gpu_leave(&job);
}

Test(gpu_held, prefetch_holds_no_unit_of_a_pool_for_a_second_copy)
{
	prefetch_amid_a_copy(true, 0);
}

Test(gpu_held, prefetch_without_a_pool_copies_a_unit_anew)
{
	prefetch_amid_a_copy(false, 1);
}

/* ---- what was interrupted or failed ---- */

static void interrupt_rank(void *arg)
{
	zinf_interrupt(((struct gpu_job *)arg)->zinf);
}

/* The question for the unit is under way while it is IDLE: prefetch asks no second time. */
Test(gpu_held, interrupted_read_of_masters_is_asked_once)
{
	static float masters[SMALL];
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job;
	uint64_t event;

	daemon.hold_on = FAKE_ON_OP(ZI_OP_UNSHARD);
	daemon.on_hold = interrupt_rank;
	daemon.hold_arg = &job;
	job = attach_small("order=eager", &daemon, NULL);
	gpu_materialize(&job, 3, 2);
	cr_assert_eq(zinf_state_read(job.zinf, job.params[0], ZINF_STATE_MASTER, masters, SMALL),
	             -EINTR);
	cr_assert_eq(phase_of(&job, 0), ZI_GPU_IDLE);
	cr_assert_eq(zi_gpu_ring_unshard(job.zinf->gpu->params, 0, &event), ZI_GPU_RING_E_FRESH);
	zi_gpu_way_set(job.zinf, 0, ZI_GPU_PLACED);
	cr_assert_eq(zi_gpu_way_ask(job.zinf, 0), 0);
	cr_expect_eq(phase_of(&job, 0), ZI_GPU_ASKED);
	fake_daemon_release(job.fake);
	cr_assert_eq(zi_client_gpu_settle(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(job.zinf->units[0].unshard_ticket, 0u);
	cr_assert_eq(zinf_state_read(job.zinf, job.params[0], ZINF_STATE_MASTER, masters, SMALL), 0,
	             "%s", zinf_error_text(job.zinf));
	cr_expect_eq(masters[7], fake_value(7));
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_UNSHARD)), 2u);
	gpu_must_step(&job, 1);
	gpu_leave(&job);
}

Test(gpu_held, materialize_that_failed_behind_the_layout_is_refused)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = attach_small("fail=cuStreamCreateWithPriority:1:2", &daemon, NULL);
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	cr_assert_eq(zinf_gpu_open(job.zinf, &options), 0);
	cr_expect_eq(zinf_materialize(job.zinf), -ENOMEM);
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(zinf_materialize(job.zinf), -ENOTRECOVERABLE);
		expect_text(job.zinf, "an earlier zinf_materialize() failed");
	}
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_MESSAGE(ZI_MESSAGE_MATERIALIZE)), 1u);
	gpu_leave(&job);
}

/* Each look fails, as a copy is under way. */
Test(gpu_held, failing_gpu_hides_no_completion)
{
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job = attach_small("order=late,fail=cuEventQuery:0:999", &daemon, NULL);
	struct zi_client_op *op = NULL;
	bool is_done = false;

	materialize_pinned(&job);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zi_client_submit(job.zinf, ZI_OP_UNSHARD, 1, 0, false, &op), 0);
	while (!zi_ring_has_work(&job.zinf->cq))
		(void)sched_yield(); /* Nobody waits for the doorbell. */
	cr_expect_eq(zi_client_wait_op(job.zinf, op, true, &is_done), 0, "%s",
	             zinf_error_text(job.zinf));
	cr_expect(is_done);
	zi_client_op_free(job.zinf, op);
	gpu_leave(&job);
}

/* An address amid a page cannot be unmapped. */
Test(gpu_held, gradient_that_cannot_be_handed_over_is_kept)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct fake_daemon_options daemon = gpu_daemon();
	struct gpu_job job;

	daemon.has_buckets = true;
	job = attach_small("order=eager,delay=copy:2:100", &daemon, NULL);
	materialize_pinned(&job);
	cr_assert_eq(zinf_step_begin(job.zinf, &options), 0);
	cr_assert_eq(zinf_unshard(job.zinf, 0), 0);
	cr_assert_eq(zinf_grad_acquire(job.zinf, 0), 0);
	cr_assert_eq(gpu_compute(&job, 0, 1, 0), 0);
	cr_assert_eq(zinf_reduce(job.zinf, 0), 0, "%s", zinf_error_text(job.zinf));
	cr_assert_eq(zinf_reshard(job.zinf, 0), 0);
	job.zinf->units[0].grad_offset_bytes++;
	cr_expect_lt(zi_client_gpu_settle_grads(job.zinf), 0);
	cr_expect_eq(job.zinf->gpu->leaving_count, 1u);
	job.zinf->units[0].grad_offset_bytes--;
	cr_expect_eq(zi_client_gpu_settle_grads(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	cr_expect_eq(zinf_ping(job.zinf), 0);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_REDUCE)), 1u);
	cr_assert_eq(zinf_step_discard(job.zinf), 0);
	gpu_leave(&job);
}

/* ---- a copy that is given up amid its parts ---- */

/* Through buffers: the third part waits for the first, which hangs. Nobody waits for the stream;
 * the process ends without it. */
Test(gpu_held, copy_that_hangs_is_told_and_the_unit_stays_with_the_rank)
{
	struct fake_daemon_options daemon = gpu_daemon();
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));
	static struct gpu_job job; /* Not left: zinf_detach() would wait for the stream. */

	gpu_elements = 5 * ZI_GPU_LANE_BYTES / 2 / sizeof(float);
	job = gpu_attach("order=eager,register=4K,hang=copy:1", &daemon);
	cr_assert_eq(zinf_gpu_open(job.zinf, &options), 0);
	cr_assert_eq(zinf_materialize(job.zinf), 0, "%s", zinf_error_text(job.zinf));
	job.zinf->timeout_ns = 100 * ZI_NS_PER_MS;
	for (uint32_t i = 0; i < 2; i++) {
		cr_expect_eq(zinf_unshard(job.zinf, 0), -ETIMEDOUT, "%s",
		             zinf_error_text(job.zinf));
		expect_text(job.zinf, "a kernel hangs");
		cr_expect_eq(phase_of(&job, 0), ZI_GPU_COPYING);
		cr_expect_not(zi_client_gpu_has(job.zinf, 0));
	}
	cr_expect_eq(zi_client_gpu_settle(job.zinf), -ETIMEDOUT);
	cr_expect_eq(fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_RESHARD)), 0u);
	job.fake = fake_daemon_stop(job.fake);
}
