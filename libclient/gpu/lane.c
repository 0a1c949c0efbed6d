/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of copies, and its two buffers; see lane.h. Floor 2. */
#include "libclient/gpu/lane.h"

#include <string.h>

#include "common/base/err.h"
#include "libclient/gpu/rank.h"

/* As urgent as the device allows: a kernel waits for a copy rather than the reverse. */
int zi_gpu_lane_init(struct zi_gpu_lane *lane, struct zinf *zinf)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	int least = 0, most = 0;
	int code = cuda->cuCtxGetStreamPriorityRange(&least, &most);

	assert(!lane->stream);
	if (!code)
		code = cuda->cuStreamCreateWithPriority(&lane->stream, ZI_CUDA_STREAM_NON_BLOCKING,
		                                        most);
	return err_trace(
		zi_client_gpu_fail(zinf, code, "making a stream on %s", zinf->gpu->device.uuid));
}

static int make_buffer(struct zi_gpu_lane *lane, struct zinf *zinf, uint32_t index)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	void *memory = NULL;
	int code = ZI_CUDA_SUCCESS;

	if (!lane->events[index])
		code = cuda->cuEventCreate(&lane->events[index], ZI_CUDA_EVENT_NO_TIMING);
	if (!code && !lane->buffers[index]) {
		code = cuda->cuMemHostAlloc(&memory, ZI_GPU_LANE_BYTES, ZI_CUDA_REGISTER_PORTABLE);
		if (!code)
			lane->buffers[index] = memory;
	}
	return err_trace(zi_client_gpu_fail(zinf, code, "pinning %s of CPU memory",
	                                    zi_format_bytes(ZI_GPU_LANE_BYTES).chars));
}

/* A buffer that no copy uses any more. */
static int next_buffer(struct zi_gpu_lane *lane, struct zinf *zinf, uint32_t *ret_index)
{
	uint32_t index = lane->next;
	int r = make_buffer(lane, zinf, index);

	if (!r)
		r = zi_client_gpu_await_event(zinf, lane->events[index], "a copy");
	if (r)
		return err_trace(r);
	lane->next = (index + 1) % ZI_GPU_LANE_BUFFERS;
	*ret_index = index;
	return 0;
}

static int note_copy(struct zi_gpu_lane *lane, struct zinf *zinf, uint32_t index, int code,
                     uint64_t bytes)
{
	if (!code)
		code = zi_client_cuda(zinf)->cuEventRecord(lane->events[index], lane->stream);
	return err_trace(zi_client_gpu_fail(zinf, code, "queueing a copy of %s",
	                                    zi_format_bytes(bytes).chars));
}

static int up_by_buffer(struct zi_gpu_lane *lane, struct zinf *zinf, uint64_t target,
                        const char *source, uint64_t bytes)
{
	uint32_t index;
	int r = next_buffer(lane, zinf, &index);

	if (r)
		return err_trace(r);
	memcpy(lane->buffers[index], source, bytes);
	return err_trace(note_copy(lane, zinf, index,
	                           zi_client_cuda(zinf)->cuMemcpyHtoDAsync(
					   target, lane->buffers[index], bytes, lane->stream),
	                           bytes));
}

/* What comes down through buffers, from @target on: (@queued - @landed) bytes are in buffers, the
 * oldest part in buffer @oldest. */
struct descent {
	char *target;
	uint64_t landed, queued;
	uint32_t oldest;
};

static int land(struct zi_gpu_lane *lane, struct zinf *zinf, struct descent *descent)
{
	uint64_t part = ZI_MIN(descent->queued - descent->landed, ZI_GPU_LANE_BYTES);
	int r = zi_client_gpu_await_event(zinf, lane->events[descent->oldest], "a copy");

	if (r)
		return err_trace(r);
	memcpy(descent->target + descent->landed, lane->buffers[descent->oldest], part);
	descent->landed += part;
	descent->oldest = (descent->oldest + 1) % ZI_GPU_LANE_BUFFERS;
	return 0;
}

static int down_by_buffers(struct zi_gpu_lane *lane, struct zinf *zinf, char *target,
                           uint64_t source, uint64_t bytes)
{
	struct descent descent = { .target = target, .oldest = lane->next };
	int r = 0;

	while (!r && descent.landed < bytes) {
		uint64_t part = ZI_MIN(bytes - descent.queued, ZI_GPU_LANE_BYTES);
		uint32_t index;

		/* Parts are whole buffers but for the last one. */
		if (!part ||
		    descent.queued - descent.landed >= ZI_GPU_LANE_BUFFERS * ZI_GPU_LANE_BYTES) {
			r = land(lane, zinf, &descent);
			continue;
		}
		r = next_buffer(lane, zinf, &index);
		if (!r)
			r = note_copy(lane, zinf, index,
			              zi_client_cuda(zinf)->cuMemcpyDtoHAsync(
					      lane->buffers[index], source + descent.queued, part,
					      lane->stream),
			              part);
		descent.queued += part;
	}
	return err_trace(r);
}

static int queue_pinned(struct zi_gpu_lane *lane, struct zinf *zinf, bool is_up, char *host,
                        uint64_t device, uint64_t bytes)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	int code = is_up ? cuda->cuMemcpyHtoDAsync(device, host, bytes, lane->stream)
	                 : cuda->cuMemcpyDtoHAsync(host, device, bytes, lane->stream);

	return err_trace(zi_client_gpu_fail(zinf, code, "queueing a copy of %s",
	                                    zi_format_bytes(bytes).chars));
}

/* Cut where pinned memory begins or ends. @host is only read if @is_up. */
static int copy(struct zi_gpu_lane *lane, struct zinf *zinf, bool is_up, char *host,
                uint64_t device, uint64_t bytes)
{
	uint64_t done = 0;
	int r = 0;

	while (done < bytes && !r) {
		bool is_pinned;
		uint64_t part =
			zi_gpu_pins_reach(&zinf->gpu->pins, host + done, bytes - done, &is_pinned);

		if (is_up && !is_pinned)
			part = ZI_MIN(part, ZI_GPU_LANE_BYTES);
		if (is_pinned)
			r = queue_pinned(lane, zinf, is_up, host + done, device + done, part);
		else if (is_up)
			r = up_by_buffer(lane, zinf, device + done, host + done, part);
		else
			r = down_by_buffers(lane, zinf, host + done, device + done, part);
		done += part;
	}
	return err_trace(r);
}

int zi_gpu_lane_up(struct zi_gpu_lane *lane, struct zinf *zinf, uint64_t target, const char *source,
                   uint64_t bytes)
{
	return err_trace(copy(lane, zinf, true, (char *)(uintptr_t)source, target, bytes));
}

int zi_gpu_lane_down(struct zi_gpu_lane *lane, struct zinf *zinf, char *target, uint64_t source,
                     uint64_t bytes)
{
	return err_trace(copy(lane, zinf, false, target, source, bytes));
}

int zi_gpu_lane_drain(struct zi_gpu_lane *lane, struct zinf *zinf)
{
	int code = ZI_CUDA_SUCCESS;

	if (lane->stream)
		code = zi_client_cuda(zinf)->cuStreamSynchronize(lane->stream);
	return err_trace(zi_client_gpu_fail(zinf, code, "waiting for copies"));
}

/* Of a driver that fails here nothing more can be asked. */
void zi_gpu_lane_deinit(struct zi_gpu_lane *lane, struct zinf *zinf)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);

	for (uint32_t i = 0; i < ZI_GPU_LANE_BUFFERS; i++) {
		if (lane->events[i])
			(void)cuda->cuEventDestroy(lane->events[i]);
		if (lane->buffers[i])
			(void)cuda->cuMemFreeHost(lane->buffers[i]);
	}
	if (lane->stream)
		(void)cuda->cuStreamDestroy(lane->stream);
	*lane = (struct zi_gpu_lane){ 0 };
}
