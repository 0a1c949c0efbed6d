/* SPDX-License-Identifier: Apache-2.0 */
/* See unused.h. */
#include "daemon/zero/step/unused.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/wire/grads.h"
#include "daemon/zero/job/advice.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"
#include "daemon/zero/job/set.h"
#include "daemon/zero/job/stretches.h"
#include "daemon/zero/param/unit.h"

#define WORD_BITS 64u

static bool has(const uint64_t *words, uint32_t param)
{
	return words[param / WORD_BITS] >> (param % WORD_BITS) & 1;
}

static void put(uint64_t *words, uint32_t param, bool is_set)
{
	uint64_t bit = 1ull << (param % WORD_BITS);

	if (is_set)
		words[param / WORD_BITS] |= bit;
	else
		words[param / WORD_BITS] &= ~bit;
}

static uint64_t *named_by(const struct zero_rank *rank)
{
	const struct zero_unused *unused = rank->job->unused;

	return &unused->named[(size_t)rank->number * unused->word_count];
}

/* ---- tables ---- */

static int alloc_tables(const struct zero_job *job, struct zero_unused *unused)
{
	uint32_t param_count = job->layout.param_count;

	unused->word_count = (param_count + WORD_BITS - 1) / WORD_BITS;
	unused->param_firsts =
		calloc((size_t)job->layout.unit_count + 1, sizeof(*unused->param_firsts));
	unused->named = calloc((size_t)job->world * unused->word_count, sizeof(*unused->named));
	unused->used = calloc(unused->word_count, sizeof(*unused->used));
	unused->stretches = calloc(param_count, sizeof(*unused->stretches));
	if (!unused->param_firsts || !unused->named || !unused->used || !unused->stretches)
		return err_origin(-ENOMEM);
	for (uint32_t i = 0; i < param_count; i++)
		unused->param_firsts[job->layout.params[i].unit + 1] = i + 1;
	return 0;
}

/* Documented in the header, as are all that are not static, but for handlers. */
int unused_build(struct zero_job *job, struct zi_text *text)
{
	int r = 0;

	unused_drop(job);
	if (!(job->training.flags & ZI_TRAINING_FIND_UNUSED) || job_is_forward_only(job))
		return 0;
	job->unused = calloc(1, sizeof(*job->unused));
	r = job->unused ? alloc_tables(job, job->unused) : err_origin(-ENOMEM);
	if (!r)
		return 0;
	unused_unbuild(job);
	return zi_text_error(text, r, "no memory for a mark of each of %u parameters",
	                     job->layout.param_count);
}

void unused_unbuild(struct zero_job *job)
{
	struct zero_unused *unused = job->unused;

	job->unused = NULL;
	if (!unused)
		return;
	free(unused->param_firsts);
	free(unused->named);
	free(unused->used);
	free(unused->stretches);
	tier_charge_return(&unused->charge);
	free(unused);
}

void unused_drop(struct zero_job *job)
{
	for (uint32_t i = 0; job->units && i < job->layout.unit_count; i++)
		job->units[i].cut_count = 0;
	unused_unbuild(job);
}

int unused_charge(struct zero_job *job, struct zi_text *text)
{
	int r = 0;

	static_assert(sizeof(struct zero_stretch) == ZI_UNUSED_STRETCH_BYTES, "as it is planned");
	if (job->unused)
		r = tier_charge_take(&job->unused->charge, job->cpu_tier, &job->account->account,
		                     zi_unused_bytes(job->layout.unit_count,
		                                     job->layout.param_count, job->world),
		                     text);
	if (!r)
		return 0;
	advice_append(job, text);
	return err_origin(r == TIER_E_QUOTA ? -EDQUOT : -ENOSPC);
}

uint64_t unused_charged_bytes(const struct zero_job *job)
{
	return job->unused ? job->unused->charge.bytes : 0;
}

void unused_reset(struct zero_job *job)
{
	struct zero_unused *unused = job->unused;

	if (!unused)
		return;
	memset(unused->used, 0, unused->word_count * sizeof(*unused->used));
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		job->units[i].cut_count = 0;
}

/* ---- what ranks say ---- */

void unused_hand_over(const struct zero_rank *rank, uint32_t unit)
{
	struct zero_unused *unused = rank->job->unused;

	if (!unused)
		return;
	for (uint32_t i = unused->param_firsts[unit]; i < unused->param_firsts[unit + 1]; i++)
		if (!has(named_by(rank), i))
			put(unused->used, i, true);
	unused_forget(rank, unit);
}

void unused_forget(const struct zero_rank *rank, uint32_t unit)
{
	const struct zero_unused *unused = rank->job->unused;

	if (!unused)
		return;
	for (uint32_t i = unused->param_firsts[unit]; i < unused->param_firsts[unit + 1]; i++)
		put(named_by(rank), i, false);
}

static int name(const struct zero_rank *rank, struct zero_op *op)
{
	const struct zero_job *job = rank->job;
	const struct zero_unused *unused = job->unused;
	uint32_t first, count;

	if (!unused)
		return zi_text_error(&op->text, -EINVAL,
		                     "a parameter without a gradient, but finds_unused is false");
	if (!set_trains(job, op->unit, rank->number))
		return unit_refuse_foreign(op);
	first = unused->param_firsts[op->unit];
	count = unused->param_firsts[op->unit + 1] - first;
	for (uint32_t i = 0; i < ZI_UNUSED_BITS; i++) {
		if (!has(op->unused, i))
			continue;
		if (op->id % WORD_BITS || op->id >= count || i >= count - op->id)
			return zi_text_error(&op->text, -EINVAL,
			                     "parameter %llu + %u of unit '%.60s' has no gradient, "
			                     "but the unit has %u",
			                     (unsigned long long)op->id, i,
			                     job->layout.units[op->unit].name, count);
		put(named_by(rank), first + (uint32_t)op->id + i, true);
	}
	return 0;
}

/**
 * zero_grad_unused() - names parameters of a unit that the rank has no gradient of
 * @op: unit; id: a parameter of it, a multiple of 64; unused: bits of those from it on
 *
 * Of what zero_reduce() hands over next. Completes at once; -EINVAL there are no such parameters,
 * or nobody looks for them; -EPERM the rank does not train the unit. Context: shard thread.
 */
void zero_grad_unused(struct zero_rank *rank, struct zero_op *op)
{
	struct zero *zero = rank->job->zero;

	if (op_begin(rank, op, ZI_OP_GRAD_UNUSED))
		op_complete(op, name(rank, op));
	zero_drain(zero);
}

/* ---- what follows ---- */

const struct zero_stretch *unused_stretches(const struct zero_job *job, uint32_t unit)
{
	assert(job->unused);
	return &job->unused->stretches[job->unused->param_firsts[unit]];
}

void unused_settle(struct zero_job *job, uint32_t index)
{
	const struct zero_unused *unused = job->unused;
	uint32_t count, unused_count = 0;

	if (!unused)
		return;
	for (uint32_t i = unused->param_firsts[index]; i < unused->param_firsts[index + 1]; i++)
		unused_count +=
			!has(unused->used, i) && job->layout.params[i].group != ZI_LAYOUT_FROZEN;
	if (!unused_count)
		return;
	count = stretches_of_unit(job, index, unused->param_firsts[index], unused->used,
	                          &unused->stretches[unused->param_firsts[index]]);
	job->units[index].cut_count = count;
	job->step.unused_count += unused_count;
}

void unused_settle_all(struct zero_job *job)
{
	for (uint32_t i = 0; i < job->layout.unit_count; i++)
		unused_settle(job, i);
}
