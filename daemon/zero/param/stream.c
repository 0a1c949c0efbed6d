/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout as a rank streams it, entry by entry, before it materialises. Floor 5, shard thread.
 * Bounded by limits.units and limits.params, and paid for by the job's uid like any other memory
 * that a client has us hold: while a rank streams it, and, where it is not small, as long as it is
 * the job's.
 */
#include "daemon/zero/param/stream.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/job/op.h"

/* A job's layout up to this size is part of the daemon's overhead (docs/ARCHITECTURE.md). */
#define STREAM_SMALL_BYTES (64ull << 10)

/* Memory of @layout's arrays. A stored layout has no more than it needs. */
static uint64_t stream_bytes(const struct zero_layout *layout)
{
	return ZI_MAX(layout->set_capacity, layout->set_count) * sizeof(*layout->sets) +
	       ZI_MAX(layout->unit_capacity, layout->unit_count) * sizeof(*layout->units) +
	       ZI_MAX(layout->param_capacity, layout->param_count) * sizeof(*layout->params);
}

void stream_charge_job(struct zero_job *job)
{
	uint64_t bytes = stream_bytes(&job->layout);

	if (bytes <= STREAM_SMALL_BYTES || job->layout_charge.tier)
		return;
	/* Only a tier or a quota that is smaller than before the restart refuses it. */
	(void)tier_charge_take(&job->layout_charge, job->cpu_tier, &job->account->account, bytes,
	                       NULL);
}

void stream_to_job(struct zero_rank *rank)
{
	struct zero_job *job = rank->job;

	job->layout = rank->layout;
	rank->layout = (struct zero_layout){ 0 };
	tier_charge_return(&rank->stream_charge);
	stream_charge_job(job);
}

void stream_from_job(struct zero_rank *rank)
{
	struct zero_job *job = rank->job;

	layout_free(&rank->layout);
	rank->layout = job->layout;
	job->layout = (struct zero_layout){ 0 };
	tier_charge_return(&job->layout_charge);
	tier_charge_return(&rank->stream_charge);
	/* There was room for nearly all of it until now. */
	(void)tier_charge_take(&rank->stream_charge, job->cpu_tier, &job->account->account,
	                       stream_bytes(&rank->layout), NULL);
}

/* What the rank streamed goes, or has become the job's. */
void stream_drop(struct zero_rank *rank)
{
	layout_free(&rank->layout);
	tier_charge_return(&rank->stream_charge);
}

/* Pays for @more_bytes beside what is there. -ENOSPC, -EDQUOT. */
static int stream_pay(struct zero_rank *rank, uint64_t more_bytes, struct zi_text *text)
{
	struct zero_job *job = rank->job;
	struct tier_account *account = &job->account->account;
	uint64_t bytes = stream_bytes(&rank->layout) + more_bytes;
	uint64_t paid_bytes = rank->stream_charge.bytes;
	struct zi_text why = { "" };
	int r;

	/* Of the whole: a charge is one piece. */
	tier_charge_return(&rank->stream_charge);
	r = tier_charge_take(&rank->stream_charge, job->cpu_tier, account, bytes, &why);
	if (!r)
		return 0;
	zi_text_set(text, "the layout that rank %u streams: %s", rank->number, why.chars);
	if (paid_bytes) {
		int again = tier_charge_take(&rank->stream_charge, job->cpu_tier, account,
		                             paid_bytes, &why);

		assert(!again); /* It was returned just now. */
		(void)again;
	}
	return err_origin(r == TIER_E_QUOTA ? -EDQUOT : -ENOSPC);
}

/* Doubles up to the limit. */
static int grow(struct zero_rank *rank, void **array, uint32_t *capacity, uint32_t limit,
                size_t element_bytes, struct zi_text *text)
{
	uint32_t wanted = *capacity ? ZI_MIN(*capacity * 2, limit) : ZI_MIN(16u, limit);
	void *grown;
	int r;

	assert(wanted > *capacity);
	r = stream_pay(rank, (wanted - *capacity) * element_bytes, text);
	if (r)
		return err_trace(r);
	grown = reallocarray(*array, wanted, element_bytes);
	if (!grown)
		return err_origin(zi_text_error(text, -ENOMEM,
		                                "no memory for a layout of %u entries", wanted));
	*array = grown;
	*capacity = wanted;
	return 0;
}

/* Who it is for is a matter of this start: of its world, and of its strategy. */
static int set_check(const struct zero_rank *rank, const struct zi_layout_entry *entry,
                     struct zi_text *text)
{
	const struct zero_group *group = &rank->job->group;
	uint64_t strangers = entry->shape[0] & ~job_mask_of(group->world_size);
	uint32_t count = (uint32_t)__builtin_popcountll(entry->shape[0]);
	uint32_t shard = zi_strategy_divides_state(group->training.strategy)
	                         ? group->training.shard_size
	                         : 0;

	if (strangers)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"data-parallel group '%.60s' has ranks %s, but the job has %u ranks",
			entry->name, set_format(entry->shape[0]).chars, group->world_size));
	if (!shard || count <= shard || count % shard == 0)
		return 0;
	return err_origin(
		zi_text_error(text, -EINVAL,
	                      "data-parallel group '%.60s' has %u ranks, which shard_size "
	                      "%u does not divide: use a divisor, or 0 for whole groups",
	                      entry->name, count, shard));
}

/* The units that follow are of this set: a new one, or one that was there before. */
static int set_add(struct zero_rank *rank, const struct zi_layout_entry *entry,
                   struct zi_text *text)
{
	struct zero_layout *layout = &rank->layout;
	int r = set_check(rank, entry, text);

	if (r)
		return err_trace(r);
	for (uint32_t i = 0; i < layout->set_count; i++) {
		if (strcmp(layout->sets[i].name, entry->name) != 0)
			continue;
		if (layout->sets[i].members != entry->shape[0])
			return err_origin(zi_text_error(
				text, -EINVAL,
				"two data-parallel groups are named '%.60s': ranks %s, and %s",
				entry->name, set_format(layout->sets[i].members).chars,
				set_format(entry->shape[0]).chars));
		layout->set = i;
		return 0;
	}
	if (layout->unit_count && !layout->set_count)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"data-parallel group '%.60s' comes after unit '%.60s', which has none",
			entry->name, layout->units[0].name));
	if (layout->set_count >= ZI_SETS_MAX)
		return err_origin(zi_text_error(
			text, -E2BIG, "data-parallel group '%.60s' is one too many: %u are allowed",
			entry->name, ZI_SETS_MAX));
	if (layout->set_count == layout->set_capacity) {
		r = grow(rank, (void **)&layout->sets, &layout->set_capacity, ZI_SETS_MAX,
		         sizeof(*layout->sets), text);
		if (r)
			return err_trace(r);
	}
	layout->set = layout->set_count++;
	layout->sets[layout->set] = (struct catalog_set){ .members = entry->shape[0] };
	(void)zi_copy_name(layout->sets[layout->set].name, sizeof(layout->sets[0].name),
	                   entry->name); /* Of the same size. */
	return 0;
}

static int unit_add(struct zero_rank *rank, const struct zi_layout_entry *entry, uint32_t limit,
                    struct zi_text *text)
{
	struct zero_layout *layout = &rank->layout;
	struct catalog_unit *unit;
	int r;

	if (layout->unit_count >= limit)
		return err_origin(zi_text_error(text, -E2BIG,
		                                "unit '%s' is one too many: %u are "
		                                "allowed (limits.units)",
		                                entry->name, limit));
	if (layout->unit_count == layout->unit_capacity) {
		r = grow(rank, (void **)&layout->units, &layout->unit_capacity, limit,
		         sizeof(*unit), text);
		if (r)
			return err_trace(r);
	}
	unit = &layout->units[layout->unit_count++];
	*unit = (struct catalog_unit){ .member_set = layout->set };      /* 0: also without any. */
	(void)zi_copy_name(unit->name, sizeof(unit->name), entry->name); /* Of the same size. */
	return 0;
}

static int param_add(struct zero_rank *rank, const struct zi_layout_entry *entry, uint32_t limit,
                     struct zi_text *text)
{
	struct zero_layout *layout = &rank->layout;
	struct catalog_param *param;
	int r;

	if (!layout->unit_count)
		return err_origin(zi_text_error(
			text, -EINVAL, "parameter '%s' comes before the first unit", entry->name));
	if (layout->param_count >= limit)
		return err_origin(zi_text_error(text, -E2BIG,
		                                "parameter '%s' is one too many: %u "
		                                "are allowed (limits.params)",
		                                entry->name, limit));
	if (layout->param_count == layout->param_capacity) {
		r = grow(rank, (void **)&layout->params, &layout->param_capacity, limit,
		         sizeof(*param), text);
		if (r)
			return err_trace(r);
	}
	param = &layout->params[layout->param_count++];
	*param = (struct catalog_param){ .unit = layout->unit_count - 1,
		                         .dim_count = entry->dim_count,
		                         .group = entry->group };
	(void)zi_copy_name(param->name, sizeof(param->name), entry->name); /* Of the same size. */
	memcpy(param->shape, entry->shape, entry->dim_count * sizeof(param->shape[0]));
	return 0;
}

/**
 * zero_layout_add() - the next entry of a rank's layout
 * @entry: checked by wire/check
 *
 * Return: 0; -E2BIG with the limit; -EINVAL a parameter without a unit, a set that cannot be;
 * -EBUSY after materialize; the group's error when it broke; -ENOSPC, -EDQUOT, -ENOMEM.
 */
int zero_layout_add(struct zero_rank *rank, const struct zi_layout_entry *entry,
                    struct zi_text *text)
{
	const struct zero_options *options = &rank->job->zero->options;

	assert(entry->dim_count <= ZI_PARAM_DIMS_MAX);
	if (rank->broken_error)
		return err_origin(
			zi_text_error(text, rank->broken_error, "%s", rank->broken_text.chars));
	/* Also when its own materialize timed out: the others' may go on with this model. */
	if (rank->pin_counts || rank->gathered[ZERO_GATHER_MATERIALIZE] ||
	    (rank->is_member && gather_is_full(rank->job, ZERO_GATHER_MATERIALIZE)))
		return err_origin(
			zi_text_error(text, -EBUSY, "the model is materialised: it cannot grow"));
	if (entry->kind == ZI_LAYOUT_SET)
		return err_trace(set_add(rank, entry, text));
	if (entry->kind == ZI_LAYOUT_UNIT)
		return err_trace(unit_add(rank, entry, options->units_max, text));
	return err_trace(param_add(rank, entry, options->params_max, text));
}
