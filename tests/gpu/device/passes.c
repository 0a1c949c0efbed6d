/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of a rank, and plain copies; see passes.h. */
#include "tests/gpu/device/passes.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "libclient/gpu/rank.h"
#include "zinf/zinf.h"

#define CALLS_MAX 65536u

/* ---- memory ---- */

static uint64_t grains(uint64_t bytes)
{
	const uint64_t grain_bytes = ZI_GPU_GRAIN_BYTES;

	return (bytes + grain_bytes - 1) / grain_bytes * grain_bytes;
}

/* A code of the driver, with its words. */
static int note(const struct passes *passes, int code, const char *call)
{
	struct rank *rank = passes->rank;

	return code ? zi_gpu_error(rank->cuda, code, &rank->text, "%s", call) : 0;
}

static int make_span(const struct passes *passes, uint64_t bytes, struct trial_span *span)
{
	const struct zi_cuda *cuda = passes->rank->cuda;
	const int device = passes->rank->zinf->gpu->device.device;
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(device);
	const struct zi_cuda_access access = zi_gpu_access(device, ZI_CUDA_ACCESS_READ_WRITE);
	int code;

	*span = (struct trial_span){ .bytes = grains(bytes) };
	code = cuda->cuMemCreate(&span->handle, span->bytes, &chunk, 0);
	if (!code)
		code = cuda->cuMemAddressReserve(&span->address, span->bytes, 0, 0, 0);
	if (!code)
		code = cuda->cuMemMap(span->address, span->bytes, 0, span->handle, 0);
	if (!code)
		code = cuda->cuMemSetAccess(span->address, span->bytes, &access, 1);
	return note(passes, code, "GPU memory beside the rank's");
}

static void drop_span(const struct passes *passes, struct trial_span *span)
{
	const struct zi_cuda *cuda = passes->rank->cuda;

	if (span->address) {
		(void)cuda->cuMemUnmap(span->address, span->bytes); /* May not be mapped. */
		(void)cuda->cuMemAddressFree(span->address, span->bytes);
	}
	if (span->handle)
		(void)cuda->cuMemRelease(span->handle);
	*span = (struct trial_span){ 0 };
}

int passes_init(struct passes *passes, struct rank *rank)
{
	const uint64_t unit_bytes = rank_unit_bytes(&rank->settings);
	const uint64_t all_bytes = unit_bytes * rank->settings.unit_count;
	int r;

	*passes = (struct passes){ .rank = rank, .rounds = 1, .call_capacity = CALLS_MAX };
	passes->call_s = calloc(CALLS_MAX, sizeof(*passes->call_s));
	if (!passes->call_s)
		return zi_text_error(&rank->text, -ENOMEM, "no memory for times");
	r = make_span(passes, unit_bytes, &passes->target);
	if (!r)
		r = make_span(passes, 2 * grains(unit_bytes), &passes->plain);
	if (!r)
		r = note(passes, rank->cuda->cuMemHostAlloc(&passes->up, all_bytes, 0),
		         "plain memory");
	if (!r)
		r = note(passes, rank->cuda->cuMemHostAlloc(&passes->down, all_bytes, 0),
		         "plain memory");
	return r;
}

void passes_deinit(struct passes *passes)
{
	if (passes->up)
		(void)passes->rank->cuda->cuMemFreeHost(passes->up);
	if (passes->down)
		(void)passes->rank->cuda->cuMemFreeHost(passes->down);
	drop_span(passes, &passes->plain);
	drop_span(passes, &passes->target);
	free(passes->call_s);
	*passes = (struct passes){ 0 };
}

/* ---- time and bytes ---- */

struct watch {
	double begin_s;
	uint64_t begin_bytes;
};

/* Of units that were queued, both ways. */
static uint64_t copied_bytes(const struct passes *passes)
{
	struct zinf_gpu_stats stats = { .bytes = sizeof(stats) };

	(void)zinf_gpu_stats(passes->rank->zinf, &stats); /* There is a GPU. */
	return stats.to_gpu_bytes + stats.from_gpu_bytes;
}

static int watch_begin(const struct passes *passes, struct watch *ret_watch)
{
	int r = note(passes, passes->rank->cuda->cuCtxSynchronize(), "waiting for the GPU");

	*ret_watch = (struct watch){ trial_now_s(), copied_bytes(passes) };
	return r;
}

static int watch_end(const struct passes *passes, const struct watch *watch,
                     struct passes_time *ret_time)
{
	int r = note(passes, passes->rank->cuda->cuCtxSynchronize(), "waiting for the GPU");

	*ret_time = (struct passes_time){ trial_now_s() - watch->begin_s,
		                          copied_bytes(passes) - watch->begin_bytes };
	return r;
}

/* ---- through libzinf ---- */

static int call(const struct passes *passes, int r, const char *name)
{
	return rank_note(passes->rank, r, name);
}

static int pass_up(const struct passes *passes)
{
	struct zinf *zinf = passes->rank->zinf;
	int r = 0;

	for (uint32_t unit = 0; unit < passes->rank->settings.unit_count && !r; unit++) {
		r = call(passes, zinf_unshard(zinf, unit), "zinf_unshard");
		if (!r)
			r = call(passes, zinf_reshard(zinf, unit), "zinf_reshard");
	}
	return r;
}

/* As a backward does it: the parameters of one unit come while the gradient of another leaves. */
static int pass_down(const struct passes *passes, bool is_both)
{
	struct zinf *zinf = passes->rank->zinf;
	int r = 0;

	for (uint32_t unit = 0; unit < passes->rank->settings.unit_count && !r; unit++) {
		if (is_both)
			r = call(passes, zinf_unshard(zinf, unit), "zinf_unshard");
		if (!r)
			r = call(passes, zinf_grad_acquire(zinf, unit), "zinf_grad_acquire");
		if (!r)
			r = call(passes, zinf_reduce(zinf, unit), "zinf_reduce");
		if (!r && is_both)
			r = call(passes, zinf_reshard(zinf, unit), "zinf_reshard");
	}
	return r;
}

int passes_zinf(struct passes *passes, enum passes_way way, struct passes_time *ret_time)
{
	const struct zinf_step_options options = ZINF_STEP_OPTIONS_INIT;
	struct zinf *zinf = passes->rank->zinf;
	struct watch watch;
	int r = 0;

	if (way != PASSES_UP)
		r = call(passes, zinf_step_begin(zinf, &options), "zinf_step_begin");
	if (!r)
		r = watch_begin(passes, &watch);
	if (!r)
		r = way == PASSES_UP ? pass_up(passes) : pass_down(passes, way == PASSES_BOTH);
	if (!r)
		r = watch_end(passes, &watch, ret_time);
	if (!r && way != PASSES_UP)
		r = call(passes, zinf_step_discard(zinf), "zinf_step_discard");
	return r;
}

/* ---- plain copies ---- */

static int queue_plain(struct passes *passes, enum passes_way way, struct zi_cuda_stream **streams)
{
	const struct rank *rank = passes->rank;
	const uint64_t bytes = rank_unit_bytes(&rank->settings);
	const uint64_t source = passes->plain.address + passes->plain.bytes / 2;
	int code = 0;

	for (uint32_t unit = 0; unit < rank->settings.unit_count && !code; unit++) {
		if (way != PASSES_DOWN)
			code = rank->cuda->cuMemcpyHtoDAsync(passes->plain.address,
			                                     (char *)passes->up + unit * bytes,
			                                     bytes, streams[0]);
		if (!code && way != PASSES_UP)
			code = rank->cuda->cuMemcpyDtoHAsync((char *)passes->down + unit * bytes,
			                                     source, bytes, streams[1]);
	}
	return code;
}

int passes_plain(struct passes *passes, enum passes_way way, struct passes_time *ret_time)
{
	const struct rank *rank = passes->rank;
	const uint64_t all_bytes = rank_unit_bytes(&rank->settings) * rank->settings.unit_count;
	struct zi_cuda_stream *streams[2] = { NULL, NULL };
	struct watch watch;
	int code = 0, r;

	for (int i = 0; i < 2 && !code; i++)
		code = rank->cuda->cuStreamCreateWithPriority(&streams[i],
		                                              ZI_CUDA_STREAM_NON_BLOCKING, 0);
	r = note(passes, code, "making streams");
	if (!r)
		r = watch_begin(passes, &watch);
	if (!r)
		r = note(passes, queue_plain(passes, way, streams), "plain copies");
	if (!r)
		r = watch_end(passes, &watch, ret_time);
	if (!r)
		ret_time->bytes = all_bytes * (way == PASSES_BOTH ? 2 : 1);
	for (int i = 0; i < 2; i++)
		if (streams[i])
			(void)rank->cuda->cuStreamDestroy(streams[i]);
	return r;
}

/* ---- beside compute ---- */

/* A unit comes and goes; the time that the host spends in both calls is kept. */
static int forward_unit(struct passes *passes, int parts, uint32_t unit)
{
	const struct rank *rank = passes->rank;
	const uint64_t count = rank_unit_bytes(&rank->settings) / sizeof(uint32_t);
	double begin_s = trial_now_s(), unshard_s = 0;
	int r = 0;

	if (parts & PASSES_COPIES)
		r = call(passes, zinf_unshard(rank->zinf, unit), "zinf_unshard");
	unshard_s = trial_now_s() - begin_s;
	if (!r && parts & PASSES_COMPUTE)
		r = note(passes,
		         kernels_mix(&rank->kernels, passes->target.address,
		                     zinf_gpu_param(rank->zinf, unit), count, passes->rounds, NULL),
		         "launching a kernel");
	begin_s = trial_now_s();
	if (!r && parts & PASSES_COPIES)
		r = call(passes, zinf_reshard(rank->zinf, unit), "zinf_reshard");
	if (passes->call_count < passes->call_capacity)
		passes->call_s[passes->call_count++] = unshard_s + trial_now_s() - begin_s;
	return r;
}

int passes_forward(struct passes *passes, int parts, uint32_t pass_count,
                   struct passes_time *ret_time)
{
	struct watch watch;
	int r = watch_begin(passes, &watch);

	assert(!(parts & PASSES_COMPUTE) || passes->rank->kernels.mix);
	for (uint32_t pass = 0; pass < pass_count && !r; pass++)
		for (uint32_t unit = 0; unit < passes->rank->settings.unit_count && !r; unit++)
			r = forward_unit(passes, parts, unit);
	return r ? r : watch_end(passes, &watch, ret_time);
}
