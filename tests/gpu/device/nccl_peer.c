/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of NCCL and its parent's calls; see nccl_peer.h. */
#include "tests/gpu/device/nccl_peer.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "tests/gpu/device/roles.h"
#include "tests/gpu/device/trial.h"

#define RANKS     2u
#define UINT8     1 /* ncclUint8 of nccl.h */
#define AWAIT_NS  (120 * ZI_NS_PER_S)
#define PENDING_S 1.0

struct nccl_id {
	char bytes[NCCL_ID_BYTES];
};

struct nccl_settings {
	char driver[ZI_GPU_PATH_BYTES];
	char uuid[ZI_GPU_UUID_BYTES];
	char nccl_path[PATH_MAX];
	uint32_t rank;
};

struct nccl_order {
	uint64_t is_abort;
	char id[NCCL_ID_BYTES];
};

/* ---- the rank ---- */

struct nccl {
	void *library;
	int (*get_version)(int *ret_version);
	int (*get_id)(struct nccl_id *ret_id);
	int (*init)(void **ret_comm, int rank_count, struct nccl_id id, int rank);
	int (*all_gather)(const void *source, void *target, size_t count, int dtype, void *comm,
	                  struct zi_cuda_stream *stream);
	int (*abort)(void *comm);
	const char *(*error)(int result);
	void *comm;
};

/* A process with its GPU and its part of the group. */
struct member {
	struct trial trial;
	struct nccl nccl;
	struct trial_span span;
	uint32_t rank;
	struct nccl_news news;
};

static int open_library(struct nccl *nccl, const char *path, struct zi_text *text)
{
	const struct {
		const char *symbol;
		void *field;
	} rows[] = {
		{ "ncclGetVersion", &nccl->get_version }, { "ncclGetUniqueId", &nccl->get_id },
		{ "ncclCommInitRank", &nccl->init },      { "ncclAllGather", &nccl->all_gather },
		{ "ncclCommAbort", &nccl->abort },        { "ncclGetErrorString", &nccl->error },
	};

	nccl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!nccl->library)
		return zi_text_error(text, -ENODEV, "%s", dlerror());
	for (size_t i = 0; i < ZI_COUNT_OF(rows); i++) {
		void *function = dlsym(nccl->library, rows[i].symbol);

		if (!function)
			return zi_text_error(text, -ELIBBAD, "%s lacks %s", path, rows[i].symbol);
		memcpy(rows[i].field, &function, sizeof(function));
	}
	return 0;
}

/* A result of NCCL: 0 for success. */
static int note(struct member *member, int result, const char *call)
{
	return result ? zi_text_error(&member->news.text, -EIO, "%s: %d, %s", call, result,
	                              member->nccl.error(result))
	              : 0;
}

/* The half of the chunk of each rank, in place. */
static int queue_gather(struct member *member)
{
	const uint64_t half_bytes = member->span.bytes / RANKS;
	const uint64_t own = member->span.address + member->rank * half_bytes;

	return note(member,
	            member->nccl.all_gather((const void *)(uintptr_t)own,
	                                    (void *)(uintptr_t)member->span.address, half_bytes,
	                                    UINT8, member->nccl.comm, member->trial.stream),
	            "ncclAllGather");
}

/* Each half has its rank's byte. */
static int compare(struct member *member)
{
	struct trial *trial = &member->trial;
	const uint64_t bytes = member->span.bytes;
	_cleanup_(zi_freep) unsigned char *seen = malloc(bytes);
	uint64_t wrong_count = 0;
	int r;

	if (!seen)
		return zi_text_error(&member->news.text, -ENOMEM, "no memory to compare");
	TRIAL_DO(trial, cuMemcpyDtoHAsync(seen, member->span.address, bytes, trial->stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	r = trial_call_error(trial, &member->news.text);
	for (uint64_t i = 0; i < bytes && !r; i++)
		wrong_count += seen[i] != 1 + i / (bytes / RANKS);
	return wrong_count ? zi_text_error(&member->news.text, -EBADMSG, "%llu bytes are wrong",
	                                   (unsigned long long)wrong_count)
	                   : r;
}

static int gather(struct member *member, const struct nccl_order *order, int fd)
{
	struct trial *trial = &member->trial;
	const uint64_t bytes = trial->sizes.chunk_bytes, half_bytes = bytes / RANKS;
	struct nccl_id id;
	int r;

	trial_begin(trial);
	trial_import(trial, fd, bytes, &member->span);
	TRIAL_DO(trial, cuMemsetD8Async(member->span.address + member->rank * half_bytes,
	                                (uint8_t)(1 + member->rank), half_bytes, trial->stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	r = trial_call_error(trial, &member->news.text);
	memcpy(id.bytes, order->id, sizeof(id.bytes));
	if (!r)
		r = note(member,
		         member->nccl.init(&member->nccl.comm, RANKS, id, (int)member->rank),
		         "ncclCommInitRank");
	if (!r)
		r = queue_gather(member);
	return r ? r : compare(member);
}

/* The other rank does not come. */
static int abort_amid(struct member *member)
{
	struct trial *trial = &member->trial;
	const double begin_s = trial_now_s();
	uint64_t abort_ns;
	int code, r;

	r = queue_gather(member);
	do
		code = trial->driver.cuda.cuStreamQuery(trial->stream);
	while (!r && code == ZI_CUDA_NOT_READY && trial_now_s() - begin_s < PENDING_S);
	if (!r && code != ZI_CUDA_NOT_READY)
		r = zi_text_error(&member->news.text, -EBADMSG,
		                  "a gather without the other rank ended with %d", code);
	abort_ns = zi_clock_now_ns();
	if (!r)
		r = note(member, member->nccl.abort(member->nccl.comm), "ncclCommAbort");
	if (!r)
		TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	member->news.abort_ns = zi_clock_now_ns() - abort_ns;
	return r ? r : trial_call_error(trial, &member->news.text);
}

static int begin(struct member *member, const struct nccl_settings *settings)
{
	struct nccl_id id = { { 0 } };
	int version = 0;
	int r = trial_join(&member->trial,
	                   &(struct trial_options){ .command = "nccl",
	                                            .driver = settings->driver,
	                                            .device = settings->uuid },
	                   &member->news.text);

	member->rank = settings->rank;
	if (!r)
		r = open_library(&member->nccl, settings->nccl_path, &member->news.text);
	if (!r)
		r = note(member, member->nccl.get_version(&version), "ncclGetVersion");
	if (!r && !settings->rank)
		r = note(member, member->nccl.get_id(&id), "ncclGetUniqueId");
	member->news.version = version;
	memcpy(member->news.id, id.bytes, sizeof(id.bytes));
	return r;
}

int nccl_role(int fd)
{
	static struct member member; /* Large. */
	struct nccl_settings settings;
	struct nccl_order order;
	int r = peer_receive(fd, AWAIT_NS, &settings, sizeof(settings), NULL, 0);

	if (r)
		return 1;
	r = begin(&member, &settings);
	for (;;) {
		int chunk_fd = -1;

		member.news.error = r;
		if (peer_send(fd, &member.news, sizeof(member.news), NULL, 0) ||
		    peer_receive(fd, ZI_DEADLINE_NEVER, &order, sizeof(order), &chunk_fd, 1))
			return 0;
		r = order.is_abort ? abort_amid(&member) : gather(&member, &order, chunk_fd);
		(void)zi_close(chunk_fd);
	}
}

/* ---- its parent ---- */

int nccl_peer_hear(const struct peer *peer, struct nccl_news *ret_news)
{
	int r = peer_receive(peer->fd, AWAIT_NS, ret_news, sizeof(*ret_news), NULL, 0);

	if (r)
		return zi_text_error(&ret_news->text, r, "a rank of NCCL: %s", strerror(-r));
	return (int)ret_news->error;
}

int nccl_peer_start(const struct trial *trial, const char *library, uint32_t rank,
                    struct peer *ret_peer, struct nccl_news *ret_news)
{
	struct nccl_settings settings = { .rank = rank };
	int r = zi_copy_name(settings.nccl_path, sizeof(settings.nccl_path), library);

	memcpy(settings.driver, trial->driver.path, sizeof(settings.driver));
	memcpy(settings.uuid, trial->device.uuid, sizeof(settings.uuid));
	if (!r)
		r = peer_start(ret_peer, "nccl", NULL, &settings, sizeof(settings));
	if (r)
		return zi_text_error(&ret_news->text, r, "starting a process: %s", strerror(-r));
	r = nccl_peer_hear(ret_peer, ret_news);
	if (r)
		(void)peer_kill(ret_peer); /* The first error says more. */
	return r;
}

int nccl_peer_gather(const struct peer *peer, const char *id, int fd)
{
	struct nccl_order order = { 0 };

	memcpy(order.id, id, sizeof(order.id));
	return peer_send(peer->fd, &order, sizeof(order), &fd, 1);
}

int nccl_peer_abort(const struct peer *peer)
{
	struct nccl_order order = { .is_abort = 1 };

	return peer_send(peer->fd, &order, sizeof(order), NULL, 0);
}
