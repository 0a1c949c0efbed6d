/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: whatever function of the driver fails, at whatever call, a rank is told in words, goes on
 * where the call is repeated, and leaves nothing behind: descriptors, mappings of GPU memory,
 * registrations. Method: runs in children on the fake driver, in each of which one call fails; what
 * is left is counted there.
 */
#include <sys/wait.h>

#include "tests/unit/libclient/gpu.h"

/* How a child ends. */
enum { RUN_RIGHT, RUN_FAILED, RUN_SILENT, RUN_WRONG, RUN_LEFT_FDS, RUN_LEFT_MEMORY, RUN_LEFT_PINS };

static const char *const ends[] = {
	"right",    "failed",          "failed without a text", "wrong values",
	"left fds", "left GPU memory", "left registrations"
};

/* The most that a run may have. */
static uint64_t refused_registrations = 1;

#define SMALL 3000u /* elements: a chunk for each unit */

/* Mappings of memory of fake GPUs in this process. */
static uint32_t gpu_mapping_count(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	uint32_t count = 0;

	cr_assert_not_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "zinf-FAKE-gpu") != NULL;
	(void)fclose(file); /* It was read. */
	return count;
}

/* What a child does with its rank; 0, or the first error. */
typedef int (*run_fn)(struct gpu_job *job);

static int open_and_materialize(struct gpu_job *job)
{
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));
	int r;

	options.param_budget_bytes = 4 * MIB * 2;
	r = zinf_gpu_open(job->zinf, &options);
	if (!r)
		r = zinf_materialize(job->zinf);
	return r ? r : gpu_load_kernel(job);
}

static int run_step(struct gpu_job *job)
{
	int r = open_and_materialize(job);

	return r ? r : gpu_step(job, 1);
}

#define twice(call) ((call) ? (call) : 0)

/* As gpu_step(), but that a call that fails is made again. */
static int run_stubborn_step(struct gpu_job *job)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf = job->zinf;
	zinf_ticket ticket = 0;
	int r = open_and_materialize(job);

	if (r)
		return r;
	r = twice(zinf_step_begin(zinf, &options));
	for (uint32_t i = 0; i < GPU_UNITS && !r; i++) {
		r = twice(zinf_unshard(zinf, i));
		if (!r)
			r = twice(zinf_grad_acquire(zinf, i));
		if (!r)
			r = gpu_compute(job, i, 1, 0);
		if (!r)
			r = twice(zinf_reduce(zinf, i));
		if (!r)
			r = twice(zinf_reshard(zinf, i));
	}
	if (!r)
		r = twice(zinf_step(zinf, NULL, 0, &ticket));
	return r ? r : twice(zinf_wait(zinf, ticket, NULL));
}

static int finish_child(struct gpu_job *job, int r, int fd_count)
{
	uint64_t (*count)(const char *) = NULL;
	int end = RUN_RIGHT;

	if (r)
		end = r < 0 && !zinf_error_text(job->zinf)[0] ? RUN_SILENT : RUN_FAILED;
	else if (gpu_wrong_count(job, 1, 1))
		end = RUN_WRONG;
	if (job->zinf->gpu) /* The library stays in the process. */
		find_fake_symbol(job->zinf->gpu->driver.handle, "fake_call_count", &count);
	gpu_leave(job);
	if (open_fd_count() != fd_count)
		return RUN_LEFT_FDS;
	if (gpu_mapping_count())
		return RUN_LEFT_MEMORY;
	/* A registration that failed is a call as well. */
	if (count &&
	    count("cuMemHostRegister") > count("cuMemHostUnregister") + refused_registrations)
		return RUN_LEFT_PINS;
	return end;
}

/* One run in a process of its own. */
static int run_child(const char *fake, run_fn run)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		struct fake_daemon_options daemon = gpu_daemon();
		int fd_count = open_fd_count();
		struct gpu_job job;

		gpu_elements = SMALL;
		job = gpu_attach(fake, &daemon);
		_exit(finish_child(&job, run(&job), fd_count));
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status), "%s: the child was killed by signal %d", fake,
	          WTERMSIG(status));
	return WEXITSTATUS(status);
}

/* The @nth call of @place fails. */
static int run_fault(const char *place, uint32_t nth, const char *order, run_fn run)
{
	char words[128];

	(void)snprintf(words, sizeof(words), "order=%s,fail=%s:%u:999", order, place, nth);
	return run_child(words, run);
}

/* With the last one the functions that undo: what they refuse stays, and all else goes. */
static const char *const places[] = {
	"cuInit",
	"cuDeviceGetCount",
	"cuDeviceGet",
	"cuDeviceGetName",
	"cuDeviceGetUuid",
	"cuDeviceGetAttribute",
	"cuDeviceTotalMem",
	"cuDeviceGetPCIBusId",
	"cuMemGetAllocationGranularity",
	"cuDevicePrimaryCtxRetain",
	"cuCtxPushCurrent",
	"cuCtxPopCurrent",
	"cuCtxSetCurrent",
	"cuCtxGetStreamPriorityRange",
	"cuMemImportFromShareableHandle",
	"cuMemAddressReserve",
	"cuMemMap",
	"cuMemSetAccess",
	"cuMemHostRegister",
	"cuStreamCreateWithPriority",
	"cuStreamWaitEvent",
	"cuEventCreate",
	"cuEventRecord",
	"cuEventQuery",
	"cuMemcpyHtoDAsync",
	"cuMemcpyDtoHAsync",
};

static const uint32_t nths[] = { 1, 2, 5, 14 };

/* @first: of places. */
static void fail_all(const char *order, size_t first)
{
	for (size_t i = first; i < ZI_COUNT_OF(places); i++)
		for (size_t n = 0; n < ZI_COUNT_OF(nths); n++) {
			int end = run_fault(places[i], nths[n], order, run_step);

			cr_expect(end == RUN_RIGHT || end == RUN_FAILED, "%s, call %u: %s",
			          places[i], nths[n], ends[end]);
		}
}

Test(gpu_faults, each_function_fails_once_and_nothing_is_left)
{
	fail_all("eager", 0);
}

Test(gpu_faults, each_function_fails_once_with_late_streams)
{
	fail_all("late", ZI_COUNT_OF(places) - 6);
}

/* Of what undoes: the rest goes on to be undone. */
Test(gpu_faults, functions_that_undo_may_fail)
{
	static const char *const undoing[] = {
		"cuMemRelease",        "cuMemUnmap",
		"cuMemAddressFree",    "cuMemHostUnregister",
		"cuStreamDestroy",     "cuEventDestroy",
		"cuStreamSynchronize", "cuDevicePrimaryCtxRelease",
	};

	for (size_t i = 0; i < ZI_COUNT_OF(undoing); i++) {
		int end = run_fault(undoing[i], 1, "shuffled:9", run_step);

		cr_expect(end != RUN_SILENT && end != RUN_WRONG && end != RUN_LEFT_PINS, "%s: %s",
		          undoing[i], ends[end]);
	}
}

/* What fails once in a step that has begun does no harm. */
Test(gpu_faults, calls_that_are_repeated_go_on)
{
	static const char *const repeated[] = { "cuStreamWaitEvent", "cuEventRecord",
		                                "cuEventQuery", "cuMemcpyHtoDAsync",
		                                "cuMemcpyDtoHAsync" };

	for (size_t i = 0; i < ZI_COUNT_OF(repeated); i++)
		for (uint32_t nth = 1; nth < 24; nth += 2) {
			int end = run_fault(repeated[i], nth, nth % 4 == 1 ? "late" : "shuffled:3",
			                    run_stubborn_step);

			cr_expect_eq(end, RUN_RIGHT, "%s, call %u: %s", repeated[i], nth,
			             ends[end]);
		}
}

Test(gpu_faults, context_of_the_caller_fails_to_come_back_and_the_call_is_repeated)
{
	for (uint32_t nth = 4; nth < 30; nth++) {
		int end = run_fault("cuCtxPushCurrent", nth, "eager", run_stubborn_step);

		/* One of them is the test's own. */
		cr_expect(end == RUN_RIGHT || end == RUN_FAILED, "call %u: %s", nth, ends[end]);
	}
}

/* Nothing can be registered, and the two buffers are not there. */
Test(gpu_faults, no_pinned_memory_at_all)
{
	int end;

	refused_registrations = 2;
	end = run_child("order=late,register=4K,fail=cuMemHostAlloc:1:2", run_step);

	cr_expect_eq(end, RUN_FAILED, "%s", ends[end]);
	end = run_child("order=late,register=4K,fail=cuMemHostAlloc:2:2", run_stubborn_step);
	cr_expect_eq(end, RUN_RIGHT, "%s", ends[end]);
}

/* ---- the end ---- */

/* Copies both ways are queued, and nothing has run. */
static int run_and_leave_amid(struct gpu_job *job)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	int r = open_and_materialize(job);

	if (!r)
		r = zinf_step_begin(job->zinf, &options);
	for (uint32_t i = 0; i < 3 && !r; i++) {
		r = gpu_backward(job, i, 1);
		if (!r && i)
			r = zinf_reshard(job->zinf, i);
	}
	return r ? r : -ECANCELED; /* Values are as they were. */
}

Test(gpu_faults, rank_may_leave_amid_copies)
{
	static const char *const orders[] = { "order=eager", "order=late", "order=shuffled:6" };

	for (size_t i = 0; i < ZI_COUNT_OF(orders); i++) {
		int end = run_child(orders[i], run_and_leave_amid);

		cr_expect(end == RUN_FAILED || end == RUN_SILENT, "%s: %s", orders[i], ends[end]);
	}
}

static int run_until_daemon_dies(struct gpu_job *job)
{
	int r = run_and_leave_amid(job);

	if (r != -ECANCELED)
		return r;
	fake_daemon_die(job->fake);
	r = zinf_unshard(job->zinf, 5);
	return r == -ESTALE ? r : 1;
}

Test(gpu_faults, daemon_may_die_amid_copies)
{
	int end = run_child("order=late", run_until_daemon_dies);

	cr_expect_eq(end, RUN_FAILED, "%s", ends[end]);
}

/* An illegal address: the context is lost, each call says so, and the rank leaves. */
Test(gpu_faults, lost_context_is_told_and_left)
{
	int end = run_child("order=eager,sticky=cuMemcpyDtoHAsync:3:700", run_stubborn_step);

	cr_expect_eq(end, RUN_FAILED, "%s", ends[end]);
	end = run_child("order=late,fail=kernel:2:700", run_stubborn_step);
	cr_expect_eq(end, RUN_FAILED, "%s", ends[end]);
}

/* ---- what hangs ---- */

/* Ends the child itself, since nothing that waits for the stream would. */
static int run_hung_kernel(struct gpu_job *job)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;
	int r = open_and_materialize(job);

	if (!r) {
		gpu_await_pins(job); /* A copy through buffers would wait for the kernel. */
		r = zinf_step_begin(job->zinf, &options);
	}
	for (uint32_t i = 0; i < GPU_UNITS && !r; i++) {
		r = gpu_backward(job, i, 1);
		if (!r)
			r = zinf_reshard(job->zinf, i);
	}
	if (r)
		_exit(RUN_WRONG);
	job->zinf->timeout_ns = 100 * ZI_NS_PER_MS;
	r = zinf_step(job->zinf, NULL, 0, &ticket);
	job->fake = fake_daemon_stop(job->fake);
	_exit(r == -ETIMEDOUT && strstr(zinf_error_text(job->zinf), "a kernel hangs") ? RUN_RIGHT
	                                                                              : RUN_FAILED);
}

Test(gpu_faults, hung_kernel_is_told_at_the_deadline)
{
	int end = run_child("order=eager,hang=kernel:1", run_hung_kernel);

	cr_expect_eq(end, RUN_RIGHT, "%s", ends[end]);
}

/* With a pool the daemon is asked for a unit only when its place on the GPU is free. */
Test(gpu_faults, no_pool_memory_is_held_while_a_stream_hangs)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		struct fake_daemon_options daemon = gpu_daemon();
		struct gpu_job job;
		int r, end = RUN_RIGHT;
		uint32_t count;

		gpu_elements = SMALL;
		daemon.has_pool = true;
		job = gpu_attach("order=eager,hang=kernel:1", &daemon);
		r = open_and_materialize(&job);
		if (!r)
			r = zinf_unshard(job.zinf, 0);
		/* Any kernel on the unit will do. */
		if (!r)
			r = gpu_compute(&job, 0, 1, 0);
		if (!r)
			r = zinf_reshard(job.zinf, 0);
		for (uint32_t i = 1; i < 4 && !r; i++) {
			r = zinf_unshard(job.zinf, i);
			if (!r)
				r = zinf_reshard(job.zinf, i);
		}
		count = fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_UNSHARD));
		job.zinf->timeout_ns = 100 * ZI_NS_PER_MS;
		if (!r)
			r = zinf_unshard(job.zinf, 4); /* Where unit 0 lies. */
		if (r != -ETIMEDOUT ||
		    fake_daemon_count(job.fake, FAKE_ON_OP(ZI_OP_UNSHARD)) != count)
			end = RUN_WRONG;
		/* Units with other chunks come. */
		else if (zinf_unshard(job.zinf, 1))
			end = RUN_FAILED;
		job.fake = fake_daemon_stop(job.fake);
		_exit(end);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status));
	cr_expect_eq(WEXITSTATUS(status), RUN_RIGHT, "%s", ends[WEXITSTATUS(status)]);
}
