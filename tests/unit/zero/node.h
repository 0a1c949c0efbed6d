/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of zero share: a node of one memory tier and one small store, with the real
 * catalog, engine and loop, which a test turns by hand. Beside it: actor.h, ranks as a session
 * would hold them; model.h, a small model and how it is trained; plain.h, what a step must give.
 */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/wire/geometry.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/job/job.h"
#include "kernels/cast.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "nvme/store.h"
#include "tests/guard/guard.h"
#include "tests/harness/patience.h"

#define MIB           (1ull << 20)
#define NODE_STORES   3u
#define TURN_LIMIT_NS patient_ns(20 * ZI_NS_PER_S) /* a test that waits longer has failed */

struct node {
	char directory[64];
	char store_path[96]; /* of the first */
	char more_paths[NODE_STORES][104];
	struct zi_loop *loop;
	struct zi_post stop;
	struct zi_timer rested;
	struct catalog *catalog;
	struct nvme_store *store; /* the first */
	struct nvme_store *more_stores[NODE_STORES];
	struct nvme_engine *engine;
	struct zi_source engine_source;
	struct tier cpu;
	union {
		struct tier nvme; /* the first */
		struct tier nvme_tiers[2];
	};
	struct dev *device;
	struct tier_holders *holders;
	struct zero *zero;
	/* before node_start() */
	const char *backend;
	uint32_t depth;                         /* of the engine; 0: its own */
	void (*engine_made)(struct node *node); /* nothing is registered yet; may be NULL */
	uint64_t cpu_bytes, store_bytes, staging_bytes, uid_cpu_bytes, uid_nvme_bytes, seed;
	uint32_t store_count; /* of the tier */
	bool is_split;        /* two stores, a tier each */
	uint8_t uuids[NODE_STORES][16];
	uint32_t missing; /* bits: stores that are not there any more */
	uint32_t jobs_max, jobs_per_uid_max, units_max, params_max;
	uint32_t thread_count; /* 0: the fake device */
	bool is_dumb;          /* no nvme tier */
	/* What the store claims to have, for tests without I/O; 0: what it has. */
	uint64_t pretended_bytes;
	bool is_disk_held; /* what the disk has done is not looked at */
	/* A fake clock, beside the real one of the loop. */
	uint64_t now_ms;
	struct tier_budget store_budget, uid_budget;
	uint32_t told_count;
	struct zi_text told;
	uint32_t lost_count;
	int64_t lost_step;
	char lost_name[ZI_NAME_BYTES];
	struct zi_text stuck_text;
	bool is_quiesced;
};

static inline void node_init(struct node *node)
{
	*node = (struct node){
		.backend = "threads",
		.cpu_bytes = 256 * MIB,
		.store_bytes = 24 * MIB,
		.store_count = 1,
		.staging_bytes = 8 * MIB,
		.uid_cpu_bytes = UINT64_MAX,
		.uid_nvme_bytes = UINT64_MAX,
		.seed = 1,
		.now_ms = 20000ull * 24 * 3600 * 1000, /* a midnight */
		.jobs_max = 16,
		.jobs_per_uid_max = 8,
		.units_max = 64,
		.params_max = 256,
	};
	cr_assert_not_null(mkdtemp(guard_path(node->directory, sizeof(node->directory), "zero")));
	(void)snprintf(node->store_path, sizeof(node->store_path), "%s/store", node->directory);
	for (uint32_t i = 1; i < NODE_STORES; i++)
		(void)snprintf(node->more_paths[i], sizeof(node->more_paths[i]), "%s%u",
		               node->store_path, i);
}

static inline void node_reap(struct zi_source *source, uint32_t events)
{
	struct node *node = container_of(source, struct node, engine_source);

	(void)events;
	if (!node->is_disk_held)
		(void)nvme_engine_reap(node->engine);
}

static inline void node_lost(void *arg, const char *job, int64_t step)
{
	struct node *node = arg;

	node->lost_count++;
	node->lost_step = step;
	cr_assert_eq(zi_copy_name(node->lost_name, sizeof(node->lost_name), job), 0);
}

static inline void node_stuck(void *arg, const struct zi_text *text)
{
	((struct node *)arg)->stuck_text = *text;
}

static inline uint64_t node_now_ms(void *arg)
{
	return ((const struct node *)arg)->now_ms;
}

static inline void node_told(void *arg, const struct zi_text *text)
{
	struct node *node = arg;

	node->told_count++;
	node->told = *text;
}

static const char *const node_store_names[NODE_STORES] = { "t", "t1", "t2" };

static inline struct nvme_store *node_store(const struct node *node, uint32_t index)
{
	return index ? node->more_stores[index] : node->store;
}

/* NULL: it is said to be missing. */
/*
 * A new store at @path, as nvme_store_open() makes it, but for the zeros that it writes into each
 * block: reserved blocks read as zeros too, and these tests make thousands of stores.
 */
static inline void node_make_store(const char *path, uint64_t bytes)
{
	struct nvme_store store = { .path = (char *)path };
	struct nvme_superblock superblock;
	struct zi_text text = { "" };
	int r;

	store.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (store.fd < 0) {
		cr_assert_eq(errno, EEXIST, "%s", path); /* of the node's former life */
		return;
	}
	cr_assert_eq(posix_fallocate(store.fd, 0, (off_t)bytes), 0);
	cr_assert_eq(nvme_superblock_make(bytes, &superblock), 0);
	r = nvme_store_write_superblock(&store, &superblock, &text);
	cr_assert_eq(r, 0, "%s", text.chars);
	zi_close(store.fd);
}

static inline struct nvme_store *node_open_store(struct node *node, uint32_t index)
{
	struct nvme_store_options options = {
		.name = node_store_names[index],
		.path = index ? node->more_paths[index] : node->store_path,
		.bytes = node->store_bytes,
	};
	struct nvme_store *store = NULL;
	struct zi_text text = { "" };
	int r;

	if (node->missing >> index & 1)
		return NULL;
	node_make_store(options.path, options.bytes);
	r = nvme_store_open(&options, &text, &store);
	cr_assert_eq(r, 0, "%s", text.chars);
	if (node->pretended_bytes)
		store->bytes = node->pretended_bytes;
	r = catalog_adopt_store(node->catalog, options.name, store->uuid, store->is_created, &text);
	cr_assert_eq(r, 0, "%s", text.chars);
	memcpy(node->uuids[index], store->uuid, sizeof(node->uuids[index]));
	return store;
}

static inline void node_make_tier(struct node *node)
{
	cr_assert_eq(tier_init_nvme(&node->nvme, "t", 0), 0);
	if (node->is_split)
		cr_assert_eq(tier_init_nvme(&node->nvme_tiers[1], "t1", 0), 0);
	for (uint32_t i = 0; i < node->store_count; i++) {
		struct nvme_store *store = node_store(node, i);

		cr_assert_eq(
			tier_member_add(&node->nvme_tiers[node->is_split ? i : 0],
		                        &(struct tier_member_options){
						.name = node_store_names[i],
						.path = i ? node->more_paths[i] : node->store_path,
						.store = store,
						.uuid = node->uuids[i],
						.write_budget = node->store_budget }),
			0);
		if (store)
			cr_assert_eq(nvme_engine_register_store(node->engine, store), 0);
	}
}

static inline void node_start(struct node *node)
{
	struct zi_text text = { "" };
	int r;

	cr_assert_eq(zi_loop_new(&node->loop), 0);
	r = catalog_open(node->directory, &text, &node->catalog);
	cr_assert_eq(r, 0, "%s", text.chars);
	node->store = node_open_store(node, 0);
	for (uint32_t i = 1; i < node->store_count; i++)
		node->more_stores[i] = node_open_store(node, i);
	r = nvme_engine_new(
		&(struct nvme_engine_options){ .backend = node->backend, .depth = node->depth },
		&text, &node->engine);
	cr_assert_eq(r, 0, "%s", text.chars);
	if (node->engine_made)
		node->engine_made(node);
	node_make_tier(node);
	cr_assert_eq(zi_loop_add(node->loop, &node->engine_source, nvme_engine_fd(node->engine),
	                         EPOLLIN, node_reap),
	             0);
	tier_init_cpu(&node->cpu, 0, node->cpu_bytes, NULL, false);
	if (node->thread_count)
		cr_assert_eq(dev_host_new(NULL, 0, node->thread_count, &node->device), 0);
	else
		cr_assert_eq(dev_fake_new(node->seed, &node->device), 0);
	cr_assert_eq(tier_holders_new(&node->holders), 0);
	r = zero_new(
		&(struct zero_options){
			.loop = node->loop,
			.catalog = node->catalog,
			.engine = node->engine,
			.holders = node->holders,
			.cpu_tiers = &node->cpu,
			.cpu_tier_count = 1,
			.devices = &node->device,
			.nvme_tiers = node->nvme_tiers,
			.nvme_tier_count = node->is_dumb ? 0 : 1 + node->is_split,
			.default_staging_bytes = node->staging_bytes,
			.is_staging_kept = true,
			.stuck = node_stuck,
			.stuck_arg = node,
			.uid_cpu_limit_bytes = node->uid_cpu_bytes,
			.uid_nvme_limit_bytes = node->uid_nvme_bytes,
			.uid_write_budget = node->uid_budget,
			.now_ms = node_now_ms,
			.now_arg = node,
			.told = node_told,
			.told_arg = node,
			.jobs_max = node->jobs_max,
			.jobs_per_uid_max = node->jobs_per_uid_max,
			.units_max = node->units_max,
			.params_max = node->params_max,
		},
		&node->zero);
	cr_assert_eq(r, 0);
	r = zero_recover(node->zero, node_lost, node, &text);
	cr_assert_eq(r, 0, "%s", text.chars);
	cr_assert_eq(catalog_start(node->catalog), 0);
}

static inline void node_stop_loop(struct zi_post *post)
{
	zi_loop_stop(container_of(post, struct node, stop)->loop);
}

/* One turn of the loop. */
static inline void node_turn(struct node *node)
{
	zi_loop_post(node->loop, &node->stop, node_stop_loop);
	cr_assert_eq(zi_loop_run(node->loop), 0);
}

static inline void node_stop_rest(struct zi_timer *timer)
{
	zi_loop_stop(container_of(timer, struct node, rested)->loop);
}

/* Turns, asleep where nothing is to do, until the loop is stopped or this time has passed. */
static inline void node_rest(struct node *node)
{
	zi_loop_arm(node->loop, &node->rested, zi_clock_deadline_ns(ZI_NS_PER_MS), node_stop_rest);
	cr_assert_eq(zi_loop_run(node->loop), 0);
	zi_loop_disarm(&node->rested);
}

static inline bool node_is_quiet(struct node *node)
{
	if (!zi_list_is_empty(&node->zero->ghosts) || node->zero->tensor_busy_count ||
	    node->zero->evacuation.is_posted || node->zero->evacuation.is_on ||
	    node->zero->is_quiet_posted)
		return false;
	zi_list_for_each(link, &node->zero->jobs)
		if (container_of(link, struct zero_job, jobs_link)->busy_count)
			return false;
	return true;
}

/* Until nothing is in flight. */
static inline void node_settle(struct node *node)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(TURN_LIMIT_NS);

	do {
		node_turn(node);
		cr_assert_lt(zi_clock_now_ns(), deadline_ns, "the node never comes to rest");
	} while (!node_is_quiet(node));
}

/* As a daemon ends, or (without what is in memory) as it is killed: nothing of it is asked. */
static inline void node_stop(struct node *node)
{
	node_settle(node);
	node->zero = zero_free(node->zero);
	node->holders = tier_holders_free(node->holders);
	node->device = dev_free(node->device);
	node_turn(node);
	zi_loop_remove(&node->engine_source);
	node->engine = nvme_engine_free(node->engine);
	node->catalog = catalog_close(node->catalog);
	cr_assert_eq(node->cpu.used_bytes, 0, "memory is still charged");
	cr_assert_eq(node->nvme.used_bytes, 0, "space is still charged");
	tier_deinit(&node->cpu);
	tier_deinit(&node->nvme);
	if (node->is_split)
		tier_deinit(&node->nvme_tiers[1]);
	node->store = nvme_store_close(node->store);
	for (uint32_t i = 1; i < NODE_STORES; i++)
		node->more_stores[i] = nvme_store_close(node->more_stores[i]);
	node->loop = zi_loop_free(node->loop);
}

static inline void node_deinit(struct node *node)
{
	char command[128];

	if (node->zero)
		node_stop(node);
	(void)snprintf(command, sizeof(command), "rm -rf %s", node->directory);
	cr_assert_eq(system(command), 0);
}

static inline struct zero_job *node_job(struct node *node, const char *name)
{
	return job_find(node->zero, name);
}
