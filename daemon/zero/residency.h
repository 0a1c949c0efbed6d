/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that live on NVMe (offload_param = nvme): what the parts of residency hold. Floor 5,
 * shard thread, but for what fetch.c says of its device tasks.
 *
 *   order.c      in which order a step uses its units, recorded and followed
 *   room.c       where in the pool a run of slots may lie, and who must go for it
 *   fetch.c      a unit's parameters from the store into memory, verified
 *   pool.c       the slots: which run lies where, and who goes for whom
 *   residency.c  which units lie in the pool: pins, demands, prefetch, loads
 *   demand.c     whether a demand for which there is no room will ever be met
 */
#pragma once

#include "common/base/types.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"

struct zero_job;
struct zero_subgroup;

/* ---- order.c ---- */

/* Distances from here on are guesses by age: nothing is known of the unit's next use. */
#define ZERO_DISTANCE_UNKNOWN (1ull << 40)
#define ZERO_DISTANCE_NEVER   UINT64_MAX

/* The uses of units in one step, in order, as the leading rank made them. */
struct zero_order {
	uint32_t *units; /* (count,) of capacity */
	uint32_t *next;  /* (count,) index of the same unit's next use; UINT32_MAX: none */
	uint32_t *first; /* (unit_count,) index of a unit's first use; UINT32_MAX: none */
	uint32_t *last;  /* (unit_count,) */
	uint64_t *used;  /* (unit_count,) number of its newest use by any rank; 0: none */
	uint32_t count, capacity, unit_count;
	uint64_t use_count; /* of all ranks */
	bool is_recording;
	uint64_t change_count; /* steps that used units in another order than recorded */
};

/* ---- room.c ---- */

/* A unit's slots in the pool. */
struct zero_run {
	uint32_t unit;
	uint32_t first, count;
	uint64_t distance; /* uses until it is used next */
	bool is_fixed;     /* must stay */
};

/* A window of the pool, and what lies in it. */
struct zero_room {
	uint32_t first;               /* slot */
	uint32_t run_first, run_last; /* runs that must go: first, and one after the last */
};

/* ---- fetch.c ---- */

/* Subgroups that are read at once: enough for a disk's depth, few enough that a demand need not
 * wait long behind what was prefetched. */
#define ZERO_FETCH_MAX   16u
#define ZERO_FETCH_TILES (ZI_SUBGROUP_ELEMENTS / ZI_TILE_ELEMENTS)

/* A unit on its way from the store to @target. Embedded in its owner, who leaves it and the target
 * alone until `done` ran. */
struct zero_load {
	struct zero_job *job;
	uint32_t unit;
	void *target; /* (padded_count,) of param_dtype, aligned to ZI_STORE_ALIGN_BYTES */
	void (*done)(struct zero_load *load);
	/* results */
	int error; /* 0; -EIO and the like, -EBADMSG damaged; then text says where */
	struct zi_text text;
	/* private */
	struct zi_list link;
	bool is_urgent;
	uint32_t next_index; /* subgroups handed out */
	uint32_t fetch_count;
};

/* One subgroup of a load. */
struct zero_fetch {
	struct zero_load *load; /* NULL: free */
	struct zero_subgroup *subgroup;
	bool is_stored;                    /* no: never written, all zero */
	uint64_t hashes[ZERO_FETCH_TILES]; /* (tile_count,) that it must have: copied, as the job's
	                                    * array may be written when this comes late */
	void *target;
	struct tier_move move;
	struct dev_task task;
	int error;
	struct zi_text text;
};

struct zero_fetches {
	struct zero_fetch fetches[ZERO_FETCH_MAX];
	uint32_t busy_count;
	struct zi_list urgent, waiting; /* struct zero_load, by link: not all handed out */
	uint64_t read_bytes;
};

/* ---- residency.c ---- */

/*
 *   ABSENT ──demand, prefetch──▶ LOADING ──read, verified──▶ RESIDENT
 *     ▲                            │ damaged, void             │ evicted
 *     └────────────────────────────┴───────────────────────────┘
 */
enum zero_presence { ZERO_ABSENT, ZERO_LOADING, ZERO_RESIDENT };

struct zero_residence {
	enum zero_presence presence;
	uint32_t slot_count;
	uint32_t slot_first;  /* LOADING, RESIDENT */
	uint64_t pinned_mask; /* ranks that have it unsharded */
	bool is_void;         /* LOADING what has changed meanwhile */
	bool is_prefetched;   /* nobody has used it since it came */
	struct zero_load load;
};

struct zero_residency {
	struct zero_residence *units; /* (unit_count,) */
	struct zero_run *runs;        /* (run_count,) of (unit_count,), by first slot */
	uint32_t run_count;
	uint32_t slot_count; /* of the pool */
	uint32_t void_count; /* loads under way that nobody wants: units, and of write_begin */
	bool is_stopped;     /* nothing is loaded any more */
	struct zero_order order;
	struct zero_fetches fetches;
	/* unshards that found their unit, waited for what was on its way, or had it read */
	uint64_t hit_count, late_count, miss_count;
	uint64_t evicted_count;
};
