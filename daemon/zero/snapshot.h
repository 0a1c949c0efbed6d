/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of zero/: snapshots, and extents with several holders: what their files offer each other.
 * Part of internal.h. Floor 5; shard thread, but for what is said.
 */
#pragma once

#include "daemon/zero/job.h"

/* ---- share.c ---- */
int share_reserve(struct zero_shares *shares, uint32_t count);
void share_hold(struct zero_shares *shares, const struct tier_extent *extent);
void share_release(struct zero_shares *shares, struct tier_extent *extent);
int share_claim(struct zero_shares *shares, const struct tier_extent *extent, uint64_t digest);
int share_keep(struct zero_shares *shares, const struct tier_extent *extent);
int share_recovered(struct zero_shares *shares);
void share_free(struct zero_shares *shares);

/* ---- snapshot.c ---- */
struct zero_snapshot *snapshot_find(struct zero *zero, const char *job, const char *name);
/* From the catalog; @record is owned by this. */
int snapshot_recover(struct zero *zero, struct catalog_job *record);
struct zero_snapshot *snapshot_free(struct zero_snapshot *snapshot);
/* Of a tier: what is charged for snapshots, or held without. */
uint64_t snapshot_held_bytes(const struct zero *zero, const struct tier *tier);
/* In the list, WAITING. NULL: -ENOMEM. */
struct zero_snapshot *snapshot_new(struct zero *zero, const char *job, const char *name,
                                   uint32_t uid);
/* The tier it lies on; NULL: it holds nothing. */
struct tier *snapshot_tier(const struct zero_snapshot *snapshot);
/* To its uid, for held_bytes. @tier: NULL: it holds nothing. -EDQUOT, -ENOSPC with figures. */
int snapshot_charge(struct zero_snapshot *snapshot, struct tier *tier, struct zi_text *text);
/* What is read of this job, and was not paid for while it was at rest. -EBUSY with figures. */
int snapshot_pay(struct zero_job *job, struct zi_text *text);
/* To the catalog: STORING or DELETING. */
void snapshot_submit(struct zero_snapshot *snapshot, enum zero_snapshot_phase phase,
                     catalog_request_fn done);
/* Who waits for it hears @result; nobody: a failure is logged. */
void snapshot_tell(struct zero_snapshot *snapshot, int result, const struct zi_text *text);
void snapshot_op_end(struct zero *zero, struct zero_snapshot_op *op, int result);
int snapshot_access(uint32_t owner_uid, const struct zero_snapshot_op *op, struct zi_text *text);
/* The oldest automatic ones of a job give way, but for the newest @keep_count. */
void snapshot_retain(struct zero *zero, const char *job, uint32_t keep_count);

/* ---- snapshot_make.c ---- */
/* Where its phase lets it, what waits for this job goes on. */
void snapshot_retry(struct zero_job *job);
/* Nobody will end its steps any more: what waits for it is refused. */
void snapshot_cancel(struct zero_job *job, int error, const char *why);
/* The step, in which the KEEP pipeline began, is no more. */
void snapshot_outlives_step(struct zero_job *job);
/* The KEEP pipeline has ended. */
void snapshot_written(struct zero_job *job, int error, const struct zi_text *text);

/* The job has committed; it stood at @former_step before. */
void snapshot_keep_due(struct zero_job *job, int64_t former_step);
/* The catalog has taken it, or not. */
void snapshot_stored(struct catalog_request *request);

/* ---- import_write.c ---- */
/* The paths that what it holds lies on, of one tier: tier_member_bit(). 0: it holds nothing. */
uint32_t snapshot_members(const struct zero_snapshot *snapshot, struct tier **ret_tier);

/* ---- load.c ---- */
/* Types and optimizer are the snapshot's. -EINVAL with the difference. */
int load_config_check(const struct zi_job_config *config, const struct zero_snapshot *snapshot,
                      struct zi_text *text);
bool load_is_due(const struct zero_job *job);
int load_check(const struct zero_rank *rank, struct zi_text *text);
int load_adopt(struct zero_job *job, struct zi_text *text);
void load_undo(struct zero_job *job);
void load_forget(struct zero_rank *rank);

/* ---- restore_as.c ---- */
/* zero_snapshot_restore() with another name. */
void snapshot_restore_as(struct zero *zero, struct zero_snapshot_op *op);

/* ---- evacuate.c ---- */
/* Looks for jobs at rest on paths that are to be left. Cheap when there are none such. */
void evacuate_kick(struct zero *zero);
/* The snapshot goes. */
void evacuate_forget(struct zero_snapshot *snapshot);
/* Its rows may name other places: nobody reads it, and no request about it is out. */
bool snapshot_is_movable(const struct zero_snapshot *snapshot);
