/* SPDX-License-Identifier: Apache-2.0 */
/* A step that is not to be. Floor 2. */
#include "common/base/err.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

static void forget_acquire(struct zinf *zinf, struct zi_client_unit *unit)
{
	struct zi_client_op *op = zi_client_find(zinf, unit->acquire_ticket);

	unit->acquire_ticket = 0;
	if (!op)
		return;
	if (op->state == ZI_CLIENT_OP_DONE)
		zi_client_op_free(zinf, op);
	else
		op->state = ZI_CLIENT_OP_ABANDONED;
}

/* The daemon has dropped all gradients, and ended every wait for one. */
static void forget_step(struct zinf *zinf)
{
	zi_client_forget_call(zinf, ZI_OP_GRAD_NORM);
	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		struct zi_client_unit *unit = &zinf->units[i];

		forget_acquire(zinf, unit);
		zi_client_forget_done(zinf, unit);
		unit->reduce_count = 0;
		unit->kept_error = 0;
	}
	zinf->is_step_begun = false;
	zinf->is_step_late = false;
	zinf->is_shadowing = false;
}

/* See client.h. */
int zi_client_discard(struct zinf *zinf)
{
	int r = zinf->gpu ? zi_client_gpu_settle_grads(zinf) : 0;

	/* Nothing lies behind a gradient any more, before the daemon may give its place away. */
	for (uint32_t i = 0; i < zinf->unit_count && !r; i++)
		if (zinf->units[i].is_grad_held)
			r = zi_client_grad_drop(zinf, i);
	if (!r)
		r = zi_client_call(zinf, ZI_OP_STEP_DISCARD, 0, 0, NULL);
	if (r)
		return err_trace(r);
	forget_step(zinf);
	if (zinf->gpu)
		zi_client_gpu_discard(zinf);
	return 0;
}

int zinf_step_discard(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter_step(zinf, "zinf_step_discard()");

	if (!r)
		r = zi_client_check_late_steps(zinf, "zinf_step_discard()");
	if (r)
		return err_trace(r);
	if (!zinf->is_step_begun && !zinf->is_step_late)
		return zi_client_error(zinf, -EINVAL,
		                       zinf->steps_pending
		                               ? "this rank has ended its step: zinf_wait() its "
		                                 "ticket"
		                               : "no step was begun: there is nothing to discard");
	return err_trace(zi_client_discard(zinf));
}
