/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps and commits. Floor 2.
 *
 * What a rank must have done before its zinf_step() is counted here as well as in the daemon, so
 * that a mistake is told at once and with names, and the call can be made again.
 */
#include <string.h>

#include "common/base/err.h"
#include "common/wire/check.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* Units that an error names; the rest is a number. */
#define STEP_NAMES_MAX 4u

static void *blob_of(const struct zinf *zinf)
{
	return (char *)zinf->uplink + zi_uplink_blob_offset(zinf->entries);
}

static int enter_materialized(struct zinf *zinf)
{
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (!zinf->is_materialized)
		return zi_client_error(zinf, -EINVAL, "call zinf_materialize() first");
	return 0;
}

/* See client.h. */
int zi_client_check_steps(struct zinf *zinf, const char *call)
{
	if (!zi_training_is_forward_only(&zinf->training))
		return 0;
	return zi_client_error(zinf, -EPERM,
	                       "%s: this rank attached forward only (is_forward_only), so that it "
	                       "has neither gradients nor steps: attach without that to train",
	                       call);
}

/* See client.h. */
int zi_client_enter_step(struct zinf *zinf, const char *call)
{
	int r = enter_materialized(zinf);

	return r ? err_trace(r) : err_trace(zi_client_check_steps(zinf, call));
}

static int check_blob(struct zinf *zinf, const void *blob, size_t blob_bytes)
{
	if (blob_bytes > ZI_BLOB_BYTES)
		return zi_client_error(zinf, -EINVAL, "a blob of %zu bytes: at most %u", blob_bytes,
		                       ZI_BLOB_BYTES);
	if (blob_bytes && !blob)
		return zi_client_error(zinf, -EINVAL, "a blob of %zu bytes at NULL", blob_bytes);
	return 0;
}

/* Writes the blob where the daemon reads it. It copies a blob when it takes the slot, and takes
 * slots in order: so once anything submitted later has completed, the area is ours again. */
static int put_blob(struct zinf *zinf, const void *blob, size_t blob_bytes)
{
	int r = check_blob(zinf, blob, blob_bytes);

	if (r)
		return err_trace(r);
	if (!blob_bytes)
		return 0;
	if (zi_client_open_call(zinf, ZI_OP_COMMIT)) { /* whose blob it may be */
		if (memcmp(blob_of(zinf), blob, blob_bytes) == 0)
			return 0;
		return zi_client_error(zinf, -EBUSY,
		                       "zinf_commit() was interrupted: repeat that call with the "
		                       "same blob first");
	}
	if (zinf->is_blob_loose) {
		r = zi_client_call(zinf, ZI_OP_NOP, 0, 0, NULL);
		if (r)
			return err_trace(r);
	}
	memcpy(blob_of(zinf), blob, blob_bytes);
	return 0;
}

/* ---- step_begin ---- */

int zinf_step_begin(struct zinf *zinf, const struct zinf_step_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, options, options);
	struct zi_step_options wire;
	int r;

	r = zi_client_enter_step(zinf, "zinf_step_begin()");
	if (r)
		return err_trace(r);
	if (zinf->is_step_begun)
		return zi_client_error(zinf, -EBUSY, "a step has begun: zinf_step() ends it");
	r = zi_client_put_step_begin(zinf, options, &wire);
	if (r)
		return err_trace(r);
	r = zi_client_call(zinf, ZI_OP_STEP_BEGIN, 0, 0, NULL);
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		zinf->units[i].reduce_count = 0;
	zi_client_forget_copy(zinf);
	zinf->micro_batches = wire.micro_batches;
	zinf->is_early = !(wire.flags & ZI_STEP_DEFERRED) && options->update_early;
	zinf->begun = wire;
	zinf->is_step_begun = true;
	zinf->is_step_late = false;
	zinf->is_shadowing = false;
	zinf->handed_count = 0;
	return 0;
}

/* ---- step ---- */

static bool is_missing(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	uint32_t wanted =
		zinf->attach.config.schedule == ZI_SCHEDULE_SHARDED ? zinf->micro_batches : 1;

	return unit->reduce_count != wanted && zi_client_trains(zinf, unit);
}

static bool is_in_use(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	(void)zinf;
	return unit->unshard_count > 0;
}

/* Refuses the step when any unit is @is_bad, naming the first few: "…: a, b and 3 more". */
/* @what: what is wrong with the units; @remedy: what to do. */
static int refuse_units(struct zinf *zinf, int error, const char *what, const char *remedy,
                        bool (*is_bad)(const struct zinf *, const struct zi_client_unit *))
{
	char names[STEP_NAMES_MAX * ZI_PARAM_NAME_BYTES] = "";
	size_t used_bytes = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		const struct zi_client_unit *unit = &zinf->units[i];
		size_t bytes = strlen(unit->name);

		if (!is_bad(zinf, unit) || count++ >= STEP_NAMES_MAX)
			continue;
		if (used_bytes) {
			names[used_bytes++] = ',';
			names[used_bytes++] = ' ';
		}
		bytes = ZI_MIN(bytes, sizeof(names) - used_bytes - sizeof(", "));
		memcpy(names + used_bytes, unit->name, bytes);
		used_bytes += bytes;
	}
	if (!count)
		return 0;
	if (count > STEP_NAMES_MAX)
		return zi_client_error(zinf, error, "%s: %.160s and %u more (%s)", what, names,
		                       count - STEP_NAMES_MAX, remedy);
	return zi_client_error(zinf, error, "%s: %.170s (%s)", what, names, remedy);
}

/* What an operation nobody waited for has to say, of any unit. */
static int take_any_kept(struct zinf *zinf)
{
	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		struct zi_client_unit *unit = &zinf->units[i];
		int error = unit->kept_error;

		if (!error)
			continue;
		unit->kept_error = 0;
		return err_origin(zi_client_tell(zinf, error, &unit->kept_text));
	}
	return 0;
}

static int check_begun(struct zinf *zinf, const char *call)
{
	if (!zinf->is_step_begun)
		return zi_client_error(zinf, -EINVAL, "call zinf_step_begin() first");
	if (zinf->no_sync_count)
		return zi_client_error(zinf, -EBUSY,
		                       "zinf_no_sync_begin() has no end yet: zinf_no_sync_end() "
		                       "comes before %s",
		                       call);
	return 0;
}

/* All that this rank hands over in the step is handed over. What it left out on purpose follows
 * now. */
static int end_gradients(struct zinf *zinf, const char *call)
{
	int r = zi_client_reap(zinf);

	if (!r)
		r = take_any_kept(zinf);
	if (!r)
		r = check_begun(zinf, call);
	if (!r)
		r = zi_client_end_unused(zinf);
	if (!r && zinf->gpu)
		r = zi_client_gpu_settle(zinf);
	if (r)
		return err_trace(r);
	return err_trace(refuse_units(zinf, -ENODATA, "no gradient for units",
	                              "call zinf_reduce() for each, or set finds_unused",
	                              is_missing));
}

/* Nothing is missing: what only the step's end needs. */
static int check_step(struct zinf *zinf)
{
	int r;

	r = refuse_units(zinf, -EBUSY, "units still unsharded",
	                 "call zinf_reshard() before zinf_step()", is_in_use);
	return err_trace(r);
}

/* @is_with: its hyperparameters are known to the daemon now, not since it began. */
static int check_way(struct zinf *zinf, bool is_with)
{
	bool is_deferred = zinf->begun.flags & ZI_STEP_DEFERRED;

	if (!zinf->is_step_begun || zinf->is_shadowing || is_deferred == is_with)
		return 0;
	if (is_deferred)
		return zi_client_error(zinf, -EINVAL,
		                       "the step was begun with is_deferred: zinf_step_with() ends "
		                       "it, with its hyperparameters");
	return zi_client_error(zinf, -EINVAL,
	                       "the step was begun with its hyperparameters: zinf_step() ends it, "
	                       "or begin it with is_deferred");
}

static int submit_step(struct zinf *zinf, const void *blob, size_t blob_bytes,
                       zinf_ticket *ret_ticket)
{
	struct zi_client_op *op;
	int r = put_blob(zinf, blob, blob_bytes);

	if (r)
		return err_trace(r);
	r = zi_client_submit(zinf, ZI_OP_STEP, 0, blob_bytes, false, &op);
	if (r)
		return err_trace(r);
	if (zinf->gpu)
		zi_client_gpu_step(zinf);
	zi_client_forget_call(zinf, ZI_OP_GRAD_NORM);
	zinf->is_step_begun = false;
	zinf->steps_pending++;
	zinf->is_blob_loose = blob_bytes > 0;
	*ret_ticket = op->ticket;
	return 0;
}

int zinf_step(struct zinf *zinf, const void *blob, size_t blob_bytes, zinf_ticket *ret_ticket)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_ticket, ret_ticket);
	int r = zi_client_enter_step(zinf, "zinf_step()");

	if (!r)
		r = check_way(zinf, false);
	if (!r)
		r = end_gradients(zinf, "zinf_step()");
	if (!r)
		r = check_step(zinf);
	if (!r)
		r = submit_step(zinf, blob, blob_bytes, ret_ticket);
	return err_trace(r);
}

int zinf_step_with(struct zinf *zinf, const struct zinf_step_options *options, const void *blob,
                   size_t blob_bytes, zinf_ticket *ret_ticket)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, options, options);
	ZI_CLIENT_NEED(zinf, ret_ticket, ret_ticket);
	int r = zi_client_enter_step(zinf, "zinf_step_with()");

	if (!r)
		r = zi_client_check_late_steps(zinf, "zinf_step_with()");
	if (!r)
		r = check_way(zinf, true);
	if (!r)
		r = end_gradients(zinf, "zinf_step_with()");
	if (!r)
		r = check_step(zinf);
	if (!r)
		r = check_blob(zinf, blob, blob_bytes);
	if (!r)
		r = zi_client_put_step_with(zinf, options);
	if (!r)
		r = zi_client_call(zinf, ZI_OP_STEP_OPTIONS, 0, 0, NULL);
	if (!r)
		r = submit_step(zinf, blob, blob_bytes, ret_ticket);
	return err_trace(r);
}

int zinf_grad_norm(struct zinf *zinf, double *ret_norm)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_norm, ret_norm);
	uint64_t bits;
	int r = zi_client_enter_step(zinf, "zinf_grad_norm()");

	if (!r)
		r = zi_client_check_late_steps(zinf, "zinf_grad_norm()");
	if (!r)
		r = end_gradients(zinf, "zinf_grad_norm()");
	if (!r)
		r = zi_client_call(zinf, ZI_OP_GRAD_NORM, 0, 0, &bits);
	if (r)
		return err_trace(r);
	static_assert(sizeof(bits) == sizeof(*ret_norm), "a double travels as its bits");
	memcpy(ret_norm, &bits, sizeof(bits));
	return 0;
}

/* ---- its end ---- */

/* A program that was built with an earlier header has room for what it knows. An older daemon has
 * zeros in the last words. */
static void put_stats(const struct zinf *zinf, struct zinf_step_stats *target,
                      const struct zi_client_op *op)
{
	const struct zi_step_stats *source = &op->stats;
	bool is_told = zinf->features & ZI_FEATURE_TRAINING;
	const struct zinf_step_stats stats = {
		.bytes = target->bytes,
		.is_skipped = source->is_skipped,
		.step = source->step,
		.norm = source->norm,
		.clip = source->clip,
		.read_bytes = source->read_bytes,
		.write_bytes = source->write_bytes,
		.step_ns = source->step_ns,
		.grad_wait_ns = source->grad_wait_ns,
		.norm_wait_ns = source->norm_wait_ns,
		.io_read_ns = source->io_read_ns,
		.io_write_ns = source->io_write_ns,
		.cpu_ns = source->cpu_ns,
		.commit_ns = source->commit_ns,
		.committed_step = source->committed_step,
		.update_count = is_told ? (int64_t)source->update_count : -1,
		.loss_scale = is_told ? source->loss_scale : 1,
		.nonfinite_rank = is_told ? (int32_t)source->culprit : -1,
		.nonfinite_unit = op->value1 <= zinf->unit_count ? (int32_t)op->value1 - 1 : -1,
		.unused_count = (uint32_t)ZI_MIN(op->value2, (uint64_t)zinf->param_count),
	};

	memcpy(target, &stats, ZI_MIN(target->bytes, sizeof(stats)));
}

/* A ticket of a step has completed with @result. @ret_stats: may be NULL. */
void zi_client_step_over(struct zinf *zinf, const struct zi_client_op *op, int result,
                         struct zinf_step_stats *ret_stats)
{
	assert(zinf->steps_pending > 0);
	zinf->steps_pending--;
	if (!result) {
		zinf->committed_step = (int64_t)op->value;
		if (zinf->features & ZI_FEATURE_TRAINING) {
			zinf->update_count = (int64_t)op->stats.update_count;
			zinf->loss_scale = op->stats.loss_scale;
		}
		if (ret_stats)
			put_stats(zinf, ret_stats, op);
	} else if (result == -ENODATA || result == -EBUSY || result == -ECANCELED) {
		zinf->is_step_begun = true; /* the daemon refused it: it may be made again */
	} else if (result == -ETIMEDOUT) {
		zinf->is_step_late = true;
	}
}

/* A static scale stays as it is, whatever a step comes to. */
int zinf_loss_scale(struct zinf *zinf, double *ret_scale)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_scale, ret_scale);
	bool is_moving = zinf->training.scaler_kind > ZI_SCALER_STATIC;
	int r = enter_materialized(zinf);

	if (r)
		return err_trace(r);
	if (is_moving && zinf->steps_pending)
		return zi_client_error(zinf, -EBUSY,
		                       "the loss scale of the next step is known when the one "
		                       "before has ended: call zinf_wait() first");
	*ret_scale = zinf->loss_scale;
	return 0;
}

/* ---- commit, barrier ---- */

int zinf_commit(struct zinf *zinf, const void *blob, size_t blob_bytes)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	uint64_t committed_step;
	int r;

	r = enter_materialized(zinf);
	if (r)
		return err_trace(r);
	r = put_blob(zinf, blob, blob_bytes);
	if (r)
		return err_trace(r);
	r = zi_client_call(zinf, ZI_OP_COMMIT, 0, blob_bytes, &committed_step);
	if (r)
		return err_trace(r);
	zinf->committed_step = (int64_t)committed_step;
	return 0;
}

int zinf_barrier(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	return err_trace(zi_client_call(zinf, ZI_OP_BARRIER, 0, 0, NULL));
}
