/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units in use: parameters gathered and freed. Floor 2.
 *
 * Uses of a unit nest here: the daemon hears of the first unshard and of the last reshard. When a
 * deadline passes, the operation stays under way, and the next call on the unit waits for the same
 * one: so the daemon's count and ours cannot part.
 *
 * With parameters on NVMe an unshard tells where in the pool the unit lies, and those pages are
 * mapped at the unit's own address; a reshard puts the bare reservation back, and only then tells
 * the daemon. An address means the same parameter always, and a stray access faults.
 *
 * With a GPU the daemon hears of a unit only while it is copied there (gpu/copies.c).
 */
#include <inttypes.h>
#include <string.h>

#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "common/wire/region.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* The error of an operation nobody waited for is told once, by the first call that waits. */
static int take_kept(struct zinf *zinf, struct zi_client_unit *unit)
{
	int error = unit->kept_error;

	if (!error)
		return 0;
	unit->kept_error = 0;
	return err_origin(zi_client_tell(zinf, error, &unit->kept_text));
}

/* As zi_client_finish(). */
static int finish_slot(struct zinf *zinf, const struct zi_sqe *slot, uint64_t *ticket,
                       uint64_t *ret_value)
{
	struct zi_client_op *op = zi_client_find(zinf, *ticket);
	bool is_done = false;
	int r;

	if (!op) {
		r = zi_client_submit_slot(zinf, slot, false, &op);
		if (r)
			return err_trace(r);
		*ticket = op->ticket;
	}
	r = zi_client_wait_op(zinf, op, true, &is_done);
	if (!is_done)
		return err_trace(r);
	*ticket = 0;
	*ret_value = op->value;
	zi_client_op_free(zinf, op);
	return err_trace(r);
}

/* See client.h. */
int zi_client_finish(struct zinf *zinf, enum zi_opcode opcode, uint32_t index, uint64_t *ticket,
                     uint64_t *ret_value)
{
	const struct zi_sqe slot = { .opcode = (uint16_t)opcode, .unit = index };

	return err_trace(finish_slot(zinf, &slot, ticket, ret_value));
}

/* See client.h. */
bool zi_client_is_in_pool(const struct zinf *zinf, const struct zi_client_unit *unit,
                          uint64_t offset_bytes)
{
	return offset_bytes % zinf->slot_bytes == 0 && offset_bytes <= zinf->pool_bytes &&
	       zinf->pool_bytes - offset_bytes >= unit->param_bytes;
}

/* The unit lies at @offset_bytes of the pool: those pages come behind its address. When that fails
 * it is as if it had never been unsharded. */
static int map_unit(struct zinf *zinf, uint32_t index, uint64_t offset_bytes)
{
	struct zi_client_unit *unit = &zinf->units[index];
	int r;

	if (!zi_client_is_in_pool(zinf, unit, offset_bytes))
		return err_trace(zi_client_breach(zinf, "a unit outside the pool"));
	r = zi_region_map_at(zi_client_unit_address(zinf, unit), unit->param_bytes, zinf->param_fd,
	                     offset_bytes, false);
	if (!r)
		return 0;
	(void)zi_client_submit(zinf, ZI_OP_RESHARD, index, 0, true, NULL); /* Over, or it works. */
	return zi_client_error(zinf, r, "mapping %s of unit '%s': %s",
	                       zi_format_bytes(unit->param_bytes).chars, unit->name, strerror(-r));
}

/* Nothing lies behind the unit any more, before the daemon may give its slots to another. */
static int unmap_unit(struct zinf *zinf, struct zi_client_unit *unit)
{
	int r;

	assert(!unit->is_writable);
	r = zi_region_map_at(zi_client_unit_address(zinf, unit), unit->param_bytes, -1, 0, false);
	if (!r)
		return 0;
	return zi_client_error(zinf, r, "unmapping unit '%s': %s", unit->name, strerror(-r));
}

/* See client.h, as is the next. */
int zi_client_enter_unit(struct zinf *zinf, uint32_t index)
{
	int r = zi_client_check_unit(zinf, index);

	if (r)
		return err_trace(r);
	return err_trace(take_kept(zinf, &zinf->units[index]));
}

uint32_t zi_client_reduce_max(const struct zinf *zinf)
{
	return zinf->attach.config.schedule == ZI_SCHEDULE_SHARDED ? zinf->micro_batches : 1;
}

/* @slot: of UNSHARD or UNSHARD_PART. */
static int show_slot(struct zinf *zinf, const struct zi_sqe *slot)
{
	uint64_t offset_bytes = 0;
	int r = finish_slot(zinf, slot, &zinf->units[slot->unit].unshard_ticket, &offset_bytes);

	if (!r && zi_client_is_pooled(zinf))
		r = map_unit(zinf, slot->unit, offset_bytes);
	return err_trace(r);
}

/* See client.h. */
int zi_client_show_unit(struct zinf *zinf, uint32_t index)
{
	const struct zi_sqe slot = { .opcode = ZI_OP_UNSHARD, .unit = index };

	return err_trace(show_slot(zinf, &slot));
}

/* See client.h. */
int zi_client_hide_unit(struct zinf *zinf, uint32_t index)
{
	int r = zi_client_is_pooled(zinf) ? unmap_unit(zinf, &zinf->units[index]) : 0;

	return r ? err_trace(r)
	         : err_trace(zi_client_submit(zinf, ZI_OP_RESHARD, index, 0, true, NULL));
}

/* What every unshard asks first. */
static int check_unshard(struct zinf *zinf, const struct zi_client_unit *unit)
{
	if (unit->unshard_count && unit->is_part)
		return zi_client_error(zinf, -EBUSY,
		                       "rows of unit '%s' are unsharded: zinf_reshard() comes "
		                       "before another use",
		                       unit->name);
	if (unit->unshard_count == UINT32_MAX)
		return zi_client_error(zinf, -EOVERFLOW, "unit '%s' is unsharded too often",
		                       unit->name);
	if (zinf->is_step_begun && zinf->is_early && !unit->unshard_count &&
	    (unit->reduce_count == zi_client_reduce_max(zinf) || !zi_client_is_member(zinf, unit)))
		return zi_client_error(zinf, -EBUSY,
		                       "unit '%s' may be updated already: update_early promised "
		                       "not to unshard it between its last zinf_reduce() (in a "
		                       "data-parallel group of others: zinf_step_begin()) and "
		                       "zinf_step()",
		                       unit->name);
	if (!unit->unshard_count && (zinf->gpu || zi_client_is_pooled(zinf)) && unit->is_writable)
		return zi_client_error(zinf, -EBUSY,
		                       "unit '%s' is open for writing: "
		                       "zinf_param_write_end() ends that",
		                       unit->name);
	return 0;
}

/* Rows that an interrupted call asked for, and that are not those wanted now, are given back. */
static int drop_part(struct zinf *zinf, uint32_t index, const uint64_t *part_args)
{
	struct zi_client_unit *unit = &zinf->units[index];
	uint64_t offset_bytes;
	int r;

	if (!unit->unshard_ticket || !unit->is_part ||
	    (part_args && !memcmp(unit->part_args, part_args, sizeof(unit->part_args))))
		return 0;
	r = zi_client_finish(zinf, ZI_OP_UNSHARD_PART, index, &unit->unshard_ticket, &offset_bytes);
	if (r)
		return err_trace(r);
	return err_trace(zi_client_submit(zinf, ZI_OP_RESHARD, index, 0, true, NULL));
}

/* The first use of a unit. */
static int unshard_first(struct zinf *zinf, const struct zi_sqe *slot)
{
	int r = zinf->gpu ? zi_client_gpu_unshard(zinf, slot->unit) : show_slot(zinf, slot);

	if (!r)
		zinf->units[slot->unit].unshard_count = 1;
	return err_trace(r);
}

/* Of a unit that was entered. */
static int unshard_whole(struct zinf *zinf, uint32_t index)
{
	struct zi_client_unit *unit = &zinf->units[index];
	const struct zi_sqe slot = { .opcode = ZI_OP_UNSHARD, .unit = index };
	int r = check_unshard(zinf, unit);

	if (r)
		return err_trace(r);
	if (unit->unshard_count) {
		unit->unshard_count++;
		return 0;
	}
	r = drop_part(zinf, index, NULL);
	if (r)
		return err_trace(r);
	unit->is_part = false;
	return err_trace(unshard_first(zinf, &slot));
}

int zinf_unshard(struct zinf *zinf, uint32_t index)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter_unit(zinf, index);

	return r ? err_trace(r) : err_trace(unshard_whole(zinf, index));
}

/* @args: of UNSHARD_PART, for (count,) rows. Return: 0; -EINVAL. */
static int part_of_rows(struct zinf *zinf, const struct zi_client_param *param, const int64_t *rows,
                        size_t count, uint64_t *args)
{
	const struct zi_layout_entry *entry = &param->entry;
	uint64_t unit_count = zi_geometry_padded(zinf->units[param->unit].element_count);
	uint32_t run = (zi_geometry_subgroup_count(unit_count) - 1) / ZI_PART_BITS + 1;
	uint64_t width = 0;

	if (!entry->dim_count)
		return zi_client_error(zinf, -EINVAL, "parameter '%s' is a scalar: it has no rows",
		                       entry->name);
	(void)zi_geometry_elements(entry->shape, entry->dim_count, &width); /* Checked before. */
	width /= entry->shape[0];
	args[0] = run;
	for (size_t i = 0; i < count; i++) {
		uint64_t row = (uint64_t)rows[i];
		uint64_t first = param->element_offset + row * width;

		if (row >= entry->shape[0])
			return zi_client_error(zinf, -EINVAL,
			                       "row %" PRId64
			                       " of parameter '%s', which has %" PRIu64,
			                       rows[i], entry->name, entry->shape[0]);
		for (uint64_t bit = first / ZI_SUBGROUP_ELEMENTS / run;
		     bit <= (first + width - 1) / ZI_SUBGROUP_ELEMENTS / run; bit++)
			args[1 + bit / 64] |= 1ull << bit % 64;
	}
	return 0;
}

int zinf_unshard_rows(struct zinf *zinf, uint32_t param, const int64_t *rows, size_t row_count)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, rows, rows || !row_count);
	struct zi_sqe slot = { .opcode = ZI_OP_UNSHARD_PART };
	struct zi_client_unit *unit;
	int r;

	if (param >= zinf->param_count)
		return zi_client_error(zinf, -EINVAL, "parameter %u: there are %u", param,
		                       zinf->param_count);
	slot.unit = zinf->params[param].unit;
	unit = &zinf->units[slot.unit];
	r = zi_client_enter_unit(zinf, slot.unit);
	if (!r)
		r = part_of_rows(zinf, &zinf->params[param], rows, row_count, slot.args);
	if (r)
		return err_trace(r);
	/* A whole unit that is there, or under way, has them; a GPU has whole units. */
	if (!(zinf->features & ZI_FEATURE_PART) || zinf->gpu ||
	    (!unit->is_part && (unit->unshard_count || unit->unshard_ticket)))
		return err_trace(unshard_whole(zinf, slot.unit));
	r = check_unshard(zinf, unit);
	if (!r)
		r = drop_part(zinf, slot.unit, slot.args);
	if (r)
		return err_trace(r);
	unit->is_part = true;
	memcpy(unit->part_args, slot.args, sizeof(unit->part_args));
	return err_trace(unshard_first(zinf, &slot));
}

int zinf_reshard(struct zinf *zinf, uint32_t index)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_client_unit *unit;
	int r = zi_client_check_unit(zinf, index);

	if (r)
		return err_trace(r);
	unit = &zinf->units[index];
	if (!unit->unshard_count)
		return zi_client_error(zinf, -EINVAL, "unit '%s' is not unsharded", unit->name);
	if (unit->unshard_count == 1) {
		r = zinf->gpu ? zi_client_gpu_reshard(zinf, index)
		              : zi_client_hide_unit(zinf, index);
		if (r)
			return err_trace(r);
	}
	unit->unshard_count--;
	return 0;
}

int zinf_prefetch(struct zinf *zinf, uint32_t index)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_check_unit(zinf, index);

	if (r)
		return err_trace(r);
	if (zinf->units[index].unshard_count ||
	    (zinf->gpu && zi_client_gpu_has(zinf, index))) /* it is here */
		return 0;
	return err_trace(zi_client_submit(zinf, ZI_OP_PREFETCH, index, 0, true, NULL));
}
