/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as the daemon sees it; see gpu.h. Floor 2, shard thread. */
#include "daemon/device/gpu.h"

#include "common/base/assert.h"
#include "common/base/err.h"

void dev_gpu_init(struct dev_gpu *gpu, const struct dev_gpu_facts *facts,
                  const struct dev_gpu_ops *ops, void *arg)
{
	assert(facts->granularity_bytes > 0);
	assert(ops->create && ops->release);
	*gpu = (struct dev_gpu){ .facts = *facts, .is_up = true, .ops = ops, .arg = arg };
	zi_list_init(&gpu->requests);
	zi_list_init(&gpu->parked);
}

void dev_gpu_deinit(struct dev_gpu *gpu)
{
	assert(zi_list_is_empty(&gpu->requests));
	assert(zi_list_is_empty(&gpu->parked));
	assert(!gpu->served);
	(void)gpu; /* Without asserts nobody looks. */
}

/* Until the process that is ending has gone. */
static void gpu_park(struct dev_gpu *gpu, struct dev_gpu_request *request)
{
	assert(gpu->ending_pid);
	assert(!gpu->is_closed);
	zi_list_push_back(&gpu->parked, &request->link);
}

static void gpu_unpark(struct dev_gpu *gpu)
{
	struct zi_list ended;

	zi_list_init(&ended);
	zi_list_for_each_safe(link, &gpu->parked) {
		zi_list_remove(link);
		zi_list_push_back(&ended, link);
	}
	while (!zi_list_is_empty(&ended)) {
		struct zi_list *link = zi_list_pop_front(&ended);
		struct dev_gpu_request *request = container_of(link, struct dev_gpu_request, link);

		request->error = 0;
		request->done(request);
	}
}

/* Hands @request over. 0; why it has ended already: an errno, or 0 in *ret_is_over. */
static int gpu_serve(struct dev_gpu *gpu, struct dev_gpu_request *request, bool *ret_is_over)
{
	int r;

	assert(!gpu->served);
	if (gpu->is_closed) {
		*ret_is_over = true;
		if (request->is_release)
			return 0;
		return zi_text_error(&request->text, err_origin(-ESHUTDOWN),
		                     "the daemon is stopping: no more memory of %s",
		                     gpu->facts.uuid);
	}
	gpu->served = request;
	r = request->is_release ? gpu->ops->release(gpu->arg, request)
	                        : gpu->ops->create(gpu->arg, request);
	if (r)
		gpu->served = NULL;
	if (request->is_release && r == DEV_GPU_E_ENDING) {
		gpu_park(gpu, request);
		*ret_is_over = false;
		return 0;
	}
	*ret_is_over = r != 0;
	if (request->is_release && r == DEV_GPU_E_GONE)
		return 0;
	return err_fold(r);
}

/* Serves waiting requests until one is SERVED. */
static void gpu_serve_next(struct dev_gpu *gpu)
{
	while (!gpu->served && !zi_list_is_empty(&gpu->requests)) {
		struct zi_list *link = zi_list_pop_front(&gpu->requests);
		struct dev_gpu_request *request = container_of(link, struct dev_gpu_request, link);
		bool is_over;
		int r = gpu_serve(gpu, request, &is_over);

		if (!is_over)
			continue;
		request->error = r;
		request->done(request);
	}
}

/* A request is served at once when no other waits. */
static int gpu_submit(struct dev_gpu *gpu, struct dev_gpu_request *request, bool *ret_is_over)
{
	assert(request->done && request->chunks);
	assert(request->count > 0 && request->count <= DEV_GPU_CHUNKS_MAX);
	zi_list_init(&request->link);
	request->may_hold = false;
	request->error = 0;
	request->text.chars[0] = '\0';
	*ret_is_over = false;
	if (!gpu->served && zi_list_is_empty(&gpu->requests))
		return err_trace(gpu_serve(gpu, request, ret_is_over));
	/* A release gives memory back, and was a create before: creates do not starve. */
	if (request->is_release)
		zi_list_push_front(&gpu->requests, &request->link);
	else
		zi_list_push_back(&gpu->requests, &request->link);
	return 0;
}

int dev_gpu_create(struct dev_gpu *gpu, struct dev_gpu_request *request)
{
	bool is_over;

	assert(request->chunk_bytes > 0);
	request->is_release = false;
	return err_trace(gpu_submit(gpu, request, &is_over));
}

void dev_gpu_release(struct dev_gpu *gpu, struct dev_gpu_request *request)
{
	bool is_over;
	int r;

	request->is_release = true;
	r = gpu_submit(gpu, request, &is_over);
	if (!is_over)
		return;
	request->error = r;
	request->done(request);
}

void dev_gpu_await_gone(struct dev_gpu *gpu, struct dev_gpu_request *request)
{
	zi_list_init(&request->link);
	if (request->may_hold && gpu->ending_pid && !gpu->is_closed) {
		gpu_park(gpu, request);
		return;
	}
	request->error = 0;
	request->done(request);
}

bool dev_gpu_cancel(struct dev_gpu *gpu, struct dev_gpu_request *request)
{
	if (gpu->served == request)
		return false;
	assert(zi_list_is_linked(&request->link));
	zi_list_remove(&request->link);
	return true;
}

void dev_gpu_answer(struct dev_gpu *gpu, int error, const struct zi_text *text)
{
	struct dev_gpu_request *request = gpu->served;

	assert(request);
	assert(error <= 0);
	gpu->served = NULL;
	if (request->is_release && gpu->ending_pid && !gpu->is_closed) {
		gpu_park(gpu, request);
	} else {
		request->error = error;
		if (error)
			request->text = *text;
		request->done(request); /* It is its owner's again, who may make another. */
	}
	gpu_serve_next(gpu);
}

void dev_gpu_set_up(struct dev_gpu *gpu)
{
	gpu->is_up = true;
	gpu->down.chars[0] = '\0';
}

void dev_gpu_set_down(struct dev_gpu *gpu, const struct zi_text *text)
{
	gpu->is_up = false;
	gpu->down = *text;
}

void dev_gpu_set_ending(struct dev_gpu *gpu, pid_t pid, uint64_t killed_ns)
{
	assert(pid > 0);
	assert(!gpu->ending_pid);
	gpu->ending_pid = pid;
	gpu->killed_ns = killed_ns;
	if (gpu->served)
		gpu->served->may_hold = true;
}

void dev_gpu_set_gone(struct dev_gpu *gpu)
{
	gpu->ending_pid = 0;
	gpu_unpark(gpu);
}

void dev_gpu_close(struct dev_gpu *gpu)
{
	gpu->is_closed = true;
	gpu_unpark(gpu);
	gpu_serve_next(gpu); /* They end, unless one is served: then after its answer. */
}
