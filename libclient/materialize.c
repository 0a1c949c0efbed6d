/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MATERIALIZE: the model's layout goes to the daemon, its memory comes back. Floor 2.
 *
 * Both sides compute the layout from the same list by the same arithmetic (wire/geometry.h); the
 * daemon only tells its slot and how large the planes became. Figures that do not fit are a breach.
 */
#include <string.h>

#include "common/base/checked.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/geometry.h"
#include "common/wire/region.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

/* Of a slot, as the daemon may tell it. */
#define SLOT_BYTES_MIN 4096u
#define SLOT_BYTES_MAX (1ull << 30)

/* MATERIALIZED's descriptors, in order; forward only there is none of gradients. */
enum { MODEL_FD_PARAM, MODEL_FD_GRAD, MODEL_FDS };

/* A packet of the LAYOUT stream being filled. */
struct layout_packet {
	struct zi_layout head;
	struct zi_layout_entry entries[ZI_LAYOUT_ENTRIES_MAX];
};
static_assert(offsetof(struct layout_packet, entries) == sizeof(struct zi_layout), "no gap");

/* @packet_index: counts on. Packets that were sent by a call that was interrupted are not sent
 * again: the layout cannot have changed since. */
static int flush_packet(struct zinf *zinf, struct layout_packet *packet, uint32_t *packet_index,
                        uint64_t deadline_ns)
{
	uint32_t bytes = (uint32_t)(sizeof(packet->head) +
	                            packet->head.entry_count * sizeof(struct zi_layout_entry));
	int r = 0;

	if (!packet->head.entry_count)
		return 0;
	if ((*packet_index)++ >= zinf->layout_packets) {
		zi_message_init(&packet->head.header, ZI_MESSAGE_LAYOUT, bytes, ++zinf->sequence);
		r = zi_client_send(zinf, &packet->head.header, deadline_ns);
	}
	if (!r)
		zinf->layout_packets = ZI_MAX(zinf->layout_packets, *packet_index);
	packet->head.entry_count = 0;
	return err_trace(r);
}

static int send_entry(struct zinf *zinf, struct layout_packet *packet,
                      const struct zi_layout_entry *entry, uint32_t *packet_index,
                      uint64_t deadline_ns)
{
	packet->entries[packet->head.entry_count++] = *entry;
	if (packet->head.entry_count < ZI_LAYOUT_ENTRIES_MAX)
		return 0;
	return err_trace(flush_packet(zinf, packet, packet_index, deadline_ns));
}

/* All sets first, so that they are numbered as here and one without units is known as well; then
 * units and parameters in order: each unit, behind its set if that is another than the one
 * before, then its parameters. */
static int send_layout(struct zinf *zinf)
{
	_cleanup_(zi_freep) struct layout_packet *packet = calloc(1, sizeof(*packet));
	uint64_t deadline_ns = zi_client_deadline_ns(zinf);
	uint32_t param = 0, packet_index = 0;
	uint32_t set = 0;
	int r;

	if (!packet)
		return zi_client_error(zinf, -ENOMEM, "no memory for the layout");
	for (; set < zinf->set_count; set++) {
		r = send_entry(zinf, packet, &zinf->sets[set].entry, &packet_index, deadline_ns);
		if (r)
			return err_trace(r);
	}
	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		struct zi_layout_entry entry = { .kind = ZI_LAYOUT_UNIT };

		if (zinf->set_count && zinf->units[i].set != set - 1) {
			set = zinf->units[i].set + 1;
			r = send_entry(zinf, packet, &zinf->sets[set - 1].entry, &packet_index,
			               deadline_ns);
			if (r)
				return err_trace(r);
		}
		memcpy(entry.name, zinf->units[i].name, sizeof(entry.name));
		r = send_entry(zinf, packet, &entry, &packet_index, deadline_ns);
		if (r)
			return err_trace(r);
		for (; param < zinf->param_count && zinf->params[param].unit == i; param++) {
			r = send_entry(zinf, packet, &zinf->params[param].entry, &packet_index,
			               deadline_ns);
			if (r)
				return err_trace(r);
		}
	}
	assert(param == zinf->param_count);
	return err_trace(flush_packet(zinf, packet, &packet_index, deadline_ns));
}

static bool is_forward_only(const struct zinf *zinf)
{
	return zi_training_is_forward_only(&zinf->training);
}

/* In this rank's gradients those of its sets lie one after the other, each with its units in order.
 * False: sums that do not fit. */
static bool place_grads(struct zinf *zinf, uint64_t slot_bytes, uint64_t *ret_bytes)
{
	uint32_t width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.grad_dtype);
	struct zi_client_set all = { .grad_bytes = 0 };
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < zinf->set_count; i++)
		zinf->sets[i].grad_bytes = 0;
	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		struct zi_client_unit *unit = &zinf->units[i];
		struct zi_client_set *set = zinf->set_count ? &zinf->sets[unit->set] : &all;

		unit->grad_offset_bytes = set->grad_bytes;
		unit->grad_bytes = 0;
		if (!zi_client_trains(zinf, unit) || is_forward_only(zinf))
			continue;
		unit->grad_bytes = zi_geometry_unit_bytes(zi_geometry_padded(unit->element_count),
		                                          width, slot_bytes);
		if (!zi_checked_add(set->grad_bytes, unit->grad_bytes, &set->grad_bytes))
			return false;
	}
	for (uint32_t i = 0; i < zinf->set_count; i++) {
		zinf->sets[i].grad_base_bytes = bytes;
		if (!zi_checked_add(bytes, zinf->sets[i].grad_bytes, &bytes))
			return false;
	}
	for (uint32_t i = 0; i < zinf->unit_count && zinf->set_count; i++)
		zinf->units[i].grad_offset_bytes += zinf->sets[zinf->units[i].set].grad_base_bytes;
	*ret_bytes = bytes + all.grad_bytes; /* One of them is 0. */
	return true;
}

/* Places every unit in both planes. False: sums that do not fit. */
static bool place_units(struct zinf *zinf, uint64_t slot_bytes, uint64_t *ret_param_bytes,
                        uint64_t *ret_grad_bytes)
{
	uint32_t param_width = zi_dtype_bytes((enum zi_dtype)zinf->attach.config.param_dtype);
	uint64_t param_bytes = 0;

	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		struct zi_client_unit *unit = &zinf->units[i];
		uint64_t padded_count = zi_geometry_padded(unit->element_count);

		unit->param_offset_bytes = param_bytes;
		unit->param_bytes = zi_geometry_unit_bytes(padded_count, param_width, slot_bytes);
		if (!zi_checked_add(param_bytes, unit->param_bytes, &param_bytes))
			return false;
	}
	*ret_param_bytes = param_bytes;
	return place_grads(zinf, slot_bytes, ret_grad_bytes);
}

/* Segments may end in part of a huge page more than the units need. */
static bool is_plane_bytes(uint64_t told_bytes, uint64_t needed_bytes)
{
	return told_bytes >= needed_bytes && told_bytes - needed_bytes < ZI_HUGE_PAGE_BYTES;
}

static bool has_pooled_grads(const struct zi_materialized *told)
{
	return told->flags & ZI_MATERIALIZED_GRADS_POOLED;
}

/* By the daemon's word, or, whatever it says, with parameters on NVMe. */
static bool has_pooled_params(const struct zinf *zinf, const struct zi_materialized *told)
{
	return zinf->attach.config.offload_param == ZI_OFFLOAD_NVME ||
	       (told->flags & ZI_MATERIALIZED_PARAMS_POOLED);
}

/* A pool holds each unit by itself, and need not hold more than all of them. */
static bool is_pool_bytes(uint64_t told_bytes, uint64_t largest_bytes, uint64_t plane_bytes)
{
	return told_bytes >= largest_bytes &&
	       (told_bytes <= plane_bytes || is_plane_bytes(told_bytes, plane_bytes));
}

static bool are_param_bytes(const struct zinf *zinf, const struct zi_materialized *told,
                            uint64_t plane_bytes)
{
	uint64_t largest_bytes = 0;

	for (uint32_t i = 0; i < zinf->unit_count; i++)
		largest_bytes = ZI_MAX(largest_bytes, zinf->units[i].param_bytes);
	if (!has_pooled_params(zinf, told))
		return is_plane_bytes(told->param_bytes, plane_bytes);
	return is_pool_bytes(told->param_bytes, largest_bytes, plane_bytes);
}

/* With buckets the segment holds any unit of this rank; how much more is the daemon's affair. */
static bool are_grad_bytes(const struct zinf *zinf, const struct zi_materialized *told,
                           uint64_t plane_bytes)
{
	if (is_forward_only(zinf))
		return !told->grad_bytes && !has_pooled_grads(told);
	if (!has_pooled_grads(told))
		return is_plane_bytes(told->grad_bytes, plane_bytes);
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		if (zinf->units[i].grad_bytes > told->grad_bytes)
			return false;
	return true;
}

/* MATERIALIZED's figures against our own; written: of all units. */
static int check_planes(struct zinf *zinf, const struct zi_materialized *told,
                        uint64_t *ret_param_bytes, uint64_t *ret_grad_bytes)
{
	uint64_t param_bytes = 0;
	uint64_t grad_bytes = 0;

	if (told->slot_bytes < SLOT_BYTES_MIN || told->slot_bytes > SLOT_BYTES_MAX ||
	    (told->slot_bytes & (told->slot_bytes - 1)))
		return err_trace(zi_client_breach(zinf, "an impossible slot size"));
	if (told->flags & ~ZI_MATERIALIZED_FLAGS_ALL ||
	    (told->flags && !(zinf->features & ZI_FEATURE_TRAINING)))
		return err_trace(zi_client_breach(zinf, "unknown flags of MATERIALIZED"));
	if (!place_units(zinf, told->slot_bytes, &param_bytes, &grad_bytes) ||
	    !are_grad_bytes(zinf, told, grad_bytes) || !are_param_bytes(zinf, told, param_bytes))
		return err_trace(
			zi_client_breach(zinf, "planes of another size than the layout's"));
	*ret_param_bytes = param_bytes;
	*ret_grad_bytes = grad_bytes;
	if (told->committed_step < -1)
		return err_trace(zi_client_breach(zinf, "an impossible committed step"));
	return 0;
}

static int map_plane(struct zinf *zinf, int fd, uint64_t bytes, bool is_writable, void **ret_base)
{
	int r = zi_region_map(fd, bytes, is_writable, ret_base);

	if (r == -EPROTO || r == -EACCES)
		return err_trace(zi_client_breach(zinf, "a plane that is not sealed, too short, or "
		                                        "read-only"));
	if (r)
		return zi_client_error(zinf, r, "mapping %s of the model: %s",
		                       zi_format_bytes(bytes).chars, strerror(-r));
	return 0;
}

/* Address space for all units of a plane, and nothing behind it yet. */
static int reserve_plane(struct zinf *zinf, int fd, uint64_t pool_bytes, uint64_t bytes,
                         void **ret_base)
{
	int r = zi_region_check(fd, pool_bytes);

	if (r)
		return err_trace(zi_client_breach(zinf, "a pool that is not sealed, or too short"));
	r = zi_region_reserve(bytes, ret_base);
	if (r)
		return zi_client_error(zinf, r, "reserving %s of address space: %s",
		                       zi_format_bytes(bytes).chars, strerror(-r));
	return 0;
}

static int map_params(struct zinf *zinf, const struct zi_materialized *told, int fd, uint64_t bytes)
{
	int r;

	if (!has_pooled_params(zinf, told)) {
		r = map_plane(zinf, fd, told->param_bytes, false, &zinf->param_base);
		if (!r)
			zinf->param_bytes = told->param_bytes;
		return err_trace(r);
	}
	r = reserve_plane(zinf, fd, told->param_bytes, bytes, &zinf->param_base);
	if (r)
		return err_trace(r);
	zinf->param_bytes = bytes;
	zinf->pool_bytes = told->param_bytes;
	return 0;
}

static int map_grads(struct zinf *zinf, const struct zi_materialized *told, const int *fds,
                     uint64_t bytes)
{
	int fd, r;

	if (is_forward_only(zinf))
		return 0;
	fd = fds[MODEL_FD_GRAD];
	if (!has_pooled_grads(told)) {
		r = map_plane(zinf, fd, told->grad_bytes, true, &zinf->grad_base);
		if (!r)
			zinf->grad_bytes = told->grad_bytes;
		return err_trace(r);
	}
	/* A rank that is in no set has a segment, and no unit that could lie there. */
	bytes = ZI_MAX(bytes, zinf->slot_bytes);
	r = reserve_plane(zinf, fd, told->grad_bytes, bytes, &zinf->grad_base);
	if (r)
		return err_trace(r);
	zinf->grad_bytes = bytes;
	zinf->bucket_bytes = told->grad_bytes;
	return 0;
}

static int map_planes(struct zinf *zinf, const struct zi_materialized *told, const int *fds)
{
	uint64_t param_bytes = 0, grad_bytes = 0;
	int r = check_planes(zinf, told, &param_bytes, &grad_bytes);

	if (r)
		return err_trace(r);
	zinf->slot_bytes = told->slot_bytes;
	r = map_params(zinf, told, fds[MODEL_FD_PARAM], param_bytes);
	if (!r)
		r = map_grads(zinf, told, fds, grad_bytes);
	if (r)
		return err_trace(r);
	zinf->committed_step = told->committed_step;
	zinf->loss_scale = 1;
	if (!(zinf->features & ZI_FEATURE_TRAINING))
		return 0;
	if (!(told->loss_scale > 0))
		return err_trace(zi_client_breach(zinf, "an impossible loss scale"));
	zinf->update_count = (int64_t)told->update_count;
	zinf->loss_scale = told->loss_scale;
	return 0;
}

/* All of its parameters are, and there are some. */
static bool is_frozen(const struct zinf *zinf, const struct zi_client_unit *unit)
{
	for (uint32_t i = 0; i < unit->param_count; i++)
		if (zinf->params[unit->param_first + i].entry.group != ZI_LAYOUT_FROZEN)
			return false;
	return unit->param_count > 0;
}

/* To an older daemon a unit that is frozen whole is one like others. */
static int check_frozen(struct zinf *zinf)
{
	for (uint32_t i = 0; i < zinf->unit_count; i++) {
		zinf->units[i].is_frozen = is_frozen(zinf, &zinf->units[i]);
		if (zinf->units[i].is_frozen && !(zinf->features & ZI_FEATURE_FROZEN))
			return zi_client_error(
				zinf, -EOPNOTSUPP,
				"all parameters of unit '%.60s' are frozen, but zinfd at %s "
				"does not support that: use a newer zinfd",
				zinf->units[i].name, zinf->path);
	}
	return 0;
}

/* What nobody could materialise is told here, by name. */
static int check_model(struct zinf *zinf)
{
	if (!zinf->unit_count)
		return zi_client_error(zinf, -EINVAL, "a job needs at least one unit");
	for (uint32_t i = 0; i < zinf->unit_count; i++)
		if (!zinf->units[i].param_count)
			return zi_client_error(zinf, -EINVAL, "unit '%s' has no parameter",
			                       zinf->units[i].name);
	return 0;
}

int zinf_materialize(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_materialize_nodes request = {
		.materialize = { .unit_count = zinf->unit_count, .param_count = zinf->param_count }
	};
	bool is_told = zinf->attach.local_world_size && !zinf->coll &&
	               (zinf->features & ZI_FEATURE_STATE_NODES);
	const struct zi_message_header *reply;
	int fds[ZI_MESSAGE_FDS_MAX];
	int r;

	r = zi_client_enter(zinf);
	if (r)
		return err_trace(r);
	if (zinf->is_materialized)
		return zi_client_error(zinf, -EINVAL, "zinf_materialize() was called before");
	r = zinf->gpu ? zi_client_gpu_check(zinf) : 0;
	if (r)
		return err_trace(r);
	if (!zinf->is_layout_sent) {
		r = check_model(zinf);
		if (!r)
			r = check_frozen(zinf);
		if (!r && zinf->gpu)
			r = zi_client_gpu_arrange(zinf);
		if (!r)
			r = send_layout(zinf);
		if (r)
			return err_trace(r);
		zinf->is_layout_sent = true;
	}
	/* Whoever has collectives has met. */
	r = is_told ? zi_client_rendezvous(zinf, &request.rendezvous) : 0;
	if (!r)
		r = zi_client_request(zinf, &request.materialize.header, ZI_MESSAGE_MATERIALIZE,
		                      is_told ? sizeof(request) : sizeof(request.materialize),
		                      ZI_MESSAGE_MATERIALIZED, &reply, fds,
		                      is_forward_only(zinf) ? MODEL_FD_GRAD : MODEL_FDS);
	explicit_bzero(request.rendezvous.token, sizeof(request.rendezvous.token));
	if (r)
		return err_trace(r);
	r = map_planes(zinf, (const struct zi_materialized *)reply, fds);
	zinf->param_fd = fds[MODEL_FD_PARAM];
	zinf->grad_fd = is_forward_only(zinf) ? -1 : fds[MODEL_FD_GRAD];
	if (!zi_client_has_buckets(zinf))
		zinf->grad_fd = zi_close(zinf->grad_fd); /* The mapping is enough. */
	if (!r && zinf->gpu)
		r = zi_client_gpu_start(zinf);
	if (r) {
		zi_client_unmap_model(zinf);
		return err_trace(r);
	}
	zinf->is_materialized = true;
	return 0;
}

/* Staging copies lie within the reservation of the parameters: one unmap takes all. */
void zi_client_unmap_model(struct zinf *zinf)
{
	(void)zi_region_unmap(zinf->param_base, zinf->param_bytes); /* Asserts inside. */
	(void)zi_region_unmap(zinf->grad_base, zinf->grad_bytes);   /* Asserts inside. */
	zinf->param_base = zinf->grad_base = NULL;
	zinf->pool_bytes = 0;
	zinf->bucket_bytes = 0;
	zinf->copy_fd = zi_close(zinf->copy_fd);
	zinf->param_fd = zi_close(zinf->param_fd);
	zinf->grad_fd = zi_close(zinf->grad_fd);
}
