/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parameters got a gradient. Floor 2.
 *
 * A trainer that marks gradients (zinf_grad_done()) has what it forgot told by zinf_reduce(), or
 * with finds_unused left out: then the buffer, which holds another step's values or another unit's,
 * is cleared there, and the daemon hears of it before the REDUCE, in the same ring. Marks are of
 * what is handed over next.
 */
#include <string.h>

#include "common/base/err.h"
#include "common/wire/geometry.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* Parameters that an error names; the rest is a number. */
#define UNUSED_NAMES_MAX 4u

static bool is_frozen(const struct zi_client_param *param)
{
	return param->entry.group == ZI_LAYOUT_FROZEN;
}

static bool is_unused(const struct zi_client_param *param)
{
	return !param->is_done && !is_frozen(param);
}

static struct zi_client_param *params_of(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	return &zinf->params[unit->param_first];
}

static bool finds(const struct zinf *zinf)
{
	return zinf->training.flags & ZI_TRAINING_FIND_UNUSED;
}

int zinf_grad_done(struct zinf *zinf, uint32_t param)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_client_unit *unit;
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (!zinf->is_materialized)
		return zi_client_error(zinf, -EINVAL, "call zinf_materialize() first");
	r = zi_client_check_steps(zinf, "zinf_grad_done()");
	if (r)
		return err_trace(r);
	if (param >= zinf->param_count)
		return zi_client_error(zinf, -EINVAL, "parameter %u of %u", param,
		                       zinf->param_count);
	unit = &zinf->units[zinf->params[param].unit];
	r = zi_client_check_trains(zinf, unit);
	if (r)
		return err_trace(r);
	if (!unit->is_grad_held)
		return zi_client_error(
			zinf, -EINVAL,
			"parameter '%s': call zinf_grad_acquire() of unit '%s' first",
			zinf->params[param].entry.name, unit->name);
	zinf->params[param].is_done = true;
	zinf->marks_grads = true;
	return 0;
}

/* "…: 'a', 'b' and 3 more". Return: -ENODATA. */
static int refuse(struct zinf *zinf, const struct zi_client_unit *unit)
{
	struct zi_text names = { "" };
	uint32_t count = 0;

	for (uint32_t i = 0; i < unit->param_count; i++) {
		const struct zi_client_param *param = &params_of(zinf, unit)[i];

		if (is_unused(param) && count++ < UNUSED_NAMES_MAX)
			zi_text_append(&names, "%s'%.40s'", count > 1 ? ", " : "",
			               param->entry.name);
	}
	if (count > UNUSED_NAMES_MAX)
		zi_text_append(&names, " and %u more", count - UNUSED_NAMES_MAX);
	return zi_client_error(zinf, -ENODATA,
	                       "unit '%.40s': no gradient of %s: zinf_grad_done() them, or set "
	                       "finds_unused",
	                       unit->name, names.chars);
}

static bool has_unused(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	for (uint32_t i = 0; i < unit->param_count; i++)
		if (is_unused(&params_of(zinf, unit)[i]))
			return true;
	return false;
}

/* See client.h. */
int zi_client_check_done(struct zinf *zinf, const struct zi_client_unit *unit)
{
	if (finds(zinf) || !zinf->marks_grads || zinf->is_shadowing || !has_unused(zinf, unit))
		return 0;
	return err_trace(refuse(zinf, unit));
}

static void clear(const struct zinf *zinf, const struct zi_client_unit *unit,
                  const struct zi_client_param *param)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
	char *grad = (char *)zinf->grad_base + unit->grad_offset_bytes;
	uint64_t elements = 0;

	(void)zi_geometry_elements(param->entry.shape, param->entry.dim_count,
	                           &elements); /* Checked when it was added. */
	memset(grad + param->element_offset * width, 0, elements * width);
}

/* See client.h. */
void zi_client_clear_unused(struct zinf *zinf, const struct zi_client_unit *unit)
{
	for (uint32_t i = 0; finds(zinf) && i < unit->param_count; i++)
		if (is_unused(&params_of(zinf, unit)[i]))
			clear(zinf, unit, &params_of(zinf, unit)[i]);
}

/* See client.h. Only slots that name one are sent: none, where all have a gradient. */
int zi_client_say_unused(struct zinf *zinf, uint32_t index)
{
	const struct zi_client_unit *unit = &zinf->units[index];
	int r = 0;

	for (uint32_t first = 0; finds(zinf) && !r && first < unit->param_count;
	     first += ZI_UNUSED_BITS) {
		uint32_t count = ZI_MIN(unit->param_count - first, ZI_UNUSED_BITS);
		struct zi_sqe slot = { .opcode = ZI_OP_GRAD_UNUSED,
			               .unit = index,
			               .args = { first } };
		bool is_needed = false;

		for (uint32_t i = 0; i < count; i++) {
			if (!is_unused(&params_of(zinf, unit)[first + i]))
				continue;
			slot.args[1 + i / 64] |= 1ull << i % 64;
			is_needed = true;
		}
		if (is_needed)
			r = zi_client_submit_slot(zinf, &slot, true, NULL);
	}
	return err_trace(r);
}

/* See client.h. */
void zi_client_forget_done(struct zinf *zinf, const struct zi_client_unit *unit)
{
	for (uint32_t i = 0; i < unit->param_count; i++)
		params_of(zinf, unit)[i].is_done = false;
}

static bool has_done(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	for (uint32_t i = 0; i < unit->param_count; i++)
		if (params_of(zinf, unit)[i].is_done)
			return true;
	return false;
}

/* Of a rank that has marked nothing ever all would be left out, in silence. */
static int check_marks(struct zinf *zinf)
{
	if (zinf->marks_grads || zinf->is_shadowing)
		return 0;
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		if (zi_client_trains(zinf, &zinf->units[i]))
			return zi_client_error(
				zinf, -ENODATA,
				"finds_unused is set, and rank %u has marked no gradient: "
				"zinf_grad_done() each that is written, or leave it false",
				zinf->attach.rank);
	return 0;
}

/* @micro: micro-batches that the unit is to have had. Marked, and not handed over: that is the
 * trainer's to mend. Held while another unit is acquired: it is about to be written. */
static bool is_left_out(const struct zinf *zinf, const struct zi_client_unit *unit, uint32_t micro)
{
	return unit->reduce_count < micro && zi_client_trains(zinf, unit) &&
	       (!unit->is_grad_held || zinf->is_step_ending) && !has_done(zinf, unit);
}

/* See client.h. */
bool zi_client_is_unused(const struct zinf *zinf, const struct zi_client_param *param)
{
	return finds(zinf) && is_unused(param);
}

/* See client.h. Micro-batch by micro-batch, as all ranks have them: nobody waits for one of another
 * that itself waits for one of this. */
int zi_client_reduce_unused(struct zinf *zinf, uint32_t micro_count)
{
	int r = 0;

	if (!finds(zinf) || zinf->is_shadowing)
		return 0;
	/* A unit that is copied is not the daemon's yet. */
	if (zinf->gpu)
		r = zi_client_gpu_settle_grads(zinf);
	if (r)
		return err_trace(r);
	for (uint32_t micro = 1; micro <= micro_count; micro++)
		for (uint32_t i = zinf->unit_count; i-- > 0;) {
			if (!is_left_out(zinf, &zinf->units[i], micro))
				continue;
			r = zi_client_grad_acquire(zinf, i);
			if (!r)
				r = zinf_reduce(zinf, i);
			if (r)
				return err_trace(r);
		}
	return 0;
}

/* See client.h. */
int zi_client_end_unused(struct zinf *zinf)
{
	int r = finds(zinf) ? check_marks(zinf) : 0;

	if (!r) {
		zinf->is_step_ending = true;
		r = zi_client_reduce_unused(zinf, zi_client_reduce_max(zinf));
		zinf->is_step_ending = false;
	}
	return err_trace(r);
}
