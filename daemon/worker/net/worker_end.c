/* SPDX-License-Identifier: Apache-2.0 */
/* How an epoch of zinf-net ends, by another's word or a lost message's; see worker.h. Floor 3. The
 * control thread's, but for worker_mail_failed(). */
#include <errno.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/futex.h"
#include "common/wire/meet.h"
#include "daemon/worker/net/worker.h"

/* What a node that is gone sent before is still taken, as are its messages. A few round trips. */
#define WORKER_MOMENT_NS (500 * ZI_NS_PER_MS)

/* The first reason stands. */
static void tell(struct worker *worker, const struct nodes_end *end)
{
	if (!worker->is_told)
		worker->abort_ends[worker->control_side] = *end;
	worker->is_told = true;
}

/* Documented in worker.h, as are all that are not static. */
void worker_end_epoch(struct worker *worker, struct nodes *nodes, const struct nodes_end *end)
{
	if (worker->is_aborted)
		return;
	worker->is_aborted = true;
	tell(worker, end);
	net_mesh_abort(nodes_mesh(nodes));
	__atomic_store_n(&worker->stop, 1, __ATOMIC_RELEASE); /* pairs with zi_meet_load() */
	zi_futex_wake(&worker->stop);
	worker_arm_limit(worker);
}

static void moment_due(struct zi_timer *timer)
{
	struct worker *worker = container_of(timer, struct worker, moment);

	if (worker->joined)
		worker_end_epoch(worker, worker->joined, &worker->moment_end);
}

static void end_after_moment(struct worker *worker, const struct nodes_end *end)
{
	worker->moment_end = *end;
	zi_loop_arm(worker->loop, &worker->moment, zi_clock_deadline_ns(WORKER_MOMENT_NS),
	            moment_due);
}

/*
 * A node that has completed a call has sent all of its part, and had heard before that all ranks
 * here have come to it: such a call still ends well, and no later one does, but while messages are
 * being carried: until those have had their moment, calls go on too. Net looks at `last`
 * after it has written `moving`, control at `moving` after `last`: one of the two sees the other.
 */
void worker_end_watched(struct worker *worker, struct nodes *nodes)
{
	const struct nodes_end *end = nodes_watch_end(nodes);
	uint32_t moving = __atomic_load_n(&worker->moving, __ATOMIC_SEQ_CST);

	if (nodes != worker->joined || worker->is_aborted || end->done < moving) {
		worker_end_epoch(worker, nodes, end);
		return;
	}
	/* What a node that is gone has taken it may have told. */
	if (zi_meet_load(&worker->is_carrying) && end->error == -EPIPE) {
		end_after_moment(worker, end);
		return;
	}
	tell(worker, end);
	__atomic_store_n(&worker->last, moving, __ATOMIC_SEQ_CST);
	if (!moving || __atomic_load_n(&worker->moving, __ATOMIC_SEQ_CST) != moving)
		worker_end_epoch(worker, nodes, end);
	else if (end->done == NODES_DONE_UNKNOWN)
		end_after_moment(worker, end);
	/* Else by its own deadline at the latest. */
}

/* A lost connection is most often the second thing that happened: the watch may know the first. */
static void mail_failed(struct zi_post *post)
{
	struct worker *worker = container_of(post, struct worker, mail_post);

	if (!worker->joined || worker->is_aborted || worker->moment.loop)
		return;
	if (worker->mail_end.error == -ETIMEDOUT)
		worker_end_epoch(worker, worker->joined, &worker->mail_end);
	else
		end_after_moment(worker, &worker->mail_end);
}

void worker_mail_failed(void *arg, const struct nodes_end *end)
{
	struct worker *worker = arg;

	worker->mail_end = *end;
	zi_loop_post(worker->loop, &worker->mail_post, mail_failed);
}
