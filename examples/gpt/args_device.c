/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the GPU, and the GPU that they mean. */
#include "examples/gpt/args_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/args_option.h"
#include "examples/gpt/gpu/image.h"
#include "examples/gpt/number.h"

static const struct gpt_option device[] = {
	GPT_TEXT("device", device,
	         "NAME    cpu, gpu (the one with the number $LOCAL_RANK, or the rank's), or a UUID "
	         "of nvidia-smi -L (cpu)"),
	GPT_NUMBER(
		"gpu-param-budget", GPT_OPTION_BYTES, gpu_param_budget_bytes, 0, 1e18,
		"SIZE  GPU memory for parameters; 0: all of them, or what there is room for (0)"),
	GPT_NUMBER("gpu-grad-budget", GPT_OPTION_BYTES, gpu_grad_budget_bytes, 0, 1e18,
	           "SIZE   GPU memory for gradients; 0: what the run needs (0)"),
	GPT_TEXT("gpu-driver", gpu_driver, "PATH    the CUDA driver (the system's libcuda.so.1)"),
	GPT_TEXT("cublas", cublas, "PATH    NVIDIA's library of matrix products (libcublas.so)"),
};
const struct gpt_option_table gpt_options_device = GPT_OPTION_TABLE("Device", device);

static bool is_uuid(const char *name)
{
	return !strncmp(name, "GPU-", 4) || !strncmp(name, "MIG-", 4);
}

int gpt_device_check(struct gpt_args *args, struct gpt_problem *problem)
{
	const char *name = args->device ? args->device : "cpu";

	args->gpu_uuid = is_uuid(name) ? name : NULL;
	args->is_gpu = args->gpu_uuid || !strcmp(name, "gpu");
	if (!args->is_gpu && strcmp(name, "cpu") != 0)
		return gpt_problem_set(problem, -EINVAL,
		                       "--device %s: allowed are cpu, gpu, or the UUID of a GPU "
		                       "(GPU-… or MIG-…; nvidia-smi -L lists them)",
		                       name);
	if (!args->is_gpu && (args->gpu_param_budget_bytes || args->gpu_grad_budget_bytes ||
	                      args->gpu_driver || args->cublas))
		return gpt_problem_set(problem, -EINVAL,
		                       "--gpu-param-budget, --gpu-grad-budget, --gpu-driver and "
		                       "--cublas need --device gpu");
	if (args->is_gpu && args->is_fp16)
		return gpt_problem_set(problem, -EINVAL,
		                       "--device %s computes in f32 or bf16: give --bf16 instead "
		                       "of --fp16",
		                       name);
	if (args->is_gpu && args->activations >= GPT_ACTIVATIONS_CPU)
		return gpt_problem_set(problem, -EINVAL,
		                       "--device %s has its activations in GPU memory: give "
		                       "--activations keep or recompute",
		                       name);
	return 0;
}

/* Of the GPUs that the process sees. Launchers number the ranks of a node. */
static uint32_t index_of(const struct gpt_args *args)
{
	static const char *const names[] = { "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
		                             "SLURM_LOCALID" };
	uint64_t index = 0;

	for (size_t i = 0; args->is_launched && i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = getenv(names[i]);

		if (text && !gpt_parse_u64(text, &index) && index < ZINF_WORLD_MAX)
			return (uint32_t)index;
	}
	return args->rank > 0 ? (uint32_t)args->rank : 0;
}

int gpt_device_of(const struct gpt_args *args, struct gpt_problem *problem,
                  struct gpt_device **ret_device)
{
	const struct gpt_device_options options = {
		.uuid = args->gpu_uuid,
		.index = index_of(args),
		.driver = args->gpu_driver,
		.cublas = args->cublas,
		.image = gpt_gpu_image(),
	};

	*ret_device = NULL;
	return args->is_gpu ? gpt_device_open(&options, problem, ret_device) : 0;
}
