/* SPDX-License-Identifier: Apache-2.0 */
/* One node's part of a job; see part.h. Floor 5, shard thread. */
#include "daemon/zero/snapshot/part.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "daemon/catalog/catalog.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/layout.h"

static uint64_t subgroup_count(const struct catalog_job *record)
{
	const struct zero_layout layout = { .sets = record->sets,
		                            .units = record->units,
		                            .params = record->params,
		                            .set_count = record->set_count,
		                            .unit_count = record->unit_count,
		                            .param_count = record->param_count };

	return layout_subgroup_count(&layout);
}

/* Documented in the header, as are all others. */
bool part_is(const struct catalog_job *record)
{
	return record->placement.node_count > 1 &&
	       record->extent_count < _ZERO_PLANE_COUNT * subgroup_count(record);
}

bool part_has_params(const struct catalog_job *record)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < record->extent_count; i++)
		count += record->extents[i].plane == ZI_PLANE_PARAM;
	return count == subgroup_count(record);
}

int part_check(const struct catalog_job *record, const char *what, struct zi_text *text)
{
	if (!part_is(record))
		return 0;
	return err_origin(zi_text_error(
		text, -EOPNOTSUPP,
		"%.90s is one node's part, of %u nodes with %u ranks: export it at each node, and "
		"load all parts as one (zctl export, zctl load)",
		what, record->placement.node_count, record->world_size));
}

int part_check_restore(const struct zero_job *job, const struct catalog_job *record,
                       struct zi_text *text)
{
	uint32_t then = record->placement.node_count, now = job->committed.placement.node_count;

	if (then <= 1 && now <= 1)
		return 0;
	return err_origin(zi_text_error(
		text, -EOPNOTSUPP,
		"job '%.60s' runs on %u nodes, which cannot go back one by one: start a new job "
		"with this snapshot on all nodes (zinf_load), or with all its parts (zctl export "
		"at each node, zctl load)",
		job->name, ZI_MAX(then, now)));
}
