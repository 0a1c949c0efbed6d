/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an engine, for engine.c, schedule.c, flow.c, cancel.c and register.c. Private to
 * nvme/. Floor 2, owner thread. */
#pragma once

#include "common/base/list.h"
#include "nvme/backend.h"
#include "nvme/fixed.h"
#include "nvme/nvme.h"

#define NVME_DEPTH_MAX       4096u
#define NVME_BLOCK_BYTES_MAX (64u << 20)

/* Blocks of one store in one direction. */
struct nvme_lane {
	uint32_t block_bytes;
	uint32_t depth;
	uint32_t inflight_count; /* blocks */
	struct zi_list streams;  /* with something queued; those that ran dry until they are met */
	uint64_t virtual_time;   /* of the stream that was served last, see schedule.c */
};

/* What an engine keeps of a store. */
struct nvme_port {
	struct nvme_lane lanes[2]; /* by direction */
	uint32_t reads_in_row_count;
	uint32_t kept_count;      /* blocks that others leave to it, whatever they want */
	int32_t file_slot;        /* registered with the kernel, or NVME_SLOT_NONE */
	struct zi_list deadlines; /* requests that have one, the earliest first */
};

/* The port of stores that are not registered; store slot N has port N + 1. */
#define NVME_PORT_PLAIN  0u
#define NVME_PORTS_COUNT (NVME_FILES_MAX + 1)

/* What one flow wants of one store in one direction. */
struct nvme_stream {
	struct zi_list streams_link; /* of the lane */
	struct zi_list queue;        /* requests with blocks that have not gone out */
	struct nvme_flow *flow;
	uint64_t virtual_time; /* bytes it was served, the more the less its weight */
};

struct nvme_flow {
	uint32_t weight;
	uint64_t bytes[2]; /* by direction */
	struct nvme_stream streams[NVME_PORTS_COUNT][2];
};

struct nvme_engine {
	struct nvme_backend *backend;
	struct nvme_engine_options options;
	uint32_t depth;
	struct nvme_port ports[NVME_PORTS_COUNT];
	struct nvme_flow *flow;    /* of requests that name none */
	uint32_t ports_end_index;  /* behind the last one in use */
	uint32_t ports_turn_index; /* whose turn it is */
	struct zi_list free_blocks;
	uint32_t free_count;
	uint32_t promised_count;    /* blocks that ports have kept for them and do not use now */
	struct nvme_block *blocks;  /* (depth,) */
	struct nvme_block **reaped; /* (depth,) */
	struct zi_list finished;    /* requests that are over, `done` has not run */
	uint32_t inflight_count;    /* requests */
	uint32_t deadlines_count;   /* of them, those with a deadline */
	uint64_t alarm_ns;          /* asked for last; ZI_DEADLINE_NEVER: none */
	bool is_reaping;
	struct nvme_engine_stats stats;
	struct nvme_fixed fixed;
};

/* ---- schedule.c ---- */

/* What a port of the store with @tuning allows, defaults in place of zeros. */
void nvme_port_tune(const struct nvme_engine *engine, struct nvme_port *port,
                    const struct nvme_tuning *tuning);
/* Ports came, went or were tuned: what is kept for each. */
void nvme_schedule_share(struct nvme_engine *engine);
/* A block of @port came back and is free. */
void nvme_schedule_return(struct nvme_engine *engine, struct nvme_port *port,
                          struct nvme_block *block);
/* An accepted request waits its turn. */
void nvme_schedule_queue(struct nvme_engine *engine, struct nvme_io *io);
/* Hands a block to the backend, also one that is continued. */
void nvme_schedule_prepare(struct nvme_engine *engine, struct nvme_block *block);
/* Hands the backend what depths allow, without starting it. */
void nvme_schedule_fill(struct nvme_engine *engine);

/* ---- cancel.c ---- */

/* A request with a deadline was accepted, is over. */
void nvme_deadline_add(struct nvme_engine *engine, struct nvme_io *io);
void nvme_deadline_remove(struct nvme_engine *engine, struct nvme_io *io);
/* Gives up what is late at @now_ns, and asks for the next alarm. */
void nvme_deadline_pass(struct nvme_engine *engine, uint64_t now_ns);
