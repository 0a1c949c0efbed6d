/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every file of the room begins with: the context, words for codes of the driver, waits, and
 * the look for copies that have ended. Floor 2.
 *
 * The context of the caller stays what it is: enter pushes the device's primary context, and leave
 * pops it.
 */
#include <stdarg.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "libclient/gpu/rank.h"
#include "libclient/gpu/way.h"

/* ---- the context ---- */

int zi_client_gpu_fail(struct zinf *zinf, int code, const char *format, ...)
{
	struct zi_text what, text;
	va_list args;
	int r;

	if (code == ZI_CUDA_SUCCESS)
		return 0;
	va_start(args, format);
	zi_text_set_args(&what, format, args);
	va_end(args);
	r = zi_gpu_error(zi_client_cuda(zinf), code, &text, "%s", what.chars);
	return err_origin(zi_client_tell(zinf, r, &text));
}

int zi_client_gpu_enter(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int code = ZI_CUDA_SUCCESS;

	if (!gpu->depth)
		code = zi_client_cuda(zinf)->cuCtxPushCurrent(gpu->context);
	if (!code)
		gpu->depth++;
	return err_trace(zi_client_gpu_fail(zinf, code, "making the context of %s current",
	                                    gpu->device.uuid));
}

int zi_client_gpu_leave(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int code = ZI_CUDA_SUCCESS;

	assert(gpu->depth);
	if (!--gpu->depth)
		code = zi_client_cuda(zinf)->cuCtxPopCurrent(NULL);
	return err_trace(
		zi_client_gpu_fail(zinf, code, "making the caller's context current again"));
}

/* ---- waiting ---- */

int zi_client_gpu_await(struct zinf *zinf, zi_client_enough_fn is_enough, const void *arg,
                        const char *what)
{
	bool was_awaiting = zinf->gpu->is_awaiting;
	int r;

	zinf->gpu->is_awaiting = true;
	r = zi_client_wait_until(zinf, is_enough, arg);
	zinf->gpu->is_awaiting = was_awaiting;
	if (r == -ETIMEDOUT)
		return zi_client_error(zinf, r,
		                       "%s has not ended within %llu ms: a kernel hangs, or waits "
		                       "for another rank",
		                       what, (unsigned long long)(zinf->timeout_ns / ZI_NS_PER_MS));
	return err_trace(r);
}

/* Of an event, until it is over or its query fails. */
struct event_wait {
	struct zi_cuda_event *event;
	int *code; /* of the newest query */
};

static bool is_event_over(const struct zinf *zinf, const void *arg)
{
	const struct event_wait *wait = arg;

	*wait->code = zi_client_cuda(zinf)->cuEventQuery(wait->event);
	return *wait->code != ZI_CUDA_NOT_READY;
}

int zi_client_gpu_await_event(struct zinf *zinf, struct zi_cuda_event *event, const char *what)
{
	int code = ZI_CUDA_SUCCESS;
	const struct event_wait wait = { event, &code };
	bool held = zinf->holds_interrupts;
	int r;

	if (is_event_over(zinf, &wait))
		return err_trace(zi_client_gpu_fail(zinf, code, "waiting for %s", what));
	zinf->holds_interrupts = true;
	r = zi_client_gpu_await(zinf, is_event_over, &wait, what);
	zinf->holds_interrupts = held;
	return r ? err_trace(r) : err_trace(zi_client_gpu_fail(zinf, code, "waiting for %s", what));
}

int zi_client_gpu_query(struct zinf *zinf, struct zi_cuda_event *event, bool *ret_is_over)
{
	int code = zi_client_cuda(zinf)->cuEventQuery(event);

	*ret_is_over = code == ZI_CUDA_SUCCESS;
	if (code == ZI_CUDA_NOT_READY)
		return 0;
	return err_trace(zi_client_gpu_fail(zinf, code, "looking for the end of a copy"));
}

int zi_client_gpu_make_events(struct zinf *zinf, struct zi_cuda_event **ret_first,
                              struct zi_cuda_event **ret_second)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	int code = cuda->cuEventCreate(ret_first, ZI_CUDA_EVENT_NO_TIMING);

	if (!code)
		code = cuda->cuEventCreate(ret_second, ZI_CUDA_EVENT_NO_TIMING);
	return err_trace(zi_client_gpu_fail(zinf, code, "making events"));
}

void zi_client_gpu_free_events(struct zinf *zinf, struct zi_cuda_event **first,
                               struct zi_cuda_event **second)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);

	if (*first)
		(void)cuda->cuEventDestroy(*first);
	if (*second)
		(void)cuda->cuEventDestroy(*second);
	*first = *second = NULL;
}

int zi_client_gpu_wait(struct zinf *zinf, struct zi_cuda_stream *stream, const uint64_t *events,
                       uint32_t count)
{
	int code = ZI_CUDA_SUCCESS;

	for (uint32_t i = 0; i < count && !code; i++)
		code = zi_client_cuda(zinf)->cuStreamWaitEvent(stream, zi_gpu_event(events[i]), 0);
	return err_trace(zi_client_gpu_fail(zinf, code, "ordering a stream behind an event"));
}

/* ---- looking ---- */

bool zi_client_gpu_is_busy(const struct zinf *zinf)
{
	const struct zi_client_gpu *gpu = zinf->gpu;

	return gpu->active_count || gpu->leaving_count || gpu->is_awaiting;
}

/* What a look submits may wait for room on the ring, and so look again. */
int zi_client_gpu_look(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	int r, after;

	if (gpu->is_looking || (!gpu->active_count && !gpu->leaving_count))
		return 0;
	r = zi_client_gpu_enter(zinf);
	if (r)
		return err_trace(r);
	gpu->is_looking = true;
	r = zi_gpu_way_look(zinf);
	if (!r)
		r = zi_gpu_grads_look(zinf);
	gpu->is_looking = false;
	after = zi_client_gpu_leave(zinf);
	return r ? err_trace(r) : err_trace(after);
}

static bool is_settled(const struct zinf *zinf, const void *arg)
{
	(void)arg;
	return !zinf->gpu->active_count && !zinf->gpu->leaving_count;
}

static bool are_grads_settled(const struct zinf *zinf, const void *arg)
{
	(void)arg;
	return !zinf->gpu->leaving_count;
}

int zi_client_gpu_settle(struct zinf *zinf)
{
	uint64_t start_ns = zi_clock_now_ns();
	int r;

	assert(!zinf->gpu->is_looking);
	if (is_settled(zinf, NULL))
		return 0;
	zi_gpu_way_drop_all(zinf);
	r = zi_client_gpu_await(zinf, is_settled, NULL, "a copy of a unit");
	zinf->gpu->stats.step_wait_s += (double)(zi_clock_now_ns() - start_ns) * 1e-9;
	return err_trace(r);
}

int zi_client_gpu_settle_grads(struct zinf *zinf)
{
	if (are_grads_settled(zinf, NULL))
		return 0;
	return err_trace(zi_client_gpu_await(zinf, are_grads_settled, NULL, "a copy of gradients"));
}

int zi_client_gpu_settle_shared(struct zinf *zinf)
{
	return zi_client_is_pooled(zinf) ? err_trace(zi_client_gpu_settle(zinf))
	                                 : err_trace(zi_client_gpu_settle_grads(zinf));
}
