/* SPDX-License-Identifier: Apache-2.0 */
/* Committed steps that are kept. Floor 5, shard thread. */
#pragma once

#include "common/base/types.h"
#include "daemon/catalog/catalog.h"
#include "daemon/tier/tier.h"
#include "daemon/zero/zero.h"
#include "daemon/zero/zero_private.h"

struct zero_snapshot *snapshot_find(struct zero *zero, const char *job, const char *name);
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
/* Whether the asker may use what belongs to @owner_uid. Otherwise the answer is the one for a name
 * that does not exist: names of other uids cannot be probed. */
bool snapshot_may_use(uint32_t owner_uid, const struct zero_snapshot_op *op);
/* Whether the asker may change @job now. @job: NULL where there is none. -ENOENT, or what
 * change_check() says. */
int snapshot_job_check(const struct zero *zero, const struct zero_job *job,
                       const struct zero_snapshot_op *op, struct zi_text *text);
/* Whether the snapshot can be read, by the asker. @snapshot: NULL where there is none. -ENOENT, or
 * what is wrong with it. */
int snapshot_read_check(const struct zero_snapshot *snapshot, struct zero_snapshot_op *op);
