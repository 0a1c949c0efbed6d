/* SPDX-License-Identifier: Apache-2.0 */
/* zinf-gpu seen from the daemon; see gpu_worker.h. Floor 3. The loop's thread. */
#include "daemon/worker/gpu_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "daemon/worker/gpu_worker_private.h"
#include "daemon/worker/spawn.h"

#define GPU_WORKER_PING_NS (5 * ZI_NS_PER_S)
/* A batch of chunks, while other processes hold the driver's locks. */
#define GPU_WORKER_PONG_NS (30 * ZI_NS_PER_S)
/* A machine whose driver nobody keeps awake needs seconds for each GPU. */
#define GPU_WORKER_GREETING_NS (120 * ZI_NS_PER_S)
#define GPU_WORKER_REQUEST_NS  (60 * ZI_NS_PER_S)
/* A process that ends releases its chunks, which takes the driver a moment. */
#define GPU_WORKER_LINGER_NS (5 * ZI_NS_PER_S)
#define GPU_WORKER_STOP_NS   (5 * ZI_NS_PER_S)
#define GPU_WORKER_STARTS    3u
#define GPU_WORKER_STARTS_NS (60 * ZI_NS_PER_S)

static_assert((int)GPU_WORKER_DOWN == (int)PROCESS_DOWN, "gpu_worker_state()");
static_assert((int)GPU_WORKER_STARTING == (int)PROCESS_STARTING, "gpu_worker_state()");
static_assert((int)GPU_WORKER_UP == (int)PROCESS_UP, "gpu_worker_state()");
static_assert((int)GPU_WORKER_ENDING == (int)PROCESS_ENDING, "gpu_worker_state()");
static_assert(GPU_WORKER_E_STUCK != PROCESS_E_STUCK, "gpu_worker_stop() translates");

/* ---- the queue ---- */

/* Documented in gpu_worker_private.h, as are those that follow. */
struct gpu_request *gpu_worker_head(const struct gpu_worker *worker)
{
	struct process_request *base;

	if (zi_list_is_empty(&worker->process.requests))
		return NULL;
	base = container_of(worker->process.requests.next, struct process_request, link);
	return container_of(base, struct gpu_request, base);
}

/* @request is out of the list. */
static void request_done(struct gpu_request *request, int error, const struct zi_text *text)
{
	for (uint32_t i = 0; error && request->type == GPU_CREATE && i < request->passed; i++)
		request->chunks[i].fd = zi_close(request->chunks[i].fd);
	request->error = error;
	request->text = *text;
	request->done(request); /* The request is its owner's again, who may make another. */
}

/* What is known here before zinf-gpu is asked. */
static int check_create(const struct gpu_worker *worker, uint32_t count, uint64_t chunk_bytes,
                        struct zi_text *text)
{
	const struct gpu_facts *facts = &worker->facts;
	uint64_t room_bytes = facts->bytes - ZI_MIN(facts->bytes, worker->options.reserve_bytes);

	if (!count || count > GPU_CHUNKS_MAX || !chunk_bytes)
		return err_origin(zi_text_error(
			text, -EINVAL, "%u chunks of %llu B: 1 to %u chunks are possible", count,
			(unsigned long long)chunk_bytes, GPU_CHUNKS_MAX));
	/* Of a process that is ENDING nothing is held by the next one. */
	if (!worker->has_facts || worker->process.state == PROCESS_ENDING)
		return 0;
	room_bytes -= ZI_MIN(room_bytes, worker->held_bytes);
	if (count > room_bytes / chunk_bytes)
		return err_origin(zi_text_error(
			text, -ENOSPC, "%u chunks of %s on %s, where %s of %s are left to zinf%s",
			count, zi_format_bytes(chunk_bytes).chars, facts->uuid,
			zi_format_bytes(room_bytes).chars, zi_format_bytes(facts->bytes).chars,
			worker->options.reserve_bytes ? " (gpu.reserve)" : ""));
	return 0;
}

static void send_create(struct gpu_worker *worker, const struct gpu_request *request)
{
	struct gpu_create create = { .header = gpu_header_of(GPU_CREATE, request->base.cookie),
		                     .count = request->count,
		                     .chunk_bytes = request->chunk_bytes };

	/* The socket has room for the one request of the worker. One that cannot be sent has no
	 * answer: the limit or the end of the process fails it. */
	(void)process_send(&worker->process, &create, sizeof(create), -1);
}

static void send_release(struct gpu_worker *worker, struct gpu_request *request)
{
	struct gpu_release release = { .header = gpu_header_of(GPU_RELEASE, request->base.cookie) };

	assert(request->passed < request->count);
	release.count = ZI_MIN(request->count - request->passed, GPU_RELEASES_MAX);
	for (uint32_t i = 0; i < release.count; i++)
		release.ids[i] = request->chunks[request->passed + i].id;
	request->portion = release.count;
	(void)process_send(&worker->process, &release, sizeof(release), -1); /* As above. */
}

void gpu_worker_send(struct gpu_worker *worker, struct gpu_request *request)
{
	assert(worker->process.state == PROCESS_UP);
	request->is_sent = true;
	if (request->type == GPU_CREATE)
		send_create(worker, request);
	else
		send_release(worker, request);
	gpu_worker_arm(worker, request);
}

void gpu_worker_arm(struct gpu_worker *worker, struct gpu_request *request)
{
	process_limit(&request->base, zi_clock_deadline_ns(worker->options.request_ns));
}

void gpu_worker_serve(struct gpu_worker *worker)
{
	/* A call of `done` may end the process. */
	while (worker->process.state == PROCESS_UP) {
		struct gpu_request *request = gpu_worker_head(worker);
		struct zi_text text;
		int r = 0;

		if (!request || request->is_sent)
			return;
		/* The facts may have come after it was accepted. */
		if (request->type == GPU_CREATE)
			r = check_create(worker, request->count, request->chunk_bytes, &text);
		if (!r) {
			gpu_worker_send(worker, request);
			return;
		}
		process_pop(&request->base);
		request_done(request, r, &text);
	}
}

void gpu_worker_finish(struct gpu_worker *worker, struct gpu_request *request, int error,
                       const struct zi_text *text)
{
	process_pop(&request->base);
	request_done(request, error, text);
	gpu_worker_serve(worker);
}

/* ---- life ---- */

static void worker_ping(struct process *process)
{
	struct gpu_header ping = gpu_header_of(GPU_PING, 0);

	(void)process_send(process, &ping, sizeof(ping), -1); /* Not sent: no answer either. */
}

static void worker_down(struct process *process)
{
	struct gpu_worker *worker = gpu_worker_of(process);

	if (process->state == PROCESS_DOWN)
		worker->held_bytes = 0;
	else if (worker->options.ending)
		worker->options.ending(worker->options.arg, true);
}

/* A death is an input/output error of the GPU's memory; a hang or nonsense has its own errno. */
static int error_of_end(int error)
{
	return error == -EPIPE ? -EIO : error;
}

static void worker_fail(struct process_request *base, int error, const struct zi_text *text)
{
	request_done(container_of(base, struct gpu_request, base), error_of_end(error), text);
}

static void worker_ended(struct process *process, int error, const struct zi_text *text)
{
	struct gpu_worker *worker = gpu_worker_of(process);

	if (worker->options.ended)
		worker->options.ended(worker->options.arg, error_of_end(error), text);
}

/* Requests that waited for this start another process. */
static void worker_gone(struct process *process)
{
	struct gpu_worker *worker = gpu_worker_of(process);
	bool wants_start = worker->wants_start;
	struct gpu_request *request;
	struct zi_text text;
	int r;

	worker->wants_start = false;
	worker->held_bytes = 0;
	if (worker->options.ending)
		worker->options.ending(worker->options.arg, false);
	/* A request that came after the start had been given up waits as well. */
	wants_start |= process->state == PROCESS_DOWN && gpu_worker_head(worker);
	r = wants_start ? gpu_worker_start(worker, &text) : 0;
	/* The end of one may lead to a start that works. */
	while (r && process->state == PROCESS_DOWN && (request = gpu_worker_head(worker))) {
		process_pop(&request->base);
		request_done(request, r, &text);
	}
}

static void worker_stuck(struct process *process, const struct zi_text *text)
{
	struct gpu_worker *worker = gpu_worker_of(process);

	worker->wants_start = false;
	if (worker->options.stuck)
		worker->options.stuck(worker->options.arg, text);
}

static const struct process_class gpu_worker_class = { .ready = gpu_worker_ready,
	                                               .ping = worker_ping,
	                                               .down = worker_down,
	                                               .fail = worker_fail,
	                                               .ended = worker_ended,
	                                               .gone = worker_gone,
	                                               .stuck = worker_stuck };

/* Documented in the header, as are the others. */
int gpu_worker_new(struct zi_loop *loop, const struct gpu_worker_options *options,
                   struct gpu_worker **ret_worker)
{
	struct gpu_worker *worker = calloc(1, sizeof(*worker));
	char name[PROCESS_NAME_BYTES];

	if (!worker)
		return err_origin(-ENOMEM);
	worker->options = *options;
	if (!options->request_ns)
		worker->options.request_ns = GPU_WORKER_REQUEST_NS;
	if (!options->spawn)
		worker->options.spawn = spawn_program;
	/* May be cut: it is for people. */
	(void)snprintf(name, sizeof(name), "zinf-gpu of %s%s",
	               zi_gpu_is_uuid(options->device) ? "" : "GPU ", options->device);
	process_init(
		&worker->process, loop,
		&(struct process_options){
			.class = &gpu_worker_class,
			.name = name,
			.requests_max = GPU_WORKER_REQUESTS_MAX,
			.ping_ns = options->ping_ns ? options->ping_ns : GPU_WORKER_PING_NS,
			.pong_ns = options->pong_ns ? options->pong_ns : GPU_WORKER_PONG_NS,
			.greeting_ns = options->greeting_ns ? options->greeting_ns
	                                                    : GPU_WORKER_GREETING_NS,
			.linger_ns = options->linger_ns ? options->linger_ns : GPU_WORKER_LINGER_NS,
			.stop_ns = options->stop_ns ? options->stop_ns : GPU_WORKER_STOP_NS,
			.starts_max = options->starts_max ? options->starts_max : GPU_WORKER_STARTS,
			.starts_ns = options->starts_ns ? options->starts_ns : GPU_WORKER_STARTS_NS,
		});
	*ret_worker = worker;
	return 0;
}

int gpu_worker_stop(struct gpu_worker *worker, struct zi_text *text)
{
	struct zi_text why;
	int r;

	worker->options.ended = NULL;
	worker->options.ending = NULL;
	worker->options.stuck = NULL;
	zi_text_set(&why, "the daemon ends %s", worker->process.name);
	r = process_stop(&worker->process, &why, text);
	return r == PROCESS_E_STUCK ? GPU_WORKER_E_STUCK : err_fold(r);
}

struct gpu_worker *gpu_worker_free(struct gpu_worker *worker)
{
	struct zi_text text;

	if (!worker)
		return NULL;
	(void)gpu_worker_stop(worker, &text); /* Who wants to know has called it before. */
	free(worker);
	return NULL;
}

int gpu_worker_start(struct gpu_worker *worker, struct zi_text *text)
{
	static const char *const variables[] = { "ZINF_FAKE_GPU", NULL };
	const char *driver = worker->options.driver;
	const char *arguments[7] = { "--device", worker->options.device };
	uint32_t count = 2;
	char number[12];
	const struct spawn_options options = { .program = worker->options.program,
		                               .name = "zinf-gpu",
		                               .arguments = arguments,
		                               .variables = variables };
	struct spawned spawned;
	int r;

	if (driver && *driver) {
		arguments[count++] = "--driver";
		arguments[count++] = driver;
	}
	if (worker->has_facts) {
		(void)snprintf(number, sizeof(number), "%u", worker->facts.index); /* Fits. */
		arguments[1] = worker->facts.uuid;
		arguments[count++] = "--number";
		arguments[count++] = number;
	}
	if (worker->process.state == PROCESS_ENDING && worker->process.is_stuck) {
		process_describe_ending(&worker->process, text);
		return err_origin(-EAGAIN);
	}
	worker->wants_start = worker->process.state == PROCESS_ENDING;
	if (worker->process.state != PROCESS_DOWN)
		return 0;
	r = process_may_start(&worker->process, text);
	r = r ? r : worker->options.spawn(&options, text, &spawned);
	if (r)
		return err_trace(r);
	worker->last_id = 0;
	worker->is_seen = false;
	return err_trace(process_adopt(&worker->process, options.program, &spawned, text));
}

void gpu_worker_kill(struct gpu_worker *worker, const struct zi_text *text)
{
	if (worker->process.state == PROCESS_STARTING || worker->process.state == PROCESS_UP)
		process_end(&worker->process, -EPIPE, text);
}

enum gpu_worker_state gpu_worker_state(const struct gpu_worker *worker)
{
	return (enum gpu_worker_state)worker->process.state;
}

pid_t gpu_worker_pid(const struct gpu_worker *worker)
{
	return worker->process.pid;
}

const struct gpu_facts *gpu_worker_facts(const struct gpu_worker *worker)
{
	return worker->has_facts ? &worker->facts : NULL;
}

uint64_t gpu_worker_life(const struct gpu_worker *worker)
{
	return worker->process.start_count;
}

uint64_t gpu_worker_held_bytes(const struct gpu_worker *worker)
{
	return worker->held_bytes;
}

uint64_t gpu_worker_killed_ns(const struct gpu_worker *worker)
{
	assert(worker->process.state == PROCESS_ENDING);
	return worker->process.killed_ns;
}

/* ---- requests ---- */

static void accept_request(struct gpu_worker *worker, struct gpu_request *request, uint16_t type)
{
	assert(request->done);
	assert(request->chunks);
	request->type = type;
	request->is_sent = false;
	request->passed = request->portion = 0;
	request->error = 0;
	request->text.chars[0] = '\0';
	/* Its own time begins when it is sent. */
	process_push(&worker->process, &request->base, process_next_cookie(&worker->process),
	             PROCESS_NO_LIMIT);
	gpu_worker_serve(worker);
}

int gpu_worker_create(struct gpu_worker *worker, struct gpu_request *request)
{
	int r = check_create(worker, request->count, request->chunk_bytes, &request->text);

	if (!r)
		r = gpu_worker_start(worker, &request->text);
	if (r)
		return err_trace(r);
	r = process_admits(&worker->process);
	if (r)
		return err_trace(zi_text_error(&request->text, r, "%s has %u requests to serve",
		                               worker->process.name, GPU_WORKER_REQUESTS_MAX));
	accept_request(worker, request, GPU_CREATE);
	return 0;
}

int gpu_worker_release(struct gpu_worker *worker, struct gpu_request *request)
{
	int r;

	assert(request->count);
	for (uint32_t i = 0; i < request->count; i++)
		assert(request->chunks[i].life == request->chunks[0].life);
	if (worker->process.state == PROCESS_DOWN ||
	    request->chunks[0].life != gpu_worker_life(worker))
		return GPU_WORKER_E_GONE;
	if (worker->process.state == PROCESS_ENDING)
		return GPU_WORKER_E_ENDING;
	r = process_admits(&worker->process);
	if (r)
		return err_trace(zi_text_error(&request->text, r, "%s has %u requests to serve",
		                               worker->process.name, GPU_WORKER_REQUESTS_MAX));
	accept_request(worker, request, GPU_RELEASE);
	return 0;
}
