/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of zinf's tensors: what is put is taken out of its place at once, which holds NaNs from
 * then on, and comes back elsewhere. It counts what lies in memory, and fails when told to.
 */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/backend.h"

enum { TENSORS_MAX = 16, TENSOR_TICKETS_MAX = 256 };

struct tensor {
	size_t bytes; /* 0: there is none */
	void *place;  /* where it may be written (opened) or read (mapped); NULL: nowhere */
	void *stored; /* NULL: it was not put */
	bool is_fetched;
	uint32_t pending_count; /* tickets that were not waited for */
};

static struct tensors {
	struct tensor tensors[TENSORS_MAX];
	uint64_t owners[TENSOR_TICKETS_MAX]; /* of tickets, from 1 */
	uint32_t ticket_count;
	uint64_t budget_bytes;
	uint32_t fetched_max;    /* asked for and not yet mapped at once, at most */
	uint32_t resident_max;   /* in memory at once, at most */
	uint32_t cold_map_count; /* maps of what was not asked for before */
	uint32_t call_count;     /* of all of these */
	uint32_t fail_at;        /* the call that fails with -EIO; 0: none */
} tensors;

static inline int tensors_call(void)
{
	return ++tensors.call_count == tensors.fail_at ? -EIO : 0;
}

static inline void tensors_count(void)
{
	uint32_t count = 0, fetched_count = 0;

	for (unsigned i = 0; i < TENSORS_MAX; i++) {
		const struct tensor *tensor = &tensors.tensors[i];

		fetched_count += tensor->is_fetched && !tensor->place;
		count += tensor->bytes &&
		         (tensor->place || tensor->is_fetched || tensor->pending_count);
	}
	if (fetched_count > tensors.fetched_max)
		tensors.fetched_max = fetched_count;
	if (count > tensors.resident_max)
		tensors.resident_max = count;
}

static inline struct tensor *tensors_at(uint64_t id)
{
	cr_assert_lt(id, TENSORS_MAX);
	cr_assert(tensors.tensors[id].bytes, "there is no tensor %d", (int)id);
	return &tensors.tensors[id];
}

static inline void tensors_lose(struct tensor *tensor)
{
	memset(tensor->place, 0xff, tensor->bytes); /* who looks later sees NaNs */
	free(tensor->place);
	tensor->place = NULL;
}

static inline zinf_ticket tensors_ticket(uint64_t id)
{
	cr_assert_lt(tensors.ticket_count, TENSOR_TICKETS_MAX - 1);
	tensors.tensors[id].pending_count++;
	tensors.owners[++tensors.ticket_count] = id;
	tensors_count();
	return tensors.ticket_count;
}

static inline int double_open(struct gpt_backend *backend, uint64_t budget_bytes)
{
	(void)backend;
	tensors.budget_bytes = budget_bytes;
	return tensors_call();
}

static inline int double_alloc(struct gpt_backend *backend, uint64_t id, size_t bytes,
                               void **ret_place)
{
	int r = tensors_call();

	(void)backend;
	cr_assert_lt(id, TENSORS_MAX);
	cr_assert_eq(tensors.tensors[id].bytes, 0, "tensor %d is there", (int)id);
	if (r)
		return r;
	tensors.tensors[id] = (struct tensor){ .bytes = bytes,
		                               .place = aligned_alloc(64, (bytes + 63) / 64 * 64) };
	memset(tensors.tensors[id].place, 0xff, bytes);
	tensors_count();
	*ret_place = tensors.tensors[id].place;
	return 0;
}

static inline int double_put(struct gpt_backend *backend, uint64_t id, size_t bytes,
                             zinf_ticket *ret_ticket)
{
	struct tensor *tensor = tensors_at(id);
	int r = tensors_call();

	(void)backend;
	cr_assert_eq(tensor->bytes, bytes);
	cr_assert(tensor->place);
	if (r)
		return r;
	tensor->stored = malloc(bytes);
	memcpy(tensor->stored, tensor->place, bytes);
	tensors_lose(tensor);
	*ret_ticket = tensors_ticket(id);
	return 0;
}

static inline int double_prefetch(struct gpt_backend *backend, uint64_t id, zinf_ticket *ret_ticket)
{
	struct tensor *tensor = tensors_at(id);
	int r = tensors_call();

	(void)backend;
	cr_assert(tensor->stored);
	if (r)
		return r;
	tensor->is_fetched = true;
	*ret_ticket = tensors_ticket(id);
	return 0;
}

static inline int double_wait(struct gpt_backend *backend, zinf_ticket ticket)
{
	struct tensor *tensor;

	(void)backend;
	cr_assert_gt(ticket, 0);
	cr_assert_leq(ticket, tensors.ticket_count);
	tensor = tensors_at(tensors.owners[ticket]);
	cr_assert_gt(tensor->pending_count, 0, "a ticket is waited for once");
	tensor->pending_count--;
	return tensors_call();
}

static inline int double_map(struct gpt_backend *backend, uint64_t id, void **ret_place)
{
	struct tensor *tensor = tensors_at(id);
	int r = tensors_call();

	(void)backend;
	cr_assert(tensor->stored);
	cr_assert_null(tensor->place);
	if (r)
		return r;
	tensors.cold_map_count += !tensor->is_fetched;
	tensor->place = aligned_alloc(64, (tensor->bytes + 63) / 64 * 64);
	memcpy(tensor->place, tensor->stored, tensor->bytes);
	tensors_count();
	*ret_place = tensor->place;
	return 0;
}

static inline void tensors_forget(struct tensor *tensor)
{
	if (tensor->place)
		tensors_lose(tensor);
	free(tensor->stored);
	*tensor = (struct tensor){ 0 };
}

static inline int double_drop(struct gpt_backend *backend, uint64_t id)
{
	struct tensor *tensor = tensors_at(id);
	int r = tensors_call();

	(void)backend;
	cr_assert(tensor->place);
	cr_assert_eq(tensor->pending_count, 0, "-EBUSY");
	if (!r)
		tensors_forget(tensor);
	return r;
}

static inline int double_free(struct gpt_backend *backend, uint64_t id)
{
	struct tensor *tensor = tensors_at(id);
	int r = tensors_call();

	(void)backend;
	cr_assert_null(tensor->stored);
	if (!r)
		tensors_forget(tensor);
	return r;
}

static inline uint32_t tensors_left(void)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < TENSORS_MAX; i++)
		count += tensors.tensors[i].bytes != 0;
	return count;
}

static inline void tensors_reset(void)
{
	for (unsigned i = 0; i < TENSORS_MAX; i++)
		if (tensors.tensors[i].bytes)
			tensors_forget(&tensors.tensors[i]);
	tensors = (struct tensors){ 0 };
}

/* @ops: a backend's, with these instead of its own. */
static inline void tensors_into(struct gpt_backend_ops *ops)
{
	ops->tensor_open = double_open;
	ops->tensor_alloc = double_alloc;
	ops->tensor_put = double_put;
	ops->tensor_prefetch = double_prefetch;
	ops->tensor_wait = double_wait;
	ops->tensor_map = double_map;
	ops->tensor_drop = double_drop;
	ops->tensor_free = double_free;
}
