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
#include "daemon/worker/gpu_worker.h"
#include "daemon/worker/spawn.h"

/* It is there while the kernel's module of NVIDIA is. */
#define GPUS_DEVICE "/dev/nvidiactl"

struct gpus_one {
	struct gpus *gpus;
	struct gpu_worker *worker;
	char number[12]; /* of the GPU, for zinf-gpu */
	bool was_open;
};

struct gpus {
	struct zi_loop *loop;
	const struct config *config;
	char program[512];
	uint32_t count;
	struct gpus_one ones[ZI_GPU_DEVICES_MAX]; /* (count,) */
};

static bool are_wanted(const struct config *config)
{
	const char *sign = config->gpu_driver[0] ? config->gpu_driver : GPUS_DEVICE;

	if (config->gpu_enable != CONFIG_GPU_AUTO)
		return config->gpu_enable == CONFIG_GPU_YES;
	return !access(sign, F_OK);
}

/* A GPU that worked, or that is demanded, is somebody's to look after. */
static void complain(const struct gpus_one *one, const struct zi_text *text)
{
	if (one->was_open || one->gpus->config->gpu_enable == CONFIG_GPU_YES)
		log_error("%s", text->chars);
	else
		log_warning("%s. zinfd works without it (gpu.enable)", text->chars);
}

static void one_ended(void *arg, int error, const struct zi_text *text)
{
	(void)error; /* The text has it. */
	complain(arg, text);
}

static void start_one(struct gpus *gpus);

static void one_greeted(void *arg, const struct gpu_facts *facts)
{
	struct gpus_one *one = arg;
	struct gpus *gpus = one->gpus;

	log_info("%s: %s, %s, PCI %s, CUDA %d.%d", facts->uuid, facts->name,
	         zi_format_bytes(facts->bytes).chars, facts->pci, facts->driver_version / 1000,
	         facts->driver_version % 1000 / 10);
	if (one != &gpus->ones[0] || one->was_open) {
		one->was_open = true;
		return;
	}
	one->was_open = true;
	while (gpus->count < facts->count) {
		uint32_t before = gpus->count;

		start_one(gpus);
		if (gpus->count == before)
			break; /* There is no memory: the log has it. */
	}
}

/* One more worker, of the GPU with the next number. */
static void start_one(struct gpus *gpus)
{
	struct gpus_one *one = &gpus->ones[gpus->count];
	struct gpu_worker_options options = {
		.program = gpus->program,
		.driver = gpus->config->gpu_driver,
		.device = one->number,
		.reserve_bytes = gpus->config->gpu_reserve_bytes,
		.greeted = one_greeted,
		.ended = one_ended,
		.arg = one,
	};
	struct zi_text text;
	int r;

	assert(gpus->count < ZI_GPU_DEVICES_MAX);
	one->gpus = gpus;
	(void)snprintf(one->number, sizeof(one->number), "%u", gpus->count); /* Fits. */
	r = gpu_worker_new(gpus->loop, &options, &one->worker);
	if (r) {
		log_error_errno(r, "A worker for GPU %s", one->number);
		return;
	}
	gpus->count++;
	if (gpu_worker_start(one->worker, &text))
		complain(one, &text);
}

/* Documented in the header, as are the others. */
int gpus_new(struct zi_loop *loop, const struct config *config, const char *program,
             struct gpus **ret_gpus)
{
	struct gpus *gpus = calloc(1, sizeof(*gpus));
	struct zi_text text;
	int r = 0;

	if (!gpus)
		return err_origin(-ENOMEM);
	gpus->loop = loop;
	gpus->config = config;
	*ret_gpus = gpus;
	if (!are_wanted(config))
		return 0;
	/* A path that is cut is not found. */
	if (program)
		(void)snprintf(gpus->program, sizeof(gpus->program), "%s", program);
	else
		r = spawn_beside("zinf-gpu", gpus->program, sizeof(gpus->program), &text);
	if (r)
		log_error("%s", text.chars);
	else
		start_one(gpus);
	return 0;
}

struct gpus *gpus_free(struct gpus *gpus)
{
	if (!gpus)
		return NULL;
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
