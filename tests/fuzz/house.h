/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon without its threads and its main(): both halves of the sessions, zero, tiers, a small
 * store and the catalog, on one loop that the fuzz target turns. Store, engine and catalog stay for
 * all inputs, everything else is made for each, and all jobs are deleted after it: an input finds
 * what the first one found.
 *
 * Neither the catalog nor the engine has a thread here: the loop's thread commits, reads and
 * writes some turns after the request. A path is flushed there too. So two runs of an input do the
 * same.
 */
#pragma once

#include <stdbool.h>

#include "common/base/loop.h"
#include "common/wire/control.h"
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
	uint64_t sent_count; /* messages to clients */
	/* For one. */
	struct tier cpu, nvme;
	struct dev *device;
	struct tier_holders *holders;
	struct tier_arenas *arenas;
	struct zero *zero;
	struct sess_limits limits;
	struct sess_facts facts;
	struct sess_shard *shard;
	struct sess_control *control;
	bool is_quiet, is_stopped;
	uint32_t turn_count; /* of the loop */
};

extern struct house house;

/* For clients: house.sent_count does not count these. */
int __real_zi_message_send(int fd, const struct zi_message_header *message, const int *fds,
                           uint32_t fd_count);

/* Once. */
void house_build(void);
/* Before and after each input: the second one waits until nothing is left, and checks that. */
void house_open(void);
void house_close(void);
/* One turn of the loop, which does not sleep. */
void house_turn(void);
/* At most @turn_count turns. The first turn that finds no work is the last. */
void house_turns(uint32_t turn_count);
/* Turns until nothing of any job is under way. */
void house_settle(void);
