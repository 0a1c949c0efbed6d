/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's GPU from MATERIALIZED to its end: what copies need, and the way back. Floor 2. */
#include <stdlib.h>

#include "common/base/err.h"
#include "common/gpu/ring.h"
#include "libclient/gpu/map.h"
#include "libclient/gpu/rank.h"

/* The segments of parameters and gradients, where copies read and write. */
static int add_memory(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	uint64_t param_bytes = zi_client_is_pooled(zinf) ? zinf->pool_bytes : zinf->param_bytes;
	int r = zi_gpu_pins_add(&gpu->pins, zinf->param_fd, NULL, param_bytes, true,
	                        &gpu->param_pin);

	if (!r && gpu->grads && zi_client_has_buckets(zinf))
		r = zi_gpu_pins_add(&gpu->pins, zinf->grad_fd, NULL, zinf->bucket_bytes, false,
		                    &gpu->grad_pin);
	else if (!r && gpu->grads)
		r = zi_gpu_pins_add(&gpu->pins, -1, zinf->grad_base, zinf->grad_bytes, false,
		                    &gpu->grad_pin);
	if (r)
		return zi_client_error(zinf, r, "mapping %s of the model for copies",
		                       zi_format_bytes(param_bytes).chars);
	return 0;
}

static int start(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int r = add_memory(zinf);

	if (!r)
		r = zi_gpu_lane_init(&gpu->up, zinf);
	if (!r)
		r = zi_gpu_lane_init(&gpu->down, zinf);
	if (!r)
		r = zi_gpu_copies_init(zinf);
	if (!r)
		r = zi_gpu_grads_init(zinf);
	if (r)
		return err_trace(r);
	r = zi_gpu_pins_start(&gpu->pins, zi_client_cuda(zinf), gpu->context);
	if (r)
		return zi_client_error(zinf, r, "starting the thread that registers CPU memory");
	return 0;
}

/* Copies and kernels end before what they use goes. A context that is lost has ended them. */
static void stop(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	(void)zi_gpu_lane_drain(&gpu->up, zinf);
	(void)zi_gpu_lane_drain(&gpu->down, zinf);
	if (gpu->stage == ZI_GPU_STARTED)
		(void)zi_client_cuda(zinf)->cuStreamSynchronize(gpu->stream);
	zi_gpu_pins_stop(&gpu->pins);
	zi_gpu_grads_deinit(zinf);
	zi_gpu_copies_deinit(zinf);
	zi_gpu_lane_deinit(&gpu->up, zinf);
	zi_gpu_lane_deinit(&gpu->down, zinf);
	if (gpu->switched)
		(void)zi_client_cuda(zinf)->cuEventDestroy(gpu->switched);
	gpu->switched = NULL;
	zi_gpu_map_free(zinf);
}

/* Calls @undo with the context, where there is one. The first failure keeps its text. */
static void undo(struct zinf *zinf)
{
	const struct zi_text text = zinf->text;
	int error = zinf->text_error;
	bool is_entered = zi_client_gpu_enter(zinf) == 0;

	stop(zinf); /* What the driver refuses without a context goes with the process. */
	if (is_entered)
		(void)zi_client_gpu_leave(zinf);
	zinf->text = text;
	zinf->text_error = error;
}

int zi_client_gpu_check(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	if (gpu->stage != ZI_GPU_FAILED)
		return 0;
	return zi_client_error(zinf, -ENOTRECOVERABLE,
	                       "an earlier zinf_materialize() failed with memory of %s: "
	                       "detach, then attach again",
	                       gpu->device.uuid);
}

int zi_client_gpu_start(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int r = zi_client_gpu_enter(zinf), after;

	assert(gpu->stage == ZI_GPU_ARRANGED);
	if (r)
		return err_trace(r);
	r = start(zinf);
	after = zi_client_gpu_leave(zinf);
	r = r ? r : after;
	if (r) {
		undo(zinf);
		gpu->stage = ZI_GPU_FAILED;
		return err_trace(r);
	}
	gpu->stage = ZI_GPU_STARTED;
	return 0;
}

void zi_client_gpu_free(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	if (!gpu)
		return;
	if (gpu->context) {
		undo(zinf);
		/* Of a driver that fails here nothing more can be asked. */
		(void)zi_client_cuda(zinf)->cuDevicePrimaryCtxRelease(gpu->device.device);
	}
	zi_gpu_driver_close(&gpu->driver);
	gpu->params = zi_gpu_ring_free(gpu->params);
	gpu->grads = zi_gpu_ring_free(gpu->grads);
	free(gpu->units);
	free(gpu);
	zinf->gpu = NULL;
}
