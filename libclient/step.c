/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps and commits. Floor 2.
 *
 * What a rank must have done before its zinf_step() is counted here as well as in the daemon, so
 * that a mistake is told at once and with names, and the call can be made again.
 */
#include <float.h>
#include <string.h>

#include "common/base/err.h"
#include "common/wire/check.h"
#include "libclient/client.h"

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

static int enter_step(struct zinf *zinf, const char *call)
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
	if (zinf->is_blob_loose) {
		r = zi_client_call(zinf, ZI_OP_NOP, 0, 0, NULL);
		if (r)
			return err_trace(r);
	}
	memcpy(blob_of(zinf), blob, blob_bytes);
	return 0;
}

/* ---- step_begin ---- */

static_assert(sizeof(struct zinf_step_options) == 104, "it has grown into its reserved words only");
static_assert(offsetof(struct zinf_step_options, no_bias_correction) == 76, "as above");

/* What an older daemon would not read, and zeros of nobody. */
static int check_later_options(struct zinf *zinf, const struct zinf_step_options *options)
{
	uint32_t reserved = options->reserved_end;

	for (size_t i = 0; i < ZI_COUNT_OF(options->reserved); i++)
		reserved |= options->reserved[i];
	if (reserved)
		return zi_client_error(zinf, -EINVAL, "reserved step options are set");
	if (!options->groups != !options->group_count)
		return zi_client_error(zinf, -EINVAL,
		                       "group_count of a step is %u, but groups is %s",
		                       options->group_count, options->groups ? "set" : "NULL");
	if (zinf->features & ZI_FEATURE_TRAINING)
		return 0;
	if (options->no_bias_correction || options->lr_decay != 0 || options->group_count)
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "no_bias_correction, lr_decay or groups of a step: the "
		                       "daemon at %s knows none of them, use a newer zinfd",
		                       zinf->path);
	return 0;
}

/* Where the daemon reads them; @options passed zi_check_step_options(). */
static int put_groups(struct zinf *zinf, const struct zinf_step_options *options)
{
	struct zi_step_group *groups =
		(void *)((char *)zinf->uplink + zi_uplink_groups_offset(zinf->entries));

	for (uint32_t i = 0; i < options->group_count; i++) {
		const struct zinf_step_group *group = &options->groups[i];

		if (!(group->lr >= 0 && group->lr < (double)FLT_MAX) ||
		    !(group->weight_decay >= 0 && group->weight_decay < (double)FLT_MAX))
			return zi_client_error(zinf, -EINVAL,
			                       "group %u of a step has lr %.17g and weight_decay "
			                       "%.17g: they must be finite in fp32 and at least 0",
			                       i, group->lr, group->weight_decay);
		groups[i] = (struct zi_step_group){ .lr = group->lr,
			                            .weight_decay = group->weight_decay };
	}
	return 0;
}

static int put_options(struct zinf *zinf, const struct zinf_step_options *options,
                       struct zi_step_options *ret_options)
{
	int r;

	if (options->bytes != sizeof(*options))
		return zi_client_error(zinf, -EINVAL,
		                       "step options of %u bytes: begin with "
		                       "ZINF_STEP_OPTIONS_INIT",
		                       options->bytes);
	r = check_later_options(zinf, options);
	if (r)
		return err_trace(r);
	*ret_options = (struct zi_step_options){
		.lr = options->lr,
		.beta1 = options->beta1,
		.beta2 = options->beta2,
		.eps = options->eps,
		.weight_decay = options->weight_decay,
		.max_norm = options->max_norm,
		.unscale = options->unscale,
		.micro_batches = options->micro_batches,
		.flags = (options->nesterov ? ZI_STEP_NESTEROV : 0) |
		         (options->sum ? ZI_STEP_SUM : 0) |
		         (options->skip_nonfinite ? ZI_STEP_SKIP_NONFINITE : 0) |
		         (options->want_norm ? ZI_STEP_WANT_NORM : 0) |
		         /* To a daemon that does not know of it this permission is of no use. */
		         (options->update_early && zinf->features & ZI_FEATURE_EARLY
		                  ? ZI_STEP_UPDATE_EARLY
		                  : 0) |
		         (options->no_bias_correction ? ZI_STEP_NO_BIAS_CORRECTION : 0),
		.lr_decay = options->lr_decay,
		.group_count = options->group_count,
	};
	return 0;
}

int zinf_step_begin(struct zinf *zinf, const struct zinf_step_options *options)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, options, options);
	struct zi_step_options wire;
	int r;

	r = enter_step(zinf, "zinf_step_begin()");
	if (r)
		return err_trace(r);
	if (zinf->is_step_begun)
		return zi_client_error(zinf, -EBUSY, "a step has begun: zinf_step() ends it");
	r = put_options(zinf, options, &wire);
	if (r)
		return err_trace(r);
	r = zi_check_step_options(&wire, &zinf->text);
	if (r)
		return err_trace(zi_client_tell(zinf, r, &zinf->text));
	r = put_groups(zinf, options);
	if (r)
		return err_trace(r);
	if (wire.micro_batches > 1 && zinf->attach.config.schedule == ZI_SCHEDULE_LOCAL)
		return zi_client_error(zinf, -EINVAL,
		                       "micro_batches is %u, but with grad_reduction per_step a "
		                       "rank accumulates by itself: give 1",
		                       wire.micro_batches);
	((struct zi_uplink_header *)zinf->uplink)->step_options = wire;
	r = zi_client_call(zinf, ZI_OP_STEP_BEGIN, 0, 0, NULL);
	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		zinf->units[i].reduce_count = 0;
	zinf->micro_batches = wire.micro_batches;
	zinf->is_early = options->update_early;
	zinf->is_step_begun = true;
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

static int check_begun(struct zinf *zinf)
{
	if (!zinf->is_step_begun)
		return zi_client_error(zinf, -EINVAL, "call zinf_step_begin() first");
	if (zinf->no_sync_count)
		return zi_client_error(zinf, -EBUSY,
		                       "zinf_no_sync_begin() has no end yet: zinf_no_sync_end() "
		                       "comes before zinf_step()");
	return 0;
}

static int check_step(struct zinf *zinf)
{
	int r;

	r = refuse_units(zinf, -ENODATA, "no gradient for units",
	                 "call zinf_reduce() for each, or set finds_unused", is_missing);
	if (r)
		return err_trace(r);
	r = refuse_units(zinf, -EBUSY, "units still unsharded",
	                 "call zinf_reshard() before zinf_step()", is_in_use);
	return err_trace(r);
}

int zinf_step(struct zinf *zinf, const void *blob, size_t blob_bytes, zinf_ticket *ret_ticket)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_ticket, ret_ticket);
	struct zi_client_op *op;
	int r;

	r = enter_step(zinf, "zinf_step()");
	if (r)
		return err_trace(r);
	r = zi_client_reap(zinf);
	if (r)
		return err_trace(r);
	r = take_any_kept(zinf);
	if (r)
		return err_trace(r);
	r = check_begun(zinf);
	if (!r)
		r = zi_client_end_unused(zinf);
	if (!r)
		r = check_step(zinf);
	if (r)
		return err_trace(r);
	r = put_blob(zinf, blob, blob_bytes);
	if (r)
		return err_trace(r);
	r = zi_client_submit(zinf, ZI_OP_STEP, 0, blob_bytes, false, &op);
	if (r)
		return err_trace(r);
	zinf->is_step_begun = false;
	zinf->steps_pending++;
	zinf->is_blob_loose = blob_bytes > 0;
	*ret_ticket = op->ticket;
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
	} else if (result == -ENODATA || result == -EBUSY) {
		zinf->is_step_begun = true; /* the daemon refused it: it may be made again */
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
