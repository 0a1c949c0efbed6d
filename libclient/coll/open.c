/* SPDX-License-Identifier: Apache-2.0 */
/* What collectives of this rank need: memory that all ranks of the node share; see collective.h.
 * Floor 2. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/checked.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/region.h"
#include "libclient/coll/cache.h"
#include "libclient/coll/collective.h"

/* COLL_OPENED's descriptors, in order. */
enum { OPEN_FD_VERDICTS, OPEN_FD_ARENAS, OPEN_FD_BOARD, OPEN_FD_SLAB, OPEN_FDS };

/* Groups without the rank that died go on: that alone does not end the session here. */
static bool is_session_over(const struct zinf *zinf)
{
	return zinf->over && zinf->over != -EPIPE;
}

int zi_client_coll_enter(struct zinf *zinf)
{
	if (is_session_over(zinf))
		return err_trace(zi_client_over(zinf, zinf->over, &zinf->over_text));
	if (!zinf->coll)
		return zi_client_error(zinf, -ENOTCONN, "call zinf_coll_open() first");
	return 0;
}

int zi_client_coll_look(void *arg)
{
	const struct zinf *zinf = arg;
	struct pollfd ready = { .fd = zinf->socket_fd, .events = 0 };

	/* Nothing is read here: words that lie there belong to the thread of the calls. */
	if (poll(&ready, 1, 0) > 0 && ready.revents & (POLLHUP | POLLERR))
		return err_origin(-ESTALE);
	return 0;
}

/* See client.h. */
void zi_client_coll_settle(struct zinf *zinf)
{
	uint64_t begin_ns = zi_clock_now_ns(); /* of all groups: they wait at the same time */

	for (uint32_t i = 0; zinf->coll && !is_session_over(zinf) && i < ZI_GROUPS_MAX; i++)
		if (zinf->coll->groups[i])
			zi_client_group_settle(zinf->coll->groups[i], begin_ns);
}

/* See client.h. */
void zi_client_coll_notify(struct zinf *zinf)
{
	if (zinf->coll && zinf->ticket_event_fd >= 0)
		zi_node_queue_notify(zinf->coll->queue, zinf->ticket_event_fd);
}

/* Unmaps and frees; NULL and half-built ones too. */
void zi_client_coll_close(struct zinf *zinf)
{
	struct zi_client_coll *coll = zinf->coll;

	if (!coll)
		return;
	coll->queue = zi_node_queue_free(coll->queue); /* what is under way ends first */
	zi_client_calls_deinit(coll);
	for (uint32_t i = 0; i < ZI_GROUPS_MAX; i++)
		coll->groups[i] = zi_client_group_free(coll->groups[i]);
	zi_arena_deinit(&coll->arena);
	(void)zi_region_unmap(coll->arenas, coll->arenas_bytes); /* Asserts; so does the next. */
	(void)zi_region_unmap((void *)coll->verdicts, coll->verdict_bytes);
	free(coll);
	zinf->coll = NULL;
}

static bool is_plausible(const struct zinf *zinf, const struct zi_coll_opened *opened,
                         uint64_t wanted_bytes)
{
	uint32_t local_size = zinf->attach.local_world_size ? zinf->attach.local_world_size
	                                                    : zinf->attach.world_size;
	uint64_t arenas_bytes;
	uint32_t here = 0;

	for (uint32_t i = 0; i < zinf->attach.world_size; i++) {
		if (opened->nodes[i] >= ZI_MAX(opened->node_count, 1u))
			return false;
		here += opened->nodes[i] == opened->node;
	}
	return opened->member_count == zinf->attach.world_size && here == local_size &&
	       opened->nodes[zinf->attach.rank] == opened->node &&
	       (opened->node_count > 1) == (local_size < zinf->attach.world_size) &&
	       opened->node_count <= ZI_WORLD_MAX && opened->arena_bytes >= wanted_bytes &&
	       opened->arena_bytes % ZI_ARENA_ALIGN_BYTES == 0 &&
	       zi_checked_mul(opened->arena_bytes, local_size, &arenas_bytes) &&
	       opened->arenas_bytes >= arenas_bytes &&
	       opened->verdict_bytes >= sizeof(struct zi_verdicts);
}

/* From how many bytes of a block on other ranks read this one's private memory. */
static int find_cma(struct zinf *zinf)
{
	const char *name = "ZINF_COLL_CMA_BYTES", *value = zi_client_environment(name);
	uint32_t bytes = ZI_CMA_FROM_BYTES;
	int r = value ? zi_client_parse_count(zinf, name, value, &bytes) : 0;

	if (r)
		return err_trace(r);
	zinf->coll_cma_bytes = bytes;
	return 0;
}

static int map_all(struct zinf *zinf, struct zi_client_coll *coll,
                   const struct zi_coll_opened *opened, const int *fds)
{
	struct zi_client_group *world;
	uint32_t ranks[ZI_WORLD_MAX], local = 0;
	void *base;
	int r;

	r = zi_region_map(fds[OPEN_FD_VERDICTS], opened->verdict_bytes, false, &base);
	if (r)
		return err_trace(r);
	coll->verdicts = base;
	coll->verdict_bytes = opened->verdict_bytes;
	r = zi_region_map(fds[OPEN_FD_ARENAS], opened->arenas_bytes, true, &base);
	if (r)
		return err_trace(r);
	coll->arenas = base;
	coll->arenas_bytes = opened->arenas_bytes;
	coll->arena_bytes = opened->arena_bytes;
	coll->streaming_bytes = zi_client_streaming_bytes();
	coll->node_count = opened->node_count;
	coll->node = opened->node;
	memcpy(coll->nodes, opened->nodes, sizeof(coll->nodes));
	for (uint32_t i = 0; i < zinf->attach.rank; i++)
		local += coll->nodes[i] == coll->node;
	coll->own = coll->arenas + local * coll->arena_bytes;
	zi_arena_init(&coll->arena, ZI_COLL_STAGING_BYTES, opened->arena_bytes);
	for (uint32_t i = 0; i < opened->member_count; i++)
		ranks[i] = i;
	return err_trace(zi_client_group_new(zinf, ZI_GROUP_WORLD, fds + OPEN_FD_BOARD,
	                                     opened->board_bytes, opened->slab_bytes, ranks,
	                                     opened->member_count, &world));
}

static int open_with(struct zinf *zinf, const struct zi_coll_opened *opened, uint64_t wanted_bytes,
                     const int *fds)
{
	int r;

	if (!is_plausible(zinf, opened, wanted_bytes))
		return err_trace(
			zi_client_breach(zinf, "memory for collectives of impossible sizes"));
	zinf->coll = calloc(1, sizeof(*zinf->coll));
	if (!zinf->coll)
		return zi_client_error(zinf, -ENOMEM, "no memory for a table of groups");
	r = zi_node_queue_new(&zinf->coll->queue);
	if (!r)
		zi_client_coll_notify(zinf);
	if (!r)
		r = map_all(zinf, zinf->coll, opened, fds);
	if (!r)
		return 0;
	zi_client_coll_close(zinf);
	if (r == -EPROTO || r == -EACCES)
		return err_trace(zi_client_breach(zinf, "memory for collectives that is not "
		                                        "sealed, too short, or read-only"));
	zi_client_coll_stay_out(zinf, ZI_GROUP_WORLD);
	return zi_client_error(zinf, r, "mapping memory for collectives: %s", strerror(-r));
}

/* What this rank asks for. Return: 0; why it cannot, which is known to nobody else. */
static int compose(struct zinf *zinf, uint64_t arena_bytes, struct zi_coll_open *request)
{
	struct zi_rendezvous place = { .port = 0 };
	int r;

	request->asked_bytes = arena_bytes;
	/* Where the others meet they are told, whatever else is wrong. */
	r = zinf->attach.local_world_size ? zi_client_rendezvous(zinf, &place) : 0;
	/* What is known of it goes in any case. */
	request->rendezvous_port = place.port;
	memcpy(request->rendezvous_host, place.host, sizeof(request->rendezvous_host));
	memcpy(request->interface, place.interface, sizeof(request->interface));
	memcpy(request->token, place.token, sizeof(request->token));
	explicit_bzero(place.token, sizeof(place.token));
	if (r)
		return err_trace(r);
	if (zinf->coll_version != ZI_COLL_VERSION)
		return zi_client_error(zinf, -EPROTONOSUPPORT,
		                       "zinfd at %s makes collectives by version %u, libzinf %s by "
		                       "version %u: use both of one release",
		                       zinf->path, zinf->coll_version, zinf_version(),
		                       ZI_COLL_VERSION);
	if (!zi_checked_add(arena_bytes, ZI_COLL_STAGING_BYTES, &request->arena_bytes) ||
	    !zi_checked_align(request->arena_bytes, ZI_HUGE_PAGE_BYTES, &request->arena_bytes))
		return zi_client_error(zinf, -EOVERFLOW, "an arena of %llu bytes",
		                       (unsigned long long)arena_bytes);
	if (zinf->features & ZI_FEATURE_COLL_ABORT)
		request->call_timeout_ms = zinf->coll_timeout_ms;
	return err_trace(find_cma(zinf));
}

/* The other ranks hear why this one opens nothing. Return: @error. */
static int refuse(struct zinf *zinf, struct zi_coll_open *request, int error)
{
	/* A daemon of the first version would take a message of this length for a breach. */
	if (zinf->coll_version == ZI_COLL_VERSION || zinf->features & ZI_FEATURE_COLL_VERSION)
		(void)zi_client_coll_refuse(zinf, &request->header, ZI_MESSAGE_COLL_OPEN,
		                            sizeof(*request), error, &request->error,
		                            request->reason); /* It is @error. */
	return err_trace(error);
}

int zinf_coll_open(struct zinf *zinf, uint64_t arena_bytes)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	struct zi_coll_open request = { 0 };
	const struct zi_message_header *reply;
	uint32_t fd_count = zinf->attach.local_world_size ? OPEN_FDS : OPEN_FD_SLAB;
	int fds[ZI_MESSAGE_FDS_MAX];
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	if (zinf->coll)
		return zi_client_error(zinf, -EALREADY, "zinf_coll_open() was called before");
	if (!(zinf->features & ZI_FEATURE_COLLECTIVES))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "zinfd at %s knows no collectives, use a newer one",
		                       zinf->path);
	r = compose(zinf, arena_bytes, &request);
	if (r) {
		r = refuse(zinf, &request, r);
		explicit_bzero(request.token, sizeof(request.token));
		return err_trace(r);
	}
	r = zi_client_request(zinf, &request.header, ZI_MESSAGE_COLL_OPEN, sizeof(request),
	                      ZI_MESSAGE_COLL_OPENED, &reply, fds, fd_count);
	explicit_bzero(request.token, sizeof(request.token));
	if (r)
		return err_trace(r);
	r = open_with(zinf, (const struct zi_coll_opened *)reply, request.arena_bytes, fds);
	for (uint32_t i = 0; i < fd_count; i++)
		(void)zi_close(fds[i]); /* The mappings are enough. */
	return err_trace(r);
}

int zinf_coll_alloc(struct zinf *zinf, uint64_t bytes, void **ret_data)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	ZI_CLIENT_NEED(zinf, ret_data, ret_data);
	uint64_t offset_bytes;
	int r = zi_client_coll_enter(zinf);

	if (r)
		return err_trace(r);
	r = zi_arena_alloc(&zinf->coll->arena, bytes, &offset_bytes, &zinf->text);
	if (r)
		return err_trace(r);
	*ret_data = zinf->coll->own + offset_bytes;
	return 0;
}

int zinf_coll_free(struct zinf *zinf, void *data)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_coll_enter(zinf);

	if (r || !data)
		return err_trace(r);
	r = zi_arena_free(&zinf->coll->arena, (uint64_t)((char *)data - zinf->coll->own));
	if (r)
		return zi_client_error(zinf, r, "%p was not given out by zinf_coll_alloc()", data);
	return 0;
}
