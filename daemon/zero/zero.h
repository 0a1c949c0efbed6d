/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs and their training state: layout, planes, subgroups, reduction, the step, commit, recovery.
 * Floor 5. Everything belongs to the shard thread; computing goes to device threads, transactions
 * to the commit thread, disk to the shard's engine, and each comes back to this thread's loop.
 *
 *   zero        all jobs of this shard and what they share (tiers, engine, devices, catalog)
 *   zero_job    a job; outlives its processes (job.c); its layout and units (layout.c, unit.c)
 *   zero_rank   a process's place in a job, from attach until it leaves (rank.c)
 *   zero_op     one pending request of a rank; completed exactly once through its `done`
 *   step.c      phases of a step; pipeline.c: read → compute → write per subgroup; update.c: what
 *               device threads run; reduce.c: gradients; commit.c: extents and the catalog
 *   recover.c   from the catalog back to jobs at daemon start, and to memory at materialize
 *
 * A job's phases, as reported:
 *
 *   FORMING ──all materialised──▶ READY ──step_begin──▶ STEPPING ──all called step──▶ UPDATING
 *      ▲                            ▲ ▲                    │                             │
 *      │ new incarnation            │ └──── committed ─────┼────── COMMITTING ◀──────────┘
 *      └────────── BROKEN ◀─────────┴── a rank died, ──────┘   (I/O error: BROKEN, and the
 *                    ▲                  left, or failed         committed param is re-read)
 *                    └─ also from FORMING
 *   IDLE: no ranks at all (a job at rest, or just recovered).
 * They are made of two: a group's (FORMING, LIVE, BROKEN, none) and a step's (none, STEPPING,
 * UPDATING, COMMITTING), since a step that is being written outlives its group (job.h). UPDATING
 * and COMMITTING hide what the group is.
 *
 * From UPDATING on nothing more is needed of the ranks: a step that began to update always ends in
 * a commit, or by an I/O error in the former one, whoever dies. So death of a rank before leaves
 * nothing to undo.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/loop.h"
#include "common/base/text.h"
#include "common/base/types.h"
#include "common/wire/control.h"
#include "common/wire/layout.h"
#include "common/wire/owner.h"
#include "common/wire/training.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"
#include "daemon/tier/tally.h"
#include "daemon/zero/zero_snapshot.h"

struct catalog;
struct catalog_job;
struct coll;
struct nvme_engine;
struct tier;
struct tier_account;
struct tier_holder;
struct tier_holders;
struct tier_segment;
struct topo;
struct zero;
struct zero_job;
struct zero_snapshot;
struct zero_rank;
struct zero_op;

typedef void (*zero_op_fn)(struct zero_op *op);

/* STATE_READ, STATE_WRITE: of the unit's elements; STATE_COUNT: the rest. */
struct zero_state_range {
	uint32_t kind; /* enum zi_state_kind, not checked */
	uint64_t first, count;
	uint64_t update_count;
	double betas[2]; /* of these updates */
};

/* Embedded in the session's pending request. Filled by the caller: kind-specific input and `done`.
 * `done` runs exactly once, on the shard thread, possibly before the submitting call returns. */
struct zero_op {
	zero_op_fn done;
	uint32_t unit;
	uint32_t root;    /* PARAM_WRITE_END, STATE_WRITE */
	bool keeps_state; /* PARAM_WRITE_END: the unit's optimizer state stays */
	struct zero_state_range state;
	/* UNSHARD_PART: subgroups of a run, and bits of the runs that are read; 0: all of it */
	uint32_t part_run;
	uint64_t part[ZI_PART_WORDS];
	const uint64_t *unused; /* GRAD_UNUSED: bits of ZI_UNUSED_BITS parameters from `id` on */
	const void *blob;       /* STEP, COMMIT: copied before the submitting call returns */
	uint64_t blob_bytes;
	uint64_t id;     /* TENSOR_*: the tensor's; CANCEL: `ticket` of another op */
	uint64_t ticket; /* unique among this rank's pending ops; 0: it cannot be cancelled */
	uint64_t bytes; /* TENSOR_ALLOC, TENSOR_PUT, TENSOR_OPEN, COLL_OPEN; result of TENSOR_GET */
	uint64_t timeout_ns;      /* COLL_OPEN, COLL_GROUP: instead of the rank's; 0: the rank's */
	uint64_t call_timeout_ns; /* COLL_OPEN: of calls afterwards, for people; 0: as timeout_ns */
	uint64_t members[ZI_GROUP_MASK_WORDS]; /* COLL_GROUP: ranks; its result is `id` */
	const char *name; /* COLL_GROUP: NULL, all ranks make it; else its members alone, by this
	                   * name: the caller's until it completes */
	/* COLL_OPEN, COLL_GROUP: 0; -errno: this rank's library refuses its call, for a reason of
	 * its own, whatever it is. Then it completes before the submitting call returns. */
	int refusal;
	const char *reason;   /* of the refusal: the caller's until it completes */
	uint64_t asked_bytes; /* COLL_OPEN: of `bytes` by the rank's program, for people */
	/* COLL_OPEN of a job that spans nodes: where they meet; the caller's until it completes. */
	const char *rendezvous_host, *interface, *token;
	uint32_t rendezvous_port;
	bool knows_numa; /* COLL_OPEN: ZI_FEATURE_NUMA */
	/* STEP_BEGIN, STEP_OPTIONS: already checked by wire/check, as are those of groups */
	struct zi_step_options options;
	const struct zi_step_group *groups; /* (options.group_count,) copied before the submitting
	                                     * call returns, as are */
	const struct zi_step_betas *betas;  /* these, with ZI_STEP_BETAS */
	/* results */
	int result;                 /* 0 or -errno */
	struct zi_text text;        /* for people, when result < 0 */
	struct zi_step_stats stats; /* STEP, COMMIT */
	uint32_t culprit_unit;      /* STEP: of stats.culprit; UINT32_MAX: none */
	uint32_t unused_count;      /* STEP: parameters that got no gradient on any rank */
	uint32_t micro_batches;     /* STEP_BEGIN, joined: of the step that began; 0: all joined */
	double norm;                /* GRAD_NORM */
	uint64_t offset_bytes;      /* UNSHARD with a pool: of the unit in the pool;
	                             * GRAD_ACQUIRE with buckets: in the rank's segment;
	                        * TENSOR_ALLOC, TENSOR_GET: of the tensor in the rank's segment */
	/* private */
	uint16_t opcode;
	bool is_preferred; /* UNSHARD: what it waits for was moved up in the update's order */
	bool has_waited;   /* UNSHARD, GRAD_ACQUIRE: there was no room for its unit when it came */
	struct zero_rank *rank;
	struct zi_list link;
	uint64_t queued_ns;
};

/* Told to the session of a rank, on the shard thread: the group broke (error and who: rank number
 * or UINT32_MAX). The session passes it on as NOTICE; the rank may only leave from now on. Every
 * pending op has been completed with the same error before. */
typedef void (*zero_broken_fn)(void *arg, int error, uint32_t culprit, const struct zi_text *text);

struct zero_options {
	struct zi_loop *loop;
	struct catalog *catalog;
	struct nvme_engine *engine; /* NULL: no NVMe tier */
	const struct topo *topo;
	struct tier_holders *holders;
	struct tier *cpu_tiers; /* (cpu_tier_count,) one per NUMA node that is used */
	uint32_t cpu_tier_count;
	struct dev **devices;    /* (cpu_tier_count,) the pool of each */
	struct tier *nvme_tiers; /* (nvme_tier_count,) */
	uint32_t nvme_tier_count;
	uint64_t default_staging_bytes;
	bool is_staging_kept; /* it keeps what a step wrote last, for the next one */
	/* quota per uid; UINT64_MAX none */
	uint64_t uid_cpu_limit_bytes, uid_nvme_limit_bytes, uid_gpu_limit_bytes;
	struct tier_budget uid_write_budget; /* of each uid */
	uint32_t uid_fds_max; /* descriptors that the daemon opens for one uid; 0: no limit */
	uint32_t jobs_max, jobs_per_uid_max, units_max, params_max;
	/* Milliseconds since 1970, UTC; NULL: the system's. */
	uint64_t (*now_ms)(void *arg);
	void *now_arg;
	/* Something to be said once: a budget is used up, a counter was lost; may be NULL. Must not
	 * call into zero. */
	void (*told)(void *arg, const struct zi_text *text);
	void *told_arg;
	/* Once, when the catalog is broken and nothing can be committed any more; may be NULL. Must
	 * not call into zero. */
	void (*frozen)(void *arg, const struct zi_text *text);
	/* A job at rest could not be moved off a path; may be NULL. */
	void (*stuck)(void *arg, const struct zi_text *text);
	void *stuck_arg;
	void *frozen_arg;
	/* A job whose newest steps were not committed (commit_interval) lost them, as they could
	 * not be written; may be NULL. Must not call into zero. */
	void (*fell_back)(void *arg, const struct zi_text *text);
	void *fell_back_arg;
};

int zero_new(const struct zero_options *options, struct zero **ret_zero);
/* Asserts: no ranks left. Jobs' memory is dropped; what is committed stays in the catalog. */
struct zero *zero_free(struct zero *zero);
/* Start-up, before catalog_start(): jobs at their last committed step, their extents claimed;
 * jobs whose state was in memory alone are shown as lost, and reported to @lost. */
typedef void (*zero_lost_fn)(void *arg, const char *job, int64_t step);
int zero_recover(struct zero *zero, zero_lost_fn lost, void *arg, struct zi_text *text);
/* Graceful stop: no new steps; `done` runs once every job is READY, IDLE, BROKEN or FORMING (steps
 * that were UPDATING have committed; those not yet UPDATING are discarded, never half). Not from
 * within a call into zero. */
void zero_quiesce(struct zero *zero, void (*done)(void *arg), void *arg);

/* Why nothing can be committed until a restart; NULL: all is well. */
/* Paths were drained, or are used again: jobs at rest are moved off those that are to be left. */
void zero_evacuate(struct zero *zero);
const char *zero_frozen(const struct zero *zero);

/* The account of a uid, for what sessions allocate themselves (rings). Made on first use, kept. */
struct tier_account *zero_account(struct zero *zero, uint32_t uid);
/* Of every uid that was paid for since the start: its account, and what its jobs wrote today. */
void zero_account_each(struct zero *zero,
                       void (*each)(void *arg, uint32_t uid, const struct tier_account *account,
                                    uint64_t today_write_bytes),
                       void *arg);

/* ---- a rank's life ---- */

struct zero_attach {
	const char *job;
	const char *incarnation; /* "" none */
	uint32_t uid;
	int pid;
	uint32_t rank, world_size;
	uint32_t local_size; /* ranks of the job on this node; 0: all */
	bool takeover;
	bool must_exist; /* no job is made */
	struct zi_job_config config;
	struct zi_job_training training;
	uint64_t timeout_ns; /* how long this rank waits for others in collective calls */
	zero_broken_fn broken;
	void *broken_arg;
};

/* Joins (and makes) a job by the incarnation rules of docs/ARCHITECTURE.md. -EACCES other uid;
 * -EBUSY; -ESTALE older incarnation; -EINVAL world or configuration differs; -EDQUOT, -EMFILE
 * limits; -ENODATA there is no job, and it must_exist. A newer incarnation breaks the ranks of the
 * former one with -ESTALE. */
int zero_attach(struct zero *zero, const struct zero_attach *attach, struct zi_text *text,
                struct zero_rank **ret_rank, uint64_t *ret_incarnation_number);
/* Where its job stood when the end of a daemon lost the state that was in memory only; -1: nothing
 * was lost, or the job has begun anew since. Of the job's own uid only. */
int64_t zero_lost_step(const struct zero_rank *rank);
/* The end of a rank: clean (DETACH) or not (@reason "process 123 died"). Others of its group break
 * with -EPIPE, naming it, unless the job was at rest for this rank and it left cleanly before
 * others needed it: then they break when they next need it. Pending ops of this rank are completed
 * with -ECANCELED first. */
void zero_rank_leave(struct zero_rank *rank, bool is_clean, const char *reason);
/* The account of its job, for what sessions allocate for a rank. It stays while anything is charged
 * to it, also when the job is gone. */
struct tier_account *zero_rank_account(struct zero_rank *rank);
/* The rank's process receives @segment, which stays at least until the rank leaves. -ENOMEM. */
int zero_rank_hold(struct zero_rank *rank, struct tier_segment *segment);
/* Deletes the job after its only rank asked for it; the rank is left by this on success. */
void zero_job_destroy(struct zero_rank *rank, struct zero_op *op);

/* LAYOUT stream (already checked entries). -E2BIG with the limit; -EBUSY after materialise. */
int zero_layout_add(struct zero_rank *rank, const struct zi_layout_entry *entry,
                    struct zi_text *text);
uint32_t zero_unit_count(const struct zero_rank *rank); /* 0 before materialised */
bool zero_spans_nodes(const struct zero_rank *rank);    /* ranks of its job are elsewhere */

/* Before materialise, by every rank alike: the job, if it is new, begins with this snapshot; other
 * world sizes and offload settings are fine, another model is -EINVAL there. */
int zero_load(struct zero_rank *rank, const char *job, const char *name, struct zi_text *text);

/* What MATERIALIZE answers; segments stay the job's. */
struct zero_materialized {
	int64_t committed_step;
	uint64_t slot_bytes;
	uint64_t update_count;      /* in force */
	double loss_scale;          /* of the next step */
	struct tier_segment *param; /* the plane, or the pool */
	struct tier_segment *grad;  /* this rank's: the plane, or buckets */
	bool has_pooled_grads;
	bool has_pooled_params; /* though offload_param is not nvme */
};
/* Collective; completes when all ranks have come and memory is there (op->result, op->text). */
void zero_materialize(struct zero_rank *rank, struct zero_op *op);
void zero_materialized(struct zero_rank *rank, struct zero_materialized *ret_materialized);

/* Staging copy of a unit for this rank to write; freed by write_end or leave. Completes when filled
 * with the present values; zero_param_staging() then gives it. */
void zero_param_write_begin(struct zero_rank *rank, struct zero_op *op);
struct tier_segment *zero_param_staging(struct zero_rank *rank);
void zero_param_write_end(struct zero_rank *rank, struct zero_op *op); /* collective */

/* Optimizer state of a unit through a window of this rank (zero/state/). */
void zero_state_open(struct zero_rank *rank, struct zero_op *op);
struct tier_segment *zero_state_window(struct zero_rank *rank);
void zero_state_read(struct zero_rank *rank, struct zero_op *op);
void zero_state_write(struct zero_rank *rank, struct zero_op *op); /* collective */
void zero_state_count(struct zero_rank *rank, struct zero_op *op); /* collective */

/* This rank's committed blob; NULL and 0 when there is none. Valid until the next commit. */
const void *zero_blob(struct zero_rank *rank, uint64_t *ret_bytes);

/* ---- ring operations: ZI_OP_UNSHARD … ZI_OP_BARRIER, one entry each in session/dispatch ---- */

void zero_unshard(struct zero_rank *rank, struct zero_op *op);
void zero_unshard_part(struct zero_rank *rank, struct zero_op *op);
void zero_reshard(struct zero_rank *rank, struct zero_op *op);
void zero_prefetch(struct zero_rank *rank, struct zero_op *op);
void zero_grad_acquire(struct zero_rank *rank, struct zero_op *op);
void zero_reduce(struct zero_rank *rank, struct zero_op *op);
void zero_grad_unused(struct zero_rank *rank, struct zero_op *op);
void zero_step_begin(struct zero_rank *rank, struct zero_op *op);
void zero_step(struct zero_rank *rank, struct zero_op *op);
void zero_step_options(struct zero_rank *rank, struct zero_op *op);
void zero_grad_norm(struct zero_rank *rank, struct zero_op *op);
void zero_step_discard(struct zero_rank *rank, struct zero_op *op);
void zero_commit(struct zero_rank *rank, struct zero_op *op);
void zero_barrier(struct zero_rank *rank, struct zero_op *op);

/* ---- tensors of a rank: not committed, gone with its session (tensor.h) ---- */

/* Once, after materialise; op->bytes is the budget. zero_tensor_segment() then gives it. */
void zero_tensor_open(struct zero_rank *rank, struct zero_op *op);
struct tier_segment *zero_tensor_segment(struct zero_rank *rank);
void zero_tensor_alloc(struct zero_rank *rank, struct zero_op *op);
void zero_tensor_put(struct zero_rank *rank, struct zero_op *op);
void zero_tensor_prefetch(struct zero_rank *rank, struct zero_op *op);
void zero_tensor_get(struct zero_rank *rank, struct zero_op *op);
void zero_tensor_release(struct zero_rank *rank, struct zero_op *op);
void zero_tensor_free(struct zero_rank *rank, struct zero_op *op);
/* Ends a pending op of the same rank. */
void zero_cancel(struct zero_rank *rank, struct zero_op *op);

/* ---- collectives of the incarnation's ranks, with or without a model (collectives.h) ---- */

/* Gathers all ranks; op->bytes of an arena each. Then zero_coll_opened() has the memory. */
void zero_coll_open(struct zero_rank *rank, struct zero_op *op);
struct zero_coll_opened {
	struct tier_segment *verdicts, *arenas, *board; /* the job's */
	uint64_t arena_bytes, board_bytes;
	uint32_t member_count;
	struct tier_segment *slab; /* NULL: all ranks are on this node */
	uint32_t node_count, node;
	const uint8_t *nodes; /* (member_count,) */
};
/* False: they are not open, or not any more. */
bool zero_coll_opened(struct zero_rank *rank, struct zero_coll_opened *ret_opened);
/* Gathers all ranks, or with op->name the members; op->members; op->id becomes the number. Then
 * zero_coll_grouped(). */
void zero_coll_group(struct zero_rank *rank, struct zero_op *op);
struct zero_coll_grouped {
	uint32_t self; /* member; UINT32_MAX: none, and no board */
	uint32_t member_count;
	uint64_t board_bytes;
	struct tier_segment *board; /* the job's */
	struct tier_segment *slab;  /* NULL: all members are on this node */
};
bool zero_coll_grouped(struct zero_rank *rank, uint32_t group,
                       struct zero_coll_grouped *ret_grouped);
/* -ENOTCONN not open; -EPERM no member; -EINVAL the world's. */
int zero_coll_group_free(struct zero_rank *rank, uint32_t group, struct zi_text *text);
/* What became of a call; always an error (coll_fail()). */
int zero_coll_fail(struct zero_rank *rank, const struct zi_coll_fail *report, struct zi_text *text);
/* This member ends the group's calls (coll_abort()). */
int zero_coll_abort(struct zero_rank *rank, uint32_t group, const char *reason,
                    struct zi_text *text);
/* Ranks that wait for each other may spin for @spin_us while there are not more of them, in all
 * jobs whose collectives are open, than @cpu_count; where a job spans nodes the threads of its
 * worker count as well. After each attach, open and leave. */
void zero_coll_spin(struct zero *zero, uint32_t cpu_count, uint32_t spin_us);

/* ---- looking in (admin, metrics) ---- */

struct zero_job_report {
	char name[ZI_NAME_BYTES];
	char incarnation[ZI_NAME_BYTES];
	const char *phase;
	const char *refusal; /* why nobody may attach; NULL: they may. Valid during the call */
	uint32_t node_count; /* of its ranks, or of those it had last; 0: not known yet */
	uint32_t node;       /* which of them this one is */
	uint32_t uid, world_size, rank_count;
	uint64_t incarnation_number;
	struct zi_job_config config;
	struct zi_job_training training;
	bool is_stateless;      /* it has no optimizer state: made forward only */
	bool is_training_known; /* false: it has not begun yet, or is refused */
	int64_t committed_step;
	int64_t lost_step;    /* where it stood when its state in memory was lost; -1: it was not */
	int64_t current_step; /* in force; later than the former with commit_interval */
	uint64_t element_count, padded_count;
	uint32_t unit_count, param_count, subgroup_count;
	/* logical: of each rank of the world that trained last, what the strategy's table says
	 * (common/wire/owner.h); (logical_count,), 0: no model yet */
	uint32_t logical_count;
	struct zi_plane_bytes logical[ZI_WORLD_MAX];
	/* held: really there */
	uint64_t param_cpu_bytes, grad_cpu_bytes, accum_cpu_bytes;
	uint64_t state_cpu_bytes; /* resident (all of it, or the share) */
	uint64_t staging_cpu_bytes;
	uint64_t coll_cpu_bytes;                     /* arenas, boards, verdicts, slabs */
	uint64_t gpu_bytes;                          /* arenas on all GPUs (tier/arena.h) */
	uint64_t state_nvme_bytes, param_nvme_bytes; /* committed extents */
	uint64_t reserved_nvme_bytes;                /* charged: twice the state */
	struct zi_step_stats last_step;
	uint64_t read_bytes, write_bytes; /* since the daemon started */
	/* in all its life, as commits counted; today: since midnight UTC */
	uint64_t total_read_bytes, total_write_bytes, today_write_bytes;
	bool is_paced; /* its next step waits for a write budget */
	/* durability = power: the path whose flush a commit waits for, and for how long; NULL:
	 * none. Late: beyond deadline_s. Valid during the call */
	const char *flush_path;
	uint64_t flush_ns;
	bool is_flush_late;
	/* snapshot_interval: snapshots that failed since one did not, and why the newest did; NULL:
	 * none. Valid during the call */
	uint32_t unkept_count;
	const char *unkept;
	bool has_pool; /* parameters on NVMe; of the pool: */
	struct {
		uint64_t budget_bytes, resident_bytes, pinned_bytes;
		uint64_t read_bytes; /* these since it was made */
		uint64_t hit_count, late_count, miss_count, evicted_count, order_change_count;
	} pool;
	struct {
		uint64_t budget_bytes; /* segments of all ranks */
		uint64_t count, bytes; /* tensors, and what they are long */
		uint64_t resident_bytes, stored_bytes;
		uint64_t read_bytes, write_bytes, evicted_count; /* since they were opened */
	} tensors;
	struct coll *coll; /* to look at (coll/describe.h) during the call; NULL: not open */
	uint64_t arena_bytes;
	struct {
		uint32_t node;          /* with several nodes: where it is, or was */
		const char *host;       /* of that node, in its own words; "": not known */
		const char *arena_tier; /* where its arena lies; NULL: not open, or not here */
		int32_t pid;
		bool is_attached;
		const char *doing;
		uint64_t doing_ns;
		/* held by the rank alone: gradients, its copies of units it writes, tensors */
		uint64_t grad_bytes, copy_bytes, tensor_bytes;
	} ranks[ZI_WORLD_MAX];
};
/* Calls @each for every job (or the one named). False when a named job is not there. */
bool zero_report(struct zero *zero, const char *job,
                 void (*each)(void *arg, const struct zero_job_report *report), void *arg);
