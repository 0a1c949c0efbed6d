/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of one connection, waited for or not; see queue.h. Floor 2. */
#include "libclient/coll/queue.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/err.h"

struct zi_node_queue {
	uint32_t under_way;
};

int zi_node_queue_new(struct zi_node_queue **ret_queue)
{
	*ret_queue = calloc(1, sizeof(**ret_queue));
	return *ret_queue ? 0 : err_origin(-ENOMEM);
}

struct zi_node_queue *zi_node_queue_free(struct zi_node_queue *queue)
{
	free(queue);
	return NULL;
}

int zi_node_queue_run(struct zi_node_queue *queue, struct zi_node_op *op)
{
	struct zi_node_group *group = op->group;

	(void)queue;
	if (op->p2p_count)
		op->result = zi_node_batch(group, op->p2ps, op->p2p_count, op->call.deadline_ns,
		                           &op->text);
	else
		op->result = zi_node_call(group, &op->call, &op->text);
	op->sequence = op->p2p_count ? 0 : group->sequence;
	op->culprit = group->culprit;
	__atomic_store_n(&op->state, ZI_NODE_DONE, __ATOMIC_RELEASE);
	return err_trace(op->result);
}

int zi_node_queue_submit(struct zi_node_queue *queue, struct zi_node_op *op)
{
	(void)zi_node_queue_run(queue, op); /* whoever waits has the result */
	return 0;
}

bool zi_node_queue_wait(struct zi_node_queue *queue, struct zi_node_op *op, uint64_t until_ns)
{
	(void)queue;
	(void)until_ns;
	return zi_node_op_is_done(op);
}

bool zi_node_queue_cancel(struct zi_node_queue *queue, struct zi_node_op *op)
{
	(void)queue;
	(void)op;
	return false;
}
