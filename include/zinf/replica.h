/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file replica.h
 * Data parallelism in one process, as torch's DataParallel: one thread for each replica, a batch
 * that is scattered over them, and outputs that are gathered in the caller's memory. Part of
 * zinf.h, which includes it.
 *
 * Each replica is a rank of the job, with its own handle and its own gradients. The daemon has one
 * copy of the parameters, so nothing is copied first. A step gives the bits of every other
 * strategy. In DataParallel each replica divides its loss by the rows of the whole batch, and
 * gradients are summed: set `sum` of the step. If each replica takes the mean of its own rows, the
 * default average gives the same for chunks of equal length.
 */
#ifndef ZINF_REPLICA_H
#define ZINF_REPLICA_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Ranks of a job in this process. */
struct zinf_replicas;

/**
 * Attaches @count ranks, 0 to @count - 1: the whole job.
 * @options: as for zinf_attach(); strategy, rank and world_size are set here. @ret_replicas: owned
 * by the caller, who ends them with zinf_replicas_detach().
 * Return: 0; -EINVAL @count is 0 or above ZINF_WORLD_MAX; errors of zinf_attach(). After an error
 * no replica is attached, and zinf_attach_error() has the text.
 */
ZINF_API int zinf_replicas_attach(const struct zinf_options *options, uint32_t count,
                                  struct zinf_replicas **ret_replicas);

/** The handle of one replica, owned by @replicas: never detach it by itself. One thread at a time
 * uses it; during zinf_replicas_run() only the replica's thread. @replica: below the count. */
ZINF_API struct zinf *zinf_replicas_get(const struct zinf_replicas *replicas, uint32_t replica);

/** The work of one replica. Return: 0, or a negative errno of libzinf or of the caller. */
typedef int (*zinf_replica_fn)(struct zinf *zinf, uint32_t replica, void *arg);

/**
 * Calls @run for each replica in its own thread, and returns when all have returned. The session of
 * a replica that fails ends, so that no other replica waits for it: their calls return -EPIPE.
 * Return: 0; or the error of the replica that failed first: zinf_replicas_error() says which one
 * and why. After an error only zinf_replicas_detach() is allowed.
 */
ZINF_API int zinf_replicas_run(struct zinf_replicas *replicas, zinf_replica_fn run, void *arg);

/** Text of the last zinf_replicas_run(): "replica 2: …"; "" if it succeeded; never NULL. */
ZINF_API const char *zinf_replicas_error(const struct zinf_replicas *replicas);

/** Detaches all replicas and frees @replicas, which may be NULL. */
ZINF_API void zinf_replicas_detach(struct zinf_replicas *replicas);

/**
 * Computes the rows of a batch for one replica, as torch's chunk(): runs of equal length, the last
 * one shorter. In a small batch the last replicas have no rows, and hand over a gradient of zeros.
 * Outputs are gathered by the same ranges.
 * @rows: rows of the batch. @count: number of replicas, at least 1. @replica: below @count.
 * @ret_first, @ret_count: first row and number of rows; without rows @ret_first is @rows.
 */
ZINF_API void zinf_scatter(uint64_t rows, uint32_t count, uint32_t replica, uint64_t *ret_first,
                           uint64_t *ret_count);

#ifdef __cplusplus
}
#endif

#endif
