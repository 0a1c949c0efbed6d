/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU tiers, and the arenas of ranks; see arena.h. Floor 4, shard thread. */
#include "daemon/tier/arena.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/list.h"
#include "common/base/loop.h"
#include "daemon/tier/account.h"
#include "daemon/tier/tier.h"

enum arena_state { ARENA_MAKING, ARENA_MADE, ARENA_RELEASING };

struct arena_gpu {
	struct tier tier;
	struct dev_gpu gpu;
};

struct tier_arenas {
	struct zi_loop *loop;
	struct zi_list list;                   /* struct tier_arena */
	struct arena_gpu *gpus[TIER_GPUS_MAX]; /* (gpu_count,) */
	uint32_t gpu_count;
	bool is_ready;
	void (*ready)(void *arg);
	void *ready_arg;
	struct zi_text explanation;
	struct tier_gpu_trouble troubles[TIER_GPUS_MAX]; /* by the driver's number */
};

struct tier_arena {
	struct tier_arenas *arenas;
	struct zi_list arenas_link;
	enum arena_state state;
	struct tier_charge charge;
	uint32_t fd_count;       /* counted: of chunks, and the one of the process */
	struct zi_source exited; /* the process has gone */
	int pidfd;
	pid_t pid;
	bool is_gone;
	tier_arena_fn made; /* NULL: the owner left */
	void *arg;
	struct dev_gpu_request request; /* to make, then to release the chunks */
	uint64_t chunk_bytes;
	uint32_t chunk_count, passed_count;
	struct dev_gpu_chunk chunks[]; /* (chunk_count,) */
};

/* ---- the GPU tiers ---- */

int tier_arenas_new(struct zi_loop *loop, struct tier_arenas **ret_arenas)
{
	struct tier_arenas *arenas = calloc(1, sizeof(*arenas));

	if (!arenas)
		return err_origin(-ENOMEM);
	arenas->loop = loop;
	arenas->is_ready = true;
	zi_list_init(&arenas->list);
	*ret_arenas = arenas;
	return 0;
}

static struct tier_arena *arena_free(struct tier_arena *arena);

struct tier_arenas *tier_arenas_free(struct tier_arenas *arenas)
{
	if (!arenas)
		return NULL;
	assert(!arenas->ready);
	zi_list_for_each_safe(link, &arenas->list) {
		struct tier_arena *arena = container_of(link, struct tier_arena, arenas_link);

		assert(!arena->made);
		assert(arena->state == ARENA_MADE);
		(void)arena_free(arena);
	}
	for (uint32_t i = 0; i < arenas->gpu_count; i++) {
		tier_deinit(&arenas->gpus[i]->tier);
		dev_gpu_deinit(&arenas->gpus[i]->gpu);
		free(arenas->gpus[i]);
	}
	free(arenas);
	return NULL;
}

static uint64_t count_lingering(const void *arg, const struct tier *tier, pid_t *ret_pid)
{
	return tier_arenas_lingering_bytes(arg, tier, ret_pid);
}

int tier_arenas_add(struct tier_arenas *arenas, const struct dev_gpu_facts *facts,
                    uint64_t reserve_bytes, const struct dev_gpu_ops *ops, void *arg,
                    struct dev_gpu **ret_gpu)
{
	struct arena_gpu *gpu;

	assert(!tier_arenas_find(arenas, facts->uuid));
	if (arenas->gpu_count == TIER_GPUS_MAX)
		return err_origin(-ENOSPC);
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return err_origin(-ENOMEM);
	dev_gpu_init(&gpu->gpu, facts, ops, arg);
	tier_init_gpu(&gpu->tier, &gpu->gpu, facts->bytes - ZI_MIN(facts->bytes, reserve_bytes));
	gpu->tier.lingering_bytes = count_lingering;
	gpu->tier.lingering_arg = arenas;
	arenas->gpus[arenas->gpu_count++] = gpu;
	*ret_gpu = &gpu->gpu;
	return 0;
}

uint32_t tier_arenas_count(const struct tier_arenas *arenas)
{
	return arenas->gpu_count;
}

struct tier *tier_arenas_tier(struct tier_arenas *arenas, uint32_t index)
{
	assert(index < arenas->gpu_count);
	return &arenas->gpus[index]->tier;
}

struct tier *tier_arenas_find(struct tier_arenas *arenas, const char *uuid)
{
	for (uint32_t i = 0; i < arenas->gpu_count; i++)
		if (!strcasecmp(arenas->gpus[i]->gpu.facts.uuid, uuid))
			return &arenas->gpus[i]->tier;
	return NULL;
}

void tier_arenas_set_ready(struct tier_arenas *arenas, bool is_ready)
{
	bool was_ready = arenas->is_ready;

	arenas->is_ready = is_ready;
	if (is_ready && !was_ready && arenas->ready)
		arenas->ready(arenas->ready_arg);
}

bool tier_arenas_is_ready(const struct tier_arenas *arenas)
{
	return arenas->is_ready;
}

void tier_arenas_watch(struct tier_arenas *arenas, void (*ready)(void *arg), void *arg)
{
	assert(!ready || !arenas->ready);
	arenas->ready = ready;
	arenas->ready_arg = arg;
}

void tier_arenas_explain(struct tier_arenas *arenas, const struct zi_text *text)
{
	arenas->explanation = *text;
}

const char *tier_arenas_explanation(const struct tier_arenas *arenas)
{
	for (uint32_t i = 0; !arenas->explanation.chars[0] && i < TIER_GPUS_MAX; i++)
		if (arenas->troubles[i].text.chars[0])
			return arenas->troubles[i].text.chars;
	return arenas->explanation.chars;
}

struct tier_gpu_trouble *tier_arenas_trouble(struct tier_arenas *arenas, uint32_t number)
{
	assert(number < TIER_GPUS_MAX);
	return &arenas->troubles[number];
}

/* ---- an arena's end ---- */

/* Closes what was not passed on. */
static void close_chunks(struct tier_arena *arena)
{
	for (uint32_t i = 0; i < arena->chunk_count; i++)
		arena->chunks[i].fd = zi_close(arena->chunks[i].fd);
	tier_account_give_fds(arena->charge.account, arena->fd_count - 1);
	arena->fd_count = 1;
}

/* Nobody has its chunks any more, or there never were any. */
static struct tier_arena *arena_free(struct tier_arena *arena)
{
	zi_list_remove(&arena->arenas_link);
	zi_loop_remove(&arena->exited);
	arena->pidfd = zi_close(arena->pidfd);
	close_chunks(arena);
	tier_account_give_fds(arena->charge.account, arena->fd_count);
	tier_charge_return(&arena->charge);
	free(arena);
	return NULL;
}

static void arena_released(struct dev_gpu_request *request)
{
	struct tier_arena *arena = container_of(request, struct tier_arena, request);

	/* With an error the owner has ended, or still counts them among what it holds: then it
	 * refuses what goes beyond. There is no second try. */
	assert(arena->state == ARENA_RELEASING);
	(void)arena_free(arena);
}

/* Releases what nobody can have any more. May free the arena. */
static void arena_settle(struct tier_arena *arena)
{
	if (arena->state != ARENA_MADE || arena->made)
		return;
	close_chunks(arena);
	if (arena->passed_count && !arena->is_gone)
		return;
	arena->state = ARENA_RELEASING;
	arena->request.done = arena_released;
	arena->request.count = arena->chunk_count;
	dev_gpu_release(arena->charge.tier->gpu, &arena->request);
}

static void arena_exited(struct zi_source *source, uint32_t epoll_events)
{
	struct tier_arena *arena = container_of(source, struct tier_arena, exited);

	(void)epoll_events; /* A pidfd has one event. */
	zi_loop_remove(source);
	arena->is_gone = true;
	arena_settle(arena);
}

static void arena_made(struct dev_gpu_request *request)
{
	struct tier_arena *arena = container_of(request, struct tier_arena, request);
	tier_arena_fn made = arena->made;
	void *arg = arena->arg;

	assert(arena->state == ARENA_MAKING);
	if (request->error) {
		struct zi_text text = request->text;
		int error = request->error;

		arena->made = NULL;
		arena->state = ARENA_RELEASING;
		close_chunks(arena);
		request->done = arena_released;
		dev_gpu_await_gone(arena->charge.tier->gpu, request);
		if (made)
			made(arg, error, &text);
		return;
	}
	arena->state = ARENA_MADE;
	if (made)
		made(arg, 0, NULL);
	else
		arena_settle(arena);
}

/* ---- arenas ---- */

/* Bytes and descriptors. */
static int arena_pay(struct tier_arena *arena, const struct tier_arena_options *options,
                     uint64_t bytes, struct zi_text *text)
{
	int r;

	r = tier_charge_take(&arena->charge, options->tier, options->account, bytes, text);
	if (r)
		return err_origin(r == TIER_E_FULL ? -ENOSPC : -EDQUOT);
	r = tier_account_take_fds(options->account, options->chunk_count + 1, text);
	if (r)
		return err_origin(-EDQUOT);
	arena->fd_count = options->chunk_count + 1;
	return 0;
}

static int arena_watch(struct tier_arena *arena, int pidfd, struct zi_text *text)
{
	int r;

	arena->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
	if (arena->pidfd < 0)
		r = err_origin(-errno);
	else
		r = zi_loop_add(arena->arenas->loop, &arena->exited, arena->pidfd, EPOLLIN,
		                arena_exited);
	if (r)
		return zi_text_error(text, err_trace(r), "watching process %d: %s", (int)arena->pid,
		                     strerror(-r));
	return 0;
}

int tier_arena_new(struct tier_arenas *arenas, const struct tier_arena_options *options,
                   struct zi_text *text, struct tier_arena **ret_arena)
{
	const struct dev_gpu_facts *facts = &options->tier->gpu->facts;
	struct tier_arena *arena;
	uint64_t bytes;
	int r;

	assert(options->tier->kind == TIER_GPU);
	assert(options->made);
	assert(options->chunk_count > 0 && options->chunk_count <= TIER_ARENA_CHUNKS_MAX);
	assert(options->chunk_bytes > 0 && options->chunk_bytes % facts->granularity_bytes == 0);
	(void)facts; /* Without asserts nobody looks. */
	/* More than any tier has. */
	if (__builtin_mul_overflow(options->chunk_bytes, options->chunk_count, &bytes))
		bytes = UINT64_MAX;
	arena = calloc(1, sizeof(*arena) + options->chunk_count * sizeof(arena->chunks[0]));
	if (!arena)
		return zi_text_error(text, err_origin(-ENOMEM), "no memory for an arena's table");
	arena->arenas = arenas;
	arena->pid = options->pid;
	arena->chunk_bytes = options->chunk_bytes;
	arena->chunk_count = options->chunk_count;
	arena->pidfd = -1;
	zi_list_init(&arena->arenas_link);
	for (uint32_t i = 0; i < arena->chunk_count; i++)
		arena->chunks[i].fd = -1;
	r = arena_pay(arena, options, bytes, text);
	if (r) {
		tier_charge_return(&arena->charge);
		free(arena);
		return err_trace(r);
	}
	r = arena_watch(arena, options->pidfd, text);
	if (!r) {
		arena->request = (struct dev_gpu_request){ .done = arena_made,
			                                   .count = arena->chunk_count,
			                                   .chunk_bytes = arena->chunk_bytes,
			                                   .chunks = arena->chunks };
		r = dev_gpu_create(options->tier->gpu, &arena->request);
		if (r)
			*text = arena->request.text;
	}
	if (r) {
		(void)arena_free(arena);
		return err_trace(r);
	}
	arena->made = options->made;
	arena->arg = options->arg;
	zi_list_push_back(&arenas->list, &arena->arenas_link);
	*ret_arena = arena;
	return 0;
}

struct tier_arena *tier_arena_leave(struct tier_arena *arena)
{
	if (!arena)
		return NULL;
	assert(arena->made);
	arena->made = NULL;
	if (arena->state == ARENA_MAKING &&
	    dev_gpu_cancel(arena->charge.tier->gpu, &arena->request))
		return arena_free(arena);
	arena_settle(arena);
	return NULL;
}

bool tier_arena_is_made(const struct tier_arena *arena)
{
	return arena->state != ARENA_MAKING;
}

struct tier *tier_arena_tier(const struct tier_arena *arena)
{
	return arena->charge.tier;
}

uint32_t tier_arena_chunk_count(const struct tier_arena *arena)
{
	return arena->chunk_count;
}

uint32_t tier_arena_passed_count(const struct tier_arena *arena)
{
	return arena->passed_count;
}

uint32_t tier_arena_next(const struct tier_arena *arena, uint32_t max, int *ret_fds)
{
	uint32_t count = ZI_MIN(max, arena->chunk_count - arena->passed_count);

	assert(arena->state == ARENA_MADE);
	for (uint32_t i = 0; i < count; i++)
		ret_fds[i] = arena->chunks[arena->passed_count + i].fd;
	return count;
}

void tier_arena_pass(struct tier_arena *arena, uint32_t count)
{
	assert(count <= arena->chunk_count - arena->passed_count);
	assert(arena->fd_count > count);
	for (uint32_t i = 0; i < count; i++, arena->passed_count++)
		arena->chunks[arena->passed_count].fd =
			zi_close(arena->chunks[arena->passed_count].fd);
	tier_account_give_fds(arena->charge.account, count);
	arena->fd_count -= count;
}

uint64_t tier_arenas_lingering_bytes(const struct tier_arenas *arenas, const struct tier *tier,
                                     pid_t *ret_pid)
{
	uint64_t bytes = 0, most_bytes = 0;

	zi_list_for_each(link, &arenas->list) {
		const struct tier_arena *arena = container_of(link, struct tier_arena, arenas_link);

		if (arena->made || arena->state != ARENA_MADE || arena->charge.tier != tier)
			continue;
		bytes += arena->charge.bytes;
		if (arena->charge.bytes <= most_bytes)
			continue;
		most_bytes = arena->charge.bytes;
		if (ret_pid)
			*ret_pid = arena->pid;
	}
	return bytes;
}

uint32_t tier_arenas_arena_count(const struct tier_arenas *arenas, const struct tier *tier)
{
	uint32_t count = 0;

	zi_list_for_each(link, &arenas->list)
		count += container_of(link, struct tier_arena, arenas_link)->charge.tier == tier;
	return count;
}
