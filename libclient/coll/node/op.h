/* SPDX-License-Identifier: Apache-2.0 */
/* A call from its beginning to its end, whoever drives it. Floor 2, private to the engine. */
#pragma once

#include "libclient/coll/node/node.h"

/* Goes on with @op as far as it can. Return: 0 it is done; ZI_NODE_E_WAITS. */
int zi_node_op_poll(struct zi_node_op *op, uint64_t pass, struct zi_meet_wants *wants);
/* @op, begun, ends with @error, and so does its group. @waiter: itself, or one that it keeps
 * waiting, by which it is late. @timeout_ns: see struct zi_node_failure. */
void zi_node_op_fail(struct zi_node_op *op, const struct zi_node_op *waiter, int error,
                     uint64_t timeout_ns);
/* The first message of batch @op, not over, that one of @waiter's, a later batch, waits behind: of
 * the same peer and direction. Or NULL. */
const struct zi_node_p2p *zi_node_op_find_before(const struct zi_node_op *op,
                                                 const struct zi_node_op *waiter);
/* Whether @op was canceled, so that it ends when it is polled next. */
static inline bool zi_node_op_is_canceled(const struct zi_node_op *op)
{
	return __atomic_load_n(&op->state, __ATOMIC_ACQUIRE) == ZI_NODE_CANCELED;
}
/* Until @op is done. */
void zi_node_op_run(struct zi_node_op *op);
