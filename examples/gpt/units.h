/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model's code sees of a unit: matrices as they lie in the backend's memory (the daemon's:
 * nothing is copied), in the type of the training, and vectors in f32. With 16 bits the vectors are
 * widened into a scratch while the unit is in use. Gradients of a block's matrices are written to
 * the backend's buffer by the product itself; those of vectors, and of the embeddings, which have
 * two sources, are computed in f32 in a scratch and rounded into the buffer behind that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/backend.h"
#include "examples/gpt/layers.h"
#include "examples/gpt/model.h"

/* Which micro-batch of which lane is computed. */
struct gpt_units_place {
	uint32_t lane;
	uint32_t micro_index;
	uint32_t micro_count;
};

/* Parameters of an open unit, by index in the unit: matrices of the training's type, vectors in
 * f32. */
struct gpt_unit_params {
	const void *at[GPT_UNIT_PARAMS_MAX];
	enum zinf_dtype dtype;
};

/* Where gradients of a unit go. Keep: they are added to what is there. */
struct gpt_unit_grads {
	void *at[GPT_UNIT_PARAMS_MAX];
	enum zinf_dtype matrix_dtype;
	bool keeps_matrices, keeps_vectors;
};

struct gpt_units {
	const struct gpt_model *model;
	struct gpt_backend *backend;
	struct gpt_layers *layers; /* on the CPU, or on the backend's GPU */
	enum zinf_dtype param_dtype, grad_dtype;
	double loss_scale; /* of this step; the caller sets it before backward */
	bool has_no_sync;  /* each micro-batch is handed over, though it may not be taken yet */
	bool is_sharded;   /* ZINF_REDUCE_PER_MICRO_BATCH */
	struct gpt_units_place place;
	/* Of 16-bit types, else NULL; where the layers compute: */
	float *widened;     /* vectors of the unit in use */
	float *embed_grads; /* gradients of the embeddings, in use all through backward; on a GPU
	                     * also of f32 */
	float *other_grads; /* of vectors of the other unit in use */
	uint64_t wait_ns;   /* spent in unshard and grad_acquire; the caller resets it */
};

int gpt_units_init(struct gpt_units *units, const struct gpt_args *args,
                   const struct gpt_model *model, struct gpt_backend *backend);
void gpt_units_deinit(struct gpt_units *units);

int gpt_units_open(struct gpt_units *units, uint32_t unit, struct gpt_unit_params *ret_params);
int gpt_units_shut(struct gpt_units *units, uint32_t unit);
int gpt_units_grads_begin(struct gpt_units *units, uint32_t unit, struct gpt_unit_grads *ret_grads);
int gpt_units_grads_end(struct gpt_units *units, uint32_t unit);
