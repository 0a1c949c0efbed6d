/* SPDX-License-Identifier: Apache-2.0 */
/* A worker program seen from the daemon; see supervise.h. Floor 3. The loop's thread. */
#include "daemon/worker/supervise.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/control.h"
#include "daemon/worker/spawn.h"
#include "daemon/worker/supervise_private.h"

#define SUPERVISE_PING_NS ZI_NS_PER_S
#define SUPERVISE_PONG_NS (5 * ZI_NS_PER_S)
/* A worker tells of its own time-outs, after it has asked the others whose fault it is. */
#define SUPERVISE_GRACE_NS (4 * ZI_NS_PER_S)
/* Linux has none beyond it: pointers end there. */
#define SUPERVISE_ERRNO_MAX 4095
/* Mapping a slab makes page tables: nothing that waits for others. */
#define SUPERVISE_MAP_MS 10000u

static void heart_due(struct zi_timer *timer);

static void beat(struct net_worker *worker, uint64_t after_ns)
{
	zi_loop_arm(worker->loop, &worker->heart, zi_clock_deadline_ns(after_ns), heart_due);
}

static void request_end(struct net_request *request, int error, uint32_t culprit,
                        const struct zi_text *text, uint64_t busy_ns)
{
	struct net_worker *worker = request->worker;

	zi_loop_disarm(&request->limit);
	zi_list_remove(&request->link);
	assert(worker->request_count > 0);
	worker->request_count--;
	if (request == worker->talk.request)
		supervise_talk_end(worker);
	request->error = error;
	request->culprit = culprit;
	request->text = *text;
	request->busy_ns = busy_ns;
	request->done(request); /* The request is its owner's again, who may make another. */
}

/* The process is taken away; then its requests hear of it, those that they make anew do not. */
void supervise_end(struct net_worker *worker, int error, const struct zi_text *why)
{
	struct zi_list orphans;
	struct zi_text text, fate;
	pid_t pid = worker->pid;

	assert(worker->state != NET_WORKER_DOWN);
	zi_loop_disarm(&worker->heart);
	zi_loop_remove(&worker->control);
	zi_loop_remove(&worker->exited);
	(void)zi_close(worker->control.fd);
	/* By the pidfd, which names this process whatever became of its number. */
	(void)syscall(SYS_pidfd_send_signal, worker->exited.fd, SIGKILL, NULL, 0);
	spawn_reap(worker->exited.fd, &fate);
	(void)zi_close(worker->exited.fd);
	worker->state = NET_WORKER_DOWN;
	supervise_talk_end(worker);
	worker->pid = 0;
	if (why)
		zi_text_set(&text, "%s", why->chars);
	else
		zi_text_set(&text, "zinf-net (pid %d) %s", (int)pid, fate.chars);
	zi_list_init(&orphans);
	zi_list_for_each_safe(link, &worker->requests) {
		zi_list_remove(link);
		zi_list_push_back(&orphans, link);
	}
	while (!zi_list_is_empty(&orphans))
		request_end(container_of(orphans.next, struct net_request, link), error,
		            NET_CULPRIT_NONE, &text, 0);
	if (worker->options.ended)
		worker->options.ended(worker->options.arg, &text);
}

static void worker_exited(struct zi_source *source, uint32_t events)
{
	struct net_worker *worker = container_of(source, struct net_worker, exited);

	(void)events; /* There is one alone. */
	supervise_end(worker, -EPIPE, NULL);
}

/* Documented in supervise_private.h. */
int supervise_send(struct net_worker *worker, const struct net_header *header, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { (void *)header, header->bytes }; /* Read alone. */
	struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t r;

	if (fd >= 0) {
		struct cmsghdr *extra = (struct cmsghdr *)control;

		packet.msg_control = control;
		packet.msg_controllen = sizeof(control);
		*extra = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
			                   .cmsg_level = SOL_SOCKET,
			                   .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(extra), &fd, sizeof(fd));
	}
	do
		r = sendmsg(worker->control.fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	if (r < 0 && (errno == EAGAIN || errno == ENOBUFS))
		return err_origin(-EBUSY);
	return r < 0 ? err_origin(-ENOTCONN) : 0; /* Its end is on its way to us. */
}

static void heart_due(struct zi_timer *timer)
{
	struct net_worker *worker = container_of(timer, struct net_worker, heart);
	struct net_header ping = { NET_PING, sizeof(ping), 0 };
	struct zi_text text;

	if (worker->is_pinged || worker->state == NET_WORKER_STARTING) {
		zi_text_set(&text, "zinf-net (pid %d) hung: it did not answer for %lu ms",
		            (int)worker->pid,
		            (unsigned long)(worker->options.pong_ns / ZI_NS_PER_MS));
		supervise_end(worker, -ETIMEDOUT, &text);
		return;
	}
	worker->is_pinged = true;
	/* Not sent: then there is no answer either. */
	(void)supervise_send(worker, &ping, -1);
	beat(worker, worker->options.pong_ns);
}

/* ---- answers ---- */

/* A daemon may run on while its programs are replaced by those of another release. */
static void handle_hello(struct net_worker *worker, uint64_t version)
{
	struct zi_text text;

	if (version == ZI_COLL_VERSION) {
		worker->state = NET_WORKER_UP;
		beat(worker, worker->options.ping_ns);
		return;
	}
	zi_text_set(&text,
	            "%s makes collectives by version %llu, zinfd " ZINF_VERSION
	            " by version %u: restart zinfd, or install both of one release",
	            worker->options.program, (unsigned long long)version, ZI_COLL_VERSION);
	supervise_end(worker, -EPROTONOSUPPORT, &text);
}

/* 0 or such an errno as Linux has. */
static int error_of(const struct net_done *done)
{
	return done->error > 0 || done->error < -SUPERVISE_ERRNO_MAX ? -EPROTO : done->error;
}

static void handle_done(struct net_worker *worker, const struct net_done *done)
{
	zi_list_for_each(link, &worker->requests) {
		struct net_request *request = container_of(link, struct net_request, link);
		struct zi_text text = done->text;

		if (request->cookie != done->header.cookie)
			continue;
		text.chars[sizeof(text.chars) - 1] = '\0';
		request->reply = *done;
		request_end(request, error_of(done), done->culprit, &text, done->busy_ns);
		return;
	}
	/* One that was given up. */
}

static void control_ready(struct zi_source *source, uint32_t events)
{
	struct net_worker *worker = container_of(source, struct net_worker, control);
	union net_message message;
	struct zi_text text;
	ssize_t bytes = recv(source->fd, &message, sizeof(message), MSG_DONTWAIT);

	(void)events; /* The end shows in recv(). */
	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0) {
		/* It is about to exit; or it has closed its end alone, and is of no use. */
		supervise_end(worker, -EPIPE, NULL);
		return;
	}
	if (bytes == sizeof(message.header) && message.header.type == NET_HELLO &&
	    worker->state == NET_WORKER_STARTING) {
		handle_hello(worker, message.header.cookie);
	} else if (bytes == sizeof(message.header) && message.header.type == NET_PONG) {
		worker->is_pinged = false;
		beat(worker, worker->options.ping_ns);
	} else if (bytes == sizeof(message.done) && message.header.type == NET_DONE) {
		handle_done(worker, &message.done);
	} else if (bytes == sizeof(message.header) && message.header.type == NET_LATE) {
		if (worker->options.late)
			worker->options.late(worker->options.arg, (uint32_t)message.header.cookie,
			                     (uint32_t)(message.header.cookie >> 32));
	} else if (bytes == sizeof(message.late_message) &&
	           message.header.type == NET_LATE_MESSAGE) {
		if (worker->options.late_message)
			worker->options.late_message(worker->options.arg, &message.late_message);
	} else if (bytes == sizeof(message.asked) && message.header.type == NET_ASKED) {
		if (worker->options.asked)
			worker->options.asked(worker->options.arg, &message.asked);
	} else if (bytes >= (ssize_t)sizeof(message.header) &&
	           message.header.type == NET_TALK_BATCH &&
	           supervise_talked(worker, &message.talk, (uint64_t)bytes)) {
		return;
	} else {
		zi_text_set(&text,
		            "zinf-net (pid %d) sent a message of type %u, %zd bytes: none of its",
		            (int)worker->pid, message.header.type, bytes);
		supervise_end(worker, -EPROTO, &text);
	}
}

/* ---- requests ---- */

static void limit_due(struct zi_timer *timer)
{
	struct net_request *request = container_of(timer, struct net_request, limit);
	struct net_worker *worker = request->worker;
	struct zi_text text;

	zi_text_set(&text, "zinf-net (pid %d) hung: a request had no answer past its deadline",
	            (int)worker->pid);
	supervise_end(worker, -ETIMEDOUT, &text);
}

/* The oldest is served first: those before it have their time, too. */
static uint64_t limit_ns(const struct net_worker *worker, uint64_t timeout_ms)
{
	uint64_t latest_ns = zi_clock_now_ns();

	if (!zi_list_is_empty(&worker->requests))
		latest_ns = ZI_MAX(latest_ns,
		                   container_of(worker->requests.prev, struct net_request, link)
		                           ->limit.deadline_ns);
	return latest_ns + timeout_ms * ZI_NS_PER_MS + SUPERVISE_GRACE_NS;
}

/* Documented in supervise_private.h. */
int supervise_submit(struct net_worker *worker, struct net_request *request,
                     struct net_header *header, uint32_t type, uint32_t bytes, uint64_t timeout_ms,
                     int fd)
{
	int r;

	assert(request->done);
	if (worker->state == NET_WORKER_DOWN)
		return err_origin(-ENOTCONN);
	if (worker->request_count >= NET_QUEUE_MAX)
		return err_origin(-EBUSY);
	*header = (struct net_header){ type, bytes, ++worker->cookie };
	r = supervise_send(worker, header, fd);
	if (r)
		return err_trace(r);
	request->worker = worker;
	request->cookie = worker->cookie;
	request->limit = (struct zi_timer){ .loop = NULL };
	if (timeout_ms != SUPERVISE_NO_LIMIT)
		zi_loop_arm(worker->loop, &request->limit, limit_ns(worker, timeout_ms), limit_due);
	zi_list_push_back(&worker->requests, &request->link);
	worker->request_count++;
	return 0;
}

/* Documented in the header, as are all of these. */
int net_worker_join(struct net_worker *worker, struct net_request *request, struct net_join *join)
{
	return err_trace(supervise_submit(worker, request, &join->header, NET_JOIN, sizeof(*join),
	                                  join->timeout_ms, -1));
}

int net_worker_meet(struct net_worker *worker, struct net_request *request, struct net_meet *meet)
{
	return err_trace(supervise_submit(worker, request, &meet->header, NET_MEET, sizeof(*meet),
	                                  meet->timeout_ms, -1));
}

int net_worker_agree(struct net_worker *worker, struct net_request *request,
                     struct net_agree *agree)
{
	return err_trace(supervise_submit(worker, request, &agree->header, NET_AGREE,
	                                  sizeof(*agree), agree->timeout_ms, -1));
}

int net_worker_follow(struct net_worker *worker, struct net_request *request,
                      struct net_follow *follow)
{
	return err_trace(supervise_submit(worker, request, &follow->header, NET_FOLLOW,
	                                  sizeof(*follow), SUPERVISE_NO_LIMIT, -1));
}

int net_worker_map(struct net_worker *worker, struct net_request *request, uint32_t slab, int fd,
                   uint64_t bytes)
{
	struct net_map map = { .slab = slab, .bytes = bytes };

	return err_trace(supervise_submit(worker, request, &map.header, NET_MAP, sizeof(map),
	                                  SUPERVISE_MAP_MS, fd));
}

int net_worker_exchange(struct net_worker *worker, struct net_request *request,
                        struct net_exchange *exchange)
{
	return err_trace(supervise_submit(worker, request, &exchange->header, NET_EXCHANGE,
	                                  sizeof(*exchange), exchange->timeout_ms, -1));
}

void net_worker_abort(struct net_worker *worker, int error, const struct zi_text *text)
{
	struct net_abort message = { .header = { NET_ABORT, sizeof(message), 0 },
		                     .error = error,
		                     .text = *text };

	/* One that takes no message hangs, and is ended for that. */
	if (worker->state == NET_WORKER_UP)
		(void)supervise_send(worker, &message.header, -1);
}

void net_worker_kill(struct net_worker *worker, const struct zi_text *text)
{
	if (worker->state != NET_WORKER_DOWN)
		supervise_end(worker, -ECANCELED, text);
}

/* ---- life ---- */

int net_worker_new(struct zi_loop *loop, const struct net_worker_options *options,
                   struct net_worker **ret_worker)
{
	struct net_worker *worker = calloc(1, sizeof(*worker));

	if (!worker)
		return err_origin(-ENOMEM);
	worker->options = *options;
	worker->options.ping_ns = options->ping_ns ? options->ping_ns : SUPERVISE_PING_NS;
	worker->options.pong_ns = options->pong_ns ? options->pong_ns : SUPERVISE_PONG_NS;
	worker->loop = loop;
	zi_list_init(&worker->requests);
	*ret_worker = worker;
	return 0;
}

struct net_worker *net_worker_free(struct net_worker *worker)
{
	static const struct zi_text text = { "the daemon lets zinf-net go" };

	if (!worker)
		return NULL;
	worker->options.ended = NULL;
	if (worker->state != NET_WORKER_DOWN)
		supervise_end(worker, -ESHUTDOWN, &text);
	assert(!worker->request_count);
	free(worker);
	return NULL;
}

int net_worker_start(struct net_worker *worker, struct zi_text *text)
{
	int fd, pidfd, r;
	pid_t pid;

	assert(worker->state == NET_WORKER_DOWN);
	r = spawn_worker(worker->options.program, worker->options.uid, text, &fd, &pidfd, &pid);
	if (r)
		return err_trace(r);
	r = zi_loop_add(worker->loop, &worker->control, fd, EPOLLIN, control_ready);
	if (!r) {
		r = zi_loop_add(worker->loop, &worker->exited, pidfd, EPOLLIN, worker_exited);
		if (r)
			zi_loop_remove(&worker->control);
	}
	if (r) {
		struct zi_text fate;

		(void)zi_close(fd); /* At which it ends. */
		spawn_reap(pidfd, &fate);
		(void)zi_close(pidfd);
		return err_trace(zi_text_error(text, r, "watching %s: %s", worker->options.program,
		                               strerror(-r)));
	}
	worker->pid = pid;
	worker->is_pinged = false;
	worker->state = NET_WORKER_STARTING;
	beat(worker, worker->options.pong_ns);
	return 0;
}

enum net_worker_state net_worker_state(const struct net_worker *worker)
{
	return worker->state;
}

pid_t net_worker_pid(const struct net_worker *worker)
{
	return worker->pid;
}
