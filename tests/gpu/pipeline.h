/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank does with a GPU, in small: units are copied into a ring of chunks that is smaller
 * than the model, computed on, and the results copied back, on three streams that events order.
 * Each unit has a range of its own; ranges that are a ring apart are aliases. For tests of the
 * fake's orders: each of the four waits can be left out.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/driver.h"
#include "tests/gpu/fake_gpu.h"

#define PIPELINE_UNITS     9u
#define PIPELINE_RING      3u /* chunks of parameters */
#define PIPELINE_RESULTS   2u /* chunks of results */
#define PIPELINE_BYTES     (2ull << 20)
#define PIPELINE_WORDS     4096u /* of each unit are used */
#define PIPELINE_ROUNDS    3u
#define PIPELINE_CHUNKS    (PIPELINE_RING + PIPELINE_RESULTS)
#define PIPELINE_EVENT_ALL (4 * PIPELINE_UNITS)

/* What a wait is for. */
enum pipeline_wait {
	PIPELINE_USED,   /* a copy in, for the last use of what lies there */
	PIPELINE_HERE,   /* a kernel, for its unit */
	PIPELINE_FREE,   /* a kernel, for the copy out of the result that lies there */
	PIPELINE_RESULT, /* a copy out, for the kernel */
	PIPELINE_NO_WAIT,
};

struct pipeline {
	const struct zi_cuda *cuda;
	enum pipeline_wait left_out; /* PIPELINE_NO_WAIT: none */
	bool polls;                  /* queries, until all has ended; else it waits */
	int code;                    /* the first error; 0: none */

	struct zi_cuda_context *context;
	struct zi_cuda_module *module;
	struct zi_cuda_function *mix;
	struct zi_cuda_stream *in, *compute, *out;
	struct zi_cuda_event *events[4][PIPELINE_UNITS];
	uint64_t handles[PIPELINE_CHUNKS];
	uint64_t params, results;    /* addresses of all units, of the result chunks */
	uint32_t *sources, *targets; /* (PIPELINE_UNITS, PIPELINE_WORDS) */
};

/* Takes a code; the first error stays. */
static inline bool pipeline_did(struct pipeline *p, int code)
{
	if (code && !p->code)
		p->code = code;
	return !p->code;
}

static inline void pipeline_map(struct pipeline *p)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(0);
	const struct zi_cuda_access access = zi_gpu_access(0, ZI_CUDA_ACCESS_READ_WRITE);
	const uint64_t all_bytes = PIPELINE_UNITS * PIPELINE_BYTES;
	const uint64_t result_bytes = PIPELINE_RESULTS * PIPELINE_BYTES;
	const struct zi_cuda *cuda = p->cuda;

	pipeline_did(p, cuda->cuMemAddressReserve(&p->params, all_bytes, 0, 0, 0));
	pipeline_did(p, cuda->cuMemAddressReserve(&p->results, result_bytes, 0, 0, 0));
	for (uint32_t i = 0; i < PIPELINE_CHUNKS && !p->code; i++)
		pipeline_did(p, cuda->cuMemCreate(&p->handles[i], PIPELINE_BYTES, &chunk, 0));
	for (uint32_t i = 0; i < PIPELINE_UNITS && !p->code; i++)
		pipeline_did(p, cuda->cuMemMap(p->params + i * PIPELINE_BYTES, PIPELINE_BYTES, 0,
		                               p->handles[i % PIPELINE_RING], 0));
	for (uint32_t i = 0; i < PIPELINE_RESULTS && !p->code; i++)
		pipeline_did(p, cuda->cuMemMap(p->results + i * PIPELINE_BYTES, PIPELINE_BYTES, 0,
		                               p->handles[PIPELINE_RING + i], 0));
	if (!p->code)
		pipeline_did(p, cuda->cuMemSetAccess(p->params, all_bytes, &access, 1));
	if (!p->code)
		pipeline_did(p, cuda->cuMemSetAccess(p->results, result_bytes, &access, 1));
}

/* Context, memory, streams, events, the kernel, and what is copied. Return: the first error. */
static inline int pipeline_start(struct pipeline *p)
{
	const uint32_t words = PIPELINE_UNITS * PIPELINE_WORDS;
	const struct zi_cuda *cuda = p->cuda;

	if (!pipeline_did(p, cuda->cuDevicePrimaryCtxRetain(&p->context, 0)) ||
	    !pipeline_did(p, cuda->cuCtxSetCurrent(p->context)))
		return p->code;
	pipeline_map(p);
	pipeline_did(p, cuda->cuStreamCreateWithPriority(&p->in, ZI_CUDA_STREAM_NON_BLOCKING, 0));
	pipeline_did(p, cuda->cuStreamCreateWithPriority(&p->compute, 1, 0));
	pipeline_did(p, cuda->cuStreamCreateWithPriority(&p->out, 1, 0));
	for (uint32_t i = 0; i < PIPELINE_EVENT_ALL && !p->code; i++)
		pipeline_did(p,
		             cuda->cuEventCreate(&p->events[i / PIPELINE_UNITS][i % PIPELINE_UNITS],
		                                 ZI_CUDA_EVENT_NO_TIMING));
	pipeline_did(p, cuda->cuModuleLoadData(&p->module, ".version 7.0\n"));
	if (!p->code)
		pipeline_did(p, cuda->cuModuleGetFunction(&p->mix, p->module, "fake_mix"));
	p->sources = calloc(words, sizeof(*p->sources));
	p->targets = calloc(words, sizeof(*p->targets));
	if (!p->sources || !p->targets)
		pipeline_did(p, ZI_CUDA_OUT_OF_MEMORY);
	for (uint32_t i = 0; i < words && !p->code; i++)
		p->sources[i] = i * 2654435761u + 1;
	return p->code;
}

/* @stream waits until @kind was recorded for @unit. */
static inline void pipeline_await(struct pipeline *p, struct zi_cuda_stream *stream,
                                  enum pipeline_wait kind, uint32_t unit)
{
	if (kind != p->left_out)
		pipeline_did(p, p->cuda->cuStreamWaitEvent(stream, p->events[kind][unit], 0));
}

static inline void pipeline_note(struct pipeline *p, struct zi_cuda_stream *stream,
                                 enum pipeline_wait kind, uint32_t unit)
{
	pipeline_did(p, p->cuda->cuEventRecord(p->events[kind][unit], stream));
}

static inline void pipeline_copy_in(struct pipeline *p, uint32_t unit)
{
	if (unit >= PIPELINE_RING)
		pipeline_await(p, p->in, PIPELINE_USED, unit - PIPELINE_RING);
	pipeline_did(p, p->cuda->cuMemcpyHtoDAsync(p->params + unit * PIPELINE_BYTES,
	                                           p->sources + unit * PIPELINE_WORDS,
	                                           4 * PIPELINE_WORDS, p->in));
	pipeline_note(p, p->in, PIPELINE_HERE, unit);
}

static inline void pipeline_compute(struct pipeline *p, uint32_t unit)
{
	uint64_t source = p->params + unit * PIPELINE_BYTES;
	uint64_t target = p->results + unit % PIPELINE_RESULTS * PIPELINE_BYTES;
	uint64_t count = PIPELINE_WORDS;
	uint32_t rounds = PIPELINE_ROUNDS;
	void *parameters[] = { &target, &source, &count, &rounds };

	pipeline_await(p, p->compute, PIPELINE_HERE, unit);
	if (unit >= PIPELINE_RESULTS)
		pipeline_await(p, p->compute, PIPELINE_FREE, unit - PIPELINE_RESULTS);
	pipeline_did(p, p->cuda->cuLaunchKernel(p->mix, 1, 1, 1, 32, 1, 1, 0, p->compute,
	                                        parameters, NULL));
	pipeline_note(p, p->compute, PIPELINE_USED, unit);
	pipeline_note(p, p->compute, PIPELINE_RESULT, unit);
	pipeline_await(p, p->out, PIPELINE_RESULT, unit);
	pipeline_did(p, p->cuda->cuMemcpyDtoHAsync(p->targets + unit * PIPELINE_WORDS, target,
	                                           4 * PIPELINE_WORDS, p->out));
	pipeline_note(p, p->out, PIPELINE_FREE, unit);
}

/* All units once. Return: how many words are wrong, or -1 after an error. */
static inline int64_t pipeline_run(struct pipeline *p)
{
	int64_t wrong_count = 0;
	uint32_t sent = 0;
	int code;

	for (uint32_t unit = 0; unit < PIPELINE_UNITS && !p->code; unit++) {
		for (; sent < PIPELINE_UNITS && sent < unit + PIPELINE_RING; sent++)
			pipeline_copy_in(p, sent);
		pipeline_compute(p, unit);
	}
	do
		code = p->polls ? p->cuda->cuStreamQuery(p->out)
		                : p->cuda->cuStreamSynchronize(p->out);
	while (code == ZI_CUDA_NOT_READY);
	if (!pipeline_did(p, code))
		return -1;
	for (uint32_t i = 0; i < PIPELINE_UNITS * PIPELINE_WORDS; i++) {
		uint32_t word = p->sources[i];

		for (uint32_t round = 0; round < PIPELINE_ROUNDS; round++)
			word = word * 1664525u + 1013904223u;
		wrong_count += word != p->targets[i];
	}
	return wrong_count;
}

/* What was started ends, also after an error. Return: the first error. */
static inline int pipeline_stop(struct pipeline *p)
{
	const uint64_t all_bytes = PIPELINE_UNITS * PIPELINE_BYTES;
	const uint64_t result_bytes = PIPELINE_RESULTS * PIPELINE_BYTES;
	const struct zi_cuda *cuda = p->cuda;

	pipeline_did(p, cuda->cuCtxSynchronize());
	for (uint32_t i = 0; i < PIPELINE_EVENT_ALL; i++)
		pipeline_did(
			p, cuda->cuEventDestroy(p->events[i / PIPELINE_UNITS][i % PIPELINE_UNITS]));
	pipeline_did(p, cuda->cuStreamDestroy(p->in));
	pipeline_did(p, cuda->cuStreamDestroy(p->compute));
	pipeline_did(p, cuda->cuStreamDestroy(p->out));
	pipeline_did(p, cuda->cuModuleUnload(p->module));
	pipeline_did(p, cuda->cuMemUnmap(p->params, all_bytes));
	pipeline_did(p, cuda->cuMemUnmap(p->results, result_bytes));
	for (uint32_t i = 0; i < PIPELINE_CHUNKS; i++)
		pipeline_did(p, cuda->cuMemRelease(p->handles[i]));
	pipeline_did(p, cuda->cuMemAddressFree(p->params, all_bytes));
	pipeline_did(p, cuda->cuMemAddressFree(p->results, result_bytes));
	pipeline_did(p, cuda->cuDevicePrimaryCtxRelease(0));
	free(p->sources);
	free(p->targets);
	return p->code;
}
