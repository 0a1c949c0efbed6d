/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's GPU, as the rest of libclient sees it. Every function here is for a rank that called
 * zinf_gpu_open(), unless it says otherwise; a rank without a GPU tests `zinf->gpu` and goes its
 * own way. Floor 2; the thread that uses the struct zinf.
 *
 *   open.c     the driver, the device; what include/zinf/gpu.h asks. start.c: the rest of life
 *   rank.h     struct zi_client_gpu, and what the files below share
 *   context.c  the driver's context, waits, looks for copies that have ended
 *   budget.c   how many chunks of which size: pure
 *   map.c      chunks received from the daemon, and mapped
 *   pin.c      CPU memory registered with the driver, on a thread
 *   lane.c     a stream of copies between CPU memory and the GPU
 *   way.c      a unit's way from the daemon to the GPU
 *   copies.c   parameters: unshard, reshard, prefetch
 *   grads.c    gradients: acquire, reduce
 *
 * Failures have their text in the struct zinf, as everywhere in libclient.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct zinf;

/* ---- life ---- */

/* Before MATERIALIZE: budgets are chosen, the daemon makes the memory, units are mapped. Twice is
 * once; a failure after the memory was made is final. Return: 0; -ENOSPC, -EDQUOT, -ENOMEM no
 * room; -EINVAL; an errno of the driver. */
int zi_client_gpu_arrange(struct zinf *zinf);
/* After MATERIALIZED: streams, events, and CPU memory to copy from and to. A failure is final. */
int zi_client_gpu_start(struct zinf *zinf);
/* Whether zinf_materialize() may go on. Return: 0; -ENOTRECOVERABLE after a failure that is final.
 */
int zi_client_gpu_check(struct zinf *zinf);
/* Waits for copies and for the trainer's stream, and undoes everything. Accepts a rank without a
 * GPU. Before the model's memory is unmapped. */
void zi_client_gpu_free(struct zinf *zinf);

/* ---- copies that have ended ---- */

/* Looks for them: units go back to the daemon, gradients are handed over. Never waits for the GPU.
 * Return: 0; an errno of the driver; how the session ended. */
int zi_client_gpu_look(struct zinf *zinf);
/* Whether a look may find something later: who sleeps looks now and then. */
bool zi_client_gpu_is_busy(const struct zinf *zinf);
/* Until no copy is under way, and the daemon has all units and gradients. Return: 0; -EINTR;
 * -ETIMEDOUT; an errno of the driver; how the session ended. */
int zi_client_gpu_settle(struct zinf *zinf);
/* As above, of gradients only. */
int zi_client_gpu_settle_grads(struct zinf *zinf);
/* Before a wait for other ranks that looks for no copies: they may need the gradients, and with a
 * pool its memory. As zi_client_gpu_settle(). */
int zi_client_gpu_settle_shared(struct zinf *zinf);

/* ---- parameters ---- */

/* The first use of a unit begins: what the trainer's stream is given from now on sees the unit.
 * Return: 0; -EBUSY: its place is taken by a unit in use; as zinf_unshard(); an errno of the
 * driver. After a failure no use has begun. */
int zi_client_gpu_unshard(struct zinf *zinf, uint32_t unit);
/* The last use of a unit ends behind what the trainer's stream was given. */
int zi_client_gpu_reshard(struct zinf *zinf, uint32_t unit);
/* Whether the unit is on the GPU, or on its way. */
bool zi_client_gpu_has(const struct zinf *zinf, uint32_t unit);
/* The unit has new values: it is not on the GPU any more. It is not in use. */
void zi_client_gpu_void(struct zinf *zinf, uint32_t unit);
/* The rank has ended its step: all units that train have new values. None is in use. */
void zi_client_gpu_step(struct zinf *zinf);
/* The step was discarded: values are as before. */
void zi_client_gpu_discard(struct zinf *zinf);

/* ---- gradients ---- */

/* As zi_client_grad_acquire(), and what the trainer's stream is given from now on may write the
 * gradient in GPU memory. With buckets the bucket comes later. -EBUSY: its place is taken by a unit
 * that was acquired. */
int zi_client_gpu_acquire(struct zinf *zinf, uint32_t unit);
/* Whether the trainer has the unit's gradient in GPU memory. Of a rank without a GPU: false. */
bool zi_client_gpu_has_grad(const struct zinf *zinf, uint32_t unit);
/* The gradient has a place in CPU memory: a bucket is waited for. Before the next. May be repeated.
 */
int zi_client_gpu_place_grad(struct zinf *zinf, uint32_t unit);
/* What the trainer's stream was given is the gradient: it is copied, and handed over by a later
 * look. After a failure the trainer has it still. */
int zi_client_gpu_reduce(struct zinf *zinf, uint32_t unit);
/* The trainer gives the unit's gradient up. Of a rank without a GPU: nothing happens. */
void zi_client_gpu_drop(struct zinf *zinf, uint32_t unit);
/* 0; -ENOSPC: gradients of all units do not fit into GPU memory at one time, so nothing can be
 * added up over micro-batches. */
int zi_client_gpu_check_no_sync(struct zinf *zinf);
