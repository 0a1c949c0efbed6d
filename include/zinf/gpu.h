/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file gpu.h
 * Units in the memory of a GPU. Part of zinf.h, which includes it. The daemon owns the memory; the
 * rank maps it, and libzinf copies units between it and CPU memory. State, steps and commits are as
 * without a GPU.
 *
 *     zinf_attach(), zinf_unit_add(), zinf_param_add(), …
 *     zinf_gpu_open()                    before zinf_materialize()
 *     zinf_gpu_apart()                   for units that are in use beside all others
 *     zinf_materialize()
 *     zinf_unshard()                     what the stream is given after this call sees the unit
 *     …                                  kernels read zinf_gpu_param()
 *     zinf_reshard()                     what the stream was given before this call uses the unit
 *     zinf_grad_acquire()
 *     …                                  kernels write zinf_gpu_grad()
 *     zinf_reduce()                      what the stream was given before this call is the gradient
 *     zinf_step()                        waits until all gradients were copied
 *
 * zinf_step() waits for copies, and so do collectives and requests of all ranks, before they wait
 * for other ranks. zinf_unshard() waits for the daemon; with parameters on NVMe also for the last
 * use of the memory that the unit is copied to. zinf_grad_acquire() waits for the copy of the
 * unit's former gradient. With ZINF_ZERO2 and ZINF_ZERO3 zinf_reduce() waits for the copies of
 * earlier gradients and for room in CPU memory, with the errors of zinf_grad_acquire(). Copies from
 * and to CPU memory that is not registered with the driver yet are waited for.
 * zinf_state_read(), zinf_blob_get(), zinf_param_write_begin(), zinf_step_discard(),
 * zinf_grad_norm() and the first zinf_tensor_* call wait for copies that are under way, and
 * zinf_detach() for the copies and the trainer's stream, without a limit. No other call waits for a
 * stream. Every call looks for copies that have ended, and hands their gradients over.
 *
 * libzinf uses the primary context of the device, as PyTorch does; the context that was current
 * before a call is current after it. The CPU addresses (zinf_param_data(), zinf_grad_data()) have
 * no defined values in a rank with a GPU, except between zinf_param_write_begin() and
 * zinf_param_write_end().
 */
#ifndef ZINF_GPU_H
#define ZINF_GPU_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Arguments of zinf_gpu_open(). Initialise with ZINF_GPU_OPTIONS_INIT. */
struct zinf_gpu_options {
	uint32_t bytes;     /**< sizeof(struct zinf_gpu_options) */
	uint32_t reserved0; /**< zero */
	const char *device; /**< UUID: "GPU-…" or "MIG-…". NULL: of the GPUs that the process sees
			      *   (CUDA_VISIBLE_DEVICES) the one with the index $LOCAL_RANK, or the
			      *   only one */
	uint64_t param_budget_bytes; /**< GPU memory for units' parameters; 0: as much as all of
				      *   them need, or what the GPU has room for */
	uint64_t grad_budget_bytes;  /**< GPU memory for units' gradients; 0: two of the largest
				      *   unit; with several micro-batches and
				      *   ZINF_REDUCE_PER_STEP those of all units */
	uint32_t neighbour_count;    /**< units that follow one another in the model and are used at
				      *   one time; 0: 2. Memory for so many is the least budget */
	uint32_t reserved1;          /**< zero */
	void *stream;                /**< CUstream of the trainer's kernels; NULL: the default
				      *   stream. See zinf_gpu_stream() */
	const char *driver;   /**< path of the CUDA driver; NULL: the system's libcuda.so.1 */
	uint64_t reserved[4]; /**< zero */
};

#define ZINF_GPU_OPTIONS_INIT                            \
	{                                                \
		.bytes = sizeof(struct zinf_gpu_options) \
	}

/** Counters of a rank's GPU since zinf_gpu_open(). Times are of the host, in seconds. */
struct zinf_gpu_stats {
	uint32_t bytes;       /**< sizeof(struct zinf_gpu_stats), set by the caller */
	uint32_t chunk_count; /**< of the arena */
	uint64_t chunk_bytes; /**< of each */
	uint64_t param_budget_bytes, grad_budget_bytes; /**< whole chunks */
	uint64_t to_gpu_bytes, from_gpu_bytes;          /**< copied */
	uint64_t to_gpu_count, from_gpu_count;          /**< copies of units */
	uint64_t hit_count;      /**< zinf_unshard() of a unit that lay in GPU memory */
	uint64_t prefetch_count; /**< copies that began before their zinf_unshard() */
	uint64_t pinned_bytes;   /**< CPU memory that is registered with the driver now */
	double unshard_wait_s;   /**< zinf_unshard() waited for the daemon */
	double grad_wait_s;      /**< zinf_grad_acquire() waited for a place or the daemon */
	double step_wait_s;      /**< zinf_step(), and requests between steps, waited for copies */
	uint64_t reserved[4];
};

/**
 * Gives the rank memory of a GPU. Once, before zinf_materialize(), in every rank of the job or in
 * some: a rank without a GPU computes in CPU memory. The memory is made by zinf_materialize(), when
 * the units are known.
 * @options: NULL: ZINF_GPU_OPTIONS_INIT.
 * Return: 0; -ENODEV no driver, no such GPU, or the daemon does not have it; -ENOTSUP the driver is
 * too old, or the GPU cannot export memory; -EOPNOTSUPP an older daemon; -EINVAL options;
 * -EALREADY it was called before. Later zinf_materialize() returns -ENOSPC where a budget is below
 * the least (with figures), and -ENOSPC, -EDQUOT, -ENOMEM where the GPU has no room.
 */
ZINF_API int zinf_gpu_open(struct zinf *zinf, const struct zinf_gpu_options *options);

/** The unit is in use beside all others, as norms around the blocks of a model are: in every budget
 * its parameters and gradients have memory that no other unit shares. In the rank that calls this,
 * between zinf_unit_add() and zinf_materialize(). Return: 0; -EINVAL no such unit, or
 * zinf_materialize() was called. A rank without a GPU: nothing happens. */
ZINF_API int zinf_gpu_apart(struct zinf *zinf, uint32_t unit);

/** Device address (CUdeviceptr) of a parameter, fixed until zinf_detach(); param_dtype, row-major.
 * 0: no such parameter, or no GPU. Read only: what a kernel writes there is lost, and may be seen
 * by this rank. */
ZINF_API uint64_t zinf_gpu_param(const struct zinf *zinf, uint32_t param);

/** Device address of this rank's gradient of a parameter (grad_dtype), fixed until zinf_detach(),
 * to be written between zinf_grad_acquire() and zinf_reduce() of its unit. 0: none. */
ZINF_API uint64_t zinf_gpu_grad(const struct zinf *zinf, uint32_t param);

/** From now on the calls above are about @stream (a CUstream of the device's primary context; NULL:
 * the default stream). Work on the former stream that uses units is ordered before work on the new
 * one. Return: 0; -EINVAL no GPU, or a stream of another context. */
ZINF_API int zinf_gpu_stream(struct zinf *zinf, void *stream);

/** @ret_stats: `bytes` set by the caller. Return: 0; -EINVAL no GPU. */
ZINF_API int zinf_gpu_stats(const struct zinf *zinf, struct zinf_gpu_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
