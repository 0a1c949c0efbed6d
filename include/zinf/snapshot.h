/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file snapshot.h
 * Committed steps that are kept. Part of zinf.h, which includes it; zinf_load() begins a job with
 * one, and zctl lists, restores and exports them.
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

/** How a snapshot is kept. */
struct zinf_snapshot_options {
	uint32_t bytes;      /**< sizeof(struct zinf_snapshot_options) */
	uint32_t keep_count; /**< more than 0: an automatic one, the newest so many of the job stay,
			      *   older automatic ones are removed */
	const char *name;    /**< unique in the job; NULL: "step-N" */
	uint32_t reserved[8]; /**< zero */
};

#define ZINF_SNAPSHOT_OPTIONS_INIT                            \
	{                                                     \
		.bytes = sizeof(struct zinf_snapshot_options) \
	}

/**
 * Keeps the job's committed step: by one rank, at any time after zinf_materialize(). Nothing is
 * copied, but for state that lives in memory alone (offload none or cpu): it is written to NVMe
 * once, and updates wait for it.
 * Of a job over several nodes all of them keep their part, or none does.
 * A snapshot belongs to the job's uid, counts against its NVMe quota, and outlives the job.
 * @options: NULL is ZINF_SNAPSHOT_OPTIONS_INIT. @ret_step: that is kept; may be NULL.
 * Return: 0; -EEXIST the name is taken; -ENODATA nothing was committed; -EDQUOT, -ENOSPC with
 * figures; -EBUSY parameters were written and not committed; -EOPNOTSUPP state in memory and no
 * store, or an older daemon.
 */
ZINF_API int zinf_snapshot(struct zinf *zinf, const struct zinf_snapshot_options *options,
                           int64_t *ret_step);

#ifdef __cplusplus
}
#endif

#endif
