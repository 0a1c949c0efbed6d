/* SPDX-License-Identifier: Apache-2.0 */
/* Units in GPU memory that zinfd owns (zinf/gpu.h): all that a trainer adds to its calls of libzinf
 * for a GPU. */
#pragma once

#include "examples/gpt/args.h"
#include "examples/gpt/device.h"
#include "examples/gpt/problem.h"

/* Before zinf_materialize(). From then on units are used on the device's stream. Return: 0, or the
 * errno of zinf_gpu_open() with its sentence. */
int gpt_gpu_attach(struct zinf *zinf, const struct gpt_args *args, const struct gpt_device *device,
                   struct gpt_problem *problem);
/* Where a parameter of an open unit lies, and where its gradient goes. */
const void *gpt_gpu_param(const struct zinf *zinf, uint32_t param);
void *gpt_gpu_grad(const struct zinf *zinf, uint32_t param);
