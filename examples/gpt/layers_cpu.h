/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers on the CPU, which a team computes (team.h). Arrays are as in struct gpt_layers_ops.
 */
#pragma once

#include "examples/gpt/layers.h"
#include "examples/gpt/team.h"

struct gpt_args;
struct gpt_config;

/* With threads and scratch for the products of the model. Return: NULL: no memory. */
struct gpt_layers *gpt_layers_cpu_new(const struct gpt_args *args, const struct gpt_config *config);

/* linear.c */
void gpt_linear_forward(struct gpt_team *team, const struct gpt_linear *linear, const float *in,
                        const void *weight, const float *bias, float *ret_out);
void gpt_linear_backward(struct gpt_team *team, const struct gpt_linear *linear, const float *in,
                         const void *weight, const float *dout,
                         const struct gpt_linear_grads *grads);

/* layernorm.c */
void gpt_layernorm_forward(struct gpt_team *team, const struct gpt_layernorm *norm, float *ret_out);
void gpt_layernorm_backward(struct gpt_team *team, const struct gpt_layernorm *norm,
                            const float *dout, bool keep, float *din, float *dweight, float *dbias);

/* gelu.c */
void gpt_gelu_forward(struct gpt_team *team, uint64_t count, const float *in, float *ret_out);
void gpt_gelu_backward(struct gpt_team *team, uint64_t count, const float *in, const float *dout,
                       float *ret_din);

/* attention.c */
void gpt_attention_forward(struct gpt_team *team, const struct gpt_attention_shape *shape,
                           const float *qkv, float *ret_att, float *ret_out);
void gpt_attention_backward(struct gpt_team *team, const struct gpt_attention_shape *shape,
                            const float *qkv, const float *att, const float *dout, float *ret_dqkv);

/* embedding.c */
void gpt_embedding_forward(const struct gpt_embedding *embedding, float *ret_out);
void gpt_embedding_backward(const struct gpt_embedding *embedding, const float *dout, bool keep_wte,
                            bool keep_wpe, float *dwte, float *dwpe);

/* loss.c */
double gpt_loss_forward(uint64_t rows, uint64_t classes, const uint8_t *targets, float *logits);
void gpt_loss_backward(uint64_t rows, uint64_t classes, const uint8_t *targets, float scale,
                       float *probabilities);

/* linear.c */
void gpt_add(struct gpt_team *team, uint64_t count, const float *x, const float *y, float *ret_out);

/* convert.c: f32 to and from the 16-bit types */
void gpt_widen(uint64_t count, const uint16_t *source, enum zinf_dtype dtype, float *target);
void gpt_narrow(uint64_t count, const float *source, enum zinf_dtype dtype, bool keep,
                uint16_t *target);
