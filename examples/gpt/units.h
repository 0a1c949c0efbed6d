/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model's code sees of a unit: f32 arrays. With f32 training these are the backend's own
 * memory (the daemon's: nothing is copied); with 16 bits a unit is widened into a scratch while it
 * is in use, and its gradients are computed in a scratch and rounded into the backend's buffer.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "examples/gpt/backend.h"
#include "examples/gpt/model.h"

/* Which micro-batch of which lane is computed. */
struct gpt_units_place {
	uint32_t lane;
	uint32_t micro_index;
	uint32_t micro_count;
};

struct gpt_units {
	const struct gpt_model *model;
	struct gpt_backend *backend;
	enum zinf_dtype param_dtype, grad_dtype;
	double loss_scale; /* of this step; the caller sets it before backward */
	bool has_no_sync;  /* each micro-batch is handed over, though it may not be taken yet */
	bool is_sharded;   /* ZINF_REDUCE_PER_MICRO_BATCH */
	struct gpt_units_place place;
	/* Of 16-bit types, else NULL: */
	float *widened;     /* parameters of the unit in use */
	float *embed_grads; /* gradients of the embeddings, in use all through backward */
	float *other_grads; /* of the other unit in use */
	uint64_t wait_ns;   /* spent in unshard and grad_acquire; the caller resets it */
};

int gpt_units_init(struct gpt_units *units, const struct gpt_args *args,
                   const struct gpt_model *model, struct gpt_backend *backend);
void gpt_units_deinit(struct gpt_units *units);

int gpt_units_open(struct gpt_units *units, uint32_t unit,
                   const float *ret_params[static GPT_UNIT_PARAMS_MAX]);
int gpt_units_shut(struct gpt_units *units, uint32_t unit);
int gpt_units_grads_begin(struct gpt_units *units, uint32_t unit,
                          float *ret_grads[static GPT_UNIT_PARAMS_MAX], bool *ret_keep);
int gpt_units_grads_end(struct gpt_units *units, uint32_t unit);
