/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where parameters and gradients live and who runs the optimizer. Two answers: zinf_backend.c (one
 * rank per process, everything in the daemon) and reference_backend.c (all ranks in one process,
 * plain loops, no zinf). The model and the training loop are the same code above both, so that the
 * two can be compared bit by bit.
 *
 * A *lane* is a rank that this process computes for: one with zinf, all of them in the reference.
 * Functions mean what the functions of zinf/zinf.h of the same name mean, and return 0 or a
 * negative errno.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "examples/gpt/device.h"
#include "examples/gpt/model.h"
#include "zinf/zinf.h"

struct gpt_args;
struct gpt_backend;
struct gpt_staged;

/* What an optimizer keeps beside a parameter's own bits, as an export has it. */
enum gpt_state { GPT_STATE_MASTER, GPT_STATE_EXP_AVG, GPT_STATE_EXP_AVG_SQ, _GPT_STATE_COUNT };

struct gpt_backend_ops {
	int (*unshard)(struct gpt_backend *backend, uint32_t unit);
	int (*reshard)(struct gpt_backend *backend, uint32_t unit);
	int (*prefetch)(struct gpt_backend *backend, uint32_t unit);
	const void *(*param)(const struct gpt_backend *backend, uint32_t param);
	/* As param() and grad(), in the memory of backend->device. NULL where there is none. */
	const void *(*gpu_param)(const struct gpt_backend *backend, uint32_t param);
	void *(*gpu_grad)(const struct gpt_backend *backend, uint32_t lane, uint32_t param);

	int (*grad_acquire)(struct gpt_backend *backend, uint32_t lane, uint32_t unit);
	void *(*grad)(const struct gpt_backend *backend, uint32_t lane, uint32_t param);
	int (*reduce)(struct gpt_backend *backend, uint32_t lane, uint32_t unit);
	/* zinf_no_sync_begin(), or its end; NULL: reduce() is for what is complete alone. */
	int (*no_sync)(struct gpt_backend *backend, bool is_begin);

	/* Copies it; false: there is none. NULL: the daemon has it (zctl export). */
	bool (*state)(const struct gpt_backend *backend, uint32_t param, enum gpt_state what,
	              float *values);

	/* First values: begin makes param() writable in the process that calls it, rank 0's. */
	int (*write_begin)(struct gpt_backend *backend, uint32_t unit);
	int (*write_end)(struct gpt_backend *backend, uint32_t unit);
	int (*commit)(struct gpt_backend *backend, const void *blob, size_t blob_bytes);
	int64_t (*committed_step)(const struct gpt_backend *backend);
	int64_t (*lost_step)(const struct gpt_backend *backend);
	int64_t (*update_count)(const struct gpt_backend *backend);
	int (*loss_scale)(struct gpt_backend *backend, double *ret_scale);
	int (*blob_get)(struct gpt_backend *backend, void *blob, size_t blob_bytes,
	                size_t *ret_bytes);

	/* One step is under way at a time: step() starts its end, wait() waits for that. */
	int (*step_begin)(struct gpt_backend *backend, const struct zinf_step_options *options);
	int (*step)(struct gpt_backend *backend, const void *blob, size_t blob_bytes);
	int (*wait)(struct gpt_backend *backend, struct zinf_step_stats *ret_stats);
	/* zinf_join(): the lane's data are at their end, and averages leave it out. With zinf it
	 * takes part in what steps the others have left. */
	int (*join)(struct gpt_backend *backend, uint32_t lane);
	int (*barrier)(struct gpt_backend *backend);
	/* @values: (world_count,); each rank has written its own, and has everybody's then. */
	int (*gather)(struct gpt_backend *backend, double *values);

	/* Tensors of this process (zinf/tensor.h); NULL where there is no daemon to keep them. map
	 * waits; drop unmaps and forgets. */
	int (*tensor_open)(struct gpt_backend *backend, uint64_t budget_bytes);
	int (*tensor_alloc)(struct gpt_backend *backend, uint64_t id, size_t bytes,
	                    void **ret_place);
	int (*tensor_put)(struct gpt_backend *backend, uint64_t id, size_t bytes,
	                  zinf_ticket *ret_ticket);
	int (*tensor_prefetch)(struct gpt_backend *backend, uint64_t id, zinf_ticket *ret_ticket);
	int (*tensor_wait)(struct gpt_backend *backend, zinf_ticket ticket);
	int (*tensor_map)(struct gpt_backend *backend, uint64_t id, void **ret_place);
	int (*tensor_drop)(struct gpt_backend *backend, uint64_t id);
	int (*tensor_free)(struct gpt_backend *backend, uint64_t id);

	const char *(*error_text)(const struct gpt_backend *backend);
	void (*close)(struct gpt_backend *backend);
	/* close(), and the job is deleted once its other ranks have left. On failure nothing is
	 * closed; -EBUSY: they have not yet. */
	int (*destroy)(struct gpt_backend *backend);
};

struct gpt_backend {
	const struct gpt_backend_ops *ops;
	int32_t rank_first;  /* rank of lane 0 */
	uint32_t lane_count; /* ranks of this process */
	uint32_t world_count;
	/* The GPU that computes; NULL: the CPU does. Then units are used where gpu_param() and
	 * gpu_grad() say; param() holds only between write_begin() and write_end(). */
	struct gpt_device *device;
	struct gpt_staged *staged; /* staged.h */
};

/* Where layers read a parameter of an open unit, and write its gradient. */
static inline const void *gpt_backend_param(const struct gpt_backend *backend, uint32_t param)
{
	return backend->device ? backend->ops->gpu_param(backend, param)
	                       : backend->ops->param(backend, param);
}

static inline void *gpt_backend_grad(const struct gpt_backend *backend, uint32_t lane,
                                     uint32_t param)
{
	return backend->device ? backend->ops->gpu_grad(backend, lane, param)
	                       : backend->ops->grad(backend, lane, param);
}

/* The errno of a backend, or of its GPU, with its sentence. Return: @r. */
static inline int gpt_backend_problem(const struct gpt_backend *backend, int r,
                                      struct gpt_problem *problem)
{
	if (backend->device && gpt_device_error(backend->device))
		return gpt_problem_set(problem, r, "%s", gpt_device_error_text(backend->device));
	return gpt_problem_set(problem, r, "%s", backend->ops->error_text(backend));
}

struct gpt_backend *gpt_reference_open(const struct gpt_args *args, const struct gpt_model *model,
                                       struct gpt_problem *problem);
int gpt_zinf_open(struct gpt_args *args, const struct gpt_model *model, struct gpt_device *device,
                  struct gpt_problem *problem, struct gpt_backend **ret_backend);
