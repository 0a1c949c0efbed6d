/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU tiers, and the arenas of ranks: the chunks that a rank has of one of them. Floor 4, shard
 * thread.
 *
 * An arena is charged first, then made. Its descriptors are handed out in order, and closed here as
 * soon as they were passed on. The rank's process may have the chunks in its address space then, so
 * they stay, and stay charged, until that process has gone, whenever its session ends. Then the
 * owner of the chunks releases them, and the charge returns with its answer.
 *
 *            charged          made             the owner left, and the process  answered
 *   (none) ──────────▶ MAKING ────▶ MADE ─────────────────────────▶ RELEASING ─────────▶ (none)
 *                        │               has gone or received nothing
 *                        └ failed: (none)
 *
 * The end of the process that made the chunks (dev_gpu: a new life) changes nothing of that: the
 * GPU has the memory until the rank's process has gone. While that process is ending it may hold
 * chunks that it was making: an arena that failed for it is RELEASING until it has gone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "daemon/device/gpu.h"

struct tier;
struct tier_account;
struct tier_arena;  /* of a rank */
struct tier_arenas; /* the GPU tiers, and all arenas */
struct zi_loop;

#define TIER_ARENA_CHUNKS_MAX DEV_GPU_CHUNKS_MAX
#define TIER_GPUS_MAX         64u

/* ---- the GPU tiers ---- */

/* Without tiers yet. @loop: turned later. Return: 0, -ENOMEM. */
int tier_arenas_new(struct zi_loop *loop, struct tier_arenas **ret_arenas);
/* The owners of all chunks have ended (dev_gpu_close()), as have all sessions: what ranks still
 * hold is nobody's charge any more. NULL-safe. Return: NULL. */
struct tier_arenas *tier_arenas_free(struct tier_arenas *arenas);
ZI_DEFINE_CLEANUP(struct tier_arenas *, tier_arenas_free)

/* One more tier, for good. @facts, @ops, @arg: as of dev_gpu_init(). @reserve_bytes: of the GPU's
 * memory that nobody may charge. Return: 0; -ENOSPC: TIER_GPUS_MAX are there. */
int tier_arenas_add(struct tier_arenas *arenas, const struct dev_gpu_facts *facts,
                    uint64_t reserve_bytes, const struct dev_gpu_ops *ops, void *arg,
                    struct dev_gpu **ret_gpu);
uint32_t tier_arenas_count(const struct tier_arenas *arenas);
struct tier *tier_arenas_tier(struct tier_arenas *arenas, uint32_t index);
/* NULL: there is none. Upper and lower case are the same, as for the driver. */
struct tier *tier_arenas_find(struct tier_arenas *arenas, const char *uuid);

/* False while GPUs are still being opened, after the start: more tiers may come. */
void tier_arenas_set_ready(struct tier_arenas *arenas, bool is_ready);
bool tier_arenas_is_ready(const struct tier_arenas *arenas);
/* @ready: called at each change to true; one at a time. NULL: no more. */
void tier_arenas_watch(struct tier_arenas *arenas, void (*ready)(void *arg), void *arg);
/* Why there is no GPU: half a sentence, "gpu.enable is no". */
void tier_arenas_explain(struct tier_arenas *arenas, const struct zi_text *text);
/* As it was explained, else the trouble of the first GPU without a tier that has one. "": none. */
const char *tier_arenas_explanation(const struct tier_arenas *arenas);

/* Of a GPU that has no tier: why, in one sentence. */
struct tier_gpu_trouble {
	struct zi_text text; /* "": it has none */
	pid_t ending_pid;    /* of its process, which was killed and has not gone; 0: none */
	uint64_t killed_ns;  /* when, on the clock */
};

/* @number: of the GPU for the driver, below TIER_GPUS_MAX. The caller may write it. */
struct tier_gpu_trouble *tier_arenas_trouble(struct tier_arenas *arenas, uint32_t number);

/* ---- arenas ---- */

/* The chunks are made, or with @error < 0 they are not, and the arena is no more. Once; never after
 * the owner left. It may leave the arena that is made. */
typedef void (*tier_arena_fn)(void *arg, int error, const struct zi_text *text);

struct tier_arena_options {
	struct tier *tier;            /* of these arenas */
	struct tier_account *account; /* pays for bytes and descriptors; outlives both */
	uint64_t chunk_bytes;         /* a multiple of the GPU's granularity */
	uint32_t chunk_count;         /* 1 to TIER_ARENA_CHUNKS_MAX */
	int pidfd;                    /* of the process that receives chunks; the caller's */
	pid_t pid;                    /* for people */
	tier_arena_fn made;
	void *arg;
};

/* @ret_arena: its owner's, tier_arena_leave(); `made` comes from the loop. Return: 0; -ENOSPC,
 * -EDQUOT with figures; -ENOMEM; what the owner of the chunks says at once. */
int tier_arena_new(struct tier_arenas *arenas, const struct tier_arena_options *options,
                   struct zi_text *text, struct tier_arena **ret_arena);
/* The session ends: `made` does not come any more. The arena lives on as long as it must.
 * NULL-safe. Return: NULL. */
struct tier_arena *tier_arena_leave(struct tier_arena *arena);

/* Its chunks are there. */
bool tier_arena_is_made(const struct tier_arena *arena);
/* The GPU that it is on. */
struct tier *tier_arena_tier(const struct tier_arena *arena);
/* Chunks, also those that are still being made. */
uint32_t tier_arena_chunk_count(const struct tier_arena *arena);
/* Chunks whose descriptors were passed on. */
uint32_t tier_arena_passed_count(const struct tier_arena *arena);
/* Descriptors of the next chunks, (@max,) at most: they stay the arena's. Return: how many; 0: all
 * were passed on. */
uint32_t tier_arena_next(const struct tier_arena *arena, uint32_t max, int *ret_fds);
/* The next @count were passed on: they are closed here. */
void tier_arena_pass(struct tier_arena *arena, uint32_t count);

/* Bytes of @tier that processes hold whose sessions are over. @ret_pid: the one that holds most;
 * untouched where the result is 0; may be NULL. */
uint64_t tier_arenas_lingering_bytes(const struct tier_arenas *arenas, const struct tier *tier,
                                     pid_t *ret_pid);
/* Arenas on @tier. */
uint32_t tier_arenas_arena_count(const struct tier_arenas *arenas, const struct tier *tier);
