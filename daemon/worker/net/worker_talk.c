/* SPDX-License-Identifier: Apache-2.0 */
/* What zinf-net's daemon says to those of other nodes; see worker.h and talk.h. Floor 3. */
#include <errno.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/err.h"
#include "daemon/worker/net/worker.h"

/* ---- control ---- */

/* Documented in worker.h, as are all that are not static. */
int worker_open_inbox(struct worker *worker, struct zi_text *text)
{
	if (worker->inbox)
		return err_origin(zi_text_error(text, -EBUSY, "the worker talks already"));
	worker->inbox = calloc(1, sizeof(*worker->inbox));
	if (!worker->inbox)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory to talk to other nodes"));
	return 0;
}

void worker_close_inbox(struct worker *worker)
{
	free(worker->inbox);
	worker->inbox = NULL;
}

/* What the daemon said before it heard that the talk is over goes nowhere. */
int worker_take_batch(struct worker *worker, const struct net_talk_batch *batch)
{
	if (!worker->inbox)
		return 0;
	return err_trace(talk_inbox_put(worker->inbox, batch->entries, batch->count));
}

/* ---- net ---- */

static void tell(void *arg, const struct net_talk_batch *batch)
{
	worker_send(arg, batch, batch->header.bytes);
}

int worker_talk(struct worker *worker, struct zi_text *text, uint32_t *ret_suspect)
{
	static const uint32_t slabs[] = { NET_SLAB_TALK, NET_SLAB_PARAM };
	struct talk_options options = { .nodes = worker->nodes,
		                        .node = worker->join.node,
		                        .node_count = worker->join.node_count,
		                        .inbox = worker->inbox,
		                        .stop = &worker->stop,
		                        .tell = tell,
		                        .arg = worker };
	int r;

	for (uint32_t i = 0; i < ZI_COUNT_OF(slabs); i++)
		options.slabs[slabs[i]] =
			(struct talk_slab){ .memory = worker->slabs[slabs[i]].memory,
			                    .bytes = worker->slabs[slabs[i]].bytes };
	assert(worker->inbox);
	/* What a node that is gone said before is still heard; see worker_end_watched(). */
	__atomic_store_n(&worker->is_carrying, 1, __ATOMIC_RELEASE); /* zi_meet_load() */
	r = talk_run(&options, text, ret_suspect);
	__atomic_store_n(&worker->is_carrying, 0, __ATOMIC_RELEASE);
	return err_trace(r);
}
