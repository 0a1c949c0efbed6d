/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file rows.h
 * Some rows of a parameter, for embeddings. Part of zinf.h, which includes it.
 */
#ifndef ZINF_ROWS_H
#define ZINF_ROWS_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * As zinf_unshard() of the unit of a parameter, but only some rows of the parameter have their
 * values of the current step. Backward ends with the gradient of the embedding, which the next
 * forward uses first: with this call the forward waits for the update of its tokens' rows only, and
 * these are updated before the others. The daemon updates parameters in runs of 262144 elements.
 * zinf_reshard() ends this use, and comes before any other use of the unit. If the whole unit is
 * unsharded already, this call is one more use of it.
 * @rows: (row_count,) indices of the first dimension, in any order, repeats allowed
 * Return: as zinf_unshard(); -EINVAL no such parameter or row, or a scalar; -EBUSY rows of the unit
 * are unsharded already.
 */
ZINF_API int zinf_unshard_rows(struct zinf *zinf, uint32_t param, const int64_t *rows,
                               size_t row_count);

#ifdef __cplusplus
}
#endif

#endif
