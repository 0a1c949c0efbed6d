/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file tensor.h
 * Tensors: activations and other blobs that do not fit into memory. Part of zinf.h, which includes
 * it.
 *
 * Tensors belong to this session: they are never committed, and end with it. They lie in a segment
 * of budget_bytes that the daemon and this process share. A put tensor is written to the NVMe tier
 * at once, and verified by XXH3 when it is read. Its room can then serve other tensors: first the
 * room of the oldest put tensor, last that of a prefetched tensor that was not yet used. Without an
 * NVMe tier all tensors stay in the segment.
 * @id: any number, unique among this rank's tensors; at most 4096 tensors at once. Each ticket has
 * its own error, deadline (zinf_wait_for(); at most timeout_ms) and zinf_cancel().
 * Errors of all calls: -EINVAL before zinf_tensor_open(); -ENOENT no such tensor.
 */
#ifndef ZINF_TENSOR_H
#define ZINF_TENSOR_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Makes memory for this rank's tensors, once, after zinf_materialize(). @budget_bytes: rounded up
 * to whole pages; the job is charged for it. Return: 0; -ENOSPC, -EDQUOT with figures; -EALREADY it
 * was called before; -EOPNOTSUPP an older daemon. */
ZINF_API int zinf_tensor_open(struct zinf *zinf, uint64_t budget_bytes);

/**
 * Returns a place for a new tensor, to write into directly. Waits until there is room. Call
 * zinf_tensor_put() with data NULL after writing.
 * @ret_place: (@bytes,) owned by the daemon, aligned to 4096; writable until the put.
 * Return: 0; -EEXIST the id is in use; -E2BIG there are 4096 tensors; -ENOSPC, -EDQUOT with
 * figures: the budget can never hold it beside tensors that are mapped, not put or not stored, or
 * the store is full; -ETIMEDOUT no room in time.
 */
ZINF_API int zinf_tensor_alloc(struct zinf *zinf, uint64_t id, size_t bytes, void **ret_place);

/**
 * Hands a tensor over. The ticket completes when it is stored.
 * @data: (@bytes,) copied before the call returns, into a place of zinf_tensor_alloc(), whose
 * errors it returns; NULL: the tensor was written into its place.
 * If the ticket fails (-EIO and the like, with offset and path), is late or is cancelled, the
 * tensor stays in memory: put it again with data NULL, get it, or free it.
 */
ZINF_API int zinf_tensor_put(struct zinf *zinf, uint64_t id, const void *data, size_t bytes,
                             zinf_ticket *ret_ticket);

/** Announces that a tensor is needed soon. The ticket completes when it is in memory, and must be
 * waited for. The prefetch waits for room, and takes none from tensors prefetched before. */
ZINF_API int zinf_tensor_prefetch(struct zinf *zinf, uint64_t id, zinf_ticket *ret_ticket);

/**
 * Copies a tensor into @buffer: (@bytes,) of the tensor's own length, owned by the caller. The
 * zinf_wait() that returns 0 fills it; it must exist until then. The tensor stays.
 * Errors of the ticket: -EBADMSG the tensor is damaged, -EIO and the like: it cannot be read; the
 * text names tensor, offset and path; -EINVAL the tensor has another length.
 */
ZINF_API int zinf_tensor_get(struct zinf *zinf, uint64_t id, void *buffer, size_t bytes,
                             zinf_ticket *ret_ticket);

/** Returns a tensor without a copy. Waits until it is in memory; it stays there until
 * zinf_tensor_unmap(). @ret_place: (*@ret_bytes,) read-only for the caller. Calls nest. Errors as
 * of zinf_tensor_get(). */
ZINF_API int zinf_tensor_map(struct zinf *zinf, uint64_t id, const void **ret_place,
                             size_t *ret_bytes);
/** Ends one zinf_tensor_map(). -EINVAL: the tensor is not mapped. */
ZINF_API int zinf_tensor_unmap(struct zinf *zinf, uint64_t id);

/** Deletes a tensor. -EBUSY: it is mapped, a get was not waited for, or a ticket is pending. */
ZINF_API int zinf_tensor_free(struct zinf *zinf, uint64_t id);

#ifdef __cplusplus
}
#endif

#endif
