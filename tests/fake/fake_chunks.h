/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake owner of a GPU's chunks (dev_gpu_ops) for tests: it keeps a request until the test answers
 * it. Its chunks are descriptors of an empty file.
 */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>

#include "daemon/device/gpu.h"

struct fake_chunks {
	struct dev_gpu *gpu;
	struct dev_gpu_request *taken; /* NULL: none */
	int create_result;             /* at once */
	uint64_t life;                 /* another one: the former chunks are gone */
	uint64_t next_id;
	uint32_t held_count; /* chunks of this life */
};

static inline int fake_chunks_create(void *arg, struct dev_gpu_request *request)
{
	struct fake_chunks *owner = arg;

	cr_assert_null(owner->taken);
	if (owner->create_result)
		return zi_text_error(&request->text, owner->create_result,
		                     "the fake owner refuses");
	owner->taken = request;
	return 0;
}

static inline int fake_chunks_release(void *arg, struct dev_gpu_request *request)
{
	struct fake_chunks *owner = arg;

	cr_assert_null(owner->taken);
	for (uint32_t i = 0; i < request->count; i++)
		cr_assert_eq(request->chunks[i].fd, -1, "closed before");
	if (request->chunks[0].life != owner->life)
		return DEV_GPU_E_GONE;
	owner->taken = request;
	return 0;
}

static const struct dev_gpu_ops fake_chunks_ops = { fake_chunks_create, fake_chunks_release };

/* Ends the request that was taken. */
static inline void fake_chunks_answer(struct fake_chunks *owner, int error)
{
	static const struct zi_text text = { "the fake owner has no memory" };
	struct dev_gpu_request *request = owner->taken;

	cr_assert(request);
	owner->taken = NULL;
	for (uint32_t i = 0; !error && !request->is_release && i < request->count; i++) {
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		cr_assert_geq(fd, 0);
		request->chunks[i] = (struct dev_gpu_chunk){ ++owner->next_id, owner->life, fd };
		owner->held_count++;
	}
	if (!error && request->is_release)
		owner->held_count -= request->count;
	dev_gpu_answer(owner->gpu, error, error ? &text : NULL);
}

/* Its process dies, with all chunks; another one comes at the next request. */
static inline void fake_chunks_die(struct fake_chunks *owner)
{
	static const struct zi_text text = { "the fake owner died" };
	struct dev_gpu_request *request = owner->taken;

	owner->life++;
	owner->held_count = 0;
	owner->taken = NULL;
	if (request)
		dev_gpu_answer(owner->gpu, -EIO, &text);
	dev_gpu_set_down(owner->gpu, &text);
}
