/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this node; see gpus.h. Floor 7, the thread of the loop. */
#include "daemon/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/config.h"
#include "daemon/device/gpu.h"
#include "daemon/tier/arena.h"
#include "daemon/topo/topo.h"
#include "daemon/worker/gpu_worker.h"
#include "daemon/worker/spawn.h"

/* It is there while the kernel's module of NVIDIA is. */
#define GPUS_DEVICE "/dev/nvidiactl"

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
	struct dev_gpu *gpu;            /* NULL: it has no tier */
	struct dev_gpu_request *served; /* of `gpu`; NULL: none */
	struct gpu_request request;     /* the same, as the worker knows it */
	struct gpu_chunk chunks[DEV_GPU_CHUNKS_MAX];
};

struct gpus {
	struct gpus_options options;
	char program[512];
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

/* A GPU that worked, or that is demanded, is somebody's to look after. */
static void complain(const struct gpus_one *one, const struct zi_text *text)
{
	if (one->was_open || one->gpus->options.config->gpu_enable == CONFIG_GPU_YES)
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
	served->text = one->request.text;
	return err_trace(r);
}

static const struct dev_gpu_ops one_ops = { .create = one_create, .release = one_release };

/* ---- GPUs come and go ---- */

/* No more tiers come, unless by a later start of a GPU that could not be opened. */
static void look_ready(struct gpus *gpus)
{
	bool is_ready = true;

	for (uint32_t i = 0; i < gpus->count; i++)
		is_ready &= gpu_worker_state(gpus->ones[i].worker) != GPU_WORKER_STARTING;
	tier_arenas_set_ready(gpus->options.arenas, is_ready);
}

static void explain(struct gpus_one *one, const struct zi_text *text)
{
	if (one->gpu)
		dev_gpu_set_down(one->gpu, text);
	else
		tier_arenas_explain(one->gpus->options.arenas, text);
	complain(one, text);
}

static void one_ended(void *arg, int error, const struct zi_text *text)
{
	struct gpus_one *one = arg;

	(void)error; /* The text has it. */
	explain(one, text);
	look_ready(one->gpus);
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
}

static void start_one(struct gpus *gpus);

static void one_greeted(void *arg, const struct gpu_facts *facts)
{
	struct gpus_one *one = arg;
	struct gpus *gpus = one->gpus;
	bool is_first = one == &gpus->ones[0] && !one->was_open;

	log_info("%s: %s, %s, PCI %s, CUDA %d.%d", facts->uuid, facts->name,
	         zi_format_bytes(facts->bytes).chars, facts->pci, facts->driver_version / 1000,
	         facts->driver_version % 1000 / 10);
	one->was_open = true;
	if (one->gpu)
		dev_gpu_set_up(one->gpu);
	else
		make_tier(one, facts);
	while (is_first && gpus->count < facts->count) {
		uint32_t before = gpus->count;

		start_one(gpus);
		if (gpus->count == before)
			break; /* There is no memory: the log has it. */
	}
	look_ready(gpus);
}

/* One more worker, of the GPU with the next number. */
static void start_one(struct gpus *gpus)
{
	struct gpus_one *one = &gpus->ones[gpus->count];
	struct gpu_worker_options options = {
		.program = gpus->program,
		.driver = gpus->options.config->gpu_driver,
		.device = one->number,
		.reserve_bytes = gpus->options.config->gpu_reserve_bytes,
		.greeted = one_greeted,
		.ended = one_ended,
		.arg = one,
	};
	struct zi_text text;
	int r;

	assert(gpus->count < ZI_GPU_DEVICES_MAX);
	one->gpus = gpus;
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
	if (!gpus)
		return NULL;
	for (uint32_t i = 0; i < gpus->count; i++)
		if (gpus->ones[i].gpu)
			dev_gpu_close(gpus->ones[i].gpu);
	for (uint32_t i = 0; i < gpus->count; i++)
		gpus->ones[i].worker = gpu_worker_free(gpus->ones[i].worker);
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
