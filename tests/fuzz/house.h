/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon without its threads and its main(): both halves of the sessions, zero, tiers, a small
 * store and the catalog, on one loop that the fuzz target turns. Store, engine and catalog stay for
 * all inputs, everything else is made for each, and all jobs are deleted after it: an input finds
 * what the first one found.
 *
 * Neither the catalog nor the engine has a thread here: the loop's thread commits, reads and
 * writes some turns after the request, so two runs of an input do the same. Only the flush of a
 * path has a thread.
 */
#pragma once

#include <stdbool.h>

#include "common/base/loop.h"
#include "daemon/session/sess.h"
#include "daemon/zero/job/job.h"

#define HOUSE_SESSIONS     4u
#define HOUSE_RING_ENTRIES 16u
#define HOUSE_UNITS_MAX    8u
#define HOUSE_PARAMS_MAX   16u
#define HOUSE_CPU_BYTES    (256ull << 20)

struct house {
	/* For all inputs. */
	struct zi_loop *loop;
	struct catalog *catalog;
	struct nvme_store *store;
	struct nvme_engine *engine;
	struct zi_source engine_source;
	/* For one. */
	struct tier cpu, nvme;
	struct dev *device;
	struct tier_holders *holders;
	struct zero *zero;
	struct sess_limits limits;
	struct sess_facts facts;
	struct sess_shard *shard;
	struct sess_control *control;
	bool is_quiet, is_stopped;
};

extern struct house house;

/* Once. */
void house_build(void);
/* Before and after each input: the second one waits until nothing is left, and checks that. */
void house_open(void);
void house_close(void);
/* One turn of the loop, which does not sleep. */
void house_turn(void);
/* Turns until nothing of any job is under way. */
void house_settle(void);
