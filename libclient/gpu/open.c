/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's GPU is opened: the driver, the device, its primary context; and the public calls about
 * them (include/zinf/gpu.h). Floor 2.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "libclient/gpu/map.h"
#include "libclient/gpu/rank.h"
#include "libclient/sized.h"
#include "zinf/gpu.h"

/* Of the version that first had a GPU. */
#define OPTIONS_BYTES_MIN 88u
static_assert(OPTIONS_BYTES_MIN <= sizeof(struct zinf_gpu_options), "the struct only grows");
#define STATS_BYTES_MIN 144u
static_assert(STATS_BYTES_MIN <= sizeof(struct zinf_gpu_stats), "the struct only grows");

#define NEIGHBOURS 2u /* zinf_gpu_options.neighbour_count of 0 */

/* ---- opening ---- */

static int take_options(struct zinf *zinf, const struct zinf_gpu_options *given,
                        struct zinf_gpu_options *ret_options)
{
	static const struct zinf_gpu_options init = ZINF_GPU_OPTIONS_INIT;
	static const struct zi_sized sized = { "GPU options", "ZINF_GPU_OPTIONS_INIT",
		                               OPTIONS_BYTES_MIN, sizeof(struct zinf_gpu_options) };
	struct zinf_gpu_options options = { 0 };
	bool is_reserved_set;
	struct zi_text text;
	int r;

	given = given ? given : &init;
	r = zi_client_check_sized(&sized, given, &text);
	if (r)
		return err_trace(zi_client_tell(zinf, r, &text));
	memcpy(&options, given, ZI_MIN((size_t)given->bytes, sizeof(options)));
	is_reserved_set = options.reserved0 || options.reserved1;
	for (size_t i = 0; i < ZI_COUNT_OF(options.reserved); i++)
		is_reserved_set |= options.reserved[i] != 0;
	if (is_reserved_set)
		return zi_client_error(zinf, -EINVAL,
		                       "GPU options: reserved fields are set, begin with "
		                       "ZINF_GPU_OPTIONS_INIT");
	if (options.device && !zi_gpu_is_uuid(options.device))
		return zi_client_error(zinf, -EINVAL,
		                       "GPU options: device '%.60s' is no UUID (GPU-… or MIG-…): "
		                       "see nvidia-smi -L",
		                       options.device);
	*ret_options = options;
	return 0;
}

/* The visible GPU with the index $LOCAL_RANK, or the only one. */
static int find_visible(struct zinf *zinf, struct zi_gpu_device *ret_device)
{
	struct zi_gpu_driver *driver = &zinf->gpu->driver;
	const char *local_rank = zi_client_environment("LOCAL_RANK");
	uint32_t count, index = 0;
	struct zi_text text;
	int r = zi_gpu_device_count(driver, &count, &text);

	if (r)
		return err_trace(zi_client_tell(zinf, r, &text));
	if (count > 1 && !local_rank)
		return zi_client_error(zinf, -EINVAL,
		                       "this process sees %u GPUs: name one (device of the GPU "
		                       "options), or set LOCAL_RANK or CUDA_VISIBLE_DEVICES",
		                       count);
	if (count > 1) {
		r = zi_client_parse_count(zinf, "LOCAL_RANK", local_rank, &index);
		if (r)
			return err_trace(r);
	}
	if (index >= count)
		return zi_client_error(zinf, -ENODEV,
		                       "LOCAL_RANK is %u, and this process sees %u GPUs: check "
		                       "CUDA_VISIBLE_DEVICES",
		                       index, count);
	r = zi_gpu_device_describe(driver, index, ret_device, &text);
	return r ? err_trace(zi_client_tell(zinf, r, &text)) : 0;
}

static int find_device(struct zinf *zinf, const char *uuid)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_text text;
	int r;

	if (!uuid) {
		r = find_visible(zinf, &gpu->device);
	} else {
		r = zi_gpu_device_find(&gpu->driver, uuid, &gpu->device, &text);
		if (r)
			(void)zi_client_tell(zinf, r, &text); /* It is returned. */
	}
	if (r)
		return err_trace(r);
	r = zi_gpu_device_check(&gpu->device, &text);
	return r ? err_trace(zi_client_tell(zinf, r, &text)) : 0;
}

static int check_stream(struct zinf *zinf, struct zi_cuda_stream *stream)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_cuda_context *context = NULL;
	int code;

	if (!stream)
		return 0;
	code = zi_client_cuda(zinf)->cuStreamGetCtx(stream, &context);
	if (code == ZI_CUDA_INVALID_HANDLE || (!code && context != gpu->context))
		return zi_client_error(zinf, -EINVAL,
		                       "the stream is none of the primary context of %s: make it "
		                       "there, as PyTorch and the CUDA runtime do",
		                       gpu->device.uuid);
	return err_trace(
		zi_client_gpu_fail(zinf, code, "looking up a stream of %s", gpu->device.uuid));
}

static int retain(struct zinf *zinf, const struct zinf_gpu_options *options)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	int code = cuda->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device.device);
	int r, after;

	if (code) {
		gpu->context = NULL;
		return err_trace(zi_client_gpu_fail(zinf, code, "using the primary context of %s",
		                                    gpu->device.uuid));
	}
	r = zi_client_gpu_enter(zinf);
	if (r)
		return err_trace(r);
	r = check_stream(zinf, options->stream);
	after = zi_client_gpu_leave(zinf);
	gpu->stream = options->stream;
	return r ? err_trace(r) : err_trace(after);
}

static int open_gpu(struct zinf *zinf, const struct zinf_gpu_options *options)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	struct zi_text text;
	int r = zi_gpu_driver_open(&gpu->driver, options->driver, &text);

	if (r)
		return err_trace(zi_client_tell(zinf, r, &text));
	r = find_device(zinf, options->device);
	if (!r)
		r = retain(zinf, options);
	/* Whether the daemon has the GPU. What is free is asked again when it is needed. */
	return r ? err_trace(r) : err_trace(zi_gpu_map_ask(zinf));
}

int zinf_gpu_open(struct zinf *zinf, const struct zinf_gpu_options *given)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zinf_gpu_options options = { 0 };
	int r = zi_client_enter(zinf);

	if (!r)
		r = take_options(zinf, given, &options);
	if (r)
		return err_trace(r);
	if (zinf->gpu)
		return zi_client_error(zinf, -EALREADY,
		                       "this rank has %s already: zinf_gpu_open() "
		                       "is called once",
		                       zinf->gpu->device.uuid);
	r = zi_client_enter_forming(zinf, __func__);
	if (r)
		return err_trace(r);
	if (!(zinf->features & ZI_FEATURE_GPU))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "zinfd at %s has no GPU memory for ranks: use a newer zinfd",
		                       zinf->path);
	zinf->gpu = calloc(1, sizeof(*zinf->gpu));
	if (!zinf->gpu)
		return zi_client_error(zinf, -ENOMEM, "no memory for the state of a GPU");
	zinf->gpu->demanded = ZI_GPU_NO_UNIT;
	zinf->gpu->param_budget_bytes = options.param_budget_bytes;
	zinf->gpu->grad_budget_bytes = options.grad_budget_bytes;
	zinf->gpu->neighbour_count = options.neighbour_count ? options.neighbour_count : NEIGHBOURS;
	r = open_gpu(zinf, &options);
	if (r)
		zi_client_gpu_free(zinf);
	return err_trace(r);
}

int zinf_gpu_apart(struct zinf *zinf, uint32_t unit)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter_forming(zinf, __func__);

	if (r)
		return err_trace(r);
	if (unit >= zinf->unit_count)
		return zi_client_error(zinf, -EINVAL, "zinf_gpu_apart() of unit %u: there are %u",
		                       unit, zinf->unit_count);
	zinf->units[unit].is_apart = true;
	return 0;
}

/* ---- the trainer's stream ---- */

/* What the former stream was given comes before what the new one is given. */
static int switch_stream(struct zinf *zinf, struct zi_cuda_stream *stream)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	int code = ZI_CUDA_SUCCESS;
	int r = check_stream(zinf, stream);

	if (r || stream == gpu->stream)
		return err_trace(r);
	if (!gpu->switched)
		code = cuda->cuEventCreate(&gpu->switched, ZI_CUDA_EVENT_NO_TIMING);
	if (!code)
		code = cuda->cuEventRecord(gpu->switched, gpu->stream);
	if (!code)
		code = cuda->cuStreamWaitEvent(stream, gpu->switched, 0);
	if (code)
		return err_trace(zi_client_gpu_fail(zinf, code, "changing to another stream"));
	gpu->stream = stream;
	return 0;
}

int zinf_gpu_stream(struct zinf *zinf, void *stream)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter(zinf), after;

	if (r)
		return err_trace(r);
	if (!zinf->gpu)
		return zi_client_error(zinf, -EINVAL, "call zinf_gpu_open() first");
	r = zi_client_gpu_enter(zinf);
	if (r)
		return err_trace(r);
	r = switch_stream(zinf, stream);
	after = zi_client_gpu_leave(zinf);
	return r ? err_trace(r) : err_trace(after);
}

/* ---- what there is ---- */

/* NULL: no such parameter, or nothing is mapped yet. */
static const struct zi_gpu_unit_state *unit_of(const struct zinf *zinf, uint32_t param)
{
	if (!zinf || !zinf->gpu || zinf->gpu->stage != ZI_GPU_STARTED || param >= zinf->param_count)
		return NULL;
	return &zinf->gpu->units[zinf->params[param].unit];
}

uint64_t zinf_gpu_param(const struct zinf *zinf, uint32_t param)
{
	const struct zi_gpu_unit_state *unit = unit_of(zinf, param);

	if (!unit)
		return 0;
	return unit->param + zinf->params[param].element_offset *
	                             zi_dtype_bytes((enum zi_dtype)zinf->attach.config.param_dtype);
}

uint64_t zinf_gpu_grad(const struct zinf *zinf, uint32_t param)
{
	const struct zi_gpu_unit_state *unit = unit_of(zinf, param);

	if (!unit || !unit->grad)
		return 0;
	return unit->grad + zinf->params[param].element_offset *
	                            zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
}

int zinf_gpu_stats(const struct zinf *zinf, struct zinf_gpu_stats *ret_stats)
{
	ZI_CLIENT_NEED(NULL, zinf, zinf);
	ZI_CLIENT_NEED(NULL, ret_stats, ret_stats);
	const struct zi_client_gpu *gpu = zinf->gpu;
	struct zinf_gpu_stats stats;

	if (!gpu || ret_stats->bytes < STATS_BYTES_MIN)
		return err_origin(-EINVAL);
	stats = gpu->stats;
	stats.bytes = ret_stats->bytes;
	stats.chunk_bytes = gpu->budget.chunk_bytes;
	stats.chunk_count = gpu->budget.param_count + gpu->budget.grad_count;
	stats.param_budget_bytes = gpu->budget.param_count * gpu->budget.chunk_bytes;
	stats.grad_budget_bytes = gpu->budget.grad_count * gpu->budget.chunk_bytes;
	stats.pinned_bytes = zi_gpu_pins_bytes(&gpu->pins);
	memcpy(ret_stats, &stats, ZI_MIN((size_t)ret_stats->bytes, sizeof(stats)));
	return 0;
}
