/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture of tests about tensors: one rank of a small job, and the calls that each test makes. */
#pragma once

#include "tests/unit/zero/model.h"

static struct node node;
static struct actor actors[2];

#define RANK (&actors[0])

static void attach(uint64_t timeout_ns)
{
	model_attach(
		&node, actors, 1,
		&(struct attach_options){ .config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_CPU),
	                                  .timeout_ns = timeout_ns });
	cr_assert_eq(model_materialize(actors, 1), 0, "%s", RANK->text.chars);
}

static void start_with(const char *backend, uint64_t timeout_ns)
{
	if (!node.directory[0])
		node_init(&node);
	node.backend = backend;
	node_start(&node);
	attach(timeout_ns);
}

static int tensors_open(uint64_t budget_bytes)
{
	return actor_call(RANK, zero_tensor_open, &(struct zero_op){ .bytes = budget_bytes });
}

static void start(uint64_t budget_bytes)
{
	start_with("threads", 0);
	cr_assert_eq(tensors_open(budget_bytes), 0, "%s", RANK->text.chars);
}

static void end(void)
{
	if (RANK->rank)
		actor_leave(RANK, true);
	node_deinit(&node);
}

static int call(call_fn function, uint64_t id, uint64_t bytes)
{
	return actor_call(RANK, function, &(struct zero_op){ .id = id, .bytes = bytes });
}

static char *place_of(uint32_t slot)
{
	return (char *)zero_tensor_segment(RANK->rank)->region.base +
	       RANK->calls[slot].op.offset_bytes;
}

/* Every tensor's bytes tell whose they are. */
static void fill_tensor(char *place, uint64_t id, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		place[i] = (char)test_noise(id << 32 | i);
}

static bool is_tensor(const char *place, uint64_t id, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (place[i] != (char)test_noise(id << 32 | i))
			return false;
	return true;
}

static int alloc_filled(uint64_t id, uint64_t bytes)
{
	int r = call(zero_tensor_alloc, id, bytes);

	if (!r)
		fill_tensor(place_of(0), id, bytes);
	return r;
}

static void put_tensor(uint64_t id, uint64_t bytes)
{
	cr_assert_eq(alloc_filled(id, bytes), 0, "%s", RANK->text.chars);
	cr_assert_eq(call(zero_tensor_put, id, bytes), 0, "%s", RANK->text.chars);
}

static void begin_put(uint32_t slot, uint64_t id, uint64_t bytes, uint64_t ticket)
{
	cr_assert_eq(alloc_filled(id, bytes), 0, "%s", RANK->text.chars);
	actor_start(RANK, slot, zero_tensor_put,
	            &(struct zero_op){ .id = id, .bytes = bytes, .ticket = ticket });
}

static void expect_tensor(uint64_t id, uint64_t bytes)
{
	cr_assert_eq(call(zero_tensor_get, id, 0), 0, "%s", RANK->text.chars);
	cr_assert_eq(RANK->calls[0].op.bytes, bytes);
	cr_assert(is_tensor(place_of(0), id, bytes), "tensor %llu", (unsigned long long)id);
	cr_assert_eq(call(zero_tensor_release, id, 0), 0);
}

static bool is_resident(uint64_t id)
{
	const struct zero_tensors *tensors = RANK->rank->tensors;

	for (uint32_t i = 0; i < tensors->run_count; i++)
		if (tensors->entries[tensors->runs[i].unit].id == id)
			return true;
	return false;
}

#define expect_words(words) \
	cr_expect_not_null(strstr(RANK->text.chars, words), "'%s' in '%s'", words, RANK->text.chars)
