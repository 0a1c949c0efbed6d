/* SPDX-License-Identifier: Apache-2.0 */
/* What zero_steps.c trains on: a node with real threads, two ranks on its loop, and their calls,
 * before each of which one of them may die. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/wire/geometry.h"
#include "daemon/tier/holder.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/job.h"
#include "tests/guard/guard.h"

#define WORLD     2u
#define UNITS     4u
#define STEPS     10
#define GRAD_CALL (UNITS + 1u) /* place of a call, behind one for each unit */
#define CALLS     (UNITS + 2u) /* at once, of a rank */
#define THREADS   3u
#define MIB       (1ull << 20)

/* Shorter than a block; of two subgroups; of a short second tile; of one tile. */
static const uint64_t unit_elements[UNITS] = { 700, 270000, 20000, 16384 };

struct call {
	struct zero_op op;
	bool is_done;
};

struct place {
	struct zero_rank *rank;
	struct zero_materialized memory;
	struct call calls[CALLS];
};

struct stress {
	char directory[64], store_path[96];
	struct zi_loop *loop;
	struct zi_post stop;
	struct catalog *catalog;
	struct nvme_store *store;
	struct nvme_engine *engine;
	struct zi_source engine_source;
	struct tier cpu, nvme;
	struct dev *device;
	struct tier_holders *holders;
	struct zero *zero;

	struct zi_job_config config;
	uint64_t random;
	const struct stress *model; /* a run without deaths; NULL: this one is */
	uint32_t life;              /* calls until a rank dies */
	uint32_t start;             /* of the job */
	uint32_t death_count;
	struct place places[WORLD];
	double norms[STEPS + 1];
	uint64_t hashes[STEPS + 1][UNITS]; /* of parameters */
};

/* A failed check must stop NDEBUG builds too. */
static inline void check(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "zero_steps: %s\n", what);
	abort();
}

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline uint32_t draw(struct stress *stress, uint32_t below)
{
	stress->random += 0x9e3779b97f4a7c15ull;
	return (uint32_t)(mix(stress->random) % below);
}

/* ---- a node ---- */

static inline void reap(struct zi_source *source, uint32_t events)
{
	(void)events;
	(void)nvme_engine_reap(container_of(source, struct stress, engine_source)->engine);
}

static inline void stress_begin(struct stress *stress)
{
	struct zi_text text = { "" };

	check(mkdtemp(guard_path(stress->directory, sizeof(stress->directory), "stress")) != NULL,
	      "mkdtemp");
	(void)snprintf(stress->store_path, sizeof(stress->store_path), "%s/store",
	               stress->directory);
	check(!zi_loop_new(&stress->loop), "zi_loop_new");
	check(!catalog_open(stress->directory, &text, &stress->catalog), text.chars);
	check(!nvme_store_open(&(struct nvme_store_options){ .name = "s",
	                                                     .path = stress->store_path,
	                                                     .bytes = 16 * MIB },
	                       &text, &stress->store),
	      text.chars);
	check(!catalog_adopt_store(stress->catalog, "s", stress->store->uuid, true, &text),
	      text.chars);
	check(!nvme_engine_new(&(struct nvme_engine_options){ .backend = "threads" }, &text,
	                       &stress->engine),
	      text.chars);
	check(!nvme_engine_register_store(stress->engine, stress->store), "register_store");
	check(!zi_loop_add(stress->loop, &stress->engine_source, nvme_engine_fd(stress->engine),
	                   EPOLLIN, reap),
	      "zi_loop_add");
	/* This process holds all it ever received: room for every start. */
	tier_init_cpu(&stress->cpu, 0, 1024 * MIB, NULL, false);
	check(!tier_init_nvme(&stress->nvme, stress->store->name, 0), "tier_init_nvme");
	check(!tier_member_add_store(&stress->nvme, stress->store), "tier_member_add_store");
	check(!dev_host_new(NULL, NULL, THREADS, &stress->device), "dev_host_new");
	check(!tier_holders_new(&stress->holders), "tier_holders_new");
	check(!zero_new(&(struct zero_options){ .loop = stress->loop,
	                                        .catalog = stress->catalog,
	                                        .engine = stress->engine,
	                                        .holders = stress->holders,
	                                        .cpu_tiers = &stress->cpu,
	                                        .cpu_tier_count = 1,
	                                        .devices = &stress->device,
	                                        .nvme_tiers = &stress->nvme,
	                                        .nvme_tier_count = 1,
	                                        .default_staging_bytes = 8 * MIB,
	                                        .is_staging_kept = true,
	                                        .uid_cpu_limit_bytes = UINT64_MAX,
	                                        .uid_nvme_limit_bytes = UINT64_MAX,
	                                        .jobs_max = 1,
	                                        .jobs_per_uid_max = 1,
	                                        .units_max = UNITS,
	                                        .params_max = UNITS },
	                &stress->zero),
	      "zero_new");
	check(!catalog_start(stress->catalog), "catalog_start");
}

static inline void stop_loop(struct zi_post *post)
{
	zi_loop_stop(container_of(post, struct stress, stop)->loop);
}

static inline void turn(struct stress *stress)
{
	zi_loop_post(stress->loop, &stress->stop, stop_loop);
	check(!zi_loop_run(stress->loop), "zi_loop_run");
}

static inline void quiesced(void *arg)
{
	*(bool *)arg = true;
}

static inline void stress_end(struct stress *stress)
{
	char file[96];
	bool is_quiet = false;

	zero_quiesce(stress->zero, quiesced, &is_quiet);
	while (!is_quiet)
		turn(stress);
	stress->zero = zero_free(stress->zero);
	stress->holders = tier_holders_free(stress->holders);
	stress->device = dev_free(stress->device);
	zi_loop_remove(&stress->engine_source);
	stress->engine = nvme_engine_free(stress->engine);
	stress->catalog = catalog_close(stress->catalog);
	check(!stress->cpu.used_bytes && !stress->nvme.used_bytes, "something is still charged");
	tier_deinit(&stress->cpu);
	tier_deinit(&stress->nvme);
	stress->store = nvme_store_close(stress->store);
	stress->loop = zi_loop_free(stress->loop);
	(void)unlink(stress->store_path);
	(void)snprintf(file, sizeof(file), "%s/catalog.db", stress->directory); /* Fits. */
	(void)unlink(file);
	(void)snprintf(file, sizeof(file), "%s/catalog.db-mark", stress->directory); /* Fits. */
	(void)unlink(file);
	check(!rmdir(stress->directory), "something was left in the directory");
}

/* ---- calls ---- */

typedef void (*call_fn)(struct zero_rank *rank, struct zero_op *op);

static inline void call_done(struct zero_op *op)
{
	struct call *call = container_of(op, struct call, op);

	check(!call->is_done, "an op was completed twice");
	call->is_done = true;
}

static inline void broken(void *arg, int error, uint32_t culprit, const struct zi_text *text)
{
	(void)arg; /* The next call says so too. */
	(void)error;
	(void)culprit;
	(void)text;
}

static inline void leave(struct stress *stress, uint32_t index, bool is_clean)
{
	struct zero_rank *rank = stress->places[index].rank;

	stress->places[index].rank = NULL;
	zero_rank_leave(rank, is_clean, "the dice fell");
}

/* Before each call: is it the last one of some rank? */
static inline void dice_fall(struct stress *stress)
{
	uint32_t index;
	bool is_clean;

	if (!stress->model || stress->life-- > 0)
		return;
	stress->life = UINT32_MAX; /* Once per start. */
	stress->death_count++;
	index = draw(stress, WORLD);
	/* Who leaves cleanly while the group is forming is waited for: its place is free. */
	is_clean = draw(stress, 4) == 0 &&
	           stress->places[index].rank->job->group.phase == ZERO_GROUP_LIVE;
	leave(stress, index, is_clean);
}

/* Return: 0, also when the call waits; -EPIPE when it has no rank any more. */
static inline int start(struct stress *stress, uint32_t index, uint32_t slot, call_fn function,
                        const struct zero_op *filled)
{
	struct place *place = &stress->places[index];

	dice_fall(stress);
	if (!place->rank)
		return -EPIPE;
	place->calls[slot] = (struct call){ .op = *filled };
	place->calls[slot].op.done = call_done;
	function(place->rank, &place->calls[slot].op);
	return 0;
}

static inline int finish(struct stress *stress, uint32_t index, uint32_t slot)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(60 * ZI_NS_PER_S);
	struct call *call = &stress->places[index].calls[slot];

	while (!call->is_done) {
		turn(stress);
		check(zi_clock_now_ns() < deadline_ns, "a call never ends");
	}
	return call->op.result;
}

static inline int one(struct stress *stress, uint32_t index, call_fn function,
                      const struct zero_op *filled)
{
	int r = start(stress, index, 0, function, filled);

	return r ? r : finish(stress, index, 0);
}

/* Every rank makes the call @slot; the first error. */
static inline int all(struct stress *stress, uint32_t slot, call_fn function,
                      const struct zero_op *filled)
{
	int results[WORLD];
	int first = 0;

	for (uint32_t i = 0; i < WORLD; i++)
		results[i] = start(stress, i, slot, function, &filled[i]);
	for (uint32_t i = 0; i < WORLD; i++) {
		if (!results[i])
			results[i] = finish(stress, i, slot);
		first = first ? first : results[i];
	}
	return first;
}
