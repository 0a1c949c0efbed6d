/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU over a backend that knows only CPU memory (--reference): units are copied to the GPU when
 * they are opened, and gradients back when they are handed over. All parameters and gradients lie
 * on the GPU as well. Meant for comparing a GPU's arithmetic with the CPU's, not for speed.
 */
#pragma once

#include "examples/gpt/backend.h"

struct gpt_args;

/* @backend: computes on @device from now on; its close() ends it. @model, @device: outlive it.
 * Return: 0; -ENOMEM with the reason; the backend is as before then. */
int gpt_staged_wrap(struct gpt_backend *backend, const struct gpt_args *args,
                    const struct gpt_model *model, struct gpt_device *device,
                    struct gpt_problem *problem);
