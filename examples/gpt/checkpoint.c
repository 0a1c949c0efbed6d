/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces: their places, their way to zinfd's store and back. */
#include "examples/gpt/checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/arena.h"
#include "examples/gpt/clock.h"

/* nvme, pieces in memory: one is computed on; in forward the others are on their way out, in
 * backward two are on their way in and one was just used. */
#define PIECES_RESIDENT_MAX 4u
#define PIECES_AHEAD        2u
/* So many are being written while the next one is computed: one less would wait for the disk with
 * room left, and tickets of many blocks are not heaped up. */
#define PUTS_MAX 3u

#define NO_SEGMENT UINT32_MAX
#define PAGE_BYTES 4096u /* tensors begin on pages (zinf/tensor.h) */

static bool is_moving(const struct gpt_checkpoint *checkpoint)
{
	return checkpoint->kind == GPT_ACTIVATIONS_NVME;
}

static bool begins_piece(const struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	return !checkpoint->every || layer % checkpoint->every == 0;
}

static uint32_t piece_of(const struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	return checkpoint->every ? layer / checkpoint->every : layer;
}

static uint64_t row_floats(const struct gpt_checkpoint *checkpoint)
{
	return checkpoint->row_bytes / sizeof(float);
}

/* A piece: the input, and the arrays of a block that is stored whole. Its length without @place. */
static uint64_t cut_piece(const struct gpt_checkpoint *checkpoint, void *place,
                          struct gpt_block_place *ret_place)
{
	struct gpt_cutter cutter = { .arena = place };

	ret_place->input = gpt_cut(&cutter, row_floats(checkpoint));
	if (!checkpoint->every)
		gpt_block_cut(&checkpoint->model->config, &cutter, &ret_place->arrays);
	return cutter.used_count;
}

/* ---- memory ---- */

/* What is this process's own. */
static void cut_all(struct gpt_checkpoint *checkpoint, struct gpt_cutter *cutter)
{
	bool is_own = checkpoint->kind == GPT_ACTIVATIONS_KEEP ||
	              checkpoint->kind == GPT_ACTIVATIONS_RECOMPUTE;

	checkpoint->stream = gpt_cut(cutter, row_floats(checkpoint));
	for (uint32_t p = 0; is_own && p < checkpoint->piece_count; p++)
		checkpoint->pieces[p] = gpt_cut(cutter, checkpoint->piece_bytes / sizeof(float));
	for (uint32_t slot = 0; slot < checkpoint->slot_count; slot++) {
		gpt_block_cut(&checkpoint->model->config, cutter, &checkpoint->slots[slot]);
		if (slot > 0)
			checkpoint->inputs[slot] = gpt_cut(cutter, row_floats(checkpoint));
	}
}

static int allocate(struct gpt_checkpoint *checkpoint, struct gpt_problem *problem)
{
	const struct gpt_config *config = &checkpoint->model->config;
	struct gpt_cutter cutter = { 0 };

	checkpoint->pieces = calloc(checkpoint->piece_count, sizeof(*checkpoint->pieces));
	checkpoint->puts = calloc(checkpoint->piece_count, sizeof(*checkpoint->puts));
	checkpoint->fetches = calloc(checkpoint->piece_count, sizeof(*checkpoint->fetches));
	checkpoint->slots = calloc(checkpoint->slot_count + 1, sizeof(*checkpoint->slots));
	checkpoint->inputs = calloc(checkpoint->slot_count + 1, sizeof(*checkpoint->inputs));
	if (checkpoint->pieces && checkpoint->puts && checkpoint->fetches && checkpoint->slots &&
	    checkpoint->inputs) {
		cut_all(checkpoint, &cutter);
		checkpoint->arena_bytes = cutter.used_count * sizeof(float);
		if (cutter.used_count <= SIZE_MAX / sizeof(float) / 2)
			checkpoint->arena =
				gpt_arena_new(checkpoint->backend->device, checkpoint->arena_bytes);
	}
	if (!checkpoint->arena)
		return gpt_problem_set(
			problem, -ENOMEM,
			"No memory%s for the activations of %u x %u tokens: %llu MiB for %u "
			"blocks; a smaller --batch-size or --activations recompute needs less",
			gpt_arena_place(checkpoint->backend->device), config->batch_count,
			config->sequence_count, (unsigned long long)(checkpoint->arena_bytes >> 20),
			config->layer_count);
	cutter = (struct gpt_cutter){ .arena = checkpoint->arena };
	cut_all(checkpoint, &cutter);
	return 0;
}

/* Room in the daemon's memory; with cpu each piece has its place there for good. */
static int open_tensors(struct gpt_checkpoint *checkpoint)
{
	const struct gpt_backend_ops *ops = checkpoint->backend->ops;
	uint64_t each_bytes = (checkpoint->piece_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	uint32_t count = checkpoint->piece_count;
	int r;

	if (is_moving(checkpoint) && count > PIECES_RESIDENT_MAX)
		count = PIECES_RESIDENT_MAX;
	r = ops->tensor_open(checkpoint->backend, count * each_bytes);
	if (r)
		return r;
	checkpoint->tensor_bytes = count * each_bytes;
	for (uint32_t p = 0; !is_moving(checkpoint) && p < checkpoint->piece_count; p++) {
		r = ops->tensor_alloc(checkpoint->backend, p, checkpoint->piece_bytes,
		                      &checkpoint->pieces[p]);
		if (r)
			return r;
	}
	return 0;
}

/*
 * @checkpoint: deinit it, also after a failure. @model, @backend: must outlive it. Return: 0;
 * -ENOMEM; what the backend answered: memory or store have no room.
 */
int gpt_checkpoint_init(struct gpt_checkpoint *checkpoint, const struct gpt_args *args,
                        const struct gpt_model *model, struct gpt_backend *backend,
                        struct gpt_problem *problem)
{
	const struct gpt_config *config = &model->config;
	uint32_t every = args->checkpoint_every;
	struct gpt_block_place place = { 0 };
	int r;

	if (every > config->layer_count)
		every = config->layer_count;
	*checkpoint = (struct gpt_checkpoint){
		.model = model,
		.backend = backend,
		.kind = args->activations,
		.every = every,
		.piece_count =
			every ? (config->layer_count + every - 1) / every : config->layer_count,
		.row_bytes = (uint64_t)config->batch_count * config->sequence_count *
		             config->channel_count * sizeof(float),
		.slot_count = every,
		.segment = NO_SEGMENT,
	};
	checkpoint->piece_bytes = cut_piece(checkpoint, NULL, &place) * sizeof(float);
	r = allocate(checkpoint, problem);
	if (r || checkpoint->kind == GPT_ACTIVATIONS_KEEP ||
	    checkpoint->kind == GPT_ACTIVATIONS_RECOMPUTE)
		return r;
	r = open_tensors(checkpoint);
	return r ? gpt_backend_problem(backend, r, problem) : 0;
}

/* Twice is fine. What is with the daemon goes with the session. */
void gpt_checkpoint_deinit(struct gpt_checkpoint *checkpoint)
{
	free(checkpoint->pieces);
	free(checkpoint->puts);
	free(checkpoint->fetches);
	free(checkpoint->slots);
	free(checkpoint->inputs);
	if (checkpoint->arena)
		gpt_arena_free(checkpoint->backend->device, checkpoint->arena);
	*checkpoint = (struct gpt_checkpoint){ 0 };
}

/* ---- places ---- */

/* The input of the block behind @layer; the last one's output. */
static float *output_of(const struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	uint32_t next = layer + 1;

	if (next == checkpoint->model->config.layer_count)
		return checkpoint->stream;
	if (!begins_piece(checkpoint, next))
		return checkpoint->inputs[next % checkpoint->every];
	/* A piece that has no place yet takes a copy. */
	return is_moving(checkpoint) ? checkpoint->stream
	                             : checkpoint->pieces[piece_of(checkpoint, next)];
}

/* Where @layer computes: between enter and leave, recall and drop. */
struct gpt_block_place gpt_checkpoint_place(const struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	bool is_stored = !is_moving(checkpoint) || checkpoint->is_kept;
	struct gpt_block_place place = { 0 };

	if (!checkpoint->every) {
		void *piece = is_stored ? checkpoint->pieces[layer] : checkpoint->scratch;

		assert(piece);
		(void)cut_piece(checkpoint, piece, &place);
	} else {
		place.arrays = checkpoint->slots[layer % checkpoint->every];
		place.input = begins_piece(checkpoint, layer)
		                      ? checkpoint->pieces[piece_of(checkpoint, layer)]
		                      : checkpoint->inputs[layer % checkpoint->every];
	}
	if (!is_stored && begins_piece(checkpoint, layer))
		place.input = checkpoint->stream;
	assert(place.input);
	place.output = output_of(checkpoint, layer);
	return place;
}

/* ---- forward ---- */

static int wait_ticket(struct gpt_checkpoint *checkpoint, zinf_ticket *ticket)
{
	zinf_ticket waited = *ticket;

	*ticket = 0;
	return waited ? checkpoint->backend->ops->tensor_wait(checkpoint->backend, waited) : 0;
}

/* A forward begins. @is_kept: a backward follows. @ret_input: (N, C), where the first block's input
 * is to be written. */
int gpt_checkpoint_begin(struct gpt_checkpoint *checkpoint, bool is_kept, float **ret_input)
{
	const struct gpt_backend_ops *ops = checkpoint->backend->ops;
	int r = 0;

	checkpoint->is_kept = is_kept;
	if (is_moving(checkpoint) && !is_kept && !checkpoint->every)
		r = ops->tensor_alloc(checkpoint->backend, checkpoint->piece_count,
		                      checkpoint->piece_bytes, &checkpoint->scratch);
	if (r)
		return r;
	*ret_input = is_moving(checkpoint) ? checkpoint->stream : checkpoint->pieces[0];
	return 0;
}

/* Before the forward of @layer, whose input was written where its predecessor's place said. */
int gpt_checkpoint_enter(struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	uint32_t piece = piece_of(checkpoint, layer);
	uint64_t begin_ns;
	int r = 0;

	if (checkpoint->every)
		checkpoint->segment = layer / checkpoint->every;
	if (!is_moving(checkpoint) || !checkpoint->is_kept || !begins_piece(checkpoint, layer))
		return 0;
	assert(!checkpoint->pieces[piece]);
	begin_ns = gpt_now_ns();
	if (piece >= PUTS_MAX)
		r = wait_ticket(checkpoint, &checkpoint->puts[piece - PUTS_MAX]);
	if (!r)
		r = checkpoint->backend->ops->tensor_alloc(checkpoint->backend, piece,
		                                           checkpoint->piece_bytes,
		                                           &checkpoint->pieces[piece]);
	if (r)
		return r;
	checkpoint->wait_ns += gpt_now_ns() - begin_ns;
	memcpy(checkpoint->pieces[piece], checkpoint->stream, checkpoint->row_bytes);
	return 0;
}

/* The forward of @layer is over. */
int gpt_checkpoint_leave(struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	uint32_t piece = piece_of(checkpoint, layer);

	if (!is_moving(checkpoint) || !checkpoint->is_kept || !begins_piece(checkpoint, layer))
		return 0;
	checkpoint->pieces[piece] = NULL;
	return checkpoint->backend->ops->tensor_put(
		checkpoint->backend, piece, checkpoint->piece_bytes, &checkpoint->puts[piece]);
}

/* Behind the last block. */
int gpt_checkpoint_end(struct gpt_checkpoint *checkpoint)
{
	if (!checkpoint->scratch)
		return 0;
	checkpoint->scratch = NULL;
	return checkpoint->backend->ops->tensor_free(checkpoint->backend, checkpoint->piece_count);
}

/* ---- backward ---- */

/* Asks for what comes after @piece. */
static int fetch_ahead(struct gpt_checkpoint *checkpoint, uint32_t piece)
{
	int r = 0;

	for (uint32_t back = 1; !r && back <= PIECES_AHEAD && back <= piece; back++) {
		uint32_t ahead = piece - back;

		if (!checkpoint->fetches[ahead])
			r = checkpoint->backend->ops->tensor_prefetch(checkpoint->backend, ahead,
			                                              &checkpoint->fetches[ahead]);
	}
	return r;
}

/* Before the backward of @layer: its piece is there, those of the next ones are on their way. */
int gpt_checkpoint_recall(struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	uint32_t piece = piece_of(checkpoint, layer);
	uint64_t begin_ns = gpt_now_ns();
	int r;

	assert(checkpoint->is_kept);
	if (!is_moving(checkpoint) || checkpoint->pieces[piece])
		return 0;
	r = wait_ticket(checkpoint, &checkpoint->puts[piece]);
	if (!r)
		r = wait_ticket(checkpoint, &checkpoint->fetches[piece]);
	if (!r)
		r = checkpoint->backend->ops->tensor_map(checkpoint->backend, piece,
		                                         &checkpoint->pieces[piece]);
	if (!r)
		r = fetch_ahead(checkpoint, piece);
	checkpoint->wait_ns += gpt_now_ns() - begin_ns;
	return r;
}

/* The backward of @layer is over. */
int gpt_checkpoint_drop(struct gpt_checkpoint *checkpoint, uint32_t layer)
{
	uint32_t piece = piece_of(checkpoint, layer);

	if (!is_moving(checkpoint) || !begins_piece(checkpoint, layer))
		return 0;
	checkpoint->pieces[piece] = NULL;
	return checkpoint->backend->ops->tensor_drop(checkpoint->backend, piece);
}
