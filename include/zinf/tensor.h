/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file tensor.h
 * Tensors: activations and other blobs that outgrow memory. Part of zinf.h, which includes it.
 *
 * They belong to this session: nothing of them is committed, and they go with it. They lie in a
 * segment of budget_bytes that the daemon and this process share; what is put is written to the
 * NVMe tier at once (checked by XXH3 when it comes back), so that its room can be given to others:
 * the oldest put goes first, what was prefetched and not yet used last. Without an NVMe tier all
 * stays in the segment. @id: chosen by the caller, any number, unique among this rank's tensors; at
 * most 4096 of them at once. Each ticket has its own error, deadline (zinf_wait_for(); at the
 * latest timeout_ms) and zinf_cancel().
 * Errors of all: -EINVAL before zinf_tensor_open(); -ENOENT no such tensor.
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

/** Memory for this rank's tensors, once, after zinf_materialize(). @budget_bytes: rounded up to
 * whole pages; counts as memory of the job. Return: 0; -ENOSPC, -EDQUOT with figures; -EALREADY;
 * -EOPNOTSUPP an older daemon. */
ZINF_API int zinf_tensor_open(struct zinf *zinf, uint64_t budget_bytes);

/**
 * A place for a new tensor, to write into directly; waits until there is room. Then
 * zinf_tensor_put() with data NULL.
 * @ret_place: (@bytes,) the daemon's, aligned to 4096; may be written until it is put.
 * Return: 0; -EEXIST; -E2BIG too many; -ENOSPC, -EDQUOT with figures: the budget can never hold it
 * beside what is mapped, allocated and not put, or not stored; or the store is full; -ETIMEDOUT.
 */
ZINF_API int zinf_tensor_alloc(struct zinf *zinf, uint64_t id, size_t bytes, void **ret_place);

/**
 * Hands a tensor over. The ticket completes when it is stored.
 * @data: (@bytes,) copied before the call returns, into a place as by zinf_tensor_alloc(), whose
 * errors are returned; NULL: what was written there.
 * When the ticket fails (-EIO and the like, with offset and path), is late or is cancelled, the
 * tensor stays in memory: put it again with data NULL, get it, or free it.
 */
ZINF_API int zinf_tensor_put(struct zinf *zinf, uint64_t id, const void *data, size_t bytes,
                             zinf_ticket *ret_ticket);

/** Says that a tensor is got soon. The ticket completes when it is in memory, and must be waited
 * for like any other; the tensor waits for room that nothing prefetched before has to give. */
ZINF_API int zinf_tensor_prefetch(struct zinf *zinf, uint64_t id, zinf_ticket *ret_ticket);

/**
 * Copies a tensor out. @buffer: (@bytes,) of the tensor's own length; filled by the zinf_wait()
 * that reports success, the caller's to keep until then. The tensor stays.
 * The ticket's errors: -EBADMSG damaged, -EIO and the like not readable: the text names tensor,
 * offset and path; -EINVAL another length.
 */
ZINF_API int zinf_tensor_get(struct zinf *zinf, uint64_t id, void *buffer, size_t bytes,
                             zinf_ticket *ret_ticket);

/** A tensor without a copy: waits until it is in memory, where it stays until zinf_tensor_unmap().
 * @ret_place: (*@ret_bytes,) not to be written. Nests. Errors as zinf_tensor_get(). */
ZINF_API int zinf_tensor_map(struct zinf *zinf, uint64_t id, const void **ret_place,
                             size_t *ret_bytes);
/** -EINVAL: it is not mapped. */
ZINF_API int zinf_tensor_unmap(struct zinf *zinf, uint64_t id);

/** Forgets a tensor. -EBUSY: it is mapped, a get of it was not waited for, or a ticket of it is
 * pending. */
ZINF_API int zinf_tensor_free(struct zinf *zinf, uint64_t id);

#ifdef __cplusplus
}
#endif

#endif
