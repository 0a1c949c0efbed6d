/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double between an engine and its backend: a store that does not answer until the test says
 * so. What is asked of it reaches the disk; that it is done is held back while the gate is shut.
 */
#pragma once

#include <stdlib.h>

#include "common/base/assert.h"
#include "nvme/engine.h"

struct gate {
	struct nvme_backend backend; /* first */
	struct nvme_backend *inner;
	const struct nvme_store *store; /* NULL: open */
	struct zi_list held;
	uint32_t held_count;
};

static inline struct gate *gate_of(const struct nvme_backend *backend)
{
	return container_of((struct nvme_backend *)backend, struct gate, backend);
}

static inline void gate_free(struct nvme_backend *backend)
{
	struct gate *gate = gate_of(backend);

	assert(zi_list_is_empty(&gate->held));
	gate->inner = nvme_backend_free(gate->inner);
	free(gate);
}

static inline const char *gate_name(const struct nvme_backend *backend)
{
	return gate_of(backend)->inner->ops->name(gate_of(backend)->inner);
}

static inline int gate_fd(const struct nvme_backend *backend)
{
	return gate_of(backend)->inner->ops->fd(gate_of(backend)->inner);
}

static inline void gate_prepare(struct nvme_backend *backend, struct nvme_block *block)
{
	gate_of(backend)->inner->ops->prepare(gate_of(backend)->inner, block);
}

static inline void gate_submit(struct nvme_backend *backend)
{
	gate_of(backend)->inner->ops->submit(gate_of(backend)->inner);
}

static inline uint32_t gate_reap(struct nvme_backend *backend, struct nvme_block **ret_blocks,
                                 uint32_t capacity_count)
{
	struct gate *gate = gate_of(backend);
	uint32_t seen_count = gate->inner->ops->reap(gate->inner, ret_blocks, capacity_count);
	uint32_t count = 0;
	struct zi_list *link;

	for (uint32_t i = 0; i < seen_count; i++) {
		if (ret_blocks[i]->io->store != gate->store) {
			ret_blocks[count++] = ret_blocks[i];
			continue;
		}
		zi_list_push_back(&gate->held, &ret_blocks[i]->link);
		gate->held_count++;
	}
	while (!gate->store && (link = zi_list_pop_front(&gate->held))) {
		ret_blocks[count++] = container_of(link, struct nvme_block, link);
		gate->held_count--;
	}
	return count;
}

static inline void gate_wait(struct nvme_backend *backend)
{
	gate_of(backend)->inner->ops->wait(gate_of(backend)->inner);
}

static inline void gate_cancel(struct nvme_backend *backend, struct nvme_block *block)
{
	struct gate *gate = gate_of(backend);

	if (block->io->store != gate->store) /* A store that does not answer gives nothing back. */
		gate->inner->ops->cancel(gate->inner, block);
}

static inline void gate_wake(struct nvme_backend *backend)
{
	gate_of(backend)->inner->ops->wake(gate_of(backend)->inner);
}

/* Registers nothing: plain descriptors and addresses work anyway. */
static const struct nvme_backend_ops gate_ops = {
	.free = gate_free,
	.name = gate_name,
	.fd = gate_fd,
	.prepare = gate_prepare,
	.submit = gate_submit,
	.reap = gate_reap,
	.wait = gate_wait,
	.cancel = gate_cancel,
	.wake = gate_wake,
};

/* Before stores and buffers are registered with @engine, whose it is then. Open. */
static inline struct gate *gate_new(struct nvme_engine *engine)
{
	struct gate *gate = calloc(1, sizeof(*gate));

	assert(gate);
	gate->backend.ops = &gate_ops;
	gate->inner = engine->backend;
	zi_list_init(&gate->held);
	engine->backend = &gate->backend;
	return gate;
}

/* From now on nothing of @store comes back. */
static inline void gate_shut(struct gate *gate, const struct nvme_store *store)
{
	gate->store = store;
}

/* All of it comes back, at the next reap. */
static inline void gate_open(struct gate *gate)
{
	gate->store = NULL;
	gate_wake(&gate->backend);
}
