/* SPDX-License-Identifier: Apache-2.0 */
/* Data on the media of the stores it lies on, and then the transaction that relies on it
 * (durability `power`). Floor 5, shard thread. */
#include "daemon/zero/step/flush.h"

#include <string.h>

#include "common/base/err.h"
#include "daemon/zero/job/job.h"

static void flushed(struct tier_flush *tier_flush)
{
	struct zero_flush *flush = container_of(tier_flush, struct zero_flush, flush);
	struct catalog_request *request = flush->request;
	const struct catalog_job *job = request->job;

	if (!tier_flush->result) {
		catalog_submit(flush->catalog, request);
		return;
	}
	request->result = err_trace(tier_flush->result);
	request->is_uncertain = false;
	zi_text_set(&request->text,
	            "job '%.63s': flushing %s failed: %s. Step %lld is not committed: what was "
	            "written for it may be on the disk or not",
	            job->name, tier_flush->failed->path, strerror(-request->result),
	            (long long)job->step);
	request->done(request);
}

/* See flush.h. */
void flush_then_submit(struct zero *zero, struct zero_flush *flush, struct tier *tier,
                       uint32_t members, struct catalog_request *request)
{
	if (!members) {
		catalog_submit(zero->options.catalog, request);
		return;
	}
	flush->request = request;
	flush->catalog = zero->options.catalog;
	flush->flush.tier = tier;
	flush->flush.members = members;
	flush->flush.loop = zero->options.loop;
	flush->flush.done = flushed;
	tier_flush_submit(&flush->flush);
}
