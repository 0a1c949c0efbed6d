/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a run; see rank.h. */
#include "tests/gpu/device/rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "libclient/gpu/rank.h"
#include "zinf/zinf.h"

/* Attaching and the first commit take longer than the deadline that is tested. */
#define OPEN_TIMEOUT_MS 120000u
#define TIMEOUT_MS      60000u /* of a rank that is to be told nothing */
#define BAD_UNIT        1u     /* where a deed is done */

/* Calls of libzinf in a row, timed, of which the first failure stays. */
#define CALL(rank, r, call)                                                  \
	do {                                                                 \
		if (!(r)) {                                                  \
			uint64_t _begin_ns = zi_clock_now_ns();              \
			(r) = (call);                                        \
			(rank)->call_ns = zi_clock_now_ns() - _begin_ns;     \
			(void)rank_note((rank), (r), #call); /* It is @r. */ \
		}                                                            \
	} while (0)

int rank_note(struct rank *rank, int r, const char *call)
{
	/* The name of the function is enough. */
	if (r)
		zi_text_set(&rank->text, "%.*s: %s", (int)strcspn(call, "("), call,
		            rank->zinf ? zinf_error_text(rank->zinf) : zinf_attach_error());
	return r;
}

/* Of the driver, called by the trainer itself. */
static int note_code(struct rank *rank, int code, const char *call)
{
	return code ? zi_gpu_error(rank->cuda, code, &rank->text, "%s", call) : 0;
}

/* ---- settings ---- */

struct rank_settings rank_settings_of(const struct trial *trial, const char *socket,
                                      const char *job)
{
	struct rank_settings settings = {
		.has_gpu = true,
		.is_fake = trial->is_fake,
		.unit_count = trial->sizes.unit_count,
		.elements = trial->sizes.elements,
		.timeout_ms = TIMEOUT_MS,
	};

	assert(strlen(socket) < sizeof(settings.socket));
	assert(strlen(job) < sizeof(settings.job));
	memcpy(settings.socket, socket, strlen(socket));
	memcpy(settings.job, job, strlen(job));
	memcpy(settings.driver, trial->driver.path, sizeof(settings.driver));
	memcpy(settings.uuid, trial->device.uuid, sizeof(settings.uuid));
	return settings;
}

uint64_t rank_unit_bytes(const struct rank_settings *settings)
{
	return settings->elements * (settings->is_bf16 ? 2 : 4);
}

uint64_t rank_three_units_bytes(const struct rank_settings *settings)
{
	const uint64_t grain_bytes = ZI_GPU_GRAIN_BYTES;

	return 3 * ((rank_unit_bytes(settings) + grain_bytes - 1) / grain_bytes * grain_bytes);
}

/* ---- values ---- */

/* Of the first values: finite, of either sign. The upper half is that of a bf16 job. */
static uint32_t first_bits(uint32_t unit, uint64_t index)
{
	uint32_t mixed = (uint32_t)index * 2654435761u + unit * 40503u;

	return (mixed & 0x8000ffffu) | (0x3c00u + (mixed >> 8) % 0x0380u) << 16;
}

static void write_values(const struct rank_settings *settings, uint32_t unit, void *ret_values)
{
	for (uint64_t i = 0; i < settings->elements; i++) {
		if (settings->is_bf16)
			((uint16_t *)ret_values)[i] = (uint16_t)(first_bits(unit, i) >> 16);
		else
			((uint32_t *)ret_values)[i] = first_bits(unit, i);
	}
}

static uint64_t count_wrong(const struct rank_settings *settings, uint32_t unit, const void *values)
{
	uint64_t wrong_count = 0;

	for (uint64_t i = 0; i < settings->elements; i++)
		wrong_count += settings->is_bf16
		                       ? ((const uint16_t *)values)[i] != first_bits(unit, i) >> 16
		                       : ((const uint32_t *)values)[i] != first_bits(unit, i);
	return wrong_count;
}

/* ---- opening ---- */

static int attach(struct rank *rank)
{
	const struct rank_settings *settings = &rank->settings;
	struct zinf_options options = ZINF_OPTIONS_INIT;
	uint32_t index;
	char name[16];
	int r = 0;

	options.socket_path = settings->socket;
	options.job = settings->job;
	options.rank = 0;
	options.world_size = 1;
	options.incarnation = "one";
	options.timeout_ms = OPEN_TIMEOUT_MS;
	options.param_dtype = settings->is_bf16 ? ZINF_BF16 : ZINF_F32;
	options.grad_dtype = options.param_dtype;
	CALL(rank, r, zinf_attach(&options, &rank->zinf));
	for (uint32_t i = 0; i < settings->unit_count && !r; i++) {
		(void)snprintf(name, sizeof(name), "u%u", i); /* Fits. */
		CALL(rank, r, zinf_unit_add(rank->zinf, name, &index));
		CALL(rank, r, zinf_param_add(rank->zinf, name, 1, &settings->elements, &index));
	}
	return r;
}

static int open_gpu(struct rank *rank)
{
	struct zinf_gpu_options options = ZINF_GPU_OPTIONS_INIT;
	int r = 0;

	options.device = rank->settings.uuid;
	options.driver = rank->settings.driver;
	options.param_budget_bytes = rank->settings.param_budget_bytes;
	CALL(rank, r, zinf_gpu_open(rank->zinf, &options));
	return r;
}

/* The context of the rank becomes current, and the kernels are loaded where there are some. */
static int enter_gpu(struct rank *rank)
{
	const struct zi_client_gpu *gpu = rank->zinf->gpu;
	int code;

	rank->cuda = zi_client_cuda(rank->zinf);
	code = rank->cuda->cuCtxSetCurrent(gpu->context);
	if (!code && kernels_exist(rank->settings.is_fake))
		code = kernels_load(rank->cuda, gpu->device.multiprocessor_count,
		                    rank->settings.is_fake, &rank->kernels);
	return note_code(rank, code, "loading the kernels");
}

static int write_first(struct rank *rank)
{
	int r = 0;

	for (uint32_t unit = 0; unit < rank->settings.unit_count && !r; unit++) {
		CALL(rank, r, zinf_param_write_begin(rank->zinf, unit));
		if (!r)
			write_values(&rank->settings, unit,
			             (void *)(uintptr_t)zinf_param_data(rank->zinf, unit));
		CALL(rank, r, zinf_param_write_end(rank->zinf, unit, 0));
	}
	CALL(rank, r, zinf_commit(rank->zinf, NULL, 0));
	return r;
}

int rank_open(struct rank *rank, const struct rank_settings *settings)
{
	int r;

	*rank = (struct rank){ .settings = *settings };
	rank->buffer = malloc(rank_unit_bytes(settings));
	if (!rank->buffer)
		return zi_text_error(&rank->text, -ENOMEM, "no memory for a unit");
	r = attach(rank);
	if (!r && settings->has_gpu)
		r = open_gpu(rank);
	CALL(rank, r, zinf_materialize(rank->zinf));
	if (!r && settings->has_gpu)
		r = enter_gpu(rank);
	if (!r)
		r = write_first(rank);
	if (!r)
		rank->zinf->timeout_ns = settings->timeout_ms * ZI_NS_PER_MS;
	return r;
}

void rank_await_pins(struct rank *rank)
{
	(void)zi_thread_join(&rank->zinf->gpu->pins.thread); /* What it could not pin is copied. */
}

/* ---- comparing ---- */

/* What the unit's users see, into the buffer. */
static int fetch(struct rank *rank, uint32_t unit)
{
	const uint64_t bytes = rank_unit_bytes(&rank->settings);
	int code;

	if (!rank->cuda) {
		memcpy(rank->buffer, zinf_param_data(rank->zinf, unit), bytes);
		return 0;
	}
	code = rank->cuda->cuMemcpyDtoHAsync(rank->buffer, zinf_gpu_param(rank->zinf, unit), bytes,
	                                     NULL);
	if (!code)
		code = rank->cuda->cuStreamSynchronize(NULL);
	return note_code(rank, code, "copying a unit back");
}

int rank_compare(struct rank *rank, uint64_t *ret_wrong_count)
{
	uint64_t wrong_count = 0;
	int r = 0;

	for (uint32_t unit = 0; unit < rank->settings.unit_count && !r; unit++) {
		CALL(rank, r, zinf_unshard(rank->zinf, unit));
		if (!r)
			r = fetch(rank, unit);
		if (!r)
			wrong_count += count_wrong(&rank->settings, unit, rank->buffer);
		CALL(rank, r, zinf_reshard(rank->zinf, unit));
	}
	if (!r)
		*ret_wrong_count = wrong_count;
	return r;
}

int rank_hash(struct rank *rank, uint64_t *ret_hash)
{
	const uint64_t count = rank->settings.elements;
	_cleanup_(zi_freep) float *values = malloc(count * sizeof(*values));
	uint64_t hash = 14695981039346656037ull;
	int r = values ? 0 : -ENOMEM;

	for (uint32_t unit = 0; unit < rank->settings.unit_count && !r; unit++) {
		CALL(rank, r, zinf_state_read(rank->zinf, unit, ZINF_STATE_MASTER, values, count));
		for (uint64_t i = 0; i < count && !r; i++) {
			uint32_t bits;

			memcpy(&bits, &values[i], sizeof(bits));
			hash = (hash ^ bits) * 1099511628211ull;
		}
	}
	if (!r)
		*ret_hash = hash;
	return r;
}

/* ---- steps ---- */

/* The gradient: a copy of the parameter. */
static int compute(struct rank *rank, uint32_t unit)
{
	const uint64_t bytes = rank_unit_bytes(&rank->settings);
	int code;

	if (!rank->cuda) {
		memcpy(zinf_grad_data(rank->zinf, unit), zinf_param_data(rank->zinf, unit), bytes);
		return 0;
	}
	code = rank->cuda->cuMemcpyDtoDAsync(zinf_gpu_grad(rank->zinf, unit),
	                                     zinf_gpu_param(rank->zinf, unit), bytes, NULL);
	return note_code(rank, code, "copying a parameter to its gradient");
}

static int misbehave(struct rank *rank, enum rank_deed deed, uint32_t unit)
{
	const uint64_t grad = zinf_gpu_grad(rank->zinf, unit);
	const uint64_t param = zinf_gpu_param(rank->zinf, unit);
	uint64_t bad = 0;
	int code = 0;

	if (deed == RANK_TRAINS || unit != BAD_UNIT)
		return 0;
	if (deed == RANK_HANGS) {
		/* The source is never 1: a gradient of zeroes. */
		code = rank->cuda->cuMemsetD8Async(grad, 0, 4, NULL);
		if (!code)
			code = kernels_spin(&rank->kernels, grad, NULL);
	} else {
		code = rank->cuda->cuMemAddressReserve(&bad, ZI_GPU_GRAIN_BYTES, 0, 0, 0);
		if (!code)
			code = kernels_mix(&rank->kernels, bad, param, rank->settings.elements / 2,
			                   1, NULL);
	}
	return note_code(rank, code, "launching a kernel");
}

static int backward(struct rank *rank, enum rank_deed deed, uint32_t unit)
{
	int r = 0;

	CALL(rank, r, zinf_unshard(rank->zinf, unit));
	CALL(rank, r, zinf_grad_acquire(rank->zinf, unit));
	if (!r)
		r = misbehave(rank, deed, unit);
	if (!r)
		r = compute(rank, unit);
	CALL(rank, r, zinf_reduce(rank->zinf, unit));
	CALL(rank, r, zinf_reshard(rank->zinf, unit));
	return r;
}

int rank_step(struct rank *rank, enum rank_deed deed)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	zinf_ticket ticket = 0;
	int r = 0;

	CALL(rank, r, zinf_step_begin(rank->zinf, &options));
	for (uint32_t unit = 0; unit < rank->settings.unit_count && !r; unit++) {
		CALL(rank, r, zinf_unshard(rank->zinf, unit));
		CALL(rank, r, zinf_reshard(rank->zinf, unit));
	}
	for (uint32_t unit = rank->settings.unit_count; unit-- > 0 && !r;)
		r = backward(rank, deed, unit);
	CALL(rank, r, zinf_step(rank->zinf, NULL, 0, &ticket));
	CALL(rank, r, zinf_wait(rank->zinf, ticket, NULL));
	return r;
}

void rank_close(struct rank *rank, bool is_last)
{
	if (rank->zinf && (!is_last || zinf_destroy_job(rank->zinf)))
		zinf_detach(rank->zinf);
	free(rank->buffer);
	*rank = (struct rank){ .text = rank->text };
}
