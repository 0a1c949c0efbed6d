/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of ranks by the rule of the daemon (logical.h). */
#include "zctl/estimate/logical.h"

#include "common/base/cleanup.h"

/* Of models with more subgroups nobody sees one more or less. */
#define DEALT_ELEMENTS_MAX (1ull << 42)

static void deal(const struct estimate_model *model, struct zi_owners *owners)
{
	if (model->padded_count <= DEALT_ELEMENTS_MAX) {
		zi_owners_deal_units(owners, model->unit_padded, model->unit_count);
		return;
	}
	for (uint32_t i = 0; i < owners->member_count; i++)
		owners->element_counts[i] = model->padded_count / owners->member_count;
}

/* See logical.h. */
void estimate_logical(const struct estimate_model *model, const struct zi_job_config *config,
                      const struct zi_job_training *training, uint32_t world_size,
                      struct estimate_logical *ret_logical)
{
	struct zi_share share = { .padded_count = model->padded_count };
	struct zi_plane_bytes *most = &ret_logical->most;
	struct zi_owners owners;

	*ret_logical = (struct estimate_logical){ 0 };
	for (uint32_t i = 0; i < model->unit_count; i++)
		share.largest_count = ZI_MAX(share.largest_count, model->unit_padded[i]);
	zi_owners_init(&owners, zi_shard_members(training, world_size));
	deal(model, &owners);
	for (uint32_t rank = 0; rank < world_size; rank++) {
		struct zi_plane_bytes *bytes = &ret_logical->ranks[rank];

		/* Members that divide a plane are consecutive. */
		share.owned_count = owners.element_counts[rank % owners.member_count];
		zi_logical_bytes(&share, config, training, bytes);
		most->param = ZI_MAX(most->param, bytes->param);
		most->param_live = ZI_MAX(most->param_live, bytes->param_live);
		most->grad = ZI_MAX(most->grad, bytes->grad);
		most->grad_buckets = ZI_MAX(most->grad_buckets, bytes->grad_buckets);
		most->accum = ZI_MAX(most->accum, bytes->accum);
		most->state = ZI_MAX(most->state, bytes->state);
	}
}
