/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this node; see gpus.h. Floor 7, the thread of the loop. */
#include "daemon/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "daemon/config.h"
#include "daemon/device/gpu.h"
#include "daemon/tier/arena.h"
#include "daemon/topo/topo.h"
#include "daemon/worker/gpu_worker.h"
#include "daemon/worker/spawn.h"

/* It is there while the kernel's module of NVIDIA is. */
#define GPUS_DEVICE "/dev/nvidiactl"

/* A GPU that was never opened: a driver may be loaded later, or have recovered. */
#define GPUS_RETRY_NS     (30 * ZI_NS_PER_S)
#define GPUS_RETRY_FACTOR 32u
/* The end of a zinf-gpu takes a moment, in which the driver releases its chunks. */
#define GPUS_END_S 5u

static_assert(ZI_GPU_UUID_BYTES <= DEV_GPU_UUID_BYTES, "gpus_tier()");
static_assert(ZI_GPU_NAME_BYTES <= DEV_GPU_NAME_BYTES, "gpus_tier()");
static_assert(ZI_GPU_PCI_BYTES <= DEV_GPU_PCI_BYTES, "gpus_tier()");
static_assert(ZI_GPU_DEVICES_MAX <= TIER_GPUS_MAX, "a tier for each");
static_assert(DEV_GPU_CHUNKS_MAX <= GPU_CHUNKS_MAX, "a worker has room for an arena");

struct gpus_one {
	struct gpus *gpus;
	struct gpu_worker *worker;
	char number[12]; /* of the GPU, for zinf-gpu */
	bool was_open;
	struct zi_timer retry; /* of a GPU that was never opened */
	uint64_t retry_ns;     /* the next pause */
	uint32_t failure_count;
	struct dev_gpu *gpu;            /* NULL: it has no tier */
	struct dev_gpu_request *served; /* of `gpu`; NULL: none */
	struct gpu_request request;     /* the same, as the worker knows it */
	struct gpu_chunk chunks[DEV_GPU_CHUNKS_MAX];
};

struct gpus {
	struct gpus_options options;
	char program[512];
	bool is_ending, is_counted; /* the number of GPUs is known */
	uint32_t count;
	struct gpus_one ones[ZI_GPU_DEVICES_MAX]; /* (count,) */
};

static bool are_wanted(const struct config *config, struct zi_text *text)
{
	bool has_driver = config->gpu_driver[0];
	const char *sign = has_driver ? config->gpu_driver : GPUS_DEVICE;

	if (config->gpu_enable == CONFIG_GPU_NO)
		zi_text_set(text, "gpu.enable is no");
	else
		zi_text_set(text, "there is no %s (gpu.%s)", sign,
		            has_driver ? "driver" : "enable is auto");
	if (config->gpu_enable != CONFIG_GPU_AUTO)
		return config->gpu_enable == CONFIG_GPU_YES;
	return !access(sign, F_OK);
}

/* A GPU that worked, or that is demanded, is somebody's to look after. What fails again and again
 * is told once in such words. */
static void complain(struct gpus_one *one, const struct zi_text *text)
{
	if (!one->was_open && one->failure_count++)
		log_info("%s. It is tried again", text->chars);
	else if (one->was_open || one->gpus->options.config->gpu_enable == CONFIG_GPU_YES)
		log_error("%s", text->chars);
	else
		log_warning("%s. zinfd works without it (gpu.enable)", text->chars);
}

/* ---- requests of a tier's GPU ---- */

static void one_done(struct gpu_request *request)
{
	struct gpus_one *one = container_of(request, struct gpus_one, request);
	struct dev_gpu_request *served = one->served;
	struct zi_text text = request->text;

	one->served = NULL;
	for (uint32_t i = 0; !request->error && !served->is_release && i < request->count; i++)
		served->chunks[i] = (struct dev_gpu_chunk){ .id = one->chunks[i].id,
			                                    .life = one->chunks[i].life,
			                                    .fd = one->chunks[i].fd };
	/* The end of a worker is told by itself. */
	if (request->error && served->is_release && gpu_worker_state(one->worker) == GPU_WORKER_UP)
		log_error("Releasing %u chunks: %s", request->count, text.chars);
	dev_gpu_answer(one->gpu, request->error, &text);
}

static void one_take(struct gpus_one *one, struct dev_gpu_request *served)
{
	assert(!one->served);
	assert(served->count <= ZI_COUNT_OF(one->chunks));
	one->request = (struct gpu_request){ .done = one_done,
		                             .count = served->count,
		                             .chunk_bytes = served->chunk_bytes,
		                             .chunks = one->chunks };
	one->served = served;
}

static int one_create(void *arg, struct dev_gpu_request *served)
{
	struct gpus_one *one = arg;
	int r;

	one_take(one, served);
	r = gpu_worker_create(one->worker, &one->request);
	if (!r)
		return 0;
	one->served = NULL;
	served->text = one->request.text;
	return err_trace(r);
}

static int one_release(void *arg, struct dev_gpu_request *served)
{
	struct gpus_one *one = arg;
	int r;

	one_take(one, served);
	for (uint32_t i = 0; i < served->count; i++)
		one->chunks[i] = (struct gpu_chunk){ .id = served->chunks[i].id,
			                             .life = served->chunks[i].life,
			                             .fd = -1 };
	r = gpu_worker_release(one->worker, &one->request);
	if (!r)
		return 0;
	one->served = NULL;
	if (r == GPU_WORKER_E_GONE)
		return DEV_GPU_E_GONE;
	if (r == GPU_WORKER_E_ENDING)
		return DEV_GPU_E_ENDING;
	served->text = one->request.text;
	return err_trace(r);
}

static const struct dev_gpu_ops one_ops = { .create = one_create, .release = one_release };

/* ---- GPUs come and go ---- */

static uint32_t number_of(const struct gpus_one *one)
{
	return (uint32_t)(one - one->gpus->ones);
}

static struct tier_gpu_trouble *trouble_of(const struct gpus_one *one)
{
	return tier_arenas_trouble(one->gpus->options.arenas, number_of(one));
}

/* No more tiers come, unless by a later start of a GPU that could not be opened. Nobody waits for
 * that one. */
static void look_ready(struct gpus *gpus)
{
	bool is_ready = true;

	for (uint32_t i = 0; i < gpus->count; i++)
		is_ready &= gpu_worker_state(gpus->ones[i].worker) != GPU_WORKER_STARTING ||
		            gpus->ones[i].failure_count;
	tier_arenas_set_ready(gpus->options.arenas, is_ready);
}

static void retry_due(struct zi_timer *timer);

/* The GPU cannot be used. */
static void explain(struct gpus_one *one, const struct zi_text *text)
{
	if (one->gpu)
		dev_gpu_set_down(one->gpu, text);
	else
		trouble_of(one)->text = *text;
	complain(one, text);
	if (one->was_open || one->retry.loop)
		return;
	zi_loop_arm(one->gpus->options.loop, &one->retry, zi_clock_deadline_ns(one->retry_ns),
	            retry_due);
	one->retry_ns = ZI_MIN(2 * one->retry_ns, GPUS_RETRY_FACTOR * one->gpus->options.retry_ns);
}

static void retry_due(struct zi_timer *timer)
{
	struct gpus_one *one = container_of(timer, struct gpus_one, retry);
	struct zi_text text;

	/* The reason of its end stays the one that is told. */
	if (gpu_worker_state(one->worker) == GPU_WORKER_ENDING) {
		zi_loop_arm(one->gpus->options.loop, &one->retry,
		            zi_clock_deadline_ns(one->retry_ns), retry_due);
		return;
	}
	if (gpu_worker_start(one->worker, &text))
		explain(one, &text);
}

static void learn_count(struct gpus *gpus, uint32_t count);

static void one_ended(void *arg, int error, const struct zi_text *text)
{
	struct gpus_one *one = arg;
	struct gpus *gpus = one->gpus;

	(void)error; /* The text has it. */
	if (gpus->is_ending)
		return;
	explain(one, text);
	/* The driver told nothing, or hung: the other GPUs may be open to their own zinf-gpu. */
	if (!gpus->is_counted && gpus->options.topo)
		learn_count(gpus, gpus->options.topo->gpu_count);
	look_ready(gpus);
}

static void one_ending(void *arg, bool is_ending)
{
	struct gpus_one *one = arg;
	pid_t pid = is_ending ? gpu_worker_pid(one->worker) : 0;
	uint64_t killed_ns = is_ending ? gpu_worker_killed_ns(one->worker) : 0;

	if (!one->gpu) {
		trouble_of(one)->ending_pid = pid;
		trouble_of(one)->killed_ns = killed_ns;
	} else if (is_ending) {
		dev_gpu_set_ending(one->gpu, pid, killed_ns);
	} else {
		dev_gpu_set_gone(one->gpu);
	}
}

static void one_stuck(void *arg, const struct zi_text *text)
{
	(void)arg; /* The text names the GPU. */
	log_error("%s. What it holds stays charged, and its GPU gives no new memory until then",
	          text->chars);
}

/* A tier for a GPU that was opened for the first time. */
static void make_tier(struct gpus_one *one, const struct gpu_facts *facts)
{
	const struct gpus_options *options = &one->gpus->options;
	struct dev_gpu_facts copy = {
		.bytes = facts->bytes,
		.granularity_bytes = facts->granularity_bytes,
		.driver_version = facts->driver_version,
		.capability = facts->capability,
		.node = options->topo
		                ? topo_node_of_gpu(options->topo, facts->host_numa, facts->pci)
		                : -1,
	};
	struct zi_text text;
	int r = 0;

	/* All have room: see the asserts above. */
	(void)snprintf(copy.uuid, sizeof(copy.uuid), "%s", facts->uuid);
	(void)snprintf(copy.name, sizeof(copy.name), "%s", facts->name);
	(void)snprintf(copy.pci, sizeof(copy.pci), "%s", facts->pci);
	if (!facts->has_vmm || !facts->has_posix_fds)
		zi_text_set(&text,
		            "%s (%.48s) cannot pass memory to other processes: its driver "
		            "has no %s",
		            facts->uuid, facts->name,
		            facts->has_vmm ? "export as descriptors" : "virtual memory management");
	else if (tier_arenas_find(options->arenas, facts->uuid))
		zi_text_set(&text, "%s was there twice", facts->uuid);
	else
		r = tier_arenas_add(options->arenas, &copy, options->config->gpu_reserve_bytes,
		                    &one_ops, one, &one->gpu);
	if (r)
		zi_text_set(&text, "a tier of %s: %s", facts->uuid, zi_err_name(r));
	if (!one->gpu)
		explain(one, &text);
	else
		*trouble_of(one) = (struct tier_gpu_trouble){ .ending_pid = 0 };
}

static void start_one(struct gpus *gpus);

/* Each has a worker. */
static void learn_count(struct gpus *gpus, uint32_t count)
{
	gpus->is_counted = true;
	while (gpus->count < ZI_MIN(count, ZI_GPU_DEVICES_MAX)) {
		uint32_t before = gpus->count;

		start_one(gpus);
		if (gpus->count == before)
			break; /* There is no memory: the log has it. */
	}
	look_ready(gpus);
}

static void one_seen(void *arg, uint32_t count)
{
	struct gpus_one *one = arg;

	learn_count(one->gpus, count);
}

static void one_greeted(void *arg, const struct gpu_facts *facts)
{
	struct gpus_one *one = arg;

	log_info("%s: %s, %s, PCI %s, CUDA %d.%d", facts->uuid, facts->name,
	         zi_format_bytes(facts->bytes).chars, facts->pci, facts->driver_version / 1000,
	         facts->driver_version % 1000 / 10);
	one->was_open = true;
	zi_loop_disarm(&one->retry);
	if (one->gpu)
		dev_gpu_set_up(one->gpu);
	else
		make_tier(one, facts);
	look_ready(one->gpus);
}

/* One more worker, of the GPU with the next number. */
static void start_one(struct gpus *gpus)
{
	struct gpus_one *one = &gpus->ones[gpus->count];
	uint64_t deadline_ns = gpus->options.config->gpu_deadline_s * ZI_NS_PER_S;
	uint64_t end_ns = ZI_MIN(GPUS_END_S * ZI_NS_PER_S, deadline_ns);
	uint64_t stop_ns = gpus->options.config->stop_timeout_s * ZI_NS_PER_S;
	struct gpu_worker_options options = {
		.program = gpus->program,
		.driver = gpus->options.config->gpu_driver,
		.device = one->number,
		.reserve_bytes = gpus->options.config->gpu_reserve_bytes,
		.request_ns = gpus->options.request_ns ? gpus->options.request_ns : deadline_ns,
		.pong_ns = deadline_ns / 2,
		.greeting_ns = 2 * deadline_ns,
		.linger_ns = gpus->options.linger_ns ? gpus->options.linger_ns : end_ns,
		.stop_ns = gpus->options.stop_ns ? gpus->options.stop_ns : ZI_MIN(end_ns, stop_ns),
		.greeted = one_greeted,
		.seen = one_seen,
		.ended = one_ended,
		.ending = one_ending,
		.stuck = one_stuck,
		.arg = one,
	};
	struct zi_text text;
	int r;

	assert(gpus->count < ZI_GPU_DEVICES_MAX);
	one->gpus = gpus;
	one->retry_ns = gpus->options.retry_ns;
	(void)snprintf(one->number, sizeof(one->number), "%u", gpus->count); /* Fits. */
	r = gpu_worker_new(gpus->options.loop, &options, &one->worker);
	if (r) {
		log_error_errno(r, "A worker for GPU %s", one->number);
		return;
	}
	gpus->count++;
	if (gpu_worker_start(one->worker, &text))
		explain(one, &text);
}

/* Documented in the header, as are the others. */
int gpus_new(const struct gpus_options *options, struct gpus **ret_gpus)
{
	struct gpus *gpus = calloc(1, sizeof(*gpus));
	struct zi_text text;
	int r = 0;

	if (!gpus)
		return err_origin(-ENOMEM);
	gpus->options = *options;
	if (!options->retry_ns)
		gpus->options.retry_ns = GPUS_RETRY_NS;
	*ret_gpus = gpus;
	if (!are_wanted(options->config, &text)) {
		tier_arenas_explain(options->arenas, &text);
		return 0;
	}
	/* A path that is cut is not found. */
	if (options->program)
		(void)snprintf(gpus->program, sizeof(gpus->program), "%s", options->program);
	else
		r = spawn_beside("zinf-gpu", gpus->program, sizeof(gpus->program), &text);
	if (r) {
		log_error("%s", text.chars);
		tier_arenas_explain(options->arenas, &text);
		return 0;
	}
	start_one(gpus);
	look_ready(gpus);
	return 0;
}

struct gpus *gpus_free(struct gpus *gpus)
{
	static const struct zi_text why = { "the daemon ends zinf-gpu" };
	struct zi_text text;

	if (!gpus)
		return NULL;
	gpus->is_ending = true;
	for (uint32_t i = 0; i < gpus->count; i++)
		if (gpus->ones[i].gpu)
			dev_gpu_close(gpus->ones[i].gpu);
	/* All at once: the time for their ends is the same. */
	for (uint32_t i = 0; i < gpus->count; i++)
		gpu_worker_kill(gpus->ones[i].worker, &why);
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct gpus_one *one = &gpus->ones[i];

		zi_loop_disarm(&one->retry);
		if (gpu_worker_stop(one->worker, &text))
			log_error("%s. zinfd stops without it", text.chars);
		one->worker = gpu_worker_free(one->worker);
	}
	free(gpus);
	return NULL;
}

uint32_t gpus_count(const struct gpus *gpus)
{
	return gpus->count;
}

struct gpu_worker *gpus_worker(const struct gpus *gpus, uint32_t index)
{
	assert(index < gpus->count);
	return gpus->ones[index].worker;
}
