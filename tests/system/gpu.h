/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of a real zinfd with fake GPUs share: the daemon, a client that speaks the messages by
 * hand, and what zctl shows of a GPU.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/wire/gpu.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/harness/patience.h"
#include "tests/harness/raw.h"
#include "tests/system/system.h"

#define MIB   (1ull << 20)
#define CHUNK (2 * MIB)

static struct harness harness;
static struct raw raw;

/* @section: of [gpu], beside the driver. */
static inline void start(const char *fake, const char *section)
{
	static char path[FAKE_GPU_PATH_BYTES], driver[PATH_MAX], environment[256], extra[5120];
	static const char *variables[] = { environment, NULL };

	cr_assert(realpath(fake_gpu_path(path, sizeof(path), "libcuda.so.1"), driver));
	(void)snprintf(environment, sizeof(environment), FAKE_GPU_ENV "=%s", fake);
	(void)snprintf(extra, sizeof(extra), "[gpu]\ndriver = %s\n%s", driver, section);
	system_start(&harness, &(struct harness_options){ .nvme_size = "64M",
	                                                  .extra = extra,
	                                                  .environment = variables });
}

static inline int send_message(void *message, uint16_t type, size_t bytes)
{
	*(struct zi_message_header *)message =
		(struct zi_message_header){ ZI_CONTROL_MAGIC, type, 0, (uint32_t)bytes,
		                            ++raw.sequence };
	return raw_send(&raw, message, bytes, NULL, 0);
}

/* 0; the -errno of the answer. */
static inline int open_gpu(const char *uuid, uint64_t chunk_bytes, uint32_t count)
{
	struct zi_gpu_open message = { .chunk_bytes = chunk_bytes, .param_chunk_count = count };
	int type;

	(void)snprintf(message.uuid, sizeof(message.uuid), "%s", uuid);
	if (send_message(&message, ZI_MESSAGE_GPU_OPEN, sizeof(message)))
		return -EPIPE;
	type = raw_receive(&raw);
	return type == ZI_MESSAGE_GPU_OPENED ? 0
	       : type == ZI_MESSAGE_ERROR    ? raw.reply.error.error
	                                     : -EPROTO;
}

/* @key of the tier of @uuid. */
static inline uint64_t tier_figure(const char *uuid, const char *key)
{
	json_t *tiers = harness_admin(&harness, "tiers"), *tier;
	uint64_t figure = UINT64_MAX;
	size_t index;

	cr_assert(tiers);
	json_array_foreach(tiers, index, tier)
	{
		if (!strcmp(json_string_value(json_object_get(tier, "name")) + strlen("gpu:"),
		            uuid))
			figure = (uint64_t)json_integer_value(json_object_get(tier, key));
	}
	json_decref(tiers);
	cr_assert_neq(figure, UINT64_MAX, "no tier of %s", uuid);
	return figure;
}

static inline void await_used(const char *uuid, uint64_t bytes)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));

	while (tier_figure(uuid, "used_bytes") != bytes)
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "%llu bytes are still charged",
		             (unsigned long long)tier_figure(uuid, "used_bytes"));
}

/* Until the daemon has opened so many. */
static inline void await_gpus(uint64_t count)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(patient_ns(20 * ZI_NS_PER_S));
	uint64_t found;

	do {
		json_t *status = harness_admin(&harness, "status");

		cr_assert(status);
		found = (uint64_t)json_integer_value(json_object_get(status, "gpus"));
		json_decref(status);
		cr_assert(found == count || zi_clock_now_ns() < deadline_ns, "zinfd has %llu GPUs",
		          (unsigned long long)found);
	} while (found != count);
}
