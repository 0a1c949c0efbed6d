/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job and its parts: what they hold. Who calls whom is in internal.h. Floor 5; shard thread, but
 * for what update.c and reduce.c say of their device tasks.
 */
#pragma once

#include "common/base/assert.h"
#include "daemon/catalog/catalog.h"
#include "daemon/device/device.h"
#include "daemon/tier/move.h"
#include "daemon/tier/tier.h"
#include "daemon/zero/residency.h"
#include "daemon/zero/tensor.h"
#include "daemon/zero/zero.h"
#include "daemon/zero/zero_private.h"
#include "kernels/optim.h"

/* A step's pipeline needs one slot to read, one to compute and one to write. */
#define ZERO_STAGING_SLOTS_MIN 3u
#define ZERO_STAGING_SLOTS_MAX 4096u

/* What a rank streams, and what a job keeps. */
struct zero_layout {
	struct catalog_unit *units;
	struct catalog_param *params;
	uint32_t unit_count, unit_capacity;
	uint32_t param_count, param_capacity;
};

struct zero_unit {
	uint64_t element_count, padded_count;
	uint64_t param_offset, grad_offset; /* bytes in the planes */
	uint32_t subgroup_first, subgroup_count;
	/* this step */
	uint64_t handed_mask;  /* ranks that handed over this micro-batch's gradient */
	uint64_t held_mask;    /* ranks whose buffer is the daemon's */
	uint32_t micro_done;   /* micro-batches that are reduced */
	uint32_t reduce_count; /* subgroups that are being reduced */
	bool is_ready;         /* its update may begin: nobody uses it any more */
	uint32_t update_count; /* subgroups that are not yet at this step */
	uint32_t place;        /* in the foretold order */
	uint32_t write_count;  /* subgroups whose new parameters are not yet in the store */
	/* between steps */
	bool is_written;    /* by param_write_end, and not committed */
	bool is_copying;    /* param_write_end is at work */
	bool is_param_next; /* the newest parameters lie in the extents of the commit to come */
};

/* One of three arrays of checksums holds those of `extent`, one those of `kept`; a step writes
 * another. */
#define ZERO_HASHES 3u
enum { ZERO_PLANE_PARAM = 0, ZERO_PLANE_STATE = 1, _ZERO_PLANE_COUNT };

struct zero_place {
	struct tier_extent extent; /* in force; no bytes: none (STATE: all zero) */
	struct tier_extent next;   /* reserved for the step under way */
	uint64_t step, kept_step;  /* that wrote `extent`, and `kept` */
	struct tier_extent kept;   /* is_ahead: committed, in place of `extent` */
	uint8_t hash_index;        /* which array holds the checksums of `extent` */
	uint8_t kept_index;        /* and of `kept` */
	bool is_ahead;             /* `extent` is of a step that is not committed (ahead.c) */
};

struct zero_subgroup {
	struct zero_job *job;
	uint32_t unit, index;
	uint32_t element_count;
	uint32_t tile_first, tile_count;                  /* place in the arrays of checksums */
	uint64_t param_offset, grad_offset, accum_offset; /* bytes in the planes */
	uint64_t block_first;                             /* place in the norm's blocks */
	struct zero_place places[_ZERO_PLANE_COUNT];
	bool is_reset; /* state counts as zero since param_write_end, whatever is committed */
	void *memory;  /* resident state; NULL: goes through staging */
	void *warm;    /* a slot of staging with its state (warm.c); NULL: none */
	struct zi_list warm_link;
	bool is_first_micro, is_last_micro; /* of the reduction under way */
	struct dev_task reduce_task;
};

enum zero_item_stage {
	ZERO_ITEM_FREE,
	ZERO_ITEM_READING,
	ZERO_ITEM_LOADED,
	ZERO_ITEM_COMPUTING,
	ZERO_ITEM_WRITING
};

/* The order in which subgroups are handled: queue.c. */
struct zero_queue {
	uint32_t *places; /* (count,) of (subgroup_count,) subgroups: begun, ready, ahead */
	uint32_t count, begun_count, ready_count;
	uint32_t *units; /* (unit_count,) foretold order; the first ones as they became ready */
	uint32_t arrival_count;
};

/* One subgroup on its way through the pipeline. */
struct zero_item {
	struct zero_job *job;
	struct zero_subgroup *subgroup;
	enum zero_item_stage stage;
	void *slot;          /* of staging; NULL: none */
	void *state;         /* where the state is now; NULL: not needed */
	void *param;         /* where the parameters are; NULL: not here yet */
	bool is_staged;      /* the state is in the slot */
	bool is_warm;        /* it was there from the step before: nothing to read */
	bool is_param_read;  /* the parameters came from the store, into the slot */
	bool is_state_zero;  /* there is nothing to read: all zero */
	uint32_t move_count; /* in flight */
	struct tier_move moves[_ZERO_PLANE_COUNT];
	struct dev_task task;
	int error;
	struct zi_text text;
};

enum zero_pipeline_kind {
	ZERO_PIPELINE_NONE,
	ZERO_PIPELINE_LOAD,   /* materialise: read param and resident state, verify */
	ZERO_PIPELINE_UPDATE, /* the step: read state, compute, write both */
	ZERO_PIPELINE_WRITE,  /* commit of written parameters: hash, write param */
	ZERO_PIPELINE_KEEP,   /* snapshot of state in memory alone: hash, write both */
	ZERO_PIPELINE_STORE,  /* param_write_end with a pool: copy, hash, write one unit's param */
};

struct zero_pipeline {
	enum zero_pipeline_kind kind;
	bool is_armed;         /* UPDATE: nothing more is needed of the ranks; it may end */
	bool is_aborted;       /* nothing new begins; ends when drained */
	uint32_t active_count; /* items not FREE */
	uint32_t reading_count, computing_count, writing_count;
	uint64_t read_bytes, write_bytes;
	uint64_t io_read_ns, io_write_ns, cpu_ns, ticked_ns;
	int error; /* the first */
	struct zi_text text;
};

/*
 *   NONE ──step_begin──▶ STEPPING ──all steps, norm known──▶ UPDATING ──written──▶ COMMITTING
 *    ▲                      │ group broke                               │ I/O error             │
 *    └──────────────────────┴───────────────────────────────────────────┴───────────────────────┘
 * zero_commit() goes from NONE to COMMITTING, and so does a snapshot of state in memory alone. A
 * skipped step goes from STEPPING to COMMITTING.
 * An early step (is_early) updates units while STEPPING already; should the group break then,
 * memory is no longer the committed step's and is read anew before it is used (job_unload()).
 */
enum zero_step_phase {
	ZERO_STEP_NONE,
	ZERO_STEP_STEPPING,
	ZERO_STEP_UPDATING,
	ZERO_STEP_COMMITTING
};

struct zero_step {
	enum zero_step_phase phase;
	bool is_commit;  /* zero_commit(), not a step */
	bool is_keep;    /* neither: state in memory is written for a snapshot */
	bool is_skipped; /* non-finite */
	bool is_due;     /* it ends in a commit (ahead.c) */
	bool is_unasked; /* a commit that no rank called for */
	bool is_norm_wanted;
	bool is_pass1;                  /* gradients are summed before the update */
	bool is_early;                  /* units are updated as they become ready */
	struct zi_step_options options; /* of the first rank that began; all others' are equal */
	uint32_t options_rank;
	uint32_t generation; /* of the group that began it */
	uint64_t begun_mask;
	uint32_t reduce_count; /* pass 1 in flight, subgroups */
	uint64_t first_step_ns, last_step_ns, update_ns, commit_ns;
	double norm;
	struct kern_hyper hyper;
	struct kern_optim_scalars scalars;
	double next_beta1_power, next_beta2_power;
	uint32_t blob_index; /* of the blobs that are committed with it */
	struct zi_step_stats stats;
};

/*
 *   NONE ──attach──▶ FORMING ──all materialised──▶ LIVE
 *    ▲                  │                            │ a rank died, or left, or an error
 *    │ all left         ▼                            ▼
 *    └───────────────── BROKEN ◀─────────────────────┘
 * (also FORMING → NONE and LIVE → NONE when the last rank leaves). A newer incarnation breaks this
 * one and takes its place at once, whatever a step that is UPDATING still does.
 */
enum zero_group_phase { ZERO_GROUP_NONE, ZERO_GROUP_FORMING, ZERO_GROUP_LIVE, ZERO_GROUP_BROKEN };

/* Calls that wait for every rank. */
enum zero_gather {
	ZERO_GATHER_MATERIALIZE,
	ZERO_GATHER_WRITE_END,
	ZERO_GATHER_COMMIT,
	ZERO_GATHER_STEP,
	ZERO_GATHER_BARRIER,
	_ZERO_GATHER_COUNT
};

struct zero_group {
	enum zero_group_phase phase;
	char name[ZI_NAME_BYTES]; /* "" nameless */
	uint64_t number;
	uint32_t world_size;
	struct zi_job_config config;
	struct zero_rank *ranks[ZI_WORLD_MAX];
	uint32_t rank_count;
	uint32_t generation;                       /* counts what began FORMING */
	uint64_t gather_masks[_ZERO_GATHER_COUNT]; /* who has come; full: the work is under way */
	/* why it is BROKEN; or (error not 0 before) why it breaks at the end of the step that is
	 * being written, or when a rank that left cleanly is needed next (is_left) */
	int error;
	uint32_t culprit;
	struct zi_text text;
	bool is_left;
};

/* Names of incarnations, oldest first, the present one too: who comes with another one of them is
 * late. */
struct zero_history {
	struct catalog_incarnation *names; /* at most CATALOG_INCARNATIONS_MAX */
	uint32_t count, capacity;
	struct catalog_incarnation *record; /* copies for the catalog, while it is asked */
	uint32_t record_count;
};

/* Of the committed step, to fall back to from one that is not. */
struct zero_marks {
	uint64_t update_count;
	double beta1_power, beta2_power;
	uint32_t blob_index;
	uint32_t world; /* whose blobs those are; job->world is that of the last materialise */
};

#define ZERO_BLOBS 3u
struct zero_blob {
	void *bytes; /* (ZI_BLOB_BYTES,) */
	uint64_t byte_count;
};

/* A rank's writable copy of a unit. Outlives its rank while the device fills it. */
struct zero_write {
	struct zero_job *job;
	struct zero_rank *rank; /* NULL: has left */
	struct zero_op *op;     /* param_write_begin; NULL: done, or timed out */
	uint32_t unit;
	bool is_busy, is_loading;
	struct tier_segment *segment;
	struct dev_task task;
	struct zero_load load; /* with a pool: from the store into the segment */
	int error;
	struct zi_text text;
};

struct zero_rank {
	struct zero_job *job;
	uint32_t number;
	uint32_t uid;
	int pid, pidfd; /* pidfd: our own */
	uint64_t timeout_ns;
	zero_broken_fn broken;
	void *broken_arg;
	bool is_member; /* of the job's present group */
	int broken_error;
	uint32_t broken_culprit;
	struct zi_text broken_text;
	struct zi_list notice_link;
	struct zi_list ops; /* pending */
	struct zero_op *gathered[_ZERO_GATHER_COUNT];
	struct zero_snapshot *load;       /* a new job begins with this; NULL: empty */
	struct zero_layout layout;        /* until materialised */
	struct tier_charge stream_charge; /* for it */
	uint32_t *pin_counts;             /* (unit_count,) */
	uint32_t order_place;             /* in the recorded order of units */
	struct zero_write *write;         /* of a unit's parameters; NULL: none */
	struct tier_segment *spare;       /* a copy that it wrote into and may again; NULL: none */
	struct zero_tensors *tensors;     /* NULL: none were opened */
	uint16_t doing;                   /* opcode of the newest call */
	uint32_t doing_unit;
	uint64_t doing_ns;
};

/* A segment that is being built on a device thread. */
struct zero_build {
	struct zero_job *job;
	struct tier_segment *segment;
	struct dev_task task;
	int error;
	struct zi_text text;
};

struct zero_job {
	struct zero *zero;
	struct zi_list jobs_link;
	char name[ZI_NAME_BYTES];
	uint32_t uid;
	struct zero_account *account; /* below the uid's */
	struct tier *cpu_tier;
	struct tier *nvme_tier;     /* NULL: state in memory alone */
	struct nvme_flow *flow;     /* its share of the stores; NULL: there are none */
	struct zi_timer pace_timer; /* is_paced: its next step waits for a budget, and for this */
	bool is_paced;
	struct dev *device;
	uint32_t busy_count;
	uint32_t attached_count; /* ranks, with those of replaced incarnations */
	int refusal;             /* not 0: damaged; attach answers this */
	struct zi_text refusal_text;
	bool is_stuck;    /* could not be moved off a path, and that was told */
	bool is_moving;   /* evacuate_commit.c: the catalog is told where its extents are now */
	bool is_stored;   /* in the catalog */
	bool is_deleting; /* zero_job_destroy(), or a ghost */
	bool is_ghost;
	bool is_destroy_due; /* zero_job_destroy() waits for what is in flight; */
	bool is_undo_due;    /* so do extents of a step that will not be, */
	bool is_unload_due;  /* and job_unload() after it */
	struct zi_post delete_post;
	struct zero_snapshot_op *found_op; /* restore_as.c: who waits for it */
	struct zero_op *destroy_op;
	struct zero_rank *destroy_rank;

	struct zero_group group;
	uint64_t stored_number; /* newest incarnation that the catalog knows */
	struct zero_history history;

	/* layout; there from the first materialize on */
	struct zi_job_config config;
	struct zero_layout layout;
	struct zero_unit *units;
	struct zero_subgroup *subgroups;
	uint32_t subgroup_count, tile_count;
	uint64_t element_count, padded_count;
	uint64_t slot_bytes;
	uint64_t param_bytes, grad_bytes; /* of a plane */

	/* memory; there while materialised */
	bool is_materializing;
	uint32_t materialize_generation; /* of the group it is for */
	bool is_loaded; /* param (and resident state) are those of the committed step */
	uint32_t world;
	struct tier_segment *param, *accum,
		*state;                   /* param: the plane, or with residency the pool */
	struct zero_residency *residency; /* parameters on NVMe; NULL: all in `param` */
	struct tier_segment *grads[ZI_WORLD_MAX];
	struct tier_staging *staging;
	struct tier_segment *staging_segment; /* until it is adopted by the former */
	struct zi_list warm;                  /* subgroups that have a slot of it, oldest first */
	uint32_t resident_count;              /* subgroups before this one stay in `state` */
	struct tier_charge nvme_charge;
	struct zero_build *builds;
	uint32_t build_count, build_pending;
	double *norm_blocks; /* (block_count,) */
	uint64_t block_count;
	uint64_t *hashes[_ZERO_PLANE_COUNT][ZERO_HASHES]; /* (tile_count,) each */
	struct zero_item *items;
	uint32_t item_count;
	/* Where a write of the step under way failed: nobody's until it ends, since something of it
	 * may still land there. */
	struct tier_extent *abandoned; /* (abandoned_max,) */
	uint32_t abandoned_count, abandoned_max;

	struct zero_queue queue;
	struct zero_pipeline pipeline;
	struct zero_step step;
	int64_t committed_step;
	int64_t current_step; /* in force; later than committed_step: ahead.c */
	struct zero_marks committed;
	uint64_t update_count;
	double beta1_power, beta2_power;
	/* in force: blob_index; committed: committed.blob_index; of the step: blob_next() */
	struct zero_blob blobs[ZERO_BLOBS][ZI_WORLD_MAX];
	uint32_t blob_index;
	uint32_t write_unit; /* param_write_end under way */
	struct dev_task write_task;
	struct tier_segment *write_source;

	struct catalog_request request;
	struct catalog_job record;
	struct catalog_extent *record_extents; /* (2 × subgroup_count,) */
	uint32_t record_members; /* of the nvme tier, that lie under them: tier_member_bit() */
	struct zero_flush record_flush;
	struct catalog_blob record_blobs[ZI_WORLD_MAX];
	struct catalog_traffic record_traffic[2 + TIER_MEMBERS_MAX];
	struct zi_timer timer;
	uint64_t timer_ns; /* deadline it is armed for; ZI_DEADLINE_NEVER: not */

	struct zi_step_stats last_stats;
	uint64_t read_bytes, write_bytes;
	/* snapshot_interval: those that failed since the last one that did not, and why */
	uint32_t unkept_count;
	struct zi_text unkept_text;
};
