/* SPDX-License-Identifier: Apache-2.0 */
/* What a strategy gives each rank of a plane, wherever it lies and however often it is there. */
#pragma once

#include "common/wire/control.h"
#include "zctl/estimate/model.h"

struct estimate_logical {
	uint64_t param_bytes, grad_bytes, accum_bytes, state_bytes;
};

/* With padding. */
static inline struct estimate_logical estimate_logical(const struct estimate_model *model,
                                                       const struct zi_job_config *config)
{
	enum zi_dtype param = (enum zi_dtype)config->param_dtype;
	uint64_t count = model->padded_count;

	return (struct estimate_logical){
		.param_bytes = count * zi_dtype_bytes(param),
		.grad_bytes = count * zi_dtype_bytes((enum zi_dtype)config->grad_dtype),
		.accum_bytes = config->schedule == ZI_SCHEDULE_SHARDED ? count * 4 : 0,
		.state_bytes =
			count * zi_state_element_bytes((enum zi_optimizer)config->optimizer, param),
	};
}
