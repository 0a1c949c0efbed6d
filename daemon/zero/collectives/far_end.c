/* SPDX-License-Identifier: Apache-2.0 */
/* How a group that spans nodes ends: at once, or after its worker's last words; see far.h. Floor 5,
 * shard thread. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/tier/segment.h"
#include "daemon/zero/across/across.h"
#include "daemon/zero/collectives/far_private.h"
#include "daemon/zero/job/job.h"

/* Documented in far_private.h. */
void far_unmap(struct far *far)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(far->mapped); i++)
		far->mapped[i] = tier_segment_unref(far->mapped[i]);
}

/* Documented in far_private.h, as are far_last_due() and far_linger(). */
struct far *far_destroy(struct far *far)
{
	far->worker = net_worker_free(far->worker); /* Ends its request, which may arm `next`. */
	zi_loop_disarm(&far->next);
	far_unmap(far);
	if (far->fd_account)
		tier_account_give_fds(far->fd_account, ZERO_WORKER_FDS);
	free(far);
	return NULL;
}

void far_last_due(struct zi_timer *timer)
{
	struct far *far = container_of(timer, struct far, next);

	/* The store that it may serve is needed by those who train, until all have left. */
	if (far->group == ZI_GROUP_WORLD && across_stays(far->zero, far->name) &&
	    net_worker_state(far->worker) == NET_WORKER_UP) {
		zi_loop_arm(far->loop, &far->next, zi_clock_deadline_ns(FAR_LAST_NS), far_last_due);
		return;
	}
	zi_list_remove(&far->link);
	(void)far_destroy(far);
}

void far_linger(struct far *far, uint64_t time_ns)
{
	zi_list_push_back(&far->job->zero->fars, &far->link);
	far->job = NULL;
	zi_loop_arm(far->loop, &far->next, zi_clock_deadline_ns(time_ns), far_last_due);
}

/* Documented in far.h, as are the others. */
struct far *far_free(struct far *far)
{
	struct zi_text text;

	if (!far)
		return NULL;
	if (far->phase < FAR_FOLLOWING || net_worker_state(far->worker) != NET_WORKER_UP)
		return far_destroy(far);
	zi_text_set(&text, "the ranks of job '%s' have left", far->name);
	far_abort(far, -EPIPE, &text); /* The first text stands. */
	far_linger(far, FAR_LAST_NS);
	return NULL;
}

void far_forget(struct zero *zero, const char *name)
{
	zi_list_for_each_safe(link, &zero->fars) {
		struct far *far = container_of(link, struct far, link);

		if (name && strcmp(far->name, name) != 0)
			continue;
		zi_list_remove(link);
		(void)far_destroy(far);
	}
}

void far_forget_openings(struct zero *zero, uint32_t port)
{
	zi_list_for_each_safe(link, &zero->fars) {
		struct far *far = container_of(link, struct far, link);

		if (!far->tells_opening || far->port != port)
			continue;
		zi_list_remove(link);
		(void)far_destroy(far);
	}
}

void far_hurry(const struct zero_job *job)
{
	zi_list_for_each(link, &job->zero->fars) {
		struct far *far = container_of(link, struct far, link);

		if (far->tells_opening && strcmp(far->name, job->name) == 0)
			zi_loop_arm(far->loop, &far->next, zi_clock_deadline_ns(FAR_LAST_NS),
			            far_last_due);
	}
}

uint64_t far_ending(const struct zero_job *job)
{
	uint64_t groups = 0;

	zi_list_for_each(link, &job->zero->fars) {
		const struct far *far = container_of(link, struct far, link);

		if (far->phase >= FAR_FOLLOWING && !far->is_over &&
		    strcmp(far->name, job->name) == 0)
			groups |= 1ull << far->group;
	}
	return groups;
}

void far_end(const struct zero_job *job, uint32_t group)
{
	zi_list_for_each_safe(link, &job->zero->fars) {
		struct far *far = container_of(link, struct far, link);

		if (far->phase < FAR_FOLLOWING || far->group != group ||
		    strcmp(far->name, job->name) != 0)
			continue;
		zi_list_remove(link);
		(void)far_destroy(far);
	}
}

struct zi_text far_say_where(const struct far *far, const struct zi_text *text)
{
	char host[ZI_NAME_BYTES] = "another node";
	struct zi_text told, where;

	(void)gethostname(host, sizeof(host) - 1); /* For people. */
	zi_text_set(&where, " (on node %u, %.40s)", far->node, host);
	zi_text_set(&told, "%.*s%s", (int)(sizeof(told.chars) - 1 - strlen(where.chars)),
	            text->chars, where.chars);
	return told;
}

void far_abort(struct far *far, int error, const struct zi_text *text)
{
	struct zi_text told;

	if (far->phase != FAR_FOLLOWING)
		return;
	told = far_say_where(far, text);
	net_worker_abort(far->worker, error, &told);
}
