/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of zero/: what the files offer each other. Floor 5; shard thread, but for what update.c
 * says.
 *
 * How the parts call each other. Public functions and whatever comes back to the loop (device
 * tasks, moves, catalog requests) change state, and end in zero_drain(). Nobody else is called in
 * between: a finished op is only put into zero->completed, and a rank whose group broke into
 * zero->notices, and zero_drain() calls their callbacks when nothing is half-changed. A callback
 * may call any public function, free its rank, even end the job; so zero_drain() is the last thing
 * a function does.
 *
 * What is in flight (a device task, a move, a request) is counted in busy_count. Memory is given
 * back, and a group materialised, only at busy_count 0 (job_settle()): drain before free.
 */
#pragma once

#include "daemon/zero/job.h"
#include "daemon/zero/pipeline.h"
#include "daemon/zero/snapshot.h"

/* ---- zero.c ---- */
void zero_drain(struct zero *zero);
struct zero_account *zero_account_of(struct zero *zero, uint32_t uid); /* NULL: -ENOMEM */
void zero_account_retire(struct zero *zero, struct zero_account *account);

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
/* Parameters on NVMe, and in memory those that are used: job->residency while materialised. */
static inline bool job_has_pool(const struct zero_job *job)
{
	return job->config.offload_param == ZI_OFFLOAD_NVME;
}
static inline uint64_t job_world_mask(const struct zero_job *job)
{
	return job->group.world_size == 64 ? UINT64_MAX : (1ull << job->group.world_size) - 1;
}
static inline uint32_t job_state_bytes(const struct zero_job *job)
{
	return zi_state_element_bytes((enum zi_optimizer)job->config.optimizer,
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

/* Bytes of @element_count parameters. */
static inline uint64_t job_param_bytes(const struct zero_job *job, uint64_t element_count)
{
	return element_count * zi_dtype_bytes((enum zi_dtype)job->config.param_dtype);
}
/* Where a unit's parameters are, without a pool. */
static inline void *job_unit_param(const struct zero_job *job, uint32_t unit)
{
	return (char *)job->param->region.base + job->units[unit].param_offset;
}

/* Opcodes of calls that do not come through the ring. */
enum {
	ZERO_OP_MATERIALIZE = _ZI_OP_COUNT,
	ZERO_OP_WRITE_BEGIN,
	ZERO_OP_WRITE_END,
	ZERO_OP_DESTROY,
	ZERO_OP_TENSOR_OPEN,
	_ZERO_OP_COUNT
};

/* ---- op.c ---- */
/* Fills the private part; false when the op was completed because the rank is out. */
bool op_begin(struct zero_rank *rank, struct zero_op *op, uint16_t opcode);
void op_complete(struct zero_op *op, int result);
void op_fail(struct zero_op *op, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void op_wait(struct zero_op *op); /* pending from now on, with the rank's timeout */
/* Waits in a gather. True when every rank of the world has come. -EALREADY twice. */
bool op_gather(struct zero_op *op, enum zero_gather gather);
static inline bool gather_is_full(const struct zero_job *job, enum zero_gather gather)
{
	return job->group.world_size && job->group.gather_masks[gather] == job_world_mask(job);
}
void gather_complete(struct zero_job *job, enum zero_gather gather, int result,
                     const struct zi_text *text);
/* Looks again at every op that waits for the daemon (unshard, grad_acquire, step_begin). */
void ops_retry(struct zero_job *job);
const char *op_name(uint16_t opcode);
/* Ends what waits on a rank's behalf, at once: ops pending and completed. */
void ops_cancel(struct zero_rank *rank);

/* ---- group.c ---- */
/* Every rank's pending ops end with @error, and its session hears of it. */
void group_break(struct zero_job *job, int error, uint32_t culprit, const struct zi_text *text);
/* As group_break(), but a step that is being written ends first. */
void group_break_after_step(struct zero_job *job, int error, uint32_t culprit,
                            const struct zi_text *text);
/* A rank that left cleanly is needed: breaks the group. True when it did. */
bool group_needs_all(struct zero_job *job);
/* Replaces whatever group is there. */
void group_replace(struct zero_job *job, const char *name);

/* ---- history.c ---- */
/* Room for one more name. -ENOMEM. */
int history_reserve(struct zero_history *history);
/* The newest; there is room. The oldest gives way. */
void history_add(struct zero_history *history, uint64_t number, const char *name);
bool history_has(const struct zero_history *history, const char *name);
/* Names newer than @stored_number, copied for the catalog's next request. -ENOMEM. */
int history_record(struct zero_history *history, uint64_t stored_number);
void history_free(struct zero_history *history);

/* ---- stream.c ---- */
void stream_drop(struct zero_rank *rank);

/* ---- layout.c ---- */
void layout_free(struct zero_layout *layout);
int layout_check(const struct zero_layout *layout, struct zi_text *text);
/* -EINVAL and the first difference, in terms of @who and @model_who. */
int layout_compare(const struct zero_layout *layout, const char *who,
                   const struct zero_layout *model, const char *model_who, struct zi_text *text);
/* Elements with padding of a layout that was checked. */
uint64_t layout_padded_count(const struct zero_layout *layout);
/* Units and subgroups of job->layout, and the arrays that a step needs. */
int layout_build(struct zero_job *job, struct zi_text *text);
void layout_unbuild(struct zero_job *job);

/* ---- materialize.c ---- */
bool materialize_is_due(const struct zero_job *job);
/* The present group's memory is being made; a former one's may still be on its way to nobody. */
bool materialize_is_on(const struct zero_job *job);
void materialize_start(struct zero_job *job);
/* The load pipeline has ended. */
void materialize_loaded(struct zero_job *job, int error, const struct zi_text *text);

/* ---- memory.c ---- */
/* Charges what is missing and fills job->builds. On failure nothing is left behind. */
int memory_plan(struct zero_job *job, struct zi_text *text);
/* After every segment was built. */
int memory_finish(struct zero_job *job, struct zi_text *text);
int memory_hand_out(struct zero_job *job);
/* The pipeline's items, of a job that has given back what serves an incarnation. -ENOMEM. */
int memory_plan_items(struct zero_job *job);

/* ---- reduce.c ---- */
void reduce_unit(struct zero_job *job, uint32_t unit);
static inline void *grad_at(const struct zero_job *job, uint32_t rank, uint64_t offset)
{
	return (char *)job->grads[rank]->region.base + offset;
}
float reduce_average(const struct zero_job *job);

/* ---- step.c ---- */
void step_try_begin(struct zero_op *op); /* STEP_BEGIN: completes or leaves it waiting */
void step_advance(struct zero_job *job); /* to UPDATING when nothing is missing */
bool step_is_called(const struct zero_job *job);
/* A unit's update begins early when nothing is missing for it. */
void step_unit_advance(struct zero_job *job, uint32_t unit);
/* This rank has handed over the last gradient of the unit in this step. */
bool step_unit_is_handed(const struct zero_rank *rank, uint32_t unit);
void step_prepare(struct zero_job *job); /* scalars, but for the clip */
void step_units_reset(struct zero_job *job);
void step_updated(struct zero_job *job, int error, const struct zi_text *text); /* pipeline's end */
/* Of a step that is written, once nothing is read any more from the extents that it replaces. */
void step_go_to_commit(struct zero_job *job);

/* ---- step_end.c ---- */
void step_skip(struct zero_job *job);  /* STEPPING, a gradient is not finite */
void step_abort(struct zero_job *job); /* STEPPING, group broken */
/* The aborted pipeline of a step has drained. */
void step_drained(struct zero_job *job);
void step_undone(struct zero_job *job); /* is_undo_due, and nothing is in flight */
void step_end(struct zero_job *job, int error, const struct zi_text *text); /* commit's end */

/* ---- extent.c ---- */
/* All or nothing. -ENOSPC with figures. */
enum extents_for {
	EXTENTS_STEP,  /* both planes of every subgroup */
	EXTENTS_AHEAD, /* of a step that is not committed: what is not resident */
	/* parameters that changed or were never written; all that is in memory alone */
	EXTENTS_COMMIT,
	EXTENTS_KEEP, /* of a snapshot of state in memory alone: both planes of every subgroup */
};
int extents_reserve(struct zero_job *job, enum extents_for purpose, struct zi_text *text);
uint64_t extents_wanted_bytes(const struct zero_job *job, enum extents_for purpose);
/* With a pool: where param_write_end() puts a unit, before the commit. */
int extents_reserve_unit(struct zero_job *job, uint32_t unit, struct zi_text *text);
/* The array that holds the checksums of place->next. */
static inline uint32_t place_next_index(const struct zero_place *place)
{
	for (uint32_t i = 0;; i++)
		if (i != place->hash_index && !(place->is_ahead && i == place->kept_index))
			return i;
}
/* `next`, if there is one, is in force; what was committed is kept. */
void place_advance(struct zero_job *job, struct zero_place *place, int64_t step);
void place_fall_back(struct zero_job *job, struct zero_place *place);
static inline const struct tier_extent *place_committed(const struct zero_place *place)
{
	return place->is_ahead ? &place->kept : &place->extent;
}
bool extent_needs_write(const struct zero_job *job, const struct zero_subgroup *subgroup);
/* Another place for what could not be written: TIER_E_FULL. */
int extent_replace(struct zero_job *job, struct zero_place *place, uint32_t plane, bool is_tried);
/* What a step or commit has reserved; not what param_write_end() has written already. */
void extents_release_next(struct zero_job *job);
/* Where a write failed. */
void extents_release_abandoned(struct zero_job *job);
void extents_release_written(struct zero_job *job);
void extents_commit(struct zero_job *job);
void extents_release_all(struct zero_job *job);

/* ---- flush.c ---- */
/* Submits @request when what was written to @members of @tier is on their media; when a flush
 * fails, @request ends with its error and a sentence. No members: at once. */
void flush_then_submit(struct zero *zero, struct zero_flush *flush, struct tier *tier,
                       uint32_t members, struct catalog_request *request);

/* ---- commit.c ---- */
/* Step, powers, blobs, and the extents that are replaced. Ends in step_end(). */
void commit_submit(struct zero_job *job);
/* Writes what is in memory alone, and commits; ends in step_end(). @is_unasked: with the blobs of
 * the newest step. -ENOSPC: nothing has begun. */
int commit_start(struct zero_job *job, bool is_unasked, struct zi_text *text);
/* The WRITE pipeline's end. */
void commit_written(struct zero_job *job, int error, const struct zi_text *text);
void request_submit(struct zero_job *job, enum catalog_request_kind kind, catalog_request_fn done);
/* The first thing of every @done: the request is no longer in flight, and when the catalog broke in
 * it, zero is frozen. */
void request_end(struct zero_job *job);
/* The same for a request that is not a job's. */
void request_look(struct zero *zero, const struct catalog_request *request);
/* 0, or why nothing that ends in the catalog may begin. */
int frozen_check(const struct zero *zero, struct zi_text *text);
/* Of the step or commit to come. */
uint32_t blob_next(const struct zero_job *job);
void blob_keep(struct zero_job *job, uint32_t rank, const void *bytes, uint64_t byte_count);

/* ---- budget.c ---- */
enum { _BUDGET_E_SUCCESS, BUDGET_E_WAIT };
int budget_take(struct zero_job *job, struct zi_text *text);
void budget_watch(struct zero *zero); /* from zero_new() on, by itself */
uint32_t budget_record(struct zero_job *job);
void budget_restore(void *arg, const struct catalog_traffic *traffic);

/* ---- record.c ---- */
void record_describe(const struct zero_job *job, struct catalog_job *ret_record);
struct catalog_extent record_extent(const struct zero_subgroup *subgroup, uint32_t plane,
                                    const struct tier_extent *extent, const uint64_t *hashes,
                                    uint64_t step);
void record_committed(const struct zero_job *job, bool is_next, struct catalog_job *record,
                      struct catalog_extent *extents, struct catalog_blob *blobs);

/* ---- recover.c ---- */
/* No member: the store is not here. */
struct tier_extent recover_place(const struct zero *zero, const struct catalog_extent *stored);
uint64_t recover_digest(const struct catalog_extent *stored);
int recover_state(struct zero_job *job, const struct catalog_job *stored, bool is_load);
/* All of a job that nobody uses: what @stored says, whose arrays change hands, and its charge. 0;
 * -ENOMEM; what job->refusal is then. */
int recover_take(struct zero_job *job, struct catalog_job *stored, bool is_load);

/* ---- attach.c ---- */
/* May this uid have one more job? -EMFILE, -EDQUOT with figures. */
int attach_limits_check(struct zero *zero, uint32_t uid, struct zi_text *text);

/* ---- order.c ---- */
int order_init(struct zero_order *order, uint32_t unit_count);
void order_deinit(struct zero_order *order);
void order_use(struct zero_order *order, uint32_t unit, bool is_leading, uint32_t *place);
void order_step(struct zero_order *order, bool is_leading, uint32_t *place);
/* Uses until @unit is used by a rank at @place. */
uint64_t order_distance(const struct zero_order *order, uint32_t unit, uint32_t place);

/* ---- room.c ---- */
bool room_choose(const struct zero_run *runs, uint32_t run_count, uint32_t slot_count,
                 uint32_t wanted, uint64_t soonest, struct zero_room *ret_room);

/* ---- fetch.c ---- */
void fetches_init(struct zero_fetches *fetches);
bool fetches_have_room(const struct zero_fetches *fetches);
void fetch_load(struct zero_load *load, bool is_urgent);
void fetch_urge(struct zero_load *load);
bool fetch_drop(struct zero_load *load);

/* ---- pool.c ---- */
uint32_t pool_slots_min(const struct zero_job *job, uint32_t *ret_unit);
static inline struct zero_residence *residence_of(const struct zero_job *job, uint32_t unit)
{
	return &job->residency->units[unit];
}
/* Uses until any rank uses it next. */
uint64_t pool_distance(const struct zero_job *job, uint32_t unit);
/* Only what is pinned by @pin_mask, and with @is_moving what cannot go right now, stays. */
bool pool_find_room(struct zero_job *job, uint32_t unit, uint64_t soonest, uint64_t pin_mask,
                    bool is_moving, struct zero_room *ret_room);
void pool_insert(struct zero_job *job, uint32_t unit, const struct zero_room *room);
void pool_evict(struct zero_job *job, uint32_t unit);

/* ---- residency.c: all but the first three only where job->residency is ---- */
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
void residency_hint(struct zero_job *job, uint32_t unit);
void residency_pump(struct zero_job *job);
void residency_changed(struct zero_job *job); /* ops_retry(), then prefetch */
void residency_freeze(struct zero_job *job, uint32_t unit);
bool residency_void(struct zero_job *job, uint32_t unit);
void residency_void_came(struct zero_job *job);                   /* of those in void_count */
void *residency_param(const struct zero_job *job, uint32_t unit); /* NULL: not here */
uint64_t residency_offset(const struct zero_job *job, uint32_t unit);

bool residency_is_loadable(const struct zero_job *job, uint32_t unit);
bool residency_is_between(const struct zero_job *job, uint32_t rank);

/* ---- demand.c ---- */
bool demand_is_hopeless(struct zero_job *job);
int demand_refuse(const struct zero_job *job, struct zero_op *op);
/* ---- ahead.c ---- */
static inline bool job_is_ahead(const struct zero_job *job)
{
	return job->current_step > job->committed_step;
}
static inline uint32_t job_interval(const struct zero_job *job)
{
	return ZI_MAX(job->config.commit_interval, 1u);
}
bool ahead_is_due(const struct zero_job *job, int64_t step);
void ahead_take(struct zero_job *job);
void ahead_mark(struct zero_job *job);
void ahead_drop(struct zero_job *job);
/* The job stands at a step that is committed, or at none (-1). */
void ahead_set(struct zero_job *job, int64_t step, const struct zero_marks *marks);
/* Commits what nobody else will. True when that has begun. */
bool ahead_commit(struct zero_job *job);
void ahead_lost(struct zero_job *job, const struct zi_text *why);

/* ---- tensor_table.c ---- */
struct zero_tensors *tensors_free(struct zero_tensors *tensors);
void tensors_built(struct zero_tensors *tensors);
void tensors_forget(struct zero_rank *rank);
struct zero_tensor *tensors_find(const struct zero_tensors *tensors, uint64_t id);
struct zero_tensor *tensors_add(struct zero_tensors *tensors, uint64_t id, uint64_t bytes);
void tensor_drop(struct zero_tensor *tensor);
void tensor_clear(struct zero_tensor *tensor);

/* ---- tensor.c ---- */
struct zero_op *tensor_find_op(const struct zero_rank *rank, uint16_t opcode, uint64_t id);
void tensors_go_on(struct zero_tensors *tensors); /* may free them, when the rank has left */
void tensor_tell(struct zero_tensor *tensor, int error);
void tensor_op_abandon(struct zero_op *op);

/* ---- tensor_room.c ---- */
static inline uint64_t tensor_offset(const struct zero_tensor *tensor)
{
	return (uint64_t)tensor->slot_first * ZI_STORE_ALIGN_BYTES;
}
uint64_t tensor_slots(uint64_t bytes);
void *tensor_place(const struct zero_tensor *tensor);
bool tensor_is_held(const struct zero_tensor *tensor);
bool tensor_has_hope(struct zero_tensors *tensors, uint64_t bytes);
bool tensor_settle_in(struct zero_tensor *tensor, bool is_modest);
void tensor_move_out(struct zero_tensor *tensor);

/* ---- tensor_io.c ---- */
void tensors_build(struct zero_tensors *tensors);
void tensors_pump(struct zero_tensors *tensors);
void tensor_store(struct zero_tensor *tensor);
void tensor_load(struct zero_tensor *tensor);
void tensor_give_up(struct zero_tensor *tensor);

/* ---- unit.c ---- */
void unit_try_unshard(struct zero_op *op);
void unit_try_grad_acquire(struct zero_op *op);

/* ---- write.c ---- */
/* The rank that has a unit open for writing, or NULL. */
const struct zero_rank *write_pending(const struct zero_job *job);
void write_drop(struct zero_rank *rank);
void write_over(struct zero_rank *rank); /* the unit is written */
void write_forget(struct zero_rank *rank);

/* ---- write_end.c ---- */
/* With a pool: nothing reads the unit any more whose write has ended. */
void write_go_on(struct zero_job *job);
/* The STORE pipeline's end. */
void write_stored(struct zero_job *job, int error, const struct zi_text *text);

/* ---- delete.c ---- */
/* For jobs without ranks. The catalog is asked at once, or in the loop's first turn. */
void job_delete(struct zero_job *job);
void job_delete_later(struct zero_job *job);
/* What zero_job_destroy() waited for is over. May free the job. */
void job_destroy_go(struct zero_job *job);
