/* SPDX-License-Identifier: Apache-2.0 */
/* See gpu_backend.h. */
#include "examples/gpt/gpu_backend.h"

#include "zinf/gpu.h"

int gpt_gpu_attach(struct zinf *zinf, const struct gpt_args *args, const struct gpt_device *device,
                   struct gpt_problem *problem)
{
	struct zinf_gpu_options options = ZINF_GPU_OPTIONS_INIT;
	int r;

	options.device = gpt_device_uuid(device);
	options.param_budget_bytes = args->gpu_param_budget_bytes;
	options.grad_budget_bytes = args->gpu_grad_budget_bytes;
	options.stream = gpt_device_stream(device);
	options.driver = args->gpu_driver;
	r = zinf_gpu_open(zinf, &options);
	return r ? gpt_problem_set(problem, r, "%s", zinf_error_text(zinf)) : 0;
}

const void *gpt_gpu_param(const struct zinf *zinf, uint32_t param)
{
	return (const void *)zinf_gpu_param(zinf, param);
}

void *gpt_gpu_grad(const struct zinf *zinf, uint32_t param)
{
	return (void *)zinf_gpu_grad(zinf, param);
}
