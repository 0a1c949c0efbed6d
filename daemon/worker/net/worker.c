/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-net: the worker that exchanges one job's data with its other nodes; see worker.h, and
 * net.h for what the daemon says to it. Floor 3. Here: the control thread.
 */
#include "daemon/worker/net/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/wire/meet.h"

/* Beyond its deadline and the blame that follows, an operation hangs. */
#define WORKER_GRACE_NS (NODES_BLAME_NS + 2 * ZI_NS_PER_S)
/* Keys of the epochs before the last are nobody's. */
#define WORKER_EPOCHS_KEPT 1

/* The watch's post belongs to the nodes it watches, which know no worker. */
static struct worker the_worker;

static void limit_due(struct zi_timer *timer);

/* Nothing outlives this process but sockets, which the kernel closes: so it may end at any time. */
static void leave_now(int code)
{
	_exit(code);
}

static void send_message(struct worker *worker, const void *message, uint32_t bytes)
{
	ssize_t r;

	do
		r = send(worker->control.fd, message, bytes, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		leave_now(0); /* The daemon has closed its end. */
}

static void answer(struct worker *worker, uint64_t cookie, const struct nodes_end *end,
                   uint64_t busy_ns, const struct meet_result *met)
{
	struct net_done done = { .header = { NET_DONE, sizeof(done), cookie },
		                 .error = end->error,
		                 .culprit = end->culprit,
		                 .text = end->text,
		                 .busy_ns = busy_ns };

	if (met) {
		done.node_count = met->node_count;
		done.node = met->node;
		memcpy(done.nodes, met->nodes, sizeof(done.nodes));
	}
	send_message(worker, &done, sizeof(done));
}

/* Documented in worker.h. */
void worker_tell_late(struct worker *worker, uint32_t sequence, uint32_t member)
{
	struct net_header late = { NET_LATE, sizeof(late), net_late_cookie(sequence, member) };

	send_message(worker, &late, sizeof(late));
}

static void refuse(struct worker *worker, uint64_t cookie, int error, const struct zi_text *text)
{
	struct nodes_end end = { .error = error, .culprit = NET_CULPRIT_NONE, .text = *text };

	answer(worker, cookie, &end, 0, NULL);
}

/* ---- the queue ---- */

static uint64_t time_of(const struct worker_op *op)
{
	uint64_t ms = op->message.header.type == NET_JOIN       ? op->message.join.timeout_ms
	              : op->message.header.type == NET_MEET     ? op->message.meet.timeout_ms
	              : op->message.header.type == NET_EXCHANGE ? op->message.exchange.timeout_ms
	                                                        : 0;

	return ms * ZI_NS_PER_MS + WORKER_GRACE_NS;
}

/* The oldest has its own time from the moment it is the oldest. */
static void arm_limit(struct worker *worker)
{
	struct worker_op *op;

	zi_loop_disarm(&worker->limit);
	if (zi_list_is_empty(&worker->queue))
		return;
	op = container_of(worker->queue.next, struct worker_op, queue_link);
	/* Its ranks have their own deadlines, and the daemon ends whatever they give up. */
	if (op->message.header.type == NET_FOLLOW)
		return;
	zi_loop_arm(worker->loop, &worker->limit, zi_clock_deadline_ns(time_of(op)), limit_due);
}

static void limit_due(struct zi_timer *timer)
{
	struct worker *worker = container_of(timer, struct worker, limit);
	struct worker_op *op = container_of(worker->queue.next, struct worker_op, queue_link);
	struct nodes_end end = { .error = -ETIMEDOUT, .culprit = NET_CULPRIT_NONE };

	zi_text_set(&end.text,
	            "Gloo did not come back within %lu ms of its deadline: the worker ends",
	            (unsigned long)(WORKER_GRACE_NS / ZI_NS_PER_MS));
	answer(worker, op->message.header.cookie, &end, 0, NULL);
	leave_now(WORKER_EXIT_STUCK);
}

static struct worker_op *take_op(struct worker *worker, const union net_message *message)
{
	for (uint32_t i = 0; i < NET_QUEUE_MAX; i++) {
		struct worker_op *op = &worker->ops[i];

		if (op->is_used)
			continue;
		*op = (struct worker_op){ .worker = worker, .message = *message, .is_used = true };
		zi_list_push_back(&worker->queue, &op->queue_link);
		if (worker->queue.next == &op->queue_link)
			arm_limit(worker);
		return op;
	}
	return NULL;
}

/* Documented in worker.h. */
void worker_op_done(struct zi_post *post)
{
	struct worker_op *op = container_of(post, struct worker_op, post);
	struct worker *worker = op->worker;

	if (op->message.header.type == NET_JOIN)
		worker->is_joining = false;
	if (op->message.header.type == NET_JOIN && !op->end.error)
		worker->joined = worker->nodes;
	if (op->message.header.type != NET_ABORT)
		answer(worker, op->message.header.cookie, &op->end, op->busy_ns, &op->met);
	zi_list_remove(&op->queue_link);
	op->is_used = false;
	arm_limit(worker);
}

/* Documented in worker.h. */
void worker_watched(struct zi_post *post)
{
	worker_end_watched(&the_worker, nodes_of_post(post));
}

/* ---- requests ---- */

static int serve(struct worker *worker, const struct place *place, const char *interface,
                 struct store_server_options *options, struct zi_text *text)
{
	struct place_address own;
	int r = place_own_address(place, interface, text, &own);

	if (r)
		return err_trace(r);
	options->host = own.is_loopback ? own.address : NULL;
	options->port = place->port;
	return err_trace(store_server_open(worker->loop, options, text, &worker->store));
}

/* Node 0 serves the store, from its first join on. */
static int open_store(struct worker *worker, const struct net_join *join, struct zi_text *text)
{
	char prefix[24];

	if (join->node || join->flags & NET_JOIN_AS_CLIENT)
		return 0;
	if (worker->store) {
		(void)snprintf(prefix, sizeof(prefix), "%lu/",
		               (unsigned long)(join->epoch - WORKER_EPOCHS_KEPT - 1)); /* Fits. */
		store_server_forget(worker->store, prefix);
		return 0;
	}
	return err_trace(serve(worker, &join->place, join->interface,
	                       &(struct store_server_options){ .job = join->job,
	                                                       .incarnation = join->incarnation,
	                                                       .token = join->token },
	                       text));
}

/* By way of control's own posts: what the former epoch's watch posted has run then. */
static void forward(struct zi_post *post)
{
	struct worker_op *op = container_of(post, struct worker_op, post);
	struct worker *worker = op->worker;

	if (op->message.header.type == NET_JOIN) {
		worker->is_aborted = false;
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
	struct worker_op *op = take_op(worker, message);
	struct zi_text text = { "the worker has as many requests as it takes" };

	if (!op) {
		refuse(worker, message->header.cookie, -EBUSY, &text);
		return false;
	}
	op->slab = *slab;
	zi_loop_post(worker->loop, &op->post, forward);
	return true;
}

static bool is_string(const char *chars, size_t capacity)
{
	return memchr(chars, '\0', capacity) != NULL;
}

static void handle_join(struct worker *worker, const union net_message *message)
{
	const struct net_join *join = &message->join;
	struct zi_text text = { "another join is under way, or this one is none" };
	int r;

	if (worker->is_joining || !join->node_count || join->node_count > SUBTREE_NODES_MAX ||
	    join->node >= join->node_count || !join->timeout_ms || !join->epoch ||
	    !is_string(join->job, sizeof(join->job)) ||
	    !is_string(join->incarnation, sizeof(join->incarnation)) ||
	    !is_string(join->token, sizeof(join->token)) ||
	    !is_string(join->interface, sizeof(join->interface)) ||
	    !is_string(join->place.host, sizeof(join->place.host))) {
		refuse(worker, message->header.cookie, -EINVAL, &text);
		return;
	}
	r = open_store(worker, join, &text);
	if (r) {
		refuse(worker, message->header.cookie, r, &text);
		return;
	}
	zi_loop_disarm(&worker->moment);
	if (worker->joined)
		nodes_stop_watch(worker->joined);
	worker->joined = NULL;
	worker->is_joining = enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
}

static void handle_meet(struct worker *worker, const union net_message *message)
{
	const struct net_meet *meet = &message->meet;
	struct zi_text text = { "this meeting is none" };
	int r = 0;

	if (worker->joined || !meet->timeout_ms || !meet->ranks || !meet->world_size ||
	    meet->world_size > ZI_WORLD_MAX || !is_string(meet->job, sizeof(meet->job)) ||
	    !is_string(meet->incarnation, sizeof(meet->incarnation)) ||
	    !is_string(meet->token, sizeof(meet->token)) ||
	    !is_string(meet->interface, sizeof(meet->interface)) ||
	    !is_string(meet->place.host, sizeof(meet->place.host)))
		r = -EINVAL;
	else if (meet->ranks & 1 && !worker->store)
		r = serve(worker, &meet->place, meet->interface,
		          &(struct store_server_options){ .job = meet->job,
		                                          .incarnation = meet->incarnation,
		                                          .token = meet->token },
		          &text);
	if (r)
		refuse(worker, message->header.cookie, r, &text);
	else
		(void)enqueue(worker, message, &(struct exchange_slab){ .memory = NULL });
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
		refuse(worker, message->header.cookie, -EINVAL, &text);
}

/* A descriptor that is shorter than it is said to be would kill us when touched. */
static void handle_map(struct worker *worker, const union net_message *message, int fd)
{
	const struct net_map *map = &message->map;
	struct exchange_slab slab = { .bytes = map->bytes };
	struct zi_text text;
	struct stat status;
	void *memory;
	int r = 0;

	if (map->slab >= NET_SLABS_MAX || (map->bytes && fd < 0))
		r = zi_text_error(&text, -EINVAL, "slab %u of %lu bytes: there are %u", map->slab,
		                  (unsigned long)map->bytes, NET_SLABS_MAX);
	else if (map->bytes && (fstat(fd, &status) || status.st_size < (off_t)map->bytes))
		r = zi_text_error(&text, -EINVAL, "the slab has fewer than %lu bytes",
		                  (unsigned long)map->bytes);
	if (!r && map->bytes) {
		memory = mmap(NULL, map->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED)
			r = zi_text_error(&text, -errno, "mapping a slab: %s", strerror(errno));
		else
			slab.memory = memory;
	}
	if (r)
		refuse(worker, message->header.cookie, r, &text);
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

static const uint32_t message_bytes[_NET_TYPE_COUNT] = {
	[NET_JOIN] = sizeof(struct net_join),         [NET_MAP] = sizeof(struct net_map),
	[NET_EXCHANGE] = sizeof(struct net_exchange), [NET_ABORT] = sizeof(struct net_abort),
	[NET_PING] = sizeof(struct net_header),       [NET_MEET] = sizeof(struct net_meet),
	[NET_FOLLOW] = sizeof(struct net_follow),
};

static void handle(struct worker *worker, union net_message *message, int fd)
{
	switch (message->header.type) {
	case NET_JOIN:
		handle_join(worker, message);
		return;
	case NET_MEET:
		handle_meet(worker, message);
		return;
	case NET_FOLLOW:
		handle_follow(worker, message);
		return;
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
		send_message(worker, &message->header, sizeof(message->header));
	}
}

static void control_ready(struct zi_source *source, uint32_t events)
{
	struct worker *worker = container_of(source, struct worker, control);
	_cleanup_(zi_closep) int fd = -1;
	union net_message message;
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { &message, sizeof(message) };
	struct msghdr packet = { .msg_iov = &part,
		                 .msg_iovlen = 1,
		                 .msg_control = control,
		                 .msg_controllen = sizeof(control) };
	struct cmsghdr *extra;
	ssize_t bytes = recvmsg(source->fd, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	(void)events; /* The end shows in recvmsg(). */
	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0)
		leave_now(0);
	extra = CMSG_FIRSTHDR(&packet);
	if (extra && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(extra), sizeof(fd));
	if (bytes < (ssize_t)sizeof(message.header) || message.header.type >= _NET_TYPE_COUNT ||
	    message.header.bytes != (uint32_t)bytes ||
	    message_bytes[message.header.type] != (uint32_t)bytes) {
		log_error("zinf-net: a message of type %u with %zd bytes is none of a daemon's",
		          message.header.type, bytes);
		leave_now(WORKER_EXIT_PROTOCOL);
	}
	handle(worker, &message, fd);
}

/* ---- life ---- */

static int net_main(void *arg)
{
	return zi_loop_run(((struct worker *)arg)->net_loop);
}

static int start(struct worker *worker)
{
	struct net_header hello = { NET_HELLO, sizeof(hello), 0 };
	int r;

	zi_list_init(&worker->queue);
	worker->broken = (struct nodes_end){ .error = -ENOTCONN, .culprit = NET_CULPRIT_NONE };
	zi_text_set(&worker->broken.text, "the nodes of this job have not met");
	r = zi_loop_new(&worker->loop);
	r = r ? r : zi_loop_new(&worker->net_loop);
	r = r ? r
	      : zi_loop_add(worker->loop, &worker->control, NET_SOCKET_FD, EPOLLIN, control_ready);
	r = r ? r : zi_thread_start(&worker->thread, "net", net_main, worker);
	if (r)
		return err_trace(r);
	send_message(worker, &hello, sizeof(hello));
	return 0;
}

int main(int argc, char **argv)
{
	int r;

	(void)argv;
	if (argc > 1 || fcntl(NET_SOCKET_FD, F_GETFD) < 0) {
		(void)fprintf(stderr, "zinf-net is started by zinfd, with its socket as "
		                      "descriptor 3; it takes no arguments\n");
		return 1;
	}
	/* Gloo writes to sockets whose peers have gone. */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return 1;
	r = start(&the_worker);
	if (r) {
		log_error_errno(r, "zinf-net cannot start");
		return 1;
	}
	r = zi_loop_run(the_worker.loop);
	log_error_errno(r, "zinf-net's loop ended");
	return 1;
}
