/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: ranks that compute on GPUs and ranks that compute in CPU memory make the same parameters,
 * bit for bit, of every strategy and place of parameters and state; killed amid copies, they leave
 * nothing charged. Method: a real zinfd and zinf-gpu on the fake driver; two ranks train one job
 * with GPUs, and another one without; their parameters are compared.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "libclient/gpu/rank.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/harness/patience.h"
#include "tests/system/far_node.h"
#include "zinf/zinf.h"

TestSuite(gpu_rank, .timeout = 120);

#define MIB      (1ull << 20)
#define RANKS    2u
#define UNITS    6u
#define ELEMENTS 3000u /* of each unit: a chunk */
#define STEPS    4u

static struct harness harness;
static char driver[PATH_MAX];

static void start(const char *fake)
{
	static char path[FAKE_GPU_PATH_BYTES], environment[256], extra[5120];
	static const char *variables[] = { environment, NULL };

	cr_assert(realpath(fake_gpu_path(path, sizeof(path), "libcuda.so.1"), driver));
	(void)snprintf(environment, sizeof(environment), FAKE_GPU_ENV "=%s", fake);
	(void)snprintf(extra, sizeof(extra), "[gpu]\ndriver = %s\nreserve = none\n", driver);
	system_start(&harness, &(struct harness_options){ .nvme_size = "64M",
	                                                  .extra = extra,
	                                                  .environment = variables });
}

/* What the ranks of a job do. */
struct job {
	const char *name;
	const char *order; /* of the fake's streams; NULL: no GPU */
	enum zinf_strategy strategy;
	enum zinf_offload offload_optimizer, offload_param;
	uint32_t micro_batches;    /* ZINF_REDUCE_PER_MICRO_BATCH */
	bool ends_amid;            /* it is killed in a backward */
	float (*result)[ELEMENTS]; /* (UNITS, ELEMENTS), shared: rank 0's parameters at the end */
};

struct rank {
	const struct job *job;
	uint32_t number;
	struct zinf *zinf;
	const struct zi_cuda *cuda; /* NULL: no GPU */
	struct zi_cuda_function *kernel;
};

static float grad_of(float param, float shift)
{
	return param * 0.125f + shift;
}

static void run_kernel(const uint32_t *shape, void *const *parameters)
{
	float *target = *(float **)parameters[0];
	const float *source = *(const float **)parameters[1];
	float shift = *(float *)parameters[2];

	(void)shape;
	for (uint32_t i = 0; i < ELEMENTS; i++)
		target[i] = grad_of(source[i], shift);
}

static int load_kernel(struct rank *rank)
{
	static const struct fake_kernel kernel = {
		"rank_grad", run_kernel, { sizeof(uint64_t), sizeof(uint64_t), sizeof(float) }
	};
	struct zi_cuda_module *module;
	fake_kernel_add_fn add;

	rank->cuda = zi_client_cuda(rank->zinf);
	find_fake_symbol(rank->zinf->gpu->driver.handle, "fake_kernel_add", &add);
	(void)add(&kernel);
	return rank->cuda->cuCtxPushCurrent(rank->zinf->gpu->context) ||
	       rank->cuda->cuModuleLoadData(&module, ".version 7.0\n") ||
	       rank->cuda->cuModuleGetFunction(&rank->kernel, module, "rank_grad");
}

static int compute(struct rank *rank, uint32_t unit, float shift)
{
	struct zinf *zinf = rank->zinf;
	uint64_t target = zinf_gpu_grad(zinf, unit), source = zinf_gpu_param(zinf, unit);
	void *parameters[] = { &target, &source, &shift };
	const float *param = zinf_param_data(zinf, unit);
	float *grad = zinf_grad_data(zinf, unit);

	if (rank->cuda)
		return rank->cuda->cuLaunchKernel(rank->kernel, 1, 1, 1, 32, 1, 1, 0, NULL,
		                                  parameters, NULL);
	for (uint32_t i = 0; i < ELEMENTS; i++)
		grad[i] = grad_of(param[i], shift);
	return 0;
}

static int join(struct rank *rank)
{
	const struct job *job = rank->job;
	struct zinf_options options = ZINF_OPTIONS_INIT;
	struct zinf_gpu_options gpu = ZINF_GPU_OPTIONS_INIT;
	uint64_t count = ELEMENTS;
	uint32_t index;
	char name[16];
	int r;

	options.socket_path = harness.socket_path;
	options.job = job->name;
	options.rank = (int32_t)rank->number;
	options.world_size = RANKS;
	options.incarnation = "one";
	options.strategy = job->strategy;
	options.offload_optimizer = job->offload_optimizer;
	options.offload_param = job->offload_param;
	options.grad_reduction = ZINF_REDUCE_PER_MICRO_BATCH;
	r = zinf_attach(&options, &rank->zinf);
	for (uint32_t i = 0; i < UNITS && !r; i++) {
		(void)snprintf(name, sizeof(name), "u%u", i); /* Fits. */
		r = zinf_unit_add(rank->zinf, name, &index);
		if (!r)
			r = zinf_param_add(rank->zinf, name, 1, &count, &index);
	}
	if (!r && job->order) {
		(void)setenv(FAKE_GPU_ENV, job->order, 1); /* Memory is there. */
		gpu.driver = driver;
		gpu.device = rank->number ? FAKE_GPU_UUID_1 : FAKE_GPU_UUID_0;
		gpu.param_budget_bytes = 3 * 2 * MIB;
		r = zinf_gpu_open(rank->zinf, &gpu);
	}
	if (!r)
		r = zinf_materialize(rank->zinf);
	return !r && job->order ? load_kernel(rank) : r;
}

static int write_first(struct rank *rank)
{
	int r = 0;

	for (uint32_t unit = 0; unit < UNITS && !r; unit++) {
		float *values;

		if (!rank->number)
			r = zinf_param_write_begin(rank->zinf, unit);
		values = (float *)(uintptr_t)zinf_param_data(rank->zinf, unit);
		for (uint32_t i = 0; i < ELEMENTS && !r && !rank->number; i++)
			values[i] = (float)(i % 251 + unit) / 64;
		if (!r)
			r = zinf_param_write_end(rank->zinf, unit, 0);
	}
	return r ? r : zinf_commit(rank->zinf, NULL, 0);
}

/* A rank that dies first would end the others' calls. */
static void end_with_all(const struct job *job)
{
	uint32_t *ended = (uint32_t *)(void *)job->result; /* Zero until the job's end. */

	(void)__atomic_add_fetch(ended, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(ended, __ATOMIC_SEQ_CST) < RANKS)
		(void)sched_yield();
	(void)kill(getpid(), SIGKILL); /* Of oneself: cannot fail. */
}

static int pass(struct rank *rank, float shift)
{
	struct zinf *zinf = rank->zinf;
	int r = 0;

	for (uint32_t i = 0; i < UNITS && !r; i++) {
		r = zinf_unshard(zinf, i);
		if (!r)
			r = zinf_reshard(zinf, i);
	}
	for (uint32_t i = UNITS; i-- > 0 && !r;) {
		r = zinf_unshard(zinf, i);
		if (!r)
			r = zinf_grad_acquire(zinf, i);
		if (!r)
			r = compute(rank, i, shift + (float)rank->number);
		if (!r)
			r = zinf_reduce(zinf, i);
		if (rank->job->ends_amid && i == 2)
			end_with_all(rank->job);
		if (!r)
			r = zinf_reshard(zinf, i);
	}
	return r;
}

static int make_step(struct rank *rank, float shift)
{
	struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;
	int r;

	options.micro_batches = rank->job->micro_batches;
	options.max_norm = 1;
	r = zinf_step_begin(rank->zinf, &options);
	for (uint32_t micro = 0; micro < rank->job->micro_batches && !r; micro++)
		r = pass(rank, shift + 0.5f * (float)micro);
	if (!r)
		r = zinf_step(rank->zinf, NULL, 0, &ticket);
	return r ? r : zinf_wait(rank->zinf, ticket, NULL);
}

static int train(void *arg)
{
	struct rank *rank = arg;
	int r = join(rank);

	if (!r)
		r = write_first(rank);
	for (uint32_t step = 1; step <= STEPS && !r; step++)
		r = make_step(rank, (float)step);
	for (uint32_t unit = 0; unit < UNITS && !r; unit++)
		r = zinf_state_read(rank->zinf, unit, ZINF_STATE_MASTER,
		                    rank->number ? (float[ELEMENTS]){ 0 } : rank->job->result[unit],
		                    ELEMENTS);
	if (r)
		fprintf(stderr, "rank %u of '%s': %d %s\n", rank->number, rank->job->name, r,
		        rank->zinf ? zinf_error_text(rank->zinf) : zinf_attach_error());
	zinf_detach(rank->zinf);
	return r != 0;
}

/* @expected: how each rank ends. */
static void run(struct job *job, float (*result)[ELEMENTS], int expected)
{
	struct rank ranks[RANKS];
	pid_t pids[RANKS];

	job->result = result;
	for (uint32_t i = 0; i < RANKS; i++) {
		ranks[i] = (struct rank){ .job = job, .number = i };
		pids[i] = harness_fork(train, &ranks[i]);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		cr_assert_eq(harness_wait(pids[i], 60000), expected, "rank %u of '%s'", i,
		             job->name);
}

static void *share(uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(base, MAP_FAILED);
	return base;
}

/* The same job with GPUs in each order, and without. */
static void compare(struct job job)
{
	static const char *const orders[] = { "gpus=2,order=eager", "gpus=2,order=late",
		                              "gpus=2,order=shuffled:17" };
	const uint64_t bytes = UNITS * sizeof(float[ELEMENTS]);
	float(*host)[ELEMENTS] = share(bytes), (*gpu)[ELEMENTS] = share(bytes);
	char name[16];

	start("gpus=2,bytes=256M");
	job.name = "host";
	run(&job, host, 0);
	cr_assert_neq(host[0][0], 0);
	for (size_t i = 0; i < ZI_COUNT_OF(orders); i++) {
		(void)snprintf(name, sizeof(name), "gpu%zu", i); /* Fits. */
		job.name = name;
		job.order = orders[i];
		memset(gpu, 0, bytes);
		run(&job, gpu, 0);
		cr_expect_eq(memcmp(host, gpu, bytes), 0, "%s", orders[i]);
	}
	(void)munmap(host, bytes); /* Mapped above, as is the next. */
	(void)munmap(gpu, bytes);
	cr_assert_eq(harness_stop(&harness), 0);
}

Test(gpu_rank, bits_are_the_hosts_with_ddp)
{
	compare((struct job){ .strategy = ZINF_DDP, .micro_batches = 1 });
}

Test(gpu_rank, bits_are_the_hosts_with_buckets_and_state_on_nvme)
{
	compare((struct job){ .strategy = ZINF_ZERO2,
	                      .offload_optimizer = ZINF_OFFLOAD_NVME,
	                      .micro_batches = 2 });
}

Test(gpu_rank, bits_are_the_hosts_with_parameters_on_nvme)
{
	compare((struct job){ .strategy = ZINF_ZERO3,
	                      .offload_optimizer = ZINF_OFFLOAD_NVME,
	                      .offload_param = ZINF_OFFLOAD_NVME,
	                      .micro_batches = 1 });
}

/* Bytes of a tier that are charged. */
static uint64_t used_bytes(const char *uuid)
{
	json_t *tiers = harness_admin(&harness, "tiers"), *tier;
	uint64_t bytes = 0;
	size_t index;

	cr_assert(tiers);
	json_array_foreach(tiers, index, tier)
	{
		if (strstr(json_string_value(json_object_get(tier, "name")), uuid))
			bytes = (uint64_t)json_integer_value(json_object_get(tier, "used_bytes"));
	}
	json_decref(tiers);
	return bytes;
}

Test(gpu_rank, killed_amid_copies_nothing_stays_charged)
{
	const uint64_t bytes = UNITS * sizeof(float[ELEMENTS]);
	struct job job = { .name = "killed",
		           .order = "gpus=2,order=late",
		           .strategy = ZINF_DDP,
		           .micro_batches = 1,
		           .ends_amid = true };
	uint64_t deadline_ns;
	float(*result)[ELEMENTS] = share(bytes);

	start("gpus=2,bytes=256M");
	run(&job, result, 1000 + SIGKILL);
	deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));
	while (used_bytes(FAKE_GPU_UUID_0) || used_bytes(FAKE_GPU_UUID_1))
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "memory is still charged");
	/* The next start of the job has it all. */
	job.ends_amid = false;
	job.name = "again";
	run(&job, result, 0);
	(void)munmap(result, bytes); /* Mapped above. */
	cr_assert_eq(harness_stop(&harness), 0);
}
