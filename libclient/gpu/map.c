/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks asked for, received, mapped; see map.h. Floor 2. */
#include "libclient/gpu/map.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/gpu/need.h"
#include "common/gpu/ring.h"
#include "common/wire/gpu.h"
#include "libclient/gpu/rank.h"

/* ---- the daemon's part ---- */

/* One GPU_OPEN. @budget: NULL: a question. */
static int request_open(struct zinf *zinf, const struct zi_gpu_budget *budget,
                        const struct zi_gpu_opened **ret_opened)
{
	struct zi_gpu_open request = { .chunk_bytes = budget ? budget->chunk_bytes : 0 };
	const struct zi_gpu_opened *opened;
	const struct zi_message_header *reply;
	int r;

	if (budget) {
		request.param_chunk_count = budget->param_count;
		request.grad_chunk_count = budget->grad_count;
	}
	static_assert(sizeof(request.uuid) >= ZI_GPU_UUID_BYTES, "a UUID fits");
	memcpy(request.uuid, zinf->gpu->device.uuid, ZI_GPU_UUID_BYTES);
	r = zi_client_request(zinf, &request.header, ZI_MESSAGE_GPU_OPEN, sizeof(request),
	                      ZI_MESSAGE_GPU_OPENED, &reply, NULL, 0);
	if (r)
		return err_trace(r);
	opened = (const struct zi_gpu_opened *)reply;
	if (opened->chunk_bytes != request.chunk_bytes ||
	    opened->param_chunk_count != request.param_chunk_count ||
	    opened->grad_chunk_count != request.grad_chunk_count)
		return err_trace(zi_client_breach(zinf, "other GPU memory than was asked for"));
	*ret_opened = opened;
	return 0;
}

int zi_gpu_map_ask(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	const struct zi_gpu_opened *opened;
	int r = request_open(zinf, NULL, &opened);

	if (r)
		return err_trace(r);
	if (!opened->granularity_bytes || opened->granularity_bytes > ZI_GPU_CHUNK_BYTES_MAX ||
	    opened->granularity_bytes % ZI_GPU_CHUNK_ALIGN_BYTES ||
	    opened->free_bytes > opened->capacity_bytes)
		return err_trace(zi_client_breach(zinf, "impossible figures of a GPU"));
	gpu->granularity_bytes = opened->granularity_bytes;
	gpu->free_bytes = opened->free_bytes;
	return 0;
}

/* ---- the choice ---- */

/* The model as the rings see it. */
struct model {
	struct zi_gpu_unit *list; /* (unit_count,) parameters, then (trained_count,) gradients */
	struct zi_gpu_units params, grads;
};

static bool has_grad(const struct zinf *zinf, uint32_t unit)
{
	return !zi_training_is_forward_only(&zinf->training) &&
	       zi_client_trains(zinf, &zinf->units[unit]);
}

/* Bytes of real elements: padding is never copied. */
static int describe_model(struct zinf *zinf, struct model *ret_model)
{
	uint32_t param_width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.param_dtype);
	uint32_t grad_width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
	struct zi_gpu_unit *list = calloc(2 * (size_t)zinf->unit_count, sizeof(*list));
	uint32_t trained_count = 0;

	if (!list)
		return zi_client_error(zinf, -ENOMEM, "no memory for %u units", zinf->unit_count);
	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		const struct zi_client_unit *unit = &zinf->units[i];

		list[i] = (struct zi_gpu_unit){ .name = unit->name,
			                        .bytes = unit->element_count * param_width,
			                        .is_apart = unit->is_apart };
		zinf->gpu->units[i].grad_index = has_grad(zinf, i) ? trained_count : ZI_GPU_NO_UNIT;
		if (!has_grad(zinf, i))
			continue;
		list[zinf->unit_count + trained_count++] =
			(struct zi_gpu_unit){ .name = unit->name,
			                      .bytes = unit->element_count * grad_width,
			                      .is_apart = unit->is_apart };
	}
	*ret_model = (struct model){
		.list = list,
		.params = { .purpose = "parameters",
		            .list = list,
		            .count = zinf->unit_count,
		            .neighbour_count = zinf->gpu->neighbour_count },
		.grads = { .purpose = "gradients",
		           .list = list + zinf->unit_count,
		           .count = trained_count,
		           .neighbour_count = zinf->gpu->neighbour_count },
	};
	return 0;
}

static int choose(struct zinf *zinf, struct model *model)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	bool is_local = zinf->attach.config.schedule == ZI_SCHEDULE_LOCAL;
	const struct zi_gpu_wish wish = {
		.param_budget_bytes = gpu->param_budget_bytes,
		.grad_budget_bytes = gpu->grad_budget_bytes,
		.granularity_bytes = gpu->granularity_bytes,
		.free_bytes = gpu->free_bytes,
		.micro_batches = is_local ? ZI_MAX(zinf->training.accumulation, 1u) : 1,
		.device = gpu->device.uuid,
	};
	struct zi_gpu_units *grads = model->grads.count ? &model->grads : NULL;
	struct zi_text text;
	int r = zi_gpu_budget_choose(&wish, &model->params, grads, &text, &gpu->budget);

	if (!r)
		r = zi_gpu_ring_new(&model->params, gpu->budget.param_count, &text, &gpu->params);
	if (!r && grads)
		r = zi_gpu_ring_new(grads, gpu->budget.grad_count, &text, &gpu->grads);
	if (r == -ENOMEM)
		return zi_client_error(zinf, r, "no memory for the chunks of a GPU");
	return r ? err_trace(zi_client_tell(zinf, r, &text)) : 0;
}

/* ---- chunks ---- */

/* Takes all of (@count,) @fds, and closes them. */
static int import_chunks(struct zinf *zinf, int *fds, uint32_t count, uint64_t *handles)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	int code = ZI_CUDA_SUCCESS;

	for (uint32_t i = 0; i < count; i++) {
		if (!code)
			code = cuda->cuMemImportFromShareableHandle(
				&handles[i], (void *)(intptr_t)fds[i], ZI_CUDA_HANDLE_POSIX_FD);
		if (code)
			handles[i] = 0;
		fds[i] = zi_close(fds[i]);
	}
	return err_trace(zi_client_gpu_fail(zinf, code, "importing GPU memory of zinfd on %s",
	                                    zinf->gpu->device.uuid));
}

/* @handles: (chunk_count,) zeroed; those that came are filled, also on failure. */
static int receive_chunks(struct zinf *zinf, uint64_t *handles, uint32_t chunk_count)
{
	uint32_t received = 0;

	while (received < chunk_count) {
		struct zi_gpu_chunks request = { .first = received };
		const struct zi_message_header *reply;
		const struct zi_gpu_chunks *chunks;
		int fds[ZI_MESSAGE_FDS_MAX];
		uint32_t fd_count;
		int r;

		r = zi_client_request(zinf, &request.header, ZI_MESSAGE_GPU_CHUNKS, sizeof(request),
		                      ZI_MESSAGE_GPU_CHUNKS, &reply, fds, ZI_CLIENT_FDS_ANY);
		if (r)
			return err_trace(r);
		fd_count = zinf->fd_count;
		chunks = (const struct zi_gpu_chunks *)reply;
		if (chunks->first != received || chunks->count != fd_count || !fd_count ||
		    fd_count > chunk_count - received) {
			for (uint32_t i = 0; i < fd_count; i++)
				fds[i] = zi_close(fds[i]);
			return err_trace(zi_client_breach(zinf, "chunks of a GPU out of order"));
		}
		r = import_chunks(zinf, fds, fd_count, handles + received);
		if (r)
			return err_trace(r);
		received += fd_count;
	}
	return 0;
}

/* ---- ranges ---- */

/* Gives back the first @mapped_bytes of a range, and its addresses. */
static void unmap_range(const struct zinf *zinf, uint64_t address, uint64_t bytes,
                        uint64_t mapped_bytes)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);

	uint64_t chunk_bytes = zinf->gpu->budget.chunk_bytes;

	/* Mapping by mapping: the manual promises no more. What the driver does not take back goes
	 * with the process. */
	for (uint64_t done = 0; done < mapped_bytes; done += chunk_bytes)
		(void)cuda->cuMemUnmap(address + done, chunk_bytes);
	(void)cuda->cuMemAddressFree(address, bytes);
}

/* A range for place @index of @ring. @handles: of the ring's chunks. */
static int map_range(struct zinf *zinf, const struct zi_gpu_ring *ring, uint32_t index,
                     const uint64_t *handles, uint64_t *ret_address, uint64_t *ret_bytes)
{
	const struct zi_cuda *cuda = zi_client_cuda(zinf);
	const struct zi_cuda_access access =
		zi_gpu_access(zinf->gpu->device.device, ZI_CUDA_ACCESS_READ_WRITE);
	uint64_t chunk_bytes = zinf->gpu->budget.chunk_bytes;
	uint32_t count = zi_gpu_ring_chunk_count(ring, index);
	uint64_t bytes = count * chunk_bytes, address = 0, mapped_bytes = 0;
	int code = cuda->cuMemAddressReserve(&address, bytes, 0, 0, 0);

	if (code)
		return err_trace(zi_client_gpu_fail(zinf, code, "reserving %s of GPU addresses",
		                                    zi_format_bytes(bytes).chars));
	for (uint32_t i = 0; i < count && !code; i++) {
		code = cuda->cuMemMap(address + mapped_bytes, chunk_bytes, 0,
		                      handles[zi_gpu_ring_chunk(ring, index, i)], 0);
		if (!code)
			mapped_bytes += chunk_bytes;
	}
	if (!code)
		code = cuda->cuMemSetAccess(address, bytes, &access, 1);
	if (code) {
		unmap_range(zinf, address, bytes, mapped_bytes);
		return err_trace(zi_client_gpu_fail(zinf, code, "mapping %s of GPU memory",
		                                    zi_format_bytes(bytes).chars));
	}
	*ret_address = address;
	*ret_bytes = bytes;
	return 0;
}

/* @handles: of the arena: chunks of parameters, then those of gradients. */
static int map_units(struct zinf *zinf, const uint64_t *handles)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	const uint64_t *grad_handles = handles + gpu->budget.param_count;
	int r = 0;

	for (uint32_t i = 0; i < zinf->unit_count && !r; i++) {
		struct zi_gpu_unit_state *unit = &gpu->units[i];

		r = map_range(zinf, gpu->params, i, handles, &unit->param,
		              &unit->param_range_bytes);
		if (!r && unit->grad_index != ZI_GPU_NO_UNIT)
			r = map_range(zinf, gpu->grads, unit->grad_index, grad_handles, &unit->grad,
			              &unit->grad_range_bytes);
	}
	return err_trace(r);
}

void zi_gpu_map_free(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;

	for (uint32_t i = 0; i < gpu->unit_count; i++) {
		struct zi_gpu_unit_state *unit = &gpu->units[i];

		if (unit->param)
			unmap_range(zinf, unit->param, unit->param_range_bytes,
			            unit->param_range_bytes);
		if (unit->grad)
			unmap_range(zinf, unit->grad, unit->grad_range_bytes,
			            unit->grad_range_bytes);
		unit->param = unit->grad = 0;
	}
}

/* The chunks are made: they are received and mapped, and their handles given back. */
static int take_chunks(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	uint32_t count = gpu->budget.param_count + gpu->budget.grad_count;
	uint64_t *handles = calloc(count, sizeof(*handles));
	int code = ZI_CUDA_SUCCESS;
	int r;

	if (!handles)
		return zi_client_error(zinf, -ENOMEM, "no memory for %u chunks of a GPU", count);
	r = receive_chunks(zinf, handles, count);
	if (!r)
		r = map_units(zinf, handles);
	for (uint32_t i = 0; i < count; i++) {
		int one = handles[i] ? zi_client_cuda(zinf)->cuMemRelease(handles[i])
		                     : ZI_CUDA_SUCCESS;

		code = code ? code : one;
	}
	free(handles);
	if (!r && code)
		r = zi_client_gpu_fail(zinf, code, "releasing handles of GPU memory");
	return err_trace(r);
}

/* ---- all of it ---- */

static void forget_model(struct zi_client_gpu *gpu)
{
	gpu->params = zi_gpu_ring_free(gpu->params);
	gpu->grads = zi_gpu_ring_free(gpu->grads);
	free(gpu->units);
	gpu->units = NULL;
	gpu->unit_count = 0;
	gpu->budget = (struct zi_gpu_budget){ 0 };
}

static int make_and_take(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	const struct zi_gpu_opened *opened;
	struct model model;
	int r = zi_gpu_map_ask(zinf);

	if (r)
		return err_trace(r);
	gpu->units = calloc(zinf->unit_count, sizeof(*gpu->units));
	if (!gpu->units)
		return zi_client_error(zinf, -ENOMEM, "no memory for %u units", zinf->unit_count);
	gpu->unit_count = zinf->unit_count;
	r = describe_model(zinf, &model);
	if (!r) {
		r = choose(zinf, &model);
		free(model.list);
	}
	if (!r)
		r = request_open(zinf, &gpu->budget, &opened);
	if (r) {
		forget_model(gpu);
		return err_trace(r);
	}
	/* The daemon makes an arena once in a session: nothing below can be repeated. */
	gpu->stage = ZI_GPU_FAILED;
	r = take_chunks(zinf);
	if (r) {
		zi_gpu_map_free(zinf);
		return err_trace(r);
	}
	gpu->stage = ZI_GPU_ARRANGED;
	return 0;
}

/* The exchanges are short, and no call could go on with half of them. */
int zi_client_gpu_arrange(struct zinf *zinf)
{
	struct zi_client_gpu *gpu = zinf->gpu;
	bool held = zinf->holds_interrupts;
	int r, after;

	assert(gpu->stage != ZI_GPU_FAILED);
	if (gpu->stage != ZI_GPU_OPEN && gpu->unit_count != zinf->unit_count)
		return zi_client_error(
			zinf, -EINVAL,
			"units were added after zinf_materialize() had arranged %u in "
			"GPU memory",
			gpu->unit_count);
	if (gpu->stage != ZI_GPU_OPEN)
		return 0;
	r = zi_client_gpu_enter(zinf);
	if (r)
		return err_trace(r);
	zinf->holds_interrupts = true;
	r = make_and_take(zinf);
	zinf->holds_interrupts = held;
	after = zi_client_gpu_leave(zinf);
	return r ? err_trace(r) : err_trace(after);
}
