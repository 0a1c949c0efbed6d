/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-net: the worker that exchanges one job's data with its other nodes; see worker.h, and
 * net.h for what the daemon says to it. Floor 3. Here: the control thread.
 */
#include "daemon/worker/net/worker.h"
#include "daemon/worker/net/rights.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/console.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/wire/control.h"

/* Beyond its deadline and the blame that follows, an operation hangs. */
#define WORKER_GRACE_NS (NODES_BLAME_NS + 2 * ZI_NS_PER_S)

/* The watch's post belongs to the nodes it watches, which know no worker. */
static struct worker the_worker;

static void limit_due(struct zi_timer *timer);

/* Nothing outlives this process but sockets, which the kernel closes: so it may end at any time. */
static void leave_now(int code)
{
	_exit(code);
}

/* Documented in worker.h. */
void worker_send(struct worker *worker, const void *message, uint32_t bytes)
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
		done.run = met->run;
		memcpy(done.nodes, met->nodes, sizeof(done.nodes));
	}
	worker_send(worker, &done, sizeof(done));
}

/* Documented in worker.h. */
void worker_tell_late(struct worker *worker, uint32_t sequence, uint32_t member)
{
	struct net_header late = { NET_LATE, sizeof(late), net_late_cookie(sequence, member) };

	worker_send(worker, &late, sizeof(late));
}

/* Documented in worker.h. */
void worker_tell_late_message(void *arg, const struct net_late_message *late)
{
	struct net_late_message message = *late;

	message.header = (struct net_header){ NET_LATE_MESSAGE, sizeof(message), 0 };
	worker_send(arg, &message, sizeof(message));
}

/* Documented in worker.h. */
void worker_tell_asked(void *arg, const struct net_asked *asked)
{
	struct net_asked message = *asked;

	message.header = (struct net_header){ NET_ASKED, sizeof(message), 0 };
	worker_send(arg, &message, sizeof(message));
}

/* Documented in worker.h. */
void worker_refuse(struct worker *worker, uint64_t cookie, int error, const struct zi_text *text)
{
	struct nodes_end end = { .error = error, .culprit = NET_CULPRIT_NONE, .text = *text };

	answer(worker, cookie, &end, 0, NULL);
}

/* ---- the queue ---- */

static bool is_call(const struct worker_op *op)
{
	return op->message.header.type == NET_FOLLOW || op->message.header.type == NET_TALK ||
	       op->message.header.type == NET_EXCHANGE;
}

static uint64_t time_of(const struct worker *worker, const struct worker_op *op)
{
	uint64_t ms = worker->is_aborted && is_call(op)         ? 0
	              : op->message.header.type == NET_JOIN     ? op->message.join.timeout_ms
	              : op->message.header.type == NET_MEET     ? op->message.meet.timeout_ms
	              : op->message.header.type == NET_AGREE    ? op->message.agree.timeout_ms
	              : op->message.header.type == NET_EXCHANGE ? op->message.exchange.timeout_ms
	                                                        : 0;

	return ms * ZI_NS_PER_MS + WORKER_GRACE_NS;
}

/* Documented in worker.h. The oldest has its own time from the moment it is the oldest; what was
 * aborted has none any more. */
void worker_arm_limit(struct worker *worker)
{
	struct worker_op *op;

	zi_loop_disarm(&worker->limit);
	if (zi_list_is_empty(&worker->queue))
		return;
	op = container_of(worker->queue.next, struct worker_op, queue_link);
	/* Its ranks have their own deadlines, or the daemon has, which ends whatever they give up;
	 * but then it must end. */
	if ((op->message.header.type == NET_FOLLOW || op->message.header.type == NET_TALK) &&
	    !worker->is_aborted)
		return;
	zi_loop_arm(worker->loop, &worker->limit, zi_clock_deadline_ns(time_of(worker, op)),
	            limit_due);
}

static void limit_due(struct zi_timer *timer)
{
	struct worker *worker = container_of(timer, struct worker, limit);
	struct worker_op *op = container_of(worker->queue.next, struct worker_op, queue_link);
	struct nodes_end end = { .error = -ETIMEDOUT, .culprit = NET_CULPRIT_NONE };

	zi_text_set(&end.text,
	            "Gloo did not come back within %lu ms of its deadline: the worker ends",
	            (unsigned long)(WORKER_GRACE_NS / ZI_NS_PER_MS));
	/* Why it was to end is what ranks are to hear; that it did not shows by the exit code. */
	if (worker->is_told && is_call(op))
		end = worker->abort_ends[worker->control_side];
	answer(worker, op->message.header.cookie, &end, 0, NULL);
	leave_now(WORKER_EXIT_STUCK);
}

/* Documented in worker.h. */
struct worker_op *worker_take_op(struct worker *worker, const union net_message *message)
{
	for (uint32_t i = 0; i < NET_QUEUE_MAX; i++) {
		struct worker_op *op = &worker->ops[i];

		if (op->is_used)
			continue;
		*op = (struct worker_op){ .worker = worker, .message = *message, .is_used = true };
		zi_list_push_back(&worker->queue, &op->queue_link);
		if (worker->queue.next == &op->queue_link)
			worker_arm_limit(worker);
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
	if (op->message.header.type == NET_TALK)
		worker_close_inbox(worker);
	if (op->message.header.type != NET_ABORT)
		answer(worker, op->message.header.cookie, &op->end, op->busy_ns, &op->met);
	zi_list_remove(&op->queue_link);
	memset(&op->message, 0, sizeof(op->message)); /* A token is nobody's to find. */
	op->is_used = false;
	worker_arm_limit(worker);
}

/* Documented in worker.h. */
void worker_watched(struct zi_post *post)
{
	worker_end_watched(&the_worker, nodes_of_post(post));
}

static bool is_whole(const union net_message *message, ssize_t bytes)
{
	if (bytes < (ssize_t)sizeof(message->header) || message->header.type >= _NET_TYPE_COUNT ||
	    message->header.bytes != (uint32_t)bytes)
		return false;
	if (message->header.type == NET_TALK_BATCH)
		return net_talk_batch_is_whole(&message->talk, (uint64_t)bytes);
	return worker_message_bytes(message->header.type) == (uint32_t)bytes;
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
	if (!is_whole(&message, bytes) ||
	    (message.header.type == NET_TALK_BATCH && worker_take_batch(worker, &message.talk))) {
		log_error("zinf-net: a message of type %u with %zd bytes is none of a daemon's",
		          message.header.type, bytes);
		leave_now(WORKER_EXIT_PROTOCOL);
	}
	worker_handle(worker, &message, fd);
	explicit_bzero(&message, sizeof(message)); /* As in worker_op_done(). */
}

/* ---- life ---- */

static int net_main(void *arg)
{
	return zi_loop_run(((struct worker *)arg)->net_loop);
}

static int start(struct worker *worker)
{
	struct net_header hello = { NET_HELLO, sizeof(hello), ZI_COLL_VERSION };
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
	worker_send(worker, &hello, sizeof(hello));
	return 0;
}

/* Return: the exit code. */
static int help(void)
{
	int r;

	(void)puts(
		"usage: zinf-net UID\n"
		"The worker process that exchanges one job's data with its other nodes. zinfd\n"
		"starts a zinf-net for each job over several nodes, with a socket as descriptor\n"
		"3 and the job's uid as argument. Users and administrators do not start it.\n"
		"\n"
		"  --help  this text\n"
		"\n"
		"example: zctl jobs JOB shows the nodes that a zinf-net connects");
	r = zi_console_flush();
	if (r < 0)
		(void)fprintf(stderr, "zinf-net: writing to standard output failed: %s\n",
		              strerror(-r));
	return r ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct zi_text text;
	int r;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return help();
	if (argc > 2 || fcntl(NET_SOCKET_FD, F_GETFD) < 0) {
		(void)fprintf(stderr, "zinf-net is started by zinfd, with its socket as "
		                      "descriptor 3 and the job's uid as argument\n");
		return 1;
	}
	r = rights_give_up(argv[1], &text);
	if (r) {
		log_error_errno(r, "zinf-net cannot start: %s", text.chars);
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
