/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on the socket about GPU memory; see request_gpu.h. Floor 6, shard thread.
 *
 * The daemon offers the feature whether it has a GPU or not: its refusal says why there is none. A
 * GPU that is not known yet, while the daemon opens its GPUs after the start, is waited for.
 */
#include "daemon/session/request_gpu.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/session/reaper.h"
#include "daemon/session/request_answer.h"
#include "daemon/session/sess.h"
#include "daemon/tier/account.h"
#include "daemon/tier/tier.h"

/* Linux limits the descriptors that a user has sent and nobody has received: a client that asks and
 * does not read would take the room of all others. A client that reads has one answer there. */
#define UNREAD_BYTES_MAX 16384

static_assert(sizeof(((struct zi_gpu_open *)NULL)->uuid) == DEV_GPU_UUID_BYTES, "a UUID");

static bool is_uuid(const char *text)
{
	static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyz"
				      "ABCDEFGHIJKLMNOPQRSTUVWXYZ-/";

	return *text && !text[strspn(text, allowed)];
}

static uint32_t chunk_count(const struct zi_gpu_open *open)
{
	return open->param_chunk_count + open->grad_chunk_count;
}

/* What can be said before the GPU is known. */
static int check_open(const struct sess *session, const struct zi_gpu_open *open,
                      struct zi_text *text)
{
	uint64_t count = (uint64_t)open->param_chunk_count + open->grad_chunk_count;

	if (!is_uuid(open->uuid))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "GPU_OPEN: a UUID is GPU-… or MIG-… (nvidia-smi -L)");
	if (open->flags)
		return zi_text_error(text, err_origin(-EINVAL), "GPU_OPEN: unknown flags 0x%x",
		                     open->flags);
	if (!open->chunk_bytes && count)
		return zi_text_error(text, err_origin(-EINVAL), "GPU_OPEN: %llu chunks of 0 bytes",
		                     (unsigned long long)count);
	if (!open->chunk_bytes)
		return 0;
	if (!count || count > TIER_ARENA_CHUNKS_MAX)
		return zi_text_error(text, err_origin(count ? -E2BIG : -EINVAL),
		                     "GPU_OPEN: %llu chunks of %s: 1 to %u chunks are possible, "
		                     "larger chunks hold more",
		                     (unsigned long long)count,
		                     zi_format_bytes(open->chunk_bytes).chars,
		                     TIER_ARENA_CHUNKS_MAX);
	if (session->arena)
		return zi_text_error(text, err_origin(-EALREADY),
		                     "this rank has %u chunks of %s already: GPU memory is opened "
		                     "once in a session",
		                     tier_arena_chunk_count(session->arena),
		                     tier_arena_tier(session->arena)->name);
	if (session->unit_count)
		return zi_text_error(text, err_origin(-EBUSY),
		                     "GPU_OPEN after MATERIALIZE: GPU memory is opened before");
	return 0;
}

static int refuse_unknown(const struct sess *session, struct zi_text *text)
{
	struct tier_arenas *arenas = session->shard->arenas;
	const char *uuid = session->gpu_open.uuid;
	uint32_t count = arenas ? tier_arenas_count(arenas) : 0;
	const char *why = arenas ? tier_arenas_explanation(arenas) : "";

	if (!count)
		return zi_text_error(text, err_origin(-ENODEV), "zinfd has no GPU%s%s",
		                     *why ? ": " : "", why);
	zi_text_set(text, "zinfd does not have %s; it has ", uuid);
	for (uint32_t i = 0; i < count; i++)
		zi_text_append(text, "%s%s", i ? ", " : "",
		               tier_arenas_tier(arenas, i)->gpu->facts.uuid);
	if (*why)
		zi_text_append(text, "; %s", why);
	return err_origin(-ENODEV);
}

static int reply_opened(struct sess *session, const struct tier *tier)
{
	const struct zi_gpu_open *open = &session->gpu_open;
	struct zi_gpu_opened message = {
		.granularity_bytes = tier->gpu->facts.granularity_bytes,
		.capacity_bytes = tier->capacity_bytes,
		.free_bytes = tier_charge_room_bytes(tier, zero_rank_account(session->rank)),
		.chunk_bytes = open->chunk_bytes,
		.param_chunk_count = open->param_chunk_count,
		.grad_chunk_count = open->grad_chunk_count,
	};

	zi_message_init(&message.header, ZI_MESSAGE_GPU_OPENED, sizeof(message),
	                session->request_sequence);
	return err_trace(zi_message_send(session->socket_fd, &message.header, NULL, 0));
}

/* The answer to GPU_OPEN. @tier: NULL with an error. */
static void finish_open(struct sess *session, const struct tier *tier, int error,
                        const struct zi_text *text)
{
	assert(session->is_requesting);
	session->is_requesting = false;
	if (session->state == SESS_ATTACHED && !session->is_doomed)
		sess_sent(session, error ? sess_send_error(session, session->request_sequence,
		                                           error, text->chars)
		                         : reply_opened(session, tier));
	sess_unref(session);
}

static void arena_made(void *arg, int error, const struct zi_text *text)
{
	struct sess *session = arg;

	if (error)
		session->arena = NULL; /* It is no more. */
	finish_open(session, error ? NULL : tier_arena_tier(session->arena), error, text);
}

static int make_arena(struct sess *session, struct tier *tier, struct zi_text *text)
{
	const struct zi_gpu_open *open = &session->gpu_open;
	uint64_t granularity_bytes = tier->gpu->facts.granularity_bytes;

	if (open->chunk_bytes % granularity_bytes)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "GPU_OPEN: chunks of %llu B on %s: a multiple of %llu B is "
		                     "needed",
		                     (unsigned long long)open->chunk_bytes, tier->name,
		                     (unsigned long long)granularity_bytes);
	return err_trace(tier_arena_new(session->shard->arenas,
	                                &(struct tier_arena_options){
						.tier = tier,
						.account = zero_rank_account(session->rank),
						.chunk_bytes = open->chunk_bytes,
						.chunk_count = chunk_count(open),
						.pidfd = session->pidfd,
						.pid = session->pid,
						.made = arena_made,
						.arg = session,
					},
	                                text, &session->arena));
}

/* All GPUs are known. */
static void go_on(struct sess *session)
{
	struct tier_arenas *arenas = session->shard->arenas;
	struct tier *tier = arenas ? tier_arenas_find(arenas, session->gpu_open.uuid) : NULL;
	struct zi_text text;
	int r;

	if (!tier)
		r = refuse_unknown(session, &text);
	else if (session->gpu_open.chunk_bytes)
		r = make_arena(session, tier, &text);
	else
		r = 0;
	if (r || !session->gpu_open.chunk_bytes)
		finish_open(session, tier, r, &text);
}

static void take_open(struct sess *session, const struct zi_gpu_open *open)
{
	struct sess_shard *shard = session->shard;
	struct zi_text text;
	int r = check_open(session, open, &text);

	if (r) {
		sess_refuse(session, open->header.sequence, r, text.chars);
		return;
	}
	session->gpu_open = *open;
	session->request_type = open->header.type;
	session->request_sequence = open->header.sequence;
	session->is_requesting = true;
	sess_ref(session);
	if (shard->arenas && !tier_arenas_is_ready(shard->arenas) &&
	    !tier_arenas_find(shard->arenas, open->uuid))
		zi_list_push_back(&shard->gpu_waiting, &session->gpu_link);
	else
		go_on(session);
}

/* Answers that wait in the client's socket, as the kernel counts them. */
static int unread_bytes(const struct sess *session)
{
	int bytes = 0;

	(void)ioctl(session->socket_fd, SIOCOUTQ, &bytes); /* Else none are known. */
	return bytes;
}

static void take_chunks(struct sess *session, const struct zi_gpu_chunks *request)
{
	struct zi_gpu_chunks message = { 0 };
	int fds[ZI_MESSAGE_FDS_MAX];
	struct zi_text text;
	int r = 0;

	if (unread_bytes(session) > UNREAD_BYTES_MAX)
		r = zi_text_error(&text, err_origin(-EBUSY),
		                  "GPU_CHUNKS: this process does not read its answers");
	else if (!session->arena)
		r = zi_text_error(&text, err_origin(-ENXIO),
		                  "GPU_CHUNKS: this rank has no GPU memory, GPU_OPEN comes first");
	else if (request->count)
		r = zi_text_error(&text, err_origin(-EINVAL), "GPU_CHUNKS: count is %u, not 0",
		                  request->count);
	else if (tier_arena_passed_count(session->arena) == tier_arena_chunk_count(session->arena))
		r = zi_text_error(&text, err_origin(-ENODATA),
		                  "GPU_CHUNKS: all %u chunks were received",
		                  tier_arena_chunk_count(session->arena));
	else if (request->first != tier_arena_passed_count(session->arena))
		r = zi_text_error(&text, err_origin(-EINVAL),
		                  "GPU_CHUNKS: the next of %u chunks is %u, not %u",
		                  tier_arena_chunk_count(session->arena),
		                  tier_arena_passed_count(session->arena), request->first);
	if (r) {
		sess_refuse(session, request->header.sequence, r, text.chars);
		return;
	}
	message.first = request->first;
	message.count = tier_arena_next(session->arena, ZI_MESSAGE_FDS_MAX, fds);
	zi_message_init(&message.header, ZI_MESSAGE_GPU_CHUNKS, sizeof(message),
	                request->header.sequence);
	r = zi_message_send(session->socket_fd, &message.header, fds, message.count);
	if (!r)
		tier_arena_pass(session->arena, message.count);
	sess_sent(session, r);
}

int sess_request_gpu(struct sess *session, const struct zi_message_header *header,
                     struct zi_text *text)
{
	if (!(session->features & ZI_FEATURE_GPU))
		return zi_text_error(text, err_origin(-EPROTO), "%s without feature bit 25",
		                     zi_message_name(header->type));
	if (header->type == ZI_MESSAGE_GPU_OPEN)
		take_open(session, (const void *)header);
	else
		take_chunks(session, (const void *)header);
	return 0;
}

void sess_gpu_end(struct sess *session)
{
	bool is_pending = session->is_requesting && session->request_type == ZI_MESSAGE_GPU_OPEN;

	zi_list_remove(&session->gpu_link);
	session->arena = tier_arena_leave(session->arena);
	if (!is_pending)
		return;
	session->is_requesting = false;
	sess_unref(session);
}

void sess_gpu_ready(void *arg)
{
	struct sess_shard *shard = arg;
	struct zi_list *link;

	while ((link = zi_list_pop_front(&shard->gpu_waiting)))
		go_on(container_of(link, struct sess, gpu_link));
}
