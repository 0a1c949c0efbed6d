/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job will hold in each tier, before it exists: for estimates, and for the words of a
 * refusal. Pure arithmetic, of the same numbers as daemon/zero/job/memory.c, which a test compares
 * with it. Floor 1, any thread.
 */
#pragma once

#include "common/base/text.h"
#include "common/wire/control.h"
#include "common/wire/training.h"

/* A step's pipeline needs one slot to read, one to compute and one to write. */
#define ZI_PLAN_SLOTS_MIN 3u
#define ZI_PLAN_SLOTS_MAX 4096u
/* Of a job without steps at most: only first values pass through, which come one by one. */
#define ZI_PLAN_SLOTS_FORWARD 8u
/* Where neither the job nor the daemon says: the daemon's own default. */
#define ZI_PLAN_STAGING_BYTES (128ull << 20)
/* Over nodes: of the slab through which they pull, for each node; and subgroups of parameters on
 * NVMe that lie in memory for others, with zero3. */
#define ZI_PLAN_TALK_BYTES   (8ull << 20)
#define ZI_PLAN_LENT_BUFFERS 8u

struct zi_plan_model {
	uint64_t element_count, padded_count; /* of all units */
	uint32_t unit_count, param_count;     /* the latter is for ZI_TRAINING_FIND_UNUSED alone */
	const uint64_t *unit_padded;          /* (unit_count,) multiples of a block */
	/* Ranks that train a unit: its set's; without sets all of them do. */
	uint32_t set_count;          /* at most ZI_SETS_MAX */
	const uint64_t *set_members; /* (set_count,) bits */
	const uint32_t *unit_sets;   /* (unit_count,) */
};

struct zi_plan_options {
	struct zi_job_config config;
	struct zi_job_training training;
	uint32_t local_ranks, world_size;   /* on a node; in all */
	uint64_t here_mask;                 /* those on the node; 0: the first ones */
	uint32_t node_count;                /* 0 is 1 */
	uint64_t default_staging_bytes;     /* the daemon's step.staging; 0: its default */
	bool wants_huge;                    /* tier.cpu.huge_pages is not "never" */
	uint64_t tensor_bytes, arena_bytes; /* of each rank; 0 none */
	uint32_t snapshot_count;            /* kept beside the job, each wholly its own */
	bool stays_on_nvme; /* offload_optimizer nvme for good: a step of it is committed */
};

struct zi_plan {
	uint64_t param_cpu_bytes, grad_cpu_bytes, accum_cpu_bytes, state_cpu_bytes;
	uint64_t staging_cpu_bytes, tensor_cpu_bytes;
	uint64_t coll_cpu_bytes; /* arenas; not the boards, some pages each */
	uint64_t copy_cpu_bytes; /* of a unit: of the rank that gives first values, and after */
	uint64_t cpu_bytes;      /* of all these */
	uint64_t param_nvme_bytes, state_nvme_bytes; /* once a step is committed */
	uint64_t grad_nvme_bytes;                    /* during a step that sums before it updates */
	uint64_t reserved_nvme_bytes;                /* charged, with snapshots */
	uint64_t read_bytes_per_step,
		write_bytes_per_step; /* at most: none left warm, none early. Forward only:
		                       * by a pass over all units, and nothing */
	uint64_t slot_bytes;          /* a unit begins at a multiple of it */
	uint64_t staging_min_bytes;   /* with less no step is possible; 0: none is needed */
	uint64_t pool_min_bytes;      /* of a pool of parameters: for the largest unit; else 0 */
	uint64_t bucket_cpu_bytes;    /* of grad_cpu_bytes, each rank's; 0: it has a whole plane */
};

int zi_plan_make(const struct zi_plan_model *model, const struct zi_plan_options *options,
                 struct zi_plan *ret_plan, struct zi_text *text);
int zi_plan_fit(const struct zi_plan_model *model, const struct zi_plan_options *options,
                uint64_t cpu_bytes, uint64_t nvme_bytes, struct zi_job_config *ret_config,
                struct zi_text *text);
int zi_plan_fit_strategy(const struct zi_plan_model *model, const struct zi_plan_options *options,
                         uint64_t cpu_bytes, uint64_t nvme_bytes, struct zi_plan_options *ret_found,
                         struct zi_text *text);
