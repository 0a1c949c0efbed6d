/* SPDX-License-Identifier: Apache-2.0 */
/* See item_lend.h. What is lent is one move more that the item waits for. */
#include "daemon/zero/step/item_lend.h"

#include "common/base/assert.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"
#include "daemon/zero/step/item.h"
#include "daemon/zero/step/pipeline.h"

/* See item_lend.h. */
struct zero_item *item_lend(const struct zero_subgroup *subgroup)
{
	const struct zero_job *job = subgroup->job;

	if (job->pipeline.kind != ZERO_PIPELINE_UPDATE)
		return NULL;
	/* As many as there are slots and threads. */
	for (uint32_t i = 0; i < job->item_count; i++) {
		struct zero_item *item = &job->items[i];

		if (item->subgroup != subgroup || item->stage != ZERO_ITEM_WRITING)
			continue;
		assert(item->param);
		assert(!item->is_pooled);
		assert(item->move_count > 0);
		item->move_count++;
		return item;
	}
	return NULL;
}

/* See item_lend.h. */
void item_give_back(struct zero_item *item)
{
	struct zero_job *job = item->job;

	assert(job->busy_count > 0);
	assert(item->stage == ZERO_ITEM_WRITING);
	assert(item->move_count > 0);
	pipeline_tick(job);
	item->move_count--;
	item_moved(item);
	pipeline_pump(job);
}
