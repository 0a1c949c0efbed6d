/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training state that suites run steps on, laid out as the daemon's: planar parameters and
 * gradients, optimizer state in tiles. Memory far beyond any cache, in huge pages, touched by the
 * threads that use it.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/types.h"
#include "kernels/optim_hashed.h"

#define ADAM_ELEMENTS  (64ull << 20) /* 1 GiB of training state and more */
#define ADAM_TILES     (ADAM_ELEMENTS / ZI_TILE_ELEMENTS)
#define ADAM_RANKS_MAX 2u
/* The most that a case needs. */
#define ADAM_BYTES (ADAM_ELEMENTS * 18)

static_assert(ADAM_ELEMENTS % ZI_TILE_ELEMENTS == 0, "whole tiles");

struct adam_case {
	enum zi_dtype dtype; /* of parameters and gradients */
	uint32_t rank_count;
	bool is_reduced; /* the one gradient is a sum already */
	bool has_copy;   /* the new parameter is written twice */
};

struct adam_work {
	const struct adam_case *kind;
	struct kern_optim_scalars scalars;
	char *param, *copy;
	char *grads[ADAM_RANKS_MAX];
	char *state; /* tiles */
};

/* @memory: ADAM_BYTES. AdamW; everything stays the caller's. */
void adam_work_init(struct adam_work *ret_work, const struct adam_case *kind, char *memory);
/* Bytes that a step reads and writes, for each element. */
uint64_t adam_element_bytes(const struct adam_case *kind);
/* Of a tile's state, and where tile @tile of it begins. */
uint64_t adam_state_tile_bytes(const struct adam_case *kind);
static inline char *adam_state_tile(const struct adam_work *work, uint64_t tile)
{
	return work->state + tile * adam_state_tile_bytes(work->kind);
}
/* Bytes from the beginning of a plane of parameters or gradients to tile @tile. */
static inline uint64_t adam_plane_offset(const struct adam_work *work, uint64_t tile)
{
	return tile * ZI_TILE_ELEMENTS * zi_dtype_bytes(work->kind->dtype);
}
/* One tile, as the daemon runs it; with its checksums, unless @ret_hashes is NULL. */
void adam_tile(const struct adam_work *work, uint64_t tile, struct kern_optim_hashes *ret_hashes);
/* team_fn: the step, and ordinary numbers everywhere. @arg: struct adam_work. */
void adam_member(void *arg, unsigned member, unsigned member_count);
void adam_fill_member(void *arg, unsigned member, unsigned member_count);
/* A member's part of @total. */
static inline uint64_t adam_share(uint64_t total, unsigned member, unsigned member_count)
{
	return total * member / member_count;
}
/* NULL: errno says why. Never unmapped: programs that measure end soon. */
void *adam_map_huge(uint64_t bytes);
