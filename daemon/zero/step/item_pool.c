/* SPDX-License-Identifier: Apache-2.0 */
/* See item_pool.h. */
#include "daemon/zero/step/item_pool.h"

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/item.h"
#include "daemon/zero/step/pipeline.h"

/* See item_pool.h. */
void *item_slot_param(const struct zero_item *item)
{
	uint64_t state_bytes =
		item->is_staged ? job_subgroup_state_bytes(item->job, item->subgroup) : 0;

	assert(item->slot);
	return (char *)item->slot + state_bytes;
}

/* See item_pool.h. */
bool item_has_param(struct zero_item *item)
{
	const struct zero_job *job = item->job;

	/* A WRITE without parameters is about the state alone. */
	if (item->param || job->pipeline.kind == ZERO_PIPELINE_LOAD ||
	    job->pipeline.kind == ZERO_PIPELINE_WRITE)
		return true;
	item->param = job_subgroup_param(job, item->subgroup);
	if (item->param) {
		item->is_pooled = job_stores_param(job);
		job->units[item->subgroup->unit].pooled_count += item->is_pooled;
		return true;
	}
	item->param = item_slot_param(item);
	item->is_param_read = true;
	return false;
}

/* See item_pool.h. */
bool item_leave_pool(struct zero_item *item)
{
	struct zero_unit *unit = &item->job->units[item->subgroup->unit];

	if (!item->is_pooled)
		return false;
	assert(unit->pooled_count > 0);
	item->is_pooled = false;
	item->param = NULL;
	return --unit->pooled_count == 0;
}
