/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job and its parts: what they hold. Who calls whom is in zero_private.h. Floor 5; shard
 * thread, but for what update.c and reduce.c say of their device tasks.
 */
#pragma once

#include "common/base/assert.h"
#include "common/wire/owner.h"
#include "common/wire/training.h"
#include "daemon/catalog/catalog.h"
#include "daemon/device/device.h"
#include "daemon/tier/account.h"
#include "daemon/tier/member.h"
#include "daemon/tier/move.h"
#include "daemon/tier/segment.h"
#include "daemon/tier/staging.h"
#include "daemon/zero/across/agree/model.h"
#include "daemon/zero/across/talk/meeting.h"
#include "daemon/zero/collectives/collectives.h"
#include "daemon/zero/grad/bucket.h"
#include "daemon/zero/grad/pool.h"
#include "daemon/zero/grad/spill.h"
#include "daemon/zero/job/group.h"
#include "daemon/zero/job/history.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/memory.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/set.h"
#include "daemon/zero/job/start.h"
#include "daemon/zero/param/residency.h"
#include "daemon/zero/param/write.h"
#include "daemon/zero/param/write_far.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/place/former.h"
#include "daemon/zero/state/state.h"
#include "daemon/zero/step/ahead.h"
#include "daemon/zero/step/commit.h"
#include "daemon/zero/step/doubt.h"
#include "daemon/zero/step/item.h"
#include "daemon/zero/step/join.h"
#include "daemon/zero/step/pipeline.h"
#include "daemon/zero/step/power.h"
#include "daemon/zero/step/queue.h"
#include "daemon/zero/step/step.h"
#include "daemon/zero/tensor/tensor.h"
#include "daemon/zero/zero.h"
#include "daemon/zero/zero_private.h"
#include "kernels/optim.h"

struct across;
struct heal;
struct zero_stretch;
struct zero_unused;

struct zero_rank {
	struct zero_job *job;
	uint32_t number;
	uint32_t uid;
	int pid;
	struct tier_holder *holder; /* of what its process received */
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
	struct zero_state *state;         /* NULL: no window was opened */
	/* Of its newest STEP_BEGIN or STEP_OPTIONS. */
	struct zi_step_group step_groups[ZI_PARAM_GROUPS_MAX];
	struct zi_step_betas step_betas[ZI_PARAM_GROUPS_MAX];
	uint16_t doing; /* opcode of the newest call */
	uint32_t doing_unit;
	uint64_t doing_ns;
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
	bool is_lost;            /* in zero->lost (lost.h) */
	int64_t lost_step;       /* and where it stood; -1: it never was */
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
	struct zero_snapshot_op *found_op;  /* restore_as.c: who waits for it */
	struct zero_snapshot_op *delete_op; /* delete_rest.c: the same */
	struct zero_op *destroy_op;
	struct zero_rank *destroy_rank;

	struct zero_group group;
	struct zero_collectives collectives; /* of the group */
	struct zero_meeting meeting;         /* so; where it spans nodes */
	struct across *across;               /* NULL: all of it is here, or it has no model yet */
	model_agreed_fn model_agreed;        /* while nodes are asked for theirs */
	struct heal *heal;                   /* while what moves comes, and the catalog is told */
	uint64_t stored_number;              /* newest incarnation that the catalog knows */
	struct zero_history history;

	/* layout; there from the first materialize on */
	struct zi_job_config config;
	struct zi_job_training training;
	bool is_stateless;      /* made forward only: it has no optimizer state (forward.h) */
	bool is_training_known; /* from whoever materialised it last, or from the catalog */
	struct zero_layout layout;
	struct tier_charge layout_charge; /* for it, where it is not small */
	struct zero_unit *units;
	struct zero_stretch
		*stretches;         /* of all units (stretches.h); made anew at each materialize */
	struct zero_unused *unused; /* so; NULL: a parameter without a gradient is an error */
	struct zero_subgroup *subgroups;
	uint32_t subgroup_count, tile_count;
	uint64_t element_count, padded_count;
	uint32_t here_count;         /* subgroups that this node holds (place/owner.h), */
	uint64_t here_elements;      /* and their elements, with padding; */
	uint32_t kept_count;         /* those whose parameters have extents: job_keeps(), */
	uint64_t kept_elements;      /* and theirs */
	uint32_t advised_generation; /* of the group that was told which setting would fit a copy */
	uint64_t slot_bytes;
	uint64_t param_bytes; /* of the plane */

	/* memory; there while materialised */
	bool is_materializing;
	uint32_t materialize_generation; /* of the group it is for */
	struct zero_join join;           /* over nodes: of a node without data */
	struct zero_start before;        /* while it is under way: what a failure goes back to */
	int materialize_error;           /* not 0: so it ends when nothing is in flight any more */
	struct zi_text materialize_text;
	bool is_loaded; /* param (and resident state) are those of the committed step */
	uint32_t world;
	uint64_t here_mask;    /* those ranks of it that are on this node */
	struct zero_set *sets; /* (set_count,) at least one; with the tables of the layout */
	uint32_t set_count;
	struct zi_share shares[ZI_WORLD_MAX]; /* (world,) each rank's of the model */
	struct tier_segment *param, *accum,
		*state;                           /* param: the plane, or with residency the pool */
	struct tier_segment *shard, *lent;        /* shard.h; NULL: there is none */
	struct zero_residency *residency;         /* NULL: all parameters are in `param` */
	struct tier_segment *grads[ZI_WORLD_MAX]; /* a plane each, or buckets: */
	struct zero_grad_pool *grad_pool;         /* which units lie in them; NULL: a plane each */
	struct tier_segment *sums;                /* with buckets; else they lie in `grads` */
	struct zero_spill *spill;  /* of sums that go to the store; NULL: none does */
	struct zi_grads grad_plan; /* what was chosen */
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
	struct zero_doubt doubt; /* of one that others may have made */
	int64_t committed_step;
	int64_t current_step; /* in force; later than committed_step: ahead.c */
	struct zero_marks committed;
	const struct zero_votes *votes; /* of its other nodes, about commits; NULL: it has none */
	struct zero_former former;
	uint64_t update_count;
	double beta1_power, beta2_power;
	struct zero_scale scale; /* in force, as are these */
	struct zero_power powers[ZI_PARAM_GROUPS_MAX]
				[2]; /* of betas of groups, for the next step */
	/* in force: blob_index; committed: committed.blob_index; of the step: blob_next() */
	struct zero_blob blobs[ZERO_BLOBS][ZI_WORLD_MAX];
	uint32_t blob_index;
	uint32_t write_unit; /* param_write_end under way */
	bool write_keeps;    /* and the unit's optimizer state stays */
	struct zero_state_put state_put;
	struct dev_task write_task;
	struct tier_segment *write_source;
	struct write_far write_far; /* from another node */

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

/* ---- job.c ---- */

int job_new(struct zero *zero, const char *name, uint32_t uid, struct zero_job **ret_job);
struct zero_job *job_free(struct zero_job *job);
struct zero_job *job_find(struct zero *zero, const char *name);
/* Of several tiers the index of the one with most room. */
uint32_t job_roomiest(const struct tier *tiers, uint32_t count);
void job_step_set(struct zero_job *job, enum zero_step_phase phase);
void job_group_set(struct zero_job *job, enum zero_group_phase phase);
const char *job_phase_name(const struct zero_job *job);
static inline void job_busy(struct zero_job *job)
{
	job->busy_count++;
}
/* What was in flight is over. Whoever finds nothing more to do ends in job_settle(). */
static inline void job_unbusy(struct zero_job *job)
{
	assert(job->busy_count > 0);
	job->busy_count--;
}
/* Does what waits for quiet: ends a job, gives memory back, materialises. May free the job. */
void job_settle(struct zero_job *job);
/* Frees memory that an idle job need not hold. Nothing may be in flight. */
void job_drop_memory(struct zero_job *job);
void job_drop_param(struct zero_job *job);
/* The part of it that serves one incarnation. */
void job_drop_incarnation(struct zero_job *job);
/* What is in memory is no longer what is committed; no-op where memory is the only copy. */
void job_unload(struct zero_job *job);
static inline bool job_is_nvme(const struct zero_job *job)
{
	return job->config.offload_optimizer == ZI_OFFLOAD_NVME;
}
/* Parameters are on NVMe, and come from there. */
static inline bool job_stores_param(const struct zero_job *job)
{
	return job->config.offload_param == ZI_OFFLOAD_NVME;
}
/* Its ranks, those that it has or had last, have neither gradients nor steps (forward.h). */
static inline bool job_is_forward_only(const struct zero_job *job)
{
	return zi_training_is_forward_only(&job->training);
}
static inline bool job_spans_nodes(const struct zero_job *job)
{
	return job->group.local_size < job->group.world_size;
}
/* A node holds parameters of its own subgroups alone. */
static inline bool job_divides_param(const struct zero_job *job)
{
	return job_spans_nodes(job) && zi_strategy_divides_params(job->training.strategy);
}
/* What it has on its store is read for other nodes as well (across/bytes/lent.h). */
static inline bool job_lends_param(const struct zero_job *job)
{
	return job_stores_param(job) && job_spans_nodes(job) &&
	       zi_params_are_lent(&job->training, sets_are_named(job));
}
/* In memory are those units that are used: job->residency while materialised. */
static inline bool job_has_pool(const struct zero_job *job)
{
	return job_stores_param(job) || job_divides_param(job);
}
/* The first @count ranks. */
static inline uint64_t job_mask_of(uint32_t count)
{
	return count == 64 ? UINT64_MAX : (1ull << count) - 1;
}
static inline uint64_t job_world_mask(const struct zero_job *job)
{
	return job_mask_of(job->group.world_size);
}
static inline uint32_t job_state_bytes(const struct zero_job *job)
{
	return job->is_stateless ? 0
	                         : zi_state_element_bytes((enum zi_optimizer)job->config.optimizer,
	                                                  (enum zi_dtype)job->config.param_dtype);
}
static inline uint64_t job_subgroup_state_bytes(const struct zero_job *job,
                                                const struct zero_subgroup *subgroup)
{
	return (uint64_t)subgroup->element_count * job_state_bytes(job);
}
static inline uint64_t job_subgroup_param_bytes(const struct zero_job *job,
                                                const struct zero_subgroup *subgroup)
{
	return (uint64_t)subgroup->element_count *
	       zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
}
static inline uint64_t job_subgroup_grad_bytes(const struct zero_job *job,
                                               const struct zero_subgroup *subgroup)
{
	return (uint64_t)subgroup->element_count *
	       zi_dtype_bytes((enum zi_dtype)job->config.grad_dtype);
}

/* In what sums of gradients are rounded, as are their leaves, */
static inline enum zi_dtype job_reduce_dtype(const struct zero_job *job)
{
	return zi_training_reduce_dtype(&job->training, &job->config);
}
/* and in what they lie: in 16 bits only where gradients do. */
static inline enum zi_dtype job_sum_dtype(const struct zero_job *job)
{
	return job_reduce_dtype(job) == ZI_DTYPE_F32 ? ZI_DTYPE_F32
	                                             : (enum zi_dtype)job->config.grad_dtype;
}
/* They have memory of their own, in f32: the accumulator's. */
static inline bool job_has_wide_sums(const struct zero_job *job)
{
	return zi_training_has_wide_sums(&job->training, &job->config);
}
/* Bytes of @element_count parameters. */
static inline uint64_t job_param_bytes(const struct zero_job *job, uint64_t element_count)
{
	return element_count * zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
}
/* From where its unit's parameters begin to where the subgroup's do. */
static inline uint64_t job_subgroup_param_begin(const struct zero_job *job,
                                                const struct zero_subgroup *subgroup)
{
	return subgroup->param_offset - job->units[subgroup->unit].param_offset;
}
/* Where a subgroup's parameters are; NULL: with a pool, where they are not in it. With a shard: of
 * those that are here. */
static inline void *job_subgroup_param(const struct zero_job *job,
                                       const struct zero_subgroup *subgroup)
{
	char *pooled;

	if (job->shard)
		return (char *)job->shard->region.base + subgroup->shard_offset;
	if (!job->residency)
		return (char *)job->param->region.base + subgroup->param_offset;
	pooled = residency_param(job, subgroup->unit);
	return pooled ? pooled + job_subgroup_param_begin(job, subgroup) : NULL;
}
/* Where a unit's parameters are, without a pool. */
static inline void *job_unit_param(const struct zero_job *job, uint32_t unit)
{
	return (char *)job->param->region.base + job->units[unit].param_offset;
}

/* ---- what of it is here ---- */

/* The first rank of this node: of several that agree it speaks. */
static inline uint32_t job_first_rank(const struct zero_job *job)
{
	assert(job->here_mask);
	return (uint32_t)__builtin_ctzll(job->here_mask);
}
/* The next rank of this node, from @rank on; ZI_WORLD_MAX: none. */
static inline uint32_t job_rank_here(const struct zero_job *job, uint32_t rank)
{
	uint64_t rest = rank < ZI_WORLD_MAX ? job->here_mask >> rank : 0;

	return rest ? rank + (uint32_t)__builtin_ctzll(rest) : ZI_WORLD_MAX;
}
#define for_each_rank_here(job, rank)                                    \
	for (uint32_t rank = job_rank_here(job, 0); rank < ZI_WORLD_MAX; \
	     rank = job_rank_here(job, rank + 1))
/* The next subgroup that this node holds, from @index on; NULL: none. */
static inline struct zero_subgroup *job_subgroup_here(const struct zero_job *job, uint32_t index)
{
	while (index < job->subgroup_count && !job->subgroups[index].is_here)
		index++;
	return index < job->subgroup_count ? &job->subgroups[index] : NULL;
}
/* The sum of its gradients is made on this node. */
static inline bool job_finishes(const struct zero_job *job, const struct zero_subgroup *subgroup)
{
	return !job->units[subgroup->unit].is_frozen && job->here_mask >> subgroup->finisher & 1;
}
static inline uint32_t job_subgroup_index(const struct zero_job *job,
                                          const struct zero_subgroup *subgroup)
{
	return (uint32_t)(subgroup - job->subgroups);
}
/* Is there an extent of that plane of it here, or to be? Parameters on NVMe are on the store of
 * whoever has them, also where another node updates them (zero1, zero2). */
static inline bool job_keeps(const struct zero_subgroup *subgroup, uint32_t plane)
{
	return plane == ZERO_PLANE_PARAM ? subgroup->is_kept : subgroup->is_here;
}
/* … and they come from there. */
static inline bool job_keeps_copy(const struct zero_subgroup *subgroup)
{
	return subgroup->is_kept && !subgroup->is_here;
}
/* What is to be reserved, read, computed, written, told of. What is given back is looked for in all
 * of them: owners change. */
#define for_each_subgroup_here(job, subgroup)                                      \
	for (struct zero_subgroup *subgroup = job_subgroup_here(job, 0); subgroup; \
	     subgroup = job_subgroup_here(job, job_subgroup_index(job, subgroup) + 1))

/* ---- what a job is at ---- */

static inline bool gather_is_full(const struct zero_job *job, enum zero_gather gather)
{
	return job->group.world_size &&
	       (uint32_t)__builtin_popcountll(job->group.gather_masks[gather]) ==
	               job->group.local_size;
}
/* … and so have those of other nodes. */
static inline bool gather_is_agreed(const struct zero_job *job, enum zero_gather gather)
{
	return gather_is_full(job, gather) && (!job->across || job->group.agreed >> gather & 1);
}
/* All have come here, and others are asked: it is about to begin. */
static inline bool gather_is_asked(const struct zero_job *job, enum zero_gather gather)
{
	return gather_is_full(job, gather) && !gather_is_agreed(job, gather);
}
static inline struct zero_residence *residence_of(const struct zero_job *job, uint32_t unit)
{
	return &job->residency->units[unit];
}
static inline bool job_is_ahead(const struct zero_job *job)
{
	return job->current_step > job->committed_step;
}
/* State in memory alone is one copy, whatever the catalog says of it. */
static inline bool job_keeps_former(const struct zero_job *job)
{
	return job->step.votes && job_is_nvme(job);
}
static inline uint32_t job_interval(const struct zero_job *job)
{
	return job_is_forward_only(job) ? 1 : ZI_MAX(job->config.commit_interval, 1u);
}
