/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon asks of zinf-net, as the control thread takes it; see worker.h. Floor 3. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/wire/region.h"
#include "daemon/worker/net/rights.h"
#include "daemon/worker/net/way.h"
#include "daemon/worker/net/worker.h"

/* Keys of the epochs before the last are nobody's. */
#define WORKER_EPOCHS_KEPT 1
/* Who was refused is logged so often, and then once a second. */
#define WORKER_REFUSALS 8u
/* The store of a job whose ranks have left goes so soon after them: its node waits for what the
 * others' ranks have left behind. */
#define WORKER_PORT_NS (3 * ZI_NS_PER_S)

/* Whoever reaches the port can cause it. */
static void say_refused(const struct zi_text *text)
{
	static struct zi_log_limit limit; /* control's */

	if (zi_log_limit_pass(&limit, WORKER_REFUSALS, ZI_NS_PER_S))
		log_warning("%s", text->chars);
}

/* ---- the store ---- */

/* Node 0 serves it, from its first join or meeting on. */
static bool wants_store(const struct worker *worker, const union net_message *message)
{
	if (worker->store)
		return false;
	if (message->header.type == NET_JOIN)
		return !message->join.node && !(message->join.flags & NET_JOIN_AS_CLIENT);
	return message->header.type == NET_MEET && message->meet.ranks & 1;
}

/* Documented in worker.h. */
const struct net_way *worker_way_of(const struct worker_op *op)
{
	return op->message.header.type == NET_JOIN ? &op->message.join.way : &op->message.meet.way;
}

static int serve(struct worker *worker, const struct net_way *way, const struct place_address *own,
                 struct zi_text *text)
{
	return err_trace(store_server_open(
		worker->loop,
		&(struct store_server_options){ .host = own->is_loopback ? own->address : NULL,
	                                        .port = way->place.port,
	                                        .job = way->job,
	                                        .incarnation = way->incarnation,
	                                        .token = way->token,
	                                        .refused = say_refused },
		text, &worker->store));
}

/* Whether the port is asked for once more. Half of the time is left for who comes to the store. */
static bool is_patient(struct worker_op *op, uint64_t timeout_ms)
{
	if (!op->patience_ns)
		op->patience_ns =
			zi_clock_deadline_ns(ZI_MIN(WORKER_PORT_NS, timeout_ms * ZI_NS_PER_MS / 2));
	return zi_clock_now_ns() < op->patience_ns;
}

/* Documented in worker.h. */
void worker_op_placed(struct zi_post *post)
{
	struct worker_op *op = container_of(post, struct worker_op, post);
	struct worker *worker = op->worker;
	uint64_t *timeout_ms = op->message.header.type == NET_JOIN ? &op->message.join.timeout_ms
	                                                           : &op->message.meet.timeout_ms;

	*timeout_ms -= ZI_MIN(op->busy_ns / ZI_NS_PER_MS, *timeout_ms - 1); /* It has passed. */
	if (!op->end.error && !worker->store)
		op->end.error = serve(worker, worker_way_of(op), &op->own, &op->end.text);
	op->wants_store = op->end.error == -EADDRINUSE && is_patient(op, *timeout_ms);
	if (op->end.error && !op->wants_store)
		worker_op_done(post);
	else
		zi_loop_post(worker->net_loop, post, worker_op_run);
}

static void forget_epochs(struct worker *worker, const struct net_join *join)
{
	char prefix[24];

	if (join->node || join->flags & NET_JOIN_AS_CLIENT || !worker->store)
		return;
	(void)snprintf(prefix, sizeof(prefix), "%lu/",
	               (unsigned long)(join->epoch - WORKER_EPOCHS_KEPT - 1)); /* Fits. */
	store_server_forget(worker->store, prefix);
}

/* ---- requests ---- */

/* By way of control's own posts: what the former epoch's watch posted has run then. */
static void forward(struct zi_post *post)
{
	struct worker_op *op = container_of(post, struct worker_op, post);
	struct worker *worker = op->worker;

	if (op->message.header.type == NET_JOIN) {
		worker->is_aborted = worker->is_told = false;
		__atomic_store_n(&worker->last, UINT32_MAX, __ATOMIC_SEQ_CST);
		__atomic_store_n(&worker->stop, 0, __ATOMIC_RELEASE); /* Nothing runs. */
		worker->control_side ^= 1;
		worker->abort_ends[worker->control_side] = (struct nodes_end){ .error = 0 };
	}
	zi_loop_post(worker->net_loop, post, worker_op_run);
}

/* Return: whether it was taken; else it is answered. */
static bool enqueue(struct worker *worker, const union net_message *message,
                    const struct exchange_slab *slab)
{
	struct worker_op *op = worker_take_op(worker, message);
	struct zi_text text = { "the worker has as many requests as it takes" };

	if (!op) {
		worker_refuse(worker, message->header.cookie, -EBUSY, &text);
		return false;
	}
	op->slab = *slab;
	op->wants_store = wants_store(worker, message);
	zi_loop_post(worker->loop, &op->post, forward);
	return true;
}

static void handle_join(struct worker *worker, const union net_message *message)
{
	const struct net_join *join = &message->join;
	struct zi_text text = { "another join is under way, or this one is unknown" };
	int r;

	if (worker->is_joining || !join->node_count || join->node_count > SUBTREE_NODES_MAX ||
	    join->node >= join->node_count || !join->timeout_ms || !join->epoch ||
	    !way_is_whole(&join->way)) {
		worker_refuse(worker, message->header.cookie, -EINVAL, &text);
		return;
	}
	r = rights_check_port(join->way.place.port, &text);
	if (r) {
		worker_refuse(worker, message->header.cookie, r, &text);
		return;
	}
	forget_epochs(worker, join);
	zi_loop_disarm(&worker->moment);
	if (worker->joined)
		nodes_stop_watch(worker->joined);
	worker->joined = NULL;
	worker->is_joining = enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
}

static void handle_meet(struct worker *worker, const union net_message *message)
{
	const struct net_meet *meet = &message->meet;
	struct zi_text text = { "no such rendezvous" };
	int r = -EINVAL;
	bool is_one = meet->timeout_ms && meet->ranks && meet->world_size &&
	              meet->world_size <= ZI_WORLD_MAX &&
	              !(meet->ranks & ~(UINT64_MAX >> (ZI_WORLD_MAX - meet->world_size))) &&
	              meet->opening && meet->opening - meet->failed <= 1 && meet->error <= 0 &&
	              !meet->error == !meet->failed && way_is_whole(&meet->way) &&
	              memchr(meet->text.chars, '\0', sizeof(meet->text.chars));

	if (!worker->joined && is_one)
		r = rights_check_port(meet->way.place.port, &text);
	if (r)
		worker_refuse(worker, message->header.cookie, r, &text);
	else
		(void)enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
}

static void handle_agree(struct worker *worker, const union net_message *message)
{
	const struct net_agree *agree = &message->agree;
	struct zi_text text = { "this is nothing that nodes could agree on" };
	bool is_one = agree->node_count && agree->node_count <= SUBTREE_NODES_MAX &&
	              agree->node < agree->node_count && agree->world_size &&
	              agree->world_size <= ZI_WORLD_MAX && agree->timeout_ms && agree->epoch &&
	              agree->error <= 0 && way_is_whole(&agree->way) &&
	              memchr(agree->text.chars, '\0', sizeof(agree->text.chars));

	if (is_one)
		(void)enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
	else
		worker_refuse(worker, message->header.cookie, -EINVAL, &text);
}

static void handle_follow(struct worker *worker, const union net_message *message)
{
	const struct net_follow *follow = &message->follow;
	struct zi_text text = { "a group of no members, or of a mesh that there is not" };
	bool is_one = follow->member_count && follow->member_count <= ZI_WORLD_MAX;

	for (uint32_t i = 0; i < follow->member_count && is_one; i++)
		is_one = follow->nodes[i] < SUBTREE_NODES_MAX;
	if (is_one)
		(void)enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
	else
		worker_refuse(worker, message->header.cookie, -EINVAL, &text);
}

static void handle_talk(struct worker *worker, const union net_message *message)
{
	struct zi_text text;
	int r = worker_open_inbox(worker, &text);

	if (r)
		worker_refuse(worker, message->header.cookie, r, &text);
	else if (!enqueue(worker, message, &(struct exchange_slab){ .memory = NULL }))
		worker_close_inbox(worker);
}

/* Where huge pages can be mapped as such: the kernel copies all that is sent and received through
 * this mapping. */
static int map_slab(uint64_t bytes, int fd, void **ret_memory)
{
	void *memory;
	int r = zi_region_reserve(bytes, &memory);

	if (r)
		return err_trace(r);
	r = zi_region_map_at(memory, bytes, fd, 0, true);
	if (r) {
		(void)munmap(memory, bytes); /* The first error is the one to tell. */
		return err_trace(r);
	}
	*ret_memory = memory;
	return 0;
}

/* A descriptor that is shorter than it is said to be would kill us when touched. */
static void handle_map(struct worker *worker, const union net_message *message, int fd)
{
	const struct net_map *map = &message->map;
	struct exchange_slab slab = { .bytes = map->bytes };
	struct zi_text text;
	struct stat status;
	int r = 0;

	if (map->slab >= NET_SLABS_MAX || (map->bytes && fd < 0))
		r = zi_text_error(&text, -EINVAL, "slab %u of %lu bytes: there are %u", map->slab,
		                  (unsigned long)map->bytes, NET_SLABS_MAX);
	else if (map->bytes && (fstat(fd, &status) || status.st_size < (off_t)map->bytes))
		r = zi_text_error(&text, -EINVAL, "the slab has fewer than %lu bytes",
		                  (unsigned long)map->bytes);
	if (!r && map->bytes) {
		void *memory = NULL;

		r = map_slab(map->bytes, fd, &memory);
		if (r)
			r = zi_text_error(&text, r, "mapping a slab: %s", strerror(-r));
		slab.memory = memory;
	}
	if (r)
		worker_refuse(worker, message->header.cookie, r, &text);
	else
		(void)enqueue(worker, message, &slab); /* Answered either way. */
}

static void handle_abort(struct worker *worker, union net_message *message)
{
	struct nodes_end end = { .error = message->abort.error < 0 ? message->abort.error
		                                                   : -ECANCELED,
		                 .culprit = NET_CULPRIT_NONE };

	message->abort.text.chars[ZI_TEXT_BYTES - 1] = '\0';
	if (!worker->joined)
		return; /* A join ends by its own time; a daemon that cannot wait ends us. */
	end.text = message->abort.text;
	worker_end_epoch(worker, worker->joined, &end);
	/* Where nothing runs, somebody must still tell the others. */
	(void)enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
}

/* Documented in worker.h, as is the next. TALK_BATCH has no length of its own. */
uint32_t worker_message_bytes(uint32_t type)
{
	static const uint32_t bytes[_NET_TYPE_COUNT] = {
		[NET_JOIN] = sizeof(struct net_join),
		[NET_MAP] = sizeof(struct net_map),
		[NET_EXCHANGE] = sizeof(struct net_exchange),
		[NET_ABORT] = sizeof(struct net_abort),
		[NET_PING] = sizeof(struct net_header),
		[NET_MEET] = sizeof(struct net_meet),
		[NET_FOLLOW] = sizeof(struct net_follow),
		[NET_AGREE] = sizeof(struct net_agree),
		[NET_TALK] = sizeof(struct net_header),
	};

	return bytes[type];
}

void worker_handle(struct worker *worker, union net_message *message, int fd)
{
	switch (message->header.type) {
	case NET_JOIN:
		handle_join(worker, message);
		return;
	case NET_MEET:
		handle_meet(worker, message);
		return;
	case NET_AGREE:
		handle_agree(worker, message);
		return;
	case NET_FOLLOW:
		handle_follow(worker, message);
		return;
	case NET_TALK:
		handle_talk(worker, message);
		return;
	case NET_TALK_BATCH:
		return; /* It is taken. */
	case NET_MAP:
		handle_map(worker, message, fd);
		return;
	case NET_EXCHANGE:
		(void)enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
		return;
	case NET_ABORT:
		handle_abort(worker, message);
		return;
	default:
		message->header.type = NET_PONG;
		worker_send(worker, &message->header, sizeof(message->header));
	}
}
