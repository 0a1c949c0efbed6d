/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank with a fake GPU, whose daemon is a double as well (fake_daemon.h, has_steps): a trainer
 * whose every gradient is a function of the parameter that its stream sees, and the same on the
 * host.
 */
#pragma once

#include <fcntl.h>
#include <stdio.h>

#include "common/gpu/driver.h"
#include "libclient/gpu/rank.h"
#include "tests/fake/fake_job.h"
#include "tests/gpu/fake_gpu.h"

#define GPU_UNITS    9u
#define GPU_ELEMENTS 530000u /* of the first unit: two chunks, as of all others */
#define GPU_MORE     1000u   /* each unit has so many more than the one before */
#define MIB          (1ull << 20)
#define UNIT_BYTES   (4 * MIB) /* of a unit on the GPU */

struct gpu_job {
	struct fake_daemon *fake;
	struct zinf *zinf;
	uint32_t units[GPU_UNITS], params[GPU_UNITS];
	const struct zi_cuda *cuda;
	struct zi_cuda_stream *stream; /* the trainer's; NULL: the default one */
	struct zi_cuda_module *module;
	struct zi_cuda_function *kernel;
};

/* Of the first unit, in this process: fewer where many runs are made. */
static uint64_t gpu_elements = GPU_ELEMENTS;

static inline uint64_t unit_elements(uint32_t unit)
{
	return gpu_elements + (uint64_t)unit * GPU_MORE;
}

/* The gradient of a parameter. With each step it differs. */
static inline float grad_of(float param, float step)
{
	return param * 0.125f + step;
}

/* target[i] = grad_of(source[i], step), or in addition to what is there. */
static inline void run_test_grad(const uint32_t *shape, void *const *parameters)
{
	float *target = *(float **)parameters[0];
	const float *source = *(const float **)parameters[1];
	uint64_t count = *(uint64_t *)parameters[2];
	float step = *(float *)parameters[3];
	uint32_t adds = *(uint32_t *)parameters[4];

	(void)shape;
	for (uint64_t i = 0; i < count; i++)
		target[i] = (adds ? target[i] : 0) + grad_of(source[i], step);
}

static inline int open_fd_count(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static inline struct zinf_gpu_options gpu_options(char *path, size_t capacity)
{
	struct zinf_gpu_options options = ZINF_GPU_OPTIONS_INIT;

	options.driver = fake_gpu_path(path, capacity, "libcuda.so.1");
	options.device = FAKE_GPU_UUID_0;
	return options;
}

static inline struct fake_daemon_options gpu_daemon(void)
{
	return (struct fake_daemon_options){
		.features = UINT64_MAX,
		.gpu_bytes = 1ull << 30,
		.has_steps = true,
	};
}

/* Attached to a daemon, with units. @fake: words of $ZINF_FAKE_GPU. */
static inline struct gpu_job gpu_attach_with(const char *fake,
                                             const struct fake_daemon_options *daemon,
                                             const struct zinf_options *given)
{
	struct gpu_job job = { .fake = fake_daemon_start(daemon) };
	struct zinf_options options = *given;
	char name[16];

	cr_assert_eq(setenv(FAKE_GPU_ENV, fake, 1), 0);
	options.socket_path = fake_daemon_path(job.fake);
	options.job = "test";
	options.timeout_ms = FAKE_JOB_TIMEOUT_MS;
	cr_assert_eq(zinf_attach(&options, &job.zinf), 0, "%s", zinf_attach_error());
	for (uint32_t i = 0; i < GPU_UNITS; i++) {
		uint64_t count = unit_elements(i);

		(void)snprintf(name, sizeof(name), "u%u", i);
		cr_assert_eq(zinf_unit_add(job.zinf, name, &job.units[i]), 0);
		(void)snprintf(name, sizeof(name), "u%u.w", i);
		cr_assert_eq(zinf_param_add(job.zinf, name, 1, &count, &job.params[i]), 0);
	}
	return job;
}

static inline struct gpu_job gpu_attach(const char *fake, const struct fake_daemon_options *daemon)
{
	const struct zinf_options options = ZINF_OPTIONS_INIT;

	return gpu_attach_with(fake, daemon, &options);
}

/* The kernel of the test, in the context of the rank. Return: 0, or a code. */
static inline int gpu_load_kernel(struct gpu_job *job)
{
	static const struct fake_kernel kernel = {
		"test_grad",
		run_test_grad,
		{ sizeof(uint64_t), sizeof(uint64_t), sizeof(uint64_t), sizeof(float),
		  sizeof(uint32_t) },
	};
	fake_kernel_add_fn add;
	int code;

	job->cuda = zi_client_cuda(job->zinf);
	find_fake_symbol(job->zinf->gpu->driver.handle, "fake_kernel_add", &add);
	(void)add(&kernel);
	code = job->cuda->cuCtxPushCurrent(job->zinf->gpu->context);
	if (!code)
		code = job->cuda->cuModuleLoadData(&job->module, ".version 7.0\n");
	if (!code)
		code = job->cuda->cuModuleGetFunction(&job->kernel, job->module, "test_grad");
	return code;
}

/* Opened and materialized; budgets in units, 0: libzinf chooses. The context is current. */
static inline void gpu_materialize(struct gpu_job *job, uint32_t param_units, uint32_t grad_units)
{
	char path[FAKE_GPU_PATH_BYTES];
	struct zinf_gpu_options options = gpu_options(path, sizeof(path));

	options.param_budget_bytes = param_units * UNIT_BYTES;
	options.grad_budget_bytes = grad_units * UNIT_BYTES;
	cr_assert_eq(zinf_gpu_open(job->zinf, &options), 0, "%s", zinf_error_text(job->zinf));
	cr_assert_eq(zinf_materialize(job->zinf), 0, "%s", zinf_error_text(job->zinf));
	cr_assert_eq(gpu_load_kernel(job), 0);
}

/* Then all memory is registered, and no copy goes through buffers. */
static inline void gpu_await_pins(struct gpu_job *job)
{
	(void)zi_thread_join(&job->zinf->gpu->pins.thread);
}

/* The unit's gradient on the trainer's stream. Return: a code. */
static inline int gpu_compute(struct gpu_job *job, uint32_t unit, float step, uint32_t adds)
{
	uint64_t target = zinf_gpu_grad(job->zinf, job->params[unit]);
	uint64_t source = zinf_gpu_param(job->zinf, job->params[unit]);
	uint64_t count = unit_elements(unit);
	void *parameters[] = { &target, &source, &count, &step, &adds };

	return job->cuda->cuLaunchKernel(job->kernel, 1, 1, 1, 32, 1, 1, 0, job->stream, parameters,
	                                 NULL);
}

/* Return: as gpu_pass(). */
static inline int gpu_backward(struct gpu_job *job, uint32_t unit, float step)
{
	int r = zinf_unshard(job->zinf, job->units[unit]);

	if (!r)
		r = zinf_grad_acquire(job->zinf, job->units[unit]);
	if (!r)
		r = gpu_compute(job, unit, step, false);
	return r ? r : zinf_reduce(job->zinf, job->units[unit]);
}

/* Forward: units in order, of which nothing is kept; backward: in reverse, with gradients. Return:
 * 0; an errno of libzinf; or a code of the driver, positive. */
static inline int gpu_pass(struct gpu_job *job, float step)
{
	int r = 0;

	for (uint32_t i = 0; i < GPU_UNITS && !r; i++) {
		r = zinf_unshard(job->zinf, job->units[i]);
		if (!r)
			r = zinf_reshard(job->zinf, job->units[i]);
	}
	for (uint32_t i = GPU_UNITS; i-- > 0 && !r;) {
		r = gpu_backward(job, i, step);
		if (!r)
			r = zinf_reshard(job->zinf, job->units[i]);
	}
	return r;
}

static inline int gpu_step(struct gpu_job *job, float step)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket;
	int r = zinf_step_begin(job->zinf, &options);

	if (!r)
		r = gpu_pass(job, step);
	if (!r)
		r = zinf_step(job->zinf, NULL, 0, &ticket);
	return r ? r : zinf_wait(job->zinf, ticket, NULL);
}

static inline void gpu_must_step(struct gpu_job *job, float step)
{
	int r = gpu_step(job, step);

	cr_assert_eq(r, 0, "%d: %s", r, zinf_error_text(job->zinf));
}

/* Elements of the daemon's parameters that are not what @steps steps make of the first values; each
 * of @micros gradients. */
static inline uint64_t gpu_wrong_count(const struct gpu_job *job, uint32_t steps, uint32_t micros)
{
	uint64_t wrong_count = 0;
	uint64_t first = 0;

	for (uint32_t unit = 0; unit < GPU_UNITS; unit++) {
		const float *values = fake_daemon_values(job->fake, unit);

		for (uint64_t i = 0; i < unit_elements(unit); i++) {
			float value = fake_value(first + i);

			for (uint32_t step = 1; step <= steps; step++) {
				float sum = grad_of(value, (float)step);

				for (uint32_t micro = 1; micro < micros; micro++)
					sum += grad_of(value, (float)step);
				value -= sum;
			}
			wrong_count += memcmp(&value, &values[i], sizeof(value)) != 0;
		}
		first += (uint64_t)(fake_daemon_values(job->fake, unit + 1) - values);
	}
	return wrong_count;
}

/* Registered ranges, reservations and fds are asked of the fake by what it returns. */
static inline uint64_t gpu_call_count(const struct gpu_job *job, const char *place)
{
	fake_call_count_fn count;

	find_fake_symbol(job->zinf->gpu->driver.handle, "fake_call_count", &count);
	return count(place);
}

static inline void gpu_leave(struct gpu_job *job)
{
	zinf_detach(job->zinf);
	job->fake = fake_daemon_stop(job->fake);
}
