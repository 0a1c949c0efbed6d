/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the arrays of the blocks lie between forward and backward, and which of them are there at
 * all. Two questions, each with its flag:
 *
 *   --checkpoint-every   what is stored. 0: blocks, whole, with their inputs. K: the input of every
 *                        K-th block (a checkpoint); the K blocks behind it, a *segment*, share K
 *                        sets of arrays, and backward makes them again, segment by segment
 *   --activations        where: keep, recompute: memory of this process; cpu: memory of zinfd's CPU
 *                        tier; nvme: tensors that zinfd writes as they come, of which four at a
 *                        time lie in memory
 *
 * What is stored in one go is a *piece*: a block, or a checkpoint. With nvme a piece has a place
 * only between enter and leave, and between recall and drop.
 *
 *     forward    begin, then for each block: enter, its forward, leave
 *     backward   for each block, last first: recall, (its forward, if it is missing,) its backward,
 *                drop
 *
 * Backward of a block sees the same bits in all of them: forward of the same input and parameters
 * gives them again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/args.h"
#include "examples/gpt/backend.h"
#include "examples/gpt/block.h"
#include "examples/gpt/model.h"

struct gpt_checkpoint {
	const struct gpt_model *model;
	struct gpt_backend *backend;
	uint32_t kind;        /* enum gpt_activations_kind */
	uint32_t every;       /* blocks of a segment; 0: blocks are stored whole */
	uint32_t piece_count; /* of a micro-batch */
	uint64_t piece_bytes;
	uint64_t row_bytes;             /* of the residual stream: (N, C) f32 */
	void **pieces;                  /* (piece_count,); NULL: has no place now */
	zinf_ticket *puts;              /* (piece_count,) nvme: on its way there; 0: none */
	zinf_ticket *fetches;           /* (piece_count,) nvme: on its way back; 0: none */
	void *scratch;                  /* nvme, whole blocks: of a forward that keeps nothing */
	uint32_t slot_count;            /* every */
	struct gpt_block_arrays *slots; /* (slot_count,) of the segment that computes */
	float **inputs;                 /* (slot_count,) of its blocks; the first is the piece's */
	float *stream;                  /* (N, C), behind the last block */
	float *arena;                   /* all of the above that is this process's */
	uint64_t arena_bytes, tensor_bytes; /* memory of this process, and of the daemon for it */
	uint32_t segment;                   /* whose arrays the slots hold; UINT32_MAX: none's */
	bool is_kept;                       /* this forward has a backward */
	uint64_t wait_ns;                   /* spent on tensors; the caller resets it */
};

int gpt_checkpoint_init(struct gpt_checkpoint *checkpoint, const struct gpt_args *args,
                        const struct gpt_model *model, struct gpt_backend *backend,
                        struct gpt_problem *problem);
void gpt_checkpoint_deinit(struct gpt_checkpoint *checkpoint);

/* Forward. */
int gpt_checkpoint_begin(struct gpt_checkpoint *checkpoint, bool is_kept, float **ret_input);
int gpt_checkpoint_enter(struct gpt_checkpoint *checkpoint, uint32_t layer);
int gpt_checkpoint_leave(struct gpt_checkpoint *checkpoint, uint32_t layer);
int gpt_checkpoint_end(struct gpt_checkpoint *checkpoint);

/* Backward. */
int gpt_checkpoint_recall(struct gpt_checkpoint *checkpoint, uint32_t layer);
int gpt_checkpoint_drop(struct gpt_checkpoint *checkpoint, uint32_t layer);
struct gpt_block_place gpt_checkpoint_place(const struct gpt_checkpoint *checkpoint,
                                            uint32_t layer);

/* The first block of a segment, or the block itself where blocks are stored whole. */
static inline uint32_t gpt_checkpoint_head(const struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	return checkpoint->every ? layer / checkpoint->every * checkpoint->every : layer;
}

/* Whether forward of @layer's segment has to be made again before its backward. */
static inline bool gpt_checkpoint_is_missing(const struct gpt_checkpoint *checkpoint,
                                             uint32_t layer)
{
	return checkpoint->every && checkpoint->segment != layer / checkpoint->every;
}

/* It was. */
static inline void gpt_checkpoint_made(struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	checkpoint->segment = layer / checkpoint->every;
}
