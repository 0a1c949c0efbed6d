/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of one connection, waited for or not: a thread of its own makes those that are not, each
 * group's collectives in the order in which they were made, sends and receives in that of their
 * pair of members. Floor 2; all functions belong to the one thread that makes the connection's
 * calls, and so do its groups whenever nothing is under way.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/coll/node/node.h"

/* So many calls of one connection may be under way. */
#define ZI_NODE_QUEUE_MAX 1024u

struct zi_node_queue;

/* The thread is made by the first submit. Return: 0, -ENOMEM. */
int zi_node_queue_new(struct zi_node_queue **ret_queue);
/* From now on each call that is done rings @event_fd, which outlives the queue. */
void zi_node_queue_notify(struct zi_node_queue *queue, int event_fd);
/* What is under way ends with -ECANCELED. NULL is fine; returns NULL. */
struct zi_node_queue *zi_node_queue_free(struct zi_node_queue *queue);

/* Whether anything is under way, which what is made now may wait for. NULL is fine. */
bool zi_node_queue_is_busy(const struct zi_node_queue *queue);
/* Makes a call and waits for it. Return: op->result; -EINTR, op->is_interrupted: it is under way,
 * and the same call goes on with it. Until then no other call of its group is made. Where the
 * thread does not have it already, nobody goes on with it meanwhile. */
int zi_node_queue_run(struct zi_node_queue *queue, struct zi_node_op *op);
/* Makes a call that goes on by itself. Return: 0; -EAGAIN: ZI_NODE_QUEUE_MAX are under way; what a
 * thread that cannot be made says. Only after 0 will the op be done. */
int zi_node_queue_submit(struct zi_node_queue *queue, struct zi_node_op *op);
/* Whether @op is done; waits for that until @until_ns. */
bool zi_node_queue_wait(struct zi_node_queue *queue, struct zi_node_op *op, uint64_t until_ns);
/* As zi_node_queue_wait(). Return: 0; -ETIMEDOUT; -EINTR: @interrupt, unless NULL, is not 0. */
int zi_node_queue_await(struct zi_node_queue *queue, struct zi_node_op *op, uint64_t until_ns,
                        const struct zi_line *interrupt);
/* Whether @op, submitted, was still unposted: then it will be done, with -ECANCELED, at once. */
bool zi_node_queue_cancel(struct zi_node_queue *queue, struct zi_node_op *op);

/* Whether @op was submitted, and not made by its caller. */
static inline bool zi_node_op_is_queued(const struct zi_node_op *op)
{
	return __atomic_load_n(&op->state, __ATOMIC_ACQUIRE) != ZI_NODE_NEW;
}

/* Whether @op, submitted, is over and the caller's again. */
static inline bool zi_node_op_is_done(const struct zi_node_op *op)
{
	return __atomic_load_n(&op->state, __ATOMIC_ACQUIRE) == ZI_NODE_DONE;
}
