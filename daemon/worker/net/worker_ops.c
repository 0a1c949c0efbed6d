/* SPDX-License-Identifier: Apache-2.0 */
/* What zinf-net's operations thread does with each request; see worker.h. Floor 3. */
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "daemon/worker/net/worker.h"

/* Between two looks whether a port is free. */
#define WORKER_PORT_AGAIN_NS (50 * ZI_NS_PER_MS)

static void leave(struct worker *worker)
{
	worker->room = exchange_room_free(worker->room);
	worker->nodes = nodes_leave(worker->nodes);
	worker->sequence = worker->done = 0;
	worker->moment_ns = NODES_MOMENT_NS;
	worker->broken = (struct nodes_end){ .error = -ENOTCONN, .culprit = NET_CULPRIT_NONE };
	zi_text_set(&worker->broken.text, "the nodes of this job have not met");
}

static int map_all(struct worker *worker)
{
	int r = 0;

	for (uint32_t i = 0; i < NET_SLABS_MAX && !r; i++)
		if (worker->slabs[i].memory)
			r = exchange_room_map(worker->room, i, &worker->slabs[i]);
	return err_trace(r);
}

static int join(struct worker *worker, const struct net_join *message, struct zi_text *text)
{
	int r;

	leave(worker);
	worker->net_side ^= 1;
	worker->join = *message;
	explicit_bzero(worker->join.way.token, sizeof(worker->join.way.token));
	r = nodes_join(message,
	               &(struct nodes_watcher){ .loop = worker->loop,
	                                        .ended = worker_watched,
	                                        .asked = worker_tell_asked,
	                                        .arg = worker },
	               text, &worker->nodes);
	if (r)
		return err_trace(r);
	/* Most sums have a leaf on each node: pieces of those with more are shorter. */
	r = exchange_room_new(
		&(struct exchange_room_options){
			.nodes = worker->nodes,
			.node = message->node,
			.node_count = message->node_count,
			.ring_bytes = exchange_ring_bytes(message->node_count, UINT64_MAX),
		},
		&worker->room);
	r = r ? r : map_all(worker);
	if (r) {
		zi_text_set(text, "%s has no memory for the pieces of %u nodes",
		            nodes_name(worker->nodes, message->node), message->node_count);
		nodes_refuse(worker->nodes, r, text);
		return err_trace(r);
	}
	worker->broken = (struct nodes_end){ .culprit = NET_CULPRIT_NONE };
	return 0;
}

static int map(struct worker *worker, const struct net_map *message,
               const struct exchange_slab *slab, struct zi_text *text)
{
	struct exchange_slab former = worker->slabs[message->slab];
	int r = 0;

	worker->slabs[message->slab] = *slab;
	if (worker->room)
		r = exchange_room_map(worker->room, message->slab, slab);
	if (former.memory)
		(void)munmap(former.memory, former.bytes); /* As it was mapped. */
	if (r)
		zi_text_set(text, "no memory for lanes over slab %u", message->slab);
	return err_trace(r);
}

/* What is checked here would be wrong on this node alone, and the others wait: so they are told. */
static int exchange(struct worker *worker, const struct net_exchange *message, struct zi_text *text,
                    uint32_t *ret_suspect)
{
	const struct exchange_slab *slab = &worker->slabs[message->slab % NET_SLABS_MAX];
	int r;

	*ret_suspect = NET_CULPRIT_NONE;
	if (message->sequence != worker->sequence + 1)
		return err_origin(zi_text_error(
			text, -EINVAL, "operation %lu after %lu: numbers follow each other",
			(unsigned long)message->sequence, (unsigned long)worker->sequence));
	worker->sequence++;
	if (message->slab >= NET_SLABS_MAX || !slab->memory || !message->timeout_ms)
		return err_origin(zi_text_error(
			text, -EINVAL, "slab %u is not there, or no time is given (%lu ms)",
			message->slab, (unsigned long)message->timeout_ms));
	r = exchange_check(message, worker->join.node, worker->join.node_count, slab, text);
	if (r)
		return err_trace(r);
	return err_trace(exchange_run(worker->room, message, text, ret_suspect));
}

/* The epoch is over; what stands is what all nodes say of it. */
static void end_epoch(struct worker *worker, int error, uint32_t suspect,
                      const struct zi_text *text)
{
	struct nodes_end end = { .error = error, .culprit = suspect, .text = *text };

	if (error == -ECANCELED && worker->abort_ends[worker->net_side].error)
		end = worker->abort_ends[worker->net_side];
	nodes_blame(worker->nodes, end.error, error == -ECANCELED ? NET_CULPRIT_NONE : suspect,
	            worker->done, worker->moment_ns, &end.text, &worker->broken);
	if (worker->broken.culprit == NET_CULPRIT_NONE)
		worker->broken.culprit = end.culprit;
}

static void follow(struct worker *worker, const struct net_follow *message, struct zi_text *text)
{
	uint32_t suspect = NET_CULPRIT_NONE;
	int r = worker_follow(worker, message, text, &suspect);

	end_epoch(worker, r, suspect, text);
}

static void talk(struct worker *worker, struct zi_text *text)
{
	uint32_t suspect;
	int r = worker_talk(worker, text, &suspect);

	end_epoch(worker, r, suspect, text);
}

static void run(struct worker_op *op)
{
	struct worker *worker = op->worker;
	uint32_t suspect;
	int r;

	op->end = (struct nodes_end){ .culprit = NET_CULPRIT_NONE };
	switch (op->message.header.type) {
	case NET_MEET:
		worker->claims = store_client_close(worker->claims);
		op->end.error =
			meet_all(&op->message.meet, &op->end.text, &op->met, &worker->claims);
		return;
	case NET_AGREE:
		op->end.error = agree_all(&op->message.agree, &op->end.text);
		return;
	case NET_FOLLOW:
		if (!worker->broken.error)
			follow(worker, &op->message.follow, &op->end.text);
		op->end = worker->broken;
		return;
	case NET_TALK:
		if (!worker->broken.error)
			talk(worker, &op->end.text);
		op->end = worker->broken;
		return;
	case NET_JOIN:
		op->end.error = join(worker, &op->message.join, &op->end.text);
		return;
	case NET_MAP:
		op->end.error = map(worker, &op->message.map, &op->slab, &op->end.text);
		return;
	case NET_EXCHANGE:
		if (!worker->broken.error) {
			r = exchange(worker, &op->message.exchange, &op->end.text, &suspect);
			if (!r)
				return;
			end_epoch(worker, r, suspect, &op->end.text);
		}
		op->end = worker->broken;
		return;
	case NET_ABORT:
		if (!worker->broken.error)
			end_epoch(worker, -ECANCELED, NET_CULPRIT_NONE, &op->message.abort.text);
		return;
	default:
		assert(false && "what control lets through");
	}
}

/* Where this node's store is to be found; then control serves it. Again, after a moment, where the
 * port was in use. */
static void place(struct worker_op *op)
{
	const struct timespec moment = { .tv_nsec = (long)WORKER_PORT_AGAIN_NS };
	const struct net_way *way = worker_way_of(op);
	uint64_t started_ns = zi_clock_now_ns();

	op->end = (struct nodes_end){ .culprit = NET_CULPRIT_NONE };
	if (op->patience_ns) /* The address is known; sooner is as good. */
		(void)nanosleep(&moment, NULL);
	else
		op->end.error =
			place_own_address(&way->place, way->interface, &op->end.text, &op->own);
	op->busy_ns = zi_clock_now_ns() - started_ns;
	zi_loop_post(op->worker->loop, &op->post, worker_op_placed);
}

/* Documented in worker.h. */
void worker_op_run(struct zi_post *post)
{
	struct worker_op *op = container_of(post, struct worker_op, post);
	uint64_t started_ns = zi_clock_now_ns();

	if (op->wants_store) {
		place(op);
		return;
	}
	run(op);
	op->busy_ns = zi_clock_now_ns() - started_ns;
	zi_loop_post(op->worker->loop, &op->post, worker_op_done);
}
