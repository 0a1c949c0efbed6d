/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that are brought where they are used: those on NVMe (offload_param = nvme), and those
 * that nodes divide (zero3 over several nodes). What the parts of residency hold. Floor 5, shard
 * thread, but for what fetch.c says of its device tasks. common/base/order.h records the order in
 * which a step uses its units.
 *
 *   room.c       where in the pool a run of slots may lie, and who must go for it
 *   fetch.c      a unit's parameters into memory, wherever they are
 *   stored.c     from the store, verified
 *   quiet.c      nothing is brought while they change on all nodes
 *   pool.c       the slots: which run lies where, and who goes for whom
 *   residency.c  which units lie in the pool: pins, demands, prefetch, loads
 *   demand.c     whether a demand for which there is no room will ever be met
 */
#pragma once

#include "common/base/order.h"
#include "common/base/types.h"
#include "daemon/zero/param/fetch.h"
#include "daemon/zero/param/quiet.h"
#include "daemon/zero/zero.h"

struct zero_job;
struct zero_rank;
struct zero_run;

/*
 *   ABSENT ──demand, prefetch──▶ LOADING ──it has come───▶ RESIDENT
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
	bool has_failed;      /* to come: nobody reads it ahead until it is needed, or changes */
	struct zero_load load;
};

struct zero_residency {
	struct zero_residence *units; /* (unit_count,) */
	struct zero_run *runs;        /* (run_count,) of (unit_count,), by first slot */
	uint32_t run_count;
	uint32_t slot_count; /* of the pool */
	uint32_t seam;       /* no run lies across it: room_seam() */
	bool is_uneven;      /* likewise */
	uint32_t void_count; /* loads under way that nobody wants: units, and of write_begin */
	bool is_stopped;     /* nothing is loaded any more */
	struct zi_order order;
	struct zero_fetches fetches;
	struct quiet quiet;
	/* unshards that found their unit, waited for what was on its way, or had it read */
	uint64_t hit_count, late_count, miss_count;
	uint64_t evicted_count;
};

int residency_new(struct zero_job *job, uint32_t slot_count);
void residency_free(struct zero_job *job);
/* No more loads, what is under way is void. True when none is. */
bool residency_stop(struct zero_job *job);
enum { _RESIDENCY_E_SUCCESS, RESIDENCY_E_WAIT };
int residency_demand(struct zero_op *op);
void residency_take(struct zero_op *op);
void residency_release(struct zero_rank *rank, uint32_t unit);
void residency_forget(const struct zero_rank *rank);
void residency_step(struct zero_rank *rank);
void residency_step_discarded(struct zero_rank *rank);
void residency_hint(struct zero_job *job, uint32_t unit);
void residency_pump(struct zero_job *job);
void residency_changed(struct zero_job *job); /* ops_retry(), then prefetch */
void residency_freeze(struct zero_job *job, uint32_t unit);
bool residency_void(struct zero_job *job, uint32_t unit);
void residency_void_came(struct zero_job *job);                   /* of those in void_count */
void *residency_param(const struct zero_job *job, uint32_t unit); /* NULL: not here */
uint64_t residency_offset(const struct zero_job *job, uint32_t unit);

/* What other nodes have yet to give for @op. Return: false, nothing; @ret_text is untouched. */
bool residency_say_late(const struct zero_op *op, struct zi_text *ret_text);
bool residency_is_loadable(const struct zero_job *job, uint32_t unit);
bool residency_is_between(const struct zero_job *job, uint32_t rank);
