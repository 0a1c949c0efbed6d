/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of ranks by the rule of the daemon (logical.h). */
#include "zctl/estimate/logical.h"

#include "common/base/cleanup.h"
#include "common/wire/plan_part.h"

/* See logical.h. */
void estimate_logical(const struct zi_plan_model *model, const struct zi_plan_options *options,
                      struct estimate_logical *ret_logical)
{
	struct zi_plane_bytes *most = &ret_logical->most;
	struct zi_share shares[ZI_WORLD_MAX];

	*ret_logical = (struct estimate_logical){ 0 };
	zi_plan_shares(model, options, shares);
	for (uint32_t rank = 0; rank < options->world_size; rank++) {
		struct zi_plane_bytes *bytes = &ret_logical->ranks[rank];

		zi_logical_bytes(&shares[rank], &options->config, &options->training, bytes);
		most->param = ZI_MAX(most->param, bytes->param);
		most->param_live = ZI_MAX(most->param_live, bytes->param_live);
		most->grad = ZI_MAX(most->grad, bytes->grad);
		most->grad_buckets = ZI_MAX(most->grad_buckets, bytes->grad_buckets);
		most->accum = ZI_MAX(most->accum, bytes->accum);
		most->state = ZI_MAX(most->state, bytes->state);
	}
}
