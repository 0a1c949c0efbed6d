/* SPDX-License-Identifier: Apache-2.0 */
/* Data on the media of the stores it lies on, and then the transaction that relies on it
 * (durability `power`). Floor 5, shard thread. */
#include "daemon/zero/step/flush.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "daemon/zero/job/job.h"

static double waited_s(const struct tier_flush *flush)
{
	return (double)(zi_clock_now_ns() - flush->submitted_ns) / (double)ZI_NS_PER_S;
}

/* A flush cannot be taken back, so all there is to do about it is to say who waits for what. */
static void flush_late(struct zi_timer *timer)
{
	struct zero_flush *flush = container_of(timer, struct zero_flush, timer);
	const struct catalog_job *job = flush->request->job;
	const struct tier_member *member = tier_flush_awaited(&flush->flush);

	flush->is_late = true;
	log_error(
		"Job '%s': its commit of step %lld waits for the flush of %s, which has not ended "
		"within %.3g s (deadline_s); so do all jobs that wrote there with durability = "
		"power. Look at the device's health and at what else uses it",
		job->name, (long long)job->step, member->path, waited_s(&flush->flush));
}

/* Of several paths, the soonest limit: who is awaited then is told. */
static void watch(struct zero_flush *flush)
{
	uint64_t timeout_ns = 0;

	for (uint32_t i = 0; i < flush->flush.tier->member_count; i++) {
		uint64_t limit_ns = flush->flush.members >> i & 1
		                            ? flush->flush.tier->members[i].store->timeout_ns
		                            : 0;

		if (limit_ns && (!timeout_ns || limit_ns < timeout_ns))
			timeout_ns = limit_ns;
	}
	flush->is_late = false;
	if (timeout_ns)
		zi_loop_arm(flush->flush.loop, &flush->timer, zi_clock_deadline_ns(timeout_ns),
		            flush_late);
}

static void go_on(struct zero_flush *flush)
{
	if (flush->ready)
		flush->ready(flush);
	else
		catalog_submit(flush->catalog, flush->request);
}

static void flushed(struct tier_flush *tier_flush)
{
	struct zero_flush *flush = container_of(tier_flush, struct zero_flush, flush);
	struct catalog_request *request = flush->request;
	const struct catalog_job *job = request->job;

	zi_loop_disarm(&flush->timer);
	if (flush->is_late)
		log_info("Job '%s': the flush of its step %lld has ended after %.3g s", job->name,
		         (long long)job->step, waited_s(tier_flush));
	if (!tier_flush->result) {
		go_on(flush);
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
	flush->request = request;
	flush->catalog = zero->options.catalog;
	if (!members) {
		go_on(flush);
		return;
	}
	flush->flush.tier = tier;
	flush->flush.members = members;
	flush->flush.loop = zero->options.loop;
	flush->flush.done = flushed;
	tier_flush_submit(&flush->flush);
	watch(flush);
}
