/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of subgroups through read, compute and write: what its parts offer each other and the
 * rest of zero/. Floor 5; shard thread, but for what update.c says.
 *
 *   queue.c     which one comes next
 *   warm.c      whose state is there from the step before
 *   item.c      one of them on its way
 *   pipeline.c  as many at once as there are items and slots; begin and end
 *   update.c    what device threads do with it
 */
#pragma once

#include "daemon/zero/job.h"

/* ---- queue.c ---- */
int queue_build(struct zero_job *job);
void queue_unbuild(struct zero_job *job);
void queue_fill(struct zero_job *job, enum zero_pipeline_kind kind, bool is_early);
struct zero_subgroup *queue_peek(struct zero_job *job, bool *ret_is_ready);
void queue_take(struct zero_job *job);
void queue_return(struct zero_job *job, const struct zero_subgroup *subgroup);
void queue_ready(struct zero_job *job, uint32_t unit);
void queue_ready_all(struct zero_job *job);

/* ---- warm.c ---- */
void warm_keep(struct zero_subgroup *subgroup, void *slot);
void *warm_claim(struct zero_subgroup *subgroup);
void warm_drop(struct zero_subgroup *subgroup);
void warm_drop_all(struct zero_job *job);
void *warm_slot(struct zero_job *job);

/* ---- item.c ---- */
/* False when it must wait for a staging slot. */
bool item_begin(struct zero_item *item, struct zero_subgroup *subgroup);
bool item_is_ready(const struct zero_item *item); /* may be computed once it is LOADED */
void item_go_on(struct zero_item *item);          /* LOADED and ready */
void item_finish(struct zero_item *item);         /* to FREE; nothing of it is in flight */

/* ---- pipeline.c ---- */
/* Begins what can begin, ends what has ended. The job may be gone afterwards. */
void pipeline_pump(struct zero_job *job);
void pipeline_tick(struct zero_job *job); /* before a stage changes: where the time went */
void pipeline_start(struct zero_job *job, enum zero_pipeline_kind kind);
/* An early update: nobody uses @unit any more. */
void pipeline_ready(struct zero_job *job, uint32_t unit);
void pipeline_arm(struct zero_job *job);
/* Nothing new begins; what is in flight is drained. True when nothing is. */
bool pipeline_abort(struct zero_job *job);

/* ---- update.c: on device threads ---- */
void update_run(struct dev_task *task); /* of an item */
void load_run(struct dev_task *task);
void hash_run(struct dev_task *task);
void store_run(struct dev_task *task);
