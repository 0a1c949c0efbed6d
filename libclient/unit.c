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
#include <string.h>

#include "common/base/err.h"
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

/* See client.h. */
int zi_client_finish(struct zinf *zinf, enum zi_opcode opcode, uint32_t index, uint64_t *ticket,
                     uint64_t *ret_value)
{
	struct zi_client_op *op = zi_client_find(zinf, *ticket);
	bool is_done = false;
	int r;

	if (!op) {
		r = zi_client_submit(zinf, opcode, index, 0, false, &op);
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

/* See client.h. */
int zi_client_show_unit(struct zinf *zinf, uint32_t index)
{
	uint64_t offset_bytes = 0;
	int r = zi_client_finish(zinf, ZI_OP_UNSHARD, index, &zinf->units[index].unshard_ticket,
	                         &offset_bytes);

	if (!r && zi_client_is_pooled(zinf))
		r = map_unit(zinf, index, offset_bytes);
	return err_trace(r);
}

/* See client.h. */
int zi_client_hide_unit(struct zinf *zinf, uint32_t index)
{
	int r = zi_client_is_pooled(zinf) ? unmap_unit(zinf, &zinf->units[index]) : 0;

	return r ? err_trace(r)
	         : err_trace(zi_client_submit(zinf, ZI_OP_RESHARD, index, 0, true, NULL));
}

int zinf_unshard(struct zinf *zinf, uint32_t index)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_client_unit *unit;
	int r = zi_client_enter_unit(zinf, index);

	if (r)
		return err_trace(r);
	unit = &zinf->units[index];
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
	if (!unit->unshard_count) {
		if ((zinf->gpu || zi_client_is_pooled(zinf)) && unit->is_writable)
			return zi_client_error(zinf, -EBUSY,
			                       "unit '%s' is open for writing: "
			                       "zinf_param_write_end() ends that",
			                       unit->name);
		r = zinf->gpu ? zi_client_gpu_unshard(zinf, index)
		              : zi_client_show_unit(zinf, index);
		if (r)
			return err_trace(r);
	}
	unit->unshard_count++;
	return 0;
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
