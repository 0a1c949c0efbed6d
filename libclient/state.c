/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizer state of a parameter, through a window that the daemon fills and reads. Floor 2.
 *
 * A parameter passes through the window in ranges, one request each. The daemon knows no master of
 * 16-bit parameters but its remainder: what the parameter lacks of it (docs/ARITHMETIC.md). The two
 * are joined and split here, where the parameter is visible. A call that was interrupted goes on
 * with the range that is pending.
 */
#include <string.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/region.h"
#include "common/wire/state.h"
#include "kernels/cast.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* One call: what of which parameter. */
struct state_call {
	struct zinf *zinf;
	const struct zi_client_param *param;
	uint32_t index;
	enum zinf_state_kind kind;
	enum zi_state_kind wire_kind; /* 0: of the parameter itself */
	uint64_t count;
	bool is_write;
	uint32_t root;
};

void zi_client_unmap_state(struct zinf *zinf)
{
	(void)zi_region_unmap(zinf->state_base, zinf->state_bytes); /* Asserts inside. */
	zinf->state_base = NULL;
}

static int need_feature(struct zinf *zinf)
{
	if (zinf->features & ZI_FEATURE_STATE)
		return 0;
	return zi_client_error(
		zinf, -EOPNOTSUPP,
		"zinfd at %s cannot keep, read or write optimizer state: use a newer "
		"one",
		zinf->path);
}

static enum zi_dtype dtype_of(const struct zinf *zinf)
{
	return (enum zi_dtype)zinf->attach.config.param_dtype;
}

/* 0: the optimizer has none. */
static enum zi_state_kind wire_kind_of(const struct zinf *zinf, enum zinf_state_kind kind)
{
	enum zi_optimizer optimizer = (enum zi_optimizer)zinf->attach.config.optimizer;
	bool is_adam = optimizer == ZI_OPTIMIZER_ADAMW || optimizer == ZI_OPTIMIZER_ADAM;

	switch (kind) {
	case ZINF_STATE_MASTER:
		return ZI_STATE_REMAINDER;
	case ZINF_STATE_EXP_AVG:
		return is_adam || optimizer == ZI_OPTIMIZER_LION ? ZI_STATE_FIRST : 0;
	case ZINF_STATE_EXP_AVG_SQ:
		return is_adam ? ZI_STATE_SECOND : 0;
	case ZINF_STATE_MOMENTUM:
		return optimizer == ZI_OPTIMIZER_SGD ? ZI_STATE_FIRST : 0;
	case ZINF_STATE_SUM:
		return optimizer == ZI_OPTIMIZER_ADAGRAD ? ZI_STATE_FIRST : 0;
	default:
		return 0;
	}
}

static const char *kinds_of(const struct zinf *zinf)
{
	switch ((enum zi_optimizer)zinf->attach.config.optimizer) {
	case ZI_OPTIMIZER_ADAMW:
	case ZI_OPTIMIZER_ADAM:
		return "MASTER, EXP_AVG and EXP_AVG_SQ";
	case ZI_OPTIMIZER_LION:
		return "MASTER and EXP_AVG";
	case ZI_OPTIMIZER_SGD:
		return "MASTER and MOMENTUM";
	case ZI_OPTIMIZER_ADAGRAD:
		return "MASTER and SUM";
	case _ZI_OPTIMIZER_COUNT:
	default:
		return "MASTER";
	}
}

/* Elements of a parameter: parameters of a unit lie one after the other. */
static uint64_t elements_of(const struct zi_client_param *param)
{
	uint64_t count = 1;

	for (uint32_t i = 0; i < param->entry.dim_count; i++)
		count *= param->entry.shape[i];
	return count;
}

static int call_init(struct state_call *call, struct zinf *zinf, uint32_t param,
                     enum zinf_state_kind kind, uint64_t count)
{
	int r = zi_client_check_unit(zinf, 0);

	if (!r)
		r = need_feature(zinf);
	if (r)
		return err_trace(r);
	if (param >= zinf->param_count)
		return zi_client_error(zinf, -EINVAL, "parameter %u of %u", param,
		                       zinf->param_count);
	*call = (struct state_call){ .zinf = zinf,
		                     .param = &zinf->params[param],
		                     .index = param,
		                     .kind = kind,
		                     .wire_kind = wire_kind_of(zinf, kind),
		                     .count = count };
	if (!call->wire_kind)
		return zi_client_error(
			zinf, -EINVAL, "state of kind %d: optimizer %s has %s", (int)kind,
			zi_optimizer_name((enum zi_optimizer)zinf->attach.config.optimizer),
			kinds_of(zinf));
	if (call->count != elements_of(call->param))
		return zi_client_error(zinf, -EINVAL,
		                       "%llu values, but parameter '%s' has %llu elements",
		                       (unsigned long long)count, call->param->entry.name,
		                       (unsigned long long)elements_of(call->param));
	return 0;
}

static int open_window(struct zinf *zinf)
{
	struct zi_message_header request;
	const struct zi_message_header *reply;
	int fds[ZI_MESSAGE_FDS_MAX];
	uint64_t bytes;
	int r;

	if (zinf->state_base)
		return 0;
	r = zi_client_request(zinf, &request, ZI_MESSAGE_STATE_OPEN, sizeof(request),
	                      ZI_MESSAGE_STATE_OPENED, &reply, fds, 1);
	if (r)
		return err_trace(r);
	bytes = ((const struct zi_state_opened *)reply)->bytes;
	r = bytes < (uint64_t)ZI_STATE_WINDOW_ELEMENTS * sizeof(int32_t)
	            ? -EPROTO
	            : zi_region_map(fds[0], bytes, true, &zinf->state_base);
	(void)zi_close(fds[0]); /* The mapping is enough. */
	if (r == -EPROTO || r == -EACCES)
		return err_trace(zi_client_breach(zinf, "a window for optimizer state that is not "
		                                        "sealed, too short, or read-only"));
	if (r)
		return zi_client_error(zinf, r, "mapping %s for optimizer state: %s",
		                       zi_format_bytes(bytes).chars, strerror(-r));
	zinf->state_bytes = bytes;
	return 0;
}

/* ---- masters of 16-bit parameters ---- */

/* @param: what is visible of it. @values: in: remainders, out: masters. */
static void join(const struct zinf *zinf, const uint16_t *param, float *values, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		int32_t remainder;

		memcpy(&remainder, &values[i], sizeof(remainder));
		values[i] = dtype_of(zinf) == ZI_DTYPE_F16
		                    ? kern_join_f16(param[i], remainder)
		                    : kern_join(param[i], (int16_t)remainder);
	}
}

static void split_one(const struct zinf *zinf, float master, uint16_t *ret_param,
                      int32_t *ret_remainder)
{
	int16_t narrow;

	if (dtype_of(zinf) == ZI_DTYPE_F16) {
		kern_split_f16(master, ret_param, ret_remainder);
		return;
	}
	kern_split(master, ret_param, &narrow);
	*ret_remainder = narrow;
}

/* -EINVAL: a master is not one of the parameter's present value. */
static int check_masters(const struct state_call *call, const float *values)
{
	const uint16_t *param = zinf_param_data(call->zinf, call->index);

	for (uint64_t i = 0; i < call->count; i++) {
		uint16_t rounded;
		int32_t remainder;

		split_one(call->zinf, values[i], &rounded, &remainder);
		if (rounded != param[i])
			return zi_client_error(
				call->zinf, -EINVAL,
				"the master of element %llu of '%s' is %.9g, which does not "
				"round to the parameter's value: write the parameter first",
				(unsigned long long)i, call->param->entry.name, (double)values[i]);
	}
	return 0;
}

/* The unit comes behind its CPU address for this call, whether it is in use on the GPU or not. */
static int with_shown(const struct state_call *call, float *values,
                      int (*use)(const struct state_call *call, float *values))
{
	struct zinf *zinf = call->zinf;
	int r = zi_client_gpu_settle(zinf), after;

	if (!r)
		r = zi_client_show_unit(zinf, call->param->unit);
	if (r)
		return err_trace(r);
	r = use(call, values);
	after = zi_client_hide_unit(zinf, call->param->unit);
	return r ? err_trace(r) : err_trace(after);
}

/* Of the parameter, which is visible meanwhile: @use with @values. */
static int with_param(const struct state_call *call, float *values,
                      int (*use)(const struct state_call *call, float *values))
{
	struct zinf *zinf = call->zinf;
	int r, after;

	if (zinf->units[call->param->unit].is_writable)
		return zi_client_error(zinf, -EBUSY,
		                       "unit '%s' is writable: zinf_param_write_end() ends that",
		                       zinf->units[call->param->unit].name);
	/* With a GPU a use of the unit would be there. */
	if (zinf->gpu)
		return err_trace(with_shown(call, values, use));
	r = zinf_unshard(zinf, call->param->unit);
	if (r)
		return err_trace(r);
	r = use(call, values);
	after = zinf_reshard(zinf, call->param->unit);
	return r ? err_trace(r) : err_trace(after);
}

static int take_masters(const struct state_call *call, float *values)
{
	const void *param = zinf_param_data(call->zinf, call->index);

	if (dtype_of(call->zinf) == ZI_DTYPE_F32)
		memcpy(values, param, call->count * sizeof(*values));
	else
		join(call->zinf, param, values, call->count);
	return 0;
}

static int give_masters(const struct state_call *call, float *values)
{
	return check_masters(call, values);
}

/* ---- ranges ---- */

/* Between the window and @values, (@count,) from the window's beginning. */
static void window_get(const struct zinf *zinf, float *values, uint64_t count)
{
	memcpy(values, zinf->state_base, count * sizeof(*values));
}

static void window_put(const struct state_call *call, const float *values, uint64_t count)
{
	int32_t *window = call->zinf->state_base;

	if (call->wire_kind != ZI_STATE_REMAINDER) {
		memcpy(window, values, count * sizeof(*values));
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		uint16_t param;

		split_one(call->zinf, values[i], &param, &window[i]);
	}
}

static int request_range(const struct state_call *call, uint64_t done, uint64_t count)
{
	struct zi_state_range request = {
		.unit = call->param->unit,
		.kind = call->wire_kind,
		.first = call->param->element_offset + done,
		.count = count,
		.root = call->root,
	};
	const struct zi_message_header *reply;

	return err_trace(
		zi_client_request(call->zinf, &request.header,
	                          call->is_write ? ZI_MESSAGE_STATE_WRITE : ZI_MESSAGE_STATE_READ,
	                          sizeof(request), ZI_MESSAGE_DONE, &reply, NULL, 0));
}

/* Where a call goes on that was interrupted; else at the beginning. */
static uint64_t progress_of(const struct state_call *call)
{
	const struct zi_client_state_progress *progress = &call->zinf->state_progress;

	if (!progress->is_open || progress->param != call->index ||
	    progress->kind != (uint32_t)call->kind || progress->is_write != call->is_write)
		return 0;
	return progress->done;
}

static int end_call(const struct state_call *call, uint64_t done, int r)
{
	call->zinf->state_progress =
		(struct zi_client_state_progress){ .is_open = r == -EINTR,
		                                   .is_write = call->is_write,
		                                   .param = call->index,
		                                   .kind = (uint32_t)call->kind,
		                                   .done = done };
	return err_trace(r);
}

int zinf_state_read(struct zinf *zinf, uint32_t param, enum zinf_state_kind kind, float *values,
                    uint64_t count)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, values, values);
	struct state_call call;
	uint64_t done;
	int r = call_init(&call, zinf, param, kind, count);

	if (r)
		return err_trace(r);
	if (kind == ZINF_STATE_MASTER && dtype_of(zinf) == ZI_DTYPE_F32)
		return err_trace(with_param(&call, values, take_masters));
	done = progress_of(&call);
	r = open_window(zinf);
	while (!r && done < count) {
		uint64_t part = ZI_MIN(count - done, (uint64_t)ZI_STATE_WINDOW_ELEMENTS);

		r = request_range(&call, done, part);
		if (r)
			break;
		window_get(zinf, values + done, part);
		done += part;
	}
	if (!r && kind == ZINF_STATE_MASTER)
		r = with_param(&call, values, take_masters);
	return end_call(&call, done, r);
}

int zinf_state_write(struct zinf *zinf, uint32_t param, enum zinf_state_kind kind,
                     const float *values, uint64_t count, int32_t root)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	bool is_root = root == zinf_rank(zinf);
	struct state_call call;
	uint64_t done;
	int r = call_init(&call, zinf, param, kind, count);

	if (r)
		return err_trace(r);
	if (root < 0 || root >= zinf_world_size(zinf))
		return zi_client_error(zinf, -EINVAL, "root %d of a world of %d", root,
		                       zinf_world_size(zinf));
	ZI_CLIENT_NEED(zinf, values, values || !is_root);
	if (zinf->is_step_begun)
		return zi_client_error(zinf, -EBUSY, "a step is under way: zinf_step() ends it");
	if (kind == ZINF_STATE_MASTER && dtype_of(zinf) == ZI_DTYPE_F32)
		return zi_client_error(zinf, -EINVAL,
		                       "fp32 parameters are their own master: "
		                       "zinf_param_write_begin() writes them");
	call.is_write = true;
	call.root = (uint32_t)root;
	done = progress_of(&call);
	if (is_root)
		r = open_window(zinf);
	if (!r && is_root && !done && kind == ZINF_STATE_MASTER && !zinf->pending.is_open)
		r = with_param(&call, (float *)(uintptr_t)values, give_masters);
	while (!r && done < count) {
		uint64_t part = ZI_MIN(count - done, (uint64_t)ZI_STATE_WINDOW_ELEMENTS);

		if (is_root)
			window_put(&call, values + done, part);
		r = request_range(&call, done, part);
		if (!r)
			done += part;
	}
	return end_call(&call, done, r);
}

int zinf_update_count_set(struct zinf *zinf, uint64_t update_count, double beta1, double beta2)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_state_count request = { .update_count = update_count,
		                          .beta1 = beta1,
		                          .beta2 = beta2 };
	const struct zi_message_header *reply;
	int r = zi_client_check_unit(zinf, 0);

	if (!r)
		r = need_feature(zinf);
	if (r)
		return err_trace(r);
	if (zinf->is_step_begun)
		return zi_client_error(zinf, -EBUSY, "a step is under way: zinf_step() ends it");
	r = zi_client_request(zinf, &request.header, ZI_MESSAGE_STATE_COUNT, sizeof(request),
	                      ZI_MESSAGE_DONE, &reply, NULL, 0);
	if (r)
		return err_trace(r);
	zinf->update_count = (int64_t)update_count;
	return 0;
}

int zinf_param_write_keep(struct zinf *zinf, uint32_t unit, int32_t root)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_check_unit(zinf, unit);

	if (!r)
		r = need_feature(zinf);
	return r ? err_trace(r) : err_trace(zi_client_write_end(zinf, unit, root, true));
}
