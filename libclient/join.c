/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank without data shadows the steps of the others. Floor 2.
 *
 * To the daemon it is a rank like the others, whose gradients are zeros; it learns from the answer
 * to STEP_BEGIN how many micro-batches the step has, or that all have joined. Whatever runs out of
 * time, or is interrupted, may be called again, and goes on where it stood.
 */
#include <string.h>

#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "libclient/client.h"

/* Waits until somebody begins a step; *@ret_is_over: nobody will, all have joined. */
static int begin_shadow(struct zinf *zinf, bool divides_by_live, bool *ret_is_over)
{
	const struct zi_step_options wire = {
		.unscale = 1,
		.micro_batches = 1,
		.flags = ZI_STEP_JOINED | (divides_by_live ? ZI_STEP_DIVIDES_BY_LIVE : 0),
	};
	uint64_t micro_batches = 0;
	int r = zi_client_put_options(zinf, ZI_OP_STEP_BEGIN, &wire, NULL, NULL);

	if (r)
		return err_trace(r);
	r = zi_client_call(zinf, ZI_OP_STEP_BEGIN, 0, 0, &micro_batches);
	if (r)
		return err_trace(r);
	if (micro_batches > UINT32_MAX)
		return err_trace(zi_client_breach(zinf, "a step of that many micro-batches"));
	*ret_is_over = !micro_batches;
	if (!micro_batches)
		return 0;
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		zinf->units[i].reduce_count = 0;
	zinf->micro_batches = (uint32_t)micro_batches;
	zinf->is_early = false; /* It unshards nothing. */
	zinf->is_step_begun = true;
	zinf->is_shadowing = true;
	return 0;
}

/* The buffer may hold the sum of the step before. */
static int reduce_zeros(struct zinf *zinf, uint32_t index)
{
	const struct zi_client_unit *unit = &zinf->units[index];
	uint32_t width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
	int r = zinf_grad_acquire(zinf, index);

	if (r)
		return err_trace(r);
	memset((char *)zinf->grad_base + unit->grad_offset_bytes, 0, unit->element_count * width);
	return err_trace(zinf_reduce(zinf, index));
}

/* The @nth unit of a micro-batch: with buckets all ranks have one order, and what this rank's own
 * steps had is what the others' have; else that of backward, as it is for what was left out. */
static uint32_t unit_at(const struct zinf *zinf, uint32_t nth)
{
	if (nth < zinf->handed_count)
		return zinf->units[nth].handed;
	return zinf->unit_count - 1 - (nth - zinf->handed_count);
}

static int shadow_gradients(struct zinf *zinf)
{
	bool is_sharded = zinf->attach.config.schedule == ZI_SCHEDULE_SHARDED;
	uint32_t wanted = is_sharded ? zinf->micro_batches : 1;

	for (uint32_t micro = 0; micro < wanted; micro++)
		for (uint32_t i = 0; i < zinf->handed_count + zinf->unit_count; i++) {
			const struct zi_client_unit *unit = &zinf->units[unit_at(zinf, i)];
			int r;

			if (unit->reduce_count > micro || !zi_client_trains(zinf, unit))
				continue;
			r = reduce_zeros(zinf, unit_at(zinf, i));
			if (r)
				return err_trace(r);
		}
	return 0;
}

static int check_join(struct zinf *zinf)
{
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (!zinf->is_materialized)
		return zi_client_error(zinf, -EINVAL, "call zinf_materialize() first");
	r = zi_client_check_steps(zinf, "zinf_join()");
	if (r)
		return err_trace(r);
	if (!(zinf->features & ZI_FEATURE_TRAINING))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "zinf_join(): zinfd at %s does not support it: use a "
		                       "newer zinfd",
		                       zinf->path);
	if (zinf->is_step_begun && !zinf->is_shadowing)
		return zi_client_error(zinf, -EBUSY,
		                       "a step has begun: zinf_step() ends it, before zinf_join()");
	if (zinf->no_sync_count)
		return zi_client_error(zinf, -EBUSY,
		                       "zinf_no_sync_begin() has no end yet: zinf_no_sync_end() "
		                       "comes before zinf_join()");
	if (zinf->steps_pending && !zinf->join_ticket)
		return zi_client_error(zinf, -EBUSY,
		                       "a step of this rank has not ended yet: call zinf_wait() "
		                       "first");
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		if (zinf->units[i].unshard_count)
			return zi_client_error(zinf, -EBUSY,
			                       "unit '%s' is unsharded: zinf_reshard() it, before "
			                       "zinf_join()",
			                       zinf->units[i].name);
	return 0;
}

/* Shadows one step of the other ranks to its end. If another rank discards the step, this rank
 * discards it too. *@ret_is_over: all ranks have joined, and no step was begun. */
static int shadow(struct zinf *zinf, bool divides_by_live, bool *ret_is_over)
{
	int r = 0;

	/* The daemon has a discard of this rank: the step may be over, and is not ended again. */
	if (zi_client_open_call(zinf, ZI_OP_STEP_DISCARD))
		return err_trace(zi_client_discard(zinf));
	if (!zinf->is_step_begun && !zinf->join_ticket)
		r = begin_shadow(zinf, divides_by_live, ret_is_over);
	if (r || *ret_is_over)
		return err_trace(r);
	if (zinf->is_step_begun) {
		r = shadow_gradients(zinf);
		if (!r)
			r = zinf_step(zinf, NULL, 0, &zinf->join_ticket);
	}
	if (!r) {
		r = zinf_wait(zinf, zinf->join_ticket, NULL);
		if (r == -ETIMEDOUT || r == -EINTR)
			return err_trace(r);
		zinf->join_ticket = 0;
		/* -ENODATA, -EBUSY, -ECANCELED: it has not ended. */
		zinf->is_shadowing = zinf->is_step_begun;
	}
	return r == -ECANCELED ? err_trace(zi_client_discard(zinf)) : err_trace(r);
}

int zinf_join(struct zinf *zinf, bool divides_by_live)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	bool is_over = false;
	int r = check_join(zinf);

	while (!r && !is_over)
		r = shadow(zinf, divides_by_live, &is_over);
	return err_trace(r);
}
