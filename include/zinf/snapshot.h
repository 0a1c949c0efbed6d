/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file snapshot.h
 * Snapshots: committed steps that the daemon keeps. Part of zinf.h, which includes it. zinf_load()
 * begins a job with a snapshot; zctl lists, restores and exports snapshots. Also: which step a job
 * lost with the daemon.
 */
#ifndef ZINF_SNAPSHOT_H
#define ZINF_SNAPSHOT_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Options of a snapshot. */
struct zinf_snapshot_options {
	uint32_t bytes;       /**< sizeof(struct zinf_snapshot_options) */
	uint32_t keep_count;  /**< N > 0: an automatic snapshot; the newest N automatic snapshots of
			      *   the job stay, older ones are removed */
	const char *name;     /**< unique in the job; NULL: "step-N" */
	uint32_t reserved[8]; /**< zero */
};

#define ZINF_SNAPSHOT_OPTIONS_INIT                            \
	{                                                     \
		.bytes = sizeof(struct zinf_snapshot_options) \
	}

/**
 * Keeps the job's committed step. One rank calls it, at any time after zinf_materialize(). State on
 * NVMe is not copied. State that is only in memory (offload none or cpu) is written to NVMe once,
 * and updates wait for it. Over several nodes all nodes keep their part, or none does.
 * A snapshot belongs to the job's uid, counts against its NVMe quota, and outlives the job.
 * @options: NULL means ZINF_SNAPSHOT_OPTIONS_INIT. @ret_step: the kept step; may be NULL.
 * Return: 0; -EEXIST the name is taken; -ENODATA nothing was committed; -EDQUOT, -ENOSPC with
 * figures; -EBUSY parameters were written and not committed; -EOPNOTSUPP state in memory and no
 * store, or an older daemon.
 */
ZINF_API int zinf_snapshot(struct zinf *zinf, const struct zinf_snapshot_options *options,
                           int64_t *ret_step);

/** The step at which the job stood when the end of zinfd lost its state in memory; -1: nothing was
 * lost, or an older daemon. Known from zinf_attach() on. Such a job starts at step 0, or with the
 * snapshot of zinf_load(); zinf_committed_step() says which. offload_optimizer NVME keeps state.
 * Once the job has started again, later attaches get -1. */
ZINF_API int64_t zinf_lost_step(const struct zinf *zinf);

#ifdef __cplusplus
}
#endif

#endif
