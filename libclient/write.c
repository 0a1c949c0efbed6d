/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters made writable: the daemon's staging copy of a unit is mapped over the unit's own
 * address, so that pointers stay right, and the read-only plane comes back afterwards. Floor 2.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/region.h"
#include "common/wire/state.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* Puts the read-only pages of the plane back behind the unit, or with a pool nothing. Return: 0, or
 * -ENOMEM. */
int zi_client_unwrite(struct zinf *zinf, uint32_t index)
{
	struct zi_client_unit *unit = &zinf->units[index];
	int r;

	if (!unit->is_writable)
		return 0;
	r = zi_region_map_at(zi_client_unit_address(zinf, unit), unit->param_bytes,
	                     zi_client_is_pooled(zinf) ? -1 : zinf->param_fd,
	                     unit->param_offset_bytes, false);
	if (r)
		return zi_client_error(zinf, r, "mapping unit '%s' read-only: %s", unit->name,
		                       strerror(-r));
	unit->is_writable = false;
	return 0;
}

/* The staging file need not end on the plane's kind of page: bare address space behind all of the
 * unit first, as a part of a huge page cannot be replaced. */
static int map_staging(struct zinf *zinf, struct zi_client_unit *unit, int fd, uint64_t told_bytes)
{
	uint64_t bytes = ZI_MIN(told_bytes, unit->param_bytes);
	uint32_t width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.param_dtype);
	int r;

	if (told_bytes / width < unit->element_count || zi_region_check(fd, bytes))
		return err_trace(zi_client_breach(zinf, "a staging copy that is not sealed, or too "
		                                        "short"));
	r = zi_region_map_at(zi_client_unit_address(zinf, unit), unit->param_bytes, -1, 0, false);
	if (!r)
		r = zi_region_map_at(zi_client_unit_address(zinf, unit), bytes, fd, 0, true);
	unit->is_writable = true; /* whatever lies there now is not the plane */
	if (!r)
		return 0;
	(void)zi_client_unwrite(zinf, (uint32_t)(unit - zinf->units)); /* The first error counts. */
	return zi_client_error(zinf, r, "mapping the staging copy of unit '%s': %s", unit->name,
	                       strerror(-r));
}

/* The daemon does not know that a unit is in use on a GPU. */
static int check_gpu(struct zinf *zinf, uint32_t index)
{
	if (!zinf->gpu || !zinf->units[index].unshard_count)
		return 0;
	return zi_client_error(zinf, -EBUSY,
	                       "unit '%s' is unsharded on the GPU: zinf_reshard() it first",
	                       zinf->units[index].name);
}

int zinf_param_write_begin(struct zinf *zinf, uint32_t index)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_param_write_begin request = { .unit = index };
	const struct zi_message_header *reply;
	int fds[ZI_MESSAGE_FDS_MAX];
	int r;

	r = zi_client_check_unit(zinf, index);
	if (r)
		return err_trace(r);
	if (zinf->units[index].is_writable)
		return zi_client_error(zinf, -EALREADY, "unit '%s' is writable already",
		                       zinf->units[index].name);
	if (zinf->is_step_begun)
		return zi_client_error(zinf, -EBUSY, "a step is under way: zinf_step() ends it");
	if (zi_client_is_pooled(zinf) && zinf->units[index].unshard_count)
		return zi_client_error(zinf, -EBUSY,
		                       "unit '%s' is unsharded: zinf_reshard() it first",
		                       zinf->units[index].name);
	r = check_gpu(zinf, index);
	if (r)
		return err_trace(r);
	r = zi_client_request(zinf, &request.header, ZI_MESSAGE_PARAM_WRITE_BEGIN, sizeof(request),
	                      ZI_MESSAGE_PARAM_WRITE, &reply, fds, 1);
	if (r)
		return err_trace(r);
	r = map_staging(zinf, &zinf->units[index], fds[0],
	                ((const struct zi_param_write *)reply)->bytes);
	(void)zi_close(zinf->copy_fd);
	zinf->copy_fd = fds[0];
	return err_trace(r);
}

/* The daemon keeps one copy, as long as the largest unit, for the next write of this rank. Between
 * steps of training nobody writes: its pages go back to the kernel, and come again when they are
 * touched. No unit is open for writing. */
void zi_client_forget_copy(struct zinf *zinf)
{
	struct stat status;

	if (zinf->copy_fd < 0)
		return;
	/* A kernel that refuses costs memory, no more. */
	if (fstat(zinf->copy_fd, &status) == 0)
		(void)fallocate(zinf->copy_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		                status.st_size);
	zinf->copy_fd = zi_close(zinf->copy_fd);
}

/* See client.h. */
int zi_client_write_end(struct zinf *zinf, uint32_t index, int32_t root, bool keeps_state)
{
	struct zi_param_write_end request = { .unit = index, .root = (uint32_t)root };
	const struct zi_message_header *reply;
	int r;

	r = zi_client_check_unit(zinf, index);
	if (r)
		return err_trace(r);
	if (root < 0 || root >= zinf_world_size(zinf))
		return zi_client_error(zinf, -EINVAL, "root %d of a world of %d", root,
		                       zinf_world_size(zinf));
	r = check_gpu(zinf, index);
	if (r)
		return err_trace(r);
	if (root == zinf_rank(zinf) && !zinf->units[index].is_writable)
		return zi_client_error(zinf, -EINVAL,
		                       "unit '%s': the root calls zinf_param_write_begin() first",
		                       zinf->units[index].name);
	r = zi_client_request_with(zinf, &request.header, ZI_MESSAGE_PARAM_WRITE_END,
	                           keeps_state ? ZI_PARAM_WRITE_KEEP : 0, sizeof(request),
	                           ZI_MESSAGE_DONE, &reply, NULL, 0);
	if (r)
		return err_trace(r);
	if (zinf->gpu)
		zi_client_gpu_void(zinf, index);
	return err_trace(zi_client_unwrite(zinf, index));
}

int zinf_param_write_end(struct zinf *zinf, uint32_t index, int32_t root)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	return err_trace(zi_client_write_end(zinf, index, root, false));
}
