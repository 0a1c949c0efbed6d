/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns what of a model whose planes are divided among ranks, and the bytes that each rank then
 * stands for: the table of strategies (docs/ARITHMETIC.md, "Strategies"). Pure, so that daemon and
 * estimates say the same. Floor 1, any thread.
 *
 * Whole subgroups are dealt out, never cut: extents, checksums, snapshots and exports then do not
 * depend on the strategy.
 */
#pragma once

#include "common/base/types.h"
#include "common/wire/control.h"
#include "common/wire/training.h"

/* What is left of a model after others were dealt out, in elements. */
struct zi_owners {
	uint32_t member_count;
	uint64_t element_counts[ZI_WORLD_MAX]; /* (member_count,) of each member */
};

void zi_owners_init(struct zi_owners *owners, uint32_t member_count);
/* The member that owns the next subgroup, in the order of the model. */
uint32_t zi_owners_deal(struct zi_owners *owners, uint64_t element_count);
/* All subgroups of units of (unit_count,) @unit_padded elements. */
void zi_owners_deal_units(struct zi_owners *owners, const uint64_t *unit_padded,
                          uint32_t unit_count);

/* Members of a set of @member_count that divide a plane among them: 1 where nothing is divided. */
uint32_t zi_shard_members(const struct zi_job_training *training, uint32_t member_count);
/* Parameters on NVMe, of ranks on several nodes: may a node need what another one holds? @has_sets:
 * sets of ranks are named. */
bool zi_params_are_lent(const struct zi_job_training *training, bool has_sets);
/* Are the gradients that a rank holds its share? Not where it adds up several micro-batches. */
bool zi_grads_are_divided(const struct zi_job_config *config,
                          const struct zi_job_training *training);

/* Units of gradients that a rank has under way: one is being reduced while the next is written. */
#define ZI_BUCKETS 2u

/* A rank's share of a model, in elements with padding. */
struct zi_share {
	uint64_t padded_count;  /* of the model */
	uint64_t owned_count;   /* of which the rank owns, where a plane is divided */
	uint64_t largest_count; /* of the longest unit */
};

/* Logical bytes: what a rank would hold by itself, wherever they lie and however many ranks share
 * one copy. */
struct zi_plane_bytes {
	uint64_t param;      /* owned, or all */
	uint64_t param_live; /* parameters divided: units in use, beside those owned */
	uint64_t grad;
	uint64_t grad_buckets; /* gradients divided: those on their way to their owners */
	uint64_t accum;        /* fp32 sums of the sharded schedule, or of 16-bit gradients */
	uint64_t state;
};

void zi_logical_bytes(const struct zi_share *share, const struct zi_job_config *config,
                      const struct zi_job_training *training, struct zi_plane_bytes *ret_bytes);
uint64_t zi_plane_bytes_sum(const struct zi_plane_bytes *bytes);
