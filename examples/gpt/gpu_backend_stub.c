/* SPDX-License-Identifier: Apache-2.0 */
/* In place of gpu_backend.c where libzinf has no units in GPU memory. */
#include <errno.h>
#include <stddef.h>

#include "examples/gpt/gpu_backend.h"

int gpt_gpu_attach(struct zinf *zinf, const struct gpt_args *args, const struct gpt_device *device,
                   struct gpt_problem *problem)
{
	(void)zinf;
	(void)args;
	return gpt_problem_set(problem, -EOPNOTSUPP,
	                       "--device gpu: this libzinf has no units in GPU memory (%s); "
	                       "--reference computes on the GPU without zinfd",
	                       gpt_device_uuid(device));
}

const void *gpt_gpu_param(const struct zinf *zinf, uint32_t param)
{
	(void)zinf;
	(void)param;
	return NULL;
}

void *gpt_gpu_grad(const struct zinf *zinf, uint32_t param)
{
	(void)zinf;
	(void)param;
	return NULL;
}
