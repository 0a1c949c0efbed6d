/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nodes tell each other of a call across nodes (far.h), each in one frame: what it is, and
 * where it is small the data as well, so that one way through the network is enough. Floor 1. Pure
 * arithmetic, alike in ranks and worker.
 *
 *   frame   | description | the sources of the node's members that have one, in their order |
 *
 * Members post their sources with a small call; the worker puts them into its frame, sends that to
 * all other nodes, and takes theirs, in memory of its own. When all agree it copies the sources to
 * the slab and says so (ZI_BOARD_SMALL), and each member makes its own result of them. Frames have
 * their places there in two sets: a member posts the call after the next only when it has left this
 * one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/far.h"

#define ZI_FRAME_WORDS_BYTES 512u  /* of the description */
#define ZI_FRAME_DATA_MAX    4096u /* what a member can post */

static_assert(ZI_FRAME_DATA_MAX <= ZI_BOARD_INLINE_BYTES, "one post has a member's source");

/* Bytes of each frame; the more nodes the smaller they are. */
uint32_t zi_frame_bytes(const struct zi_far_shape *shape);
/* Offset in the slab of the frame of @node of call @sequence. */
uint64_t zi_frame_at(const struct zi_far_shape *shape, uint32_t sequence, uint32_t node);

/* A call that may be small. */
struct zi_frame_call {
	enum zi_coll_operation operation;
	enum zi_dtype dtype;
	uint32_t root;
	uint64_t element_count;
};

/* Whether its data go with the frames; false where @call makes no sense. @ret_source_bytes: of each
 * member that has a source. */
bool zi_frame_is_small(const struct zi_far_shape *shape, const struct zi_frame_call *call,
                       uint32_t *ret_source_bytes);
/* Offset in the slab of the source of @member, which has one, of @source_bytes. */
uint64_t zi_frame_source_at(const struct zi_far_shape *shape, const struct zi_frame_call *call,
                            uint32_t source_bytes, uint32_t sequence, uint32_t member);
