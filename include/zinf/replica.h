/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file replica.h
 * Data parallelism in one process, as torch's DataParallel: a thread for each replica, a batch that
 * is scattered over them, outputs that are gathered in the caller's memory. Part of zinf.h, which
 * includes it.
 *
 * Each replica is a rank of the job, with a handle of its own and gradients of its own; parameters
 * are there once, in the daemon. So nothing is copied to begin with, and a step does to the bits
 * what it does under any other strategy. DataParallel sums what replicas give, as each divides its
 * loss by the rows of the whole batch: `sum` of a step does the same. Where each replica takes the
 * mean of its own rows, the default average is the same for chunks of equal length.
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
 * @options: as zinf_attach() takes them; strategy becomes ZINF_DP; rank, world_size are set here
 * Return: 0; -EINVAL @count is 0 or above ZINF_WORLD_MAX; errors of zinf_attach(). No replica is
 * left attached then, and zinf_attach_error() has the text.
 */
ZINF_API int zinf_replicas_attach(const struct zinf_options *options, uint32_t count,
                                  struct zinf_replicas **ret_replicas);

/** The handle of one, to be used by one thread at a time: by zinf_replicas_run()'s while that
 * runs. Not to be detached by itself. @replica: below the count. */
ZINF_API struct zinf *zinf_replicas_get(const struct zinf_replicas *replicas, uint32_t replica);

/** One replica's part. Return: 0, or a negative errno, of libzinf or the caller's own. */
typedef int (*zinf_replica_fn)(struct zinf *zinf, uint32_t replica, void *arg);

/**
 * Calls @run for each replica, each in a thread of its own, and returns when all have. When one
 * fails its session is ended, so that no other waits for it: their calls return -EPIPE.
 * Return: 0; the error of the replica that failed first: zinf_replicas_error() says which one and
 * why. After an error the replicas are good for zinf_replicas_detach() alone.
 */
ZINF_API int zinf_replicas_run(struct zinf_replicas *replicas, zinf_replica_fn run, void *arg);

/** Why the newest zinf_replicas_run() failed: "replica 2: …". "" when it did not; never NULL. */
ZINF_API const char *zinf_replicas_error(const struct zinf_replicas *replicas);

/** All leave, as by zinf_detach(). NULL is fine. */
ZINF_API void zinf_replicas_detach(struct zinf_replicas *replicas);

/**
 * The rows of a batch that one replica takes, as torch's chunk(): runs of equal length, the last
 * one shorter; of a small batch the last replicas have none, and hand over a gradient of zeros.
 * Outputs are gathered by the same ranges.
 * @rows: of the batch. @count: of replicas, at least 1. @replica: below @count.
 * @ret_first, @ret_count: the rows; @ret_first is @rows where there are none.
 */
ZINF_API void zinf_scatter(uint64_t rows, uint32_t count, uint32_t replica, uint64_t *ret_first,
                           uint64_t *ret_count);

#ifdef __cplusplus
}
#endif

#endif
