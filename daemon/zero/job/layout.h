/* SPDX-License-Identifier: Apache-2.0 */
/* Units and subgroups of a model. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/device/device.h"
#include "daemon/zero/place/extent.h"
#include "daemon/zero/zero.h"

struct zero_job;

/* Elements whose tables take a byte at least, twice over: they may have half of the memory there is
 * (7 KiB for 2^20, docs/ARCHITECTURE.md). */
#define LAYOUT_TABLE_ELEMENTS 64u

/* What a rank streams, and what a job keeps. */
struct zero_layout {
	struct catalog_set *sets; /* as the catalog has them; (set_count,) */
	struct catalog_unit *units;
	struct catalog_param *params;
	uint32_t set_count, set_capacity;
	uint32_t set; /* that the next unit streamed belongs to */
	uint32_t unit_count, unit_capacity;
	uint32_t param_count, param_capacity;
};

struct zero_unit {
	uint64_t element_count, padded_count;
	uint64_t param_offset; /* bytes in the plane */
	uint64_t grad_offset;  /* in the gradients of its set (job/set.h) */
	uint32_t subgroup_first, subgroup_count;
	uint32_t here_count;                   /* subgroups that this node holds, */
	uint32_t kept_count;                   /* and whose parameters it stores: job_keeps() */
	uint32_t stretch_first, stretch_count; /* in job->stretches */
	bool is_frozen;      /* all of it: no gradient, and steps leave it where it is */
	uint64_t users_mask; /* ranks of the group that have it unsharded */
	/* this step */
	uint32_t cut_count; /* stretches, with those that nobody used (step/unused.h); 0: as ever */
	uint64_t handed_mask;  /* ranks that handed over this micro-batch's gradient */
	uint64_t held_mask;    /* ranks whose buffer is the daemon's */
	uint32_t micro_done;   /* micro-batches that are reduced */
	uint32_t reduce_count; /* subgroups that are being reduced */
	bool is_ready;         /* its update may begin: nobody uses it any more */
	uint32_t update_count; /* subgroups that are not yet at this step */
	bool has_part_waiting; /* ranks wait for some of these */
	bool is_part_used;     /* since its last update a rank used a part of it first */
	uint32_t pooled_count; /* subgroups that are being updated in the pool */
	uint32_t place;        /* in the foretold order */
	uint32_t write_count;  /* subgroups whose new parameters are not yet in the store */
	/* between steps */
	bool is_written;       /* by param_write_end, and not committed */
	bool is_copying;       /* param_write_end is at work */
	bool is_param_next;    /* the newest parameters lie in the extents of the commit to come */
	bool is_state_written; /* optimizer state of it by a rank, and not committed */
};

struct zero_subgroup {
	struct zero_job *job;
	uint32_t unit, index;
	uint32_t element_count;
	bool is_here;       /* held by this node: its extents and optimizer state */
	bool is_param_here; /* its parameters stay on this node, in memory or on the store */
	bool is_kept;       /* these have an extent here: job_keeps() */
	/* former_is_elsewhere(): the node held it when it made the former commit */
	bool is_former_here;
	uint8_t owner;    /* the member of its set that has its state, and so in each replica */
	uint8_t finisher; /* the rank whose node finishes its sum */
	uint32_t tile_first, tile_count;     /* place in the arrays of checksums */
	uint64_t param_offset, accum_offset; /* bytes in the planes */
	uint64_t shard_offset;               /* in job->shard, where that is and it is here */
	uint64_t grad_begin;                 /* bytes behind its unit's first gradient */
	uint64_t block_first;                /* place in the norm's blocks */
	struct zero_place places[_ZERO_PLANE_COUNT];
	void *sum; /* with buckets: of its gradients, once it is made; NULL: in the store */
	bool is_sum_stored;
	struct zero_place sum_place;        /* `next`: where */
	struct zero_spill_slot *spill_slot; /* on its way there */
	struct zi_list spill_link;
	bool is_param_next; /* as its unit's: of this step, whatever others of the unit are */
	bool is_update_due; /* one of its unit's update_count; undefined where that is 0 */
	bool is_reset;      /* state counts as zero since param_write_end, whatever is committed */
	bool is_state_next; /* a rank wrote its state, which the commit to come stores */
	void *memory;       /* resident state; NULL: goes through staging */
	void *warm;         /* a slot of staging with its state (warm.c); NULL: none */
	struct zi_list warm_link;
	bool is_first_micro, is_last_micro; /* of the reduction under way */
	uint32_t culprit;                   /* of this step: a rank, or as culprit.h says */
	struct dev_task reduce_task;
};

/* Of its unit. */
static inline uint64_t subgroup_element(const struct zero_subgroup *subgroup)
{
	return (uint64_t)subgroup->index * ZI_SUBGROUP_ELEMENTS;
}

/* NULL: of all ranks. */
static inline const struct catalog_set *layout_set_at(const struct zero_layout *layout,
                                                      uint32_t unit)
{
	return layout->set_count ? &layout->sets[layout->units[unit].member_set] : NULL;
}

void layout_free(struct zero_layout *layout);
int layout_check(const struct zero_layout *layout, struct zi_text *text);
/* No name twice: exports and trainers know parameters by it alone. Of new jobs: stored ones may be
 * older than this rule. Precondition: layout_check(). -EINVAL, -ENOMEM. */
int layout_check_params(const struct zero_layout *layout, struct zi_text *text);
/* -EINVAL and the first difference, in terms of @who and @model_who. */
int layout_compare(const struct zero_layout *layout, const char *who,
                   const struct zero_layout *model, const char *model_who, struct zi_text *text);
/* The same of sets alone: who trains what is not the model's, but a start's. */
int layout_compare_sets(const struct zero_layout *layout, const char *who,
                        const struct zero_layout *model, const char *model_who,
                        struct zi_text *text);
/* Another start of the job trains by the sets of @source, which has the same units. -ENOMEM. */
int layout_take_sets(struct zero_layout *layout, const struct zero_layout *source);
/* Elements with padding of the unit whose first parameter is @param, which then is the first
 * one of the next unit; of a layout that was checked. */
uint64_t layout_padded_from(const struct zero_layout *layout, uint32_t *param);
/* … of all of it. */
uint64_t layout_padded_count(const struct zero_layout *layout);
uint64_t layout_subgroup_count(const struct zero_layout *layout); /* likewise */
/* … of units that any of @ranks trains. */
uint64_t layout_trained_count(const struct zero_layout *layout, uint64_t ranks);
/* Of all gradients together of those of the ranks that are in @ranks. */
uint64_t layout_grad_count(const struct zero_layout *layout, uint64_t ranks);
/* … and of those of one rank that is in all sets. */
uint64_t layout_sum_count(const struct zero_layout *layout);
/* Units and subgroups of job->layout, and the arrays that a step needs. */
int layout_build(struct zero_job *job, struct zi_text *text);
void layout_unbuild(struct zero_job *job);
